"""Costs that add and scale: ``cost + 0.1 * other``."""

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from rmopt.core.ambient import Ambient, Sum
from rmopt.core.cost import Cost, FiniteSum, HasHessianAction, HasPreconditioner, HasProximalStep
from rmopt.core.product import Parts
from rmopt.errors import InvalidInputError


class Combined(Cost):
    """A weighted sum of costs of the same points, made by ``+`` and ``*``.

    It has second derivatives when all its parts have them, the preconditioner of the first part that has one, and
    the proximal steps of all parts, one after the other.

    Parameters
    ----------
    parts : sequence of (float, Cost)
        Weights and costs.
    """

    def __init__(self, parts: Sequence[tuple[float, Cost]]) -> None:
        self.parts = tuple(parts)
        costs = [cost for _, cost in self.parts]
        shapes = [tuple(cost.shape) for cost in costs if hasattr(cost, "shape")]
        if len(set(shapes)) > 1:
            raise InvalidInputError(
                f"costs of matrices of shapes {shapes} do not add; give all of one shape."
            )
        if shapes:
            self.shape = shapes[0]
        if all(isinstance(cost, HasHessianAction) for cost in costs):
            self.hessian = lambda point, direction: self.hessian_along(point)(direction)
        known = [(weight, cost) for weight, cost in self.parts if isinstance(cost, HasPreconditioner)]
        if known and known[0][0] > 0.0:
            weight, first = known[0]
            self.precondition = lambda point, tangent: first.precondition(point, tangent) * (1.0 / weight)
        if any(isinstance(cost, HasProximalStep) for cost in costs):
            self.proximal_step = self._proximal_steps

    def __reduce__(self) -> Any:
        # Made anew: some of its methods are made with it.
        return type(self), (self.parts,)

    def __getstate__(self) -> dict[str, Any]:
        # By which checkpoints tell sums apart.
        weights, costs = zip(*self.parts, strict=True)
        return {"weights": ", ".join(map(str, weights)), "costs": costs}

    def __repr__(self) -> str:
        names = [text if (text := repr(cost))[:1] != "<" else type(cost).__name__ for _, cost in self.parts]
        weights = ["" if weight == 1.0 else f"{weight:g} * " for weight, _ in self.parts]
        return " + ".join(weight + name for weight, name in zip(weights, names, strict=True))

    def refuses(self, point_type: type) -> str | None:
        reasons = (cost.refuses(point_type) for _, cost in self.parts)
        return next((reason for reason in reasons if reason is not None), None)

    def _proximal_steps(self, point: Any, block: int, step: float) -> Any:
        for weight, cost in self.parts:
            if isinstance(cost, HasProximalStep):
                point = cost.proximal_step(point, block, weight * step)
        return point

    def value(self, point: Any) -> float:
        return float(sum(weight * cost.value(point) for weight, cost in self.parts))

    def gradient(self, point: Any) -> Ambient:
        return total([(weight, cost.gradient(point)) for weight, cost in self.parts])

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        found = [(weight, *cost.value_and_gradient(point)) for weight, cost in self.parts]
        value = float(sum(weight * value for weight, value, _ in found))
        return value, total([(weight, gradient) for weight, _, gradient in found])

    def hessian_along(self, point: Any) -> Callable[[Ambient], Ambient]:
        parts = [(weight, cost.hessian_along(point)) for weight, cost in self.parts]
        return lambda direction: total([(weight, along(direction)) for weight, along in parts])


class CombinedSum(Combined, FiniteSum):
    """A weighted sum, of which the first finite sum gives the terms; the other costs are spread evenly over them."""

    def __init__(self, parts: Sequence[tuple[float, Cost]]) -> None:
        super().__init__(parts)
        self.terms, self._sum = next(
            (i, cost) for i, (_, cost) in enumerate(self.parts) if _is_enumerated(cost)
        )
        self.term_width = self._sum.term_width

    @property
    def n_terms(self) -> int | None:
        return self._sum.n_terms

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        return self._sum.term_ranges

    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        share = len(terms) // self.term_width / self.n_terms  # type: ignore[operator]
        return total(
            [
                (weight, self._sum.term_gradient(point, terms))
                if i == self.terms
                else (weight * share, cost.gradient(point))
                for i, (weight, cost) in enumerate(self.parts)
            ]
        )


def combined(parts: Sequence[tuple[float, Cost]]) -> Combined:
    """Return a weighted sum of costs, as a finite sum where one of them is one."""
    flat: list[tuple[float, Cost]] = []
    for weight, cost in parts:
        flat += [(weight * w, c) for w, c in cost.parts] if isinstance(cost, Combined) else [(weight, cost)]
    return (CombinedSum if any(_is_enumerated(cost) for _, cost in flat) else Combined)(flat)


def _is_enumerated(cost: Cost) -> TypeGuard[FiniteSum]:
    return isinstance(cost, FiniteSum) and cost.n_terms is not None


def total(parts: Sequence[tuple[float, Any]]) -> Any:
    """Return a weighted sum of gradients: arrays, operators, or one for each part of a product."""
    if any(isinstance(gradient, Parts | list | tuple) for _, gradient in parts):
        columns = zip(*(gradient for _, gradient in parts), strict=True)
        weights = [weight for weight, _ in parts]
        return Parts([total([*zip(weights, column, strict=True)]) for column in columns])
    scaled = [gradient if weight == 1.0 else gradient * weight for weight, gradient in parts]
    if all(isinstance(gradient, np.ndarray) for gradient in scaled):
        return sum(scaled[1:], start=scaled[0])
    return Sum(*scaled)
