"""The abstract retraction: how to move from a point along a tangent vector and stay on the manifold."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from rmopt.core.values import Value
from rmopt.errors import InvalidInputError


class Retraction(Value, ABC):
    """A map R(point, ξ) onto the manifold with R(0) = point and derivative ξ at 0.

    Retractions are values: two of the same class and parameters are equal. `Manifold.retractions` lists those made
    for a manifold. Others are tested before use. Along vectors that are longer than the manifold's scale by many
    powers of ten, numbers overflow, and the result may hold NaN or be off the manifold.

    Attributes
    ----------
    order : int
        1, or 2 if the curve t ↦ R(point, tξ) has no tangential acceleration at t = 0. `rmopt.checks.check_retraction`
        measures it as a slope.
    kernel : int or None
        Code of the compiled version in `rmopt.kernels`, or None if there is only the generic path.
    name : str
        The name on the command line.
    point_type : type
        `Parts` if it moves points of products as a whole. Others are applied to each factor.

    References
    ----------
    Absil and Malick, Projection-like retractions on matrix manifolds, SIAM J. Optim. 22 (2012),
    https://doi.org/10.1137/100802529.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import Retraction
    >>> from rmopt.manifolds import Sphere
    >>> class ThroughNorm(Retraction):
    ...     order, name = 2, "through-norm"
    ...
    ...     def __call__(self, manifold, point, tangent, t=1.0):
    ...         moved = point + t * tangent
    ...         return moved / np.linalg.norm(moved)
    >>> x, y, z = np.eye(3)
    >>> Sphere(3).using(ThroughNorm()).retraction(x, y).round(3).tolist()
    [0.707, 0.707, 0.0]
    """

    order: ClassVar[int]
    name: ClassVar[str]
    kernel: ClassVar[int | None] = None
    point_type: ClassVar[type] = object

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("order", "name"):
                raise InvalidInputError(
                    f'{self} has no {name}; write `order, name = 1, "mine"` into its class.'
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @abstractmethod
    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        """Return the point reached from `point` along t · `tangent`."""

    def reach(self, manifold: Any, point: Any, tangent: Any) -> float:
        """Return the longest step that stays clear of the boundary, or infinity if unknown."""
        return float("inf")


def by_name(*retractions: Retraction) -> dict[str, Retraction]:
    """Return retractions by their names."""
    return {retraction.name: retraction for retraction in retractions}
