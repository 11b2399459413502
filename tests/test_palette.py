"""Colours, dashes and ticks of pictures."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure
from problems.similarity.figure import draw_learning_curves

from problems.palette import line, logarithmic, style, whole_ticks


def test_methods_of_a_picture_can_be_told_apart() -> None:
    assert len({(look["color"], look["marker"]) for look in map(style, range(56))}) == 56
    lines = [line(number, dashes) for number in range(14) for dashes in (0, 1)]
    assert len({(look["color"], look["linestyle"]) for look in lines}) == 21
    assert line(0, 1) != line(7, 1)


def test_short_axes_have_ticks() -> None:
    axes = Figure().subplots()
    axes.plot([4.0], [0.03], "o")
    axes.plot([4.0], [0.08], "o")
    whole_ticks(axes.xaxis)
    assert [one for one in axes.get_xticks() if 3.8 < one < 4.2] == [4.0]
    for lowest in (0.03, 0.003):
        axes.plot([4.0], [lowest], "o")
        logarithmic(axes.yaxis)
        low, high = axes.get_ylim()
        inside = [one for one in axes.get_yticks() if low < one < high]
        assert len(inside) >= 3
        assert float(axes.yaxis.get_major_formatter()(inside[0])) == pytest.approx(inside[0])


def test_learning_curves_say_of_which_rank_they_are() -> None:
    def cells(value: float, *curve: list[float]) -> list[dict[str, Any]]:
        return [{"map": value, "seconds": 0.0, "curve": list(curve)}]

    results = {
        ("cosine", "", None, 0): cells(0.5),
        **{("loreta", "", rank, 0): cells(0.6, [1, 0.1, 0.5], [9, 0.2, 0.6]) for rank in (5, 10, 20)},
    }
    figure = Figure()
    draw_learning_curves(figure, results, {key: key[0] for key in results}, "digits")
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["cosine", "loreta, rank 10"]
