"""Samplers: which terms each step looks at.

A schedule is drawn in blocks of `block_size` steps. The generator of a block depends only on the
seed of the run and the number of the block, so that a resumed run draws what the interrupted one
would have drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.streams import Stream
from rmopt.engines.coordinate import GREEDY


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
        table = None if isinstance(terms, (int, np.integer)) else np.asarray(terms)
        count = int(terms) if table is None else len(table)
        if count < 1:
            raise InvalidInputError(f"{type(self).__name__} needs at least one term, got {count}.")
        if not 1 <= batch_size <= count:
            raise InvalidInputError(f"batch_size = {batch_size} is out of range; choose 1 to {count}.")
        self.terms, self._table, self.n_terms, self.batch_size = terms, table, count, int(batch_size)

    def _look_up(self, numbers: Array) -> Array:
        """Return the terms with these numbers, one step a row."""
        if self._table is None:
            return numbers
        return self._table[numbers].reshape(len(numbers), -1)


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
        """Return uniformly drawn terms (see `Sampler.draw`)."""
        return self._look_up(rng.integers(self.n_terms, size=(size, self.batch_size)))


class ShuffledEpochs(_OverTerms):
    """Every term once per epoch, in a new random order; terms that do not fill a last batch are left out.

    Parameters
    ----------
    terms : int or int array, shape (T, term_width)
        The number of terms, or a table with one term a row.
    batch_size : int
        Terms per step.
    """

    def __init__(self, terms: int | Array, batch_size: int = 1) -> None:
        super().__init__(terms, batch_size)
        self.block_size = self.n_terms // self.batch_size

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return one epoch (see `Sampler.draw`)."""
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
        if terms < 1:
            raise InvalidInputError(f"Cyclic needs at least one term, got {terms}.")
        self.n_terms = int(terms)

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the numbers in turn (see `Sampler.draw`)."""
        return (np.arange(start, start + size) % self.n_terms)[:, None]


class GaussSouthwell(Sampler):
    """The block with the longest gradient at every step; the engine finds it (Nutini et al. 2015).

    Parameters
    ----------
    terms : int
        The number of blocks.
    """

    def __init__(self, terms: int) -> None:
        self.n_terms = int(terms)

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the sign for it at every step (see `Sampler.draw`)."""
        return np.full((size, 1), GREEDY)


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
        self.function, self.batch_size = function, batch_size

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return the function's terms, checked for their shape."""
        schedule = np.asarray(self.function(rng, start, size))
        if schedule.ndim != 2 or len(schedule) != size or not np.issubdtype(schedule.dtype, np.integer):
            raise InvalidInputError(
                f"the sampler function returned {schedule.dtype} of shape {schedule.shape} for {size} steps; "
                "it must return integers, one row per step."
            )
        return schedule


def as_sampler(sampler: Any, cost: Any, batch_size: int) -> Sampler:
    """Return a sampler: None becomes `Uniform` over the cost's terms, a function `FromDraw`."""
    if isinstance(sampler, Sampler):
        if batch_size not in (1, sampler.batch_size):
            raise InvalidInputError(
                f"batch_size = {batch_size} contradicts the sampler's {sampler.batch_size}; "
                "set it on the sampler alone."
            )
        return sampler
    if callable(sampler):
        return FromDraw(sampler, batch_size)
    if sampler is not None:
        raise InvalidInputError(f"sampler = {sampler!r} must be a Sampler, a function or None.")
    if cost.n_terms is None:
        raise InvalidInputError(
            f"{type(cost).__name__} is a stream of terms; pass a sampler that draws them."
        )
    terms = cost.n_terms if cost.term_width == 1 else cost.all_terms().reshape(-1, cost.term_width)
    return Uniform(terms, batch_size)
