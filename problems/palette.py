"""Colours and markers of the pictures, and the picture that all experiments draw: lines in panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from problems.comparison import Row, band, mean_and_sem

# Okabe and Ito's colours, which colour-blind readers can tell apart, and then those of Tol that come next.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255", "#999933", "#332288",
    "#44AA99", "#661100",
)  # fmt: skip
# Together with colours they repeat late.
MARKERS = "osD^vPX"


def style(number: int) -> dict[str, Any]:
    """Return how the line of the n-th method looks, for ``axes.plot`` and ``axes.errorbar``."""
    return {
        "color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4,
    }  # fmt: skip


def whole_ticks(axis: Any) -> None:
    """Put ticks at whole numbers, also where there is a single one."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def logarithmic(axis: Any, unit: str | None = None) -> None:
    """Make the axis of what is drawn logarithmic; with a unit, of prefixes such as k and m.

    Typesetting 10³ costs more than the rest of a picture. Less than two decades have more ticks than powers of 10.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    low, high = sorted(axis.get_view_interval())
    if high < 100.0 * low:
        axis.set_major_locator(MaxNLocator(6) if high < 5.0 * low else LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
    if unit is not None:
        axis.set_major_formatter(EngFormatter(unit))
    if unit is not None or high < 100.0 * low:
        axis.set_minor_locator(NullLocator())


def finish(
    axes: Any, xlabel: str, ylabel: str = "", title: str = "", unit: str | None = None, size: str = "small"
) -> None:
    """Label axes, draw a grid and, where something has a label, a legend; with a unit the x-axis is logarithmic."""
    if unit is not None:
        logarithmic(axes.xaxis, unit)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=size)


@dataclass(frozen=True)
class Panel:
    """A part of a picture.

    Attributes
    ----------
    xlabel, ylabel : str
    lines : mapping
        From labels to points (x, y, standard error of y), or (x, y). One point whose x is NaN is a level.
    logarithmic : str
        Any of x and y.
    unit : str, optional
        Of a logarithmic x-axis, which it gives prefixes such as k and m.
    """

    xlabel: str
    ylabel: str
    lines: Mapping[str, Sequence[Sequence[float]]]
    logarithmic: str = ""
    unit: str | None = None


def draw_panels(figure: Any, panels: Sequence[Panel], title: str) -> None:
    """Draw panels side by side, in which a label has one look, with one legend below."""
    figure.set_layout_engine("constrained")
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    share = len({panel.ylabel for panel in panels}) == 1
    legend: dict[str, Any] = {}
    for axes, panel in zip(
        figure.subplots(1, len(panels), sharey=share, squeeze=False)[0], panels, strict=True
    ):
        whole = True
        for label, points in panel.lines.items():
            look, (x, y, *error) = style(labels.index(label)), np.array(points, dtype=float).T
            if np.isnan(x[0]):
                legend[label] = axes.axhline(y[0], color=look["color"], linestyle="--")
            else:
                legend[label] = axes.errorbar(x, y, *error, **look)
                whole = whole and bool((x == np.round(x)).all())
        for name in panel.logarithmic:
            logarithmic(getattr(axes, f"{name}axis"), panel.unit if name == "x" else None)
        if whole and "x" not in panel.logarithmic:
            whole_ticks(axes.xaxis)
        finish(axes, panel.xlabel, panel.ylabel)
    if len(legend) > 1:
        figure.legend(legend.values(), legend, loc="outside lower center", ncols=4, fontsize="small")
    figure.suptitle(title)


LINES = ("-", "--", "-.", ":")
# Seconds: what takes less, like the cosine, has nothing to train, and is a level in pictures over time.
NO_TRAINING = 1e-3


def line(number: int, dashes: int = 0) -> dict[str, Any]:
    """Return how a line without markers looks: with other dashes for levels, and where its colour was used before."""
    turn = number // len(COLOURS) + dashes
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[turn % len(LINES)]}


def draw_band(axes: Any, at: Any, curves: Any, label: str, **look: Any) -> None:
    """Draw the mean of curves, one in a row, with a band of its standard error."""
    mean, error = band(curves)
    axes.plot(at, mean, label=label, **look)
    if len(curves) > 1:
        axes.fill_between(at, mean - error, mean + error, color=look["color"], alpha=0.2, linewidth=0)


def draw_curve(axes: Any, row: Row, x: int, y: int, label: str | None = None, **look: Any) -> None:
    """Draw a column of the `curve` of all seeds against the mean of another column, as far as all curves reach."""
    length = min(len(cell["curve"]) for cell in row.cells)
    curves = np.array([cell["curve"][:length] for cell in row.cells])
    draw_band(axes, curves[:, :, x].mean(axis=0), curves[:, :, y], label or row.label, **look)


def draw_level(
    axes: Any, cells: Iterable[Mapping[str, Any]], label: str, number: int, dashes: int = 1
) -> None:
    """Draw the mean average precision of the n-th method, which does not depend on x, with its standard error."""
    mean, error = mean_and_sem(cell["map"] for cell in cells)
    look = line(number, dashes)
    axes.axhline(mean, label=label, **look)
    if error:
        axes.axhspan(mean - error, mean + error, color=look["color"], alpha=0.2, linewidth=0)


def draw_trained(axes: Any, cells: Sequence[Mapping[str, Any]], label: str, number: int) -> None:
    """Draw the mean average precision of a method without a learning curve where its training ends."""
    seconds, _ = mean_and_sem(cell["seconds"] for cell in cells)
    if seconds < NO_TRAINING:
        draw_level(axes, cells, label, number)
    else:
        mean, error = mean_and_sem(cell["map"] for cell in cells)
        axes.errorbar([seconds], [mean], [error or 0.0], label=label, linestyle="none", **style(number))
