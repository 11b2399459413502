"""Pictures: PNG files from functions that fill a matplotlib figure, here or in a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
DRAWN = b"drawn\n"


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically; no display is needed.

    Raises
    ------
    StorageError
        When the file cannot be written; an older file of that name is untouched.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from rmopt.core.files import write_atomically

    canvas = FigureCanvasAgg(figure)
    write_atomically(path, lambda stream: canvas.print_figure(stream, format="png", dpi=DOTS_PER_INCH))


def draw(path: Path, size: tuple[float, float], fill: Callable[..., None], *arguments: Any) -> None:
    """Save the picture that ``fill(figure, *arguments)`` draws.

    Parameters
    ----------
    path : Path
    size : tuple of float
        Width and height in inches.
    fill : callable
        Receives the empty figure and the arguments.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    fill(figure, *arguments)
    save_figure(figure, path)


class DrawingProcess:
    """Draws one picture in another process, which imports matplotlib while this one trains.

    The import takes half a second of the interpreter, which a thread could not hide.
    """

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", "from rmopt.drawing import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
        )

    def draw(self, path: Path, size: tuple[float, float], fill: Callable[..., None], *arguments: Any) -> None:
        """Do what `draw` does; return when the file is there."""
        try:
            content = pickle.dumps((path, size, fill, arguments))
        except (pickle.PicklingError, AttributeError):
            content = b""  # `fill` cannot be imported by name
        answer, _ = self._child.communicate(content)
        if answer != DRAWN:
            # Whatever went wrong there is raised here.
            draw(path, size, fill, *arguments)

    def close(self) -> None:
        """End the process; nothing is drawn."""
        self._child.communicate(b"")


def serve() -> None:
    """Import matplotlib, then draw the picture that standard input describes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # A first picture loads the fonts.
    figure = Figure(figsize=(1.0, 1.0))
    figure.subplots().set_xscale("log")
    FigureCanvasAgg(figure).draw()
    content = sys.stdin.buffer.read()
    if content:
        path, size, fill, arguments = pickle.loads(content)
        draw(path, size, fill, *arguments)
        os.write(1, DRAWN)
    # Nobody needs to wait for the clean-up of matplotlib.
    os._exit(0)
