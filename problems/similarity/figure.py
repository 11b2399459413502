"""The picture of a similarity experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.cells import mean_and_sem
from problems.palette import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from problems.comparison import Method


def draw_learning_curves(
    figure: Figure, curves: Mapping[str, list[dict[str, Any]]], baseline: float, title: str
) -> None:
    """Draw mean average precision, in the recorder's rows of each method, against triplets and training time."""
    from matplotlib.ticker import EngFormatter

    # Fixed margins, and ticks without formulas: an automatic layout would draw everything twice, and
    # typesetting 10³ costs more than the rest of the picture.
    margins = {"left": 0.07, "right": 0.98, "bottom": 0.13, "top": 0.91, "wspace": 0.04}
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw=margins)
    for axes, key, label in ((left, "step", "triplets seen"), (right, "seconds", "training time [s]")):
        for number, (method, rows) in enumerate(curves.items()):
            shown = [(row[key], row["map"]) for row in rows if row[key] > 0]
            axes.plot(*zip(*shown, strict=True), label=method, **style(number))
        axes.axhline(baseline, color="0.5", linestyle="--", label="cosine")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    left.set_ylabel("mean average precision (test)")
    left.legend(fontsize="small")
    figure.suptitle(title)


def draw_ranks(
    figure: Figure, results: Mapping[tuple[str, int], list[dict[str, Any]]], methods: Mapping[str, Method]
) -> None:
    """Draw learning curves by rank, general against PSD, and mean average precision against rank.

    There is one result per split, with map and curve, for each (method, rank).
    """
    # What diverged on a split is not drawn.
    results = {key: found for key, found in results.items() if all(cell["map"] is not None for cell in found)}
    figure.set_layout_engine("constrained")
    by_rank, both, final = figure.subplots(1, 3)
    ranks = sorted({rank for name, rank in results if name == "loreta"})
    for number, rank in enumerate(ranks):
        _draw_curve(by_rank, results["loreta", rank], f"rank {rank}", number, "-")
    shown = sorted({ranks[0], ranks[len(ranks) // 2], ranks[-1]}) if ranks else []
    for number, rank in enumerate(shown):
        for name, form, line in (("loreta", "general", "-"), ("loreta-psd", "PSD", "--")):
            if (name, rank) in results:
                _draw_curve(both, results[name, rank], f"{form}, rank {rank}", number, line)
    for axes, title in ((by_rank, "LORETA by rank"), (both, "general and PSD")):
        axes.set_title(title, fontsize="medium")
        axes.set_xscale("log")
        axes.set_xlabel("triplets seen")
    by_rank.set_ylabel("mean average precision (test)")
    for number, (name, method) in enumerate(methods.items()):
        points = sorted((rank, found) for (one, rank), found in results.items() if one == name)
        values = [mean_and_sem(cell["map"] for cell in found) for _, found in points]
        if method.estimator.full_rank:
            for place, ((width, _), (mean, _)) in enumerate(zip(points, values, strict=True)):
                label = f"{method.label}, {width} features"
                final.axhline(
                    mean, color=style(number)["color"], linestyle=":" if place else "--", label=label
                )
        elif points:
            means, errors = zip(*values, strict=True)
            final.errorbar(
                [rank for rank, _ in points], means, [error or 0.0 for error in errors], label=method.label,
                **style(number),
            )  # fmt: skip
    final.set_xlabel("rank (features × rank fixed)")
    final.set_title("all methods", fontsize="medium")
    for axes in (by_rank, both, final):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="x-small")


def _draw_curve(axes: Any, found: list[dict[str, Any]], label: str, number: int, line: str) -> None:
    """Draw the mean of the curves of several splits, which were measured at the same steps."""
    curves = np.array([cell["curve"] for cell in found])
    curves = curves[:, curves[0, :, 0] > 0]
    axes.plot(curves[0, :, 0], curves[:, :, 1].mean(axis=0), line, color=style(number)["color"], label=label)
