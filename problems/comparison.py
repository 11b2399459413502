"""One comparison for all families: methods × settings × seeds, trained by joblib and kept in the output folder.

A family writes one ``experiment.py``, with a dataclass that derives from `Experiment`, which is its entry point:

1. Fields are the options of ``rmopt run NAME``, declared with `problems.options`. ``known`` has the methods by name,
   each a `Method`: a label, an unfitted estimator, and the grid for cross-validation. A user's methods join them.
   Properties of a method are attributes of its estimator. Labels and names have no effect.
2. ``check()`` refuses options before data are read. ``settings()`` returns a dict for each row of the table: its
   ``method``, ``code`` and all other settings of the training except the seed.
3. ``model(one)`` makes the estimator of a dict, with ``parameters`` and a ``seed`` in it, and ``measure(model,
   part)`` returns the numbers of the fitted one. Cross-validation maximises ``score``.
4. ``row(row)``, ``claims(rows)`` and ``draw(rows)`` turn a `Row` with its cells into table, verdicts and figure.
   Claims come from `above` and `Difference`, seed by seed, and name their rows. Any part may be replaced:
   ``measured(one)`` makes a `Cell`, ``choose(one)`` is the cross-validation.

`Experiment.__call__` does the rest. Other experiments use `Comparison` alone, which computes missing results.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import product
from numbers import Real
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any, ClassVar, Self, get_type_hints

import joblib
import numpy as np
import pandas as pd
from scipy.special import stdtrit
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from problems import options
from problems.methods import Cell, Method, Settings, chosen_methods
from problems.palette import Panel, draw_panels
from problems.validation import thread_count
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.experiments import Claim, Outcome, Run
from rmopt.files import set_aside, write_atomically
from rmopt.solvers import Recorder, Solver
from rmopt.solvers.threads import one_blas_thread

# The share of random differences of the mean that count as differences.
CHANCE = 0.05
# How often a grid grows past an edge.
GROWTHS = 4
# Results and settings that are no numbers.
NOT_BY_SEED = ("code", "file", "variant", "how", "parameters", "curve", "pixels", "failed")
# Options that affect no number.
NOT_IN_RESULTS = ("data", "data_home", "method", "n_jobs", "resume")


class Learner(BaseEstimator):
    """An estimator of experiments that a solver trains, defined by its `parts`.

    After `fit` the result of the run is `result_`, and its point `point_`.
    """

    random_state: int

    @abstractmethod
    def parts(self, X: Any, y: Any) -> tuple[Solver, Problem, Any]:
        """Return the solver, the problem and the start for some training rows."""

    @one_blas_thread()
    def fit(self, X: Any, y: Any, **how: Any) -> Self:
        """Learn from rows. `how` goes to `Solver.run`."""
        solver, problem, start = self.parts(X, y)
        self.result_ = solver.run(problem, start, random_state=self.random_state, **how)
        self.point_ = self.result_.point
        return self


def crossed(**choices: Iterable[Any]) -> list[Settings]:
    """Return all combinations of choices, the last one varying fastest."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def searched(
    run: Run,
    label: str,
    grid: Sequence[Settings],
    score: Callable[..., float],
    folds: Sequence[Any],
    n_jobs: int = 1,
) -> Settings:
    """Return the first point of a grid, which grows past its edges, with the best mean score over folds.

    Parameters
    ----------
    run : Run
        Prints a message if the best is at an edge past which the grid does not grow.
    label : str
        Of the method.
    grid : sequence of dict
    score : callable
        Maps a point and a fold to a number, higher being better. A `DivergedError` disqualifies the point. A
        ValueError past an edge ends the grid there, for example above 1 for a share.
    folds : sequence
    n_jobs : int
        Threads.

    Raises
    ------
    InvalidInputError
        If every point of the grid diverged.
    """

    def scored(point: Settings, fold: Any) -> float:
        try:
            return float(np.nan_to_num(score(point, fold), nan=-np.inf))
        except DivergedError:
            return -np.inf

    def measured(points: Sequence[Settings]) -> Array:
        tasks, scores = [joblib.delayed(scored)(point, fold) for point in points for fold in folds], []
        # There are enough threads, and those of BLAS would only interfere.
        with threadpool_limits(1, user_api="blas"), run.ticks(f"selecting for {label}", len(tasks)) as tick:
            for value in joblib.Parallel(n_jobs, backend="threading", return_as="generator")(tasks):
                scores.append(value)
                tick()
        return np.reshape(scores, (len(points), len(folds))).mean(axis=1)

    points, means = list(grid), measured(grid)
    if means.max() == -np.inf:
        raise InvalidInputError(
            f"training diverged for every value of the grid {list(grid)}; try smaller values, or scale the rows."
        )
    for _ in range(GROWTHS):
        # If others past no edge are as good, no search is needed.
        further = [_past(points, points[place]) for place in np.flatnonzero(means == means.max())]
        if not all(further):
            break
        try:
            means = np.append(means, measured(further[0]))
        except ValueError:
            break
        points += further[0]
    best = points[means.argmax()]
    if all(_past(points, points[place]) for place in np.flatnonzero(means == means.max())):
        about = f"at the edge of its grid, which grows {GROWTHS} times at most"
        run.say(f"{label}: {listed(best)} is the best, {about}.")
    return best


def _past(points: Sequence[Settings], chosen: Settings) -> list[Settings]:
    """Return the points past numbers at the ends of three or more: each alone, and together.

    The ratio to the next number is that of the last two, with no number past 0 and no count below 1.
    """
    past: Settings = {}
    for name, value in chosen.items():
        values = sorted({point[name] for point in points if isinstance(point.get(name), Real)})
        if len(values) > 2 and value in (values[0], values[-1]):
            near = values[1] if value == values[0] else values[-2]
            after = float(f"{value * value / near:.3g}") if value * near > 0 else value
            after = max(1, round(after)) if isinstance(value, int) else after
            past |= {name: after} if after != value else {}
    return [chosen | {name: after} for name, after in past.items()] + [chosen | past] * (len(past) > 1)


class Comparison:
    """The results of a comparison by their settings, computed unless stored.

    Parameters
    ----------
    run : Run
    resume : bool or None
        Continue from the results in the output folder. None stores none there.
    seeds : int
        Repetitions, whose seeds are ``run.seed``, ``run.seed + 1``, and so on.
    n_jobs : int
        Cells that joblib computes at a time, -1 for all cores: in threads, unless `joblib.parallel_config` is set.
    **about
        The common part of all settings.
    """

    def __init__(
        self, run: Run, resume: bool | None, *, seeds: int = 1, n_jobs: int = 1, **about: Any
    ) -> None:
        self.run, self.about = run, about | {"rmopt": version("rmopt")}
        self.n_jobs = thread_count("--n-jobs", n_jobs)
        self.seeds = range(run.seed, run.seed + seeds)
        folder = Path(run.path("cells"))
        if resume is False and (aside := set_aside(folder)) is not None:
            run.say(
                f"Results that were in the folder are set aside as {aside.name}; to continue with them, name it "
                f"{folder.name} again and add --resume."
            )
        memory = joblib.Memory(None if resume is None else folder, verbose=0)
        self._cached = memory.cache(_cell, ignore=["train"])
        # joblib records the function whose results it stores; threads must find that complete.
        self._cached({}, dict)

    def cell(self, settings: Settings, train: Callable[[Settings], Cell]) -> Cell:
        """Return the result for some settings, from `train` with these and the common ones."""
        return self._cached(self.about | settings, train)

    def results(
        self,
        settings: Sequence[Settings],
        train: Callable[[Settings], Cell],
        what: str = "models",
        label: Callable[[Settings], str] = lambda one: "",
    ) -> list[Cell]:
        """Return the results for settings that have a `seed`, in their order, under a progress bar.

        Parameters
        ----------
        settings : sequence of dict
        train : callable
            Maps settings, including the common ones, to a result.
        what : str
            The unit of the progress bar.
        label : callable
            Maps settings to their name in the progress bar.
        """
        names, cells = [f"{label(one)}, seed {one['seed']}" for one in settings], []
        call = joblib.delayed(partial(self._cached, train=train))
        parallel = joblib.Parallel(self.n_jobs, prefer="threads", return_as="generator")
        # Full-gradient solvers would use all cores for each.
        with one_blas_thread(), self.run.ticks(what, len(settings), *names[:1]) as tick:
            for number, cell in enumerate(parallel(call(self.about | one) for one in settings), 1):
                cells.append(cell)
                tick(*names[number : number + 1])
        return cells


def _cell(settings: Settings, train: Callable[[Settings], Cell]) -> Cell:
    """Return a result, stored by joblib under its settings. An error names the settings."""
    try:
        return train(settings)
    except InvalidInputError as error:
        name = ", ".join(filter(None, [settings["method"], settings.get("variant")]))
        raise InvalidInputError(f"{name}, seed {settings['seed']}: {error}") from error


def listed(*several: Settings) -> str:
    """Return parameters as readable text, with all of their values."""
    shown: dict[str, dict[str, None]] = {}
    for name, value in (item for one in several for item in one.items()):
        shown.setdefault(name, {})[f"{value:g}" if isinstance(value, float) else str(value)] = None
    return ", ".join(f"{name} = {' or '.join(values)}" for name, values in shown.items())


class Kept:
    """A function that caches its last `count` results, and starts without any in another process."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        self.made_of, self.call = (function, count), lru_cache(count)(function)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __reduce__(self) -> Any:
        return Kept, self.made_of


@dataclass(eq=False)
class Row:
    """One row of the table: a method in one setting, and its measurements for each seed."""

    label: str
    settings: Settings
    models: list[Settings] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.settings.get(name)

    @property
    def whole(self) -> bool:
        """Whether no seed diverged."""
        return all(cell["seconds"] is not None for cell in self.cells)

    def mean(self, measure: str) -> float:
        """Return the mean of a measure, or -1, below all, after divergence."""
        return mean_and_sem(cell[measure] for cell in self.cells)[0] if self.whole else -1.0

    def point(self, x: float, measure: str = "map") -> tuple[float, float, float]:
        """Return x, the mean of a measure, and its standard error."""
        return x, *mean_and_sem(cell[measure] for cell in self.cells)

    def curve(self, column: int) -> list[Sequence[float]]:
        """Return its learning curve for a `Panel`: the mean of the last column of `curve` against that of another.

        Without curves it is `map` at the end of training, if the column is 1, the seconds, and else a level.
        """
        curves = [cell["curve"] for cell in self.cells]
        if not all(curves):
            ends = [cell["seconds"] if column == 1 else np.nan for cell in self.cells]
            return [self.point(float(np.mean(ends)))]
        table = np.array([curve[: min(map(len, curves))] for curve in curves])
        return list(zip(table[:, :, column].mean(axis=0), *mean_and_sem(table[:, :, -1]), strict=True))


def split(bundle: Any) -> SimpleNamespace:
    """Return training part X, y and test part X_test, y_test of a bundle, with y possibly a table of labels."""
    y = bundle.Y if hasattr(bundle, "Y") else bundle.y
    train, test = bundle.train, bundle.test
    return SimpleNamespace(X=bundle.X[train], y=y[train], X_test=bundle.X[test], y_test=y[test])


@dataclass(kw_only=True)
class Experiment:
    """An experiment, whose fields are the options, and which returns the outcome of a run.

    Attributes
    ----------
    name : str
        Its name for ``rmopt run``.
    known : mapping
        Its methods by name.
    measured_by : sequence of str
        A user's estimator needs `fit` and any of these methods.
    picture, ylabel : str
        The file of the figure, by default none, and its label for the mean average precision.
    axes : mapping
        The columns of learning curves, (step, seconds, measure), against which it has a panel, with their names.
    common : sequence of str
        The options on which all results depend.
    score : callable
        The score for cross-validation, of a fitted estimator and held-out rows.
    splitter : class
        A splitter of scikit-learn for cross-validation.
    columns : mapping
        The columns of the table, and for each the name of its standard error, or None (see `averaged`).
    kept : callable
        Maps a seed to the data, in the form of `split`, made by `settings`.
    headings : mapping
        Headings of columns that replace automatic ones.
    toy : str
        Why claims may fail on the default data set.
    """

    data: options.Data
    data_home: options.DataHome = None
    seeds: options.SeedsOrPublished = 5
    methods: str = ""
    method: options.OwnMethods = None
    select: options.Select = "first"
    folds: options.Folds = 5
    n_jobs: options.Jobs = 1
    resume: options.Resume = False

    run: Run = field(init=False, repr=False)
    chosen: dict[str, Method] = field(init=False, repr=False)
    bundle: Any = field(init=False, repr=False)
    published: bool = field(init=False, repr=False)
    kept: Callable[..., Any] = field(init=False, repr=False)
    ranks: list[int] = field(init=False, repr=False, default_factory=list)
    columns: dict[str, str | None] = field(init=False, repr=False)

    name: ClassVar[str]
    known: ClassVar[Mapping[str, Method]]
    measured_by: ClassVar[Sequence[str]]
    picture: ClassVar[str] = ""
    ylabel: ClassVar[str]
    axes: ClassVar[Mapping[int, str]] = {}
    common: ClassVar[Sequence[str]] = ()
    score: ClassVar[Any]
    splitter: ClassVar[Any] = StratifiedKFold
    headings: ClassVar[Mapping[str, str]] = {}
    toy: ClassVar[str] = ""

    def check(self) -> None:
        """Refuse options before data are read, and set `columns`."""

    @abstractmethod
    def settings(self) -> Iterable[Settings]:
        """Refuse options that do not fit the data, and return the settings of each row of the table."""

    @abstractmethod
    def model(self, one: Settings) -> Any:
        """Return the estimator of some settings, with their `parameters` and their `seed`."""

    def measure(self, model: Any, part: SimpleNamespace) -> Cell:
        """Return the numbers of the `columns`, of a fitted model on the test part."""
        raise NotImplementedError

    def recorder(self, model: Any, part: SimpleNamespace, seed: int) -> Recorder | None:
        """Return the recorder of a model that a solver trains, with the metric `value`."""
        return None

    def measured(self, one: Settings) -> Cell:
        """Train a model, and return its `columns`, `seconds` and learning `curve`, None each after divergence."""
        # Others share the data, and a user's method may compute in place.
        part = SimpleNamespace(**{name: rows.copy() for name, rows in vars(self.data_of(one)).items()})
        model = self.model(one)
        recorder, curve, begun = self.recorder(model, part, one["seed"]), [], perf_counter()
        try:
            if recorder is None:
                model.fit(part.X, part.y)
                seconds = perf_counter() - begun
            else:
                model.fit(part.X, part.y, recorder=recorder)
                seconds = recorder.rows[-1]["seconds"]
                curve = [[row["step"], row["seconds"], row["value"]] for row in recorder.rows if row["step"]]
        except DivergedError as error:
            return dict.fromkeys((*self.columns, "seconds")) | {"curve": [], "failed": str(error)}
        return self.measure(model, part) | {"seconds": seconds, "curve": curve}

    def row(self, row: Row) -> Cell:
        """Return the cells of a row of the table next to its label."""
        return averaged(row.cells, **self.columns)

    @abstractmethod
    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        """Return the claims of the paper, with the verdict of the numbers."""

    def draw(self, rows: Sequence[Row]) -> None:
        """Write the figure: `map` against rank, if there are several, and learning curves at the best rank."""
        if not self.picture:
            return
        lines: dict[str, list[Any]] = {}
        best: dict[str, Row] = {}
        for row in (row for row in rows if row.whole):
            lines.setdefault(row.label, []).append(row.point(row["rank"] or np.nan))
            best[row.label] = max(row, best.get(row.label, row), key=lambda one: one.mean("map"))
        panels = [Panel("rank", self.ylabel, lines)] if len(self.ranks) > 1 else []
        for column, name in self.axes.items():
            curves = {label: row.curve(column) for label, row in best.items()}
            panels.append(Panel(name, self.ylabel, curves, "x"))
        self.run.draw(self.picture, draw_panels, panels, self.bundle.name, size=(9.0, 4.6))

    def read(self, kind: Any) -> Any:
        """Return the data, a bundle of a kind."""
        return options.loaded(self.run, self.data, self.data_home, kind)

    def header(self) -> str:
        """Return the line on the data that is printed before work starts."""
        bundle, (rows, features) = self.bundle, self.bundle.X.shape
        return f"{bundle.name} ({bundle.source}): {rows:,} rows, {features:,} features; {self.splits}"

    def data_of(self, one: Settings) -> Any:
        """Return the data of some settings, in the form of `split`."""
        return self.kept(one["seed"])

    def choosing(self, one: Settings) -> Settings:
        """Return the settings at which the parameters of a row are chosen, which several rows may share."""
        return one

    def choose(self, one: Settings) -> Cell:
        """Return the `parameters` that cross-validation on the training part chooses."""
        kind, part = self.chosen[one["method"]], self.data_of(one)
        cv = self.splitter(self.folds, shuffle=True, random_state=one["seed"])
        try:
            folds = list(cv.split(part.X, part.y))
        except ValueError as error:
            raise InvalidInputError(
                f"the {part.X.shape[0]:,} training rows cannot be dealt into folds ({error}); choose fewer by "
                "--folds, or bring more rows."
            ) from error

        def score(point: Settings, fold: tuple[Array, Array]) -> float:
            model, (train, test) = self.model(one | {"parameters": point}), fold
            model.fit(part.X[train], part.y[train])
            return float(self.score(model, part.X[test], part.y[test]))

        return {"parameters": searched(self.run, kind.label, kind.grid, score, folds, n_jobs=-1)}

    def label(self, one: Settings) -> str:
        """Return the label of a row in the table."""
        return ", ".join(filter(None, [self.chosen[one["method"]].label, one.get("variant")]))

    def used(self, row: Row) -> list[Settings]:
        """Return the parameters of a row's training for each seed."""
        return [one["parameters"] for one in row.models]

    @property
    def splits(self) -> str:
        """The number of splits, in words."""
        return "its own split" if self.published else f"{self.seeds} random split{'s' * (self.seeds > 1)}"

    def __call__(self, run: Run) -> Outcome:
        self.run = run
        self.chosen = chosen_methods(self.known, self.methods, self.method, self.name, self.measured_by)
        self.check()
        hints = get_type_hints(type(self), include_extras=True)
        self.bundle = self.read(hints["data"].__metadata__[-1])
        self.published, self.seeds = options.own_split(run.say, self.data, self.bundle, self.seeds)
        rows = [Row(self.label(one), one) for one in self.settings()]
        run.say(self.header())
        comparison = Comparison(
            run, self.resume, seeds=self.seeds, n_jobs=self.n_jobs, data=self.bundle.fingerprint(),
            published=self.published, common={name: getattr(self, name) for name in self.common},
        )  # fmt: skip
        choices: dict[str, list[Cell]] = {}
        for row in rows:
            key = joblib.hash(at := self.choosing(row.settings))
            choices[key] = choices.get(key) or self._choices(comparison, at)
            seeds = zip(choices[key], comparison.seeds, strict=True)
            row.models = [choice | row.settings | {"seed": seed} for choice, seed in seeds]
        models = [row.models[number] for number in range(self.seeds) for row in rows]
        cells = comparison.results(models, self.measured, label=self.label)
        for place, row in enumerate(rows):
            row.cells = cells[place :: len(rows)]
        self.draw(rows)
        kept = [one | cell | {"method": self.label(one)} for one, cell in zip(models, cells, strict=True)]
        table = pd.DataFrame(kept).drop(columns=[*NOT_BY_SEED], errors="ignore")
        write_atomically(run.path("by_seed.csv"), partial(table.to_csv, index=False, mode="wb"))
        claims = self.claims(rows)
        told = " ".join(["", *(one.claim for one in claims), ""])
        # A user's methods that no claim names are compared with the first row.
        own = [row for row in rows[1:] if row["method"] not in self.known and f" {row.label} " not in told]
        beside = [
            f"{row.label} less {rows[0].label}, {name}: {Difference.of(row.cells, rows[0].cells, name)}."
            for row, name in product(own, [*self.columns][:1] if own else [])
            if row.whole and rows[0].whole
        ]
        # Of the first seed that failed.
        failed = {row.label: cell["failed"] for row in rows for cell in row.cells[::-1] if "failed" in cell}
        notes = [f"{label} failed: {why}" for label, why in failed.items()]
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        fails = any(claim.reproduced is False for claim in claims) and self.data == fields(self)[0].default
        return Outcome(
            data=self.bundle.name,
            parameters={name: value for name, value in given.items() if name not in NOT_IN_RESULTS}
            | {"published": self.published, "used": {row.label: self.used(row) for row in rows}},
            rows=[Settings(method=row.label) | self.row(row) for row in rows],
            headings=self.headings,
            claims=claims,
            notes=notes + self.notes(rows) + beside + [self.toy] * bool(self.toy and fails),
        )

    def _choices(self, comparison: Comparison, one: Settings) -> list[Cell]:
        """Return for each seed the parameters that are set, those of the method, or the chosen ones."""
        kind = self.chosen[one["method"]]
        if "parameters" in one or self.select == "none" or not kind.grid:
            return [{"parameters": kind.defaults}] * self.seeds
        found, about = [], {"folds": self.folds, "select": list(kind.grid)}
        for seed in comparison.seeds[: self.seeds if self.select == "each" else 1]:
            found.append(comparison.cell(one | about | {"seed": seed}, self.choose))
            chosen = f"{listed(found[-1]['parameters'])} by cross-validation"
            self.run.say(f"{self.label(one)}, seed {seed}: {chosen}, tried first: {listed(*kind.grid)}")
        return found if len(found) == self.seeds else found * self.seeds

    def notes(self, rows: Sequence[Row]) -> list[str]:
        """Return the notes below the table: the parameters of each row, and step sizes that were not chosen."""
        said = {}
        for row in rows:
            known = self.chosen[row["method"]].estimator.get_params()
            step = {"step_size": known["step_size"]} if known.get("step_size") else {}
            said[row.label] = listed(*(step | one["parameters"] for one in row.models))
        text = "; ".join(f"{label}: {parameters}" for label, parameters in said.items() if parameters)
        return [f"Parameters: {text}."] if text else []


def mean_and_sem(values: Iterable[Any]) -> tuple[Any, Any]:
    """Return the mean of numbers or rows and its standard error, 0 for one, or NaN if one is None."""
    table = np.array(list(values), dtype=float)
    return table.mean(axis=0), table.std(axis=0, ddof=len(table) > 1) / len(table) ** 0.5


def averaged(found: Sequence[Cell], **measures: str | None) -> Cell:
    """Return the cells of a table row for a model's results, one for each seed.

    Parameters
    ----------
    found : sequence of dict
        Results with `seconds` and the measures, which are None if the model diverged.
    **measures
        For each measure the name of its standard error, which one seed does not have, or None for no such column. A
        mean is over all seeds, and None if the model diverged on any.

    Returns
    -------
    dict
        Means and standard errors, and the median `train_seconds`.
    """
    row: Cell = {}
    for measure, error in measures.items():
        values = [cell[measure] for cell in found]
        row[measure], sem = (None, None) if None in values else mean_and_sem(values)
        if all(isinstance(value, int) for value in values) and row[measure].is_integer():
            row[measure] = int(row[measure])
        if error is not None and len(found) > 1:
            row[error] = sem
    seconds = [cell["seconds"] for cell in found if cell["seconds"] is not None]
    return row | {"train_seconds": float(np.median(seconds)) if seconds else None}


@dataclass(frozen=True)
class Difference:
    """A measure of one model minus that of another, seed by seed, on the same splits.

    Attributes
    ----------
    mean : float
        NaN if a model diverged.
    sem : float
        The standard error of the mean.
    count : int
        Seeds.

    Examples
    --------
    >>> ours, theirs = (
    ...     [{"map": 0.7}, {"map": 0.8}, {"map": 0.75}],
    ...     [{"map": 0.6}, {"map": 0.72}, {"map": 0.66}],
    ... )
    >>> print(Difference.of(ours, theirs, "map"))
    above, +0.0900 ± 0.0058
    >>> print(Difference(0.12, 0.017, 2))
    level, +0.120 ± 0.017, within the 0.216 that 2 seeds leave open
    >>> print(Difference(-4e-5, 3.2e-5, 5))
    level, -0.000040 ± 0.000032, within the 0.000089 that 5 seeds leave open
    """

    mean: float
    sem: float
    count: int

    @classmethod
    def of(cls, ours: Sequence[Cell], theirs: Sequence[Cell], measure: str | Callable[[Cell], Any]) -> Self:
        """Return the difference of the results of two models, in a measure or a function of them."""
        value = itemgetter(measure) if isinstance(measure, str) else measure
        pairs = [(value(a), value(b)) for a, b in zip(ours, theirs, strict=True)]
        a, b = np.array([(np.nan, np.nan) if None in pair else pair for pair in pairs], dtype=float).T
        # The rounding error of equal numbers is not a difference.
        rounding = np.abs(a - b) <= 1e-12 * np.maximum(np.abs(a), np.abs(b))
        return cls(*mean_and_sem(np.where(rounding, 0.0, a - b)), len(pairs))

    @property
    def margin(self) -> float:
        """The smallest significant distance of the mean from 0, by Student's distribution, or 0 for one seed."""
        return 0.0 if self.count == 1 else float(stdtrit(self.count - 1, 1 - CHANCE / 2)) * self.sem

    @property
    def verdict(self) -> str:
        """Whether the first model is "above", "level" with or "below" the second."""
        return "level" if abs(self.mean) <= self.margin else "above" if self.mean > 0 else "below"

    def __str__(self) -> str:
        # Two digits of the error, and at least three places; below 1e-9 all is rounding.
        digits = max(3, 1 - int(np.floor(np.log10(self.sem)))) if self.sem > 1e-9 else 3
        shown = f"{self.verdict}, {self.mean:+.{digits}f}" + f" ± {self.sem:.{digits}f}" * (self.count > 1)
        doubt = f", within the {self.margin:.{digits}f} that {self.count} seeds leave open"
        return shown + doubt if self.verdict == "level" and self.sem > 0.0 else shown


def against(
    ours: Iterable[Row], theirs: Iterable[Row], measure: str | Callable[[Cell], Any] = "map"
) -> dict[str, Difference]:
    """Return the differences of rows by their `rank`. A row without a rank is compared with all."""
    by_rank, gaps = {row["rank"]: row for row in theirs}, {}
    for row in ours:
        if (other := by_rank.get(row["rank"], by_rank.get(None))) is not None:
            gaps[f"rank {row['rank']}"] = Difference.of(row.cells, other.cells, measure)
    return gaps if len(gaps) > 1 else dict(zip([""], gaps.values(), strict=False))


def above(
    claim: str, gaps: Mapping[str, Difference], needs: str, within: float = 0.0, numbers: str = ""
) -> Claim:
    """Return the claim that a model is above another, or behind it by less than a tolerance.

    Parameters
    ----------
    claim : str
    gaps : mapping
        The difference in each of some settings, such as ranks, by their names. The claim holds if it surely holds in
        all, fails if it surely fails in any, and is open otherwise.
    needs : str
        The note of what is missing if there are no settings.
    within : float
        The tolerance.
    numbers : str
        Shown next to the differences.
    """
    if not gaps:
        return Claim(claim, None, f"needs {needs}")
    if not all(np.isfinite(gap.mean) for gap in gaps.values()):
        return Claim(claim, None, "a model diverged")
    shown = [f"{name}{': ' * bool(name)}{gap}" for name, gap in gaps.items()]
    once = ["one seed: try --seeds 5"] * (next(iter(gaps.values())).count == 1)
    surely = all(gap.mean - gap.margin > -within for gap in gaps.values())
    never = any(gap.mean + gap.margin < -within for gap in gaps.values())
    text = "; ".join(filter(None, [numbers, *shown, *once]))
    return Claim(claim, True if surely else False if never else None, text)
