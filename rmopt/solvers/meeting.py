"""How workers come to the mean of their points: as points, or as the factors that compiled engines keep."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.manifold import Manifold
from rmopt.engines.base import Engine
from rmopt.engines.gauged import Each, Gauge, GaugedEngine, GaugedState, Pairs
from rmopt.manifolds.means import mean_on


class AtPoints:
    """Workers bring the points of their engines, and the mean is that of the manifold (see `projected_mean`)."""

    def __init__(self, manifold: Manifold) -> None:
        self.mean: Callable[[list[Any], Array], Any] = mean_on(manifold)

    def brought(self, engine: Engine, state: Any) -> Any:
        """Return what a worker brings; its state may be used up."""
        return engine.dump(state)

    def joined(self, pairs: Pairs, weights: Sequence[Array], each: Each = map) -> Iterable[Any]:
        """Return the means of pairs; `each` maps functions, in threads say."""
        return each(lambda task: self.mean(*task), list(zip(pairs, weights, strict=True)))

    def taken(self, engine: Engine, state: Any, mean: Any) -> Any:
        """Return the state in which a worker goes on from the mean."""
        return engine.moved(state, mean)

    def point(self, mean: Any) -> Any:
        """Return the point that a mean is."""
        return mean


class AtFactors(AtPoints):
    """Workers bring factors with the inverses of their Gram matrices, and leave with such: nothing is factorised."""

    def __init__(self, gauge: Gauge, rank: int) -> None:
        self.gauge, self.rank = gauge, rank

    def brought(self, engine: Engine, state: Any) -> Any:
        return engine.handed_over(state).factors

    def joined(self, pairs: Pairs, weights: Sequence[Array], each: Each = map) -> Iterable[Any]:
        return self.gauge.merged(pairs, weights, self.rank, each) if pairs else []

    def taken(self, engine: Engine, state: Any, mean: Any) -> Any:
        for own, part in zip(state.factors, mean, strict=True):
            np.copyto(own, part)
        counters = self.gauge.fresh_counters(mean)
        counters.counts[0] = state.updates
        return engine.taken_over(GaugedState(state.factors, counters, state.steps, state.renewals + 1))

    def point(self, mean: Any) -> Any:
        return self.gauge.point_of(mean, self.rank)


def meeting_of(engines: Sequence[Engine], manifold: Any) -> AtPoints:
    """Return how the workers of some engines meet."""
    if all(isinstance(engine, GaugedEngine) for engine in engines):
        return AtFactors(engines[0].gauge, manifold.rank)  # type: ignore[attr-defined]
    return AtPoints(manifold)
