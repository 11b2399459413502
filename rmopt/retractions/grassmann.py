"""Retractions of subspaces, given by orthonormal bases."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction, by_name
from rmopt.linalg import gram_functions, positive_qr


class Exponential(Retraction):
    """Follows the geodesic, on any manifold that knows its exponential map; else a `MissingCapabilityError`.

    See Also
    --------
    Polar : costs less on subspaces and frames.
    Normalisation : costs less on spheres.

    References
    ----------
    Absil, Mahony and Sepulchre, Optimization Algorithms on Matrix Manifolds, Princeton University Press (2008),
    https://doi.org/10.1515/9781400830244.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.retractions import Exponential
    >>> x, xi = np.array([1.0, 0.0, 0.0]), np.array([0.0, np.pi / 2, 0.0])
    >>> ((Sphere(3).using(Exponential()).retraction(x, xi) + 0.0).round(6) + 0.0).tolist()
    [0.0, 1.0, 0.0]
    """

    order = 2
    name = "exponential"

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return manifold.exp(point, t * tangent)

    def on(self, manifold: Any) -> Callable[..., Any]:
        """Return the exponential map itself: that shapes fit was seen where a run began."""
        exp = getattr(manifold.exp, "unguarded", None)
        follow = manifold.exp if exp is None else partial(exp, manifold)
        return lambda point, tangent, t=1.0: follow(point, t * tangent)


class QR(Retraction):
    """R(ξ) = the orthonormal factor of U + ξ = Q R, where R has a positive diagonal.

    The same subspace as that of `Polar`, in another basis.

    See Also
    --------
    Polar : the same subspace, in a basis that turns least.
    Exponential : along the geodesic, with a singular value decomposition.
    FrameQR : for frames.

    References
    ----------
    Absil, Mahony and Sepulchre, Optimization Algorithms on Matrix Manifolds, Princeton University Press (2008),
    https://doi.org/10.1515/9781400830244.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.retractions import QR
    >>> U, xi = np.eye(3)[:, :1], np.array([[0.0], [1.0], [0.0]])
    >>> (Grassmann(3, 1).using(QR()).retraction(U, xi).round(3).ravel() + 0.0).tolist()
    [0.707, 0.707, 0.0]
    """

    order = 2
    name = "qr"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return positive_qr(point + t * tangent)


class Polar(Retraction):
    """R(ξ) = (U + ξ)(I + ξᵀξ)^−½, the orthonormal factor nearest to U + ξ.

    See Also
    --------
    QR : cheaper, and a basis that turns more.
    Exponential : along the geodesic.

    References
    ----------
    Absil and Malick, Projection-like retractions on matrix manifolds, SIAM J. Optim. 22 (2012),
    https://doi.org/10.1137/100802529.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Stiefel
    >>> from rmopt.retractions import Polar
    >>> X, xi = np.eye(3)[:, :2], np.array([[0.0, -1.0], [1.0, 0.0], [0.0, 0.0]])
    >>> (Stiefel(3, 2).using(Polar()).retraction(X, xi).round(3) + 0.0).tolist()
    [[0.707, -0.707], [0.707, 0.707], [0.0, 0.0]]
    """

    order = 2
    name = "polar"
    point_type = np.ndarray

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = point + t * tangent
        (root,) = gram_functions(moved, lambda squares: squares**-0.5)
        return moved @ root


GRASSMANN_RETRACTIONS = by_name(Exponential(), QR(), Polar())
