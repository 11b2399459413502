"""Colours, dashes and ticks of pictures."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from problems.palette import line, logarithmic, style, whole_ticks


def test_methods_of_a_picture_can_be_told_apart() -> None:
    assert len({(look["color"], look["marker"]) for look in map(style, range(84))}) == 84
    lines = [line(number, dashes) for number in range(24) for dashes in (0, 1)]
    assert len({(look["color"], look["linestyle"]) for look in lines}) == 36
    assert line(0, 1) != line(12, 1)


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
