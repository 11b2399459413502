"""Convex functions of a positive semidefinite matrix W, evaluated at a factor Y of W = YYᵀ.

No array here has size p × p: a cost takes the p × d factor, and its gradient ∇f(W) is an operator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from rmopt.core.ambient import Actions, Ambient, Array, Factored, Sum, dense
from rmopt.core.arguments import number, optional, real_only
from rmopt.core.cost import Cost
from rmopt.core.low_rank import PSDFactor, PSDPoint
from rmopt.errors import InvalidInputError

# f at a mixture Σ cᵢ YᵢYᵢᵀ, and its derivatives with respect to the weights c.
Mixture = Callable[[Array], tuple[float, Array]]


class LocalModel(ABC):
    """The value and derivatives of f around W = YYᵀ.

    Attributes
    ----------
    factor : array, shape (p, d)
        Y.
    value : float
        f(YYᵀ).

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.
    """

    factor: Array
    value: float

    @abstractmethod
    def apply(self, V: Array) -> Array:
        """Return ∇f(W) V for a (p, j) array."""

    @abstractmethod
    def along(self, A: Array, B: Array) -> Ambient:
        """Return the derivative of ∇f at W along ABᵀ + BAᵀ, as an operator."""

    def factor_gradient(self) -> Array:
        """Return the gradient of Y ↦ f(YYᵀ): 2 ∇f(W) Y, shape (p, d)."""
        return 2.0 * self.apply(self.factor)

    def factor_hessian(self, D: Array) -> Array:
        """Return the derivative of the factor's gradient along D, shape (p, d)."""
        return 2.0 * (self.along(self.factor, D) @ self.factor + self.apply(D))


class ConvexCost(Cost):
    """A convex function f of W ⪰ 0, evaluated at factors Y of W = YYᵀ. Costs can be added.

    Attributes
    ----------
    shape : (int, int)
        The numbers of rows and columns of W, (p, p). A cost that fits all sizes, as `Trace` does, has no shape.
    lower_bound : float or None
        A number with f(W) ≥ lower_bound + trace_weight · tr W for every W ⪰ 0, the premise of a certificate of
        optimality: 0 for a loss that is never negative, and None if unknown, without certificates. Like convexity it
        cannot be verified: a value below it is refused, but the absence of one proves nothing.
    trace_weight : float
        The weight of tr W in that bound, added by `Trace`.
    smooth_slope : bool
        Whether second derivatives are continuous.

    See Also
    --------
    EmbeddedCost : less to write for a cost of embedded objects.
    rmopt.solvers.RankIncremental : minimises such costs to a certified minimum.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import ConvexCost, Trace
    >>> from problems.coembedding import MetricRegression
    >>> cost = MetricRegression(np.eye(3)) + Trace(0.5)
    >>> isinstance(cost, ConvexCost), cost.lower_bound, cost.trace_weight
    (True, 0.0, 0.5)
    >>> float(cost.value(np.eye(3))), cost.gradient(np.eye(3)).shape
    (1.5, (3, 3))
    """

    point_type = (PSDPoint, PSDFactor)

    shape: tuple[int, int]
    lower_bound: float | None = None
    trace_weight: float = 0.0
    smooth_slope: bool = True
    is_convex = True

    def __repr__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def at(self, Y: Array) -> LocalModel:
        """Return value and derivatives around YYᵀ for a factor of shape (p, d)."""

    @abstractmethod
    def mixture(self, factors: Sequence[Array]) -> Mixture:
        """Return the function of weights c ↦ (f(Σ cᵢ YᵢYᵢᵀ), its gradient) for factors Yᵢ."""

    def value(self, point: Any) -> float:
        return self.at(_factor(point)).value

    def value_and_gradient(self, point: Any) -> tuple[float, Any]:
        """Return f and ∇f at a point, as an operator, or at a factor Y the gradient of Y ↦ f(YYᵀ) as an array."""
        Y = _factor(point)
        local = self.at(Y)
        if isinstance(point, np.ndarray):
            return local.value, local.factor_gradient()
        return local.value, Actions((len(Y), len(Y)), local.apply, local.apply)

    def hessian(self, point: Any, direction: Any) -> Any:
        """Return the derivative of ∇f along the symmetric part of an ambient direction, best given by factors.

        At a factor Y it is the derivative of the gradient there.
        """
        return self.hessian_along(point)(direction)

    def hessian_along(self, point: Any) -> Callable[[Any], Any]:
        Y = _factor(point)
        local = self.at(Y)
        if isinstance(point, np.ndarray):
            return local.factor_hessian

        def along(direction: Any) -> Ambient:
            if not isinstance(direction, Factored):
                direction = Factored(dense(direction), np.eye(len(Y)))
            return local.along(0.5 * direction.left, direction.right)

        return along

    def preconditioner_at(self, point: Any) -> Callable[[Any], Any] | None:
        """Return the preconditioner of factors, if the cost has a method ``preconditioner(Y, floor=0.0)``."""
        if isinstance(point, np.ndarray) and hasattr(self, "preconditioner"):
            return self.preconditioner(point)
        return super().preconditioner_at(point)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, ConvexCost):
            return super().__add__(other)
        return SumOfCosts(*_parts(self), *_parts(other))


def _factor(point: Any) -> Array:
    """Return Y with W = YYᵀ, which a point of factors is itself."""
    return real_only("a convex cost of W = YYᵀ", point if isinstance(point, np.ndarray) else point.factor())


def _parts(cost: ConvexCost) -> tuple[ConvexCost, ...]:
    return cost.parts if isinstance(cost, SumOfCosts) else (cost,)


class SumOfCosts(ConvexCost):
    """The sum of convex costs, made by ``+``.

    Parameters
    ----------
    *parts : ConvexCost
        Costs of matrices of one size. A `Trace` fits all sizes.

    Raises
    ------
    InvalidInputError
        If the parts are of matrices of different sizes.
    """

    def __init__(self, *parts: ConvexCost) -> None:
        shapes = {part.shape for part in parts if hasattr(part, "shape")}
        if len(shapes) != 1:
            raise InvalidInputError(
                "a sum of costs needs a loss with a size, and all of one size; got "
                f"{', '.join(str(shape) for shape in sorted(shapes)) or 'only Trace'}."
            )
        self.parts = parts
        self.shape = shapes.pop()
        bounds = [optional(number)(f"lower_bound of {part}", part.lower_bound) for part in parts]
        self.lower_bound = None if None in bounds else float(sum(bounds))
        self.trace_weight = sum(part.trace_weight for part in parts)
        self.smooth_slope = all(part.smooth_slope for part in parts)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))

    def at(self, Y: Array) -> LocalModel:
        return _SumModel(Y, [part.at(Y) for part in self.parts])

    def mixture(self, factors: Sequence[Array]) -> Mixture:
        functions = [part.mixture(factors) for part in self.parts]

        def total(weights: Array) -> tuple[float, Array]:
            values, slopes = zip(*(function(weights) for function in functions), strict=True)
            return float(sum(values)), np.sum(slopes, axis=0)

        return total

    def preconditioner(self, Y: Array, floor: float = 0.0) -> Callable[[Array], Array] | None:
        """Return the preconditioner of the first part that has one.

        Parameters
        ----------
        Y : array, shape (p, d)
        floor : float
            Curvature that other parts of the cost add in every direction.
        """
        known: Any = next((part for part in self.parts if hasattr(part, "preconditioner")), None)
        return None if known is None else known.preconditioner(Y, floor + 2.0 * self.trace_weight)


class _SumModel(LocalModel):
    def __init__(self, Y: Array, parts: list[LocalModel]) -> None:
        self.factor, self.parts = Y, parts
        self.value = float(sum(part.value for part in parts))

    def apply(self, V: Array) -> Array:
        return reduce(add, (part.apply(V) for part in self.parts))

    def along(self, A: Array, B: Array) -> Ambient:
        return Sum(*(part.along(A, B) for part in self.parts))

    def factor_gradient(self) -> Array:
        return reduce(add, (part.factor_gradient() for part in self.parts))

    def factor_hessian(self, D: Array) -> Array:
        return reduce(add, (part.factor_hessian(D) for part in self.parts))


class Trace(ConvexCost):
    """The trace norm β tr W = β ‖Y‖² of a positive semidefinite matrix of any size.

    Parameters
    ----------
    beta : float
        Positive.

    Raises
    ------
    InvalidInputError
        If β is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import Trace
    >>> Trace(2.0).value(np.eye(3)), Trace(2.0).gradient(np.eye(2)).tolist()
    (6.0, [[4.0, 0.0], [0.0, 4.0]])
    """

    lower_bound = 0.0

    def __init__(self, beta: float) -> None:
        self.beta = self.trace_weight = number("beta", beta, above=0)

    def __repr__(self) -> str:
        return f"Trace({self.beta:g})"

    def at(self, Y: Array) -> LocalModel:
        return _TraceModel(Y, self.beta)

    def mixture(self, factors: Sequence[Array]) -> Mixture:
        slopes = self.beta * np.array([np.vdot(Y, Y) for Y in factors])
        return lambda weights: (float(slopes @ weights), slopes)


class _TraceModel(LocalModel):
    def __init__(self, Y: Array, beta: float) -> None:
        self.factor, self.beta = Y, beta
        self.value = beta * float(np.vdot(Y, Y))

    def apply(self, V: Array) -> Array:
        return self.beta * V

    def along(self, A: Array, B: Array) -> Ambient:
        n = len(self.factor)
        return Actions((n, n), np.zeros_like, np.zeros_like)
