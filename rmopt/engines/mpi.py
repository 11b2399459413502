"""Agents on separate processes, by MPI: only points travel, and only between neighbours."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.errors import MissingCapabilityError, RmoptError
from rmopt.engines.world import World


class MPIWorld(World):
    """The processes of an MPI communicator.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm, optional
        All processes that ``mpiexec`` started, unless given.

    Raises
    ------
    MissingCapabilityError
        When mpi4py or an MPI library is not installed.
    """

    def __init__(self, communicator: Any = None) -> None:
        super().__init__()
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise MissingCapabilityError(
                f'agents on separate processes need mpi4py and an MPI library ({error}); pip install "rmopt[mpi]".'
            ) from error
        self._mpi = MPI
        # A communicator of our own: messages of others cannot be taken for ours.
        self.communicator = (MPI.COMM_WORLD if communicator is None else communicator).Dup()
        self.rank, self.size = self.communicator.Get_rank(), self.communicator.Get_size()

    def __repr__(self) -> str:
        return f"MPIWorld({self.size} processes)"

    def exchange(
        self, points: Mapping[int, Array], partners: Mapping[int, Sequence[int]], n_agents: int
    ) -> Callable[[], Mapping[int, Array]]:
        """Start sending and receiving; the function that is returned waits for the partners' points."""
        owners = self.owners(n_agents)
        sending, receiving, waiting = set(), {}, []
        for agent, others in partners.items():
            for other in others:
                if agent in points and other not in points:
                    sending.add((agent, int(owners[other])))
                    receiving[other] = np.empty_like(points[agent])
        for other, buffer in receiving.items():
            waiting.append(self.communicator.Irecv(buffer, source=int(owners[other]), tag=other))
        for agent, target in sorted(sending):
            point = np.ascontiguousarray(points[agent])
            waiting.append(self.communicator.Isend(point, dest=target, tag=agent))
            self.sent += (1, point.nbytes)

        def receive() -> Mapping[int, Array]:
            self._mpi.Request.Waitall(waiting)
            return {**points, **receiving}

        return receive

    def gather(self, points: Mapping[int, Array], n_agents: int) -> list[Array]:
        everywhere: dict[int, Array] = {}
        for part in self.communicator.allgather(dict(points)):
            everywhere.update(part)
        return [everywhere[agent] for agent in range(n_agents)]

    def total(self, numbers: Any) -> Array:
        return np.sum(self.communicator.allgather(np.asarray(numbers, dtype=float)), axis=0)

    def first(self, value: Any) -> Any:
        return self.communicator.bcast(value)

    def least(self, number: int) -> int:
        return min(self.communicator.allgather(number))

    @contextmanager
    def guard(self) -> Iterator[None]:
        """End all processes when this one fails: its partners would wait for it forever."""
        try:
            yield
        except BaseException as error:
            if self.size == 1 or isinstance(error, SystemExit):
                raise
            # Where all processes fail alike, the first one speaks, and ends the others.
            time.sleep(min(self.rank, 1))
            if isinstance(error, RmoptError):
                print(f"rmopt: process {self.rank}: {error}", file=sys.stderr, flush=True)
            else:
                sys.excepthook(*sys.exc_info())
            self.communicator.Abort(1)
            raise
