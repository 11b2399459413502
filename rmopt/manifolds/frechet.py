"""The Fréchet mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number, numbers, sequence, shown
from rmopt.core.manifold import Manifold
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

    Follows the mean of the logarithms until it vanishes (Karcher 1977); halves the step where that does not shrink.

    Parameters
    ----------
    manifold : Manifold
        With `exp` and `log`.
    points : sequence of points
    weights : array, optional
        Not negative; equal unless given.
    tol : float
        Stop when the mean logarithm is this short, relative to the manifold's `typical_dist`.
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
    points = sequence("points", points)
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

    def pull(mean: Any) -> tuple[Any, float]:
        total = manifold.zero_vector(mean)
        for share, point in zip(shares.tolist(), points, strict=True):
            if share > 0.0:
                total = total + manifold.log(mean, point) * share
        return total, manifold.norm(mean, total)

    mean, step = points[int(np.argmax(shares > 0.0))], 1.0
    direction, length = pull(mean)
    for _ in range(max_iter):
        if length <= tol * manifold.typical_dist:
            break
        moved = manifold.exp(mean, direction * step)
        there, remaining = pull(moved)
        if remaining < length:
            mean, direction, length = moved, there, remaining
        elif step < 1e-3:
            break
        else:
            step *= 0.5
    return mean
