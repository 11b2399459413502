"""Sums of squared residuals, with the Gauss-Newton curvature, for Levenberg–Marquardt."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array
from rmopt.core.arguments import shown
from rmopt.core.cost import Cost
from rmopt.core.points import arrays_of
from rmopt.core.product import BlockDiagonal, Parts, matrix_shape
from rmopt.costs.automatic import AutomaticCost
from rmopt.costs.backends import AUTOGRAD, JAX, TORCH, Backend
from rmopt.costs.point_forms import ambient_shape
from rmopt.errors import InvalidInputError

__all__ = ["AutomaticResiduals", "ResidualSum", "autograd_residuals", "jax_residuals", "torch_residuals"]

Linear = tuple[Callable[[Ambient], Array], Callable[[Array], Ambient]]


class ResidualSum(Cost):
    """½ ‖r(x)‖² for some residuals r.

    References
    ----------
    Moré, The Levenberg–Marquardt algorithm: implementation and theory, in: Numerical Analysis, Lecture Notes in
    Mathematics 630, Springer (1978), https://doi.org/10.1007/BFb0067700.
    """

    @abstractmethod
    def residuals(self, point: Any) -> Array:
        """Return the residuals at a point, shape (N,)."""

    @abstractmethod
    def linearised(self, point: Any) -> Linear:
        """Return the derivative J of the residuals at a point, and its transpose.

        J maps an ambient direction to an array of shape (N,), and its transpose maps back to an ambient gradient.
        """

    def value(self, point: Any) -> float:
        residuals = residuals_at(self, point)
        return 0.5 * float(residuals @ residuals)

    def gradient(self, point: Any) -> Ambient:
        return self.linearised(point)[1](residuals_at(self, point))


def residuals_at(cost: ResidualSum, point: Any) -> Array:
    """Return the residuals at a point, and refuse anything but a vector of real numbers."""
    found = cost.residuals(point)
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"the residuals of {cost._name} are {shown(found)}; return an array of real numbers of shape (N,)."
        )
    return found


class AutomaticResiduals(ResidualSum):
    """½ ‖r(x)‖² for a function r with automatic derivatives, or one constraint for each of its numbers.

    Parameters
    ----------
    function : callable
        It takes the same arguments as in `AutomaticCost`, and returns the residuals as an array of any shape.
    backend : Backend
        The library that differentiates it: `AUTOGRAD`, `JAX` or `TORCH` of `rmopt.costs.backends`.

    Raises
    ------
    InvalidInputError
        If it is not a function of arrays, or returns numbers that are not finite.
    """

    point_type = AutomaticCost.point_type

    def __init__(self, function: Callable[..., Any], backend: Backend = AUTOGRAD) -> None:
        # This checks the function, and whether it fits the points.
        self._alone = AutomaticCost(function, backend)
        self.__doc__ = function.__doc__

        def weighted(point: Any, weights: Any) -> Any:
            found = function(*point) if isinstance(point, tuple) else function(point)
            flat = found.reshape(-1)
            if flat.shape[0] != weights.shape[0]:
                raise InvalidInputError(
                    f"{self._name} depends on more than A Bᵀ: it returned {weights.shape[0]} and {flat.shape[0]} "
                    "residuals for two pairs of factors of one matrix. Use A and B only in products such as A @ B.T."
                )
            return (flat * weights).sum()

        weighted.__name__ = getattr(function, "__name__", "function")
        # As a function of weights w and of the point, wᵀr has the second derivatives [[·, Jᵀ], [J, 0]].
        self._weighted = AutomaticCost(weighted, backend)

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's value."""
        return self.function(*arguments)

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        return self._alone.function

    @property
    def _name(self) -> str:
        return self._alone._name

    def refuses(self, point_type: type) -> str | None:
        return self._alone.refuses(point_type)

    def residuals(self, point: Any) -> Array:
        given = self._alone.evaluated(point)
        found = np.asarray(given)
        if not hasattr(given, "reshape") or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            raise InvalidInputError(
                f"{self._name} returned {shown(given)}; return finite real residuals by {self._alone.backend.name}."
            )
        return found.astype(float).ravel()

    def gradient(self, point: Any) -> Ambient:
        return self.value_and_gradient(point)[1]

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        """Return the cost and its gradient Jᵀr."""
        residuals = self.residuals(point)
        weights = ns.asarray(residuals, arrays_of(point)[0])
        _, (gradient, _) = self._weighted.value_and_gradient(Parts([point, weights]))
        return 0.5 * float(residuals @ residuals), gradient

    def linearised(self, point: Any) -> Linear:
        size, like = len(self.residuals(point)), arrays_of(point)[0]
        along = self._weighted.hessian_along(Parts([point, ns.asarray(np.zeros(size), like)]))
        shapes = [matrix_shape(ambient_shape(point)), (size, 1)]
        return (
            lambda direction: ns.to_numpy(along(BlockDiagonal(shapes, {0: direction}))[1]),
            lambda weights: along(BlockDiagonal(shapes, {1: ns.asarray(weights, like)}))[0],
        )


def autograd_residuals(function: Callable[..., Any]) -> AutomaticResiduals:
    """Turn a function with several values, written with ``autograd.numpy``, into residuals or constraints.

    Parameters
    ----------
    function : callable
        It takes the same arguments as in `autograd_cost`, and returns an array.

    Returns
    -------
    AutomaticResiduals

    Raises
    ------
    InvalidInputError
        If it is not a function of arrays.
    MissingCapabilityError
        If autograd is not installed.

    Examples
    --------
    The best unit vector without negative entries:

    >>> import numpy as np
    >>> from rmopt import autograd_cost, autograd_residuals
    >>> from rmopt.costs import ConstrainedProblem
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import AugmentedLagrangian
    >>> A = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 3.0]])
    >>> cost, signs = autograd_cost(lambda x: -x @ A @ x), autograd_residuals(lambda x: -x)
    >>> problem = ConstrainedProblem(Sphere(3), cost, inequalities=[signs])
    >>> AugmentedLagrangian().run(problem, random_state=0).point.round(4) + 0.0
    array([0., 0., 1.])
    """
    return AutomaticResiduals(function, AUTOGRAD)


def jax_residuals(function: Callable[..., Any]) -> AutomaticResiduals:
    """Turn a function written with ``jax.numpy`` into residuals, with the conventions of `rmopt.costs.jax_cost`.

    Parameters
    ----------
    function : callable
        As in `autograd_residuals`.

    Raises
    ------
    MissingCapabilityError
        If JAX is not installed.
    """
    return AutomaticResiduals(function, JAX)


def torch_residuals(function: Callable[..., Any]) -> AutomaticResiduals:
    """Turn a function of PyTorch tensors into residuals, with the conventions of `rmopt.costs.torch_cost`.

    Parameters
    ----------
    function : callable
        As in `autograd_residuals`.

    Raises
    ------
    MissingCapabilityError
        If PyTorch is not installed.
    """
    return AutomaticResiduals(function, TORCH)
