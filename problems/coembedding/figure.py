"""The pictures of the co-embedding experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.coembedding.methods import NAMES
from problems.palette import COLOURS, logarithmic, style, whole_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_scores(figure: Figure, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw each measure of the rows of a table with its standard error, and what the paper printed."""
    figure.set_layout_engine("constrained")
    places = np.arange(len(rows))[::-1]
    panels = figure.subplots(1, len(NAMES), sharey=True, squeeze=False)[0]
    for axes, (measure, name) in zip(panels, NAMES.items(), strict=True):
        errors = [row.get(f"{measure}_sem") or 0.0 for row in rows]
        means = np.array([row[measure] for row in rows], dtype=float)
        axes.errorbar(means, places, xerr=errors, fmt="o", color=COLOURS[0], capsize=3, label="here")
        paper = f"{measure}_paper"
        theirs = [(row[paper], place) for row, place in zip(rows, places, strict=True) if paper in row]
        if theirs:
            axes.plot(
                *zip(*theirs, strict=True), linestyle="", marker="D", mfc="none", color=COLOURS[1], label="paper"
            )  # fmt: skip
        axes.set_yticks(places, [row["method"] for row in rows])
        axes.set(ylim=(-0.6, len(rows) - 0.4), xlabel=f"{name} (test, %)")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="small")
    figure.suptitle(title)


def draw_optima(
    figure: Figure, optima: Mapping[int, Sequence[float]], minimum: float, rank: int, title: str
) -> None:
    """Draw how far the objectives of local optima, by number of columns, are above the global minimum."""
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    rng = np.random.default_rng(0)
    for d, values in optima.items():
        excess = np.maximum(np.asarray(values) / minimum - 1.0, 1e-12)
        axes.plot(
            d + rng.uniform(-0.2, 0.2, len(excess)), excess, linestyle="", marker="o", markersize=3, alpha=0.5,
            color=COLOURS[0],
        )  # fmt: skip
    axes.axvline(rank, color=COLOURS[1], linestyle="--", label=f"d* = {rank}, the rank of the global minimum")
    axes.set(yscale="log", xlabel="d, number of columns", ylabel="local optimum, excess over the global one")
    axes.set(xticks=list(optima), title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_curves(
    figure: Figure,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    xlabel: str,
    ylabel: str,
    title: str,
    decades: bool = False,
) -> None:
    """Draw curves in panels side by side: from titles of panels to labels to points (x, y)."""
    figure.set_layout_engine("constrained")
    found = figure.subplots(1, len(panels), sharey=decades, squeeze=False)[0]
    for axes, (name, curves) in zip(found, panels.items(), strict=True):
        for number, (label, points) in enumerate(curves.items()):
            x, y = np.array(points, dtype=float).reshape(-1, 2).T
            axes.plot(x, y, label=label, **style(number))
        axes.set(xlabel=xlabel, title=name)
        axes.grid(alpha=0.3)
    for axes in found:
        if decades:
            logarithmic(axes.xaxis)
            logarithmic(axes.yaxis)
        else:
            whole_ticks(axes.xaxis)
    found[0].set_ylabel(ylabel)
    found[-1].legend(fontsize="small")
    figure.suptitle(title)
