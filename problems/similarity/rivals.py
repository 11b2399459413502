"""Rivals of LORETA in similarity learning (Shalit et al. 2012, §7.1.4)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from problems.online import FactorEngine, OnlineEngine, OnlineSolver
from problems.similarity import kernels
from rmopt.core import InvalidInputError, Problem, PSDPoint
from rmopt.costs import TripletSum, hinge
from rmopt.engines.base import Engine
from rmopt.kernels.terms import Rows, Terms
from rmopt.linalg import symmetric

Array = np.ndarray


def _rows_and_terms(cost: TripletSum, schedule: Array, etas: Array) -> tuple[Rows, Rows, Terms]:
    left, right = (Rows(rows.indptr, rows.indices, rows.data) for rows in (cost.left, cost.right))
    return left, right, Terms(*cost.resolve(schedule.ravel()), etas)


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
        """Do one step per triplet (see `OnlineEngine.run`)."""
        left, right, terms = _rows_and_terms(self.cost, schedule, etas)
        return kernels.run(self.method, arrays["A"], arrays["B"], left, right, terms, moves)


@dataclass(frozen=True)
class SymmetricFactor(OnlineEngine):
    """Steps on A of W = A Aᵀ.

    Attributes
    ----------
    cost : TripletSum
    """

    cost: TripletSum

    def arrays_of(self, point: PSDPoint) -> dict[str, Array]:
        """Return a factor of the point."""
        return {"A": np.ascontiguousarray(point.factor())}

    def point_of(self, arrays: dict[str, Array]) -> PSDPoint:
        """Return the point A Aᵀ."""
        Q, triangle = np.linalg.qr(arrays["A"])
        return PSDPoint(Q, symmetric(triangle @ triangle.T))

    def run(self, arrays: dict[str, Array], moves: Array, schedule: Array, etas: Array) -> int:
        """Do one step per triplet (see `OnlineEngine.run`)."""
        rows, _, terms = _rows_and_terms(self.cost, schedule, etas)
        return kernels.psd_gradient(arrays["A"], rows, terms, moves)


@dataclass(frozen=True)
class FullMatrix(OnlineEngine):
    """Steps on all n² numbers of W.

    Attributes
    ----------
    cost : TripletSum
    targets : (float, float) or None
        The squared distances of LEGO for similar and for dissimilar pairs; None: OASIS.
    """

    cost: TripletSum
    targets: tuple[float, float] | None = None

    def arrays_of(self, point: Array) -> dict[str, Array]:
        """Return a copy of the point."""
        return {"W": np.array(point, dtype=float, order="C")}

    def point_of(self, arrays: dict[str, Array]) -> Array:
        """Return a copy of W."""
        return arrays["W"].copy()

    def run(self, arrays: dict[str, Array], moves: Array, schedule: Array, etas: Array) -> int:
        """Do one step per triplet (see `OnlineEngine.run`)."""
        rows, _, terms = _rows_and_terms(self.cost, schedule, etas)
        if self.targets is None:
            return kernels.oasis(arrays["W"], rows, terms, moves)
        return kernels.lego(arrays["W"], *self.targets, rows, terms, moves)


class _TripletSolver(OnlineSolver):
    # Whether queries and documents must be rows of one matrix.
    one_space: bool = False

    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""
        cost = problem.cost
        if not isinstance(cost, TripletSum) or cost.loss is not hinge:
            raise InvalidInputError(f"{type(self).__name__} is defined for a TripletSum with the hinge loss.")
        if self.one_space and cost.left is not cost.right:
            raise InvalidInputError(
                f"{type(self).__name__} compares rows of one matrix; pass the same object as queries and documents."
            )
        return self.triplet_engine(cost)

    @abstractmethod
    def triplet_engine(self, cost: TripletSum) -> Engine:
        """Return the engine for a checked cost."""


class FactoredGradientDescent(_TripletSolver):
    """Simultaneous gradient steps on A and B (§7.1.4, 1; Bai et al. 2009)."""

    def triplet_engine(self, cost: TripletSum) -> Engine:
        """Return the engine for a checked cost."""
        return GeneralFactors(kernels.FACTORED, cost)


class PassiveAggressive(_TripletSolver):
    """Iterative passive–aggressive steps on A and B (§7.1.4, 3).

    For each triplet A moves given B, then B given the new A; `step_size` is the bound C.
    """

    def triplet_engine(self, cost: TripletSum) -> Engine:
        """Return the engine for a checked cost."""
        return GeneralFactors(kernels.PASSIVE_AGGRESSIVE, cost)


class PSDGradientDescent(_TripletSolver):
    """Gradient steps on A of W = A Aᵀ, which is Riemannian descent in the flat metric (§7.1.4, 2).

    Runs on `PSDFixedRank` in O(nnz·k) a step.
    """

    one_space = True

    def triplet_engine(self, cost: TripletSum) -> Engine:
        """Return the engine for a checked cost."""
        return SymmetricFactor(cost)


class Oasis(_TripletSolver):
    """Passive–aggressive steps on a full matrix W (Chechik et al. 2010); `step_size` is the bound C.

    Runs on `Euclidean(n, n)`, by custom from the identity; a step touches nnz(q) · nnz(d) numbers.
    """

    one_space = True

    def triplet_engine(self, cost: TripletSum) -> Engine:
        """Return the engine for a checked cost."""
        return FullMatrix(cost)


class Lego(_TripletSolver):
    """Online log-det steps on a full Mahalanobis matrix (Jain et al. 2008); `step_size` is η.

    Jain et al. learn from pairs with target distances. Here each triplet gives two pairs: the positive should be
    within the 5th percentile of the squared distances of random rows, the negative beyond the 95th, as is the
    custom for log-det metric learning (Davis et al. 2007), and a pair moves the matrix only where it is not.
    Runs on `Euclidean(n, n)` from the identity; the matrix stays positive definite. O(n²) a step.
    """

    one_space = True

    def triplet_engine(self, cost: TripletSum) -> Engine:
        """Return the engine for a checked cost."""
        return FullMatrix(cost, distance_targets(cost.left))


def distance_targets(rows: object, pairs: int = 1000) -> tuple[float, float]:
    """Return the 5th and 95th percentile of the squared distances of random rows, drawn with a fixed seed."""
    first, second = np.random.default_rng(0).integers(rows.shape[0], size=(2, pairs))  # type: ignore[attr-defined]
    difference = rows[first] - rows[second]  # type: ignore[index]
    squares = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
    near, far = np.percentile(squares[first != second], [5, 95])
    return float(near), float(far)
