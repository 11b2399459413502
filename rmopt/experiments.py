"""Tools for the author of an experiment: the current run, and the outcome to return.

An experiment is a plain function, registered under the entry-point group ``rmopt.experiments``::

    def similarity(
        run: Run, *, rank: Annotated[int, typer.Option(help="The rank.")] = 10
    ) -> Outcome:
        '''Compare methods that learn a similarity of documents.'''

The function's other parameters become the options of ``rmopt run similarity``. It may also be a dataclass whose
fields are the options, and whose instances are called with the run. The command line adds ``--seed``, ``--out``,
``--quiet`` and ``--json``, prints the table and writes ``result.json``. The first line of the docstring is the
experiment's line in ``rmopt list``, the docstring is its ``--help``.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from textwrap import fill
from typing import Any

from rich.console import Console

from rmopt.errors import StorageError
from rmopt.files import write_atomically

__all__ = ["Claim", "Outcome", "Run"]

Cell = str | int | float | None


@dataclass(frozen=True)
class Run:
    """One execution of an experiment, with its output folder and its level of output.

    Parameters
    ----------
    experiment : str
        The name of the experiment.
    seed : int
        The seed of all random choices of the experiment.
    out : Path
        The output folder.
    quiet : bool
        Say nothing and draw no progress bar.
    json : bool
        Write the result alone to standard output: no text and no progress bar.
    failures : list, optional
        Collects the errors of figures that cannot be written. Without it `draw` raises them.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rmopt.experiments import Run
    >>> run = Run("mine", seed=0, out=Path("results"), quiet=True)
    >>> run.path("curve.png").as_posix(), run.progress
    ('results/curve.png', False)
    """

    experiment: str
    seed: int
    out: Path
    quiet: bool = False
    json: bool = False
    failures: list[StorageError] | None = None

    @property
    def console(self) -> Console:
        """The console for messages: standard output, silent if `quiet` or `json`."""
        return Console(highlight=False, quiet=self.quiet or self.json)

    @property
    def progress(self) -> bool:
        """Whether progress bars may be drawn (on standard error)."""
        return not self.quiet and not self.json and sys.stderr.isatty()

    def path(self, name: str) -> Path:
        """Return the path of a file in the output folder."""
        return self.out / name

    def say(self, text: str) -> None:
        """Print text without markup, long words unbroken, unless the run is quiet or prints JSON."""
        wrapped = partial(fill, width=self.console.width, break_long_words=False, break_on_hyphens=False)
        self.console.print("\n".join(map(wrapped, text.split("\n"))), markup=False, soft_wrap=True)

    @contextmanager
    def ticks(self, description: str, total: int, first: str = "") -> Iterator[Callable[..., None]]:
        """Show a progress bar with the name of the current task inside a with block, at first `first`.

        The yielded function advances it by one, and takes the name of the next task.
        """
        if not self.progress:
            yield lambda now="": None
            return
        from rmopt.solvers.recorder import ProgressBar

        bar, done = ProgressBar(description, 0, total), count(1)
        bar.note(first)

        def tick(now: str = "") -> None:
            bar.advance(next(done))
            bar.note(now)

        try:
            yield tick
        finally:
            bar.end()

    def draw(
        self, name: str, fill: Callable[..., None], *arguments: Any, size: tuple[float, float] = (6.4, 4.0)
    ) -> Path:
        """Save a picture in the output folder and return its path.

        Parameters
        ----------
        name : str
            The file name, ending in ``.png``.
        fill : callable
            A function ``fill(figure, *arguments)`` that draws into an empty matplotlib figure.
        *arguments : object
            The arguments of the function.
        size : tuple of float
            Width and height in inches.

        Raises
        ------
        StorageError
            If the file cannot be written and there are no `failures`. An older file of that name is untouched.
        """
        from matplotlib.figure import Figure

        path, figure = self.path(name), Figure(figsize=size)
        fill(figure, *arguments)
        try:
            write_atomically(path, lambda stream: figure.savefig(stream, format="png", dpi=150))
        except StorageError as error:
            if self.failures is None:
                raise
            self.failures.append(error)
        return path


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, tested against the numbers of a run.

    Parameters
    ----------
    claim : str
        The statement of the paper.
    reproduced : bool or None
        Whether these numbers agree, or None if they do not decide it.
    numbers : str
        The deciding numbers, or a note of what is missing.
    """

    claim: str
    reproduced: bool | None
    numbers: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "does NOT hold", None: "undecided"}[self.reproduced]
        return f"{verdict}: {self.claim} ({self.numbers})"


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment: the content of its table and of ``result.json``.

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
        Column headings by key, to replace automatic ones.
    claims : list of Claim
        The statements of the paper about these numbers, printed after the table.
    notes : list of str
        Remarks on the table and the claims, such as parameters, printed below them.

    Examples
    --------
    >>> from rmopt.experiments import Claim, Outcome
    >>> def experiment(run, *, rank=3):
    ...     rows = [{"method": "ours", "map": 0.82}, {"method": "theirs", "map": 0.79}]
    ...     better = Claim("ours is better", rows[0]["map"] > rows[1]["map"], "0.82, 0.79")
    ...     return Outcome("digits", {"rank": rank}, rows, claims=[better])
    >>> print(experiment(None).claims[0])
    holds: ours is better (0.82, 0.79)
    """

    data: str
    parameters: Mapping[str, Any]
    rows: list[dict[str, Cell]]
    headings: Mapping[str, str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
