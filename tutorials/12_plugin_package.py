"""
Write a plug-in package
=======================

**Advanced, 15 minutes.** You learn to write a package whose experiment is a command of rmopt. Before this:
:doc:`A first run <01_first_run>`.

An experiment, a data set or an instance for the law tests need not live in rmopt. A package of your own
registers them by entry points, and `rmopt run`, `rmopt list` and `rmopt check` find them. This tutorial
writes a whole one: three files.
"""

# %%
# The package
# -----------
#
# `pyproject.toml` says what is registered. The group `rmopt.experiments` holds functions, each of which
# becomes a command.

import tempfile
from pathlib import Path

site = Path(tempfile.mkdtemp())
(site / "power_method").mkdir()
PYPROJECT = """
[project]
name = "power-method"
version = "0.1"
dependencies = ["rmopt"]

[project.entry-points."rmopt.experiments"]
eigenspace = "power_method.experiment:eigenspace"

[project.entry-points."rmopt.instances"]
eigenspace = "power_method.cost:instances"
"""
(site / "pyproject.toml").write_text(PYPROJECT)

# %%
# A cost, and an instance of it: `rmopt check` will hold its gradient and its Hessian against its values.

COST = '''
"""The leading eigenspace of a symmetric matrix."""

import numpy as np

from rmopt import Problem
from rmopt.checks.catalogue import Instance
from rmopt.core import Cost
from rmopt.manifolds import Grassmann
from rmopt.retractions import QR


class Rayleigh(Cost):
    """Minus half the trace of UᵀAU."""

    def __init__(self, A):
        self.A = A

    def value(self, point):
        return -0.5 * float(np.vdot(point, self.A @ point))

    def gradient(self, point):
        return -(self.A @ point)

    def hessian(self, point, direction):
        return -(self.A @ direction)


def instances():
    """Return what the law tests run over."""
    manifold = Grassmann(7, 2)
    problem = Problem(manifold, Rayleigh(np.diag(np.arange(7.0))))
    return [Instance("eigenspace-7-2", manifold, [QR()], {"rayleigh": problem})]
'''
(site / "power_method" / "__init__.py").touch()
(site / "power_method" / "cost.py").write_text(COST, encoding="utf-8")

# %%
# Its tests: the laws come from `rmopt.testing`. One seed is enough to see a wrong factor; three points find more.

TESTS = """
from power_method.cost import instances
from rmopt.testing import parametrize_with_laws


@parametrize_with_laws(instances())
def test_laws(check):
    check()
"""
(site / "test_power_method.py").write_text(TESTS, encoding="utf-8")

# %%
# An experiment. Its parameters become options, their annotations the help; it draws, and returns rows for the
# table. Errors are raised before the work.

EXPERIMENT = '''
"""Power iterations beside conjugate gradients."""

from typing import Annotated

import numpy as np
import typer

from power_method.cost import Rayleigh
from rmopt import InvalidInputError, Problem
from rmopt.experiments import Claim, Outcome, Run
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann


def plot(figure, curves):
    axes = figure.subplots()
    for name, errors in curves.items():
        axes.semilogy(range(1, len(errors) + 1), errors, "o-", label=name)
    axes.set_xlabel("products with A")
    axes.set_ylabel("distance to the eigenspace")
    axes.legend()
    figure.tight_layout()


def eigenspace(
    run: Run,
    *,
    size: Annotated[int, typer.Option(help="Rows of the matrix.")] = 200,
    rank: Annotated[int, typer.Option(help="Dimension of the eigenspace.")] = 3,
    products: Annotated[int, typer.Option(help="Products with the matrix.")] = 60,
) -> Outcome:
    """Find a leading eigenspace by power iterations and by conjugate gradients."""
    if not 0 < rank < size:
        raise InvalidInputError(f"rank = {rank} must lie between 0 and size = {size}; try 3.")
    rng = np.random.default_rng(run.seed)
    A = np.diag(np.linspace(1.0, 0.1, size) ** 3)
    manifold, answer = Grassmann(size, rank), np.eye(size, rank)
    U = start = manifold.random_point(rng)
    power = [manifold.dist(U := np.linalg.qr(A @ U)[0], answer) for _ in range(products)]
    solver = PymanoptSolver("ConjugateGradient", max_iterations=products)
    found = solver.run(Problem(manifold, Rayleigh(A)), start).point
    run.draw("errors.png", plot, {"power iterations": power})
    rows = [
        {"method": "power iterations", "distance": power[-1]},
        {"method": "conjugate gradients", "distance": manifold.dist(found, answer)},
    ]
    ahead = rows[1]["distance"] < rows[0]["distance"]
    claim = Claim("conjugate gradients come nearer", ahead, f"after {products} products and iterations")
    return Outcome("a diagonal matrix", {"size": size, "rank": rank, "products": products}, rows, claims=[claim])
'''
(site / "power_method" / "experiment.py").write_text(EXPERIMENT, encoding="utf-8")

# %%
# Installing it
# -------------
#
# `pip install -e .` in its folder does it. What an installer leaves behind is a folder with the metadata; to
# need no network here, it is written by hand, and the folder is put on the path.

import os
import subprocess
import sys
import tomllib

project = tomllib.loads(PYPROJECT)["project"]
about = site / "power_method-0.1.dist-info"
about.mkdir()
(about / "METADATA").write_text(
    "Metadata-Version: 2.1\nName: power-method\nVersion: 0.1\n"
)
(about / "entry_points.txt").write_text(
    "\n".join(
        f"[{group}]\n"
        + "\n".join(f"{name} = {target}" for name, target in entries.items())
        + "\n"
        for group, entries in project["entry-points"].items()
    )
)


def rmopt(*arguments):
    """Run the command line where the package is installed."""
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-m", "rmopt.cli", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "80",
        },
        cwd=site,
        capture_output=True,
        encoding="utf-8",
    )


# %%
# Using it
# --------
#
# The command has help, a table, pictures, `result.json`, `--seed`, `--out`, `--json`:

help_text = rmopt("run", "eigenspace", "--help").stdout
print(help_text)
ran = rmopt("run", "eigenspace", "--out", "found")
print(ran.stdout)

# %%

import matplotlib.pyplot as plt

figure = plt.figure()
figure.figimage(plt.imread(site / "found" / "errors.png"), resize=True)
plt.show()

# %%
# The laws of its cost and manifold are measured with everybody else's:

checked = rmopt("check", "eigenspace")
print(checked.stdout)

# %%
# So do its own tests, by pytest.

tested = subprocess.run(
    [sys.executable, "-m", "pytest", "-q", "--rootdir", str(site), str(site)],
    env={
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)]),
    },
    cwd=site,
    capture_output=True,
    encoding="utf-8",
)
print(tested.stdout)

# %%
# And an error is one sentence, before the work.

refused = rmopt("run", "eigenspace", "--rank", "0")
print(refused.stderr)

# %%
# What should hold
# ----------------

assert "--products" in help_text
assert ran.returncode == 0, ran.stderr
assert "conjugate gradients come nearer" in ran.stdout
assert {"errors.png", "result.json"} <= {
    path.name for path in (site / "found").iterdir()
}
assert checked.returncode == 0, checked.stdout + checked.stderr
assert "invariance" in checked.stdout
assert "FAILED" not in checked.stdout
assert "3 passed" in tested.stdout, tested.stdout
assert refused.stderr == "rmopt: rank = 0 must lie between 0 and size = 200; try 3.\n"
