"""Worlds of several processes for tests: in threads, and one that says what others would say."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rmopt.solvers import World


class Alike(World):
    """The first of several processes, of which the others say what it says, but for some words."""

    def __init__(self, size: int, **other: Any) -> None:
        super().__init__()
        self.size, self.other = size, other

    def everywhere(self, value: Any) -> list[Any]:
        known = isinstance(value, dict) and set(self.other) <= set(value)
        return [value] + [{**value, **self.other} if known else value] * (self.size - 1)


class Room(World):
    """The processes of a world, in threads of one process that share a table."""

    def __init__(self, rank: int, size: int, table: dict[Any, Any], barrier: threading.Barrier) -> None:
        super().__init__()
        self.rank, self.size, self.table, self.barrier = rank, size, table, barrier

    @classmethod
    def together(cls, size: int, work: Callable[[World], Any]) -> list[Any]:
        barrier, table = threading.Barrier(size, timeout=30), dict[Any, Any]()
        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(lambda rank: work(cls(rank, size, table, barrier)), range(size)))

    def shared(self, things: dict[Any, Any]) -> dict[Any, Any]:
        self.table.update(things)
        self.barrier.wait()
        everything = dict(self.table)
        self.barrier.wait()
        self.table.clear()
        self.barrier.wait()
        return everything

    def deliver(self, messages: Any, ways: Any, like: Any, n_agents: int) -> Any:
        owners, sent = self.owners(n_agents), self.shared(dict(messages))
        assert all(message.nbytes == like.nbytes for message in messages.values())
        arrived = {agent: sent[agent].copy() for agent, other in ways if owners[other] == self.rank}
        return lambda: dict(messages) | arrived

    def everywhere(self, value: Any) -> list[Any]:
        # A copy is sent, as between processes: the sender goes on to write into its own.
        values = self.shared({self.rank: copy.deepcopy(value)})
        return [copy.deepcopy(values[rank]) for rank in range(self.size)]
