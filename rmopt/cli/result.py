"""The output of a run: ``result.json``, in the same form for all, and a table that fits the terminal."""

import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import pandas as pd
from rich.console import Console

import rmopt
from rmopt.cli.registry import as_json
from rmopt.experiments import Outcome

# The largest number of characters of a text in a table.
LONGEST = 60


def result_of(experiment: str, seed: int, outcome: Outcome) -> dict[str, Any]:
    """Return the object of ``result.json``, and refuse values that JSON cannot hold."""
    packages = {package: version(package) for package in ("numpy", "scipy", "numba", "scikit-learn")}
    result = {"experiment": experiment, "data": outcome.data, "parameters": outcome.parameters, "seed": seed}
    result["versions"] = {"python": platform.python_version(), "rmopt": rmopt.__version__} | packages
    result["rows"] = outcome.rows
    more = {"claims": [asdict(claim) for claim in outcome.claims], "notes": outcome.notes}
    return json.loads(as_json(result | {name: values for name, values in more.items() if values}))


def print_description(found: Mapping[str, Any]) -> None:
    """Print the output of ``rmopt data``: data sets, or the columns, oddities and commands of one of them."""
    console = Console(highlight=False, markup=False)
    if "source" in found:
        console.print(f"{found['source']}: {found['holds'] or 'cannot be used yet'}\n", soft_wrap=True)
    if table := found.get("datasets", found.get("columns")):
        print_rows(console, table, {"there": "location", "holds": "content", "different": "distinct"})
    summary = found.get("summary", {})
    width = max(map(len, summary), default=0)
    lines = [""] * bool(table)
    for name, value in summary.items():
        text = f"{value:.6g}" if isinstance(value, float) else cells_of([{"": value}], "")[0]
        lines.append(f"{name:{width}}  {text}")
    lines += [f"- {sentence}" for sentence in found.get("odd", ())]
    if found.get("problem"):
        lines.append(f"\nIt cannot be used: {found['problem']}")
    elif "experiments" in found:
        commands = [f"  {command}" for command in found["experiments"].values()]
        lines += ["\nCommands that take it:", *commands] if commands else ["\nNo command takes it."]
    console.print("\n".join(lines), soft_wrap=True)


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> None:
    """Print rows as a table, or several with the same first column if it is wider than the console.

    Rows are mappings from snake_case keys, not always the same ones, to text, numbers or None. Texts are cut at 60
    characters, and complete in ``result.json``.
    """
    keys = dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row)
    columns = {}
    for key in (key for key in keys if any(row.get(key) is not None for row in rows)):
        cells = [cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 1]}…" for cell in cells_of(rows, key)]
        width = max(map(len, cells)) if re.search(r"[^\W\d_]{2}", "".join(cells)) else 0
        columns[headings.get(key, heading_of(key))] = [f"{cell:{width}}" for cell in cells]
    first, *others = columns or [""]
    table = pd.DataFrame(columns)
    if others:
        table = table.set_index(first).rename_axis(index=None, columns=first)
    text = table.to_string(line_width=console.width, index=bool(others)) if columns else ""
    console.print(re.sub(r" +\\? *$", "", text, flags=re.MULTILINE), soft_wrap=True)


def heading_of(key: str) -> str:
    """Return the heading of a snake_case key: ``precision_at_10`` is P@10, ``train_seconds`` is train s."""
    text = re.sub(r"precision_at_(\d+)$", r"P@\1", key).replace("_", " ")
    return re.sub(r"\bmap$", "mAP", re.sub(r" seconds$", " s", text))


def cells_of(rows: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return the cells of a column: durations with two decimals, similar numbers with four digits of the largest."""
    values = [row.get(key) for row in rows]
    sizes = [abs(value) for value in values if isinstance(value, float) and value]
    largest, least = max(sizes, default=1.0), min(sizes, default=1.0)
    digits = 2 if key.endswith("seconds") else max(0, 4 - math.ceil(math.log10(largest)))
    alike = key.endswith("seconds") or (1e9 > largest > 1e-4 and largest <= 100 * least)

    def text(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:,.{digits}f}" if alike else f"{value:,.4g}"
        words = {None: "–", True: "yes", False: "no"}
        return f"{value:,}" if type(value) is int else words.get(value) or str(value) or "–"

    return [text(value) for value in values]
