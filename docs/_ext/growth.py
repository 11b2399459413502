"""Draws curves of growth and of training, and times of other libraries over ours, that the benchmarks kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from again import kept, rows_of, values
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from sphinx.application import Sphinx

from problems.palette import COLOURS, MARKERS, Panel, draw_panels

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
FIVE, LISTS, PAIR = "completion_time; test_five_splits; ml1m", "recommendations; test_lists", "torch_low_rank"
# A rival, and its times over ours, or its times and ours.
RIVALS = (
    ("pymanopt, thirteen problems", "batch_solvers; pymanopt / rmopt"),
    ("pymanopt, its examples", "pymanopt_examples; pymanopt / rmopt"),
    ("GeoJAX, trust regions", "geojax; test_runs; GeoJAX / rmopt"),
    ("Clarabel, certified programmes", "certificates; test_programmes; times ours"),
    ("Shonan averaging, certified rotations", "certificates; test_rotations; times ours"),
    ("closed form, regression of a metric", "rank_incremental_time; closed form; times ours"),
    ("myfm, ratings", f"{FIVE}; myfm; CPU seconds", f"{FIVE}; BayesianCompletion, 10 + 100; CPU seconds"),
    ("cmfrec, ratings", f"{FIVE}; cmfrec; CPU seconds", f"{FIVE}; BiasedALS; CPU seconds"),
    ("implicit, lists", f"{LISTS}; implicit; CPU seconds", f"{LISTS}; ImplicitALS; CPU seconds"),
    ("LIBMF, updates in single precision", "entry_steps; LIBMF", "entry_steps; single"),
    ("geoopt, steps on manifolds", "torch_manifolds; geoopt / rmopt"),
    (
        "Muon, steps of factors",
        f"{PAIR}; Muon; step of a pair, ms",
        f"{PAIR}; LowRankMuon; step of a pair, ms",
    ),
    (
        "AdamW, steps of factors",
        f"{PAIR}; AdamW; step of a pair, ms",
        f"{PAIR}; LowRankMuon; step of a pair, ms",
    ),
)


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


def rivals() -> Figure:
    """Draw a dot for each time of another library over ours."""
    figure = Figure(figsize=(8.0, 4.6))
    axes = figure.subplots()
    for place, (_, theirs, *ours) in enumerate(reversed(RIVALS)):
        below = values(ours[0]) if ours else [1.0] * len(values(theirs))
        ratios = [one / other for one, other in zip(values(theirs), below, strict=True)]
        axes.semilogx(ratios, [place] * len(ratios), "o", color=COLOURS[0], markersize=5, alpha=0.7)
    axes.axvline(1.0, color="0.5", linewidth=1.0)
    axes.set_yticks(range(len(RIVALS)), [name for name, *_ in reversed(RIVALS)])
    axes.set_xlabel("time of the rival over ours (to the right of 1: ours is faster)")
    axes.grid(axis="x", alpha=0.3)
    return figure


def agents() -> Figure:
    """Draw figures 4 and 5b of Mishra et al. 2019: distances of neighbours, and errors of agents' subspaces."""
    tables = kept("gossip_figures")["tables"]
    figure = Figure(figsize=(9.5, 3.6))
    left, right = figure.subplots(1, 2)
    rows = [row for row in rows_of(tables["test_consensus"]) if row["step"]]
    for place, pair in enumerate(name for name in rows[0] if ", " in name):
        steps, gaps = [row["updates"] / 8 for row in rows], [row[pair] for row in rows]
        left.loglog(
            steps, gaps, color=COLOURS[place], marker=MARKERS[place], markersize=4, label=f"agents {pair}"
        )
    left.set(xlabel="updates of an edge", ylabel="distance of subspaces", title="MovieLens-1M")
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set_yticks([0.5, 1.0, 2.0, 4.0], ["0.5", "1", "2", "4"])
    for place, (part, label) in enumerate(
        (("parkinsons-5", "Parkinsons"), ("generated-school-3", "School's shape, generated"))
    ):
        rows = tables["test_regressions"]["parts"][part]["rows"]
        own = [row for row in rows if row["method"].startswith("agent")]
        look = {
            "color": COLOURS[place],
            "marker": MARKERS[place],
            "markersize": 4,
            "capsize": 3,
            "linestyle": "",
        }
        x = [int(row["method"][-1]) + 0.1 * place for row in own]
        y, error = ([row[key] for row in own] for key in ("less Alt-Min", "± s.e.m. of the difference"))
        right.errorbar(x, y, error, label=label, **look)
    right.axhline(0.0, color="0.5", linewidth=1.0)
    right.set(
        xlabel="agent", ylabel="NMSE less Alt-Min's", title="Regressions, by the subspace of each agent"
    )
    for axes in (left, right):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    return figure


def growth() -> Figure:
    """Draw all curves."""
    tables = kept("growth")["tables"]
    figure = Figure(figsize=(9.5, 8.0))
    for axes, (name, across, key, title) in zip(figure.subplots(3, 3).flat, CURVES, strict=True):
        fill(axes, rows_of(tables[name]), across, key, title)
    return figure


def by_time() -> Figure:
    """Draw the precision of label ranking against seconds of training, by rank; what has none is in all panels."""
    rows = rows_of(kept("ranking_curves")["tables"]["test_by_time"])
    rows.sort(key=lambda row: (not row["method"].startswith("LORETA"), row["rank"] is None, row["rank"]))
    seconds = {float(key[:-2]): key for key in rows[0] if key.endswith(" s") and key[0].isdigit()}
    panels = []
    for rank in dict.fromkeys(row["rank"] for row in rows if row["rank"]):
        lines = {
            row["method"]: [(second, row[key]) for second, key in seconds.items()]
            for row in rows
            if row["rank"] in (rank, None)
        }
        panels.append(Panel(f"seconds of training, rank {rank}", "mean average precision", lines, "x"))
    figure = Figure(figsize=(11.0, 4.4))
    draw_panels(
        figure,
        panels,
        "Generated rows: means of five sets to the dotted line, at ranks 50 and 100 mostly beyond",
    )
    for axes in figure.axes:
        axes.set_xticks(list(seconds), [f"{second:g}" for second in seconds])
        axes.minorticks_off()
        axes.axvline(2.0, color="0.5", linewidth=1.0, linestyle=":")
    return figure


def draw(app: Sphinx, config: Any) -> None:
    """Write the pictures."""
    folder = Path(app.srcdir) / "_generated"
    folder.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "rmopt"}):
        for made in (agents, by_time, growth, rivals):
            figure = made()
            if figure.get_layout_engine() is None:
                figure.tight_layout()
            figure.savefig(folder / f"{made.__name__}.svg", metadata={"Date": None})


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before the pages are read."""
    app.connect("config-inited", draw)
    return {"parallel_read_safe": True}
