"""Where agents live: all in one process, or spread over several, where only points travel, between neighbours."""

import atexit
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.points import arrays_of, rebuilt
from rmopt.engines.factor_means import Swap
from rmopt.errors import InvalidInputError, MissingCapabilityError, RmoptError

# Seconds for which a process asks without a pause whether its messages have arrived; the longest pause after that;
# and for which messages may still be under way from a process that has ended.
BUSY, PAUSE, LATE = 1e-3, 0.05, 2.0
# Another process may have this core. A sleep of no time would take 50 microseconds.
_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
# Pairs of things, and how many agents each of the two stands for, or how large their shares are.
Join = Callable[[list[tuple[Any, Any]], list[tuple[int, int]]], Iterable[Any]]
# The first or second thing of a pair, which of the two it is (0, 1), the two numbers, and how to swap arrays with the
# process that has the other one.
Deal = Callable[[Any, int, tuple[int, int], Swap], Any]


class World(ABC):
    """The processes that run agents together.

    Attributes
    ----------
    rank, size : int
        The number of this process, and of all.
    sent : int array, shape (2,)
        Messages and bytes that this process sent to partners so far.
    swaps : bool
        Whether it has `swap`, by which two processes deal the work of a mean.

    See Also
    --------
    OneProcess : one process.
    MPIWorld : processes of MPI.

    Examples
    --------
    >>> from rmopt.solvers import OneProcess, World
    >>> world = OneProcess()
    >>> isinstance(world, World), world.rank, world.size, world.owners(n_agents=3).tolist()
    (True, 0, 1, [0, 0, 0])
    """

    rank: int = 0
    size: int = 1
    swaps: ClassVar[bool] = False

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
    def deliver(
        self, messages: Mapping[int, Array], ways: Sequence[tuple[int, int]], size: int, n_agents: int
    ) -> Mapping[int, Array]:
        """Send messages of agents along some ways (from, to); return those that are for agents here, by their sender.

        All messages are of so many bytes. One to several agents of a process travels there once. What is returned is
        written over.
        """

    @abstractmethod
    def everywhere(self, value: Any) -> list[Any]:
        """Return the values of all processes, in their order; what follows is made of it."""

    def gather(self, points: Mapping[int, Array], n_agents: int) -> list[Array]:
        """Return the points of all agents, in every process."""
        found = {agent: point for part in self.everywhere(dict(points)) for agent, point in part.items()}
        return [found[agent] for agent in range(n_agents)]

    def joined(
        self,
        own: Mapping[int, Any],
        n_agents: int,
        join: Join,
        shares: Sequence[int] | None = None,
        deal: Deal | None = None,
    ) -> Any:
        """Return what the things of all agents become, joined in pairs along a tree, in every process.

        Agents 0 and 1, 2 and 3, …; then the first two and the next two, until one thing is left: the same pairs, in
        the same order, however agents are spread. A process sends and receives one thing at each level of the tree.

        Parameters
        ----------
        own : mapping from int to thing
            Of the agents here: points or states, made of float64 arrays of the same shapes for all agents.
        n_agents : int
        join : callable
            Of a list of pairs of things, and of the numbers of agents that each of the two stands for; returns what
            each pair becomes.
        shares : sequence of int, optional
            For how much each agent counts; once unless given.
        deal : callable, optional
            Joins a pair whose things two processes have, each of which does a part of the work. Without it each gets
            the other thing, and does all.
        """
        shares = [1] * n_agents if shares is None else shares
        owners, held, span = self.owners(n_agents), dict(own), 1
        template = next(iter(own.values()))
        size = sum(part.nbytes for part in arrays_of(template))
        while span < n_agents:
            # What the agents from `low` to before `high` became, and those from `high` on, become one.
            pairs = _pairs(n_agents, span)
            ways = [way for pair in pairs for way in _ways(owners, *pair, span)]
            dealt = self._partners(ways, n_agents) if deal is not None and self.swaps else {}
            ways = [way for way in ways if owners[way[0]] not in dealt]
            messages = {agent: _message(held[agent // span * span]) for agent, _ in ways if agent in own}
            for agent, message in self.deliver(messages, ways, size, n_agents).items():
                held.setdefault(agent // span * span, _thing(message, template))

            counts = {low: _counts(shares, low, span) for low, _ in pairs}
            here = [pair for pair in pairs if pair[0] in held and pair[1] in held]
            joined = join([(held[low], held[high]) for low, high in here], [counts[low] for low, _ in here])
            then = {low: one for (low, _), one in zip(here, joined, strict=True)}
            if self.rank in dealt and deal is not None:
                # The pair of which one thing is here.
                [(low, place)] = [
                    (low, int(high in held)) for low, high in pairs if (low in held) != (high in held)
                ]
                then[low] = deal(
                    held[low + place * span], place, counts[low], partial(self.swap, dealt[self.rank])
                )
            alone = {
                low: one for low, one in held.items() if low % (2 * span) == 0 and low + span >= n_agents
            }
            held = alone | then
            span *= 2
        return held[0]

    def _partners(self, ways: Sequence[tuple[int, int]], n_agents: int) -> Mapping[int, int]:
        """Return the partners of processes of which two send to each other, and to and from nobody else."""
        owners, known = self.owners(n_agents), dict[int, set[tuple[int, bool]]]()
        for sender, receiver in ((int(owners[agent]), int(owners[other])) for agent, other in ways):
            known.setdefault(sender, set()).add((receiver, True))
            known.setdefault(receiver, set()).add((sender, False))
        only = {one: found for one, found in known.items() if len({other for other, _ in found}) == 1}
        # Both ways for both.
        return {
            one: other
            for one, found in only.items()
            for other, _ in found
            if len(found) == 2 and other in only
        }

    def swap(self, partner: int, parts: Sequence[Array], into: Sequence[Array]) -> None:
        """Send arrays to a process, and fill others with those that it sends; both call it.

        Worlds that have it set `swaps`.
        """
        raise NotImplementedError

    def total(self, numbers: Any) -> Array:
        """Return the sum of some numbers over all processes."""
        return np.sum(self.everywhere(np.asarray(numbers, dtype=float)), axis=0)

    def least(self, number: int) -> int:
        """Return the least of the processes' numbers."""
        return min(self.everywhere(number))

    def check_alike(self, about: Mapping[str, Any]) -> None:
        """Refuse what differs between processes and must not; all ask together, before they begin.

        Raises
        ------
        InvalidInputError
            In all processes; the message says what differs, and where.
        """
        first, *others = self.everywhere(dict(about))
        for process, other in enumerate(others, 1):
            for name, value in first.items():
                if (found := other.get(name)) != value:
                    known = (one if isinstance(one, str) else shown(one) for one in (found, value))
                    raise InvalidInputError(
                        f"{name} of process {process} is {next(known)}, and that of process 0 is {next(known)}; give "
                        "all processes the same."
                    )

    def first(self, value: Any) -> Any:
        """Return the value of process 0."""
        return self.everywhere(value)[0]

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages and bytes that all processes sent to partners so far; all processes ask together."""
        messages, sent = self.total(self.sent)
        return int(messages), int(sent)

    def guard(self) -> AbstractContextManager[Any]:
        """Return what to do when this process fails: nobody may wait for it forever."""
        return nullcontext()


def tree_of(shares: Sequence[int]) -> list[tuple[int, int, tuple[int, int]]]:
    """Return the pairs in which `World.joined` joins all, in that order, and the two numbers of each."""
    spans = [2**level for level in range(max(0, len(shares) - 1).bit_length())]
    return [
        (low, high, _counts(shares, low, span)) for span in spans for low, high in _pairs(len(shares), span)
    ]


def _pairs(n: int, span: int) -> list[tuple[int, int]]:
    return [(low, low + span) for low in range(0, n - span, 2 * span)]


def _counts(shares: Sequence[int], low: int, span: int) -> tuple[int, int]:
    return sum(shares[low : low + span]), sum(shares[low + span : low + 2 * span])


def _ways(owners: Array, low: int, high: int, span: int) -> Iterator[tuple[int, int]]:
    """Yield from which agents to which ones the two things of a pair travel, to processes that lack one."""
    end = min(high + span, len(owners))
    for begin, stop, there, beyond in ((low, high, high, end), (high, end, low, high)):
        for process in set(owners[begin:stop]) - set(owners[there:beyond]):
            first = int(np.argmax(owners[begin:stop] == process))
            yield there + first % (beyond - there), begin + first


def _message(thing: Any) -> Array:
    """Return the bytes of a thing's arrays."""
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8).ravel() for part in arrays_of(thing)])


def _thing(message: Array, template: Any) -> Any:
    """Return the thing of which `_message` is made."""
    shapes = [part.shape for part in arrays_of(template)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    parts = np.split(message.view(float), ends)
    return rebuilt(template, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])


class OneProcess(World):
    """All agents in this process.

    See Also
    --------
    MPIWorld : agents in several processes.

    Examples
    --------
    >>> from rmopt.solvers import OneProcess
    >>> world = OneProcess()
    >>> world.mine(n_agents=3), world.everywhere("here")
    ([0, 1, 2], ['here'])
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def exchange(
        self, points: Mapping[int, Array], partners: Mapping[int, Sequence[int]], n_agents: int
    ) -> Callable[[], Mapping[int, Array]]:
        """Return the points as they are before the step."""
        return lambda: points

    def deliver(
        self, messages: Mapping[int, Array], ways: Sequence[tuple[int, int]], size: int, n_agents: int
    ) -> Mapping[int, Array]:
        return messages

    def everywhere(self, value: Any) -> list[Any]:
        return [value]


ONE_PROCESS = OneProcess()


@cache
def _own_communicators(mpi: Any) -> int:
    """Return the key under which a communicator keeps those of its worlds."""
    return int(mpi.Comm.Create_keyval())


class MPIWorld(World):
    """The processes of an MPI communicator.

    Where one process fails, all end, and it says why: at an error that nobody caught, at ``sys.exit``, at a signal,
    and where it ends while others wait for it. Ctrl-C and SIGTERM also reach a process that waits.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm, optional
        All processes that ``mpiexec`` started, unless given.

    Raises
    ------
    MissingCapabilityError
        When mpi4py or an MPI library is not installed.

    See Also
    --------
    OneProcess : without MPI.

    References
    ----------
    Dalcin and Fang, mpi4py: status update after 12 years of development, Computing in Science & Engineering 23
    (2021), https://doi.org/10.1109/MCSE.2021.3083216.

    Examples
    --------
    >>> from rmopt.solvers import MPIWorld
    >>> world = MPIWorld()  # doctest: +SKIP
    >>> world.mine(n_agents=6) if world.rank == 1 else None  # doctest: +SKIP
    [2, 3]
    """

    swaps = True

    def __init__(self, communicator: Any = None) -> None:
        super().__init__()
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise MissingCapabilityError(
                f'agents on separate processes need mpi4py and an MPI library ({error}); pip install "rmopt[mpi]".'
            ) from error
        self._mpi = MPI
        given = MPI.COMM_WORLD if communicator is None else communicator
        self.rank, self.size = given.Get_rank(), given.Get_size()
        self._others = [process for process in range(self.size) if process != self.rank]
        # Messages of others cannot be taken for ours. There are few communicators to have, so all worlds of one share
        # two: the second is where a process says that it ends.
        known: Any = given.Get_attr(_own_communicators(MPI))
        own: Any = known or (given.Dup(), given.Dup())
        self.communicator, self._ends = own
        if known is None:
            given.Set_attr(_own_communicators(MPI), own)
            if self.size > 1:
                # Where one process fails outside of `guard`, the others would wait for it forever.
                sys.excepthook = partial(self._end_all, sys.excepthook)
                atexit.register(self._leave)

    def __repr__(self) -> str:
        return f"MPIWorld({self.size} processes)"

    def exchange(
        self, points: Mapping[int, Array], partners: Mapping[int, Sequence[int]], n_agents: int
    ) -> Callable[[], Mapping[int, Array]]:
        """Start sending and receiving; the function that is returned waits for the partners' points."""
        ways = [(agent, other) for agent, others in partners.items() for other in others]
        return self._under_way(points, ways, n_agents, lambda: np.empty_like(next(iter(points.values()))))

    def deliver(
        self, messages: Mapping[int, Array], ways: Sequence[tuple[int, int]], size: int, n_agents: int
    ) -> Mapping[int, Array]:
        """Send and receive, and return when all has arrived."""
        return self._under_way(messages, ways, n_agents, lambda: np.empty(size, dtype=np.uint8))()

    def _under_way(
        self,
        messages: Mapping[int, Array],
        ways: Sequence[tuple[int, int]],
        n_agents: int,
        empty: Callable[[], Array],
    ) -> Callable[[], Mapping[int, Array]]:
        """Start to send along ways (from, to) and to receive; return how to wait for what arrives."""
        owners = self.owners(n_agents)
        away = [(agent, other) for agent, other in ways if owners[agent] != owners[other]]
        sending = {(agent, int(owners[other])) for agent, other in away if owners[agent] == self.rank}
        receiving = {agent: empty() for agent, other in away if owners[other] == self.rank}
        waiting = [
            self.communicator.Irecv(buffer, source=int(owners[other]), tag=other)
            for other, buffer in receiving.items()
        ]
        for agent, target in sorted(sending):
            message = np.ascontiguousarray(messages[agent])
            waiting.append(self.communicator.Isend(message, dest=target, tag=agent))
            self.sent += (1, message.nbytes)

        def receive() -> Mapping[int, Array]:
            self._wait(waiting, {int(owners[other]) for other in receiving})
            return {**messages, **receiving}

        return receive

    def swap(self, partner: int, parts: Sequence[Array], into: Sequence[Array]) -> None:
        waiting = [self.communicator.Irecv(one, source=partner, tag=tag) for tag, one in enumerate(into)]
        for tag, part in enumerate(parts):
            message = np.ascontiguousarray(part)
            waiting.append(self.communicator.Isend(message, dest=partner, tag=tag))
            self.sent += (1, message.nbytes)
        self._wait(waiting, {partner})

    def everywhere(self, value: Any) -> list[Any]:
        own = np.frombuffer(self._mpi.pickle.dumps(value), dtype=np.uint8)
        sizes = np.empty(self.size, dtype=np.int64)
        self._wait([self.communicator.Iallgather(np.array([own.size]), sizes)], self._others)
        starts = np.cumsum(sizes) - sizes
        found = np.empty(sizes.sum(), dtype=np.uint8)
        self._wait([self.communicator.Iallgatherv(own, [found, sizes, starts, self._mpi.BYTE])], self._others)
        return [self._mpi.pickle.loads(part) for part in np.split(found, starts[1:])]

    def _wait(self, requests: list[Any], others: Iterable[int] = ()) -> None:
        """Wait for messages of other processes, unless one of these has ended.

        MPI itself would wait in a loop that no signal reaches, and for a process that is gone.
        """
        begun, gone_at = time.monotonic(), 0.0
        while not self._mpi.Request.Testall(requests):
            now = time.monotonic()
            if now < begun + BUSY:
                _yield_core()
                continue
            time.sleep(min((now - begun) / 10, PAUSE))
            gone = next((other for other in others if self._ends.Iprobe(source=other)), None)
            if gone is None:
                continue
            gone_at = gone_at or now
            if now > gone_at + LATE:
                raise RmoptError(
                    f"process {gone} has ended, and process {self.rank} still waits for it; what it said comes "
                    "before this, and where it said nothing, let all processes make the same calls."
                )

    def _leave(self) -> None:
        """Say that this process ends, and stay until all do."""
        if self._mpi.Is_finalized():
            return
        sent, received = np.zeros(1, dtype=np.uint8), np.empty((len(self._others), 1), dtype=np.uint8)
        waiting = [self._ends.Isend(sent, dest=other) for other in self._others]
        waiting += [
            self._ends.Irecv(one, source=other) for one, other in zip(received, self._others, strict=True)
        ]
        try:
            self._wait(waiting)
        except BaseException:
            self.communicator.Abort(1)

    def _end_all(self, tell: Callable[..., Any], *error: Any) -> None:
        """Tell of an error that nobody caught, and end all processes."""
        tell(*error)
        sys.stderr.flush()
        self.communicator.Abort(1)

    @contextmanager
    def guard(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if self.size == 1:
                raise
            # Where all processes fail alike, the first one speaks, and ends the others.
            time.sleep(min(self.rank, 1))
            if isinstance(error, SystemExit | KeyboardInterrupt):
                # Who catches it, or Python, says why, before all end.
                atexit.register(self.communicator.Abort, 1)
                raise
            if isinstance(error, RmoptError):
                print(f"rmopt: process {self.rank}: {error}", file=sys.stderr, flush=True)
            else:
                sys.excepthook(*sys.exc_info())
            self.communicator.Abort(1)
            raise
