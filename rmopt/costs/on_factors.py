"""Any cost of matrices of low rank as a cost of their factors."""

from collections.abc import Callable
from typing import Any

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Factored, applied, dense, images
from rmopt.core.arguments import instance
from rmopt.core.cost import Cost
from rmopt.core.low_rank import LowRankPoint, PSDFactor, PSDPoint, point_of
from rmopt.core.product import LowRankFactors, Parts
from rmopt.linalg import factor_product


class OnFactors(Cost):
    """A cost f(W) as a function of factors: of Y with W = YYᴴ, or of A and B with W = ABᵀ.

    For `PSDFactors`, `FixedRankFactors` and `BoundedRank`. W is never formed. It has second derivatives if the cost
    has them.

    Parameters
    ----------
    cost : Cost
        A cost of points of `PSDFixedRank` or `FixedRankEmbedded`.

    References
    ----------
    Burer and Monteiro, A nonlinear programming algorithm for solving semidefinite programs via low-rank
    factorization, Mathematical Programming 95 (2003), https://doi.org/10.1007/s10107-002-0352-8.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import Parts
    >>> from rmopt.costs import BilinearSum, OnFactors, squared
    >>> cost = OnFactors(BilinearSum(np.eye(3), np.eye(3), squared, [1.0, 2.0, 5.0]))
    >>> factors = Parts([np.array([[1.0], [2.0], [3.0]]), np.ones((3, 1))])
    >>> round(cost.value(factors), 6)
    2.0
    """

    point_type = (PSDFactor, LowRankFactors)

    def __init__(self, cost: Cost) -> None:
        self.cost = instance("cost", cost, Cost, "a cost of matrices of low rank")
        if hasattr(cost, "shape"):
            self.shape = cost.shape
        if hasattr(cost, "hessian"):
            self.hessian = self._hessian

    def refuses(self, point_type: type) -> str | None:
        whole = PSDPoint if issubclass(point_type, PSDFactor) else LowRankPoint
        return super().refuses(point_type) or self.cost.refuses(whole)

    def value(self, point: Any) -> float:
        return self.cost.value(_matrix(point))

    def gradient(self, point: Any) -> Any:
        """Return the derivative by the factors: (∇f + ∇fᴴ) Y, or ∇f B̄ and ∇fᵀ Ā."""
        return _by_factors(point, self.cost.gradient(_matrix(point)))

    def value_and_gradient(self, point: Any) -> tuple[float, Any]:
        value, gradient = self.cost.value_and_gradient(_matrix(point))
        return value, _by_factors(point, gradient)

    def hessian_along(self, point: Any) -> Callable[[Any], Any]:
        """Return the second derivative by the factors, as a function of directions."""
        place = _matrix(point)
        gradient, along = self.cost.gradient(place), self.cost.hessian_along(place)

        def product(direction: Any) -> Any:
            is_one = ns.is_array(point)
            moved = direction if is_one else [dense(direction[i], part) for i, part in enumerate(point)]
            bent = _by_factors(point, along(_velocity(point, moved)))
            return bent + _by_factors(moved, gradient)

        return product

    def _hessian(self, point: Any, direction: Any) -> Any:
        return self.hessian_along(point)(direction)


def _matrix(point: Any) -> LowRankPoint | PSDPoint:
    """Return the matrix that the factors represent."""
    if ns.is_array(point):
        return point_of(point)
    A, B = point
    return LowRankPoint(*factor_product(A, ns.eye(A.shape[1], A), ns.conj(B)))


def _by_factors(point: Any, gradient: Ambient) -> Any:
    """Return the image of an ambient gradient under the derivative of the product, transposed."""
    if ns.is_array(point):
        image, adjoint_image = images(gradient, point, point)
        return image + adjoint_image
    A, B = map(ns.conj, point)
    return Parts([applied(gradient, B), applied(gradient.T, A)])


def _velocity(point: Any, moved: Any) -> Factored:
    """Return the velocity of the matrix for moving factors."""
    (A, B), (a, b) = ((part, ns.conj(part)) if ns.is_array(part) else part for part in (point, moved))
    concat = ns.namespace(A).concat
    return Factored(concat([a, A], axis=1), concat([B, b], axis=1))
