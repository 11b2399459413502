"""
Cameras that agree on their orientations
========================================

**Beginner, 10 minutes.** You learn to estimate rotations from noisy pairs, and to prove that no others fit
better. Before this: :doc:`Riemannian optimisation in twenty minutes </learn/twenty_minutes>`.

Sixty cameras stand in a circle. Pairs that see the same things tell how one is turned against the other, with
errors. What are their orientations? A chain of measurements adds up its errors; all measurements together, a
problem on the rotation group, do not. At the end a certificate says that no other orientations fit better (Rosen,
Carlone, Bandeira and Leonard 2019).
"""

# %%
# The measurements
# ----------------
#
# A camera's orientation is a rotation :math:`R_i`. A pair measures :math:`Q_{ij} \approx R_i R_j^\top`.

import numpy as np

from rmopt.manifolds import SpecialOrthogonal

n_cameras, reach, noise = 60, 4, 0.15
rng = np.random.default_rng(0)
manifold = SpecialOrthogonal(3, n_cameras)
truth = manifold.random_point(rng)

# Each camera and the next four around the circle.
i = np.repeat(np.arange(n_cameras), reach)
j = (i + np.tile(np.arange(1, reach + 1), n_cameras)) % n_cameras
pairs = SpecialOrthogonal(3, len(i))
exact = truth[i] @ truth[j].mT
turns = pairs.random_tangent_vector(exact, rng)
turns *= noise / np.linalg.norm(turns, axis=(1, 2), keepdims=True)
measured = pairs.exp(exact, turns)

# %%
# A chain
# -------
#
# The first idea: fix one camera, and go around the circle from one to the next.

chain = np.empty_like(truth)
chain[0] = truth[0]
following = {(int(a), int(b)): Q for a, b, Q in zip(i, j, measured, strict=True)}
for camera in range(1, n_cameras):
    chain[camera] = following[camera - 1, camera].T @ chain[camera - 1]

# %%
# All together
# ------------
#
# Least squares: :math:`\frac12 \sum \|X_i - Q_{ij} X_j\|^2` over rotations. The chain is the start. A cost has a
# value and a Euclidean gradient; with the products of its Hessian, trust regions take few steps.

import rmopt
from rmopt.core import Cost
from rmopt.solvers import TrustRegions


class Synchronisation(Cost):
    """Half the sum of squared misfits, less a constant."""

    def hessian(self, X, direction):
        """Return the gradient for the direction: the cost is quadratic."""
        product = np.zeros_like(direction)
        np.add.at(product, i, -measured @ direction[j])
        np.add.at(product, j, -measured.mT @ direction[i])
        return product

    def value(self, X):
        """Return the cost."""
        return 0.5 * float(np.sum(X * self.gradient(X)))

    def gradient(self, X):
        """Return the Euclidean gradient."""
        return self.hessian(X, X)


problem = rmopt.Problem(manifold, Synchronisation())
result = TrustRegions(gradient_norm=1e-9).run(problem, chain)
print(f"{len(result.history) - 1} steps, {result.stopped_by}")

# %%
# A certificate
# -------------
#
# With :math:`\Lambda` of the blocks :math:`\mathrm{sym}(\sum_j Q_{ij} X_j X_i^\top)`, the matrix :math:`\Lambda - H`,
# where :math:`H` holds the :math:`Q_{ij}`, is positive semidefinite only at a global minimum.

H = np.zeros((n_cameras, 3, n_cameras, 3))
H[i, :, j] += measured
H[j, :, i] += measured.mT
H = H.reshape(3 * n_cameras, 3 * n_cameras)
dual = -problem.cost.gradient(result.point) @ result.point.mT
S = -H
for camera in range(n_cameras):
    own = slice(3 * camera, 3 * camera + 3)
    S[own, own] += 0.5 * (dual[camera] + dual[camera].T)
least = float(np.linalg.eigvalsh(S)[0])
print(f"least eigenvalue {least:.0e}: no orientations fit better")

# %%
# What it is worth
# ----------------

import matplotlib.pyplot as plt


def errors(X):
    """Return the angles to the truth in degrees, after the best common turn."""
    U, _, Vt = np.linalg.svd(np.sum(X.mT @ truth, axis=0))
    off = X @ (U @ np.diag([1, 1, np.linalg.det(U @ Vt)]) @ Vt) @ truth.mT
    cosine = 0.5 * (np.trace(off, axis1=1, axis2=2) - 1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
left.plot(errors(chain), "o-", markersize=3, label="a chain")
left.plot(errors(result.point), "s-", markersize=3, label="all together")
left.set_xlabel("camera around the circle")
left.set_ylabel("error in degrees")
left.set_ylim(bottom=0)
left.legend()
right.semilogy([row["gradient_norm"] for row in result.history], "o-", color="C2")
right.set_xlabel("step of trust regions")
right.set_ylabel("length of the gradient")
figure.tight_layout()
plt.show()

# %%
# The same at ten thousand rotations is a row of the page :doc:`/measured/benchmarks`.

assert least > -1e-8
assert errors(result.point).mean() < 0.5 * errors(chain).mean()
