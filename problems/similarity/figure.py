"""The pictures of a similarity experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.cells import Cell, mean_and_sem
from problems.palette import draw_band, draw_level, draw_trained, line, logarithmic, style, whole_ticks
from problems.similarity.methods import CURVE_QUERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from problems.similarity.claims import Results

MEASURED = f"mean average precision (curves: ≤ {CURVE_QUERIES} queries)"


def draw_learning_curves(figure: Figure, results: Results, labels: Mapping[Any, str], title: str) -> None:
    """Draw mean average precision against triplets and training time, with its standard error over the seeds.

    A method without a curve is a level, or a point at its training time. Of several ranks the middle one is drawn.
    """
    results = _whole(results)
    ranks = sorted({key[2] for key in results if key[2] is not None})
    shown = {key: found for key, found in results.items() if key[2] in (None, *ranks[len(ranks) // 2 :][:1])}
    # Fixed margins: an automatic layout would draw everything twice.
    margins = {"left": 0.07, "right": 0.98, "bottom": 0.13, "top": 0.91, "wspace": 0.04}
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw=margins)
    for axes, column, label, unit in ((left, 0, "triplets seen", ""), (right, 1, "training time", "s")):
        for number, (key, found) in enumerate(shown.items()):
            name = labels[key] + f", rank {key[2]}" * (len(ranks) > 1 and key[2] is not None)
            if found[0]["curve"]:
                _draw_curve(axes, found, name, column=column, **style(number))
            elif column:
                draw_trained(axes, found, name, number)
            else:
                draw_level(axes, found, name, number)
        logarithmic(axes.xaxis, unit)
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    left.set_ylabel(MEASURED)
    if left.get_legend_handles_labels()[0]:
        left.legend(fontsize="small")
    figure.suptitle(title)


def draw_ranks(figure: Figure, results: Results, labels: Mapping[Any, str]) -> None:
    """Draw learning curves of LORETA by rank, general against PSD, and mean average precision against rank."""
    # What diverged with a seed is not drawn.
    results = _whole(results)
    figure.set_layout_engine("constrained")
    by_rank, both, final = figure.subplots(1, 3)
    first = {(key[0], key[2]): found for key, found in reversed(results.items())}
    ranks = sorted(rank for name, rank in first if name == "loreta" and rank is not None)
    for number, rank in enumerate(ranks):
        _draw_curve(by_rank, first["loreta", rank], f"rank {rank}", **line(number))
    shown = sorted({ranks[0], ranks[len(ranks) // 2], ranks[-1]}) if ranks else []
    for number, rank in enumerate(shown):
        for name, form, dashes in (("loreta", "general", 0), ("loreta-psd", "PSD", 1)):
            if (name, rank) in first:
                _draw_curve(both, first[name, rank], f"{form}, rank {rank}", **line(number, dashes))
    for axes, title in ((by_rank, "LORETA by rank"), (both, "general and PSD")):
        axes.set_title(title, fontsize="medium")
        logarithmic(axes.xaxis, "")
        axes.set_xlabel("triplets seen")
    by_rank.set_ylabel(MEASURED)
    for number, label in enumerate(dict.fromkeys(labels[key] for key in results)):
        own = {key: found for key, found in results.items() if labels[key] == label}
        points = sorted(
            (key[2], *mean_and_sem(cell["map"] for cell in found)) for key, found in own.items() if key[2]
        )
        if points:
            at, means, errors = zip(*points, strict=True)
            final.errorbar(at, means, [error or 0.0 for error in errors], label=label, **style(number))
        for place, (key, found) in enumerate(own.items()):
            if key[2] is None:
                several = f", {key[3]} features" * (len(own) > 1)
                draw_level(final, found, label + several, number, 1 + place)
    final.set_xlabel("rank")
    whole_ticks(final.xaxis)
    final.set_title("all methods", fontsize="medium")
    for axes in (by_rank, both, final):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="x-small")


def _whole(results: Results) -> Results:
    return {key: found for key, found in results.items() if all(cell["map"] is not None for cell in found)}


def _draw_curve(axes: Any, found: Sequence[Cell], label: str, column: int = 0, **look: Any) -> None:
    """Draw the curves of several seeds, which were measured at the same steps."""
    curves = np.array([cell["curve"] for cell in found])
    draw_band(axes, curves[:, :, column].mean(axis=0), curves[:, :, 2], label, **look)
