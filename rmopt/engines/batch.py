"""The compiled engine of LORETA-r: bilinear costs, several terms a step."""

from __future__ import annotations

from dataclasses import dataclass

from rmopt.engines.bilinear import BilinearEngine, loop_of
from rmopt.engines.gauged import GaugedState
from rmopt.kernels import batch_sgd
from rmopt.kernels.terms import Terms


@dataclass(frozen=True)
class BatchEngine(BilinearEngine):
    """The same steps as `ReferenceEngine` on batches of up to k terms, for `SecondOrder`.

    Costs O(nnz·(k + r) + k²r) a step for r ≤ k terms with nnz non-zeros in all (Shalit et al. 2012,
    Algorithm 3, needs O((n + m)(k + r)²)).

    Attributes
    ----------
    manifold : FixedRankEmbedded
    cost : Bilinear
    retraction : SecondOrder
    batch_size : int
    """

    batch_size: int = 1

    def loop(
        self, state: GaugedState, terms: Terms, position: int, probe_every: int, growth_limit: float
    ) -> tuple[int, int]:
        """Do steps from `position` on (see `GaugedEngine.loop`)."""
        loop, code = loop_of(batch_sgd, self.cost.loss)
        return loop(
            code, state.factors, state.counters, *self._rows, terms, self.batch_size,
            position, probe_every, growth_limit,
        )  # fmt: skip
