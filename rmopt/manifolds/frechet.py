"""The Fréchet mean."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number, numbers, sequence, shown
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, coarseness_of, of_reals, rebuilt
from rmopt.errors import InvalidInputError
from rmopt.renamed import renamed


@renamed(max_iterations="max_iter")
def frechet_mean(
    manifold: Manifold,
    points: Sequence[Any],
    weights: Array | None = None,
    *,
    tol: float = 1e-12,
    max_iter: int = 200,
) -> Any:
    """Return the point with the least weighted sum of squared distances to some points, near the first.

    Follows the mean of the logarithms until it vanishes (Karcher 1977), by steps of Barzilai and Borwein's length
    that lower the sum. Points that are far apart on a sphere, say, have several such means, each the best nearby.
    Where `max_iter` ends it, a warning says so.

    Parameters
    ----------
    manifold : Manifold
        With `exp` and `log`.
    points : sequence of points
    weights : array, optional
        Not negative; equal unless given.
    tol : float
        Stop when the mean logarithm is this short, relative to the distances from the first point; or rounding.
    max_iter : int

    Raises
    ------
    InvalidInputError
        When there are no points, or the weights do not fit them.
    MissingCapabilityError
        When the manifold has no logarithm.

    See Also
    --------
    projected_mean : needs no logarithm, and one step.

    References
    ----------
    Karcher, Riemannian center of mass and mollifier smoothing, Communications on Pure and Applied Mathematics 30
    (1977), https://doi.org/10.1002/cpa.3160300502.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere, frechet_mean
    >>> frechet_mean(Sphere(3), [np.eye(3)[0], np.eye(3)[1]]).round(3)
    array([0.707, 0.707, 0.   ])
    """
    tol, max_iter = number("tol", tol, least=0), integer("max_iter", max_iter)
    instance("manifold", manifold, Manifold, "a Manifold of rmopt")
    points = [of_reals(point) for point in sequence("points", points)]
    if not points:
        raise InvalidInputError("frechet_mean needs at least one point.")
    for point in points:
        flaw = manifold.check_point(point)
        if flaw is not None:
            raise InvalidInputError(f"a point is not on {manifold}: {flaw}.")
    shares = np.ones(len(points)) if weights is None else numbers("weights", weights, (len(points),))
    if (shares < 0.0).any() or not shares.any():
        raise InvalidInputError(f"weights must not be negative, and not all zero, got {shown(weights)}.")
    shares = shares / shares.sum()

    def look(mean: Any) -> tuple[Any, float, float]:
        """Return the mean logarithm, its length, and half the mean square, of which it is the descent."""
        total, squares = manifold.zero_vector(mean), 0.0
        for share, point in zip(shares.tolist(), points, strict=True):
            if share > 0.0:
                away = manifold.log(mean, point)
                total, squares = total + away * share, squares + share * manifold.norm(mean, away) ** 2
        return total, manifold.norm(mean, total), 0.5 * squares

    step = 1.0
    for mean in (point for share, point in zip(shares, points, strict=True) if share > 0.0):
        direction, length, value = look(mean)
        if np.isfinite(length):
            break
    else:
        raise InvalidInputError(
            f"the points have no finite logarithms on {manifold} at any of them; bring them nearer to each other."
        )
    spread = float(np.sqrt(2.0 * value))
    for _ in range(max_iter):
        eps = np.finfo(float).eps * coarseness_of(mean)
        rounding = 8.0 * eps * value
        if length <= max(tol, 4.0 * eps) * spread:
            break
        try:
            with np.errstate(all="ignore"):
                moved = manifold.exp(mean, direction * step)
                there, remaining, reached = look(moved)
        except (np.linalg.LinAlgError, InvalidInputError):
            reached = np.inf
        falls = step * length**2
        # Nearer than to rounding it is the gradient that tells.
        if reached < value - 1e-4 * falls or (reached <= value + rounding and remaining < length):
            # Barzilai and Borwein's step: s along the geodesic is transported by it, and ends as −log.
            bent = falls + manifold.inner_product(moved, manifold.log(moved, mean), there)
            step *= min(max(falls / bent, 0.1), 10.0) if bent > 0.0 else 2.0
            mean, direction, length, value = moved, there, remaining, reached
        elif falls <= rounding and step < 1e-4:
            break
        else:
            step *= 0.5
    else:
        warnings.warn(
            f"frechet_mean stopped after {max_iter} steps, where the mean logarithm is {length:.1e} long; raise "
            "max_iter, or tol.",
            RuntimeWarning,
            stacklevel=3,
        )
    return rebuilt(mean, [part.copy() for part in arrays_of(mean)])
