"""The pictures of the co-embedding experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.palette import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_scores(
    figure: Figure,
    scores: Mapping[str, Mapping[str, tuple[float, float]]],
    printed: Mapping[str, Mapping[str, float]],
    title: str,
) -> None:
    """Draw each measure of each method as a point with its standard error, and what the paper printed.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    scores : mapping
        From names of measures to methods to mean and standard error.
    printed : mapping
        From names of measures to methods to the paper's mean; may be empty.
    title : str
    """
    figure.set_layout_engine("constrained")
    panels = figure.subplots(1, len(scores), sharey=True, squeeze=False)[0]
    for axes, (measure, found) in zip(panels, scores.items(), strict=True):
        places = np.arange(len(found))[::-1]
        means, errors = zip(*found.values(), strict=True)
        axes.errorbar(means, places, xerr=errors, fmt="o", color=COLOURS[0], capsize=3, label="here")
        theirs = printed.get(measure, {})
        at = [(theirs[name], place) for name, place in zip(found, places, strict=True) if name in theirs]
        if at:
            axes.plot(
                *zip(*at, strict=True), linestyle="", marker="D", mfc="none", color=COLOURS[1], label="paper"
            )
        axes.set_yticks(places, list(found))
        axes.set_ylim(-0.6, len(found) - 0.4)
        axes.set_xlabel(f"{measure} (test, %)")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="small")
    figure.suptitle(title)


def draw_optima(
    figure: Figure, optima: Mapping[int, Sequence[float]], minimum: float, rank: int, title: str
) -> None:
    """Draw how far local optima are above the global minimum, against the number of columns.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    optima : mapping
        From numbers of columns to objectives.
    minimum : float
        The certified global minimum.
    rank : int
        Its rank.
    title : str
    """
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
    axes.set_yscale("log")
    axes.set_xlabel("d, number of columns")
    axes.set_ylabel("local optimum, excess over the global one")
    axes.set_xticks(list(optima))
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_curves(
    figure: Figure,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    xlabel: str,
    ylabel: str,
    title: str,
    logarithmic: bool = False,
) -> None:
    """Draw curves in panels side by side.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    panels : mapping
        From titles of panels to labels to points (x, y).
    xlabel, ylabel, title : str
    logarithmic : bool
        Both axes.
    """
    figure.set_layout_engine("constrained")
    found = figure.subplots(1, len(panels), sharey=logarithmic, squeeze=False)[0]
    for axes, (name, curves) in zip(found, panels.items(), strict=True):
        for number, (label, points) in enumerate(curves.items()):
            x, y = np.array(points, dtype=float).reshape(-1, 2).T
            axes.plot(
                x, y, color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)], markersize=4,
                label=label,
            )  # fmt: skip
        if logarithmic:
            axes.set_xscale("log")
            axes.set_yscale("log")
        axes.set_xlabel(xlabel)
        axes.set_title(name)
        axes.grid(alpha=0.3)
    found[0].set_ylabel(ylabel)
    found[-1].legend(fontsize="small")
    figure.suptitle(title)


def levels(rows: Sequence[Mapping[str, Any]], x: str, y: str) -> list[tuple[float, float]]:
    """Return the points (x, y) of recorded rows."""
    return [(float(row[x]), float(row[y])) for row in rows]
