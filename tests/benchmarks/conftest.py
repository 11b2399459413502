"""What benchmarks share: each measures rows of a table, which is printed, and kept for the docs with ``--keep``."""

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

# Peers that the tests hold against oracles.
sys.path.insert(0, str(Path(__file__).parents[1]))
KEPT = Path(__file__).parents[2] / "docs" / "measured"

Row = dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", action="store_true", help="write the tables to docs/measured, for the docs")


@pytest.fixture
def measured(benchmark: Any, request: pytest.FixtureRequest) -> Callable[..., list[Row]]:
    """Return a function that measures rows, prints them, and keeps them with ``--keep``.

    The docstring of the test is the table's title; its parameters name the part of the table that the rows are.
    """

    def measure(work: Callable[..., list[Row]], *arguments: Any) -> list[Row]:
        rows = benchmark.pedantic(work, arguments, rounds=1, iterations=1)
        benchmark.extra_info["rows"] = rows
        title = " ".join((request.function.__doc__ or request.function.__name__).split())
        show(title, rows)
        if request.config.getoption("--keep"):
            keep(request, title, rows)
        return rows

    return measure


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show(title: str, rows: list[Row]) -> None:
    columns = dict.fromkeys(key for row in rows for key in row if not isinstance(row[key], list))
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(cell(row.get(key)) for key in columns))
    console = Console(highlight=False, width=150)
    console.print(f"\n{title}", markup=False)
    console.print(table)


@cache
def commit() -> str:
    """Return the commit that is measured, as it is before numbers are kept."""
    words = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(words, cwd=KEPT, capture_output=True, text=True).stdout.strip()


def keep(request: pytest.FixtureRequest, title: str, rows: list[Row]) -> None:
    """Replace this part of this table in the file of its module."""
    path = KEPT / f"{request.path.stem.removeprefix('test_')}.json"
    about = " ".join(request.module.__doc__.split("\n\n")[0].split())
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"tables": {}}
    kept["about"] = about
    table = kept["tables"].setdefault(request.function.__name__, {"parts": {}})
    table["title"] = title
    part = request.node.name.partition("[")[2].rstrip("]") or "all"
    packages = ["numpy", "scipy", "numba", "pymanopt", "scikit-learn"]
    packages += [name for name in ("jax", "geojax", "torch", "geoopt") if name in sys.modules]
    table["parts"][part] = {
        "rows": rows,
        "date": date.today().isoformat(),
        "commit": commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
