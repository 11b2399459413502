"""
Follow a subspace that moves
============================

**Beginner, 10 minutes.** You learn to follow a moving subspace, one vector at a time, with a manifold alone.
Before this: :doc:`Riemannian optimisation in twenty minutes </learn/twenty_minutes>`.

Vectors arrive one at a time, most of their entries missing, and lie near a subspace that turns slowly: traffic on
a network, say, whose habits change. One step on the Grassmann manifold for each vector follows it (Balzano, Nowak
and Recht 2010). There is no data set here, and no solver: a manifold is of use alone.
"""

# %%
# A stream
# --------
#
# The subspace of dimension 3 moves along a geodesic, and jumps once.

import numpy as np

from rmopt.manifolds import Grassmann

manifold = Grassmann(60, 3)


def stream(length, rng):
    """Yield a vector, which of its entries are seen, and the subspace that it came from."""
    basis = manifold.random_point(rng)
    direction = manifold.random_tangent_vector(basis, rng)
    for step in range(length):
        if step == length // 2:
            basis = manifold.random_point(rng)
            direction = manifold.random_tangent_vector(basis, rng)
        now = manifold.exp(basis, 2e-3 * (step % (length // 2)) * direction)
        vector = now @ rng.standard_normal(3) + 0.02 * rng.standard_normal(60)
        yield vector, rng.random(60) < 0.4, now


# %%
# One step
# --------
#
# The weights :math:`w` that fit the entries seen leave residuals :math:`r`. The squared residual as a function of
# the subspace has the gradient :math:`-r w^\top`, and the step goes along the geodesic against it.


def track(size, length=4000):
    """Return the distances of the estimate to the truth."""
    rng = np.random.default_rng(0)
    U, distances = manifold.random_point(rng), []
    for vector, seen, truth in stream(length, rng):
        weights = np.linalg.lstsq(U[seen], vector[seen], rcond=None)[0]
        residual = np.where(seen, vector - U @ weights, 0.0)
        gradient = manifold.projection(U, -np.outer(residual, weights))
        # A step of the length that would fit this vector, times the size.
        U = manifold.exp(U, -size / max(1.0, weights @ weights) * gradient)
        distances.append(manifold.dist(U, truth))
    return np.array(distances)


# %%
# How large a step?
# -----------------
#
# Small steps are slow to arrive and lag behind; large ones tremble with the noise.

import matplotlib.pyplot as plt

found = {size: track(size) for size in (0.03, 0.3, 1.0)}
figure, axes = plt.subplots(figsize=(7, 3.5))
for size, distances in found.items():
    smooth = np.convolve(distances, np.ones(25) / 25, mode="valid")
    axes.semilogy(smooth, label=f"size {size:g}")
axes.axvline(2000, color="grey", linestyle=":")
axes.annotate("the subspace jumps", (2130, 2.1), fontsize="small")
axes.set_xlabel("vectors seen")
axes.set_ylabel("distance to the subspace")
axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
figure.tight_layout()
plt.show()

late = {size: distances[-200:].mean() for size, distances in found.items()}
print({size: round(float(value), 3) for size, value in late.items()})
assert late[0.3] < 0.5 * late[0.03]
