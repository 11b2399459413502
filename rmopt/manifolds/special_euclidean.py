"""Rigid motions."""

from typing import Any

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer
from rmopt.core.product import Parts
from rmopt.errors import InvalidInputError
from rmopt.manifolds.euclidean import Euclidean
from rmopt.manifolds.product import Product
from rmopt.manifolds.stiefel import SpecialOrthogonal


class SpecialEuclidean(Product):
    """The rigid motions x ↦ R x + t of ℝⁿ, or k of them: the `Product` of rotations R and translations t.

    The metric is that of the product, which is left-invariant.

    Parameters
    ----------
    n : int
    k : int
        The number of motions: if more than 1, a point holds k × n × n and k × n arrays.

    See Also
    --------
    SpecialOrthogonal : rotations alone.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import SpecialEuclidean
    >>> motions = SpecialEuclidean(3)
    >>> a = motions.random_point(0)
    >>> bool(
    ...     np.allclose(
    ...         motions.to_matrix(motions.compose(a, motions.inverse(a))), np.eye(4)
    ...     )
    ... )
    True
    """

    def __init__(self, n: int, k: int = 1) -> None:
        self.n, self.k = integer("n", n, 2), integer("k", k, 1)
        shifts = Euclidean(n) if k == 1 else Euclidean(k, n)
        super().__init__([SpecialOrthogonal(self.n, self.k), shifts])

    def __repr__(self) -> str:
        return f"SpecialEuclidean({self.n}{f', k={self.k}' if self.k > 1 else ''})"

    def to_matrix(self, point: Parts) -> Array:
        """Return the matrices [[R, t], [0, 1]], of n + 1 rows."""
        R, t = point
        xp, zero = ns.namespace(R), 0.0 * t[..., None, :]
        top = xp.concat([R, t[..., None]], axis=-1)
        return xp.concat([top, xp.concat([zero, zero[..., :1] + 1.0], axis=-1)], axis=-2)

    def from_matrix(self, matrix: Array) -> Parts:
        """Return the motions of matrices [[R, t], [0, 1]], and refuse other matrices."""
        wanted = (self.n + 1, self.n + 1) if self.k == 1 else (self.k, self.n + 1, self.n + 1)
        if tuple(getattr(matrix, "shape", ())) != wanted:
            raise InvalidInputError(
                f"{self} takes matrices of shape {wanted}; write motions as [[R, t], [0, 1]]."
            )
        point = Parts((matrix[..., :-1, :-1], matrix[..., :-1, -1]))
        error = abs(ns.to_numpy(matrix - self.to_matrix(point))).max()
        reason = f"last rows differ from (0, …, 0, 1) by {error:.1e}" if error else self.check_point(point)
        if reason is not None:
            raise InvalidInputError(f"these matrices are not a point of {self}: {reason}.")
        return point

    def compose(self, a: Parts, b: Parts) -> Parts:
        """Return the motions that apply those of b first, then those of a."""
        return Parts((a[0] @ b[0], (a[0] @ b[1][..., None])[..., 0] + a[1]))

    def inverse(self, point: Parts) -> Parts:
        """Return the inverse motions."""
        back: Any = point[0].mT
        return Parts((back, -(back @ point[1][..., None])[..., 0]))
