"""The pages on how to extend rmopt: their changes apply, keep the laws, and are as short as the pages say."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pymanopt
import pytest

import rmopt
from rmopt import Problem
from rmopt.core import Cost
from rmopt.interop import from_pymanopt
from rmopt.manifolds import Grassmann
from rmopt.solvers import Below, Checkpoint, LineSearchSolver, MaxSteps, Recorder, Solver, StrongWolfe

LIBRARY = Path(rmopt.__file__).parent
PAGES = Path(__file__).parents[2] / "docs" / "extend"

RETRACTION = """
from rmopt.checks import check_retraction
from rmopt.checks.catalogue import array_instances
from rmopt.retractions import Stereographic
spheres = [one.manifold for one in array_instances() if Stereographic() in one.retractions]
found = [check for manifold in spheres for check in check_retraction(Stereographic(), manifold)]
assert sum(check.name == "order 2" for check in found) == len(spheres) >= 10
assert all(found), found
"""

MANIFOLD = """
from rmopt.checks.catalogue import array_instances
from rmopt.checks import check_manifold, check_retraction
from rmopt.manifolds import Chances, Power
(one,) = (one for one in array_instances() if isinstance(one.manifold, Chances))
found = check_manifold(one.manifold) + check_manifold(Power(one.manifold, 3))
found += check_retraction(one.retractions[0], one.manifold)
assert {"exp and log", "distance", "midpoint", "order 2", "staying"} <= {check.name for check in found}
assert all(found), found
"""


@pytest.mark.parametrize(
    ("kind", "most_files", "most_lines", "script"),
    [("retraction", 2, 30, RETRACTION), ("manifold", 3, 130, MANIFOLD)],
)
def test_the_change_on_a_page(
    kind: str, most_files: int, most_lines: int, script: str, tmp_path: Path
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git, which applies the change, is not installed.")
    change = PAGES / f"{kind}.diff"
    shutil.copytree(LIBRARY, tmp_path / "rmopt", ignore=shutil.ignore_patterns("__pycache__"))
    # Outside of a repository, whatever lies above the folder.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTHONPATH": str(tmp_path)}
    subprocess.run(["git", "apply", str(change)], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = change.read_text(encoding="utf-8").splitlines()
    files = sum(line.startswith("+++ ") for line in lines)
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    assert files <= most_files
    assert added <= most_lines
    listed = re.search(rf"\| {files} \| {added} \| \[A {kind}\]", (PAGES / "index.md").read_text())
    assert listed, f"docs/extend/index.md should say {files} files and {added} lines for a {kind}."


class Rayleigh(Cost):
    """−½ tr(UᵀAU)."""

    A = np.diag(np.linspace(1.0, 0.7, 30))

    def value(self, point: Any) -> float:
        return -0.5 * float(np.vdot(point, self.A @ point))

    def gradient(self, point: Any) -> Any:
        return -(self.A @ point)


LEAST = -0.5 * float(np.trace(Rayleigh.A[:3, :3]))


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(PAGES / f"{name}.py"))


@pytest.mark.parametrize(
    ("name", "words", "most_lines"), [("momentum", "a direction", 25), ("adagrad", "a solver", 60)]
)
def test_a_solver_is_short_and_outside_of_the_library(name: str, words: str, most_lines: int) -> None:
    lines = len((PAGES / f"{name}.py").read_text(encoding="utf-8").splitlines())
    assert lines <= most_lines
    assert f"in {lines} lines:" in (PAGES / "solver.md").read_text(encoding="utf-8")
    assert f"| {words} | 0 | {lines} | [A solver]" in (PAGES / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("manifold", [Grassmann(30, 3), from_pymanopt(pymanopt.manifolds.Stiefel(30, 3))])
@pytest.mark.parametrize("kind", ["momentum", "adagrad"])
def test_the_solvers_of_the_page_find_the_minimum(kind: str, manifold: Any) -> None:
    problem = Problem(manifold, Rayleigh())
    result = solver_of(kind).run(problem, random_state=0)
    assert result.converged
    assert abs(result.history[-1]["cost"] - LEAST) < 1e-8
    assert len(result.history) == result.steps + 1


def solver_of(kind: str, max_iter: int = 1000) -> Solver:
    if kind == "adagrad":
        return example("adagrad")["AdaGrad"](3.0, max_iter)
    return LineSearchSolver(example("momentum")["Momentum"](0.5), StrongWolfe(), max_iter=max_iter)


@pytest.mark.parametrize("kind", ["momentum", "adagrad"])
def test_the_solvers_of_the_page_have_what_the_loop_gives(kind: str, tmp_path: Path) -> None:
    problem = Problem(Grassmann(30, 3), Rayleigh())
    whole = solver_of(kind, 30).run(problem, random_state=0)
    file = Checkpoint(tmp_path / "c.npz")
    for budget in (11, 30):
        saved = solver_of(kind, budget).run(problem, random_state=0, checkpoint=file)
    assert np.array_equal(saved.point, whole.point)
    assert [row["cost"] for row in saved.history] == [row["cost"] for row in whole.history]
    early = solver_of(kind).run(problem, random_state=0, stop=MaxSteps(5) | Below(-10.0))
    assert (early.steps, early.stopped_by, early.converged) == (5, "5 steps", False)
    states = list(solver_of(kind, 30).iterate(problem, random_state=0))
    assert [state.steps for state in states] == list(range(31))
    assert np.array_equal(states[-1].point, whole.point)
    recorder = Recorder({"cost above": lambda point: problem.cost.value(point) - LEAST})
    rows = solver_of(kind, 5).run(problem, random_state=0, recorder=recorder).history
    np.testing.assert_allclose([row["cost above"] for row in rows], [row["cost"] - LEAST for row in rows])
