"""Means, medians and principal components of points, by distances or in the ambient space."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number, numbers, sequence, shown
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, coarseness_of, in_precision, of_reals, rebuilt
from rmopt.errors import InvalidInputError, MissingCapabilityError, broke_down, warn
from rmopt.manifolds.positive_definite import PositiveDefinite
from rmopt.manifolds.symmetric_positive_definite import SymmetricPositiveDefinite

Points = Sequence[Any]
# Smaller differences of sums of squares may be rounding, if points are ill-conditioned.
ROUGHLY = 1e-6
# A search ends after so many evaluations without progress.
IDLE = 20


def frechet_mean(
    manifold: Manifold,
    points: Sequence[Any],
    weights: Array | None = None,
    *,
    tol: float = 1e-12,
    max_iter: int = 200,
) -> Any:
    """Return the point with the least weighted sum of squared distances to points, near the first of them.

    Follows the mean of the logarithms until it vanishes (Karcher 1977), by Barzilai-Borwein steps that lower the sum.
    Points far apart, for example on a sphere, have several such means, each the best nearby. The search ends with a
    warning if `max_iter` steps stay above `tol`, and also ends if steps make no progress.

    Parameters
    ----------
    manifold : Manifold
        With `exp` and `log`.
    points : sequence of points
    weights : array, optional
        Not negative, by default equal.
    tol : float
        Stop when the mean logarithm is this short, relative to the distances from the first point.
    max_iter : int

    Raises
    ------
    InvalidInputError
        When there are no points, or the weights do not fit them.
    MissingCapabilityError
        When the manifold has no logarithm.

    See Also
    --------
    projected_mean : needs one step and no logarithm.
    geometric_median : less affected by outliers.

    References
    ----------
    Karcher, Riemannian center of mass and mollifier smoothing, Communications on Pure and Applied Mathematics 30
    (1977), https://doi.org/10.1002/cpa.3160300502. Hager and Zhang, A new conjugate gradient method with guaranteed
    descent and an efficient line search, SIAM J. Optim. 16 (2005), https://doi.org/10.1137/030601880.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere, frechet_mean
    >>> frechet_mean(Sphere(3), [np.eye(3)[0], np.eye(3)[1]]).round(3)
    array([0.707, 0.707, 0.   ])
    """
    tol, max_iter = number("tol", tol, least=0), integer("max_iter", max_iter)
    points, shares = weighed("frechet_mean", manifold, points, weights)
    look, step = _look(manifold, points, shares), 1.0
    for mean in (point for share, point in zip(shares, points, strict=True) if share > 0.0):
        direction, length, value = look(mean)
        if np.isfinite(length):
            break
    else:
        raise InvalidInputError(
            f"the points have no finite logarithms on {manifold} at any of them; move them closer together."
        )
    spread, best, idle, steps = float(np.sqrt(2.0 * value)), (mean, direction, length, value), 0, 0
    enough = max(tol, 4.0 * np.finfo(float).eps * coarseness_of(mean)) * spread
    while length > enough and idle < IDLE and steps < max_iter:
        steps, falls = steps + 1, step * length**2
        try:
            with np.errstate(all="ignore"):
                moved = manifold.exp(mean, direction * step)
                there, remaining, reached = look(moved)
                # The slope at its end: log(moved, mean) is the backward velocity there.
                left = -manifold.inner_product(moved, manifold.log(moved, mean), there)
        except (ValueError, RuntimeError) as error:
            if not (isinstance(error, InvalidInputError) or broke_down(error)):
                raise
            reached = np.inf
        # If values differ by rounding alone, slopes decide (Hager and Zhang 2005).
        if reached < value - 1e-4 * falls or (reached < (1.0 + ROUGHLY) * value and left > -0.8 * falls):
            # Barzilai and Borwein's step.
            step *= min(max(falls / (falls - left), 0.1), 10.0) if falls > left else 2.0
            mean, direction, length, value = moved, there, remaining, reached
        else:
            step *= 0.5
        if np.isfinite(reached):
            nearer = reached < (1.0 - ROUGHLY) * best[3]
            idle = 0 if nearer or remaining < 0.9 * best[2] else idle + 1
            if nearer or remaining < best[2]:
                best = moved, there, remaining, reached
    mean, direction, length, _ = best
    if length > enough and steps == max_iter:
        warn(
            f"frechet_mean stopped after {steps} steps: the mean logarithm is {length / spread:.1e} times as "
            f"long as the distances, and tol = {tol:.1e}; raise max_iter, or tol.",
            RuntimeWarning,
        )
    return rebuilt(mean, list(map(ns.copied, arrays_of(mean))))


def _look(manifold: Manifold, points: Points, shares: Array) -> Callable[[Any], tuple[Any, float, float]]:
    """Return a function of a point that gives the mean logarithm, its length, and half the mean square."""
    seen = [(share, point) for share, point in zip(shares.tolist(), points, strict=True) if share > 0.0]
    if type(manifold) in (SymmetricPositiveDefinite, PositiveDefinite):
        metric, weights = manifold._metric, shares[shares > 0.0]  # type: ignore[attr-defined]
        xp = ns.namespace(seen[0][1])
        many = xp.stack([point for _, point in seen])
        heavy = ns.asarray(weights, many, ns.numbers_of(many))

        def at_once(mean: Array) -> tuple[Array, float, float]:
            away = metric.towards(mean, many)
            total = xp.tensordot(heavy, away, axes=1)
            parts = xp.reshape(ns.real(ns.conj(away) * away), (away.shape[0], -1))
            squares = weights @ ns.to_numpy(xp.sum(parts, axis=1))
            return metric.bent(mean, total), float(ns.real_dot(total, total)) ** 0.5, 0.5 * float(squares)

        return at_once

    def look(mean: Any) -> tuple[Any, float, float]:
        total, squares = manifold.zero_vector(mean), 0.0
        for share, point in seen:
            away = manifold.log(mean, point)
            total, squares = total + away * share, squares + share * manifold.norm(mean, away) ** 2
        return total, manifold.norm(mean, total), 0.5 * squares

    return look


def projected_mean(manifold: Manifold, points: Points, weights: Any = None) -> Any:
    """Return the point of a manifold that is nearest to a weighted sum of points in the ambient space.

    It needs no logarithm, and costs a small multiple of a retraction: on matrices of rank k, N points cost a QR
    factorisation with N k columns. See `frechet_mean` for the mean by distances along the manifold.

    Parameters
    ----------
    manifold : Manifold
        `FixedRankEmbedded`, `PSDFixedRank`, `Grassmann` (the mean of projectors), `Stiefel`, `SpecialOrthogonal`,
        `Sphere`, `Oblique`, `PositiveDefinite`, `Euclidean`, products of them, and your own manifolds with a method
        ``projected_mean(points, weights)``.
    points : sequence of points
    weights : array, shape (N,), optional
        With the sum 1, by default equal. They may be negative: ``[-1, 2]`` goes from the first point to the second
        one and as far again.

    Raises
    ------
    InvalidInputError
        When there are no points, a point is not on the manifold, the weights do not fit, or the sum has no nearest
        point because it has a lower rank or is not positive definite. Of several nearest points it is one.
    MissingCapabilityError
        On other manifolds.

    See Also
    --------
    frechet_mean : by distances along the manifold.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere, projected_mean
    >>> projected_mean(Sphere(2), [np.array([1.0, 0.0]), np.array([0.0, 1.0])]).round(3)
    array([0.707, 0.707])
    """
    points = _held("projected_mean", manifold, points)
    count = len(points)
    shares = np.full(count, 1.0 / count) if weights is None else numbers("weights", weights, (count,))
    if not abs(shares.sum() - 1.0) < 1e-8:
        raise InvalidInputError(
            f"weights have the sum {shares.sum():.3g}; it must be 1: unless it is 0, divide them by it."
        )
    return mean_on(manifold)(points, shares)


def weighed(mean: str, manifold: Manifold, points: Points, weights: Any) -> tuple[list[Any], Array]:
    """Return points of a manifold and their normalised weights, and refuse invalid ones."""
    points = _held(mean, manifold, points)
    shares = np.ones(len(points)) if weights is None else numbers("weights", weights, (len(points),))
    if (shares < 0.0).any() or not shares.any():
        raise InvalidInputError(f"weights must not be negative, and not all zero, got {shown(weights)}.")
    return points, shares / shares.sum()


def _held(mean: str, manifold: Manifold, points: Points) -> list[Any]:
    instance("manifold", manifold, Manifold, "a Manifold of rmopt")
    held = [of_reals(point) for point in sequence("points", points)]
    if not held:
        raise InvalidInputError(f"{mean} needs at least one point.")
    for point in held:
        if (flaw := manifold.check_point(point)) is not None:
            raise InvalidInputError(f"a point is not on {manifold}: {flaw}.")
    if len({ns.namespace(array) for array in arrays_of(held)}) > 1:
        raise InvalidInputError("the points are arrays of several libraries; convert them to those of one.")
    return held


def mean_on(manifold: Manifold) -> Callable[[Points, Array], Any]:
    """Return the manifold's `projected_mean` as a function of points and weights, without checks of points."""
    if not manifold.knows("projected_mean"):
        raise MissingCapabilityError(
            f"the points of {manifold} have no mean here; give its class a method projected_mean(points, weights)"
            f"{', or take frechet_mean' if manifold.knows('log') else ''}."
        )

    def checked(points: Points, weights: Array) -> Any:
        with np.errstate(all="ignore"):
            nearest = in_precision(manifold.projected_mean(points, weights), ns.real_type(*arrays_of(points)))
        if (flaw := manifold.check_point(nearest)) is not None:
            raise InvalidInputError(f"the weighted sum has no nearest point on {manifold}: {flaw}.")
        return nearest

    return checked


# After so many steps the nearest of the points is tried, because steps near it become short.
LOOK = 5


def geometric_median(
    manifold: Manifold, points: Points, weights: Any = None, *, tol: float = 1e-10, max_iter: int = 1000
) -> Any:
    """Return the point with the least weighted sum of distances to some points, near their mean.

    Weiszfeld's steps (Fletcher, Venkatasubramanian and Joshi 2009), with the test of Vardi and Zhang (2000) of
    whether one of the points is the median. A warning is given if `max_iter` ends it above `tol`.

    Parameters
    ----------
    manifold : Manifold
        With `exp` and `log`.
    points : sequence of points
    weights : array, optional
        Not negative, by default equal.
    tol : float
        Stop when the slope of the sum of distances, with normalised weights, is this small.
    max_iter : int

    Raises
    ------
    InvalidInputError
        When there are no points, or the weights do not fit them.
    MissingCapabilityError
        When the manifold has no logarithm.

    See Also
    --------
    frechet_mean : the mean, by squared distances.

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
        """Return the slope at a point, the step from it, and the nearest of the given points."""
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
            f"geometric_median stopped after {max_iter} steps: the slope of the distances is {slope:.1e}, "
            f"and tol = {tol:.1e}; raise max_iter, or tol.",
            RuntimeWarning,
        )
    return median


class TangentPCA(NamedTuple):
    """The principal components of points about their mean.

    Attributes
    ----------
    mean : point
    components : list of tangent vectors
        Orthonormal at the mean, by descending variance.
    variances : array, shape (k,)
        Sums of squares along them, divided by the number of points minus one.
    scores : array, shape (N, k)
        Coordinates of each point's logarithm, minus the mean logarithm, along the components.
    """

    mean: Any
    components: list[Any]
    variances: Array
    scores: Array


def tangent_pca(
    manifold: Manifold, points: Points, n_components: int | None = None, *, mean: Any = None
) -> TangentPCA:
    """Return the principal components of some points' logarithms at their mean (Fletcher et al. 2004).

    They vary along the curve ``manifold.exp(mean, t * component)``. Computed from the inner products of all pairs.

    Parameters
    ----------
    manifold : Manifold
        With `log`.
    points : sequence of points
        Two or more.
    n_components : int, optional
        Defaults to the number of points minus one, at most the dimension, or fewer if points vary in fewer
        directions.
    mean : point, optional
        Base point of the logarithms, by default the `frechet_mean`.

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
    # Points without variation have no direction.
    k = min(k, int(np.sum(values > 1e-14 * coarseness_of(mean) * values[-1])))
    values, shares = values[::-1][:k], shares[:, ::-1][:, :k]
    components = []
    for value, share in zip(values, shares.T, strict=True):
        whole = manifold.zero_vector(mean)
        for vector, part in zip(away, share / value**0.5, strict=True):
            whole = whole + vector * float(part)
        components.append(whole)
    return TangentPCA(mean, components, values / (len(points) - 1), shares * values**0.5)
