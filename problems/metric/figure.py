"""The pictures of the metric experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.metric.claims import Results, band
from problems.palette import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_precision(figure: Figure, results: Results, labels: Mapping[str, str], title: str) -> None:
    """Draw precision among the first k against k, of results by method and split, with its standard error."""
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for number, (name, found) in enumerate(results.items()):
        if any(cell["precision"] is None for cell in found):
            continue
        curves = np.array([cell["precision"] for cell in found])
        _draw_band(
            axes, np.arange(1, curves.shape[1] + 1), curves, COLOURS[number % len(COLOURS)], labels[name]
        )
    axes.set_xlabel("k, number of neighbours")
    axes.set_ylabel("precision at top k (test)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_convergence(figure: Figure, results: Results, labels: Mapping[str, str], title: str) -> None:
    """Draw precision and cost of COMET, which a `curve` tells, against coordinate steps over features."""
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2)
    number = 0
    for name, found in results.items():
        if not all(cell["curve"] for cell in found):
            continue
        curves = np.array([cell["curve"] for cell in found])
        passes = curves[0, :, 0]
        for column, depth in ((1, 1), (2, 10)):
            colour = COLOURS[number % len(COLOURS)]
            _draw_band(
                left, passes, curves[:, :, column], colour, f"{labels[name]}, P@{depth}", MARKERS[number]
            )
            number += 1
        relative = curves[:, :, 3] / np.abs(curves[:, :1, 3])
        _draw_band(right, passes, relative, COLOURS[(number - 1) % len(COLOURS)], labels[name])
    for axes, label in ((left, "precision (test)"), (right, "cost, relative to the start")):
        axes.set_xlabel("coordinate steps / features")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(title)


def _draw_band(axes: Any, x: Any, curves: Any, colour: str, label: str, marker: str = "") -> None:
    """Draw the mean of curves with a band of its standard error."""
    mean, error = band(curves)
    axes.plot(x, mean, color=colour, label=label, marker=marker, markersize=4)
    if len(curves) > 1:
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
