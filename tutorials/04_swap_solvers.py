"""
Swap solvers
============

**Intermediate, 15 minutes.** You learn to run one problem with stochastic, coordinate and full-gradient
solvers, and to compare them. Before this: :doc:`Define a cost <02_define_a_cost>`.

One problem, many solvers: stochastic gradient descent over samples, coordinate descent over rows and columns, and
the full-gradient solvers, which all run in one loop. The problem is to estimate the inverse covariance of
normal samples.
"""

# %%
# The cost
# --------
#
# The average negative log-likelihood of samples x is ½ (xᵀ W x − log det W) on average. It is a sum over
# samples, has a gradient and a Hessian: enough for every kind of solver.

import matplotlib.pyplot as plt
import numpy as np

from rmopt import Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Cost, FiniteSum
from rmopt.manifolds import PositiveDefinite


class NormalLikelihood(FiniteSum):
    """The mean of xᵀ W x − log det W over the rows x of X."""

    def __init__(self, X):
        self.X, self.S = X, X.T @ X / len(X)
        self.calls = 0

    @property
    def n_terms(self):
        return len(self.X)

    def value(self, point):
        self.calls += 1
        return float(np.vdot(self.S, point) - np.linalg.slogdet(point)[1])

    def gradient(self, point):
        self.calls += 1
        return self.S - np.linalg.inv(point)

    def value_and_gradient(self, point):
        # Both come from one factor of W; a solver that asks for both calls this.
        self.calls += 1
        L = np.linalg.cholesky(point)
        half = np.linalg.inv(L)
        return float(
            np.vdot(self.S, point) - 2 * np.sum(np.log(np.diag(L)))
        ), self.S - half.T @ half

    def hessian(self, point, direction):
        self.calls += 1
        inverse = np.linalg.inv(point)
        return inverse @ direction @ inverse

    def term_gradient(self, point, terms):
        # The sum over these terms, each a share of 1 / len(X) in the mean.
        some = self.X[terms]
        return (some.T @ some - len(terms) * np.linalg.inv(point)) / len(self.X)


rng = np.random.default_rng(0)
d = 12
# A chain: given its two neighbours, a variable is independent of all others.
truth = 2 * np.eye(d) - 0.9 * np.eye(d, k=1) - 0.9 * np.eye(d, k=-1)
X = rng.multivariate_normal(np.zeros(d), np.linalg.inv(truth), size=4000)
cost = NormalLikelihood(X)
problem = Problem(PositiveDefinite(d), cost)
answer = np.linalg.inv(cost.S)
for check in (check_gradient(problem), *check_hessian(problem)):
    print(check)

# %%
# Solvers that take the cost apart
# --------------------------------
#
# The metric tr(W⁻¹ξW⁻¹η) makes this problem look the same at every scale of W. Coordinate descent moves one
# row and column a step, with an exact line search; it was not told the blocks of this cost's gradient, so it
# takes them from the whole one. A step of SGD takes the sum over 50 of the 4000 terms, an 80th of the mean, and
# its step size makes up for that. Conjugate gradients and trust regions take the cost whole.

from rmopt.solvers import (
    SGD,
    ConjugateGradient,
    CoordinateDescent,
    InverseTime,
    Recorder,
    TrustRegions,
)

least = cost.value(answer)
start = np.eye(d)
ends = {}
for name, solver in (
    ("SGD over samples", SGD(InverseTime(4.0, 0.02), max_iter=3000, batch_size=50)),
    ("coordinate descent", CoordinateDescent(30)),
    ("conjugate gradients", ConjugateGradient()),
    ("trust regions", TrustRegions()),
):
    ends[name] = solver.run(problem, start, random_state=0)
    excess = cost.value(ends[name].point) - least
    print(
        f"{name:20} excess {excess:8.1e} after {ends[name].steps:5} steps, {ends[name].seconds:.2f} s"
    )

# %%
# Stochastic steps come near and then creep, as their noise allows. Coordinate steps are slow where variables are
# strongly tied, as they are in a chain. The two others are at rounding after a few steps.
#
# A harder problem on top of it
# -----------------------------
#
# Costs add and scale. The sum of absolute values off the diagonal, smoothed at 0, asks for an inverse covariance with
# few entries. The corners of the absolute value make the problem ill-conditioned, and the minimum has no closed form.


class OffDiagonal(Cost):
    """The sum of √(W_ij² + ε²) over i ≠ j."""

    def __init__(self, d, epsilon):
        self.off, self.epsilon = 1.0 - np.eye(d), epsilon

    def value(self, point):
        return float(np.sum(self.off * np.sqrt(point**2 + self.epsilon**2)))

    def gradient(self, point):
        return self.off * point / np.sqrt(point**2 + self.epsilon**2)

    def hessian(self, point, direction):
        return (
            self.off * direction * self.epsilon**2 / (point**2 + self.epsilon**2) ** 1.5
        )


sparse = cost + 0.05 * OffDiagonal(d, 0.01)
harder = Problem(PositiveDefinite(d), sparse)
print(check_gradient(harder))
minimum = TrustRegions(tol=1e-12).run(harder, start)
print(f"trust regions stopped by {minimum.stopped_by}")

# %%
# One loop over ten solvers
# -------------------------
#
# A line search method is a direction and a step length, chosen apart; second-order methods have a model in their
# place. Retraction and transport are chosen apart as well: `transport` in three lines of this table replaces parallel
# transport on the manifold, which is dear, by a projection. The last line is pymanopt's solver, under the same
# recorder.

from rmopt.core.transport import ByProjection
from rmopt.interop import PymanoptSolver
from rmopt.solvers import (
    LBFGS,
    AdaptiveCubics,
    Backtracking,
    GradientDescent,
    Hybrid,
    StrongWolfe,
)

flat = ByProjection()
solvers = {
    "gradient, Armijo": GradientDescent(Backtracking()),
    "gradient, Barzilai–Borwein": GradientDescent(),
    "CG, Hestenes–Stiefel": ConjugateGradient(),
    "CG, Hager–Zhang, Wolfe": ConjugateGradient(
        "hager-zhang", StrongWolfe(flatness=0.1), transport=flat
    ),
    "L-BFGS, 5 pairs": LBFGS(5, transport=flat),
    "L-BFGS, 20 pairs, Wolfe": LBFGS(20, StrongWolfe(flatness=0.9), transport=flat),
    "trust regions": TrustRegions(),
    "adaptive cubics": AdaptiveCubics(),
    "L-BFGS, then trust regions": Hybrid(),
    "pymanopt's CG": PymanoptSolver("ConjugateGradient", min_gradient_norm=1e-6),
}
rows, results = {}, {}
for name, solver in solvers.items():
    cost.calls = 0
    recorder = Recorder({"calls": lambda point: cost.calls})
    results[name] = result = solver.run(harder, start, recorder=recorder)
    rows[name] = result.history
    gap = result.cost - minimum.cost
    print(
        f"{name:27}{result.steps:4} steps {cost.calls:4} calls  gap {gap:8.1e}  {result.stopped_by}"
    )

# %%
# Each row of `result.history` has the cost, the length of the gradient and the seconds; the number of calls was added
# by the recorder. A call gives the value, the gradient, both at once, or a product with the Hessian: `Result.counts`
# has them by kind.

from problems.palette import COLOURS

lowest = minimum.cost
looks = zip(
    solvers,
    [COLOURS[i] for i in (5, 0, 2, 2, 1, 1, 3, 3, 4, 6)],
    ["-", "-", "-", "--", "-", "--", "-", "--", "-", ":"],
    strict=True,
)
figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), sharey="row", layout="constrained")
for name, colour, line in looks:
    ys = (
        [max(row["cost"] - lowest, 1e-14) for row in rows[name]],
        [row["gradient_norm"] for row in rows[name]],
    )
    xs = (
        [max(row["calls"], 1) for row in rows[name]],
        [row["seconds"] + 1e-3 for row in rows[name]],
    )
    for i, y in enumerate(ys):
        for j, x in enumerate(xs):
            axes[i, j].loglog(
                x, y, color=colour, linestyle=line, label=name if i == j == 0 else None
            )
axes[0, 0].set_ylabel("cost above the minimum")
axes[1, 0].set_ylabel("length of the gradient")
axes[1, 0].set_xlabel("calls of the cost")
axes[1, 1].set_xlabel("seconds")
axes[0, 0].set_ylim(bottom=3e-15)
for panel in axes.flat:
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
figure.legend(loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# Where calls are dear, L-BFGS and steps of Barzilai and Borwein go furthest with each of them. Where they are cheap,
# as here, what a solver does between them counts as much: trust regions ask for many products with the Hessian, each
# a few small matrix products.
#
# When to stop
# ------------
#
# Criteria combine by `|` and `&`. Those of one's own come beside the solver's: here a time limit, or a cost that
# hardly falls together with a gradient that is short.

from rmopt.solvers import GradientNorm, MaxSeconds, SmallChange

stop = MaxSeconds(30) | (SmallChange(1e-6) & GradientNorm(1e-2, relative=True))
early = GradientDescent().run(harder, start, stop=stop)
print(f"stopped by {early.stopped_by} after {early.steps} steps")

# %%
# Solvers that do not fit say what is missing
# -------------------------------------------
#
# Coordinate descent needs a manifold with blocks:

from rmopt.core import MissingCapabilityError
from rmopt.costs import BilinearSum, squared
from rmopt.manifolds import FixedRankEmbedded

other = Problem(
    FixedRankEmbedded(12, 12, 2), BilinearSum(X[:50], X[:50], squared, np.ones(50))
)
try:
    CoordinateDescent(1).run(other)
except MissingCapabilityError as refusal:
    print(refusal)
    refused = str(refusal)

# %%
# What should hold
# ----------------

for name in ("conjugate gradients", "trust regions"):
    assert np.allclose(
        ends[name].point, answer, rtol=1e-3, atol=1e-3 * np.abs(answer).max()
    ), name
for name in ("SGD over samples", "coordinate descent"):
    assert (
        0 < cost.value(ends[name].point) - least < 1e-2 * (cost.value(start) - least)
    ), name
assert "block_of" in refused
for name, result in results.items():
    assert result.converged, name
    assert abs(result.cost - lowest) < 1e-8, name
chain = np.abs(truth) > 0
assert np.abs(minimum.point[~chain]).max() < 0.1 < np.abs(minimum.point[chain]).min()
assert early.steps < results["gradient, Barzilai–Borwein"].steps
