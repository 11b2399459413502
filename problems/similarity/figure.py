"""The picture of a similarity experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmopt.experiments import Run

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


def draw_learning_curves(
    run: Run, name: str, curves: Mapping[str, list[dict[str, Any]]], *, baseline: float, title: str
) -> None:
    """Draw mean average precision against triplets and against training time, and save it as PNG.

    Parameters
    ----------
    run : Run
    name : str
        The file name.
    curves : mapping
        For each method the recorder's rows, with step, seconds and map.
    baseline : float
        The mean average precision of the plain cosine.
    title : str
    """
    with run.figure(name, size=(9.0, 4.0)) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
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
            axes.set_xlabel(label)
            axes.grid(alpha=0.3)
        left.set_ylabel("mean average precision (test)")
        left.legend(fontsize="small")
        figure.suptitle(title)
