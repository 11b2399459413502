"""
Write a manifold
================

**Advanced, 20 minutes.** You learn to write a manifold, to check its properties and to run solvers on it.
Before this: :doc:`Write a retraction <05_write_a_retraction>`.

A manifold is a class with a dozen short methods: inner product, projection, random points, transport. This
one is the Stiefel manifold, matrices with orthonormal columns, from nothing; `rmopt.manifolds.Stiefel` is a longer
one. Its laws are then measured, and solvers run on it.
"""

# %%
# Matrices with orthonormal columns
# ---------------------------------
#
# Tangent vectors at X are the Z with XᵀZ + ZᵀX = 0. Points and tangent vectors are plain arrays here;
# anything with + − * / will do.

import matplotlib.pyplot as plt
import numpy as np

from rmopt.core import Manifold
from rmopt.core.ambient import dense
from rmopt.linalg import symmetric
from rmopt.retractions import QR, Polar


class Stiefel(Manifold):
    """All n × p matrices with orthonormal columns, with the inner product of the ambient space."""

    point_type = np.ndarray

    def __init__(self, n, p):
        self.shape = (n, p)
        self.default_retraction = Polar()

    def __repr__(self):
        return f"Stiefel({self.shape[0]}, {self.shape[1]})"

    @property
    def dim(self):
        n, p = self.shape
        return n * p - p * (p + 1) // 2

    def inner_product(self, point, tangent_vector_a, tangent_vector_b):
        return float(np.vdot(tangent_vector_a, tangent_vector_b))

    def projection(self, point, ambient):
        Z = dense(ambient)
        return Z - point @ symmetric(point.T @ Z)

    def euclidean_to_riemannian_hessian(
        self, point, euclidean_gradient, euclidean_hessian, tangent_vector
    ):
        G, H = dense(euclidean_gradient), dense(euclidean_hessian)
        return self.projection(point, H - tangent_vector @ symmetric(point.T @ G))

    def embedding(self, point, tangent_vector):
        return tangent_vector

    def embed_point(self, point):
        return point

    def zero_vector(self, point):
        return np.zeros(self.shape)

    def random_point(self, rng=None):
        return np.linalg.qr(np.random.default_rng(rng).standard_normal(self.shape))[0]

    def random_tangent_vector(self, point, rng=None):
        vector = self.projection(
            point, np.random.default_rng(rng).standard_normal(self.shape)
        )
        return vector / np.linalg.norm(vector)

    def transport(self, point_a, point_b, tangent_vector_a):
        return self.projection(point_b, tangent_vector_a)

    def check_point(self, point):
        error = np.abs(point.T @ point - np.eye(self.shape[1])).max()
        return None if error < 1e-10 else f"XᵀX − I reaches {error:.1e}"


# %%
# Its laws
# --------
#
# The laws of the manifold, and those of two retractions that the library has for subspaces. Those of geodesics
# are left out, since this manifold knows none. On orthonormal *frames* the retraction by polar factors stays of
# second order, the one by QR does not: the check finds it out.

from rmopt.checks import check_hessian, check_manifold, check_retraction

manifold = Stiefel(9, 3)
laws = check_manifold(manifold)
for check in (*laws, *check_retraction(Polar(), manifold)):
    print(check)
by_qr = check_retraction(QR(), manifold)[1]
print(by_qr)

# %%
# A problem on it
# ---------------
#
# Minimising tr(XᵀAXN) with N = diag(p, …, 1) over frames gives the eigenvectors of A for its least
# eigenvalues, in order (Brockett 1991).

from rmopt import Problem
from rmopt.core import Cost
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions

rng = np.random.default_rng(0)
A = symmetric(rng.standard_normal((9, 9)))
weights = np.array([3.0, 2.0, 1.0])


class Brockett(Cost):
    """½ tr(XᵀAXN)."""

    def value(self, point):
        return 0.5 * float(np.sum(weights * point * (A @ point)))

    def gradient(self, point):
        return weights * (A @ point)

    def hessian(self, point, direction):
        return weights * (A @ direction)


problem = Problem(manifold, Brockett())
values, vectors = np.linalg.eigh(A)
least = 0.5 * float(weights @ values[:3])
hessian = check_hessian(problem)
print(*hessian, sep="\n")

# %%
# Every solver of whole gradients runs on it. Trust regions use the Hessian that was written above; without it they
# would take differences of gradients.

start = manifold.random_point(rng)
ends = {
    type(solver).__name__: solver.run(problem, start)
    for solver in (GradientDescent(), ConjugateGradient(), LBFGS(), TrustRegions())
}
for name, end in ends.items():
    print(
        f"{name:18} {end.steps:4} steps, excess {end.history[-1]['cost'] - least:.1e}"
    )

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, end in ends.items():
    axes.semilogy([max(row["cost"] - least, 1e-15) for row in end.history], label=name)
axes.set_xlabel("step")
axes.set_ylabel("cost above the minimum")
axes.legend(frameon=False)
plt.show()

# %%
# To add a manifold to the library itself, see :doc:`/extend/manifold`. What should hold:

assert all(laws)
assert all(check_retraction(Polar(), manifold))
assert not by_qr
assert all(hessian)
assert all(end.converged and abs(end.cost - least) < 1e-8 for end in ends.values())
overlap = np.abs(vectors[:, :3].T @ ends["TrustRegions"].point)
assert np.allclose(overlap, np.eye(3), atol=1e-5)
