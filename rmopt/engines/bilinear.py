"""The compiled engines of LORETA: bilinear costs, one sparse rank-one term a step or several."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from rmopt.core.ambient import Array
from rmopt.core.matrices import sound
from rmopt.costs.bilinear import Bilinear, BilinearSum, TripletSum
from rmopt.costs.losses import Loss, with_slope
from rmopt.engines.base import Supports
from rmopt.engines.gauged import SYMMETRIC, Gauge, GaugedEngine, GaugedState
from rmopt.errors import InvalidInputError
from rmopt.kernels import batch_sgd, bilinear_sgd
from rmopt.kernels.meeting import Meeting
from rmopt.kernels.steps import Rows, StepRows
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import MetricProjection, Orthographic, SecondOrder, SecondOrderPSD

BILINEAR = {
    "cost": (BilinearSum, TripletSum),
    "manifold": (FixedRankEmbedded,),
    "loss": (Loss,),
    "retraction": (SecondOrder, MetricProjection, Orthographic),
}


@dataclass(frozen=True)
class BilinearEngine(GaugedEngine):
    """The same steps as `ReferenceEngine`, in O(nnz·k + k²) each.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.
    """

    supports: ClassVar[Supports] = BILINEAR

    manifold: FixedRankEmbedded
    cost: Bilinear
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", rows_of(self.cost.left, self.cost.right))

    def terms(self, schedule: Array, etas: Array) -> StepRows:
        return StepRows(*self.cost.resolve(schedule.ravel()), etas)

    def loop(
        self,
        state: GaugedState,
        terms: StepRows,
        position: int,
        probe_every: int,
        growth_limit: float,
        meeting: Meeting | None,
    ) -> tuple[int, int]:
        kernel = self.retraction.kernel
        kinds = (None, kernel) if self.gauge is SYMMETRIC else (kernel, None)
        return with_slope(self.cost.loss, bilinear_sgd.run)(
            *kinds, state.factors, state.counters, *self._rows, terms,
            position, probe_every, growth_limit, meeting,
        )  # fmt: skip


@dataclass(frozen=True)
class SymmetricBilinearEngine(BilinearEngine):
    """`BilinearEngine` on positive semidefinite matrices, for `SecondOrderPSD`."""

    supports = BILINEAR | {"manifold": (PSDFixedRank,), "retraction": (SecondOrderPSD,)}
    gauge: ClassVar[Gauge] = SYMMETRIC

    manifold: PSDFixedRank  # type: ignore[assignment]


@dataclass(frozen=True)
class BatchEngine(BilinearEngine):
    """The steps of LORETA-r: those of `ReferenceEngine` on batches of up to k terms, for `SecondOrder`.

    Costs O(nnz·(k + r) + k²r) a step for r ≤ k terms with nnz non-zeros in all (Shalit et al. 2012,
    Algorithm 3, needs O((n + m)(k + r)²)).
    """

    supports = BILINEAR | {"retraction": (SecondOrder,)}

    @classmethod
    def refuses(cls, reference: Any) -> str | None:
        count, k = reference.batch_size, reference.manifold.rank
        fits = 1 < count <= k
        return None if fits else f"a step looks at {count} terms, and the compiled kernel at 2 to k = {k}"

    def loop(
        self,
        state: GaugedState,
        terms: StepRows,
        position: int,
        probe_every: int,
        growth_limit: float,
        meeting: Meeting | None,
    ) -> tuple[int, int]:
        return with_slope(self.cost.loss, batch_sgd.run)(
            state.factors, state.counters, *self._rows, terms, self.batch_size,
            position, probe_every, growth_limit, meeting,
        )  # fmt: skip


def rows_of(left: Any, right: Any) -> tuple[Rows, Rows]:
    """Return the rows of two sparse arrays (CSR) in the form of the kernels, which write where the indices say."""
    for name, rows in (("left", left), ("right", right)):
        is_csr = sp.issparse(rows) and rows.format == "csr"
        if not is_csr or rows.dtype != float or rows.indices.dtype != np.int32:
            raise InvalidInputError(
                f"{name} is no CSR array of float64 now; make the cost again from the data."
            )
        sound(name, rows)
    return Rows(left.indptr, left.indices, left.data), Rows(right.indptr, right.indices, right.data)
