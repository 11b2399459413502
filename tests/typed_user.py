"""What a user writes, for `mypy --strict` against the installed wheel (see `.ci/wheel`)."""

import numpy as np

from problems.similarity import LoretaSimilarity
from rmopt import Problem
from rmopt.checks import check_gradient
from rmopt.core import Cost
from rmopt.costs import BilinearSum, squared
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import FixedRankEmbedded, Grassmann
from rmopt.solvers import SGD, Recorder, Result


class Mine(Cost):
    def value(self, point: np.ndarray) -> float:
        return float(np.sum(point))

    def gradient(self, point: np.ndarray) -> np.ndarray:
        return np.ones_like(point)


rng = np.random.default_rng(0)
cost = BilinearSum(rng.random((9, 8)), rng.random((9, 6)), squared, rng.random(9))
problem = Problem(FixedRankEmbedded(8, 6, 2), cost)
result: Result = SGD(0.1, max_iter=10).run(problem, random_state=0, recorder=Recorder({"cost": cost.value}))
print(result.seconds, check_gradient(problem))
mine = Problem(Grassmann(5, 2), Mine())
PymanoptSolver("ConjugateGradient").run(mine)
model = LoretaSimilarity(rank=3).fit(rng.random((20, 5)), np.arange(20) % 2)
print(model.score(rng.random((20, 5)), np.arange(20) % 2))
