"""
Metrics by coordinate descent: COMET
====================================

**Intermediate, 15 minutes.** You learn to train a metric for nearest neighbours, and to compare it with other
metrics. Before this: nothing, if you know scikit-learn.

A metric is a positive definite matrix W. COMET (Atzmon, Shalit and Chechik 2015) learns it from triplets: a
query, a row that should be similar to it, and one that should not. Each step moves one row and column of W,
and a Schur complement tells exactly how far it may go, so W never leaves the cone and nothing is ever
projected back.
"""

# %%
# A metric for handwritten digits
# -------------------------------
#
# The estimator follows scikit-learn. `fit` draws triplets from the classes. After it, `transform` maps rows
# to a space in which the Euclidean distance is the learned one.

import numpy as np

from problems.data.sets import digits
from problems.metric import BoostMetric, CometMetric, EuclideanMetric, LegoMetric
from problems.data.text import informative_unit_rows

bundle = informative_unit_rows(digits().resplit(0, 0.2))
X, y = bundle.X[bundle.train], bundle.y[bundle.train]
X_test, y_test = bundle.X[bundle.test], bundle.y[bundle.test]

comet = CometMetric(n_epochs=8, loss="hinge", random_state=0).fit(X, y)
W = comet.get_mahalanobis_matrix()
print(
    f"W is {W.shape[0]} × {W.shape[1]}, its least eigenvalue {np.linalg.eigvalsh(W)[0]:.1e}"
)

# %%
# Does it help?
# -------------
#
# Each test image ranks the others; precision at 10 is the share of its class among the first ten. COMET
# compares similarities qᵀWp or distances, whichever is better on held-out rows; `compare_` says which. The
# others compare distances. Each is ranked by its own.

from problems.evaluation import evaluate_retrieval, matrix_scores

precision, curves = {}, {}
for name, metric, rank_by in (
    ("Euclidean", EuclideanMetric(), "distance"),
    ("COMET", comet, comet.compare_),
    ("LEGO", LegoMetric(random_state=0), "distance"),
    ("BoostMetric", BoostMetric(50, random_state=0), "distance"),
):
    if metric is not comet:
        metric.fit(X, y)
    scores = matrix_scores(
        metric.get_mahalanobis_matrix(), X_test, distance=rank_by == "distance"
    )
    curves[name] = evaluate_retrieval(scores, y_test, ks=range(1, 41)).precision_at
    precision[name] = curves[name][10]
    print(f"{name:12} {precision[name]:.3f}")

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.6))
for (name, curve), line in zip(curves.items(), ("k:", "o-", "s-", "^-"), strict=True):
    axes.plot(list(curve), list(curve.values()), line, markersize=3, label=name)
axes.set_xlabel("k")
axes.set_ylabel("precision at k")
axes.legend()
figure.tight_layout()
plt.show()

# %%
# The parts, and how to exchange them
# -----------------------------------
#
# Behind the estimator are a cost, a manifold whose blocks are rows and columns, and a solver.

from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.costs import LogDetTriplet, logistic
from rmopt.manifolds import PositiveDefinite
from rmopt.solvers import CoordinateDescent, FractionOfBound

triplets = ClassTriplets(y).draw(np.random.default_rng(0), 0, 3000)
cost = LogDetTriplet(X, triplets, logistic, alpha=3.0, beta=3.0)
problem, start = Problem(PositiveDefinite(64), cost), cost.best_multiple_of_identity()

ends = {}
for order in ("uniform", "shuffled", "cyclic"):
    found = CoordinateDescent(6, order=order).run(problem, start, random_state=0)
    ends[order] = cost.value(found.point)
    print(f"{order:16} {ends[order]:.3f}")

# %%
# A share of the bound instead of an exact line search, which needs no look at the triplets, and descends more
# slowly:

short = CoordinateDescent(6, step_size=FractionOfBound(0.02)).run(
    problem, start, random_state=0
)
print(f"2 % of the bound {cost.value(short.point):.3f}")

# %%
# How far a step may go
# ---------------------
#
# The bound is a capability of the manifold. A hair less than it stays in the cone, a hair more leaves it.

manifold = problem.manifold
direction = -cost.block_gradient(start, 20)
bound = manifold.max_step(start, direction)
inside, outside = (
    np.linalg.eigvalsh(start + share * bound * direction.toarray())[0]
    for share in (0.999, 1.001)
)
print(
    f"bound {bound:.3g}; least eigenvalue {inside:.1e} before it, {outside:.1e} beyond"
)

# %%
# A curve that never leaves
# -------------------------
#
# `SchurExponential` moves the column linearly and the Schur complement multiplicatively. There is no bound to
# keep.

from rmopt.retractions import SchurExponential

curved = CoordinateDescent(6, retraction=SchurExponential()).run(
    problem, start, random_state=0
)
print(f"Schur-exponential {cost.value(curved.point):.3f}")

# %%
# Other solvers on the same problem
# ---------------------------------
#
# The cone has the affine-invariant metric with its geodesics, so pymanopt's optimizers run on it as well.

from rmopt.interop import PymanoptSolver

other = PymanoptSolver("ConjugateGradient", max_iterations=30).run(
    problem, start, random_state=0
)
print(f"conjugate gradients {cost.value(other.point):.3f}")

# %%
# Fewer features
# --------------
#
# A group penalty on each row unties features from the others, exactly.

tied = {}
for sparsity in (0.0, 20.0):
    sparse = LogDetTriplet(
        X, triplets, logistic, alpha=3.0, beta=3.0, sparsity=sparsity
    )
    found = CoordinateDescent(6, order="shuffled").run(
        Problem(manifold, sparse), start, random_state=0
    )
    off = found.point - np.diag(np.diag(found.point))
    tied[sparsity] = int((np.abs(off).max(axis=0) > 0).sum())
    print(f"sparsity {sparsity:g}: {tied[sparsity]} of 64 features are tied to others")

# %%
# What should hold
# ----------------

assert np.linalg.eigvalsh(W)[0] > 0
assert precision["COMET"] > precision["Euclidean"] + 0.03
assert max(ends.values()) < cost.value(short.point) < cost.value(start)
assert inside > 0 > outside
assert abs(cost.value(curved.point) - ends["uniform"]) < 0.05 * ends["uniform"]
assert cost.value(other.point) < cost.value(start)
assert tied[20.0] < tied[0.0]
