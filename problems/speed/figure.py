"""The picture of the step times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from problems.palette import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_speed(figure: Figure, rows: list[dict[str, Any]]) -> None:
    """Draw microseconds per step against the number of features.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty.
    rows : list of dict
        With method, features, microseconds_per_step and, for compiled engines, floor_microseconds.
    """
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        found = [row for row in rows if row["method"] == method]
        axes.loglog(
            [row["features"] for row in found],
            [row["microseconds_per_step"] for row in found],
            color=COLOURS[number],
            marker=MARKERS[number],
            label=method,
        )
        if method == "LORETA-1":
            axes.loglog(
                [row["features"] for row in found],
                [row["floor_microseconds"] for row in found],
                color="0.5",
                linestyle="--",
                label="touching the same rows",
            )
    axes.set_xlabel("features")
    axes.set_ylabel("microseconds a step")
    axes.grid(alpha=0.3)
    axes.legend()
