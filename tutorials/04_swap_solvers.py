"""
Swap solvers
============

One problem, four solvers: stochastic gradient descent over samples, coordinate descent over rows and columns,
and pymanopt's conjugate gradients and trust regions. The problem is to estimate the inverse covariance of
normal samples, whose answer is known.
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
from rmopt.core import FiniteSum
from rmopt.manifolds import PositiveDefinite


class NormalLikelihood(FiniteSum):
    """The mean of xᵀ W x − log det W over the rows x of X."""

    def __init__(self, X):
        self.X, self.S = X, X.T @ X / len(X)

    @property
    def n_terms(self):
        return len(self.X)

    def value(self, point):
        return float(np.vdot(self.S, point) - np.linalg.slogdet(point)[1])

    def gradient(self, point):
        return self.S - np.linalg.inv(point)

    def hessian(self, point, direction):
        inverse = np.linalg.inv(point)
        return inverse @ direction @ inverse

    def term_gradient(self, point, terms):
        # The sum over these terms, each a share of 1 / len(X) in the mean.
        some = self.X[terms]
        return (some.T @ some - len(terms) * np.linalg.inv(point)) / len(self.X)


rng = np.random.default_rng(0)
d = 12
X = rng.standard_normal((4000, d)) @ (np.eye(d) + 0.1 * rng.standard_normal((d, d)))
cost = NormalLikelihood(X)
problem = Problem(PositiveDefinite(d), cost)
answer = np.linalg.inv(cost.S)
for check in (check_gradient(problem), *check_hessian(problem)):
    print(check)

# %%
# The solvers
# -----------
#
# The metric tr(W⁻¹ξW⁻¹η) makes this problem look the same at every scale of W. Coordinate descent moves one
# row and column a step, with an exact line search; it was not told the blocks of this cost's gradient, so it
# takes them from the whole one. A step of SGD takes the sum over 50 of the 4000 terms, an 80th of the mean, and
# its step size makes up for that.

from rmopt.interop import PymanoptSolver
from rmopt.solvers import SGD, CoordinateDescent, InverseTime, Recorder

least = cost.value(answer)
metrics = {"excess": lambda point: cost.value(point) - least}
start = np.eye(d)
curves, ends = {}, {}
for name, solver, at in (
    ("SGD over samples", SGD(InverseTime(4.0, 0.02), n_steps=3000, batch_size=50), None),
    ("coordinate descent", CoordinateDescent(40), range(0, 40 * d, 2 * d)),
):
    recorder = Recorder(metrics, first=10, at=at)
    ends[name] = solver.run(problem, start, random_state=0, recorder=recorder)
    curves[name] = recorder.rows
for name in ("ConjugateGradient", "TrustRegions"):
    ends[name] = PymanoptSolver(name).run(problem, start)
for name, end in ends.items():
    print(
        f"{name:20} excess {cost.value(end.point) - least:8.1e} after {end.updates:5} steps, {end.seconds:.2f} s"
    )

# %%
# Stochastic steps come near and then creep, as their noise allows. Coordinate steps go on falling; conjugate
# gradients and trust regions are at rounding after a few steps.

figure, axes = plt.subplots(figsize=(6, 3.6))
for name, rows in curves.items():
    axes.loglog(
        [row["seconds"] + 1e-3 for row in rows], [max(row["excess"], 1e-16) for row in rows], "o-", label=name
    )
axes.set_xlabel("seconds")
axes.set_ylabel("cost above the minimum")
axes.legend()
figure.tight_layout()
plt.show()

# %%
# Solvers that do not fit say what is missing
# -------------------------------------------
#
# Coordinate descent needs a manifold with blocks:

from rmopt.core import MissingCapabilityError
from rmopt.costs import BilinearSum, squared
from rmopt.manifolds import FixedRankEmbedded

other = Problem(FixedRankEmbedded(12, 12, 2), BilinearSum(X[:50], X[:50], squared, np.ones(50)))
try:
    CoordinateDescent(1).run(other)
except MissingCapabilityError as refusal:
    print(refusal)
    refused = str(refusal)

# %%
# What should hold
# ----------------

for name in ("coordinate descent", "ConjugateGradient", "TrustRegions"):
    assert np.allclose(ends[name].point, answer, rtol=1e-3, atol=1e-3 * np.abs(answer).max()), name
assert 0 < curves["SGD over samples"][-1]["excess"] < 1e-2 * curves["SGD over samples"][0]["excess"]
assert "HasBlocks" in refused
