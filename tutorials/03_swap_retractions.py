"""
Swap retractions and see the order
==================================

**Intermediate, 10 minutes.** You learn to exchange retractions, and to see their order as a slope. Before
this: :doc:`Retractions and their order </learn/retractions>`.

A retraction moves from a point along a tangent vector and ends on the manifold. It agrees with the geodesic
to first or to second order; the order shows as a slope. Any solver takes any retraction that fits the
manifold's points.
"""

# %%
# Three ways to move a positive definite matrix
# ---------------------------------------------
#
# `AffineExponential` follows the geodesic of the affine-invariant metric. `SecondOrderPD` is a polynomial of
# degree 2 and needs no eigenvalues. `Additive` goes straight on and leaves the cone when the step is long.

import matplotlib.pyplot as plt
import numpy as np

from rmopt.manifolds import FixedRankEmbedded, Grassmann, PositiveDefinite
from rmopt.retractions import (
    QR,
    Additive,
    AffineExponential,
    MetricProjection,
    Orthographic,
    Polar,
    SecondOrder,
    SecondOrderPD,
)

rng = np.random.default_rng(0)
cone = PositiveDefinite(5)
point = cone.random_point(rng)
direction = cone.random_tangent_vector(point, rng)
steps = np.geomspace(1e-3, 0.5, 12)
distance = {
    retraction: [
        cone.dist(retraction(cone, point, direction, t), cone.exp(point, t * direction))
        for t in steps
    ]
    for retraction in (Additive(), SecondOrderPD())
}

# %%
# The distance to the geodesic falls like t² for a retraction of order 1, and like t³ for one of order 2.

figure, axes = plt.subplots(figsize=(6, 3.8))
for retraction, gaps in distance.items():
    slope = np.polyfit(np.log(steps[:6]), np.log(gaps[:6]), 1)[0]
    axes.loglog(
        steps,
        gaps,
        "o-",
        label=f"{retraction.name}, order {retraction.order}: slope {slope:.2f}",
    )
axes.set_xlabel("step t")
axes.set_ylabel("distance to the geodesic")
axes.legend()
figure.tight_layout()
plt.show()

# %%
# `check_retraction` measures both slopes that a retraction has to have, on any manifold. Where no geodesic
# has a closed form, as for matrices of one rank, it looks at the tangential part of R(x, tξ) − x − tξ.

from rmopt.checks import check_retraction

checks = []
for manifold, retractions in (
    (cone, [Additive(), SecondOrderPD(), AffineExponential()]),
    (Grassmann(8, 3), [QR(), Polar()]),
    (FixedRankEmbedded(9, 7, 3), [SecondOrder(), MetricProjection(), Orthographic()]),
):
    for retraction in retractions:
        found = check_retraction(retraction, manifold)
        checks += found
        print(
            f"{retraction!r:20} on {manifold!s:26} slopes {found[0].measured:.2f} and {found[1].measured:.2f}"
        )

# %%
# In a solver
# -----------
#
# Solvers take a retraction by argument. All three on matrices of one rank have compiled twins, so the swap
# costs no speed worth speaking of; small steps end at nearly the same matrix, since the curves agree to
# second order.

from rmopt import Problem
from rmopt.costs import BilinearSum, squared
from rmopt.solvers import SGD

matrices = FixedRankEmbedded(40, 30, 4)
truth = matrices.random_point(rng)
left, right = rng.standard_normal((3000, 40)) / 6, rng.standard_normal((3000, 30)) / 6
targets = np.einsum("ij,ij->i", left @ truth.U @ truth.S, right @ truth.V)
problem = Problem(matrices, BilinearSum(left, right, squared, targets))
start, ends = matrices.random_point(rng), {}
for retraction in (SecondOrder(), MetricProjection(), Orthographic()):
    solver = SGD(0.02, max_iter=30_000, retraction=retraction)
    found = solver.run(problem, start, random_state=0)
    ends[retraction.name] = matrices.to_dense(found.point)
    print(
        f"{retraction.name:18} cost {problem.cost.value(found.point):.1e}  {type(solver.engine(problem)).__name__}"
    )

# %%
# In pymanopt's optimizers
# ------------------------
#
# They ask the manifold for its retraction. `using` returns the same manifold with another one.

from rmopt.interop import PymanoptSolver

iterations = {}
for retraction in (SecondOrder(), MetricProjection()):
    swapped = Problem(matrices.using(retraction), problem.cost)
    found = PymanoptSolver(
        "ConjugateGradient", max_iterations=300, min_gradient_norm=1e-8
    ).run(swapped, start)
    iterations[retraction.name] = found.updates
    print(
        f"{retraction.name:18} {found.updates} iterations, cost {problem.cost.value(found.point):.0e}"
    )

# %%
# A retraction that does not fit says so
# --------------------------------------

from rmopt import InvalidInputError

try:
    matrices.using(QR())
except InvalidInputError as refusal:
    print(refusal)
    refused = True

# %%
# What should hold
# ----------------

assert all(checks)
assert distance[SecondOrderPD()][0] < 1e-3 * distance[Additive()][0]
gap = np.linalg.norm(ends["second-order"] - ends["orthographic"]) / np.linalg.norm(
    ends["orthographic"]
)
assert 0 < gap < 0.05
assert problem.cost.value(found.point) < 1e-8
assert refused
