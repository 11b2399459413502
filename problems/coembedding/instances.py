"""The costs of co-embeddings in the catalogue of laws."""

import numpy as np
import scipy.sparse as sp

from problems.coembedding.cost import (
    LargeMarginNeighbors,
    LinkPrediction,
    MetricRegression,
    MultilabelCoembedding,
    OneVsRestCoembedding,
    TagRanking,
)
from rmopt.checks.catalogue import Instance
from rmopt.core import Problem
from rmopt.costs import EmbeddedCost, Trace
from rmopt.manifolds import PolarPSD, PSDFixedRank
from rmopt.retractions import PSD_RETRACTIONS


def instances() -> list[Instance]:
    """Return every cost plus a trace, on both geometries of positive semidefinite matrices."""
    found = []
    for name, cost in convex_costs().items():
        manifolds = PSDFixedRank(cost.shape[0], 3), PolarPSD(cost.shape[0], 2)
        for manifold, retractions in zip(manifolds, (list(PSD_RETRACTIONS.values()), None), strict=True):
            problems = {name: Problem(manifold, cost + Trace(0.3))}
            kind = f"coembedding-{name}-{type(manifold).__name__.lower()}"
            found.append(Instance(kind, manifold, retractions or [manifold.default_retraction], problems))
    return found


def convex_costs() -> dict[str, EmbeddedCost]:
    """Return small costs, with a sample without labels and one with all, sparse features, more and fewer samples."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((25, 6))
    Y = rng.random((25, 4)) < 0.4
    Y[3], Y[4] = False, True
    triples = np.argwhere(rng.random((4, 5, 6)) < 0.3)
    pairs = np.argwhere(np.triu(rng.random((25, 25)) < 0.3, 1))
    thin = sp.csr_array(X * (rng.random(X.shape) < 0.5))
    return {
        "regression-wide": MetricRegression(rng.standard_normal((7, 12))),
        "regression-tall": MetricRegression(rng.standard_normal((9, 5))),
        "multilabel": MultilabelCoembedding(X, Y),
        "multilabel-sparse": MultilabelCoembedding(thin, sp.csr_array(Y)),
        "squared-hinge": OneVsRestCoembedding(X, Y),
        "logistic": OneVsRestCoembedding(thin, Y, "logistic"),
        "large-margin": LargeMarginNeighbors(thin, rng.integers(25, size=(30, 3)), 0.5),
        "tags": TagRanking(triples, (4, 5, 6)),
        "links": LinkPrediction(thin, pairs, rng.random(len(pairs)) < 0.5),
    }
