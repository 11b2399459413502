"""Rules of `SGD` for the direction of a step, from present and earlier gradients."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, integer, number, optional, sequence
from rmopt.core.cost import FiniteSum
from rmopt.core.product import Parts
from rmopt.engines.base import Engine, checked, diverged
from rmopt.engines.reference import Look, ReferenceState, StepRule
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels.meeting import Meeting, due_at, meet
from rmopt.manifolds import Euclidean, Power, Product


class Weights(NamedTuple):
    """The weights of directions, memory ← keep · memory + take · gradient, and of step lengths.

    `keep_squares`, `take_squares`: the same for squared lengths, which begin at `least`. A step is divided by their
    root plus `eps` if they are used. `corrected` means that both means began at zero.
    """

    keep: float = 0.0
    take: float = 1.0
    keep_squares: float = 0.0
    take_squares: float = 0.0
    eps: float = 0.0
    least: float = 0.0
    corrected: bool = False


class Memory(NamedTuple):
    """The weighted sum of earlier gradients, and that of their squares."""

    mean: Any
    squares: Any


class WeightedRule(StepRule):
    """The weighted sum of the gradients so far, over the root of that of their squares if these have a weight.

    Squares are those of the lengths in each factor of a product, or in a flat space those of each entry.
    """

    @property
    @abstractmethod
    def weights(self) -> Weights:
        """The weights of the sums."""

    def begin(self, look: Look, point: Any) -> Memory:
        zero = look.manifold.zero_vector(point)
        squares = _squares(look.manifold, point, zero) if self.weights.take_squares else 0.0
        squares = _each(lambda part: part + self.weights.least, squares)
        return Memory(zero if self.weights.keep else (), squares)

    def direction(
        self, look: Look, point: Any, terms: Array, memory: Memory, step: int
    ) -> tuple[Any, Memory]:
        weights, mean = self.weights, look.gradient(point, terms)
        squares = memory.squares
        if weights.take_squares:
            new = _squares(look.manifold, point, mean)
            squares = squares * weights.keep_squares + new * weights.take_squares
        if weights.keep:
            mean = memory.mean * weights.keep + mean * weights.take
        found, direction = Memory(mean if weights.keep else (), squares), mean
        if weights.corrected:
            # Both means begin at zero; this corrects the bias.
            early, others = (1.0 - keep ** (step + 1) for keep in (weights.keep, weights.keep_squares))
            direction, squares = mean * (1.0 / early), squares * (1.0 / others)
        if weights.take_squares:
            direction = _each(
                lambda part, square: part * (1.0 / (np.sqrt(square) + weights.eps)), direction, squares
            )
        return direction, found

    def carried(self, look: Look, start: Any, end: Any, memory: Memory) -> Memory:
        return memory._replace(mean=look.carry(start, end, memory.mean)) if self.weights.keep else memory


@dataclass(frozen=True)
class Momentum(CheckedValue, WeightedRule):
    """The gradient plus a share of the previous direction (Polyak 1964).

    Parameters
    ----------
    share : float
        From 0 to below 1.

    Examples
    --------
    >>> from rmopt.solvers import SGD, Momentum
    >>> SGD(0.1, rule=Momentum(0.5)).rule
    Momentum(share=0.5)
    """

    share: Annotated[float, bounded(number, least=0, below=1)] = 0.9

    @property
    def weights(self) -> Weights:
        return Weights(keep=self.share)


def _two_shares(name: str, betas: Any) -> tuple[float, ...]:
    if len(shares := sequence(name, betas)) != 2:
        raise InvalidInputError(f"{name} must be two numbers, such as (0.9, 0.999).")
    return tuple(number(name, beta, least=0, below=1) for beta in shares)


@dataclass(frozen=True, kw_only=True)
class Adam(CheckedValue, WeightedRule):
    """Adaptive step sizes from the means of the gradients and of their squares (Bécigneul and Ganea 2019).

    A step is about as long as its step size, and 0.001 is usual. Squares are those of the lengths in each factor of a
    product, or in a flat space those of each entry, as in Kingma and Ba (2015).

    Parameters
    ----------
    betas : (float, float)
        The shares of the two means that remain at each step.
    eps : float
        A number below the length of significant gradients.

    See Also
    --------
    AdaGrad : for sparse gradients in flat spaces.

    References
    ----------
    Bécigneul and Ganea, Riemannian adaptive optimization methods, ICLR (2019), arXiv:1810.00760. Kingma and Ba,
    Adam: a method for stochastic optimization, ICLR (2015), arXiv:1412.6980.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD, Adam
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> solver = SGD(0.05, rule=Adam(), max_iter=200, batch_size=10)
    >>> problem.value(solver.run(problem, random_state=0).point) < 1e-3
    True
    """

    betas: Annotated[tuple[float, float], _two_shares] = (0.9, 0.999)
    eps: Annotated[float, bounded(number, above=0)] = 1e-8

    @property
    def weights(self) -> Weights:
        first, second = self.betas
        return Weights(first, 1.0 - first, second, 1.0 - second, self.eps, 0.0, True)


@dataclass(frozen=True, kw_only=True)
class AdaGrad(CheckedValue, WeightedRule):
    """Step sizes that decrease with the sum of squared gradients (Duchi, Hazan and Singer 2011).

    The first steps are about as long as the step size, in a flat space for each entry; 0.05 is usual. Squares are as
    in `Adam`. For a cost with a `row_gradient` on `Euclidean` only the rows of its terms are read and moved.

    Parameters
    ----------
    eps : float
        The start of the sums of squares.

    References
    ----------
    Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR
    12 (2011), https://jmlr.org/papers/v12/duchi11a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import SGD, AdaGrad
    >>> target = np.arange(6.0).reshape(3, 2)
    >>> cost = autograd_cost(lambda A: ((A - target) ** 2).sum())
    >>> solver = SGD(1.0, rule=AdaGrad(), max_iter=300)
    >>> result = solver.run(Problem(Euclidean(3, 2), cost), np.zeros((3, 2)))
    >>> bool(np.allclose(result.point, target))
    True
    """

    eps: Annotated[float, bounded(number, above=0)] = 1e-8

    @property
    def weights(self) -> Weights:
        return Weights(keep_squares=1.0, take_squares=1.0, least=self.eps)


def _squares(manifold: Any, point: Any, vector: Any) -> Any:
    # Subclasses may have another metric, or be quotients, for which entries are meaningless.
    if type(manifold) is Product:
        factors = zip(manifold.factors, point, vector, strict=True)
        return Parts([_squares(*of_factor) for of_factor in factors])
    base = manifold
    while type(base) is Power:
        base = base.base
    if type(base) is Euclidean:
        return vector * vector
    if base is manifold:
        return np.float64(manifold.inner_product(point, vector, vector))
    found = base.inner_products(point, vector, vector)
    return found.reshape(*found.shape, *[1] * len(base.shape))


def _each(function: Callable[..., Any], *things: Any) -> Any:
    """Apply a function to each factor, if the last argument has some."""
    if isinstance(things[-1], Parts):
        return Parts([_each(function, *parts) for parts in zip(*things, strict=True)])
    return function(*things)


class Known(NamedTuple):
    """A point and an estimate of the full gradient there, divided by the number of steps in a pass."""

    point: Any
    gradient: Any


@dataclass(frozen=True)
class VarianceReduced(CheckedValue, StepRule):
    """The gradient of some terms, corrected by that of the same terms at a point with known full gradient.

    A step is as long as one of the plain rule.
    """

    period: Annotated[int | None, optional(integer, 1)] = None

    # Whether the full gradient is estimated from step to step.
    recursive: ClassVar[bool] = False

    def share(self, cost: FiniteSum, batch_size: int) -> float:
        """Return the share of a step's terms in all."""
        return min(1.0, batch_size / cost.n_terms)  # type: ignore[operator]

    def steps_between(self, cost: FiniteSum, batch_size: int) -> int:
        """Return the number of steps between full gradients."""
        return self.period or max(1, round(1.0 / self.share(cost, batch_size)))

    def begin(self, look: Look, point: Any) -> Known:
        if look.cost.n_terms is None:
            raise MissingCapabilityError(
                f"{self} cannot run on {type(look.cost).__name__}: it has a stream of terms (n_terms is None)."
            )
        return Known(point, look.manifold.zero_vector(point))

    def direction(self, look: Look, point: Any, terms: Array, memory: Known, step: int) -> tuple[Any, Known]:
        cost, batch_size = look.cost, len(terms) // look.cost.term_width
        if step % self.steps_between(cost, batch_size) == 0:
            gradient = look.whole_gradient(point) * self.share(cost, batch_size)
            return gradient, Known(point, gradient)
        there = look.gradient(memory.point, terms) - memory.gradient
        gradient = look.gradient(point, terms) - look.carry(memory.point, point, there)
        return gradient, Known(point, gradient) if self.recursive else memory


@dataclass(frozen=True)
class SVRG(VarianceReduced):
    """Reduced variance: constant step sizes lead to the minimum (Zhang, Reddi and Sra 2016).

    Every `period` steps the full gradient is computed. Between them the gradient of the step's terms is corrected by
    their gradient at that point. A step costs twice a plain one, in addition to the full gradients. The cost must
    have a known number of terms.

    Parameters
    ----------
    period : int, optional
        Steps between full gradients, by default those of one pass over the terms.

    See Also
    --------
    SRG : corrected from step to step.

    References
    ----------
    Zhang, Reddi and Sra, Riemannian SVRG: fast stochastic optimization on Riemannian manifolds, NIPS (2016),
    arXiv:1605.07147.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD, SVRG
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> result = SGD(0.02, rule=SVRG(), max_iter=200).run(problem, random_state=0)
    >>> problem.value(result.point) < 0.1
    True
    """


@dataclass(frozen=True)
class SRG(VarianceReduced):
    """Recursive gradients: as `SVRG`, but corrected from step to step (Kasai, Sato and Mishra 2018).

    Parameters
    ----------
    period : int, optional
        As in `SVRG`.

    References
    ----------
    Kasai, Sato and Mishra, Riemannian stochastic recursive gradient algorithm, ICML (2018),
    https://proceedings.mlr.press/v80/kasai18a.html.
    """

    recursive = True


@dataclass(frozen=True)
class RowAdaGrad(Engine):
    """AdaGrad in a flat space, for a cost with `row_gradient`, in time proportional to a step's rows."""

    cost: Any
    batch_size: int
    eps: float

    def load(self, point: Array) -> ReferenceState:
        # The memory is the sums of the squares.
        return ReferenceState(point.copy(), memory=np.full(point.shape, self.eps))

    # Overflow is reported once, by the gradient.
    @np.errstate(all="ignore")
    def advance(
        self, state: ReferenceState, schedule: Array, etas: Array, meeting: Meeting | None = None
    ) -> ReferenceState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        matrix, squares, updates = state.point, state.memory, state.updates
        for step, (terms, eta) in enumerate(zip(schedule, etas, strict=True), state.steps):
            if step - state.steps == due_at(meeting) and not meet(meeting):
                raise diverged(step, eta)
            rows, gradient = self.cost.row_gradient(matrix, terms)
            if not np.isfinite(gradient).all():
                raise diverged(step, eta)
            if gradient.any():
                of_rows = squares[rows] + gradient * gradient
                squares[rows] = of_rows
                matrix[rows] -= eta * (gradient / np.sqrt(of_rows))
                updates += 1
        return replace(state, steps=state.steps + len(schedule), updates=updates)

    def dump(self, state: ReferenceState) -> Array:
        return state.point.copy()

    def moved(self, state: ReferenceState, point: Array) -> ReferenceState:
        return replace(state, point=point.copy())

    def shared(self, state: ReferenceState) -> tuple[Array, ...]:
        return (state.point,) if state.point.dtype == float else ()
