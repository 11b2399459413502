"""The compiled engine of LORETA-1 on dense examples: blocks of steps by matrix products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.costs.bilinear import Bilinear
from rmopt.engines.bilinear import BILINEAR, loop_of
from rmopt.engines.gauge import padded_square
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.kernels import blocked
from rmopt.kernels.blocked import Products
from rmopt.kernels.outcomes import FINISHED
from rmopt.kernels.terms import Terms
from rmopt.manifolds import FixedRankEmbedded

# Larger blocks spend more on Gram matrices, smaller ones more on reading A and B.
BLOCK = 32

# Where the loop over stored numbers and the blocks take the same time.
LEAST_WIDTH, LEAST_SHARE = 128, 0.5


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
    def empty(cls, size: int, k: int) -> OpenBlock:
        """Return a block without steps."""
        left, plus, minus = (np.full(size, -1) for _ in range(3))
        return cls(left, plus, minus, np.zeros((size, k)), np.zeros((size, k)), np.zeros(1, dtype=np.int64))


@dataclass
class BlockedState(GaugedState):
    """Factors, counters, and the block of steps that is not finished."""

    block: Any = None


class Room(NamedTuple):
    """Arrays that are written anew for every block: fresh ones would cost more than the products.

    `P`, `Q`: examples as rows. `U`, `V`, `PP`, `QQ`: see `Products`. `A_change`, `B_change`: PᵀG and QᵀH.
    """

    P: Array
    Q: Array
    U: Array
    V: Array
    PP: Array
    QQ: Array
    A_change: Array
    B_change: Array

    @classmethod
    def of(cls, n: int, m: int, k: int, b: int) -> Room:
        """Return room for blocks of b steps on n × m matrices of rank k."""
        width = padded_square(np.eye(k)).shape[0]
        shapes = ((b, n), (b, m), (b, width), (b, width), (b, b), (b, b), (n, width), (m, width))
        return cls(*(np.empty(shape) for shape in shapes))


@dataclass(frozen=True)
class BlockedEngine(GaugedEngine):
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

    runs = BILINEAR

    manifold: FixedRankEmbedded
    cost: Bilinear
    block_size: int = BLOCK
    _examples: tuple[Array, Array] = field(init=False, repr=False)
    _room: Room = field(init=False, repr=False)

    @classmethod
    def refuses(cls, problem: Problem, retraction: Retraction, how: int) -> str | None:
        cost: Any = problem.cost
        return super().refuses(problem, retraction, how) or (
            None if suits(cost) else "the rows are narrow, or mostly zero"
        )

    def __post_init__(self) -> None:
        left = self.cost.left.toarray()
        right = left if self.cost.right is self.cost.left else self.cost.right.toarray()
        object.__setattr__(self, "_examples", (left, right))
        object.__setattr__(self, "_room", Room.of(*self.manifold.shape, self.manifold.rank, self.block_size))

    def load(self, point: LowRankPoint) -> BlockedState:
        factors = self.gauge.factors_of(point)
        block = OpenBlock.empty(self.block_size, factors.C.shape[0])
        return BlockedState(factors, self.gauge.fresh_counters(factors), block=block)

    def dump(self, state: BlockedState) -> LowRankPoint:  # type: ignore[override]
        A, B = state.factors.A.copy(), state.factors.B.copy()
        self._left_rows(state.block)
        self._right_rows(state.block)
        self._apply(state.block, A, B)
        return self.gauge.point_of(state.factors._replace(A=A, B=B), self.manifold.rank)

    def terms(self, schedule: Array, etas: Array) -> Terms:
        """Return rows, targets and step sizes."""
        return Terms(*self.cost.resolve(schedule.ravel()), etas)

    def loop(  # type: ignore[override]
        self, state: BlockedState, terms: Terms, position: int, probe_every: int, growth_limit: float
    ) -> tuple[int, int]:
        """Do steps from `position` on (see `GaugedEngine.loop`); a block is closed when full or interrupted."""
        run, code = loop_of(blocked, self.cost.loss)
        last, reason = len(terms.etas), FINISHED
        while position < last and reason == FINISHED:
            block = state.block
            first = int(block.count[0])
            stop = min(self.block_size, first + last - position)
            here, part = slice(first, stop), slice(position, position + stop - first)
            block.left[here], block.plus[here] = terms.left[part], terms.plus[part]
            block.minus[here] = terms.minus[part]
            products = self._products(state)
            targets, etas = np.zeros(self.block_size), np.zeros(self.block_size)
            targets[here], etas[here] = terms.targets[part], terms.etas[part]
            end, reason = run(
                self.retraction.kernel, code, state.factors, state.counters, products, targets, etas,
                first, stop, probe_every, growth_limit,
            )  # fmt: skip
            block.count[0] = end
            position += end - first
            if reason != FINISHED or end == self.block_size:
                self._apply(block, state.factors.A, state.factors.B)
                state.block = OpenBlock.empty(self.block_size, block.G.shape[1])
        return position, reason

    def _left_rows(self, block: OpenBlock) -> Array:
        """Write the left examples of a block as rows of P, zero where there is none."""
        known = int(np.count_nonzero(block.left >= 0))
        # The numbers are in range; other modes of `take` would go through a copy.
        np.take(self._examples[0], block.left[:known], axis=0, out=self._room.P[:known], mode="clip")
        self._room.P[known:] = 0.0
        return self._room.P

    def _right_rows(self, block: OpenBlock) -> Array:
        """Write the right examples of a block as rows of Q, zero where there is none."""
        right, Q = self._examples[1], self._room.Q
        known = int(np.count_nonzero(block.left >= 0))
        np.take(right, block.plus[:known], axis=0, out=Q[:known], mode="clip")
        Q[known:] = 0.0
        for i in np.flatnonzero(block.minus[:known] >= 0):
            Q[i] -= right[block.minus[i]]
        return Q

    def _products(self, state: BlockedState) -> Products:
        room, block = self._room, state.block
        # One side after the other: together they do not fit into the caches.
        P = self._left_rows(block)
        np.matmul(P, state.factors.A, out=room.U)
        np.matmul(P, P.T, out=room.PP)
        Q = self._right_rows(block)
        np.matmul(Q, state.factors.B, out=room.V)
        np.matmul(Q, Q.T, out=room.QQ)
        return Products(room.U, room.V, room.PP, room.QQ, block.G, block.H)

    def _apply(self, block: OpenBlock, A: Array, B: Array) -> None:
        """Change A by PᵀG and B by QᵀH in place, for a block whose examples are laid out."""
        # scipy's BLAS would add in place, but its threads and numpy's get in each other's way.
        room = self._room
        A += np.matmul(room.P.T, block.G, out=room.A_change)
        B += np.matmul(room.Q.T, block.H, out=room.B_change)


def suits(cost: Bilinear) -> bool:
    """Return whether blocks are the faster way for a cost: wide rows, at least half of their numbers stored."""
    return all(
        rows.shape[1] >= LEAST_WIDTH and rows.nnz >= LEAST_SHARE * rows.shape[0] * rows.shape[1]
        for rows in (cost.left, cost.right)
    )
