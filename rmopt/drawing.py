"""Pictures: PNG files from functions that fill a matplotlib figure; matplotlib is loaded with the first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmopt.files import write_atomically

DOTS_PER_INCH = 150


def draw(path: Path, size: tuple[float, float], fill: Callable[..., None], *arguments: Any) -> None:
    """Save the picture that ``fill(figure, *arguments)`` draws into an empty figure of a size in inches.

    No display is needed, and an older file is replaced as a whole.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    fill(figure, *arguments)
    write_atomically(path, lambda stream: figure.savefig(stream, format="png", dpi=DOTS_PER_INCH))
