"""Colours and markers of the pictures, and what several of them draw."""

from collections.abc import Iterable, Mapping
from typing import Any

from problems.cells import band, mean_and_sem

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# One more than colours: together they repeat after 56.
MARKERS = "osD^vPX<"
LINES = ("-", "--", "-.", ":")
# Seconds: what takes less, like the cosine, has nothing to train, and is a level in pictures over time.
NO_TRAINING = 1e-3


def style(number: int) -> dict[str, Any]:
    """Return how the line of the n-th method looks, for ``axes.plot`` and ``axes.errorbar``."""
    return {
        "color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4,
    }  # fmt: skip


def line(number: int, dashes: int = 0) -> dict[str, Any]:
    """Return how a line without markers looks: with other dashes for levels, and where its colour was used before."""
    turn = number // len(COLOURS) + dashes
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[turn % len(LINES)]}


def whole_ticks(axis: Any) -> None:
    """Put ticks at whole numbers, also where there is a single one."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def ticks_of_few_decades(axis: Any, form: Any = "{x:g}") -> None:
    """Put more ticks than powers of 10 on a logarithmic axis of less than two decades."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    if high < 100.0 * low:
        axis.set_major_locator(MaxNLocator(6) if high < 5.0 * low else LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(form)


def draw_band(axes: Any, at: Any, curves: Any, label: str, **look: Any) -> None:
    """Draw the mean of curves, one in a row, with a band of its standard error."""
    mean, error = band(curves)
    axes.plot(at, mean, label=label, **look)
    if len(curves) > 1:
        axes.fill_between(at, mean - error, mean + error, color=look["color"], alpha=0.2, linewidth=0)


def draw_point(axes: Any, at: float, found: Iterable[Mapping[str, Any]], label: str, **look: Any) -> None:
    """Draw the mean average precision of a method without a learning curve where its training ends."""
    mean, error = mean_and_sem(cell["map"] for cell in found)
    axes.errorbar([at], [mean], [error or 0.0], label=label, linestyle="none", **look)
