"""The pictures of the metric experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from problems.metric.claims import Results
from problems.palette import draw_band, line, style

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
        at = np.arange(1, curves.shape[1] + 1)
        draw_band(axes, at, curves, labels[name], **line(number))
    axes.set(xlabel="k, number of neighbours", ylabel="precision at top k (test)", title=title)
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
            draw_band(left, passes, curves[:, :, column], f"{labels[name]}, P@{depth}", **style(number))
            number += 1
        relative = curves[:, :, 3] / np.abs(curves[:, :1, 3])
        draw_band(right, passes, relative, labels[name], **line(number - 1))
    for axes, label in ((left, "precision (test)"), (right, "cost, relative to the start")):
        axes.set(xlabel="coordinate steps / features", ylabel=label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(title)
