"""Rounds of rank-incremental optimisation over the positive semidefinite cone."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize

from rmopt.core.ambient import Array
from rmopt.core.arguments import integer
from rmopt.core.psd import PSDPoint
from rmopt.costs.convex import ConvexCost
from rmopt.errors import DivergedError
from rmopt.solvers.certificate import Certificate, certify, checked_lower_bound
from rmopt.solvers.growth import Growth

# Columns of the factor that are shorter than this share of the longest are dropped.
NEGLIGIBLE = 1e-8
# Shares of the longest column below which columns are tried to be left out.
SHORT = (0.1, 1e-2, 1e-3, 1e-4, 1e-6)
# Candidates with more than this share of their length in the span of the factor bring nothing new.
OVERLAP = 0.5
# How exactly a round is solved, relative to the eigenvalue that the round before it left.
INEXACTNESS = 1e-2
# A round is idle that lowers the objective by less than this share of the gap that is asked for, and the gap
# itself by less than a tenth.
IDLE = 1e-2
# Differences of the objective below this share of it are rounding.
ROUNDING = 1e-13


# From a factor, a bound on the length of its gradient and a seed to a better factor.
Inner = Callable[[Array, float, int], Array]


@dataclasses.dataclass(frozen=True)
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

    See Also
    --------
    RankEngine : moves it on.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> from rmopt.costs import Trace
    >>> from rmopt.solvers import certify
    >>> from rmopt.solvers.rank_rounds import RankState
    >>> Y = np.array([[1.0], [0.0]])
    >>> cost = MetricRegression(np.diag([2.0, 1.0])) + Trace(0.1)
    >>> state = RankState(Y, *certify(cost, Y))
    >>> state.steps, state.values.round(2).tolist()
    (0, [1.9])
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


@dataclasses.dataclass(frozen=True)
class RankEngine:
    """Algorithm 1 of Mirzazadeh et al. (2015): round by round.

    A round looks along the leading positive eigenvectors U of −∇f(YYᵀ), finds the best a YYᵀ + b UUᵀ, minimises from
    [√a Y, √b U] over factors, and drops columns that vanished. A round lowers the objective but for rounding, so that
    no loop of growing and shrinking can arise but one of rounding, which is counted in `idle`.

    Attributes
    ----------
    cost : ConvexCost
    inner : callable or None
        Minimises over factors of one size; None: no local optimisation (boosting).
    growth : Growth
    tol : float
        The relative gap at which the run is done.
    max_rank : int
    rescale : bool
        Search a and b; otherwise a = 1 (Journée et al. 2010).

    See Also
    --------
    RankIncremental : the solver that makes one.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> from rmopt.core import PSDPoint
    >>> from rmopt.costs import Trace
    >>> from rmopt.solvers import OneByOne
    >>> from rmopt.solvers.rank_rounds import RankEngine
    >>> cost = MetricRegression(np.diag([2.0, 1.0])) + Trace(0.1)
    >>> engine = RankEngine(cost, None, OneByOne(), 1e-6, 2)
    >>> state = engine.load(PSDPoint(np.eye(2)[:, :1], np.eye(1)))
    >>> engine.round(state, 0).Y.shape
    (2, 2)
    """

    cost: ConvexCost
    inner: Inner | None
    growth: Growth
    tol: float
    max_rank: int
    rescale: bool = True

    def load(self, point: PSDPoint) -> RankState:
        """Return a state at a point of any rank, with its certificate and directions."""
        return self._certified(
            shrunk(point.factor()), integer("columns of the growth", self.growth.first(), 1)
        )

    def round(self, state: RankState, seed: int) -> RankState:
        """Do one round; the seed is for `inner`."""
        Y, U = state.Y, self._fresh(state)
        start = self._mixed(Y, U)
        better = start
        if self.inner is not None and start.shape[1] > 0:
            better = self.inner(start, self._gradient_tolerance(state, start), seed)
            if not np.isfinite(better).all():
                raise _not_finite(state.steps)
            level = self.cost.at(start).value
            if self.cost.at(better).value > level + ROUNDING * abs(level):
                better = start
        kept = self._pruned(shrunk(better))
        # Orthogonal columns cost some digits.
        kept = better if kept.shape == better.shape else kept
        found = self._certified(kept, integer("columns of the growth", self.growth.after(U.shape[1]), 1))
        if _is_worse(found.certificate, state.certificate):
            found = dataclasses.replace(
                found, Y=Y, certificate=state.certificate, values=state.values, vectors=state.vectors
            )
        before, after = state.certificate, found.certificate
        fall, wanted = before.objective - after.objective, self.tol * before.excess
        progress = fall > max(IDLE * wanted, ROUNDING * abs(before.objective))
        idle = 0 if progress or after.gap < 0.9 * before.gap else state.idle + 1
        return dataclasses.replace(
            found, added=U.shape[1], idle=idle, steps=state.steps + 1, updates=state.updates + 1
        )

    def _pruned(self, Y: Array) -> Array:
        """Return the factor without its shortest columns, as many as can go without raising the objective.

        Where a factor has more columns than the minimum needs, the superfluous ones vanish only slowly.
        """
        if Y.shape[1] < 2:
            return Y
        lengths = np.sqrt((Y**2).sum(axis=0))
        level = None
        for share in SHORT:
            kept = lengths > share * lengths.max()
            if kept.all():
                continue
            level = self.cost.at(Y).value if level is None else level
            if self.cost.at(Y[:, kept]).value <= level + ROUNDING * abs(level):
                return Y[:, kept]
        return Y

    def _certified(self, Y: Array, n_candidates: int) -> RankState:
        certificate, values, vectors = certify(
            self.cost, Y, min(n_candidates, len(Y)), max(1e-10, 0.05 * self.tol)
        )
        if not np.isfinite(dataclasses.astuple(certificate)).all():
            raise _not_finite(0)
        return RankState(Y, certificate, values, vectors)

    def _fresh(self, state: RankState) -> Array:
        """Return the candidate columns that leave the span of Y, as many as may be added.

        Without local optimisation those inside the span are progress too.
        """
        Y, U = state.Y, state.vectors
        room = min(self.max_rank, len(Y)) - Y.shape[1]
        if self.inner is None:
            return U[:, : max(room, 0)] if self.max_rank < len(Y) else U
        if Y.shape[1]:
            Q = np.linalg.qr(Y)[0]
            inside = Q.T @ U
            U = (U - Q @ inside)[:, (inside**2).sum(axis=0) <= OVERLAP]
        return np.linalg.qr(U[:, : max(room, 0)])[0]

    def _mixed(self, Y: Array, U: Array) -> Array:
        """Return [√a Y, √b U] with the a, b ≥ 0 that minimise f(a YYᵀ + b UUᵀ)."""
        if not U.shape[1]:
            return Y
        function = self.cost.mixture([Y, U])
        fixed = not (self.rescale and Y.shape[1])
        bounds = [(1.0, 1.0) if fixed else (0.0, None), (0.0, None)]
        value, slopes = function(np.array([1.0, 0.0]))
        excess = value - checked_lower_bound(self.cost)
        # In units in which the slope is that of a step of length 1.
        unit = float(np.vdot(Y, Y)) / U.shape[1] if Y.shape[1] else 1e-3 * abs(excess / slopes[1])

        def scaled(weights: Array) -> tuple[float, Array]:
            value, slopes = function(weights * [1.0, unit])
            return value, slopes * [1.0, unit]

        found = minimize(scaled, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds)
        a, b = found.x * [1.0, unit] if found.fun <= value else (1.0, 0.0)
        # A little of each direction, for the local optimiser to hold on to.
        b = max(b, 1e-8 * max(float((Y**2).sum(axis=0).max(initial=0.0)), 1e-8 * unit))
        if self.inner is None and function(np.array([a, b]))[0] > value:
            return Y
        return np.hstack([np.sqrt(a) * Y, np.sqrt(b) * U]) if a > 0.0 else np.sqrt(b) * U

    def _gradient_tolerance(self, state: RankState, start: Array) -> float:
        """Return how short the factor's gradient is to become in this round."""
        now = state.certificate
        wanted = self.tol * now.excess / max(now.trace_bound, 1e-300)
        # Columns that may not be added leave an eigenvalue that says nothing of those that are there.
        left = now.eigenvalue if start.shape[1] < self.max_rank else 0.0
        eigenvalue = max(INEXACTNESS * left, 0.2 * wanted) * 0.1**state.idle
        if not state.vectors.shape[1]:
            # What is left comes from columns that are there already.
            eigenvalue *= 0.1
        return 2.0 * eigenvalue * float(np.linalg.norm(start, 2))


def _not_finite(step: int) -> DivergedError:
    return DivergedError(
        f"round {step} left the finite numbers; scale the data (try unit rows or standardised features), or choose "
        "another local optimiser.",
        step,
    )


def _is_worse(new: Certificate, old: Certificate) -> bool:
    """Return whether the objective rose; by rounding alone it may, where the gap falls."""
    rise = new.objective - old.objective
    return rise > ROUNDING * abs(old.objective) or (rise > 0.0 and new.gap >= old.gap)


def shrunk(Y: Array) -> Array:
    """Return a factor of the same product with orthogonal columns, without those that vanished."""
    if not Y.shape[1]:
        return Y
    Q, lengths, _ = np.linalg.svd(Y, full_matrices=False)
    kept = lengths > NEGLIGIBLE * lengths[0]
    return Q[:, kept] * lengths[kept]
