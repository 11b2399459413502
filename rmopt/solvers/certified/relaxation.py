"""Certificates of semidefinite programmes min f(W), W ⪰ 0, with constraints that fix the trace of W.

W = YYᵀ for the points of `Elliptope` (diag W = 1) and of `Sphere` (tr W = 1), and for the transposed points of
`Oblique` (diag W = 1) and `Stiefel` (diagonal blocks of W are identities). `rank_axis` is the axis of Y's columns in
their points, `with_rank` returns the manifold of points with more columns, and `dual_map` applies A*(y) to columns,
with the constraints A and their multipliers y = A(∇f(W) W) in closed form.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from rmopt import namespaces as ns
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import integer, one_of
from rmopt.core.points import in_precision, of_reals
from rmopt.core.problem import Problem
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.solvers.batch.oracle import ROUNDINGS
from rmopt.solvers.certified.certificate import EPS, Certificate, by_lower_bound, downward_eigenpairs

# The length of appended columns relative to Y's, whose square is a rounding, so that ∇f is that at YYᵀ.
SHORT = EPS**0.5
# Two gradients that differ by this share of their length belong to different functions.
SAME = 1e-9
# The largest number of rows of a dense S, and how many of its columns are computed at once.
LARGEST, COLUMNS = 5000, 500
# Levels of extrapolation, each at a quarter of the square of the step before.
LEVELS = 13
# Quadratic forms of gradients and of values may differ by this share of their terms, and by so many times the error
# of the differences.
RESOLVED, DOUBTFUL = 1e-7, 10.0
WRONG = "its gradient is wrong: test it by rmopt.checks.check_gradient"


@dataclass(frozen=True)
class TraceCertificate(Certificate):
    """A bound on f(W) − f(W*) for a known trace of W.

    With S = ∇f(W) − A*(y) and f convex, f(W) − f(W*) ≤ |⟨S, W⟩| + tr W · max(0, −λ_min(S)) at every W and for all y.
    `trace_bound` is the trace, and `excess` the size |⟨∇f(W), W⟩|, the reference of relative gaps.
    """

    @property
    def gap(self) -> float:
        """The bound on f(W) − f(W*)."""
        return abs(self.complementarity) + self.eigenvalue * self.trace_bound


class Relaxation:
    """A problem for certificates: as a function of the rows Y of W = YYᵀ, a numpy array with any number of columns.

    Parameters
    ----------
    problem : Problem
        On a manifold with `rank_axis`, `with_rank` and `dual_map`.
    max_rank, seed : int
        Of a run.

    Attributes
    ----------
    like : array
        The cost is evaluated at arrays of its library.
    linear : bool
        Whether f is.

    Raises
    ------
    MissingCapabilityError
        For other manifolds.
    """

    def __init__(self, problem: Problem, max_rank: int | None = None, seed: int = 0) -> None:
        problem.hold_to_cost("a certificate")
        manifold: Any = problem.manifold
        self.problem, self.seed, self.linear = problem, seed, False
        if not is_relaxation(problem):
            raise MissingCapabilityError(
                f"{problem.manifold} has no dual in closed form; certify takes a Problem on Elliptope, Oblique, "
                "Stiefel or a Sphere of matrices, of real numbers, or a ConvexCost with a factor."
            )
        self.axis, shape = manifold.rank_axis, manifold.shape
        # For rotations that of frames, whose retractions take points of any rank.
        self.manifold = manifold.with_rank(shape[self.axis])
        n = int(np.prod(shape)) // shape[self.axis]
        self.max_rank, self.like = min(max_rank or n, n), np.empty(0)

    def rows(self, point: Any) -> Array:
        """Return Y."""
        Y = np.moveaxis(ns.to_numpy(point), self.axis, -1)
        return Y.reshape(-1, Y.shape[-1])

    def point(self, rows: Array) -> Any:
        """Return the array of the manifold's layout that has these rows."""
        shape = list(self.manifold.shape)
        del shape[self.axis]
        point = np.ascontiguousarray(np.moveaxis(rows.reshape(*shape, -1), -1, self.axis))
        return ns.asarray(point, self.like)

    def gradient(self, rows: Array) -> Array:
        """Return ∇f(YYᵀ) Y, half the gradient by Y."""
        point = self.point(rows)
        return 0.5 * self.rows(dense(self.problem.gradient(point), point))

    def value(self, rows: Array) -> float:
        """Return f(YYᵀ)."""
        return self.problem.value(self.point(rows))

    def products(self, Y: Array, V: Array) -> Array:
        """Return ∇f(YYᵀ) V."""
        if self.linear:
            return self.gradient(V)
        short = SHORT * float(np.linalg.norm(Y)) / float(np.linalg.norm(V))
        return self.gradient(np.hstack([Y, short * V]))[:, Y.shape[1] :] / short

    def local(self, Y: Array) -> Problem:
        """Return the problem on points with as many columns as Y."""
        return replace(self.problem, manifold=self.manifold.with_rank(Y.shape[1]))

    def beside(self, Y: Array, V: Array) -> Array:
        """Return the rows of the point reached from [Y, 0] along [0, V]."""
        wide, along = np.hstack([Y, 0.0 * V]), np.hstack([0.0 * Y, V])
        return self.rows(self.manifold.retraction(self.point(wide), self.point(along)))


def is_relaxation(problem: Problem) -> bool:
    """Return whether the problem's manifold is one of factors with a known trace."""
    manifold: Any = problem.manifold
    real = getattr(manifold, "field", "real") == "real"
    return real and hasattr(manifold, "dual_map") and len(manifold.shape) > 1


def certify(
    problem: Any, point: Any, n_candidates: int = 1, tol: float = 1e-8, *, proof: str = "lanczos"
) -> tuple[Certificate, Array, Array]:
    """Return the certificate at a point, and the descent directions from there.

    Parameters
    ----------
    problem : Problem or ConvexCost
        A problem min f(YYᵀ) whose constraints fix the trace of YYᵀ: on `Elliptope` (max-cut, correlations), on
        `Oblique` or `Stiefel` with as many rows as the rank (synchronisation: the cost is a function of the products
        XᵢᵀXⱼ), or on a `Sphere` of matrices. f is linear, by a test with two gradients, or convex, as a `ConvexCost`
        or by an attribute ``is_convex = True``. Or a `ConvexCost` with a positive `trace_weight` and a `lower_bound`.
    point : array
        A point of the problem, in any library, or the factor Y, shape (p, d).
    n_candidates : int
        The number of directions to look for.
    tol : float
        The accuracy of eigenvalues: for a relative gap of a problem, or relative to `trace_weight`; larger if this is
        below rounding.
    proof : {"lanczos", "cholesky"}
        For a problem: by a Lanczos run, whose random start makes it almost certain that no eigenvalue is missed, or
        by a Cholesky factor of a dense matrix of at most 5,000 rows, which is a proof up to the Notes.

    Returns
    -------
    certificate : Certificate
    values : array, shape (j,)
        The largest eigenvalues of −S or −∇f, descending: the positive ones among `n_candidates`, and always the first
        of −S.
    vectors : array, shape (p, j)
        Their eigenvectors.

    Raises
    ------
    InvalidInputError
        If values contradict the gradient, the convexity of the cost, or its dependence on YYᵀ alone, if the point is
        not on the manifold, or if a cost has no trace term, or no lower bound, or one that its value contradicts.
    MissingCapabilityError
        For a problem on another manifold.

    See Also
    --------
    RankIncremental : increases the rank until the certificate holds.

    Notes
    -----
    S = ∇f(W) − A*(y) uses gradients alone, with the multipliers y of the constraints in closed form, and f(W) − f(W*)
    is at most tr W · max(0, −λ_min(S)) plus the size of ⟨S, W⟩. A bound is only as good as the gradient, which is
    tested against values along the eigenvector and along a random direction. A relative error of 1e-5 is refused. A
    smaller one may pass, and a gap below it depends on the gradient: see `rmopt.checks.check_gradient`.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39. Boumal, Voroninski and Bandeira, Deterministic guarantees for
    Burer–Monteiro factorizations of smooth semidefinite programs, Communications on Pure and Applied Mathematics 73
    (2020), https://doi.org/10.1002/cpa.21830. Rosen, Carlone, Bandeira and Leonard, SE-Sync: a certifiably correct
    algorithm for synchronization over the special Euclidean group, International Journal of Robotics Research 38
    (2019), https://doi.org/10.1177/0278364918784361.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Elliptope
    >>> from rmopt.solvers import TrustRegions, certify
    >>> A = np.ones((5, 5)) - np.eye(5)
    >>> problem = Problem(Elliptope(5, 4), autograd_cost(lambda Y: (A * (Y @ Y.T)).sum()))
    >>> result = TrustRegions(tol=1e-9).run(problem, random_state=0)
    >>> certificate, _, _ = certify(problem, result.point)
    >>> certificate.is_global(1e-8), round(certificate.lower_bound, 6)
    (True, -5.0)
    """
    one_of("proof", proof, ("lanczos", "cholesky"))
    n_candidates = integer("n_candidates", n_candidates, 1)
    if not isinstance(problem, Problem):
        return by_lower_bound(problem, point, n_candidates, tol)
    work, manifold = Relaxation(problem), problem.manifold
    if (reason := manifold.check_point(point)) is not None:
        raise InvalidInputError(f"the point is not on {manifold}: {reason}.")
    work.like = point = in_precision(of_reals(point), np.float64)
    # Then constraints hold to rounding.
    Y = work.rows(work.manifold.retraction(point, 0.0 * point))
    n, trace = len(Y), float(np.vdot(Y, Y))
    if proof == "cholesky" and n > LARGEST:
        raise _refused(problem, f"proof = 'cholesky' takes up to {LARGEST:,} rows, not {n:,}; take 'lanczos'")
    rng = np.random.default_rng(0)
    value, GY = work.value(Y), work.gradient(Y)
    if not (np.isfinite(value) and np.isfinite(GY).all()):
        raise DivergedError(f"{problem.cost._name} or its gradient is not finite; start elsewhere.", 0)
    _check_function(work, Y, value, rng)
    dual = work.manifold.dual_map(work.point(Y), work.point(GY))

    def S(V: Array) -> Array:
        return work.products(Y, V) - work.rows(dual(work.point(V)))

    scale = abs(float(np.vdot(GY, Y)))
    values, vectors, bound = downward_eigenpairs(S, n, n_candidates, tol * scale / trace)
    if proof == "cholesky":
        bound = _proved(S, n, max(bound, 0.0))
    for direction in (vectors[:, :1], rng.standard_normal((n, 1))):
        _check_form(work, Y, value, S, direction)
    complementarity = float(np.vdot(S(Y), Y))
    return TraceCertificate(value, max(0.0, float(bound)), complementarity, trace, scale), values, vectors


def _proved(S: Callable[[Array], Array], n: int, bound: float) -> float:
    """Return a bound on the eigenvalues of −S, proved by a Cholesky factor of S plus a small shift.

    If a matrix has a computed factor, its eigenvalues are at least −(n + 2) u times its trace, with u the unit
    roundoff (Rump 2006).
    """
    matrix = np.hstack([S(columns.T) for columns in np.split(np.eye(n), range(COLUMNS, n, COLUMNS))])
    matrix = 0.5 * (matrix + matrix.T)
    diagonal, size = matrix.diagonal().copy(), float(np.abs(matrix).sum(axis=0).max())
    for share in (1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0):
        more = bound + share * size
        np.fill_diagonal(matrix, diagonal + more)
        # With a shift of a column's sum of sizes the matrix is positive.
        with suppress(np.linalg.LinAlgError):
            scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
            break
    return more + 0.5 * (n + 2) * EPS * float(np.sum(diagonal + more))


def _check_function(work: Relaxation, Y: Array, value: float, rng: np.random.Generator) -> None:
    """Refuse a cost that is not a function of YYᵀ, or neither linear nor declared convex, by values and gradients."""
    problem, k = work.problem, Y.shape[1]
    turned = work.value(Y @ np.linalg.qr(rng.standard_normal((k, k)))[0])
    V = rng.standard_normal((len(Y), 2))
    try:
        here, elsewhere = work.products(Y, V), work.gradient(V)
    except (ValueError, TypeError, IndexError) as error:
        raise _refused(problem, f"it fails at points of another rank ({error}); write it for all") from error
    form, size = V.T @ here, float(np.linalg.norm(here))
    if abs(turned - value) > SAME * (abs(value) + size * float(np.linalg.norm(Y))):
        raise _refused(
            problem,
            f"it is {value:.10g} at a point and {turned:.10g} after a rotation of Y to YQ; write it as a function of "
            f"YYᵀ, of products along axis {work.axis} of a point",
        )
    if abs(form[0, 1] - form[1, 0]) > SAME * size * float(np.linalg.norm(V)):
        raise _refused(problem, f"∇f(W) is not symmetric by its gradients ∇f(W) Y; {WRONG}")
    work.linear = float(np.linalg.norm(here - elsewhere)) <= SAME * size
    if not work.linear and not getattr(problem.cost, "is_convex", False):
        raise _refused(
            problem,
            "by its gradients it is not linear in W = YYᵀ, nor is it declared convex; if it is convex, take a "
            "ConvexCost, or set is_convex = True on the cost",
        )


def _check_form(work: Relaxation, Y: Array, value: float, S: Callable[[Array], Array], v: Array) -> None:
    """Refuse a gradient that values contradict along an appended column, or a cost that falls below its tangent.

    Along [√τ v] the cost changes by τ vᵀSv and higher powers of τ, which extrapolation removes (Ridders 1982).
    """
    v = v * (float(np.linalg.norm(Y)) / float(np.linalg.norm(v)))
    said = float(np.vdot(v, S(v)))
    slope = float(np.vdot(v, work.products(Y, v)))
    size, best, least = abs(slope) + abs(said - slope), 0.0, np.inf
    row = list[float]()
    for level in range(LEVELS):
        t = 0.25**level
        there = work.value(work.beside(Y, t**0.5 * v))
        noise = ROUNDINGS * EPS * max(abs(there), abs(value), size) / t
        before, row = row, [(there - value) / t]
        for m, rough in enumerate(before, 1):
            row.append(row[-1] + (row[-1] - rough) / (4.0**m - 1.0))
            error = max(abs(row[-1] - row[-2]), abs(row[-1] - rough)) + noise
            if error < least:
                best, least = row[-1], error
        if DOUBTFUL * least <= RESOLVED * size:
            break
    if not abs(best - said) <= DOUBTFUL * least + RESOLVED * size:
        seen = f"along an appended column its values change by {best:.8g}, its gradients give {said:.8g}"
        raise _refused(work.problem, f"{seen}; {WRONG}")
    for t in () if work.linear else (1e-4, 1e-2, 1.0):
        there = work.value(np.hstack([Y, t**0.5 * v]))
        below, terms = value + t * slope - there, max(abs(there), abs(value), abs(t * slope))
        if below > RESOLVED * abs(t * slope) + ROUNDINGS * EPS * terms:
            raise _refused(
                work.problem,
                f"along an appended column it falls {below:.1e} below its tangent, so that it is not convex; take a "
                "solver for one rank, such as TrustRegions",
            )


def _refused(problem: Problem, why: str) -> InvalidInputError:
    return InvalidInputError(f"{problem.cost._name} has no certificate: {why}.")
