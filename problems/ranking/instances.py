"""Label ranking in the catalogue of laws."""

import numpy as np

from problems.ranking.cost import LabelRanking
from rmopt.checks.catalogue import Instance
from rmopt.core import Problem
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import FIXED_RANK_RETRACTIONS


def instances() -> list[Instance]:
    """Return more labels than features, and fewer, with a row without labels, one with all, and an empty one."""
    made = []
    retractions = [one for one in FIXED_RANK_RETRACTIONS.values() if one.kernel is not None]
    for n_labels, n, k in ((12, 20, 4), (30, 15, 5)):
        rng = np.random.default_rng([n_labels, n])
        X = rng.standard_normal((60, n)) * (rng.random((60, n)) < 0.3) / np.sqrt(0.3 * n)
        Y = rng.random((60, n_labels)) < 0.2
        X[5], Y[3], Y[4] = 0.0, False, True
        manifold = FixedRankEmbedded(n_labels, n, k)
        problem = Problem(manifold, LabelRanking(X, Y))
        name = f"label-ranking-{n_labels}x{n}-{k}"
        made.append(Instance(name, manifold, retractions, {"hinge": problem}, compiled=retractions))
    return made
