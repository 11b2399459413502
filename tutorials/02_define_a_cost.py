"""
Define a cost
=============

**Beginner, 15 minutes.** You learn to write a cost, first with automatic derivatives and then by hand, and to
check its gradient. Before this: :doc:`Riemannian optimisation in twenty minutes </learn/twenty_minutes>`.

A cost is a value and a Euclidean gradient; the manifold turns the gradient into its own. This tutorial
completes a matrix from some of its entries, first with automatic derivatives, then by hand, then for solvers
that look at one entry a step.
"""

# %%
# Some entries of a matrix of rank 3
# ----------------------------------

import autograd.numpy as anp
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

import rmopt
from rmopt import Problem
from rmopt.manifolds import FixedRankEmbedded

rng = np.random.default_rng(0)
manifold = FixedRankEmbedded(80, 60, 3)
truth = manifold.random_point(rng)
rows, columns = np.divmod(rng.permutation(80 * 60)[:2000], 60)
values = manifold.to_dense(truth)[rows, columns]

# %%
# By autograd
# -----------
#
# A decorated function of the factors A and B of W = A Bᵀ is a cost. It must depend on the product alone. No
# other line is needed: gradients with respect to W act on vectors through derivatives with respect to the
# factors, and no 80 × 60 matrix is formed.


@rmopt.autograd_cost
def automatic(A, B):
    return 0.5 * anp.sum((anp.sum(A[rows] * B[columns], axis=1) - values) ** 2)


# %%
# `check_gradient` holds a gradient against the cost: the Taylor error must fall with slope 2. It does so at a random
# point; the generator with seed 0 has made the matrix to find, where every gradient vanishes, so this one has seed 1.

from rmopt.checks import check_gradient, check_hessian

check = check_gradient(Problem(manifold, automatic), rng=1)
print(check)

# %%
# By hand
# -------
#
# The gradient is anything with `G @ X` and `G.T @ X`: here a sparse matrix of residuals. A method `hessian`
# opens the cost to second-order solvers.

from rmopt.core import Cost


class Completion(Cost):
    """Half the squared error of the known entries."""

    def residuals(self, point):
        return (
            np.einsum("ij,ij->i", (point.U @ point.S)[rows], point.V[columns]) - values
        )

    def value(self, point):
        return 0.5 * float(np.sum(self.residuals(point) ** 2))

    def gradient(self, point):
        return sp.csr_array(
            (self.residuals(point), (rows, columns)), shape=manifold.shape
        )

    def hessian(self, point, direction):
        # W ↦ its known entries is linear, so the derivative of the residuals is the direction's own entries.
        change = (direction @ np.eye(manifold.shape[1]))[rows, columns]
        return sp.csr_array((change, (rows, columns)), shape=manifold.shape)


by_hand = Problem(manifold, Completion())
print(check_gradient(by_hand, rng=1))
print(*check_hessian(by_hand, rng=1), sep="\n")

# %%
# One term at a time
# ------------------
#
# `FiniteSum` is for stochastic solvers: the number of terms, and the gradient of some of them. This one is a
# sum of losses of bilinear scores eᵢᵀ W eⱼ, for which `BilinearSum` exists, with compiled steps.

from rmopt.core import FiniteSum
from rmopt.costs import BilinearSum, squared


class CompletionSum(Completion, FiniteSum):
    """The same cost, as a sum over entries."""

    n_terms = len(values)

    def term_gradient(self, point, terms):
        i, j = rows[terms], columns[terms]
        gaps = np.einsum("ij,ij->i", (point.U @ point.S)[i], point.V[j]) - values[terms]
        return sp.csr_array((gaps, (i, j)), shape=manifold.shape)


built_in = BilinearSum(
    sp.eye_array(80).tocsr()[rows], sp.eye_array(60).tocsr()[columns], squared, values
)

# %%
# All of them, solved
# -------------------
#
# L-BFGS needs a gradient, trust regions take the Hessian as well; both run on any manifold. Only what is a sum
# of terms gains from SGD.

from rmopt.solvers import LBFGS, SGD, Recorder, TrustRegions


def error(point):
    return np.linalg.norm(
        manifold.to_dense(point) - manifold.to_dense(truth)
    ) / np.linalg.norm(manifold.to_dense(truth))


start = manifold.random_point(rng)
ends = {
    "autograd, L-BFGS": LBFGS().run(Problem(manifold, automatic), start),
    "by hand, trust regions": TrustRegions().run(by_hand, start),
}
curves = {}
for name, cost, steps in (
    ("own terms", CompletionSum(), 6_000),
    ("BilinearSum", built_in, 400_000),
):
    recorder = Recorder({"error": error})
    ends[f"{name}, SGD"] = SGD(1.0, max_iter=steps).run(
        Problem(manifold, cost), start, random_state=0, recorder=recorder
    )
    curves[name] = recorder.rows
for name, end in ends.items():
    print(f"{name:24} relative error {error(end.point):.0e} in {end.seconds:.2f} s")

# %%
# The two sums take the same steps; one of them has a compiled loop. Full-gradient solvers need no recorder for
# their curves: `result.history` has a row for each step.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for name, history in curves.items():
    left.loglog(
        [row["seconds"] + 1e-3 for row in history],
        [row["error"] for row in history],
        "o-",
        label=name,
    )
left.set_xlabel("seconds")
left.set_ylabel("relative error")
for name in ("autograd, L-BFGS", "by hand, trust regions"):
    right.semilogy([row["cost"] for row in ends[name].history], label=name)
right.set_xlabel("steps")
right.set_ylabel("cost")
for panel in (left, right):
    panel.legend(frameon=False)
plt.show()

# %%
# What should hold
# ----------------

point = manifold.random_point(rng)
assert np.isclose(automatic.value(point), by_hand.cost.value(point))
assert check
assert all(check_hessian(by_hand, rng=1))
some, all_columns = np.arange(9), np.eye(60)
assert np.allclose(
    CompletionSum().term_gradient(point, some) @ all_columns,
    built_in.term_gradient(point, some) @ all_columns,
)
assert all(
    error(end.point) < 1e-3 for name, end in ends.items() if name != "own terms, SGD"
)
own, built = (curves[name][3]["error"] for name in ("own terms", "BilinearSum"))
assert np.isclose(own, built, rtol=1e-6)
