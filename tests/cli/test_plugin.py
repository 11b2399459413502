"""A third party's package adds an experiment, without touching this repository."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rmopt as rmopt_package

TEMPLATE = Path(__file__).parents[2] / "docs" / "extend" / "template"

PYPROJECT = """
[project]
name = "somebody-elses-experiments"
version = "0.3"

[project.entry-points."rmopt.experiments"]
shrink = "somebody_elses.shrink:shrink"
"""

EXPERIMENT = '''
"""An experiment as a third party writes it."""

import sys
from typing import Annotated

import typer

from rmopt.errors import InvalidInputError
from rmopt.experiments import Outcome, Run


def plot(figure, values):
    figure.subplots().plot(values)


def shrink(
    run: Run,
    *,
    factor: Annotated[float, typer.Option(help="How much is left after each step.")] = 0.5,
    steps: int = 4,
) -> Outcome:
    """Shrink a number."""
    if not 0 < factor < 1:
        raise InvalidInputError(f"factor must lie between 0 and 1, not {factor}; try 0.5.")
    run.draw("curve.png", plot, [factor**step for step in range(steps)], size=(2, 2))
    rows = [
        {"method": f"shrink–{step}", "value": factor**step, "train_seconds": step / 8, "updates": 1000 * step}
        for step in range(steps)
    ]
    rows[0].pop("train_seconds")
    windows = "matplotlib.pyplot" in sys.modules
    return Outcome("numbers", {"factor": factor, "steps": steps, "windows": windows}, rows)
'''


def register(site: Path, pyproject: str) -> None:
    """Write what an installer leaves of a package beside its files, so that nothing is downloaded or built."""
    project = tomllib.loads(pyproject)["project"]
    about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    heading = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(heading)
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    register(site, PYPROJECT)
    (site / "somebody_elses").mkdir()
    (site / "somebody_elses" / "__init__.py").touch()
    (site / "somebody_elses" / "shrink.py").write_text(EXPERIMENT, encoding="utf-8")
    return site


def rmopt(
    package: Path, folder: Path, *arguments: str, encoding: str = "utf-8"
) -> subprocess.CompletedProcess[str]:
    unset = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONPATH")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    rmopt_itself = str(Path(rmopt_package.__file__).parents[1])
    environment |= {"PYTHONPATH": os.pathsep.join([str(package), rmopt_itself]), "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "rmopt.cli", *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, encoding=encoding, timeout=120
    )


def test_its_table_in_a_pipe_and_its_result(package: Path, tmp_path: Path) -> None:
    done = rmopt(package, tmp_path, "run", "shrink", "--factor", "0.25", "--out", "here", "--seed", "9")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "shrink on numbers, seed 9",
        "",
        "method value train s updates",
        "shrink–0 1.0000 – 0",
        "shrink–1 0.2500 0.12 1,000",
        "shrink–2 0.0625 0.25 2,000",
        "shrink–3 0.0156 0.38 3,000",
        "",
        "Written to here:",
        "curve.png",
        "result.json",
    ]
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert result["parameters"] == {"factor": 0.25, "steps": 4, "windows": False}
    assert (result["experiment"], result["seed"], len(result["rows"])) == ("shrink", 9, 4)
    assert result["rows"][0] == {"method": "shrink–0", "value": 1.0, "updates": 0}


def test_it_is_listed_and_has_help(package: Path, tmp_path: Path) -> None:
    listed = json.loads(rmopt(package, tmp_path, "list", "--json").stdout)["experiments"]
    about = {"name": "shrink", "description": "Shrink a number.", "package": "somebody-elses-experiments"}
    assert about in listed
    done = rmopt(package, tmp_path, "run", "shrink", "--help")
    assert done.returncode == 0
    for expected in ("Shrink a number.", "--factor X", "How much is left", "[default: 0.5]", "--json"):
        assert expected in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_its_error_is_one_line(package: Path, tmp_path: Path) -> None:
    done = rmopt(package, tmp_path, "run", "shrink", "--factor", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rmopt: factor must lie between 0 and 1, not 2.0; try 0.5.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_that_knows_only_ascii(package: Path, tmp_path: Path) -> None:
    done = rmopt(package, tmp_path, "run", "shrink", encoding="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "shrink?3" in done.stdout


def test_the_template_of_the_docs_takes_part(tmp_path: Path) -> None:
    site = shutil.copytree(TEMPLATE, tmp_path / "site")
    register(site, (site / "pyproject.toml").read_text(encoding="utf-8"))
    checked = rmopt(site, tmp_path, "check", "my-parts")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "order 2 of CholeskyQR()" in checked.stdout
    assert "Hessian of Spread" in checked.stdout
    options = "--data digits --methods cosine,subspace --seeds 1 --select none --json --out here"
    ran = rmopt(site, tmp_path, "run", "similarity", *options.split())
    rows = {row["method"]: row["map"] for row in json.loads(ran.stdout)["rows"]}
    assert rows["subspace"] > rows["cosine"]
