"""The picture of a label ranking experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.comparison import mean_and_sem
from problems.palette import draw_band, draw_level, draw_trained, logarithmic, style, whole_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = {"zero": "-", "identity": "--", "gaussian": ":", "": "-"}


def draw_ranking(
    figure: Figure,
    results: Mapping[tuple[str, str, int], list[dict[str, Any]]],
    labels: Mapping[str, str],
    title: str,
) -> None:
    """Draw mean average precision against rank (0: full rank), and against training time.

    There is one result per seed, with map and curve, for each (method, init, rank); `labels` are by method.
    """
    # What diverged with a seed is not drawn.
    results = {key: found for key, found in results.items() if all(cell["map"] is not None for cell in found)}
    figure.set_layout_engine("constrained")
    by_rank, by_time = figure.subplots(1, 2)
    numbers = {name: number for number, name in enumerate(labels)}
    for name, init in dict.fromkeys((name, init) for name, init, _ in results):
        found = {rank: cells for (n, i, rank), cells in results.items() if (n, i) == (name, init)}
        both = {rank: mean_and_sem(cell["map"] for cell in cells) for rank, cells in found.items()}
        means, errors = [mean for mean, _ in both.values()], [sem or 0.0 for _, sem in both.values()]
        if 0 in both:
            draw_level(by_rank, found[0], labels[name], numbers[name])
        else:
            label, look = f"{labels[name]}, {init}".removesuffix(", "), style(numbers[name])
            by_rank.errorbar(list(both), means, errors, linestyle=STYLES[init], label=label, **look)
    for name, number in numbers.items():
        settings = [found for (method, _, _), found in results.items() if method == name]
        if settings:
            best = max(settings, key=lambda found: sum(cell["map"] for cell in found))
            length = min(len(cell["curve"]) for cell in best)
            if not length:
                draw_trained(by_time, best, labels[name], number)
                continue
            curves = np.array([cell["curve"][:length] for cell in best])
            at = curves[:, :, 0].mean(axis=0)
            draw_band(by_time, at, curves[:, :, 1], labels[name], **style(number))
    for axes in (by_rank, by_time):
        axes.grid(alpha=0.3)
        # There is no free place for this many lines inside the axes.
        axes.legend(
            fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, handlelength=4
        )
    by_rank.set(xlabel="rank", ylabel="mean average precision (test)")
    whole_ticks(by_rank.xaxis)
    by_time.set_xlabel("training time")
    logarithmic(by_time.xaxis, "s")
    by_time.set_title("best setting of each method", fontsize="medium")
    figure.suptitle(title)
