"""The compiled engine of label ranking."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from problems.ranking import kernels
from problems.ranking.cost import LabelRanking, WarpRanking
from rmopt.core.ambient import Array
from rmopt.engines import GaugedEngine, GaugedState, register
from rmopt.engines.base import Supports
from rmopt.engines.bilinear import rows_of
from rmopt.kernels.steps import Rows
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import MetricProjection, Orthographic, SecondOrder


class RankingTerms(NamedTuple):
    """One entry per step: the row, the seed of its draws (WARP alone), the step size."""

    rows: Array
    draws: Array
    etas: Array


@register
@dataclass(frozen=True)
class RankingEngine(GaugedEngine):
    """The same steps as `ReferenceEngine`, with one row per step.

    Costs O(nnz·k + k² + L k) per step with L labels, or with `WarpRanking` O(nnz·k + k²) and k for every drawn label.
    """

    supports: ClassVar[Supports] = {
        "cost": (LabelRanking, WarpRanking),
        "manifold": (FixedRankEmbedded,),
        "retraction": (SecondOrder, MetricProjection, Orthographic),
    }

    manifold: FixedRankEmbedded
    cost: LabelRanking
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", rows_of(self.cost.X, self.cost.Y))

    def terms(self, schedule: Array, etas: Array) -> RankingTerms:
        """Return rows, draws and step sizes."""
        columns = schedule.reshape(-1, self.cost.term_width).astype(np.int64)
        rows, draws = (np.ascontiguousarray(columns[:, i]) for i in (0, -1))
        return RankingTerms(rows, draws, etas)

    def loop(self, state: GaugedState, terms: RankingTerms, *about: Any) -> tuple[int, int]:
        sampling = kernels.WARP if type(self.cost) is WarpRanking else kernels.EXACT
        return kernels.run(
            self.retraction.kernel, sampling, state.factors, state.counters, *self._rows, terms, *about,
        )  # fmt: skip
