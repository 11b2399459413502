"""Upper bounds on the size of each room, in lines of code: lines that are no docstring, no comment and not blank.

A change that needs more room says in its commit why no part that exists could carry it, and raises the bound.
"""

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

import rmopt

LIBRARY = Path(rmopt.__file__).parents[1]
TESTS = Path(__file__).parent
FAMILIES = ("similarity", "ranking", "metric", "subspace", "coembedding")
ROOMS = {
    "rmopt/kernels, engines": 2_971,
    "rmopt/manifolds, retractions": 3_082,
    "rmopt/costs": 1_974,
    "rmopt/solvers": 4_628,
    "rmopt/checks, testing, interop": 1_636,
    "rmopt/cli": 415,
    "rmopt/torch": 500,
    "rmopt": 17_690,
    "problems/" + ", ".join(FAMILIES): 5_735,
    "problems/data": 1_717,
    "problems": 9_872,
}  # fmt: skip
# Of both packages, docstrings included.
ALL_LINES = 49_150
# Lines of tests to a line of code.
TESTS_TO_CODE = 1.1
PUBLIC_NAMES = 340


@cache
def code_lines(path: Path) -> int:
    """Return the number of lines with code."""
    text = path.read_text(encoding="utf-8")
    lines = {
        at
        for at, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and isinstance(getattr(node, "value", ""), str):
            # All of a text counts, also what looks like a comment.
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines - documented)


def sources(room: str) -> list[Path]:
    """Return the files of a room, which may be several folders of a package."""
    package, _, folders = room.partition("/")
    homes = [LIBRARY / package / folder for folder in folders.split(", ")] if folders else [LIBRARY / package]
    return [path for home in homes for path in home.rglob("*.py")]


@pytest.mark.parametrize(("room", "bound"), ROOMS.items())
def test_a_room_keeps_to_its_budget(room: str, bound: int) -> None:
    assert sum(map(code_lines, sources(room))) <= bound


def test_all_lines_keep_to_their_budget() -> None:
    files = sources("rmopt") + sources("problems")
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= ALL_LINES


def test_tests_are_hardly_longer_than_the_code() -> None:
    code = sum(map(code_lines, sources("rmopt") + sources("problems")))
    assert sum(map(code_lines, TESTS.rglob("*.py"))) <= TESTS_TO_CODE * code


def test_public_names_are_few() -> None:
    packages = [
        path.parent.relative_to(LIBRARY).as_posix().replace("/", ".")
        for top in ("rmopt", "problems")
        for path in (LIBRARY / top).rglob("__init__.py")
    ]
    names = {
        f"{package}.{name}"
        for package in packages
        for name in getattr(importlib.import_module(package), "__all__", ())
    }
    assert len(names) <= PUBLIC_NAMES
