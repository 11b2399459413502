"""Minimisation over the positive semidefinite cone by growing factors: ILA, with a certificate."""

from collections import deque
from dataclasses import astuple, dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize

from rmopt.core.ambient import Array
from rmopt.core.arguments import CheckedValue, bounded, by_keyword, flag, instance, integer, number, optional
from rmopt.core.low_rank import PSDPoint, point_of
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator
from rmopt.costs.convex import ConvexCost
from rmopt.errors import MissingCapabilityError
from rmopt.manifolds.factors import PSDFactors
from rmopt.manifolds.psd_fixed_rank import PSDMatrices
from rmopt.solvers.batch.descent import GradientSolver
from rmopt.solvers.batch.trust_regions import TrustRegions
from rmopt.solvers.certified.certificate import Certificate, by_lower_bound, checked_lower_bound
from rmopt.solvers.certified.relaxation import Relaxation, certify, is_relaxation
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.stop import Converged

# Rounds in a row without progress after which a run gives up.
PATIENCE = 3
# Columns of the factor that are shorter than this share of the longest are dropped.
NEGLIGIBLE = 1e-8
# Shares of the longest column below which dropping columns is tried.
SHORT = (0.1, 1e-2, 1e-3, 1e-4, 1e-6)
# Candidates with more than this share of their length in the span of the factor are useless.
OVERLAP = 0.5
# The accuracy of a round, relative to the remaining eigenvalue of the previous round.
INEXACTNESS = 1e-2
# A round is idle if it lowers the objective by less than this share of the desired gap, and the gap by less than a
# tenth.
IDLE = 1e-2
# Differences below this share of the objective are rounding.
ROUNDING = 1e-13
# With a known trace a round adds at most this many columns, by a step halved at most this many times.
STEEPEST, HALVINGS = 6, 12


@dataclass(frozen=True, eq=False)
class CertifiedResult(Result):
    """The end of a run, with a bound on its distance from the global minimum.

    Attributes
    ----------
    certificate : Certificate
    tol : float
        The desired relative gap.
    """

    certificate: Certificate = field(repr=False, kw_only=True)
    tol: float = field(kw_only=True)

    @property
    def gap(self) -> float:
        """An upper bound on f(W) − f(W*)."""
        return self.certificate.gap

    @property
    def lower_bound(self) -> float:
        """A lower bound on f(W*)."""
        return self.certificate.lower_bound

    @property
    def is_global(self) -> bool:
        """Whether the gap is at most `tol` times f(W) minus its lower bound, or with a known trace times `excess`."""
        return self.certificate.is_global(self.tol)


@dataclass(frozen=True)
class RankState:
    """A factor with its certificate, and the directions for the next round.

    Attributes
    ----------
    Y : array, shape (p, d)
    certificate : Certificate
    values, vectors : array
        Positive eigenvalues of −∇f and their eigenvectors.
    added : int
        Columns that the last round added.
    idle : int
        Consecutive rounds without progress.
    steps, updates : int
        Rounds done, and how many of them lowered the objective.
    """

    varying: ClassVar[tuple[str, ...]] = ("Y", "values", "vectors")

    Y: Array
    certificate: Certificate
    values: Array
    vectors: Array
    added: int = 0
    idle: int = 0
    steps: int = 0
    updates: int = 0


class Rounds(NamedTuple):
    """The tools of a run's rounds."""

    cost: ConvexCost
    manifold: PSDMatrices
    max_rank: int
    seed: int


@by_keyword
class RankIncremental(CheckedValue, Solver):
    """ILA: local optimisation of a factor that grows until a certificate shows that the minimum is global.

    Minimises a convex f over all positive semidefinite W = YYᵀ (Mirzazadeh et al. 2015, Algorithm 1). The rank of the
    problem's manifold does not matter: the run passes through manifolds of all ranks, and the result may have rank 0.

    Each round adds leading eigenvectors of −∇f, found by Lanczos iterations, scales old and new columns, minimises
    locally, and drops columns that vanished. It lowers the objective up to rounding, so that a loop of growing and
    shrinking can only be rounding, which ends the run. The strategies that the paper compares are ``columns=1``
    (1, 2, 4, … a round), also with ``factor=1`` (always one, Zhang et al. 2012) and ``rescale=False`` (Journée et al.
    2010), and ``inner=None``, boosting without local optimisation.

    On manifolds of factors with a known trace (`Elliptope`, `Oblique`, `Stiefel`, `Sphere`; see `certify`) it takes
    any cost of YYᵀ that is linear or declared convex. The run begins at the rank of the manifold, with local
    optimisation until it is stationary. Then each round adds the eigenvectors of all negative eigenvalues of S, up to
    six and to `columns`, by a step that lowers the cost. `factor` and `rescale` are not used.

    Parameters
    ----------
    columns, factor : int
        The largest number of columns that the first round adds, and the factor between rounds. With few columns local
        optimisation is hard and soon outdated.
    inner : Solver or None
        The local optimiser, on matrices of one rank. With few steps a round that lacks columns ends soon. The rounds
        set the length of the gradient, instead of its own tolerances. None means new columns and their scale alone.
    tol : float
        The relative gap at which the minimum counts as global.
    max_iter : int
    max_rank : int, optional
        The largest rank, by default the size of W.
    rescale : bool
        Whether to scale the old columns as well as the new ones.

    See Also
    --------
    TrustRegions : for a known rank.
    certify : the certificate alone.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.costs import Trace
    >>> from rmopt.manifolds import Elliptope, PSDFixedRank
    >>> from rmopt.solvers import RankIncremental
    >>> X = np.random.default_rng(0).standard_normal((20, 50))
    >>> problem = Problem(PSDFixedRank(20, 1), MetricRegression(X) + Trace(0.5))
    >>> result = RankIncremental().run(problem)
    >>> result.point.rank, result.is_global
    (20, True)
    >>> A = np.ones((5, 5)) - np.eye(5)
    >>> max_cut = autograd_cost(lambda Y: 0.25 * (A * (Y @ Y.T)).sum())
    >>> result = RankIncremental().run(Problem(Elliptope(5, 2), max_cut), random_state=0)
    >>> result.is_global, round(result.lower_bound, 3)
    (True, -1.25)
    """

    columns: Annotated[int, bounded(integer, 1)] = 64
    factor: Annotated[int, bounded(integer, 1)] = 2
    inner: Annotated[Any, optional(instance, Solver, "such as TrustRegions(), or None")] = field(
        default=TrustRegions(max_iter=20)
    )
    tol: Annotated[float, bounded(number, least=0)] = 1e-6
    max_iter: Annotated[int, integer] = 1000
    max_rank: Annotated[int | None, optional(integer, 1)] = None
    rescale: Annotated[bool, flag] = True

    def prepare(self, problem: Problem, seed: int) -> Rounds | Relaxation:
        cost, manifold = problem.cost, problem.manifold
        if is_relaxation(problem):
            return Relaxation(problem, self.max_rank, seed)
        if not isinstance(cost, ConvexCost) or not isinstance(manifold, PSDMatrices):
            raise MissingCapabilityError(
                f"RankIncremental cannot run {type(cost).__name__} on {manifold}: it needs a ConvexCost "
                "(rmopt.costs) on PSDFixedRank or PolarPSD, or a manifold that `certify` names."
            )
        checked_lower_bound(cost)
        most = int(min(self.max_rank or np.inf, manifold.shape[0]))
        return Rounds(cost, manifold, most, seed)

    def begin(self, work: Rounds | Relaxation, point: Any) -> RankState:
        if isinstance(work, Relaxation):
            return self._stair(work, work.rows(point), False)
        return self._certified(work.cost, shrunk(point.factor()), self.columns)

    def advance(self, work: Rounds | Relaxation, state: RankState, steps: int) -> RankState:
        """Do one round, with a separate seed for its local optimiser."""
        if steps == 0:
            return state
        new, added = self._climbed(work, state) if isinstance(work, Relaxation) else self._grown(work, state)
        before = state.certificate
        fall, rounding = before.objective - new.certificate.objective, ROUNDING * abs(before.objective)
        # The objective may rise by rounding while the gap falls.
        if fall < -rounding or (fall < 0.0 and new.certificate.gap >= before.gap):
            new, fall = state, 0.0
        wanted = self.tol * before.excess
        progress = fall > max(IDLE * wanted, rounding)
        idle = 0 if progress or new.certificate.gap < 0.9 * before.gap else state.idle + 1
        return replace(new, added=added, idle=idle, steps=state.steps + 1, updates=state.updates + 1)

    def _climbed(self, work: Relaxation, state: RankState) -> tuple[RankState, int]:
        """Return the state after a step along descent directions, if any, and steps of the local optimiser."""
        Y, U = state.Y, state.vectors[:, : max(work.max_rank - state.Y.shape[1], 0)]
        if U.shape[1]:
            Y = _stepped(work, Y, U, state)
        local, point = work.local(Y), work.point(Y)
        seed = int(generator(work.seed, Stream.INNER, state.steps).integers(2**63))
        if isinstance(self.inner, GradientSolver):
            enough = self._gradient_tolerance(work, state, Y)
            end = deque(self.inner.with_gradient_norm(enough)._states(local, point, seed), 1).pop()
            return self._stair(work, work.rows(end.point), end.norm <= enough or end.stuck), U.shape[1]
        if self.inner is not None:
            point = self.inner.run(local, point, random_state=seed).point
        return self._stair(work, work.rows(point), True), U.shape[1]

    def _stair(self, work: Relaxation, Y: Array, ready: bool) -> RankState:
        """Return the state at a factor, with descent directions if it is `ready` for them, stationary."""
        columns = min(self.columns, STEEPEST) if ready else 1
        certificate, values, vectors = certify(work.local(Y), work.point(Y), columns, self.tol)
        kept = (values > 0.0) & (ready and not certificate.is_global(self.tol))
        return RankState(Y, certificate, values[kept], vectors[:, kept])

    def _grown(self, work: Rounds, state: RankState) -> tuple[RankState, int]:
        """Return the state after more columns and steps of the local optimiser, and the number of new columns."""
        cost, Y, U = work.cost, state.Y, self._fresh(work, state)
        start = better = self._mixed(cost, Y, U)
        if self.inner is not None and start.shape[1] > 0:
            better = self._minimised(work, state, start)
            if not np.isfinite(better).all():
                raise self.diverged(state.steps)
            level = cost.at(start).value
            if cost.at(better).value > level + ROUNDING * abs(level):
                better = start
        kept = _pruned(cost, shrunk(better))
        # Orthogonal columns cost some digits.
        kept = better if kept.shape == better.shape else kept
        more = self.columns if self.factor == 1 else self.factor * max(U.shape[1], 1)
        return self._certified(cost, kept, more), U.shape[1]

    def _minimised(self, work: Rounds, state: RankState, Y: Array) -> Array:
        """Return a better factor from the local optimiser, in the geometry of factors if possible."""
        seed = int(generator(work.seed, Stream.INNER, state.steps).integers(2**63))
        if not isinstance(self.inner, GradientSolver):
            local = Problem(work.manifold.with_rank(Y.shape[1]), work.cost)
            return self.inner.run(local, point_of(Y), random_state=seed).point.factor()
        # There columns may vanish.
        local, enough = Problem(PSDFactors(*Y.shape), work.cost), self._gradient_tolerance(work, state, Y)
        if local.manifold.norm(Y, local.riemannian_gradient(Y)) <= enough:
            # Second-order solvers would search for a way out of a saddle here.
            return Y
        return deque(self.inner.with_gradient_norm(enough)._states(local, Y, seed), 1).pop().point

    def _certified(self, cost: ConvexCost, Y: Array, columns: int) -> RankState:
        certificate, values, vectors = by_lower_bound(
            cost, Y, min(columns, len(Y)), max(1e-10, 0.05 * self.tol)
        )
        if not np.isfinite(astuple(certificate)).all():
            raise self.diverged(0)
        return RankState(Y, certificate, values, vectors)

    def _fresh(self, work: Rounds, state: RankState) -> Array:
        """Return the candidate columns that leave the span of Y, as many as may be added.

        Without local optimisation those inside the span are also progress.
        """
        Y, U = state.Y, state.vectors
        room = max(work.max_rank - Y.shape[1], 0)
        if self.inner is None:
            return U[:, :room] if work.max_rank < len(Y) else U
        if Y.shape[1]:
            Q = np.linalg.qr(Y)[0]
            inside = Q.T @ U
            U = (U - Q @ inside)[:, (inside**2).sum(axis=0) <= OVERLAP]
        return np.linalg.qr(U[:, :room])[0]

    def _mixed(self, cost: ConvexCost, Y: Array, U: Array) -> Array:
        """Return [√a Y, √b U] with the a, b ≥ 0 that minimise f(a YYᵀ + b UUᵀ)."""
        if not U.shape[1]:
            return Y
        function, first = cost.mixture([Y, U]), np.array([1.0, 0.0])
        value, slopes = function(first)
        excess = value - checked_lower_bound(cost)
        # In units in which the slope is that of a step of length 1.
        unit = float(np.vdot(Y, Y)) / U.shape[1] if Y.shape[1] else 1e-3 * abs(excess / slopes[1])
        units = np.array([1.0, unit])

        def scaled(weights: Array) -> tuple[float, Array]:
            value, slopes = function(weights * units)
            return value, slopes * units

        old = (0.0, None) if self.rescale and Y.shape[1] else (1.0, 1.0)
        best = minimize(scaled, first, jac=True, method="L-BFGS-B", bounds=[old, (0.0, None)])
        a, b = best.x * units if best.fun <= value else first
        # A little of each direction, as a start for the local optimiser.
        b = max(b, 1e-8 * max(float((Y**2).sum(axis=0).max(initial=0.0)), 1e-8 * unit))
        if self.inner is None and function(np.array([a, b]))[0] > value:
            return Y
        return np.hstack([np.sqrt(a) * Y, np.sqrt(b) * U]) if a > 0.0 else np.sqrt(b) * U

    def _gradient_tolerance(self, work: Rounds | Relaxation, state: RankState, start: Array) -> float:
        """Return the desired length of the factor's gradient in this round."""
        now = state.certificate
        wanted = self.tol * now.excess / max(now.trace_bound, 1e-300)
        # If columns may not be added, the remaining eigenvalue does not measure the present ones.
        left = now.eigenvalue if start.shape[1] < work.max_rank else 0.0
        # If no direction is left, the remaining gap comes from present columns.
        last = 1.0 if state.vectors.shape[1] else 0.1
        length = max(INEXACTNESS * left, 0.2 * wanted) * 0.1**state.idle
        return 2.0 * last * length * float(np.linalg.norm(start, 2))

    def point(self, work: Rounds | Relaxation, state: RankState) -> Any:
        return work.point(state.Y) if isinstance(work, Relaxation) else point_of(state.Y)

    def start(self, problem: Problem, rng: np.random.Generator) -> Any:
        """Return the zero matrix, or a random point if the trace is known."""
        if is_relaxation(problem):
            return problem.manifold.random_point(rng)
        p = problem.manifold.shape[0]  # type: ignore[attr-defined]
        return PSDPoint(np.zeros((p, 0)), np.zeros((0, 0)))

    def check_start(self, problem: Problem, point: Any) -> str | None:
        manifold: Any = problem.manifold
        if is_relaxation(problem):
            # Points of any rank, except arrays, which have none.
            if np.ndim(point) == len(manifold.shape):
                manifold = manifold.with_rank(np.shape(point)[manifold.rank_axis])
            return manifold.check_point(point)
        if isinstance(point, PSDPoint) and point.rank == 0 and point.Q.shape == (manifold.shape[0], 0):
            return None
        rank = point.rank if isinstance(point, PSDPoint) else manifold.rank
        return manifold.with_rank(max(1, min(rank, manifold.shape[0]))).check_point(point)

    def finished(self, work: Rounds | Relaxation, state: RankState) -> str | None:
        now, limit = state.certificate, work.max_rank
        gap = f"relative gap of {now.relative_gap:.1e}"
        if now.is_global(self.tol):
            return Converged(f"a certified {gap}")
        # A round ends after a few steps, even before its columns are at their minimum.
        if state.idle and state.Y.shape[1] == limit < len(state.Y) and state.added == 0:
            return f"max_rank = {limit}"
        return f"{PATIENCE} rounds without progress, at a {gap}" if state.idle >= PATIENCE else None

    def observe(self, work: Rounds | Relaxation, state: RankState) -> dict[str, float]:
        """Return rank, objective, the remaining eigenvalue and the certified gap."""
        now = state.certificate
        return {
            "rank": state.Y.shape[1], "objective": now.objective, "eigenvalue": now.eigenvalue, "gap": now.gap
        }  # fmt: skip

    def conclude(self, result: Result, work: Rounds | Relaxation, state: RankState) -> CertifiedResult:
        return CertifiedResult(**vars(result), certificate=state.certificate, tol=self.tol)


def _stepped(work: Relaxation, Y: Array, U: Array, state: RankState) -> Array:
    """Return the factor after a step along appended directions that lowers f by half of S's prediction."""
    value, steep = state.certificate.objective, float(np.sum(state.values[: U.shape[1]]))
    t = 0.5 * (state.certificate.trace_bound / U.shape[1]) ** 0.5
    for _ in range(HALVINGS):
        end = work.beside(Y, t * U)
        if value - work.value(end) >= 0.5 * t**2 * steep:
            break
        t *= 0.5
    return end


def _pruned(cost: ConvexCost, Y: Array) -> Array:
    """Return the factor without as many of its shortest columns as possible without raising the objective.

    Superfluous columns of a factor vanish only slowly.
    """
    if Y.shape[1] < 2:
        return Y
    lengths = np.linalg.norm(Y, axis=0)
    shorter = [kept for share in SHORT if not (kept := lengths > share * lengths.max()).all()]
    level = cost.at(Y).value if shorter else 0.0
    fits = (kept for kept in shorter if cost.at(Y[:, kept]).value <= level + ROUNDING * abs(level))
    return Y[:, next(fits, slice(None))]


def shrunk(Y: Array) -> Array:
    """Return a factor of the same product with orthogonal columns, without those that vanished."""
    if not Y.shape[1]:
        return Y
    Q, lengths, _ = np.linalg.svd(Y, full_matrices=False)
    kept = lengths > NEGLIGIBLE * lengths[0]
    return Q[:, kept] * lengths[kept]
