"""Costs by automatic differentiation: of the factors of W = A Bᵀ, or of a point that is an array."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt.core.ambient import Actions, Array, Factored, dense
from rmopt.core.cost import Cost
from rmopt.core.errors import InvalidInputError
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.psd import PSDPoint

__all__ = ["AutogradArrayCost", "AutogradCost", "autograd_cost"]


class _Automatic(Cost):
    """A cost that is a function written with ``autograd.numpy``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Array) -> float:
        """Return the function's value, checked to be a number."""
        return _number(self.function(*arguments), self._name)

    @property
    def _name(self) -> str:
        return f"the cost {_name_of(self.function)}"

    def _fitting(self, point: Any) -> Any:
        reason = self.refuses(type(point))
        if reason is not None:
            raise InvalidInputError(reason)
        return point


class AutogradCost(_Automatic):
    """A cost f(A, B) that depends on A Bᵀ alone, with exact gradient and Hessian actions.

    The action G @ X of the gradient G at W = A Bᵀ is the derivative of f([A E], [B X]) with respect to
    E at E = 0, since that is a function of A Bᵀ + E Xᵀ. Nothing is divided by singular values or their
    gaps, so tied singular values are no special case.

    Parameters
    ----------
    function : callable
        Maps A (n, j) and B (m, j), for any j, to a number; written with ``autograd.numpy``.

    Raises
    ------
    InvalidInputError
        From `value`, `gradient` and `hessian`, when the function returns no finite number at the first point or
        depends on more than A Bᵀ.
    """

    point_type = (LowRankPoint, PSDPoint)
    remedy = "write a function of the point alone, instead of the factors A and B"
    _probed = False

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_probed"}

    def value(self, point: LowRankPoint | PSDPoint) -> float:
        return self(*self._factors(point))

    def gradient(self, point: LowRankPoint | PSDPoint) -> Actions:
        A, B = self._factors(point)
        return _derivative(A, B, lambda left, right: self.function(_beside(A, left), _beside(B, right)))

    def hessian(self, point: LowRankPoint | PSDPoint, direction: Factored) -> Actions:
        """Return the derivative of the gradient along a direction L Rᵀ, as an operator.

        Its action on X is the derivative by E of the derivative by t of f([A tL E], [B R X]), both at 0.
        """
        from autograd import grad

        A, B = self._factors(point)
        L, R = direction.left, direction.right

        def along(left: Any, right: Any) -> Any:
            return grad(lambda t: self.function(_beside(A, t * L, left), _beside(B, R, right)) + 0.0 * t)(0.0)

        return _derivative(A, B, along)

    def _factors(self, point: LowRankPoint | PSDPoint) -> tuple[Array, Array]:
        W = self._fitting(point).as_ambient()
        A, B = W.left, W.right
        if not self._probed:
            self._probe(A, B)
            self._probed = True
        return A, B

    def _probe(self, A: Array, B: Array) -> None:
        """Compare f with a wider pair of factors of the same product, once."""
        value = self(A, B)
        if not np.isfinite(value):
            raise InvalidInputError(f"{self._name} is {value} at the first point; start elsewhere.")
        k = A.shape[1]
        M = np.eye(k) + 0.5 * np.random.default_rng(0).uniform(size=(k, k)) / k
        others = (
            self(_beside(A @ M, _column(A, 0.0)), _beside(np.linalg.solve(M, B.T).T, _column(B, 1.0))),
            self(_beside(A, _column(A, 1.0)), _beside(B, _column(B, 0.0))),
        )
        # A value near 0 may be a difference of large ones; a multiple of W shows their scale.
        with np.errstate(all="ignore"):
            elsewhere = self(1.5 * A, B)
        scale = max(abs(number) for number in (value, elsewhere) if np.isfinite(number))
        for other in others:
            if not abs(other - value) <= 1e-6 * scale:
                raise InvalidInputError(
                    f"{self._name} depends on more than A Bᵀ: {value:.6g} and {other:.6g} for two pairs "
                    "of factors of one matrix. Use A and B only in products such as A @ B.T or "
                    "sum(A[i] * B[j])."
                )


class AutogradArrayCost(_Automatic):
    """A cost f(X) of a point that is an array, as on `Grassmann`, `PositiveDefinite` and `Euclidean`.

    Parameters
    ----------
    function : callable
        Maps an array to a number; written with ``autograd.numpy``.

    Raises
    ------
    InvalidInputError
        From `value`, `gradient` and `hessian`, when the point is no array or f returns no number.
    """

    point_type = np.ndarray
    remedy = "on matrices of one rank write a function of A and B with W = A Bᵀ"

    def value(self, point: Array) -> float:
        return self(self._fitting(point))

    def gradient(self, point: Array) -> Array:
        from autograd import grad

        self.value(point)
        return np.asarray(grad(self._tied)(point))

    def hessian(self, point: Array, direction: Any) -> Array:
        """Return the derivative of the gradient along a direction."""
        from autograd import grad
        from autograd import numpy as anp

        self.value(point)
        along = dense(direction)
        return np.asarray(grad(lambda X: anp.sum(grad(self._tied)(X) * along) + _nothing_of(X))(point))

    def _tied(self, X: Any) -> Any:
        return self.function(X) + _nothing_of(X)


def autograd_cost(function: Callable[..., Any]) -> AutogradCost | AutogradArrayCost:
    """Turn a function into a cost whose derivatives are automatic.

    Parameters
    ----------
    function : callable
        Of the two factors A and B of W = A Bᵀ, on matrices of one rank (see `AutogradCost`); or of the point alone,
        where points are arrays (see `AutogradArrayCost`). Written with ``autograd.numpy``.

    Returns
    -------
    AutogradCost or AutogradArrayCost
        By the number of the function's parameters.

    Raises
    ------
    InvalidInputError
        For what is no function of one or two arrays.
    """
    wanted = "autograd_cost needs a function of the factors A and B, or of a point that is an array"
    if not callable(function):
        raise InvalidInputError(f"{wanted}, got {function!r}.")
    count = _required_arguments(function)
    if count not in (1, 2):
        takes = "does not say how many arguments it takes" if count is None else f"takes {count} arguments"
        raise InvalidInputError(f"{wanted}; {_name_of(function)} {takes}.")
    return AutogradArrayCost(function) if count == 1 else AutogradCost(function)


def _required_arguments(function: Callable[..., Any]) -> int | None:
    """Return how many arguments a function must be given; None where it takes any number, or does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return None
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return None
    return sum(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in parameters)


def _nothing_of(X: Any) -> Any:
    """Return 0, tied to X twice: autograd warns about results and derivatives that do not depend on it."""
    from autograd import numpy as anp

    return 0.0 * anp.ravel(X)[0] ** 2


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", "function")


def _number(value: Any, name: str) -> float:
    if np.ndim(value) != 0:
        raise InvalidInputError(f"{name} returned an array of shape {np.shape(value)}; sum it to one number.")
    if not np.isrealobj(value) or np.asarray(value).dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} returned {value!r}; it must return a real number.")
    return float(value)


def _derivative(A: Array, B: Array, function: Callable[[Any, Any], Any]) -> Actions:
    """Return the operator of which each action is the slope at 0 of f(E, X), by the block E that is not given."""

    def apply(X: Array) -> Array:
        return _slope_at_zero(lambda E: function(E, X), A, X)

    def apply_transposed(X: Array) -> Array:
        return _slope_at_zero(lambda E: function(X, E), B, X)

    return Actions((A.shape[0], B.shape[0]), apply, apply_transposed)


def _slope_at_zero(function: Callable[[Any], Any], beside: Array, X: Array) -> Array:
    """Return the gradient at 0 of a function of a block of as many rows as `beside` and columns as X."""
    from autograd import grad

    # The zero term ties the result to the block: autograd warns about results that do not depend on it.
    return grad(lambda block: function(block) + 0.0 * block[0, 0])(np.zeros((beside.shape[0], X.shape[1])))


def _column(beside: Array, value: float) -> Array:
    return np.full((beside.shape[0], 1), value)


def _beside(*blocks: Any) -> Any:
    from autograd.numpy import concatenate

    return concatenate(blocks, axis=1)
