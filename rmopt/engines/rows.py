"""Steps of AdaGrad on matrices that touch only the rows where a gradient is not zero."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.engines.base import Engine, checked, diverged
from rmopt.errors import InvalidInputError


@dataclass(frozen=True)
class RowState:
    """A matrix, the sums of the squares of its gradients, and counters."""

    matrix: Array
    squares: Array
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class RowAdaGrad(Engine):
    """AdaGrad in a flat space, for a cost with `row_gradient`: a step costs what its rows cost."""

    cost: Any
    batch_size: int
    eps: float

    def load(self, point: Array) -> RowState:
        return RowState(point.copy(), np.full(point.shape, self.eps))

    # Overflow is reported once, by the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: RowState, schedule: Array, etas: Array) -> RowState:
        schedule = checked(schedule, etas, self.cost.term_ranges, self.batch_size)
        matrix, squares, updates = state.matrix, state.squares, state.updates
        for number, (terms, eta) in enumerate(zip(schedule, etas, strict=True)):
            rows, gradient = self.cost.row_gradient(matrix, terms)
            _hold_rows(rows, gradient, matrix)
            if not np.isfinite(gradient).all():
                raise diverged(state.steps + number, eta)
            if gradient.any():
                of_rows = squares[rows] + gradient * gradient
                squares[rows] = of_rows
                matrix[rows] -= eta * (gradient / np.sqrt(of_rows))
                updates += 1
        return replace(state, steps=state.steps + len(schedule), updates=updates)

    def dump(self, state: RowState) -> Array:
        return state.matrix.copy()

    def moved(self, state: RowState, point: Array) -> RowState:
        return replace(state, matrix=point.copy())


def _hold_rows(rows: Array, gradient: Array, matrix: Array) -> None:
    """Refuse rows that come twice, of which one would be lost, and gradients of other rows."""
    # Most are in order, and that is soon seen.
    different = len(rows) if np.less(rows[:-1], rows[1:]).all() else len(np.unique(rows))
    if different < len(rows) or gradient.shape != (len(rows), matrix.shape[1]):
        raise InvalidInputError(
            f"row_gradient must return row numbers, each once, and a gradient of {matrix.shape[1]} columns; got "
            f"{len(rows)} numbers, {different} of them different, and a gradient of shape {gradient.shape}."
        )
