"""The recorder, which measures a run at chosen steps with the clock stopped."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rmopt.core.arguments import callable_of, flag, instance, integer, number, sequence, shown
from rmopt.errors import InvalidInputError

Metric = Callable[[Any], float | Mapping[str, float]]

# The keys in every row of a recorder.
OWN = ("step", "updates", "seconds")


class Recorder:
    """Measures metrics of the point at geometrically spaced steps.

    The training clock is stopped while metrics are computed. The first and the last step are always measured.
    Full-gradient solvers, such as `LBFGS`, are measured at each step.

    Parameters
    ----------
    metrics : mapping from str to callable
        Each maps a point to a number, or to a mapping of numbers.
    first : int
        The first measured step after 0.
    ratio : float
        Ratio of consecutive measured steps, above 1.
    at : iterable of int, optional
        Explicit steps instead of the geometric ones.
    progress : bool
        Draw a progress bar with the remaining time on standard error.
    description : str
        The label of the progress bar.

    Attributes
    ----------
    rows : list of dict
        One per measurement: step, updates, seconds and the metrics.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import LBFGS, Recorder
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> recorder = Recorder({"largest": lambda x: abs(x).max()}, first=1)
    >>> _ = LBFGS().run(problem, random_state=0, recorder=recorder)
    >>> round(recorder.rows[-1]["largest"] ** 2, 6)
    0.2
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric] | None = None,
        *,
        first: int = 1000,
        ratio: float = 2.0,
        at: Iterable[int] | None = None,
        progress: bool = False,
        description: str = "run",
    ) -> None:
        metrics = {} if metrics is None else metrics
        self.metrics = dict(instance("metrics", metrics, Mapping, "a mapping from names to functions"))
        for name, metric in self.metrics.items():
            callable_of(f"the metric {name!r}", metric)
        self.first, self.ratio = integer("first", first, 1), number("ratio", ratio, above=1)
        self.at = None if at is None else sorted({integer("at", step) for step in sequence("at", at)})
        self.rows: list[dict[str, Any]] = []
        self.progress, self.description = flag("progress", progress), description
        self._bar: ProgressBar | None = None

    def next_after(self, step: int) -> float:
        """Return the first step after `step` at which to measure (infinity for none)."""
        if not self.metrics:
            return float("inf")
        if self.at is not None:
            return next((planned for planned in self.at if planned > step), float("inf"))
        planned = self.first
        while planned <= step:
            planned = max(planned + 1, int(min(planned * self.ratio, 1e18)))
        return planned

    def begin(self, step: int, n_steps: int | None, rows: list[dict[str, Any]]) -> None:
        """Start a run, or continue one that already has rows."""
        self.rows = list(rows)
        if self.progress:
            self._bar = ProgressBar(self.description, step, n_steps)

    def measure(self, point: Any, row: dict[str, Any]) -> None:
        """Add a row: the run's own observations, and the metrics at a point."""
        if self._bar is not None:
            said = (f"{name.replace('_', ' ')} {value:.4g}" for name, value in row.items() if name not in OWN)
            self._bar.note(", ".join(said))
        for name, metric in self.metrics.items():
            value = metric(point)
            numbers = value if isinstance(value, Mapping) else {name: value}
            for key, seen in numbers.items():
                if key in row or not isinstance(key, str):
                    raise InvalidInputError(
                        f"the metric {name!r} gave {key!r}, which the row has, or which is not text; rename it."
                    )
                if np.size(seen) != 1 or np.asarray(seen).dtype.kind not in "biuf":
                    raise InvalidInputError(f"the metric {name!r} gave {shown(seen)}; return a number.")
                row[key] = float(np.asarray(seen).item())
        self.rows.append(row)

    def advance(self, step: int) -> None:
        """Move the progress bar."""
        if self._bar is not None:
            self._bar.advance(step)

    def end(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.end()
            self._bar = None


class ProgressBar:
    """A rich progress bar on standard error: steps and remaining time; None for an unknown last step."""

    def __init__(self, description: str, step: int, n_steps: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        # The text gets the space that the numbers leave.
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        columns = (
            TextColumn("{task.description}", table_column=rest), BarColumn(bar_width=12), MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
        )  # fmt: skip
        self.description = description
        # The bar, the longest count and time, and three spaces.
        self._room = (console := Console(stderr=True)).width - 24 - 2 * len(str(n_steps or 10**6))
        self._progress = Progress(*columns, console=console, expand=True)
        self._task = self._progress.add_task(description, total=n_steps, completed=step)
        self._progress.start()

    def note(self, text: str) -> None:
        """Show text next to the label, if there is any, up to the last comma that fits."""
        while ", " in text and len(self.description) + len(text) > self._room - 2:
            text = text.rpartition(", ")[0]
        if text:
            self._progress.update(self._task, description=f"{self.description}: {text}")

    def advance(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step)

    def end(self) -> None:
        """Stop updating the bar."""
        self._progress.stop()
