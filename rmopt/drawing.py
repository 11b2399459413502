"""Pictures: PNG files from functions that fill a matplotlib figure; matplotlib is loaded with the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically; no display is needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from rmopt.core.files import write_atomically

    canvas = FigureCanvasAgg(figure)
    write_atomically(path, lambda stream: canvas.print_figure(stream, format="png", dpi=DOTS_PER_INCH))


def draw(path: Path, size: tuple[float, float], fill: Callable[..., None], *arguments: Any) -> None:
    """Save the picture that ``fill(figure, *arguments)`` draws into an empty figure of a size in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    fill(figure, *arguments)
    save_figure(figure, path)
