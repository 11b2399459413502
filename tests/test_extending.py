"""The pages on how to extend rmopt: their changes apply, keep the laws, and are as short as the pages say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rmopt

LIBRARY = Path(rmopt.__file__).parent
PAGES = Path(__file__).parents[1] / "docs" / "extend"

RETRACTION = """
from rmopt.checks import check_retraction
from rmopt.catalogue import grassmann_instances
from rmopt.retractions import Cayley
found = [
    check
    for one in grassmann_instances()
    for retraction in one.retractions
    if retraction == Cayley()
    for check in check_retraction(retraction, one.manifold)
]
assert sum(check.name == "order 2" for check in found) == 3
assert all(found), found
"""

MANIFOLD = """
from rmopt.catalogue import flat_instances
from rmopt.checks import check_manifold, check_retraction
from rmopt.manifolds import Sphere
(one,) = (one for one in flat_instances() if isinstance(one.manifold, Sphere))
found = check_manifold(one.manifold) + check_retraction(one.retractions[0], one.manifold)
assert {"exp and log", "distance", "midpoint", "order 2", "staying"} <= {check.name for check in found}
assert all(found), found
"""

SOLVER = """
import numpy as np
from rmopt import InvalidInputError, Problem
from rmopt.core import Cost, WholeCost
from rmopt.manifolds import Grassmann
from rmopt.solvers import SGD, Checkpoint, HeavyBall

class Rayleigh(Cost):
    A = np.diag(np.linspace(1.0, 0.7, 30))
    def value(self, point):
        return -0.5 * float(np.vdot(point, self.A @ point))
    def gradient(self, point):
        return -(self.A @ point)

problem = Problem(Grassmann(30, 3), WholeCost(Rayleigh()))
start = problem.manifold.random_point(np.random.default_rng(0))
least = -0.5 * np.trace(Rayleigh.A[:3, :3])
plain, still, moving = (
    solver.run(problem, start, random_state=0).point
    for solver in (SGD(1.0, n_steps=200), HeavyBall(1.0, 0.0, n_steps=200), HeavyBall(1.0, 0.8, n_steps=200))
)
assert np.allclose(plain, still, atol=1e-12)
excess = [Rayleigh().value(point) - least for point in (plain, moving)]
assert excess[1] < 0.1 * excess[0], excess

engine = HeavyBall(1.0).engine(problem)
schedule, etas = np.zeros((200, 1), dtype=int), np.full(200, 0.1)
whole = engine.advance(engine.load(start), schedule, etas)
half = engine.advance(engine.load(start), schedule[:80], etas[:80])
half = engine.advance(engine.unpack(engine.pack(half), engine.load(start)), schedule[80:], etas[80:])
assert all(np.array_equal(a, b) for a, b in zip(engine.pack(whole).values(), engine.pack(half).values(), strict=True))

for n_steps in (50, 200):
    saved = HeavyBall(1.0, 0.8, n_steps=n_steps).run(problem, start, random_state=0, checkpoint=Checkpoint("c.npz"))
assert np.array_equal(saved.point, moving)
try:
    HeavyBall(1.0, 0.7, n_steps=200).run(problem, start, random_state=0, checkpoint=Checkpoint("c.npz"))
except InvalidInputError as error:
    assert "its solver.momentum is 0.8, not 0.7" in str(error)
else:
    raise AssertionError("another run")
"""


@pytest.mark.parametrize(
    ("kind", "most_files", "most_lines", "script"),
    [("retraction", 2, 30, RETRACTION), ("manifold", 3, 130, MANIFOLD), ("solver", 3, 100, SOLVER)],
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


def test_the_cost_on_its_page_is_five_lines_outside_of_the_library() -> None:
    page = (PAGES / "cost.md").read_text(encoding="utf-8")
    block = page.split("```python\n")[1].split("```")[0].strip()
    assert "autograd_cost" in block
    assert len(block.splitlines()) <= 5
    assert re.search(r"\| a cost \| 0 \| 4 \|", (PAGES / "index.md").read_text())
