"""What a run leaves: ``result.json``, one object of one shape for all, and a table that fits the terminal."""

import json
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
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

# Cells by heading.
Columns = dict[str, list[str]]
# A text that is shorter stays on its line.
UNBROKEN = 20


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
    claims = {"claims": [asdict(claim) for claim in outcome.claims]} if outcome.claims else {}
    notes = {"notes": outcome.notes} if outcome.notes else {}
    return json.loads(as_json(result | claims | notes))


def as_json(content: Mapping[str, Any]) -> str:
    """Return JSON: numbers of numpy are numbers, paths are text, NaN and infinity are null."""
    text = json.dumps(content, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda name: None), indent=2)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping | Path):
        return dict(value) if isinstance(value, Mapping) else str(value)
    raise InvalidInputError(
        f"an outcome holds a {type(value).__name__}; use text, numbers, None, or lists of them."
    )


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> None:
    """Print rows as a table of the console's width, in which no word is broken; where it is too wide, as several.

    Each begins with the first columns, by which rows can be told apart. Rows are mappings from snake_case keys, not
    always the same ones, to text, numbers or None.
    """
    keys = dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row)
    columns: Columns = {
        headings.get(key, heading_of(key)): cells_of([row.get(key) for row in rows], key)
        for key in keys
        if any(row.get(key) is not None for row in rows)
    }
    for number, part in enumerate(_parts(columns, console.width)):
        console.print(*[""] * min(number, 1), _table(part, console.width), sep="\n")


def _parts(columns: Columns, width: int) -> Iterator[Columns]:
    """Split columns into parts that fit the width, each led by those by which rows can be told apart."""
    part: Columns = {}
    leaders: list[str] = []
    for heading, cells in columns.items():
        wider = part | {heading: cells}
        told_apart = len({*zip(*(columns[name] for name in leaders), strict=True)}) == len(cells)
        if not part or (leaders == [*part] and not told_apart and _spare(wider, width // 2) >= 0):
            leaders.append(heading)
        elif len(part) > len(leaders) and _spare(wider, width) < 0:
            yield part
            part = {name: columns[name] for name in leaders}
        part |= {heading: cells}
    if part:
        yield part


def _spare(columns: Columns, width: int) -> int:
    """Return what is left of a width when each column has the least one, with 2 between."""
    return width + 2 - sum(_least(texts) + 2 for texts in map(_texts, columns.items()))


def _texts(column: tuple[str, list[str]]) -> list[str]:
    return [column[0], *column[1]]


def _least(texts: list[str]) -> int:
    """Return the width of a column at which neither words nor short texts are broken."""
    words = [word for text in texts for word in (text.split() if cell_len(text) > UNBROKEN else [text])]
    return max(map(cell_len, words))


def _table(columns: Columns, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    spare = max(0, _spare(columns, width))
    for texts in map(_texts, columns.items()):
        least = _least(texts)
        extra = min(spare, max(map(cell_len, texts)) - least)
        spare -= extra
        words = re.search(r"[^\W\d_]{2}", "".join(texts[1:]))
        table.add_column(
            Text(texts[0]), justify="left" if words else "right", width=least + extra, overflow="fold"
        )
    for row in zip(*columns.values(), strict=True):
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
        return f"{value:,}" if isinstance(value, int) else "–" if value is None else str(value)

    return [text(value) for value in values]
