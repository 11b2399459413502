"""The picture of a label ranking experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from problems.cells import mean_and_sem
from problems.palette import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = {"zero": "-", "identity": "--", "gaussian": ":"}


def draw_ranking(
    figure: Figure,
    results: Mapping[tuple[str, str, int], list[dict[str, Any]]],
    labels: Mapping[str, str],
    frequency: float,
    title: str,
) -> None:
    """Draw mean average precision against rank, and against training time.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    results : mapping
        For each (method, init, rank) one result per split, with map and curve; rank 0: full rank.
    labels : mapping
        From names of methods to their labels.
    frequency : float
        The mean average precision of labels by frequency.
    title : str
    """
    # What diverged on a split is not drawn.
    results = {key: found for key, found in results.items() if all(cell["map"] is not None for cell in found)}
    figure.set_layout_engine("constrained")
    by_rank, by_time = figure.subplots(1, 2)
    names = list(labels)
    for name, init in dict.fromkeys((name, init) for name, init, _ in results):
        number = names.index(name)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        cells = {rank: found for (n, i, rank), found in results.items() if (n, i) == (name, init)}
        both = {rank: mean_and_sem(cell["map"] for cell in found) for rank, found in cells.items()}
        means = {rank: mean for rank, (mean, _) in both.items()}
        if 0 in means:
            by_rank.axhline(means[0], color=colour, linestyle="-.", label=f"{labels[name]}, full rank")
        else:
            errors = [sem or 0.0 for _, sem in both.values()]
            by_rank.errorbar(
                list(means), list(means.values()), errors, color=colour, marker=marker, markersize=4,
                linestyle=STYLES[init], label=f"{labels[name]}, {init}",
            )  # fmt: skip
    for number, name in enumerate(names):
        settings = [found for (method, _, _), found in results.items() if method == name]
        if not settings:
            continue
        found = max(settings, key=lambda found: sum(cell["map"] for cell in found))
        length = min(len(cell["curve"]) for cell in found)
        seconds = [sum(cell["curve"][i][0] for cell in found) / len(found) for i in range(length)]
        maps = [sum(cell["curve"][i][1] for cell in found) / len(found) for i in range(length)]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        by_time.plot(seconds, maps, color=colour, marker=marker, markersize=4, label=labels[name])
    for axes in (by_rank, by_time):
        axes.axhline(frequency, color="0.5", linewidth=1, label="label frequency")
        axes.grid(alpha=0.3)
    # There is no free place for this many lines inside the axes.
    by_rank.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    by_time.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    by_rank.set_xlabel("rank")
    by_rank.set_ylabel("mean average precision (test)")
    by_time.set_xlabel("training time [s]")
    by_time.set_xscale("log")
    by_time.set_title("best setting of each method", fontsize="medium")
    figure.suptitle(title)
