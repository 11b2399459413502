"""The whole suite runs on all cores where pytest-xdist is installed; named files run in this process."""

from __future__ import annotations

import os

import pytest

# Threads of BLAS that wait for one another on busy cores cost more than they save on small matrices. Set before
# numpy is imported, and inherited by what tests start; an outer setting wins.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take a worker for each core, and a file for each worker at a time: loops that it compiles are at hand."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    asked = getattr(config.option, "numprocesses", 0) is not None
    if whole and not asked and "PYTEST_XDIST_WORKER" not in os.environ:
        config.option.numprocesses, config.option.dist = "auto", "loadfile"
