"""Baselines of LORETA in similarity learning (Shalit et al. 2012, §7.1.4)."""

from typing import Any

import numpy as np

from problems.online import TripletSolver, factors_of, point_of_factors, rows_and_terms
from problems.similarity import kernels
from rmopt.core import PSDPoint
from rmopt.core.ambient import Array
from rmopt.costs import TripletSum
from rmopt.linalg import symmetric


class FactorSolver(TripletSolver):
    """Steps on the factors of W = A Bᵀ, by one of the methods of `problems.similarity.kernels`."""

    method: int

    def parts(self, cost: TripletSum) -> tuple[Any, Any, Any]:
        def loop(arrays: dict[str, Array], moves: Array, terms: Array, etas: Array) -> int:
            A, B = arrays["A"], arrays.get("B", arrays["A"])
            return kernels.run(self.method, A, B, *rows_and_terms(cost, terms, etas), moves)

        return self.arrays_of, self.point_of, loop

    arrays_of: Any = staticmethod(factors_of)
    point_of: Any = staticmethod(point_of_factors)


class FactoredGradientDescent(FactorSolver):
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

    method = kernels.FACTORED


class PassiveAggressive(FactorSolver):
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

    method = kernels.PASSIVE_AGGRESSIVE


class PSDGradientDescent(FactorSolver):
    """Gradient steps on A of W = A Aᵀ, which is Riemannian descent in the flat metric (§7.1.4, 2).

    Runs on `PSDFixedRank` in O(nnz·k) per step.

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

    one_space, method = True, kernels.FACTORED

    @staticmethod
    def arrays_of(point: PSDPoint) -> dict[str, Array]:
        """Return A."""
        return {"A": np.ascontiguousarray(point.factor())}

    @staticmethod
    def point_of(arrays: dict[str, Array]) -> PSDPoint:
        """Return A Aᵀ."""
        Q, triangle = np.linalg.qr(arrays["A"])
        return PSDPoint(Q, symmetric(triangle @ triangle.T))
