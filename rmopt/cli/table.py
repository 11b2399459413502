"""Tables that can be read in a terminal of 80 columns and in a pipe."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]

MISSING = "–"
LONGEST_UNBROKEN_TEXT = 24
BETWEEN_COLUMNS = 2
# Numbers from here on, and below there, and those of so different a size, are written with powers of ten.
LARGE, SMALL, LARGEST_SPREAD = 1e9, 1e-4, 100.0
# Durations in seconds below this are nothing: 0.00.
SHORTEST = 1e-3
_HEADINGS = {"map": "mAP"}


def heading_of(key: str) -> str:
    """Return the heading of a snake_case key: ``precision_at_10`` is P@10, ``train_seconds`` is train s."""
    if at := re.fullmatch(r"(?:(.+)_)?precision_at_(\d+)", key):
        return f"{heading_of(at[1])} P@{at[2]}" if at[1] else f"P@{at[2]}"
    if key.endswith("_seconds"):
        return f"{heading_of(key.removesuffix('_seconds'))} s"
    if key.endswith("_map"):
        return f"{heading_of(key.removesuffix('_map'))} mAP"
    return _HEADINGS.get(key, key.replace("_", " "))


def print_rows(console: Console, rows: Sequence[Row], headings: Mapping[str, str] | None = None) -> None:
    """Print rows as a table of the console's width; where it is too wide, as several.

    Each begins with the first columns, by which rows are told apart. Rows are mappings from snake_case keys, not
    always the same ones, to text, numbers or None.
    """
    columns = cells_of(rows, headings)
    if not columns:
        return
    for number, group in enumerate(_side_by_side(columns, console.width)):
        if number > 0:
            console.print()
        console.print(_table(group, console.width))


@dataclass(frozen=True)
class Column:
    """A column of a table as text; a numeric one is aligned on the right."""

    heading: str
    cells: Sequence[str]
    numeric: bool

    @property
    def natural_width(self) -> int:
        """The width at which nothing is broken."""
        return max(map(cell_len, (self.heading, *self.cells)))

    @property
    def least_width(self) -> int:
        """The width at which words and numbers stay whole, and short texts on one line."""
        words = [word for text in (self.heading, *self.cells) for word in text.split()]
        whole = [min(LONGEST_UNBROKEN_TEXT, cell_len(text)) for text in self.cells]
        return max(*map(cell_len, words), *whole, 1)


def cells_of(rows: Sequence[Row], headings: Mapping[str, str] | None = None) -> list[Column]:
    """Return the columns of rows that have any value, in the order of the longest row, with headings."""
    longest_first = sorted(rows, key=len, reverse=True)
    found = dict.fromkeys(key for row in longest_first for key in row)
    keys = [key for key in found if any(row.get(key) is not None for row in rows)] or list(found)
    return [_column(rows, key, (headings or {}).get(key, heading_of(key))) for key in keys]


def _column(rows: Sequence[Row], key: str, heading: str) -> Column:
    values = [row.get(key) for row in rows]
    present = [value for value in values if value is not None]
    numeric = bool(present) and all(map(_is_number, present))
    texts = iter(format_numbers(present, key) if numeric else map(_text, present))
    return Column(heading, [MISSING if value is None else next(texts) for value in values], numeric)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or MISSING


def format_numbers(values: Sequence[float], key: str) -> list[str]:
    """Format the finite numbers of one column; those of a key that ends in ``seconds`` are durations.

    Whole numbers are grouped by thousands and durations get two decimals. Other numbers share as many
    decimals as give the largest of them four significant digits, unless they are of too different size;
    then each gets its own four.
    """
    decimals = 2 if key.endswith("seconds") else _shared_decimals(values)
    return [_format(value, decimals, key.endswith("seconds")) for value in values]


def _shared_decimals(values: Sequence[float]) -> int | None:
    sizes = [abs(value) for value in values if isinstance(value, float) and value != 0]
    if not sizes or max(sizes) >= LARGE or max(sizes) < SMALL or max(sizes) / min(sizes) > LARGEST_SPREAD:
        return None
    return max(0, 4 - math.ceil(math.log10(max(sizes))))


def _format(value: float, decimals: int | None, is_duration: bool) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if decimals is not None and not (is_duration and SHORTEST < abs(value) < 0.01):
        return f"{value:,.{decimals}f}"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if 1e3 <= abs(value) < LARGE else f"{value:#.4g}"


def _side_by_side(columns: Sequence[Column], width: int) -> Iterator[Sequence[Column]]:
    """Split the columns into groups that fit the width, each led by those that tell the rows apart."""
    group = led = columns[: _telling(columns, width)]
    for column in columns[len(led) :]:
        if _least_width([*group, column]) > width and len(group) > len(led):
            yield group
            group = led
        group = [*group, column]
    yield group


def _telling(columns: Sequence[Column], width: int) -> int:
    """Return how many of the first columns tell the rows apart; one where these take more than half of the width."""
    for count in range(1, len(columns)):
        rows = list(zip(*(column.cells for column in columns[:count]), strict=True))
        if len(set(rows)) == len(rows) and _least_width(columns[:count]) <= width / 2:
            return count
    return 1


def _least_width(columns: Sequence[Column]) -> int:
    return sum(column.least_width + BETWEEN_COLUMNS for column in columns) - BETWEEN_COLUMNS


def _table(columns: Sequence[Column], width: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    spare = width - _least_width(columns)
    for column in columns:
        extra = min(max(spare, 0), column.natural_width - column.least_width)
        spare -= extra
        table.add_column(
            Text(column.heading),
            justify="right" if column.numeric else "left",
            width=column.least_width + extra,
            overflow="fold",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(cell, "dim" if cell == MISSING else "") for cell in cells))
    return table
