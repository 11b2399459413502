"""The whole suite runs on all cores where pytest-xdist is installed; named files run in this process.

Here is also what tests of several experiments share: the command line in this process, and a run without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import numpy as np

    from rmopt.experiments import Run

# Threads of BLAS that wait for one another on busy cores cost more than they save on small matrices. Set before
# numpy is imported, and inherited by what tests start; an outer setting wins.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take a worker for each core; one that has nothing left to do takes tests from the others."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    asked = getattr(config.option, "numprocesses", 0) is not None
    if whole and not asked and "PYTEST_XDIST_WORKER" not in os.environ:
        config.option.numprocesses, config.option.dist = "auto", "worksteal"


@pytest.fixture
def rmopt_run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., SimpleNamespace]:
    """``rmopt run``, in this process and a new folder: what it prints, on standard output and on standard error."""
    from rmopt.cli import main

    monkeypatch.chdir(tmp_path_factory.mktemp("run"))

    def call(*arguments: str, code: int = 0) -> SimpleNamespace:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["run", *arguments])
        said = capsys.readouterr()
        assert int(ended.value.code or 0) == code, said.err
        return SimpleNamespace(stdout=said.out, stderr=said.err)

    return call


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An execution that says nothing and writes into a new folder."""
    from rmopt.experiments import Run

    return Run("test", 0, tmp_path, quiet=True)


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of digits, shape (1797, 64), and their classes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X / 16, y
