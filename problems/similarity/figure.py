"""The picture of a similarity experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from problems.palette import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_learning_curves(
    figure: Figure, curves: Mapping[str, list[dict[str, Any]]], baseline: float, title: str
) -> None:
    """Draw mean average precision against triplets and against training time.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    curves : mapping
        For each method the recorder's rows, with step, seconds and map.
    baseline : float
        The mean average precision of the plain cosine.
    title : str
    """
    from matplotlib.ticker import EngFormatter

    # Fixed margins, and ticks without formulas: an automatic layout would draw everything twice, and
    # typesetting 10³ costs more than the rest of the picture.
    margins = {"left": 0.07, "right": 0.98, "bottom": 0.13, "top": 0.91, "wspace": 0.04}
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw=margins)
    for axes, key, label in (
        (left, "step", "triplets seen"),
        (right, "seconds", "training time [s]"),
    ):
        for number, (method, rows) in enumerate(curves.items()):
            shown = [row for row in rows if row[key] > 0]
            axes.plot(
                [row[key] for row in shown],
                [row["map"] for row in shown],
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=4,
                label=method,
            )
        axes.axhline(baseline, color="0.5", linestyle="--", label="cosine")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    left.set_ylabel("mean average precision (test)")
    left.legend(fontsize="small")
    figure.suptitle(title)
