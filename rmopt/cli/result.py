"""What a run leaves: ``result.json``, one object of one shape for all, and a table that fits the terminal."""

import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

import rmopt
from rmopt.errors import InvalidInputError
from rmopt.experiments import Outcome

# A text that is shorter stays on its line; a word that is longer, such as an address, may be broken.
SHORT, LONGEST = 20, 40


def result_of(experiment: str, seed: int, outcome: Outcome) -> dict[str, Any]:
    """Return the object that ``result.json`` holds; what JSON cannot hold is refused."""
    packages = {package: version(package) for package in ("numpy", "scipy", "numba", "scikit-learn")}
    result = {
        "experiment": experiment,
        "data": outcome.data,
        "parameters": outcome.parameters,
        "seed": seed,
        "versions": {"python": platform.python_version(), "rmopt": rmopt.__version__} | packages,
        "rows": outcome.rows,
    }
    more = {"claims": [asdict(claim) for claim in outcome.claims], "notes": outcome.notes}
    return json.loads(as_json(result | {name: values for name, values in more.items() if values}))


def as_json(content: Mapping[str, Any]) -> str:
    """Return JSON: numbers of numpy are numbers, paths are text, NaN and infinity are null."""
    text = json.dumps(content, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda name: None), indent=2)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist") or isinstance(value, Path):
        return str(value) if isinstance(value, Path) else value.tolist()
    raise InvalidInputError(f"an outcome holds a {type(value).__name__}; use text, numbers, None, or lists.")


def print_description(found: Mapping[str, Any]) -> None:
    """Print what ``rmopt data`` finds: columns, what a file holds, what is odd, and which commands take it."""
    console = Console(highlight=False, markup=False)
    if "source" in found:
        console.print(f"{found['source']}: {found['holds'] or 'cannot be used yet'}\n", soft_wrap=True)
    print_rows(console, found["columns"], {})
    summary = found.get("summary", {})
    width = max(map(len, summary), default=0)
    texts = [
        f"{value:.6g}" if isinstance(value, float) else cells_of([value], "")[0] for value in summary.values()
    ]
    lines = [f"{name:{width}}  {text}" for name, text in zip(summary, texts, strict=True)]
    lines += [f"- {sentence}" for sentence in found.get("odd", ())]
    if found.get("problem"):
        lines.append(f"\nIt cannot be used: {found['problem']}")
    elif "experiments" in found:
        commands = [f"  {command}" for command in found["experiments"].values()]
        lines += ["\nCommands that take it:", *commands] if commands else ["\nNo command takes it."]
    console.print("\n".join(["", *lines]) if found["columns"] else "\n".join(lines), soft_wrap=True)


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> None:
    """Print rows as a table of the console's width, in which no word is broken; where it is too wide, as several.

    Each begins with the first columns, by which rows can be told apart. Rows are mappings from snake_case keys, not
    always the same ones, to text, numbers or None.
    """
    keys = dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row)
    used = [key for key in keys if any(row.get(key) is not None for row in rows)]
    texts = [cells_of([row.get(key) for row in rows], key) for key in used]
    columns = [[headings.get(key, heading_of(key)), *cells] for key, cells in zip(used, texts, strict=True)]
    wholes = [
        [word for text in column for word in (text.split() if len(text) > SHORT else [text])]
        for column in columns
    ]
    widths = [min(LONGEST, max(map(cell_len, column))) for column in wholes]
    apart = (n for n in range(1, len(columns)) if len({*zip(*columns[:n], strict=True)}) > len(rows))
    leaders = next(apart, 1)
    leaders = leaders if sum(widths[:leaders]) + 2 * leaders <= console.width / 2 else 1
    rest = list(range(leaders, len(columns)))
    while columns:
        part = list(range(leaders))
        while rest and (
            len(part) == leaders or sum(widths[n] + 2 for n in [*part, rest[0]]) - 2 <= console.width
        ):
            part.append(rest.pop(0))
        console.print(_table([columns[n] for n in part], [widths[n] for n in part], console.width))
        if not rest:
            break
        console.print()


def _table(columns: Sequence[list[str]], widths: Sequence[int], width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    spare = max(0, width + 2 - sum(widths) - 2 * len(widths))
    for (heading, *cells), least in zip(columns, widths, strict=True):
        extra = min(spare, max(map(cell_len, (heading, *cells))) - least)
        spare -= extra
        words = re.search(r"[^\W\d_]{2}", "".join(cells))
        table.add_column(
            Text(heading), justify="left" if words else "right", width=least + extra, overflow="fold"
        )
    for row in list(zip(*columns, strict=True))[1:]:
        table.add_row(*map(Text, row))
    return table


def heading_of(key: str) -> str:
    """Return the heading of a snake_case key: ``precision_at_10`` is P@10, ``train_seconds`` is train s."""
    text = re.sub(r"precision_at_(\d+)$", r"P@\1", key).replace("_", " ")
    return re.sub(r"\bmap$", "mAP", re.sub(r" seconds$", " s", text))


def cells_of(values: Sequence[Any], key: str) -> list[str]:
    """Return the cells of a column: durations with two decimals, like numbers with four digits of the largest."""
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
