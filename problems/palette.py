"""Colours and markers of the figures, and the figure of all experiments: lines in panels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Okabe and Ito's colours, which colour-blind readers can distinguish, and then Tol's.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255", "#999933", "#332288",
    "#44AA99", "#661100",
)  # fmt: skip
# Together with colours they repeat late.
MARKERS = "osD^vPX"


def style(number: int) -> dict[str, Any]:
    """Return the style of the n-th method's line, for ``axes.plot`` and ``axes.errorbar``."""
    return {
        "color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4,
    }  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """A part of a figure.

    Attributes
    ----------
    xlabel, ylabel : str
    lines : mapping
        From labels to points (x, y, standard error of y), or (x, y). One point whose x is NaN is a level.
    logarithmic : str
        Any of x and y.
    """

    xlabel: str
    ylabel: str
    lines: Mapping[str, Sequence[Sequence[float]]]
    logarithmic: str = ""


def draw_panels(figure: Any, panels: Sequence[Panel], title: str) -> None:
    """Draw panels side by side with one style for each label, and one legend below."""
    figure.set_layout_engine("constrained")
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    share = len({panel.ylabel for panel in panels}) == 1
    legend: dict[str, Any] = {}
    for axes, panel in zip(
        figure.subplots(1, len(panels), sharey=share, squeeze=False)[0], panels, strict=True
    ):
        for label, points in panel.lines.items():
            look, (x, y, *error) = style(labels.index(label)), np.array(points, dtype=float).T
            if np.isnan(x[0]):
                legend[label] = axes.axhline(y[0], linestyle="--", clip_on=False, **look)
            else:
                legend[label] = axes.errorbar(x, y, *error, **look)
        scales = {f"{name}scale": "log" for name in panel.logarithmic}
        axes.set(
            xlabel=panel.xlabel, ylabel=panel.ylabel if not share or axes in figure.axes[:1] else "", **scales
        )
        if "x" not in panel.logarithmic:
            # Ranks and steps are whole.
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    if len(legend) > 1:
        figure.legend(legend.values(), legend, loc="outside lower center", ncols=4, fontsize="small")
    figure.suptitle(title)
