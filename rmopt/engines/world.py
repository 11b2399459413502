"""Where agents live: all in one process, or spread over several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from rmopt.core.ambient import Array


class World(ABC):
    """The processes that run agents together.

    Attributes
    ----------
    rank, size : int
        The number of this process, and of all.
    sent : int array, shape (2,)
        Messages and bytes that this process sent to partners so far.
    """

    rank: int = 0
    size: int = 1

    def __init__(self) -> None:
        self.sent = np.zeros(2, dtype=np.int64)

    def owners(self, n_agents: int) -> Array:
        """Return the process of each agent: consecutive agents together, evenly."""
        return np.arange(n_agents) * self.size // n_agents

    def mine(self, n_agents: int) -> list[int]:
        """Return the agents of this process."""
        return np.flatnonzero(self.owners(n_agents) == self.rank).tolist()

    @abstractmethod
    def exchange(
        self, points: Mapping[int, Array], partners: Mapping[int, Sequence[int]], n_agents: int
    ) -> Callable[[], Mapping[int, Array]]:
        """Send the points of agents here to their partners elsewhere; return how to receive those of the partners."""

    @abstractmethod
    def gather(self, points: Mapping[int, Array], n_agents: int) -> list[Array]:
        """Return the points of all agents, in every process."""

    @abstractmethod
    def total(self, numbers: Any) -> Array:
        """Return the sum of some numbers over all processes."""

    @abstractmethod
    def least(self, number: int) -> int:
        """Return the least of the processes' numbers."""

    @abstractmethod
    def first(self, value: Any) -> Any:
        """Return the value of process 0."""

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages and bytes that all processes sent to partners so far; all processes ask together."""
        messages, sent = self.total(self.sent)
        return int(messages), int(sent)

    def guard(self) -> AbstractContextManager[Any]:
        """Return what to do when this process fails: nobody may wait for it forever."""
        return nullcontext()


class OneProcess(World):
    """All agents in this process."""

    def exchange(
        self, points: Mapping[int, Array], partners: Mapping[int, Sequence[int]], n_agents: int
    ) -> Callable[[], Mapping[int, Array]]:
        """Return the points as they are before the step."""
        return lambda: points

    def gather(self, points: Mapping[int, Array], n_agents: int) -> list[Array]:
        """Return the points in their order."""
        return [points[agent] for agent in range(n_agents)]

    def total(self, numbers: Any) -> Array:
        """Return the numbers."""
        return np.asarray(numbers, dtype=float)

    def least(self, number: int) -> int:
        """Return the number."""
        return number

    def first(self, value: Any) -> Any:
        """Return the value."""
        return value


ONE_PROCESS = OneProcess()
