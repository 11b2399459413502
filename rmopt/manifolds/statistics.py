"""The point in the middle of others, and the directions in which they vary, by distances along a manifold."""

from typing import Any, NamedTuple

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, coarseness_of, rebuilt
from rmopt.errors import InvalidInputError, warn
from rmopt.manifolds.means import Points, frechet_mean, weighed

# After so many steps the nearest of the points is tried, near which steps become short.
LOOK = 5


def geometric_median(
    manifold: Manifold, points: Points, weights: Any = None, *, tol: float = 1e-10, max_iter: int = 1000
) -> Any:
    """Return the point with the least weighted sum of distances to some points, near their mean.

    Weiszfeld's steps (Fletcher, Venkatasubramanian and Joshi 2009), with the test of Vardi and Zhang (2000) of
    whether one of the points is the median. A warning tells where `max_iter` ends it above `tol`.

    Parameters
    ----------
    manifold : Manifold
        With `exp` and `log`.
    points : sequence of points
    weights : array, optional
        Not negative; equal unless given.
    tol : float
        Stop when the slope of the sum of distances, of weights with the sum 1, is this small.
    max_iter : int

    Raises
    ------
    InvalidInputError
        When there are no points, or the weights do not fit them.
    MissingCapabilityError
        When the manifold has no logarithm.

    See Also
    --------
    frechet_mean : squared distances; the mean.

    References
    ----------
    Fletcher, Venkatasubramanian and Joshi, The geometric median on Riemannian manifolds with application to robust
    atlas estimation, NeuroImage 45 (2009), https://doi.org/10.1016/j.neuroimage.2008.10.052. Vardi and Zhang, The
    multivariate L1-median and associated data depth, PNAS 97 (2000), https://doi.org/10.1073/pnas.97.4.1423.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Euclidean, geometric_median
    >>> places = [
    ...     np.array([0.0, 0.0]),
    ...     np.array([1.0, 0.0]),
    ...     np.array([0.0, 1.0]),
    ...     np.array([90.0, 90.0]),
    ... ]
    >>> geometric_median(Euclidean(2), places).round(3)
    array([0.5, 0.5])
    """
    tol, max_iter = number("tol", tol, least=0), integer("max_iter", max_iter)
    points, shares = weighed("geometric_median", manifold, points, weights)
    seen = [(float(share), point) for share, point in zip(shares, points, strict=True) if share > 0.0]
    median = frechet_mean(manifold, points, shares, tol=1e-3, max_iter=20)
    enough = max(tol, 4.0 * np.finfo(float).eps * coarseness_of(median))

    def look(place: Any) -> tuple[float, Any, Any]:
        """Return the slope at a place, the step from it, and the nearest point."""
        away = [(share, manifold.log(place, point), point) for share, point in seen]
        lengths = [manifold.norm(place, vector) for _, vector, _ in away]
        pull, scale, here = manifold.zero_vector(place), 0.0, 0.0
        for (share, vector, _), length in zip(away, lengths, strict=True):
            if length > 1e-12 * max(lengths):
                pull, scale = pull + vector * (share / length), scale + share / length
            else:
                here += share
        slope = manifold.norm(place, pull)
        share = max(slope - here, 0.0)
        return share, pull * (share / (slope * scale) if share else 0.0), seen[int(np.argmin(lengths))][1]

    slope, step, nearest = look(median)
    for count in range(max_iter):
        if slope <= enough:
            break
        if count % LOOK == 0 and look(nearest)[0] == 0.0:
            return rebuilt(nearest, list(map(ns.copied, arrays_of(nearest))))
        median = manifold.exp(median, step)
        slope, step, nearest = look(median)
    if slope > enough:
        warn(
            f"geometric_median stopped after {max_iter} steps, where the slope of the distances is {slope:.1e}, and "
            f"tol = {tol:.1e}; raise max_iter, or tol.",
            RuntimeWarning,
        )
    return median


class TangentPCA(NamedTuple):
    """How points vary about their mean.

    Attributes
    ----------
    mean : point
    components : list of tangent vectors
        Orthonormal at the mean, those of the largest variances first.
    variances : array, shape (k,)
        Sums of squares along them over one less than the number of points.
    scores : array, shape (N, k)
        Coordinates of each point's logarithm, less the mean logarithm, along the components.
    """

    mean: Any
    components: list[Any]
    variances: Array
    scores: Array


def tangent_pca(
    manifold: Manifold, points: Points, n_components: int | None = None, *, mean: Any = None
) -> TangentPCA:
    """Return the principal components of some points' logarithms at their mean (Fletcher et al. 2004).

    ``manifold.exp(mean, t * component)`` is the curve along which they vary. By inner products of all pairs.

    Parameters
    ----------
    manifold : Manifold
        With `log`.
    points : sequence of points
        Two or more.
    n_components : int, optional
        As many as there are points less one, and dimensions, unless given; fewer where points vary in fewer
        directions.
    mean : point, optional
        Where the logarithms are taken; `frechet_mean` unless given.

    Raises
    ------
    InvalidInputError
        For fewer than two points, or more components than they can have.
    MissingCapabilityError
        When the manifold has no logarithm.

    References
    ----------
    Fletcher, Lu, Pizer and Joshi, Principal geodesic analysis for the study of nonlinear statistics of shape, IEEE
    Trans. Med. Imaging 23 (2004), https://doi.org/10.1109/TMI.2004.831793.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere, tangent_pca
    >>> angles = np.array([-0.4, -0.1, 0.2, 0.3])
    >>> found = tangent_pca(
    ...     Sphere(3), [np.array([np.cos(a), np.sin(a), 0.0]) for a in angles]
    ... )
    >>> found.mean.round(3), bool(np.allclose(found.variances, [angles.var(ddof=1)]))
    (array([1., 0., 0.]), True)
    """
    points, _ = weighed("tangent_pca", manifold, points, None)
    most = min(len(points) - 1, manifold.dim)
    k = most if n_components is None else integer("n_components", n_components, 1)
    if k > most or most < 1:
        raise InvalidInputError(
            f"{len(points)} points on {manifold} have {most} principal components; give more points, or "
            "n_components up to that."
        )
    mean = frechet_mean(manifold, points) if mean is None else mean
    away = [manifold.log(mean, point) for point in points]
    middle = away[0]
    for vector in away[1:]:
        middle = middle + vector
    away = [vector - middle * (1.0 / len(points)) for vector in away]
    gram = np.array([[manifold.inner_product(mean, a, b) for b in away] for a in away])
    values, shares = np.linalg.eigh(gram)
    # Where nothing varies there is no direction.
    k = min(k, int(np.sum(values > 1e-14 * coarseness_of(mean) * values[-1])))
    values, shares = values[::-1][:k], shares[:, ::-1][:, :k]
    components = []
    for value, share in zip(values, shares.T, strict=True):
        whole = manifold.zero_vector(mean)
        for vector, part in zip(away, share / value**0.5, strict=True):
            whole = whole + vector * float(part)
        components.append(whole)
    return TangentPCA(mean, components, values / (len(points) - 1), shares * values**0.5)
