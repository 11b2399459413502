"""The compiled engine of coordinate descent on `LogDetTriplet`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import lapack

from rmopt.core.ambient import Array
from rmopt.core.retraction import Retraction
from rmopt.costs.log_det import LogDetTriplet
from rmopt.costs.losses import Loss
from rmopt.engines.base import Supports, diverged
from rmopt.engines.coordinate import CoordinateDescentEngine, blocks_of
from rmopt.errors import DivergedError
from rmopt.kernels import log_det, pending
from rmopt.kernels.log_det import Metric, Samples, Weights
from rmopt.kernels.pending import Changing
from rmopt.kernels.steps import FINISHED, NOT_FINITE, STEP_REFUSED, Rows
from rmopt.manifolds import PositiveDefinite
from rmopt.retractions import Additive, SchurExponential

# The inverses, and the scores of a few triplets, are tested after this many steps.
PROBE_EVERY = 100
PROBED_TRIPLETS = 8


@dataclass
class MetricState:
    """W with its inverses and scores, and counters."""

    metric: Metric
    steps: int = 0
    renewals: int = 0

    @property
    def updates(self) -> int:
        """Number of steps that moved W."""
        return int(self.metric.counts[0])


@dataclass(frozen=True)
class LogDetEngine(CoordinateDescentEngine):
    """Steps of `CoordinateReference` on `LogDetTriplet`, compiled: O(nnz(X) + d²) and the triplets of feature k.

    Scores and inverses are updated. Every step tests one entry of W W⁻¹, and occasionally a random vector and some
    triplets are tested. If they are off, the inverse is recomputed by a Cholesky factorisation.

    Attributes
    ----------
    manifold : PositiveDefinite
    cost : LogDetTriplet
        With a built-in loss.
    retraction : Additive or SchurExponential
    search : int
        `FIXED`, `FRACTION` or `EXACT` of `rmopt.kernels.row_column`.

    References
    ----------
    Atzmon, Shalit and Chechik, Metric learning using block coordinate descent, draft (2015).
    """

    supports: ClassVar[Supports] = {
        "cost": (LogDetTriplet,),
        "manifold": (PositiveDefinite,),
        "loss": (Loss,),
        "retraction": (Additive, SchurExponential),
    }

    manifold: PositiveDefinite
    cost: LogDetTriplet
    retraction: Retraction
    search: int
    samples: Samples = field(init=False, repr=False)
    weights: Weights = field(init=False, repr=False)

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        loss = reference.cost.loss
        return f"the loss {loss} is not one of the built-in ones" if loss.code is None else None

    def __post_init__(self) -> None:
        cost = self.cost
        object.__setattr__(self, "samples", samples_of(cost.rows, cost.triplets, cost.is_dense))
        assert cost.loss.code is not None
        weights = Weights(
            cost.loss.code, cost.alpha, cost.beta, cost.kappa, cost.sparsity, float(cost.distance)
        )
        object.__setattr__(self, "weights", weights)

    @np.errstate(all="ignore")
    def load(self, point: Array) -> MetricState:
        d = self.cost.n_blocks
        W = np.array(point, dtype=float, order="C")
        cone = pending.of(np.empty((d, d)))
        barrier = pending.of(np.empty((d, d) if self.cost.kappa > 0.0 else (0, 0)))
        metric = Metric(
            W=W, cone=cone, barrier=barrier, scores=self.cost.scores(W), residuals=np.full(d, np.inf),
            sizes=np.zeros(d), counts=np.zeros(2, dtype=np.int64),
        )  # fmt: skip
        self._invert(metric)
        return MetricState(metric)

    # Overflow is reported once, by the length of the gradient.
    @np.errstate(all="ignore")
    def advance(self, state: MetricState, schedule: Array, etas: Array) -> MetricState:
        blocks, etas = blocks_of(schedule, etas, self.cost.n_blocks), np.ascontiguousarray(etas, dtype=float)
        position, first = 0, state.steps
        while True:
            position, reason = log_det.run(
                state.metric, self.samples, self.weights, self.retraction.kernel, self.search, blocks, etas,
                position, PROBE_EVERY,
            )  # fmt: skip
            state.steps = first + position
            if reason == FINISHED:
                return state
            if reason == NOT_FINITE:
                raise diverged(state.steps, etas[position])
            if reason == STEP_REFUSED or self._inverses_drifted(state):
                self._invert(state.metric, state.steps)
                state.renewals += 1
            self._look_after_scores(state)
            state.metric.counts[1] = 0

    def dump(self, state: MetricState) -> Array:
        return state.metric.W.copy()

    def gradients_of(self, state: MetricState) -> tuple[Array, Array]:
        return state.metric.residuals, state.metric.sizes

    def _inverses_drifted(self, state: MetricState) -> bool:
        """Return whether the stored inverses are off at a vector of random signs."""
        metric = state.metric
        signs = np.random.default_rng(state.steps).integers(2, size=len(metric.W)) * 2.0 - 1.0
        moved = np.empty_like(signs)
        for inverse, shift in self._inverses(metric):
            pending.apply(inverse, signs, moved)
            off = np.abs(metric.W @ moved + shift * moved - signs).max()
            lengths = float(np.linalg.norm(metric.W)) * float(np.linalg.norm(moved))
            if off > max(log_det.DRIFT, log_det.ROUNDINGS * lengths):
                return True
        return False

    def _look_after_scores(self, state: MetricState) -> None:
        """Compare the scores of a few triplets with new ones, and recompute all if they drifted."""
        metric = state.metric
        some = np.random.default_rng(state.steps).integers(len(metric.scores), size=PROBED_TRIPLETS)
        true = self.cost.scores(metric.W, some)
        if np.abs(metric.scores[some] - true).max() > log_det.DRIFT * max(1.0, np.abs(true).max()):
            metric.scores[:] = self.cost.scores(metric.W)

    def _inverses(self, metric: Metric) -> list[tuple[Changing, float]]:
        both = [(metric.cone, 0.0)]
        return both + ([(metric.barrier, self.cost.kappa)] if self.cost.kappa > 0.0 else [])

    def _invert(self, metric: Metric, steps: int = 0) -> None:
        """Recompute the inverses, in their own memory."""
        for inverse, shift in self._inverses(metric):
            base = inverse.base
            base[:] = metric.W
            if shift > 0.0:
                base[np.diag_indices_from(base)] += shift
            # LAPACK gets the transpose, and fills the half that steps read.
            _, failed = lapack.dpotrf(base.T, lower=0, overwrite_a=1, clean=0)
            if failed:
                raise DivergedError(
                    f"W is singular to machine precision after {steps} steps, so the run cannot go on. Likely "
                    "causes: a fixed step size that is too large, or no barrier (alpha = 0).",
                    steps,
                )
            lapack.dpotri(base.T, lower=0, overwrite_c=1)
            inverse.waiting[0] = 0


def samples_of(rows: Any, triplets: Array, dense: bool) -> Samples:
    """Return rows (CSR) and triplets in the form of the kernels, as an array if `dense`."""
    no_indices = np.empty(0, dtype=np.int32)
    count = rows.shape[0]
    q, p, n = (np.ascontiguousarray(column, dtype=np.int32) for column in triplets.T)
    if dense:
        none = Rows(no_indices, no_indices, np.empty(0))
        return Samples(rows.toarray(), none, none, np.zeros(count + 1, dtype=np.int64), no_indices, q, p, n)
    columns = rows.tocsc()
    where = np.concatenate([q, p, n])
    order = np.argsort(where, kind="stable")
    first_of = np.searchsorted(where[order], np.arange(count + 1)).astype(np.int64)
    by_row, by_column = (Rows(each.indptr, each.indices, each.data) for each in (rows, columns))
    return Samples(np.empty((0, 0)), by_row, by_column, first_of, (order % len(q)).astype(np.int32), q, p, n)
