"""Draws the curves of growth that the benchmarks kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from again import kept, rows_of
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from sphinx.application import Sphinx

from problems.palette import COLOURS, MARKERS

FLOOR = "touch loop, µs"
# The table, its abscissa and its ordinate, and a title.
CURVES = (
    ("test_loreta_features", "n = m", "a step, µs", "LORETA-1: features"),
    ("test_loreta_non_zeros", "non-zeros", "a step, µs", "LORETA-1: non-zeros in a row"),
    ("test_loreta_rank", "k", "a step, µs", "LORETA-1: rank"),
    ("test_comet_features", "d", "a step, ms", "COMET: features"),
    ("test_comet_triplets", "triplets", "a step, ms", "COMET: triplets"),
    ("test_coembedding_rows", "rows", "a fit, s", "Co-embedding: rows"),
    ("test_coembedding_features", "features", "a fit, s", "Co-embedding: features"),
    ("test_gossip_columns", "entries", "an update, ms", "Gossip: known entries, 6 agents"),
    ("test_gossip_agents", "agents", "an update, ms", "Gossip: agents, 100 columns each"),
)
NARROWEST = 100.0


def fill(axes: Any, rows: list[dict[str, Any]], across: str, key: str, title: str) -> None:
    """Draw one curve, with its floor where there is one."""
    for line, colour, marker in zip((key, FLOOR), COLOURS, MARKERS, strict=False):
        if line in rows[0]:
            label = "touching the same rows" if line == FLOOR else key.partition(",")[0]
            axes.loglog(
                [row[across] for row in rows],
                [row[line] for row in rows],
                color=colour,
                marker=marker,
                label=label,
            )
    # A flat curve looks flat, and every axis has a number or two.
    for limits, move in ((axes.get_xlim(), axes.set_xlim), (axes.get_ylim(), axes.set_ylim)):
        if limits[1] < NARROWEST * limits[0]:
            middle = (limits[0] * limits[1]) ** 0.5
            move(middle / NARROWEST**0.5, middle * NARROWEST**0.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(key.partition(", ")[2])
    axes.legend(fontsize=8)


def draw(app: Sphinx, config: Any) -> None:
    """Write ``growth.svg``."""
    tables = kept("growth")["tables"]
    figure = Figure(figsize=(9.5, 8.0))
    for axes, (name, across, key, title) in zip(figure.subplots(3, 3).flat, CURVES, strict=True):
        fill(axes, rows_of(tables[name]), across, key, title)
    figure.tight_layout()
    path = Path(app.srcdir) / "_generated" / "growth.svg"
    path.parent.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "rmopt"}):
        figure.savefig(path, metadata={"Date": None})


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before the pages are read."""
    app.connect("config-inited", draw)
    return {"parallel_read_safe": True}
