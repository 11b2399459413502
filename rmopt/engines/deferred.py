"""The compiled engine of LORETA-1 on dense examples: blocks of steps by matrix products."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.low_rank import LowRankPoint
from rmopt.costs.losses import with_slope
from rmopt.engines.bilinear import BilinearEngine
from rmopt.engines.gauged import GaugedState, padded
from rmopt.kernels import bilinear_sgd
from rmopt.kernels.bilinear_sgd import Products
from rmopt.kernels.steps import FINISHED, StepRows

# Larger blocks spend more on Gram matrices, smaller ones more on reading A and B.
BLOCK = 32

# Where the loop over stored numbers and the blocks take the same time.
LEAST_WIDTH = 128

# Rows of a factor that are taken at a time: they stay in the second cache.
TILE = 1024


@dataclass
class OpenBlock:
    """Steps whose changes of A and B are still to be applied.

    Attributes
    ----------
    left, plus, minus : int arrays, shape (b,)
        The rows that the steps look at (see `Bilinear.resolve`); −1 where no step is known yet.
    G, H : arrays, shape (b, k)
        A has to change by PᵀG, B by QᵀH, with the examples as rows of P and Q.
    count : array of one int
        Number of steps done.
    """

    left: Array
    plus: Array
    minus: Array
    G: Array
    H: Array
    count: Array

    @classmethod
    def empty(cls, size: int, k: int) -> Self:
        """Return a block without steps."""
        left, plus, minus = (np.full(size, -1) for _ in range(3))
        return cls(left, plus, minus, np.zeros((size, k)), np.zeros((size, k)), np.zeros(1, dtype=np.int64))


@dataclass
class DeferredState(GaugedState):
    """Factors, counters, and the block of steps that is not finished."""

    block: Any = None


class Side(NamedTuple):
    """The examples of one factor, and what is written again for every block: fresh arrays would cost more.

    `rows` (b, n): the block's examples P. `U`, `PP`: see `Products`. `change`: some rows of PᵀG.
    """

    examples: Array
    rows: Array
    U: Array
    PP: Array
    change: Array


@dataclass(frozen=True)
class DeferredEngine(BilinearEngine):
    """The steps of `BilinearEngine` for dense examples, exact, at the speed of matrix products.

    A block of b known examples is done in sequence with products of their Gram matrices; A and B are read and
    changed once a block. The block that a call leaves unfinished is kept in the state. Its matrix products always
    have the full block's shape, with zero rows for examples that are not known yet, so that neither the results
    nor their rounding depend on where calls are split.

    Attributes
    ----------
    block_size : int
        Steps in a block.
    """

    block_size: int = BLOCK
    _sides: list[Side] = field(init=False, repr=False)

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        rows = reference.cost.rows
        suits = all(isinstance(side, np.ndarray) and side.shape[1] >= LEAST_WIDTH for side in rows)
        return super().refuses(reference) or (None if suits else "the rows are narrow, or mostly zero")

    def __post_init__(self) -> None:
        b, width = self.block_size, padded(np.eye(self.manifold.rank)).shape[1]
        sides = [
            Side(examples, *map(np.empty, ((b, n), (b, width), (b, b), (min(n, TILE), width))))
            for examples, n in zip(map(dense, self.cost.rows), self.manifold.shape, strict=True)
        ]
        object.__setattr__(self, "_sides", sides)

    def load(self, point: LowRankPoint) -> DeferredState:
        return self._with_empty_block(super().load(point))

    def handed_over(self, state: DeferredState) -> GaugedState:
        """Return the state behind its open block."""
        A, B = state.factors.A, state.factors.B
        self._close(state.block, A, B)
        return GaugedState(state.factors, state.counters, state.steps, state.renewals)

    def taken_over(self, state: Any) -> DeferredState | None:
        return None if super().taken_over(state) is None else self._with_empty_block(state)

    def moved(self, state: GaugedState, point: LowRankPoint) -> DeferredState:
        # Steps that were still to be applied led to where it stood.
        return self._with_empty_block(super().moved(state, point))

    def _with_empty_block(self, state: GaugedState) -> DeferredState:
        block = OpenBlock.empty(self.block_size, state.factors.C.shape[0])
        return DeferredState(state.factors, state.counters, state.steps, state.renewals, block)

    def dump(self, state: DeferredState) -> LowRankPoint:  # type: ignore[override]
        A, B = state.factors.A.copy(), state.factors.B.copy()
        self._close(state.block, A, B)
        return self.gauge.point_of(state.factors._replace(A=A, B=B), self.manifold.rank)

    def loop(  # type: ignore[override]
        self, state: DeferredState, terms: StepRows, position: int, probe_every: int, growth_limit: float
    ) -> tuple[int, int]:
        """Do steps from `position` on (see `GaugedEngine.loop`); a block is closed when full or interrupted."""
        run = with_slope(self.cost.loss, bilinear_sgd.run)
        last, reason = len(terms.etas), FINISHED
        while position < last and reason == FINISHED:
            block = state.block
            first = int(block.count[0])
            stop = min(self.block_size, first + last - position)
            here, part = slice(first, stop), slice(position, position + stop - first)
            block.left[here], block.plus[here] = terms.left[part], terms.plus[part]
            block.minus[here] = terms.minus[part]
            targets, etas = np.zeros(stop), np.zeros(stop)
            targets[here], etas[here] = terms.targets[part], terms.etas[part]
            known = StepRows(block.left[:stop], block.plus[:stop], block.minus[:stop], targets, etas)
            end, reason = run(
                self.retraction.kernel, None, state.factors, state.counters,
                None, None, known, self._products(state), first, probe_every, growth_limit,
            )  # fmt: skip
            block.count[0] = end
            position += end - first
            if reason != FINISHED or end == self.block_size:
                self._apply(block, state.factors.A, state.factors.B)
                state.block = OpenBlock.empty(self.block_size, block.G.shape[1])
        return position, reason

    def _lay_out(self, block: OpenBlock, number: int) -> Side:
        """Write the left (0) or right (1) examples of a block as rows, zero where there is none."""
        side, wanted = self._sides[number], (block.left, block.plus)[number]
        known = int(np.count_nonzero(block.left >= 0))
        # The numbers are in range; other modes of `take` would go through a copy.
        np.take(side.examples, wanted[:known], axis=0, out=side.rows[:known], mode="clip")
        side.rows[known:] = 0.0
        if number == 1:
            for i in np.flatnonzero(block.minus[:known] >= 0):
                side.rows[i] -= side.examples[block.minus[i]]
        return side

    def _products(self, state: DeferredState) -> Products:
        # One side after the other: together they do not fit into the caches.
        for number, tall in enumerate((state.factors.A, state.factors.B)):
            side = self._lay_out(state.block, number)
            U, PP = side.U, side.PP
            U[:], PP[:] = 0.0, 0.0
            for here in _tiles(len(tall)):
                rows = side.rows[:, here]
                U += rows @ tall[here]
                PP += rows @ rows.T
        left, right = self._sides
        return Products(left.U, right.U, left.PP, right.PP, state.block.G, state.block.H)

    def _close(self, block: OpenBlock, A: Array, B: Array) -> None:
        """Change A and B in place by the steps of an open block."""
        for number in range(2):
            self._lay_out(block, number)
        self._apply(block, A, B)

    def _apply(self, block: OpenBlock, A: Array, B: Array) -> None:
        """Change A by PᵀG and B by QᵀH in place, for a block whose examples are laid out."""
        # scipy's BLAS would add in place, but its threads and numpy's get in each other's way.
        for side, tall, moves in zip(self._sides, (A, B), (block.G, block.H), strict=True):
            for here in _tiles(len(tall)):
                part = tall[here]
                part += np.matmul(side.rows[:, here].T, moves, out=side.change[: len(part)])


def _tiles(n: int) -> Iterator[slice]:
    """Return slices that cover n rows, `TILE` at a time."""
    return (slice(first, min(first + TILE, n)) for first in range(0, n, TILE))
