"""The compiled engine of LORETA-r: bilinear costs, several terms a step."""

from __future__ import annotations

from dataclasses import dataclass

from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.bilinear import BILINEAR, BilinearEngine, loop_of
from rmopt.engines.gauged import GaugedState
from rmopt.kernels import batch_sgd
from rmopt.kernels.terms import Terms
from rmopt.retractions import SecondOrder


@dataclass(frozen=True)
class BatchEngine(BilinearEngine):
    """The same steps as `ReferenceEngine` on batches of up to k terms, for `SecondOrder`.

    Costs O(nnz·(k + r) + k²r) a step for r ≤ k terms with nnz non-zeros in all (Shalit et al. 2012,
    Algorithm 3, needs O((n + m)(k + r)²)).
    """

    runs = BILINEAR | {"retraction": (SecondOrder,)}

    @classmethod
    def refuses(cls, problem: Problem, retraction: Retraction, how: int) -> str | None:
        """Return why there are no compiled steps of so many terms, or None (see `Engine.refuses`)."""
        k = problem.manifold.rank  # type: ignore[attr-defined]
        if 1 < how <= k:
            return None
        return f"a step looks at {how} terms, and the compiled kernel at no more than k = {k}"

    def loop(
        self, state: GaugedState, terms: Terms, position: int, probe_every: int, growth_limit: float
    ) -> tuple[int, int]:
        loop, code = loop_of(batch_sgd, self.cost.loss)
        return loop(
            code, state.factors, state.counters, *self._rows, terms, self.batch_size,
            position, probe_every, growth_limit,
        )  # fmt: skip
