"""A run of `RankIncremental` as several tests need it."""

from typing import Any

import numpy as np

from rmopt import Problem
from rmopt.costs import ConvexCost
from rmopt.manifolds import PSDFixedRank
from rmopt.solvers import CertifiedResult, RankIncremental

Array = np.ndarray


def run(cost: ConvexCost, solver: RankIncremental, start: Any = None, **options: Any) -> CertifiedResult:
    result = solver.run(Problem(PSDFixedRank(cost.shape[0], 1), cost), start, random_state=0, **options)
    assert isinstance(result, CertifiedResult)
    return result
