"""Samplers, which choose the terms of each step.

A schedule is drawn in blocks of `block_size` steps. The generator of a block depends only on the
seed of the run and the number of the block, so that a resumed run draws the same terms as an uninterrupted one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import array, callable_of, integer, one_of, optional, shown
from rmopt.core.cost import as_sum
from rmopt.core.streams import Stream
from rmopt.errors import InvalidInputError


class Sampler(ABC):
    """Draws the schedule of a run.

    Attributes
    ----------
    block_size : int
        Number of steps in one draw.
    batch_size : int
        Number of terms in one step.
    stream : Stream
        The stream of a seed from which it draws.

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
    """The base of samplers that choose among enumerated terms or rows of a table of terms."""

    def __init__(self, terms: int | Array, batch_size: int = 1) -> None:
        table = array("terms", terms)
        self.n_terms = integer("number of terms", len(table) if table.ndim else terms, 1, 2**62)
        self.terms, self._table = terms, table if table.ndim else None
        self.batch_size = integer("batch_size", batch_size, 1, self.n_terms)

    def _look_up(self, numbers: Array) -> Array:
        """Return the terms with these numbers, one step a row."""
        return numbers if self._table is None else self._table[numbers].reshape(len(numbers), -1)


class Uniform(_OverTerms):
    """Uniformly random terms at every step, with replacement.

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
    """Every term once per epoch, in a new random order, without terms that do not fill the last batch.

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
    """A user-defined sampler: a function (rng, start, size) → int array of shape (size, width).

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
        """Return the function's terms. The engine checks them."""
        return np.atleast_1d(self.function(rng, start, size))


def batch_size_of(sampler: Any, batch_size: int | None) -> int:
    """Return the terms per step: those of a `Sampler`, which must not be contradicted, or by default 1."""
    if not isinstance(sampler, Sampler):
        optional(callable_of)("sampler", sampler)
        return 1 if batch_size is None else integer("batch_size", batch_size, 1)
    if batch_size not in (None, sampler.batch_size):
        raise InvalidInputError(
            f"batch_size = {shown(batch_size)} contradicts the sampler's {sampler.batch_size}; set only the latter."
        )
    return sampler.batch_size


def as_order(order: Any, known: Iterable[str]) -> str | Sampler:
    """Return the name of an order, or a sampler. A function becomes `FromDraw`."""
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
    if cost.n_terms is None:
        raise InvalidInputError(
            f"{type(cost).__name__} is a stream of terms; pass a sampler that draws them."
        )
    terms = cost.n_terms if cost.term_width == 1 else cost.all_terms().reshape(-1, cost.term_width)
    return Uniform(terms, batch_size)
