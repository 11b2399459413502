"""The processes that ``mpirun rmopt run`` and ``mpirun rmopt fit`` share their work among."""

import os

from rmopt.cli.run import RANKS
from rmopt.solvers import MPIWorld, World
from rmopt.solvers.world import ONE_PROCESS


def launched() -> World:
    """Return the processes of the launcher of MPI that started this one; this process alone where none did."""
    return MPIWorld() if any(name in os.environ for name in RANKS) else ONE_PROCESS
