"""
Write a retraction
==================

**Intermediate, 15 minutes.** You learn to write a retraction, to measure its order and to raise it. Before
this: :doc:`Swap retractions and see the order <03_swap_retractions>`.

A retraction is a small class: what it moves, its order, and one method. This tutorial writes a cheap one for
matrices of one rank, measures its order, finds that it is 1, and makes it 2.
"""

# %%
# A first one
# -----------
#
# A point is W = U S Vᵀ, a tangent vector U M Vᵀ + U_p Vᵀ + U V_pᵀ. Adding the changes to two factors gives a
# matrix of the same rank: (U (S + M) + U_p) (V + V_p S⁻ᵀ)ᵀ.

import matplotlib.pyplot as plt
import numpy as np

from rmopt.core import LowRankPoint, Retraction
from rmopt.linalg import factor_product


class Factorwise(Retraction):
    """Moves the factors U S and V, each along a straight line."""

    order = 1
    name = "factorwise"

    def __call__(self, manifold, point, tangent, t=1.0):
        left = point.U @ (point.S + t * tangent.M) + t * tangent.Up
        right = point.V + t * np.linalg.solve(point.S, tangent.Vp.T).T
        return LowRankPoint(*factor_product(left, np.eye(point.rank), right))


# %%
# What to hold it against
# -----------------------
#
# `check_retraction` measures two slopes. The first says that it is a retraction at all: R(x, tξ) − x − tξ
# falls like t². The second is the order.

from rmopt.checks import check_retraction
from rmopt.manifolds import FixedRankEmbedded

manifold = FixedRankEmbedded(20, 15, 3)
first = check_retraction(Factorwise(), manifold)
print(*first, sep="\n")

# %%
# Order 1 it is. The product of both changes is U M S⁻¹V_pᵀ + U_p S⁻¹V_pᵀ: the second part is normal to the
# manifold, as it should be, but the first one is tangential. Dividing V_p by the *new* core S + M removes
# exactly that part.


class FactorwiseSecond(Retraction):
    """Moves U S along a straight line, and V such that no tangential part of second order is left."""

    order = 2
    name = "factorwise-second"

    def __call__(self, manifold, point, tangent, t=1.0):
        core = point.S + t * tangent.M
        left = point.U @ core + t * tangent.Up
        right = point.V + t * np.linalg.solve(core, tangent.Vp.T).T
        return LowRankPoint(*factor_product(left, np.eye(point.rank), right))


second = check_retraction(FactorwiseSecond(), manifold)
print(*second, sep="\n")

# %%
# Each check carries its points:

figure, axes = plt.subplots(figsize=(6, 3.8))
for check, retraction in ((first[1], Factorwise()), (second[1], FactorwiseSecond())):
    slope = (
        f"slope {check.measured:.2f}"
        if np.isfinite(check.measured)
        else "rounding only"
    )
    axes.loglog(check.steps, check.errors, "o-", label=f"{retraction.name}: {slope}")
axes.set_xlabel("step t")
axes.set_ylabel("tangential part of R(x, tξ) − x − tξ")
axes.legend()
figure.tight_layout()
plt.show()

# %%
# This is the orthographic retraction of Absil and Malick (2012), which the library has:

from rmopt.retractions import Orthographic

rng = np.random.default_rng(1)
point = manifold.random_point(rng)
step = manifold.random_tangent_vector(point, rng)
same = manifold.to_dense(FactorwiseSecond()(manifold, point, step)) - manifold.to_dense(
    Orthographic()(manifold, point, step)
)
print(f"difference to Orthographic: {np.abs(same).max():.0e}")

# %%
# Using it
# --------
#
# Solvers take it at once, in the reference engine. A compiled twin is optional; where speed is asked for and
# there is none, the error says so.

from rmopt import Problem
from rmopt.core import MissingCapabilityError
from rmopt.costs import BilinearSum, squared
from rmopt.solvers import SGD

truth = manifold.random_point(rng)
left, right = rng.standard_normal((2000, 20)) / 4, rng.standard_normal((2000, 15)) / 4
problem = Problem(
    manifold,
    BilinearSum(
        left,
        right,
        squared,
        np.einsum("ij,ij->i", left @ truth.U @ truth.S, right @ truth.V),
    ),
)
ends = {}
for retraction in (Factorwise(), FactorwiseSecond()):
    found = SGD(1.0, max_iter=5000, retraction=retraction).run(problem, random_state=0)
    ends[retraction.name] = problem.cost.value(found.point)
    print(f"{retraction.name:18} cost {ends[retraction.name]:.1e}")
try:
    SGD(0.1, retraction=Factorwise(), engine="compiled").run(problem)
except MissingCapabilityError as refusal:
    print(refusal)
    refused = True

# %%
# To add a retraction to the library itself, see :doc:`/extend/retraction`. What should hold:

assert all(first)
assert all(second)
assert first[1].measured < 2.2 < 2.8 < second[1].measured
assert np.abs(same).max() < 1e-12
assert max(ends.values()) < 1e-3
assert refused
