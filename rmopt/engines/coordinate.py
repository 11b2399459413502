"""Coordinate descent: the definition, for any manifold with blocks, any cost and any retraction with a velocity."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from rmopt.core.ambient import Array, RowColumn, dense
from rmopt.core.cost import BlockCost, Cost
from rmopt.core.points import arrays_of
from rmopt.core.problem import ambient_at
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine, checked, diverged
from rmopt.kernels.row_column import BEYOND, CLIP, EXACT, FIXED, STRAIGHT

# A finite slope instead of infinity, with which a search for a root can compute.
TOO_FAR = 1e200


class CoordinateDescentEngine(Engine):
    """An engine whose steps move one block, with a memory of the gradient of each block.

    A schedule holds numbers of blocks. `etas` hold numbers for the search of the step length.
    """

    @abstractmethod
    def gradients_of(self, state: Any) -> tuple[Array, Array]:
        """Return for each block the length of its gradient at its last step, and the scale of that length."""

    def residual(self, state: Any) -> float:
        """Return the optimality residual: ‖gradient‖ relative to its parts, at the last step of each block."""
        lengths, scales = self.gradients_of(state)
        scale = float(np.linalg.norm(scales))
        return float(np.linalg.norm(lengths)) / scale if scale > 0.0 else float("inf")


def blocks_of(schedule: Array, etas: Array, n_blocks: int) -> Array:
    """Return a copy of the blocks of a schedule, and refuse other numbers."""
    return checked(schedule, etas, [(0, n_blocks)], 1, "blocks")[:, 0].copy()


@dataclass(frozen=True)
class CoordinateState:
    """A point, and the last gradient of each block (infinity, relative to 0, before that)."""

    point: Any
    lengths: Array
    scales: Array
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class CoordinateReference(CoordinateDescentEngine):
    """Steps along the gradient of one block, with a search and a retraction.

    A block of the gradient is `block_of` the Euclidean one, projected onto the tangent space. Its length is that of
    the manifold's `norm`. A `RowColumn` is already a tangent vector, as long as its column.

    Attributes
    ----------
    manifold : Manifold
        With blocks (`block_of`).
    cost : Cost
    retraction : Retraction
        With a `velocity`, unless steps are fixed.
    search : int
        `FIXED`, `FRACTION` or `EXACT` of `rmopt.kernels.row_column`.
    """

    manifold: Any
    cost: Cost
    retraction: Retraction
    search: int

    def load(self, point: Any) -> CoordinateState:
        d = self.manifold.n_blocks
        return CoordinateState(point, np.full(d, np.inf), np.zeros(d))

    # Overflow is reported once, by the length of the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: CoordinateState, schedule: Array, etas: Array) -> CoordinateState:
        point, lengths, scales = state.point, state.lengths.copy(), state.scales.copy()
        updates = state.updates
        blocks = blocks_of(schedule, etas, self.manifold.n_blocks).tolist()
        for step, (block, wanted) in enumerate(zip(blocks, etas, strict=True), state.steps):
            gradient = self._gradient(point, block)
            # For rows and columns that of the column.
            whole = isinstance(gradient, RowColumn)
            length = float(np.linalg.norm(gradient.column)) if whole else self.manifold.norm(point, gradient)
            if not np.isfinite(length):
                raise diverged(step, wanted)
            if isinstance(self.cost, BlockCost):
                scales[block] = self.cost.block_scale(point, block)
            elif not scales[block] > 0.0:
                scales[block] = max(length, np.finfo(float).tiny)
            lengths[block] = length
            eta = self._length(point, -gradient, wanted) if length > 0.0 else 0.0
            if eta > 0.0:
                point = self.retraction(self.manifold, point, -gradient, eta)
                if not all(np.isfinite(part).all() for part in arrays_of(point)):
                    raise diverged(step, wanted)
                if hasattr(self.cost, "proximal_step"):
                    point = self.cost.proximal_step(point, block, eta)
                updates += 1
        return CoordinateState(point, lengths, scales, state.steps + len(schedule), updates)

    def _gradient(self, point: Any, block: int) -> Any:
        if isinstance(self.cost, BlockCost):
            return self._tangent(point, self.cost.block_gradient(point, block))
        ambient = ambient_at(self.manifold, point, self.cost.gradient(point), self.cost)
        return self._tangent(point, self.manifold.block_of(ambient, block))

    def _tangent(self, point: Any, part: Any) -> Any:
        """Return a block of the gradient as a tangent vector, which rows and columns already are."""
        return part if isinstance(part, RowColumn) else self.manifold.projection(point, part)

    def _length(self, point: Any, direction: Any, wanted: float) -> float:
        """Return the length of the step, as `rmopt.kernels.row_column.step_length` does."""
        bound = self.retraction.reach(self.manifold, point, direction)
        if self.search == FIXED:
            return float(min(wanted, CLIP * bound))
        if self.search != EXACT and self.retraction.kernel == STRAIGHT and np.isfinite(bound):
            return float(wanted * bound)
        return self._minimiser(point, direction, wanted * bound)

    def _minimiser(self, point: Any, direction: Any, upper: float) -> float:
        """Return a minimiser of the cost along the curve, at most `upper`."""

        def slope(t: float) -> float:
            there = self.retraction(self.manifold, point, direction, t)
            velocity = self.retraction.velocity(self.manifold, point, direction, t)  # type: ignore[attr-defined]
            try:
                found = float(np.vdot(dense(self.cost.gradient(there)), velocity))
            except (np.linalg.LinAlgError, ValueError):
                found = np.nan
            # Too far: singular to machine precision, or beyond the largest number.
            return TOO_FAR if np.isnan(found) else min(found, TOO_FAR)

        if slope(0.0) >= 0.0:
            return 0.0
        low, high = 0.0, min(upper, 1.0)
        while slope(high) <= 0.0:
            if high == upper:
                return float(upper)
            low, high = high, min(4.0 * high, upper)
        tight = 4 * np.finfo(float).eps
        return float(min(brentq(slope, low, high, xtol=1e-300, rtol=tight, maxiter=2000) * BEYOND, upper))

    def gradients_of(self, state: CoordinateState) -> tuple[Array, Array]:
        return state.lengths, state.scales
