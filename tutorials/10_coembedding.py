"""
Co-embedding with a certificate: ILA
====================================

**Intermediate, 20 minutes.** You learn to embed samples and labels in one space, and to read the certificate
of the minimum. Before this: :doc:`Certificates of global optimality </learn/certificates>`.

Samples, labels and a threshold are put into one Euclidean space, so that a label applies to a sample where it
is nearer than the threshold. As a problem about the matrix of all inner products this is convex (Mirzazadeh,
White, György and Schuurmans 2015), and a factor that grows from nothing finds its global minimum, with a
proof.
"""

# %%
# Labels of handwritten digits
# ----------------------------
#
# Each digit has four labels: what it is, even or odd, small or large, with a loop or without. The estimator
# follows scikit-learn. Features should be standardised and rows scaled to length 1.

import numpy as np

from problems.coembedding import CoembeddingClassifier
from problems.data.sets import digits_labels

bundle = digits_labels().with_training_rows(400, seed=0).scaled()
X, Y = bundle.X[bundle.train], bundle.Y[bundle.train].toarray().astype(int)
X_test, Y_test = bundle.X[bundle.test], bundle.Y[bundle.test].toarray().astype(int)

model = CoembeddingClassifier(beta=2.0).fit(X, Y)
hamming = (model.predict(X_test) == Y_test).mean()
print(
    f"rank {model.rank_} after {model.n_iter_} rounds, {hamming:.1%} of the labels right"
)

# %%
# What each round did
# -------------------
#
# A round adds eigenvectors of −∇f, twice as many as the round before, and minimises locally. The gap is an
# upper bound on the distance to the global minimum; nobody needs to know that minimum.

for row in model.history_:
    print(
        f"rank {row['rank']:3}  objective {row['objective']:10.4f}  certified gap {row['gap']:.1e}"
    )

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.6))
axes.semilogy([row["gap"] for row in model.history_], "o-")
names = [f"{number}\n{row['rank']}" for number, row in enumerate(model.history_)]
axes.set_xticks(range(len(names)), names)
axes.set_xlabel("round, and the rank after it")
axes.set_ylabel("certified distance to the minimum")
figure.tight_layout()
plt.show()

# %%
# The space itself
# ----------------
#
# `label_embedding_` and `threshold_embedding_` are points, `transform` maps samples beside them. Labels that
# exclude each other are far apart.

labels = model.label_embedding_
two, even, odd = labels[2], labels[10], labels[11]
print(
    f"even to odd {np.sum((even - odd) ** 2):.2f}, even to two {np.sum((even - two) ** 2):.2f}"
)

# %%
# The parts, and how to exchange them
# -----------------------------------
#
# Behind the estimator are a convex cost, which is added to the trace, and a solver. The rank of the manifold
# does not matter: the run goes through all of them. Here equation 12 of the paper, whose minimum is known.

from problems.coembedding import MetricRegression
from problems.coembedding.cost import closed_form
from rmopt import Problem
from rmopt.costs import Trace
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, TrustRegions, RankIncremental

data = np.random.default_rng(0).standard_normal((40, 100))
problem = Problem(PSDFixedRank(40, 1), MetricRegression(data) + Trace(0.5))
minimum = closed_form(data, 0.5)[1]

found = {}
for name, factor in (("doubling", 2), ("one by one", 1)):
    found[name] = result = RankIncremental(columns=1, factor=factor).run(problem)
    error = result.certificate.objective / minimum - 1
    print(f"{name:12} {result.steps:3} rounds, error {error:.0e}, {result.stopped_by}")

# %%
# Local optimisers can be exchanged as well: ours, scipy's, pymanopt's.

for inner in (
    TrustRegions(),
    LBFGS(),
    PymanoptSolver("TrustRegions", max_iterations=30),
):
    result = RankIncremental(inner=inner, tol=1e-4, max_iter=20).run(problem)
    print(f"{type(inner).__name__:15} {result.certificate.relative_gap:.0e} certified")

# %%
# Without the certificate
# -----------------------
#
# Local optimisation of too few columns ends in local optima; with enough of them every one is global. That is
# what makes growing safe.

from problems.coembedding import MultilabelCoembedding
from problems.coembedding.estimators import minimise

loss = MultilabelCoembedding(X[:60], Y[:60])
best = minimise(loss, 0.3, RankIncremental(tol=1e-7))
optima = {}
for columns in (1, 3, best.point.rank):
    local = Problem(PSDFactors(loss.shape[0], columns), loss + Trace(0.3))
    optima[columns] = values = np.array(
        [LBFGS(20, tol=1e-5).run(local, random_state=seed).cost for seed in range(5)]
    )
    print(f"{columns:2} columns: excess {values.min() / best.certificate.objective - 1:.1e} at best, "
          f"{values.max() / best.certificate.objective - 1:.1e} at worst")  # fmt: skip

# %%
# A loss of your own
# ------------------
#
# `PairwiseDistance` embeds objects and measures distances; a loss says what they cost.

from rmopt.costs import Pairs, PairwiseDistance


class Contrastive(PairwiseDistance):
    """Draws linked objects together, and the others to a distance of at least 1, with squared hinges."""

    # The loss is never negative: a premise of the certificate, which no default could know.
    lower_bound = 0.0

    def __init__(self, X, left, right, linked):
        super().__init__(X, Pairs(left, right, len(X)))
        self.linked = linked

    def loss(self, distances):
        short = np.maximum(1 - distances, 0) * ~self.linked
        return (distances * self.linked).sum() + (
            short**2
        ).sum(), self.linked - 2 * short

    def curvature(self, distances, change):
        return 2 * change * (~self.linked & (distances < 1))


left, right = np.triu_indices(60, 1)
same = Y[:60, :10].argmax(axis=1)[left] == Y[:60, :10].argmax(axis=1)[right]
metric = minimise(Contrastive(X[:60], left, right, same), 1.0, RankIncremental())
embedded = X[:60] @ metric.point.factor()
apart = ((embedded[left] - embedded[right]) ** 2).sum(axis=1)
print(
    f"rank {metric.point.rank}; distance {apart[same].mean():.2f} within a digit, {apart[~same].mean():.2f} between"
)

# %%
# The weight of the trace
# -----------------------
#
# A larger one gives a smaller rank; `CoembeddingClassifierCV` chooses by cross-validation.

ranks = {}
for beta in (1.0, 5.0, 20.0):
    one_model = CoembeddingClassifier(beta, tol=1e-3).fit(X, Y)
    ranks[beta] = one_model.rank_
    right_labels = (one_model.predict(X_test) == Y_test).mean()
    print(
        f"beta {beta:4g}: rank {one_model.rank_:2}, {right_labels:.1%} of the labels right"
    )

# %%
# What should hold
# ----------------

assert model.is_global_
assert hamming > 0.9
assert np.sum((even - odd) ** 2) > np.sum((even - two) ** 2)
assert all(
    abs(result.certificate.objective / minimum - 1) < 1e-6 for result in found.values()
)
assert found["doubling"].steps < found["one by one"].steps / 3
assert optima[1].min() > optima[3].min() > best.certificate.objective * 1.01
assert np.allclose(optima[best.point.rank], best.certificate.objective, rtol=1e-5)
assert apart[same].mean() < 0.5 * apart[~same].mean()
assert ranks[1.0] > ranks[5.0] > ranks[20.0]
