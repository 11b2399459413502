"""What the author of an experiment needs: the run it is part of, and the outcome it returns.

An experiment is a plain function, registered under the entry-point group ``rmopt.experiments``::

    def similarity(run: Run, *, rank: Annotated[int, typer.Option(help="The rank.")] = 10) -> Outcome:
        '''Compare methods that learn a similarity of documents.'''

The function's own parameters become the options of ``rmopt run similarity``; the command line adds
``--seed``, ``--out``, ``--quiet`` and ``--json``, prints the table and writes ``result.json``. The first line
of the docstring is the experiment's line in ``rmopt list``, the docstring is its ``--help``.
"""

import importlib
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Outcome", "Run", "prefetch"]

Cell = str | int | float | None


@dataclass(frozen=True)
class Run:
    """One execution of an experiment: where its files go and how much it may say.

    Parameters
    ----------
    experiment : str
        The name of the experiment.
    seed : int
        Seeds every random choice of the experiment.
    out : Path
        The output folder.
    quiet : bool
        Say nothing and draw no progress bar.
    json : bool
        Standard output belongs to the result; say nothing and draw no progress bar.
    """

    experiment: str
    seed: int
    out: Path
    quiet: bool = False
    json: bool = False

    @cached_property
    def console(self) -> Console:
        """Where text for people goes: standard output, silent under `quiet` and `json`."""
        return Console(highlight=False, quiet=self.quiet or self.json)

    @property
    def progress(self) -> bool:
        """Whether progress bars may be drawn (on standard error)."""
        return not self.quiet and not self.json and sys.stderr.isatty()

    def path(self, name: str) -> Path:
        """Return the path of a file in the output folder."""
        return self.out / name

    def say(self, text: str) -> None:
        """Print a line of text, as it is, unless the run is quiet or prints JSON."""
        self.console.print(text, markup=False)

    @contextmanager
    def figure(self, name: str, size: tuple[float, float] = (6.4, 4.0)) -> Iterator["Figure"]:
        """Yield an empty figure and save it when the block ends without an error.

        Parameters
        ----------
        name : str
            The file name, ending in ``.png``.
        size : tuple of float
            Width and height in inches.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        yield figure
        self.save_figure(figure, name)

    def save_figure(self, figure: "Figure", name: str) -> Path:
        """Write a matplotlib figure as a PNG file and return its path; no display is needed.

        Raises
        ------
        StorageError
            When the file cannot be written; an older file of that name is untouched.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from rmopt.core.files import write_atomically

        canvas = FigureCanvasAgg(figure)
        write_atomically(self.path(name), lambda stream: canvas.print_figure(stream, format="png", dpi=150))
        return self.path(name)


@dataclass(frozen=True)
class Outcome:
    """What an experiment returns: the content of its table and of ``result.json``.

    Parameters
    ----------
    data : str
        The name of the data set.
    parameters : mapping
        The settings that, with the seed, reproduce the rows: text, numbers, and lists or mappings of them.
    rows : list of mapping
        One row per line of the table, from snake_case keys to text, numbers or None. Rows need not have the
        same keys. Keys ending in ``_seconds`` are durations.
    headings : mapping
        Column headings by key, where the automatic one will not do.
    """

    data: str
    parameters: Mapping[str, Any]
    rows: list[dict[str, Cell]]
    headings: Mapping[str, str] = field(default_factory=dict)


def prefetch(*modules: str) -> threading.Thread:
    """Import modules in the background, so that they are there when they are needed.

    The import overlaps with other work only while that work releases the interpreter lock, as
    functions compiled with ``nogil=True`` do. A module that cannot be imported is left alone: the
    import statement that needs it will say so.

    Parameters
    ----------
    *modules : str
        Dotted names, e.g. ``"matplotlib.backends.backend_agg"``.

    Returns
    -------
    threading.Thread
        The thread, already started; it needs no care, but may be joined.
    """

    def import_all() -> None:
        for module in modules:
            with suppress(Exception):
                importlib.import_module(module)

    thread = threading.Thread(target=import_all, name="rmopt-prefetch", daemon=True)
    thread.start()
    return thread
