"""The pictures of the subspace experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from problems.data import Ratings
from problems.palette import logarithmic, style, whole_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Traces = Mapping[str, Sequence[Sequence[float]]]


def draw_traces(
    figure: Figure, traces: Traces, title: str, error: str = "mean squared error (train)"
) -> None:
    """Draw the error on training entries and the distance between neighbours against updates of an agent.

    A trace has rows of updates per agent, error, and distance.
    """
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2)
    for number, (label, rows) in enumerate(traces.items()):
        updates, errors, gaps = np.array(rows).T
        left.plot(updates, np.maximum(errors, 1e-34), label=label, **style(number))
        right.plot(updates, np.maximum(gaps, 1e-17), **style(number))
    for axes, name in ((left, error), (right, "mean distance between neighbours")):
        logarithmic(axes.yaxis)
        axes.set_xlabel("updates per agent")
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
    left.legend(fontsize="small")
    figure.suptitle(title)


def draw_errors(
    figure: Figure,
    curves: Mapping[str, Sequence[tuple[float, float, float | None]]],
    title: str,
    across: str = "number of agents",
    error: str = "root mean squared error (test)",
) -> None:
    """Draw test errors with standard errors of the mean: points (x, mean, standard error) by label."""
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for number, (label, points) in enumerate(curves.items()):
        x, mean, sem = zip(*sorted(points), strict=True)
        axes.errorbar(x, mean, [one or 0.0 for one in sem], capsize=3, label=label, **style(number))
    axes.set_xlabel(across)
    whole_ticks(axes.xaxis)
    axes.set_ylabel(error)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_completed(figure: Figure, bundle: Ratings, hidden: Any, completed: Mapping[str, Any]) -> None:
    """Draw a picture, what is known of it, and how methods complete it: tables by name, for the hidden pixels."""
    whole, known = np.zeros(bundle.shape), ~hidden
    whole[bundle.rows, bundle.columns] = bundle.values
    seen = bundle.rows[known], bundle.columns[known]

    def coloured(table: Any) -> Any:
        table[seen] = whole[seen]
        return np.stack(np.split(table, 3, axis=1), axis=-1)

    frames = {"known pixels": np.ones(bundle.shape), **completed, "the photograph": whole}
    figure.set_layout_engine("constrained")
    columns = 2 if len(frames) <= 4 else 3
    height, width = bundle.shape[0], bundle.shape[1] // 3
    figure.set_size_inches(9.0, (9.0 / columns * height / width + 0.3) * -(-len(frames) // columns))
    grid = figure.subplots(-(-len(frames) // columns), columns, squeeze=False)
    for axes, (label, frame) in zip(grid.flat, frames.items(), strict=False):
        axes.imshow(coloured(frame))
        axes.set_title(label, fontsize="small")
    for axes in grid.flat:
        axes.set_axis_off()
