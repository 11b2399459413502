"""Costs by automatic differentiation of a function of the factors of W = A Bᵀ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core.ambient import Actions, Array, Factored
from rmopt.core.cost import Cost
from rmopt.core.errors import InvalidInputError
from rmopt.core.low_rank import LowRankPoint


class AutogradCost(Cost):
    """A cost f(A, B) that depends on A Bᵀ alone, with exact gradient and Hessian actions.

    The action G @ X of the gradient G at W = A Bᵀ is the derivative of f([A E], [B X]) with respect to
    E at E = 0, since that is a function of A Bᵀ + E Xᵀ. Nothing is divided by singular values or their
    gaps, so tied singular values are no special case.

    Parameters
    ----------
    function : callable
        Maps A (n, j) and B (m, j), for any j, to a number; written with ``autograd.numpy``.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self._probed = False

    def __call__(self, A: Array, B: Array) -> float:
        """Return f(A, B)."""
        return float(self.function(A, B))

    def value(self, point: LowRankPoint) -> float:
        """Return f at the factors of a point.

        Raises
        ------
        InvalidInputError
            When f is not a number, or depends on more than A Bᵀ.
        """
        A, B = _factors(point)
        value = self.function(A, B)
        if np.ndim(value) != 0:
            raise InvalidInputError(
                f"the cost {self._name} returned an array of shape {np.shape(value)}; sum it to one number."
            )
        if not self._probed:
            self._probe(A, B, float(value))
        return float(value)

    def gradient(self, point: LowRankPoint) -> Actions:
        """Return the Euclidean gradient as an operator (see the class)."""
        from autograd import grad

        A, B = _factors(point)
        f = self.function

        def apply(X: Array) -> Array:
            return grad(lambda E: f(_beside(A, E), _beside(B, X)))(np.zeros((A.shape[0], X.shape[1])))

        def apply_transposed(X: Array) -> Array:
            return grad(lambda E: f(_beside(A, X), _beside(B, E)))(np.zeros((B.shape[0], X.shape[1])))

        return Actions((A.shape[0], B.shape[0]), apply, apply_transposed)

    def hessian(self, point: LowRankPoint, direction: Factored) -> Actions:
        """Return the derivative of the gradient along a direction L Rᵀ, as an operator.

        Its action on X is the derivative by E of the derivative by t of f([A tL E], [B R X]), both at 0.
        """
        from autograd import grad

        A, B = _factors(point)
        L, R = direction.left, direction.right
        f = self.function

        def apply(X: Array) -> Array:
            def slope(E: Any) -> Any:
                return grad(lambda t: f(_beside(A, t * L, E), _beside(B, R, X)))(0.0)

            return grad(slope)(np.zeros((A.shape[0], X.shape[1])))

        def apply_transposed(X: Array) -> Array:
            def slope(E: Any) -> Any:
                return grad(lambda t: f(_beside(A, t * L, X), _beside(B, R, E)))(0.0)

            return grad(slope)(np.zeros((B.shape[0], X.shape[1])))

        return Actions((A.shape[0], B.shape[0]), apply, apply_transposed)

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", "function")

    def _probe(self, A: Array, B: Array, value: float) -> None:
        """Compare f with another pair of factors of the same product, once."""
        if not np.isfinite(value):
            raise InvalidInputError(f"the cost {self._name} is {value} at the first point; start elsewhere.")
        k = A.shape[1]
        M = np.eye(k) + 0.5 * np.random.default_rng(0).uniform(size=(k, k)) / k
        other = float(self.function(A @ M, np.linalg.solve(M, B.T).T))
        if abs(other - value) > 1e-6 * max(1.0, abs(value)):
            raise InvalidInputError(
                f"the cost {self._name} depends on more than A Bᵀ: {value:.6g} and {other:.6g} for two pairs of "
                "factors of one matrix. Use A and B only in products such as A @ B.T or sum(A[i] * B[j])."
            )
        self._probed = True


def autograd_cost(function: Callable[[Any, Any], Any]) -> AutogradCost:
    """Turn a function of the factors A and B of W = A Bᵀ into a cost (see `AutogradCost`)."""
    return AutogradCost(function)


def _factors(point: LowRankPoint) -> tuple[Array, Array]:
    return point.U @ point.S, point.V


def _beside(*blocks: Any) -> Any:
    from autograd.numpy import concatenate

    return concatenate(blocks, axis=1)
