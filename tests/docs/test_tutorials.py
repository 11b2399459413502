"""Every tutorial draws, and runs to its asserts."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

# Seconds each, or several processes: those run when the docs are built, where a warning is an error too.
SHORT = (
    "03_swap_retractions",
    "04_swap_solvers",
    "05_write_a_retraction",
    "06_write_a_manifold",
    "13_rotations",
)
TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("*.py"))


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem in SHORT else [pytest.mark.slow])
        for path in TUTORIALS
    ],
)
def test_tutorial(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("# %%") for line in lines)
    assert lines[-1].startswith("assert ")
    runpy.run_path(str(path), run_name="__main__")
    assert plt.get_fignums()


def test_they_are_numbered() -> None:
    assert [path.stem[:2] for path in TUTORIALS] == [
        f"{number:02}" for number in range(1, len(TUTORIALS) + 1)
    ]


def test_each_is_on_the_index_and_says_for_whom_it_is() -> None:
    index = (TUTORIALS[0].parent / "index.rst").read_text(encoding="utf-8")
    form = r"\*\*(Beginner|Intermediate|Advanced), \d+ minutes\.\*\* You learn to .+\. Before this: .+\."
    for path in TUTORIALS:
        first = path.read_text(encoding="utf-8").split("\n\n")[1]
        assert re.fullmatch(form, first.replace("\n", " ")), path.name
        assert index.count(path.name) == 1
