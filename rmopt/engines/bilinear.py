"""The compiled engine of LORETA-1: bilinear costs on the fixed-rank manifold, one sparse rank-one term a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from rmopt.core.ambient import Array
from rmopt.costs.bilinear import Bilinear
from rmopt.costs.losses import Loss
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.kernels import bilinear_sgd as kernel
from rmopt.kernels.bilinear_sgd import Rows, Terms
from rmopt.manifolds.fixed_rank_embedded import FixedRankEmbedded


@dataclass(frozen=True)
class BilinearEngine(GaugedEngine):
    """The same steps as `ReferenceEngine`, in O(nnz·k + k²) each.

    Attributes
    ----------
    manifold : FixedRankEmbedded
    cost : Bilinear
    retraction : Retraction
        One with a compiled twin.
    """

    manifold: FixedRankEmbedded
    cost: Bilinear
    _rows: tuple[Rows, Rows] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", rows_of(self.cost))

    def terms(self, schedule: Array, etas: Array) -> Terms:
        """Return rows, targets and step sizes."""
        return Terms(*self.cost.resolve(schedule.ravel()), etas)

    def loop(
        self, state: GaugedState, terms: Terms, position: int, probe_every: int, growth_limit: float
    ) -> tuple[int, int]:
        """Do steps from `position` on (see `GaugedEngine.loop`)."""
        loop, code = loop_of(self.cost.loss)
        return loop(
            self.retraction.kernel, code, state.factors, state.counters, *self._rows, terms,
            position, probe_every, growth_limit,
        )  # fmt: skip


def rows_of(cost: Bilinear) -> tuple[Rows, Rows]:
    """Return the left and right rows of a cost in the form of the kernels."""
    left, right = cost.left, cost.right
    return Rows(left.indptr, left.indices, left.data), Rows(right.indptr, right.indices, right.data)


def loop_of(loss: Loss) -> tuple[Callable, int]:
    """Return the compiled loop for a loss, and the code of the loss in it."""
    if loss.code is not None:
        return kernel.run, loss.code
    return _custom_loop(loss), -1


@cache
def _custom_loop(loss: Loss) -> Callable:
    return kernel.loop_for(loss.slope)
