"""Momentum (Polyak 1964) as a direction."""

from typing import Any

from rmopt.solvers import Direction


class Momentum(Direction):
    """The negative gradient, and a share of the direction before."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def begin(self, work: Any, state: Any) -> Any:
        return work.manifold.zero_vector(state.point), False

    def __call__(self, work: Any, state: Any, downhill: Any) -> Any:
        kept, known = state.memory
        return downhill + kept * self.share if known else downhill

    def after(self, move: Any, memory: Any) -> Any:
        return move.old_direction, True

    def fresh(self, memory: Any) -> bool:
        return not memory[1]
