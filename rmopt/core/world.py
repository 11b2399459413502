"""The processes that run one program together: all agents in one process, or in several that exchange points."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import InvalidInputError, MissingCapabilityError

# Seconds for which a process polls for messages without a pause, and the longest pause after that.
BUSY, PAUSE = 1e-3, 0.05
# Another process may have this core. A sleep of no time would take 50 microseconds.
_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
Ways = Sequence[tuple[int, int]]
Messages = Mapping[int, Array]


class World:
    """The processes that run agents together: here this one alone, and more in a subclass.

    Attributes
    ----------
    rank, size : int
        The number of this process, and of all.
    sent : int array, shape (2,)
        Messages and bytes that this process sent to others so far.

    Examples
    --------
    >>> from rmopt.solvers import World
    >>> world = World()
    >>> world.rank, world.size, world.mine(n_agents=3), world.everywhere("here")
    (0, 1, [0, 1, 2], ['here'])
    """

    rank: int = 0
    size: int = 1

    def __init__(self) -> None:
        self.sent = np.zeros(2, dtype=np.int64)

    def deliver(self, messages: Messages, ways: Ways, like: Array, n_agents: int) -> Callable[[], Messages]:
        """Send messages of local agents along edges (from, to), and return a function that waits for the others'.

        All messages are arrays like `like`. A message to several agents of one process is sent once. Received
        messages are returned with those of local agents, by sender, and may be overwritten.
        """
        return lambda: messages

    def everywhere(self, value: Any) -> list[Any]:
        """Return the values of all processes, in their order."""
        return [value]

    def owners(self, n_agents: int) -> Array:
        """Return the process of each agent: consecutive agents together, evenly."""
        return np.arange(n_agents) * self.size // n_agents

    def mine(self, n_agents: int) -> list[int]:
        """Return the agents of this process."""
        return np.flatnonzero(self.owners(n_agents) == self.rank).tolist()

    def gather(self, things: Mapping[int, Any], n_agents: int) -> list[Any]:
        """Return the objects of all agents, such as points, in every process."""
        known = {agent: thing for part in self.everywhere(dict(things)) for agent, thing in part.items()}
        return [known[agent] for agent in range(n_agents)]

    def total(self, numbers: Any) -> Array:
        """Return the sum of some numbers over all processes."""
        return np.sum(self.everywhere(np.asarray(numbers, dtype=float)), axis=0)

    def first(self, value: Any) -> Any:
        """Return the value of process 0."""
        return self.everywhere(value)[0]

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages and bytes sent between processes so far. All processes must call this together."""
        messages, sent = self.total(self.sent)
        return int(messages), int(sent)

    def check_alike(self, about: Mapping[str, Any]) -> None:
        """Refuse values that differ between processes. All processes call this together, before they begin.

        Raises
        ------
        InvalidInputError
            In all processes. The message names the value that differs, and the process.
        """
        first, *others = self.everywhere(dict(about))
        for process, other in enumerate(others, 1):
            for name, value in first.items():
                if (there := other.get(name)) != value:
                    raise InvalidInputError(
                        f"{name} of process {process} is {there}, and that of process 0 is {value}; give all "
                        "processes the same."
                    )


ONE_PROCESS = World()


@cache
def _communicator(MPI: Any) -> Any:
    """Return a separate communicator of all processes, so that foreign messages cannot be taken for ours."""
    communicator = MPI.COMM_WORLD.Dup()
    if communicator.Get_size() > 1:
        # The others would wait forever for a process that fails.
        sys.excepthook = partial(_end_all, communicator, sys.excepthook)
    return communicator


def _end_all(communicator: Any, tell: Callable[..., Any], *error: Any) -> None:
    """Report an uncaught error and end all processes. If all fail alike, only the first one reports."""
    time.sleep(min(communicator.Get_rank(), 1))
    tell(*error)
    sys.stderr.flush()
    communicator.Abort(1)


class MPIWorld(World):
    """The processes that ``mpiexec`` started together.

    An uncaught error of one process, Ctrl-C included, is reported and ends all of them. So let a script raise errors
    instead of calling ``sys.exit``, after which the others would wait. Signals also reach a waiting process.

    Raises
    ------
    MissingCapabilityError
        If mpi4py or an MPI library is not installed.

    Examples
    --------
    >>> from rmopt.solvers import MPIWorld
    >>> world = MPIWorld()  # doctest: +SKIP
    >>> world.mine(n_agents=6) if world.rank == 1 else None  # doctest: +SKIP
    [2, 3]
    """

    def __init__(self) -> None:
        super().__init__()
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise MissingCapabilityError(
                f'agents on separate processes need mpi4py and an MPI library ({error}); pip install "rmopt[mpi]".'
            ) from error
        self._mpi, self.communicator = MPI, _communicator(MPI)
        self.rank, self.size = self.communicator.Get_rank(), self.communicator.Get_size()

    def deliver(self, messages: Messages, ways: Ways, like: Array, n_agents: int) -> Callable[[], Messages]:
        owners = self.owners(n_agents)
        away = [(agent, other) for agent, other in ways if owners[agent] != owners[other]]
        sending = {(agent, int(owners[other])) for agent, other in away if owners[agent] == self.rank}
        receiving = {
            agent: np.empty(like.shape, like.dtype) for agent, other in away if owners[other] == self.rank
        }
        waiting = [
            self.communicator.Irecv(buffer, source=int(owners[agent]), tag=agent)
            for agent, buffer in receiving.items()
        ]
        for agent, target in sorted(sending):
            message = np.ascontiguousarray(messages[agent])
            waiting.append(self.communicator.Isend(message, dest=target, tag=agent))
            self.sent += (1, message.nbytes)

        def receive() -> Messages:
            self._wait(waiting)
            return {**messages, **receiving}

        return receive

    def everywhere(self, value: Any) -> list[Any]:
        own = np.frombuffer(self._mpi.pickle.dumps(value), dtype=np.uint8)
        sizes = np.empty(self.size, dtype=np.int64)
        self._wait([self.communicator.Iallgather(np.array([own.size]), sizes)])
        starts = np.cumsum(sizes) - sizes
        values = np.empty(sizes.sum(), dtype=np.uint8)
        self._wait([self.communicator.Iallgatherv(own, [values, sizes, starts, self._mpi.BYTE])])
        return [self._mpi.pickle.loads(part) for part in np.split(values, starts[1:])]

    def _wait(self, requests: list[Any]) -> None:
        """Wait for messages of other processes, open to signals: MPI's own loop does not react to them."""
        begun = time.monotonic()
        while not self._mpi.Request.Testall(requests):
            waited = time.monotonic() - begun
            _yield_core() if waited < BUSY else time.sleep(min(waited / 10, PAUSE))
