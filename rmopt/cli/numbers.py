"""Numbers as a person reads them in a column."""

import math
from collections.abc import Sequence

LARGE = 1e9
SMALL = 1e-4
LARGEST_SPREAD = 100.0


def format_numbers(values: Sequence[float], key: str) -> list[str]:
    """Format the numbers of one column.

    Whole numbers are grouped by thousands and durations get two decimals. Other numbers share as many
    decimals as give the largest of them four significant digits, unless they are of too different size;
    then each gets its own four.

    Parameters
    ----------
    values : sequence of float
        Finite numbers.
    key : str
        The column's key; a key ending in ``seconds`` holds durations.
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
    if decimals is not None and not (is_duration and 0 < abs(value) < 0.01):
        return f"{value:,.{decimals}f}"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if 1e3 <= abs(value) < LARGE else f"{value:#.4g}"
