"""Baselines of LORETA in similarity learning (Shalit et al. 2012, §7.1.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from problems.online import FactorEngine, TripletSolver, rows_and_terms
from problems.similarity import kernels
from rmopt.core import PSDPoint
from rmopt.core.ambient import Array
from rmopt.costs import TripletSum
from rmopt.engines.base import Engine
from rmopt.linalg import symmetric


@dataclass(frozen=True)
class GeneralFactors(FactorEngine):
    """Steps on A and B of W = A Bᵀ.

    Attributes
    ----------
    method : int
        `FACTORED` or `PASSIVE_AGGRESSIVE` of `problems.similarity.kernels`.
    cost : TripletSum
    """

    method: int
    cost: TripletSum

    def run(self, arrays: dict[str, Array], moves: Array, schedule: Array, etas: Array) -> int:
        A, B = arrays["A"], arrays.get("B", arrays["A"])
        return kernels.run(self.method, A, B, *rows_and_terms(self.cost, schedule, etas), moves)


class SymmetricFactor(GeneralFactors):
    """Steps on A of W = A Aᵀ."""

    def arrays_of(self, point: PSDPoint) -> dict[str, Array]:  # type: ignore[override]
        return {"A": np.ascontiguousarray(point.factor())}

    def point_of(self, arrays: dict[str, Array]) -> PSDPoint:  # type: ignore[override]
        Q, triangle = np.linalg.qr(arrays["A"])
        return PSDPoint(Q, symmetric(triangle @ triangle.T))


class FactoredGradientDescent(TripletSolver):
    """Simultaneous gradient steps on A and B (§7.1.4, 1; Bai et al. 2009).

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import TripletSum
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from problems.similarity import ClassTriplets
    >>> from problems.similarity.baselines import FactoredGradientDescent
    >>> X, y = np.repeat(np.eye(4), 5, axis=0), np.repeat([0, 0, 1, 1], 5)
    >>> manifold = FixedRankEmbedded(4, 4, 2)
    >>> solver = FactoredGradientDescent(0.1, max_iter=500, sampler=ClassTriplets(y))
    >>> result = solver.run(Problem(manifold, TripletSum(X, X)), random_state=0)
    >>> W = manifold.to_dense(result.point)
    >>> bool(np.all(W[0, :2] > W[0, 2:].max()))
    True
    """

    def triplet_engine(self, cost: TripletSum) -> Engine:
        return GeneralFactors(kernels.FACTORED, cost)


class PassiveAggressive(TripletSolver):
    """Iterative passive–aggressive steps on A and B (§7.1.4, 3).

    For each triplet A moves given B, then B given the new A; `step_size` is the bound C.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import TripletSum
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from problems.similarity import ClassTriplets
    >>> from problems.similarity.baselines import PassiveAggressive
    >>> X, y = np.repeat(np.eye(4), 5, axis=0), np.repeat([0, 0, 1, 1], 5)
    >>> manifold = FixedRankEmbedded(4, 4, 2)
    >>> solver = PassiveAggressive(0.1, max_iter=500, sampler=ClassTriplets(y))
    >>> result = solver.run(Problem(manifold, TripletSum(X, X)), random_state=0)
    >>> W = manifold.to_dense(result.point)
    >>> bool(np.all(W[0, :2] > W[0, 2:].max()))
    True
    """

    def triplet_engine(self, cost: TripletSum) -> Engine:
        return GeneralFactors(kernels.PASSIVE_AGGRESSIVE, cost)


class PSDGradientDescent(TripletSolver):
    """Gradient steps on A of W = A Aᵀ, which is Riemannian descent in the flat metric (§7.1.4, 2).

    Runs on `PSDFixedRank` in O(nnz·k) a step.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import TripletSum
    >>> from rmopt.manifolds import PSDFixedRank
    >>> from problems.similarity import ClassTriplets
    >>> from problems.similarity.baselines import PSDGradientDescent
    >>> X, y = np.repeat(np.eye(4), 5, axis=0), np.repeat([0, 0, 1, 1], 5)
    >>> manifold = PSDFixedRank(4, 2)
    >>> solver = PSDGradientDescent(0.1, max_iter=500, sampler=ClassTriplets(y))
    >>> result = solver.run(Problem(manifold, TripletSum(X, X)), random_state=0)
    >>> W = manifold.to_dense(result.point)
    >>> bool(np.all(W[0, :2] > W[0, 2:].max()))
    True
    """

    one_space = True

    def triplet_engine(self, cost: TripletSum) -> Engine:
        return SymmetricFactor(kernels.FACTORED, cost)
