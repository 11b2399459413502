"""Online learners whose steps change a few arrays in place: the base of the baselines, OASIS and LEGO."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from problems import kernels
from rmopt.core import FiniteSum, InvalidInputError, LowRankPoint, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer
from rmopt.core.matrices import row_dots
from rmopt.costs import TripletSum, hinge
from rmopt.engines.base import Engine, checked, diverged
from rmopt.engines.bilinear import rows_of
from rmopt.kernels import pending
from rmopt.kernels.steps import Rows, StepRows
from rmopt.linalg import factor_product
from rmopt.solvers import Sampler, ScheduledSolver, StepSize
from rmopt.solvers.stochastic.step_sizes import as_step_size


@dataclass
class OnlineState:
    """Named arrays, the number of steps, and (in an array of one) the number of steps that moved the point."""

    arrays: dict[str, Array]
    steps: int
    moves: Array

    @property
    def updates(self) -> int:
        """Number of steps that moved the point."""
        return int(self.moves[0])


@dataclass(frozen=True)
class OnlineEngine(Engine):
    """An engine whose compiled loop changes arrays in place, one term a step.

    Attributes
    ----------
    cost : FiniteSum
    arrays_of : callable
        Returns new C-contiguous arrays for a point, by their names.
    point_of : callable
        Returns the point of arrays, which are not changed and not shared.
    loop : callable
        Takes arrays, the number of moves, the numbers of terms and step sizes, does a step per term, and returns the
        number of the first bad step, or −1.
    """

    cost: FiniteSum
    arrays_of: Callable[[Any], dict[str, Array]]
    point_of: Callable[[dict[str, Array]], Any]
    loop: Callable[[dict[str, Array], Array, Array, Array], int]

    def load(self, point: Any) -> OnlineState:
        return OnlineState(self.arrays_of(point), 0, np.zeros(1, dtype=np.int64))

    def advance(self, state: OnlineState, schedule: Array, etas: Array) -> OnlineState:
        schedule = checked(schedule, etas, self.cost.term_ranges, 1)
        etas, terms = np.ascontiguousarray(etas, dtype=float), schedule.ravel().astype(np.int64)
        bad = self.loop(state.arrays, state.moves, terms, etas)
        if bad >= 0:
            raise diverged(state.steps + bad, etas[bad])
        state.steps += len(schedule)
        return state

    def dump(self, state: OnlineState) -> Any:
        return self.point_of(state.arrays)


def factors_of(point: LowRankPoint) -> dict[str, Array]:
    """Return the balanced factors A and B of W = A Bᵀ."""
    A, B = point.balanced_factors()
    return {"A": np.ascontiguousarray(A), "B": np.ascontiguousarray(B)}


def point_of_factors(factors: dict[str, Array]) -> LowRankPoint:
    """Return W = A Bᵀ."""
    return LowRankPoint(*factor_product(factors["A"], np.eye(factors["A"].shape[1]), factors["B"]))


class OnlineSolver(ScheduledSolver):
    """The base of the baselines' solvers. A subclass has a compiled loop for one kind of cost.

    Parameters
    ----------
    step_size : float or StepSize
        The step size, or the bound C of passive–aggressive steps.
    max_iter : int
        The budget.
    sampler : Sampler
        Draws the terms.
    """

    cost_type: type[FiniteSum]

    def __init__(self, step_size: float | StepSize, *, max_iter: int, sampler: Sampler) -> None:
        self.step_size, self.sampler = as_step_size(step_size), sampler
        self.max_iter = integer("max_iter", max_iter)

    def sampler_for(self, problem: Problem) -> Sampler:
        return self.sampler

    def step_size_rule(self) -> StepSize:
        return self.step_size

    def engine(self, problem: Problem) -> Engine:
        # The loops replace the methods of the cost, and ignore those of subclasses.
        if type(problem.cost) is not self.cost_type:
            raise InvalidInputError(
                f"{type(self).__name__} is defined for {self.cost_type.__name__}, got {type(problem.cost).__name__}."
            )
        return OnlineEngine(problem.cost, *self.parts(problem.cost))

    @abstractmethod
    def parts(self, cost: Any) -> tuple[Any, Any, Any]:
        """Return `arrays_of`, `point_of` and the loop for `OnlineEngine`."""


class TripletSolver(OnlineSolver):
    """An online learner for a `TripletSum` with the hinge loss."""

    cost_type = TripletSum
    # Whether queries and documents must be rows of one matrix.
    one_space: bool = False

    def engine(self, problem: Problem) -> Engine:
        engine, cost = super().engine(problem), cast(TripletSum, problem.cost)
        if cost.loss is not hinge or (self.one_space and cost.left is not cost.right):
            raise InvalidInputError(
                f"{type(self).__name__} is defined for a TripletSum with the hinge loss"
                f"{', of one object as queries and documents' * self.one_space}."
            )
        return engine


def rows_and_terms(cost: TripletSum, terms: Array, etas: Array) -> tuple[Rows, Rows, StepRows]:
    """Return queries, documents and triplets in the form of the kernels."""
    return *rows_of(cost.left, cost.right), StepRows(*cost.resolve(terms), etas)


class Oasis(TripletSolver):
    """Passive–aggressive steps on a full matrix W (Chechik et al. 2010); `step_size` is the bound C.

    Runs on `Euclidean(n, n)`, usually from the identity. A step changes nnz(q) · nnz(d) numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import TripletSum
    >>> from rmopt.manifolds import Euclidean
    >>> from problems.online import Oasis
    >>> from problems.similarity import ClassTriplets
    >>> X, y = np.repeat(np.eye(4), 5, axis=0), np.repeat([0, 0, 1, 1], 5)
    >>> problem = Problem(Euclidean(4, 4), TripletSum(X, X))
    >>> oasis = Oasis(0.1, max_iter=500, sampler=ClassTriplets(y))
    >>> oasis.run(problem, np.eye(4), random_state=0).point.round(1)
    array([[ 1. ,  0.7, -0.4, -0.3],
           [ 0.7,  1. , -0.4, -0.3],
           [-0.4, -0.3,  1. ,  0.7],
           [-0.4, -0.3,  0.7,  1. ]])
    """

    one_space = True

    def parts(self, cost: TripletSum) -> tuple[Any, Any, Any]:
        def loop(arrays: dict[str, Array], moves: Array, terms: Array, etas: Array) -> int:
            rows, _, steps = rows_and_terms(cost, terms, etas)
            return kernels.oasis(arrays["W"], rows, steps, moves)

        return lambda W: {"W": np.array(W, dtype=float, order="C")}, lambda arrays: arrays["W"].copy(), loop


class Lego(TripletSolver):
    """Online log-det steps on a full Mahalanobis matrix (Jain et al. 2008); `step_size` is η.

    Jain et al. learn from pairs with target distances. Here each triplet gives two pairs: the positive should be
    within the 5th percentile of the squared distances of random rows, the negative beyond the 95th, as is the
    custom for log-det metric learning (Davis et al. 2007), and a pair moves the matrix only if it is not. Runs on
    `Euclidean(n, n)` from the identity, and the matrix stays positive definite. A step reads the rows that a pair
    needs, and the matrix changes for many steps at once.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import TripletSum
    >>> from rmopt.manifolds import Euclidean
    >>> from problems.online import Lego
    >>> from problems.similarity import ClassTriplets
    >>> X, y = np.repeat(np.eye(4), 5, axis=0), np.repeat([0, 0, 1, 1], 5)
    >>> problem = Problem(Euclidean(4, 4), TripletSum(X, X))
    >>> lego = Lego(0.1, max_iter=500, sampler=ClassTriplets(y))
    >>> W = lego.run(problem, np.eye(4), random_state=0).point
    >>> [round(float(d @ W @ d), 1) for d in (X[0] - X[5], X[0] - X[10])]
    [0.2, 2.0]
    """

    one_space = True

    def parts(self, cost: TripletSum) -> tuple[Any, Any, Any]:
        near, far = distance_targets(cost.left)

        def loop(arrays: dict[str, Array], moves: Array, terms: Array, etas: Array) -> int:
            rows, _, steps = rows_and_terms(cost, terms, etas)
            return kernels.lego(pending.Changing(**arrays), near, far, rows, steps, moves)

        return lambda W: pending.of(np.array(W, dtype=float, order="C"))._asdict(), _with_changes, loop


def _with_changes(arrays: dict[str, Array]) -> Array:
    # Changes stay pending, so that reading the state does not affect later steps.
    matrix = pending.Changing(**arrays)
    vectors, weights = (part[: matrix.waiting[0]] for part in (matrix.vectors, matrix.weights))
    return matrix.base + (vectors.T * weights) @ vectors


def distance_targets(rows: object, pairs: int = 1000) -> tuple[float, float]:
    """Return the 5th and 95th percentile of the squared distances of random rows, drawn with a fixed seed."""
    first, second = np.random.default_rng(0).integers(rows.shape[0], size=(2, pairs))  # type: ignore[attr-defined]
    difference = rows[first] - rows[second]  # type: ignore[index]
    near, far = np.percentile(row_dots(difference, difference)[first != second], [5, 95])
    return float(near), float(far)
