"""Looks and ticks of pictures."""

import numpy as np
from matplotlib.figure import Figure

from problems.palette import Panel, draw_panels, style


def test_methods_of_a_picture_can_be_told_apart() -> None:
    assert len({(look["color"], look["marker"]) for look in map(style, range(84))}) == 84


def test_a_label_has_one_look_and_one_entry() -> None:
    figure, level = Figure(), [(np.nan, 0.5, 0.1)]
    curve = [(1, 0.2, 0.0), (1000, 0.4, 0.1)]
    draw_panels(figure, [Panel("n", "y", {"b": level}), Panel("n", "y", {"a": curve, "b": curve}, "x")], "t")
    left, right = figure.axes
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["b", "a"]
    assert left.lines[0].get_color() == right.lines[-1].get_color() != right.lines[0].get_color()
    assert left.lines[0].get_marker() == right.lines[-1].get_marker() != right.lines[0].get_marker()
    assert (left.get_xscale(), right.get_xscale()) == ("linear", "log")
    assert (left.get_ylabel(), right.get_ylabel()) == ("y", "")
