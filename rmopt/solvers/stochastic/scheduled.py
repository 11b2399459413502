"""Solvers whose steps follow a schedule: which terms each looks at (samplers), and how long it is (step sizes).

A schedule is drawn in blocks of `block_size` steps. The generator of a block depends only on the
seed of the run and the number of the block, so that a resumed run draws what the interrupted one
would have drawn.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import (
    CheckedValue,
    array,
    bounded,
    callable_of,
    instance,
    integer,
    number,
    one_of,
    optional,
    shown,
)
from rmopt.core.cost import as_sum
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.streams import Stream, generator
from rmopt.engines.base import Engine, diverged
from rmopt.engines.choose import ENGINES, choose_engine
from rmopt.engines.reference import Plain, StepRule
from rmopt.engines.rules import AdaGrad, RowAdaGrad
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.kernels.row_column import EXACT, FIXED, FRACTION
from rmopt.manifolds import Euclidean
from rmopt.solvers.run import Solver
from rmopt.solvers.save import FEW, MANY, START_TERMS, TERMS, witness


class StepSize(ABC):
    """A rule that gives the step sizes of the steps numbered `t` (from 0).

    Attributes
    ----------
    search : int
        What a block solver makes of the numbers (`rmopt.kernels.row_column`): `FIXED` step sizes unless a rule says
        otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.solvers import StepSize
    >>> class Halving(StepSize):
    ...     def __call__(self, t):
    ...         return 0.5**t
    >>> Halving()(np.arange(3)).tolist()
    [1.0, 0.5, 0.25]
    """

    search: ClassVar[int] = FIXED

    @abstractmethod
    def __call__(self, t: Array) -> Array:
        """Return the step sizes for an int array of step numbers."""


# What solvers take for one (see `as_step_size`).
StepSizeLike = float | StepSize | Callable[[Array], Array]


_Positive = Annotated[float, bounded(number, above=0)]
_Share = Annotated[float, bounded(number, above=0, below=1)]


@dataclass(frozen=True)
class Constant(CheckedValue, StepSize):
    """The step size a at every step.

    Attributes
    ----------
    a : float
    """

    a: _Positive

    def __call__(self, t: Array) -> Array:
        return np.full(len(t), self.a)


@dataclass(frozen=True)
class InverseTime(CheckedValue, StepSize):
    """The step size a / (1 + b t).

    Attributes
    ----------
    a, b : float
    """

    a: _Positive
    b: _Positive

    def __call__(self, t: Array) -> Array:
        return self.a / (1.0 + self.b * np.asarray(t, dtype=float))


@dataclass(frozen=True)
class InverseSqrt(CheckedValue, StepSize):
    """The step size a / √(t + 1).

    Attributes
    ----------
    a : float
    """

    a: _Positive

    def __call__(self, t: Array) -> Array:
        return self.a / np.sqrt(np.asarray(t, dtype=float) + 1.0)


@dataclass(frozen=True)
class Cosine(CheckedValue, StepSize):
    """Half a cosine from a to 0 over some steps (Loshchilov and Hutter 2017).

    Attributes
    ----------
    a : float
    n_steps : int
        Steps to the end; afterwards it stays 0.
    """

    a: _Positive
    n_steps: Annotated[int, bounded(integer, 1)]

    def __call__(self, t: Array) -> Array:
        share = np.clip(np.asarray(t, dtype=float) / self.n_steps, 0.0, 1.0)
        return 0.5 * self.a * (1.0 + np.cos(np.pi * share))


@dataclass(frozen=True)
class ExactLineSearch(CheckedValue, StepSize):
    """The minimiser along the block's gradient, at most the share `limit` of the way to the boundary.

    For block solvers on manifolds with a step bound.

    Attributes
    ----------
    limit : float
    """

    limit: _Share = 0.99
    search: ClassVar[int] = EXACT

    def __call__(self, t: Array) -> Array:
        return np.full(len(t), self.limit)


@dataclass(frozen=True)
class FractionOfBound(CheckedValue, StepSize):
    """A share of the way to the boundary; an exact search where the retraction has no boundary.

    For block solvers on manifolds with a step bound.

    Attributes
    ----------
    fraction : float
        Between 0 and 1.
    """

    fraction: _Share = 0.5
    search: ClassVar[int] = FRACTION

    def __call__(self, t: Array) -> Array:
        return np.full(len(t), self.fraction)


@dataclass(frozen=True)
class FromFunction(StepSize):
    """A rule of the user's own.

    Attributes
    ----------
    function : callable
        Maps an int array of step numbers to step sizes.
    """

    function: Callable[[Array], Array]

    def __post_init__(self) -> None:
        callable_of("function", self.function)

    def __repr__(self) -> str:
        return f"FromFunction({getattr(self.function, '__name__', type(self.function).__name__)})"

    def __call__(self, t: Array) -> Array:
        """Return the function's values, checked."""
        try:
            etas = np.asarray(self.function(t)).astype(float, casting="same_kind")
        except InvalidInputError:
            # Of a rule within the function.
            raise
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the step-size function failed for an array of step numbers ({error}); write it with numpy "
                "functions that return real numbers, such as np.where(t < 100, 0.1, 0.01)."
            ) from error
        if etas.shape != (len(t),) or not (np.isfinite(etas) & (etas >= 0.0)).all():
            raise InvalidInputError(
                f"the step-size function returned {shown(etas)} for {len(t)} steps; it must return one finite number "
                "of at least 0 for each."
            )
        return etas


def as_step_size(rule: StepSizeLike, searches: bool = False) -> StepSize:
    """Return a rule: a number becomes `Constant`, a function `FromFunction`; some solvers also take searches."""
    if not isinstance(rule, StepSize):
        return FromFunction(rule) if callable(rule) else Constant(number("step_size", rule, above=0))
    if rule.search != FIXED and not searches:
        raise InvalidInputError(
            f"step_size = {rule} searches along blocks, for CoordinateDescent; give a number or a function."
        )
    return rule


def watched(rule: StepSize) -> StepSize:
    """Return a rule whose step sizes are checked where they are drawn."""
    return rule if isinstance(rule, FromFunction) else FromFunction(rule)


class Sampler(ABC):
    """Draws the schedule of a run.

    Attributes
    ----------
    block_size : int
        Number of steps in one draw.
    batch_size : int
        Number of terms in one step.
    stream : Stream
        Which numbers of a seed it draws.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.solvers import Sampler
    >>> class FirstHalf(Sampler):
    ...     def __init__(self, n_terms):
    ...         self.n_terms = n_terms
    ...
    ...     def draw(self, rng, start, size):
    ...         return rng.integers(self.n_terms // 2, size=(size, 1))
    >>> bool(FirstHalf(10).draw(np.random.default_rng(0), 0, 100).max() < 5)
    True
    """

    block_size: int = 16_384
    batch_size: int = 1
    stream: Stream = Stream.SCHEDULE

    @abstractmethod
    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the terms of the steps start, …, start + size − 1.

        Parameters
        ----------
        rng : numpy.random.Generator
            Seeded for this block alone.
        start : int
            Number of the first step, a multiple of `block_size`.
        size : int
            Always `block_size`.

        Returns
        -------
        int array, shape (size, batch_size · term_width)
        """


class _OverTerms(Sampler):
    """Common ground of samplers that choose among enumerated terms or among rows of a table of terms."""

    def __init__(self, terms: int | Array, batch_size: int = 1) -> None:
        table = array("terms", terms)
        self.n_terms = integer("number of terms", len(table) if table.ndim else terms, 1, 2**62)
        self.terms, self._table = terms, table if table.ndim else None
        self.batch_size = integer("batch_size", batch_size, 1, self.n_terms)

    def _look_up(self, numbers: Array) -> Array:
        """Return the terms with these numbers, one step a row."""
        return numbers if self._table is None else self._table[numbers].reshape(len(numbers), -1)


class Uniform(_OverTerms):
    """Every term equally likely at every step, with replacement.

    Parameters
    ----------
    terms : int or int array, shape (T, term_width)
        The number of terms, or a table with one term a row.
    batch_size : int
        Terms per step.
    """

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        return self._look_up(rng.integers(self.n_terms, size=(size, self.batch_size)))


class ShuffledEpochs(_OverTerms):
    """Every term once per epoch, in a new random order; terms that do not fill a last batch are left out.

    Parameters
    ----------
    terms, batch_size : optional
        As in `Uniform`.

    References
    ----------
    Gürbüzbalaban, Ozdaglar and Parrilo, Why random reshuffling beats stochastic gradient descent, Mathematical
    Programming 186 (2021), https://doi.org/10.1007/s10107-019-01440-w.
    """

    def __init__(self, terms: int | Array, batch_size: int = 1) -> None:
        super().__init__(terms, batch_size)
        self.block_size = self.n_terms // self.batch_size

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        order = rng.permutation(self.n_terms)[: size * self.batch_size]
        return self._look_up(order.reshape(size, self.batch_size))


class Cyclic(Sampler):
    """All terms or blocks in their order, again and again.

    Parameters
    ----------
    terms : int
        Their number.
    """

    def __init__(self, terms: int) -> None:
        self.n_terms = integer("number of terms", terms, 1)

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        return (np.arange(start, start + size) % self.n_terms)[:, None]


class FromDraw(Sampler):
    """A sampler of the user's own: a function (rng, start, size) → int array of shape (size, width).

    Parameters
    ----------
    function : callable
    batch_size : int
        Terms per step.
    """

    def __init__(
        self, function: Callable[[np.random.Generator, int, int], Array], batch_size: int = 1
    ) -> None:
        self.function = callable_of("function", function)
        self.batch_size = integer("batch_size", batch_size, 1)

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the function's terms; the engine checks them."""
        return np.atleast_1d(self.function(rng, start, size))


def batch_size_of(sampler: Any, batch_size: int | None) -> int:
    """Return the terms per step: those of a `Sampler`, which must not be contradicted, otherwise 1 unless given."""
    if not isinstance(sampler, Sampler):
        optional(callable_of)("sampler", sampler)
        return 1 if batch_size is None else integer("batch_size", batch_size, 1)
    if batch_size not in (None, sampler.batch_size):
        raise InvalidInputError(
            f"batch_size = {shown(batch_size)} contradicts the sampler's {sampler.batch_size}; set it on the sampler "
            "alone."
        )
    return sampler.batch_size


def as_order(order: Any, known: Iterable[str]) -> str | Sampler:
    """Return the name of an order, or a sampler; a function becomes `FromDraw`."""
    if isinstance(order, Sampler):
        return order
    return FromDraw(order) if callable(order) else one_of("order", order, known)


def as_sampler(sampler: Any, cost: Any, batch_size: int | None = None) -> Sampler:
    """Return a sampler: None becomes `Uniform` over the cost's terms, a function `FromDraw`."""
    batch_size = batch_size_of(sampler, batch_size)
    if isinstance(sampler, Sampler):
        return sampler
    if callable(sampler):
        return FromDraw(sampler, batch_size)
    cost = as_sum(cost)
    if cost.n_terms is None or (cost.term_width > 1 and not hasattr(cost, "all_terms")):
        raise InvalidInputError(
            f"{type(cost).__name__} is a stream of terms; pass a sampler that draws them."
        )
    terms = cost.n_terms if cost.term_width == 1 else cost.all_terms().reshape(-1, cost.term_width)
    return Uniform(terms, batch_size)


# How far from the first step, and from the last one that was done, those lie whose sizes a checkpoint keeps.
APART = np.unique(np.geomspace(1, 10**9, 400).astype(int)) - 1


@dataclass
class Schedule:
    """The engine of a run, and the terms and step sizes that it is given, which are drawn block by block.

    Blocks are counted from the step `origin` on, which is not 0 where the terms of earlier steps were others.
    """

    engine: Engine
    sampler: Sampler
    rule: StepSize
    seed: int
    origin: int = 0
    last: int = 2**62
    # The number of the block that was drawn last, its terms and its step sizes.
    block: int = -1
    drawn: tuple[Array, Array] = field(default_factory=lambda: (np.empty((0, 1), dtype=int), np.empty(0)))

    def at(self, step: int, most: int) -> tuple[Array, Array]:
        """Return terms and step sizes from a step on: at most so many, and no more than are drawn."""
        block, start = divmod(step - self.origin, self.sampler.block_size)
        if most > 0 and block != self.block:
            self.block, self.drawn = block, self.draw(block)
        terms, lengths = self.drawn
        part = slice(start, start + most) if most > 0 else slice(0)
        return terms[part], lengths[part]

    def draw(self, block: int) -> tuple[Array, Array]:
        """Return the terms and step sizes of a block; the rule is asked for no step beyond the budget."""
        size, origin = self.sampler.block_size, self.origin
        rng = generator(self.seed, self.sampler.stream, block, *([origin] if origin else []))
        terms = self.sampler.draw(rng, block * size, size)
        steps = np.arange(origin + block * size, origin + (block + 1) * size)
        return terms, self.rule(np.clip(steps, None, max(self.last - 1, 0)))


class ScheduledSolver(Solver):
    """A solver that follows a schedule of terms and a rule of step sizes.

    Attributes
    ----------
    step_size : StepSize
    """

    step_size: StepSize

    @abstractmethod
    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""

    @abstractmethod
    def sampler_for(self, problem: Problem) -> Sampler:
        """Return the sampler of the schedule."""

    def step_size_rule(self) -> StepSize:
        """Return the rule of the step sizes: `step_size`, checked where they are drawn."""
        return watched(self.step_size)

    def check_every(self, problem: Problem) -> int | None:
        """Return None: only the budget and a criterion end the run."""
        return None

    def prepare(self, problem: Problem, seed: int) -> Schedule:
        about = self.engine(problem), self.sampler_for(problem), self.step_size_rule()
        return Schedule(*about, seed, last=self.budget(problem))

    def begin(self, work: Schedule, point: Any) -> Any:
        return work.engine.load(point)

    def advance(self, work: Schedule, state: Any, steps: int) -> Any:
        return work.engine.advance(state, *work.at(state.steps, steps))

    def point(self, work: Schedule, state: Any) -> Any:
        return work.engine.dump(state)

    def pack(self, work: Schedule, state: Any) -> dict[str, Array]:
        return work.engine.pack(state)

    def unpack(self, work: Schedule, arrays: dict[str, Array], template: Any) -> Any:
        return work.engine.unpack(arrays, template)

    def diverged(self, step: int) -> DivergedError:
        return diverged(step, self.step_size_rule()(np.array([step]))[0])

    def witness(self, problem: Problem, work: Schedule, state: Any, seed: int) -> dict[str, float]:
        looked_at = (FEW, TERMS) if state.steps else (MANY, START_TERMS)
        found = witness(problem, self.point(work, state), seed, *looked_at)
        with np.errstate(over="ignore"):
            terms, _ = work.draw(0)
        found["checksum of drawn terms"] = float(zlib.crc32(np.ascontiguousarray(terms).data))
        if state.steps:
            near = APART[state.steps > APART]
            lengths = work.rule(np.append(near, state.steps - 1 - near))
            found["sum of step sizes"] = float(lengths.sum())
        return found


class SGD(ScheduledSolver):
    """Gradient of a few terms, projection onto the tangent space, retraction; again and again.

    A step is along the sum of the gradients of its terms, not their mean: with larger batches take smaller step
    sizes. A cost that is no sum of terms is taken whole at every step.

    On `FixedRankEmbedded` with `SecondOrder` and a bilinear cost this is LORETA
    (Shalit et al. 2012, Algorithms 1–4).

    Parameters
    ----------
    step_size : float, StepSize or callable
        A number is a constant step size; a function maps an int array of step numbers to step sizes.
    max_iter : int
        The budget.
    batch_size : int, optional
        Terms per step: those of the sampler, otherwise 1, unless given.
    sampler : Sampler or callable, optional
        Which terms each step looks at; uniform with replacement unless given.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine where there is one.
    rule : StepRule, optional
        Along what a step goes: `Momentum`, `Adam`, `AdaGrad`, or `SVRG` and `SRG`, which reduce the variance; along
        the gradient of its terms unless given.

    See Also
    --------
    Parallel : several workers.

    References
    ----------
    Bonnabel, Stochastic gradient descent on Riemannian manifolds, IEEE Transactions on Automatic Control 58
    (2013), https://doi.org/10.1109/TAC.2013.2254619. Shalit, Weinshall and Chechik, Online learning in the
    embedded manifold of low-rank matrices, JMLR 13 (2012), https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> result = SGD(0.1, max_iter=2000).run(problem, random_state=0)
    >>> problem.value(result.point) < 1e-9
    True
    """

    def __init__(
        self,
        step_size: StepSizeLike,
        *,
        max_iter: int = 10_000,
        batch_size: int | None = None,
        sampler: Sampler | Callable[..., Any] | None = None,
        retraction: Retraction | None = None,
        engine: str = "auto",
        rule: StepRule | None = None,
    ) -> None:
        self.rule = instance(
            "rule", Plain() if rule is None else rule, StepRule, "a rule, such as Momentum(0.9)"
        )
        self.step_size, self.max_iter = as_step_size(step_size), integer("max_iter", max_iter)
        self.sampler, self.batch_size = sampler, batch_size_of(sampler, batch_size)
        self.retraction, self.engine_name = retraction, one_of("engine", engine, ENGINES)

    def engine(self, problem: Problem) -> Engine:
        cost, rule = problem.cost, self.rule
        alone = self.engine_name == "auto" and type(problem.manifold) is Euclidean
        if type(rule) is AdaGrad and alone and _knows_rows(cost):
            return RowAdaGrad(cost, self.batch_size, rule.eps)
        return choose_engine(problem, self.retraction, self.engine_name, self.batch_size, rule)

    def sampler_for(self, problem: Problem) -> Sampler:
        return as_sampler(self.sampler, problem.cost, self.batch_size)


def _knows_rows(cost: Any) -> bool:
    """Return whether a cost has gradients of rows, and no subclass has changed that of terms since."""
    names = "row_gradient", "term_gradient"
    owners = [next((kind for kind in type(cost).__mro__ if name in vars(kind)), object) for name in names]
    return callable(getattr(cost, "row_gradient", None)) and issubclass(*owners)
