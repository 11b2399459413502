"""The compiled engine of label ranking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from problems.ranking import kernels
from problems.ranking.cost import LabelRanking, WarpRanking
from rmopt.core import Retraction
from rmopt.engines import GaugedEngine, GaugedState
from rmopt.kernels.terms import Rows
from rmopt.manifolds import FixedRankEmbedded

Array = np.ndarray


class RankingTerms(NamedTuple):
    """One entry per step: the row, the seed of its draws (WARP alone), the step size."""

    rows: Array
    draws: Array
    etas: Array


@dataclass(frozen=True)
class RankingEngine(GaugedEngine):
    """The same steps as `ReferenceEngine`, one row a step.

    Costs O(nnz·k + k² + L k) a step with L labels; with `WarpRanking` O(nnz·k + k²) and k for every label drawn.

    Attributes
    ----------
    manifold : FixedRankEmbedded
    cost : LabelRanking
    retraction : Retraction
        One with a compiled twin.
    """

    manifold: FixedRankEmbedded
    cost: LabelRanking
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        X, Y = self.cost.X, self.cost.Y
        rows = Rows(X.indptr, X.indices, X.data), Rows(Y.indptr, Y.indices, Y.data)
        object.__setattr__(self, "_rows", rows)

    def terms(self, schedule: Array, etas: Array) -> RankingTerms:
        """Return rows, draws and step sizes."""
        columns = schedule.reshape(-1, self.cost.term_width).astype(np.int64)
        rows, draws = (np.ascontiguousarray(columns[:, i]) for i in (0, -1))
        return RankingTerms(rows, draws, etas)

    def loop(
        self, state: GaugedState, terms: RankingTerms, position: int, probe_every: int, growth_limit: float
    ) -> tuple[int, int]:
        """Do steps from `position` on (see `GaugedEngine.loop`)."""
        sampling = kernels.WARP if isinstance(self.cost, WarpRanking) else kernels.EXACT
        return kernels.run(
            self.retraction.kernel, sampling, state.factors, state.counters, *self._rows, terms,
            position, probe_every, growth_limit,
        )  # fmt: skip


def ranking_engine(
    cost: LabelRanking, manifold: Any, retraction: Retraction, batch_size: int
) -> RankingEngine | str:
    """Return the compiled engine, or what keeps the problem from it."""
    if not isinstance(manifold, FixedRankEmbedded):
        return f"label ranking is compiled for FixedRankEmbedded alone, not for {manifold}"
    if retraction.kernel is None:
        return f"the retraction {retraction} has no compiled twin (`kernel` is None)"
    if batch_size != 1:
        return f"a step looks at {batch_size} rows, and the compiled kernel at one"
    return RankingEngine(manifold, cost, retraction)
