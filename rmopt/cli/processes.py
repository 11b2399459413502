"""Which of several processes this is, when an MPI launcher started the command line."""

import os

# What the launchers of MPICH and Intel, of Open MPI, and those with PMIx say.
VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def rank() -> int:
    """Return the number of this process, from 0; 0 where there is only one."""
    for name in VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0
