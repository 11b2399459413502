"""One comparison for all families: methods × settings × seeds, each cell written when it is done.

How an experiment is written:

1. A method is a `Method`: a label, an unfitted estimator of the scikit-learn kind, and the grid of parameters that
   cross-validation chooses among; `chosen_methods` adds those that a user brings. What an experiment must know of a
   method is an attribute of its estimator; no decision looks at a label or a name.
2. ``comparison = Comparison(run, resume, seeds=seeds, n_jobs=n_jobs, data=bundle.fingerprint())`` keeps one result
   for each settings, a plain dict of all that the result depends on, in ``cells.jsonl``; ``resume=None`` keeps none.
3. ``models = crossed(method=chosen, rank=ranks)`` is a list of such dicts, of which the last choice varies fastest.
   ``models = comparison.selected(models, methods, select, choose)`` adds the parameters of each, for each seed.
4. ``results = comparison.results(models, train, by=("method", "rank"))`` takes ``train(settings)`` for those that are
   not known, `n_jobs` at a time, moves the progress bar, and lists results by method and rank, one for each seed.
5. `trained` fits an estimator, ours or a user's. A training that diverges loses.
6. `averaged` makes the numbers of a row from the results of a model; `Difference` compares two models seed by
   seed, and `above` makes a claim of that.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product, starmap
from numbers import Real
from operator import itemgetter
from time import perf_counter
from typing import Any, Self

import numpy as np
from scipy.special import stdtrit
from sklearn.base import BaseEstimator

from problems.cells import Cell, Cells, Settings, mean_and_sem
from problems.methods import Method
from problems.options import Selection, jobs
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.core.world import ONE_PROCESS, World
from rmopt.experiments import Claim, Run
from rmopt.solvers import Solver
from rmopt.solvers.threads import one_blas_thread

# Tells how good a fitted estimator is on held-out rows; higher is better.
Score = Callable[[Any, Any, Any], float]

# The share of differences of the mean by chance alone that pass for a difference.
CHANCE = 0.05


class Learner(BaseEstimator):
    """What a solver trains: an estimator of experiments, whose `parts` say how.

    After `fit` the end of the run is `result_`, and its point `point_`.
    """

    random_state: int

    @abstractmethod
    def parts(self, X: Any, y: Any) -> tuple[Solver, Problem, Any]:
        """Return the solver, the problem and the start for some training rows."""

    def fit(self, X: Any, y: Any, **how: Any) -> Self:
        """Learn from rows; `how` goes to `Solver.run`."""
        solver, problem, start = self.parts(X, y)
        self.result_ = solver.run(problem, start, random_state=self.random_state, **how)
        self.point_ = self.result_.point
        return self


@dataclass(frozen=True)
class Training:
    """How an estimator was fitted: how long it took, and what was seen on the way, where it shows that."""

    seconds: float
    updates: int | None = None
    history: Sequence[Mapping[str, Any]] = field(default=())


def trained(model: Any, X: Any, y: Any, **how: Any) -> Training:
    """Fit an estimator; `how` goes to those that a solver trains: recorder, checkpoint."""
    if isinstance(model, Learner):
        result = model.fit(X, y, **how).result_
        return Training(result.seconds, result.updates, result.history)
    begun = perf_counter()
    model.fit(X, y)
    return Training(perf_counter() - begun)


def crossed(**choices: Iterable[Any]) -> list[Settings]:
    """Return all combinations of choices; the last one varies fastest."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


# How often a grid grows past an edge.
GROWTHS = 4


def grown(
    grid: Sequence[Settings],
    measure: Callable[[Sequence[Settings]], Array],
    best: Callable[[Array], Array],
    say: Callable[[str], object],
) -> tuple[list[Settings], Array]:
    """Return the points of a grid with their scores, and those past its edges as long as the best ones lie there.

    Parameters
    ----------
    grid : sequence of dict
    measure : callable
        Maps points to an array, whose last axis is theirs.
    best : callable
        Maps what was measured to the places of those that are best, or as good.
    say : callable
        Tells people of an edge past which the grid cannot grow.
    """
    points, scores = list(grid), measure(grid)
    for growth in range(GROWTHS + 1):
        alike = [_past(points, points[place]) for place in best(scores)]
        names, new = alike[0]
        if not all(names for names, _ in alike):
            break
        chosen = points[best(scores)[0]]
        why = f"it grew {GROWTHS} times"
        try:
            more = measure(new) if growth < GROWTHS else None
        except ValueError as error:
            # A share above 1, for example.
            more, why = None, str(error).rstrip(".")
        if more is None:
            edges = " and ".join(f"{name} = {chosen[name]:g}" for name in names)
            say(f"{edges} is the best, at the edge of a grid that grows no further ({why})")
            break
        points, scores = points + new, np.concatenate([scores, more], axis=-1)
    return points, scores


def at_an_edge(value: Any, values: Iterable[Any]) -> bool:
    """Return whether a number is the least or the largest of three or more."""
    apart = {one for one in values if isinstance(one, Real)}
    return len(apart) > 2 and value in (min(apart), max(apart))


def _past(points: Sequence[Settings], chosen: Settings) -> tuple[list[str], list[Settings]]:
    """Return which numbers are the least or the largest of three or more, and the points past them.

    The ratio to the next number is that of the last two; there is nothing past 0, and no count below 1.
    """
    past: Settings = {}
    for name, value in chosen.items():
        values = sorted({one[name] for one in points if isinstance(one.get(name), Real)})
        if at_an_edge(value, values):
            near = values[1] if value == values[0] else values[-2]
            after = float(f"{value * value / near:.3g}") if value * near > 0 else value
            after = max(1, round(after)) if isinstance(value, int) else after
            past |= {name: after} if after != value else {}
    new = [chosen | {name: after} for name, after in past.items()] + [chosen | past] * (len(past) > 1)
    return list(past), new


class Comparison:
    """The results of a comparison by their settings, computed unless they are known.

    Parameters
    ----------
    run : Run
    resume : bool or None
        Go on from the results in the output folder; None: keep no results there.
    seeds : int
        Repetitions, whose seeds are ``run.seed``, ``run.seed + 1``, and so on.
    n_jobs : int
        Cells that are computed at a time by joblib, -1 for as many as there are cores: in threads, unless
        `joblib.parallel_config` says otherwise.
    world : World
        Processes that compare the same, with one output folder: cells are dealt to them, and all get all results.
    **about
        What all settings have in common.
    """

    def __init__(
        self,
        run: Run,
        resume: bool | None,
        *,
        seeds: int = 1,
        n_jobs: int = 1,
        world: World = ONE_PROCESS,
        **about: Any,
    ) -> None:
        self.run, self.about = run, about
        self.seeds = range(run.seed, run.seed + seeds)
        self.n_jobs = jobs(n_jobs)
        self.world = world
        # Each process writes a file of its own, so that none is lost where they are killed.
        file = run.path("cells.jsonl" if world.rank == 0 else f"cells-{world.rank}.jsonl")
        self._cells = None if resume is None else Cells(file, resume)
        if self._cells is not None and (aside := self._cells.aside) is not None:
            run.say(
                f"Results that were in the folder are set aside as {aside.name}; to go on with them, name it "
                f"{file.name} again and say --resume."
            )

    def cell(self, settings: Settings, train: Callable[[Settings], Cell]) -> Cell:
        """Return the result for some settings: what `train` makes of them and of the common ones."""
        return next(self._computed([settings], train))

    def results(
        self,
        models: Sequence[Settings],
        train: Callable[[Settings], Cell],
        by: Sequence[str],
        what: str = "models",
    ) -> dict[Any, list[Cell]]:
        """Return the results of all models for all seeds, under a progress bar.

        Parameters
        ----------
        models : sequence of dict
            Settings; those without a `seed` are repeated for all of them.
        train : callable
            Maps settings, the common ones and `seed` among them, to a result.
        by : sequence of str
            Results are listed by these settings: by the value of one, or by a tuple of several.
        what : str
            What the progress bar counts.
        """
        settings = [one | {"seed": seed} for seed in self.seeds for one in models if "seed" not in one]
        settings += [one for one in models if "seed" in one]
        key, found = itemgetter(*by), dict[Any, list[Cell]]({itemgetter(*by)(one): [] for one in models})
        with self.run.ticks(what, len(settings)) as tick:
            for one, result in zip(settings, self._computed(settings, train), strict=True):
                found[key(one)].append(result)
                tick()
        return found

    def _computed(self, settings: Sequence[Settings], train: Callable[[Settings], Cell]) -> Iterator[Cell]:
        """Compute what is not known, write each result when it is done, and give all in their order."""
        wholes = [self.about | one for one in settings]
        found = [None if self._cells is None else self._cells.known(whole) for whole in wholes]
        if self.world.size > 1:
            yield from self._dealt(wholes, found, train)
            return
        todo = [(place, wholes[place]) for place, result in enumerate(found) if result is None]
        made = self._made(todo, partial(_named, train))
        for place in range(len(found)):
            # What is done before its turn is written all the same.
            while (result := found[place]) is None:
                other, new = next(made)
                found[other] = new if self._cells is None else self._cells.keep(wholes[other], new)
            yield result

    def _dealt(
        self, wholes: Sequence[Settings], known: Sequence[Cell | None], train: Callable[[Settings], Cell]
    ) -> list[Cell]:
        """Compute what no process knows, each its share, and return all results in every process."""
        world, own = self.world, {place: one for place, one in enumerate(known) if one is not None}
        with world.guard():
            told = {place for part in world.everywhere(set(own)) for place in part}
            todo = [(place, one) for place, one in enumerate(wholes) if place not in told]
            for place, new in self._made(todo[world.rank :: world.size], partial(_named, train)):
                own[place] = new if self._cells is None else self._cells.keep(wholes[place], new)
            found = {place: one for part in world.everywhere(own) for place, one in part.items()}
            if world.rank == 0 and self._cells is not None:
                for place in sorted(found.keys() - own.keys()):
                    self._cells.keep(wholes[place], found[place])
        return [found[place] for place in range(len(wholes))]

    def _made(
        self, todo: Sequence[tuple[int, Settings]], train: Callable[[int, Settings], tuple[int, Cell]]
    ) -> Iterator[tuple[int, Cell]]:
        """Give the places of settings and their results, in the order in which they are done."""
        if self.n_jobs == 1 or len(todo) < 2:
            return starmap(train, todo)
        from joblib import Parallel, delayed

        workers = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator_unordered")
        made: Iterator[tuple[int, Cell]] = workers(delayed(train)(*one) for one in todo)
        return made

    def selected(
        self,
        models: Sequence[Settings],
        methods: Mapping[str, Method],
        select: Selection,
        choose: Callable[[Settings], Cell],
        label: Callable[[Settings], str],
        **about: Any,
    ) -> list[Settings]:
        """Return models with their `parameters`, for each seed: their own, or those that cross-validation chooses.

        Parameters
        ----------
        models : sequence of dict
            Settings with a `method`.
        methods : mapping
            By name.
        select : {"none", "first", "each"}
            Whether nothing is chosen, or on the training part of the first seed for all, or on each seed's own.
        choose : callable
            Maps settings, `seed` among them, to ``{"parameters": …}`` and what else is chosen.
        label : callable
            Maps settings to what people are told of them.
        **about
            What a choice depends on beside the settings of the model.
        """
        made: list[Settings] = []
        for one in models:
            method = methods[one["method"]]
            choice: Cell = {"parameters": method.defaults}
            for number, seed in enumerate(self.seeds):
                if select != "none" and method.grid and (number == 0 or select == "each"):
                    choice = self.cell(one | about | {"select": list(method.grid), "seed": seed}, choose)
                    chosen = choice["parameters"]
                    said = {key: f"{one:g}" if isinstance(one, float) else one for key, one in chosen.items()}
                    values = ", ".join(f"{key} = {value}" for key, value in said.items())
                    self.run.say(f"{label(one)}, seed {seed}: {values} by cross-validation")
                made.append(one | choice | {"seed": seed})
        return sorted(made, key=itemgetter("seed"))

    def search(
        self,
        label: str,
        estimator: Any,
        grid: Sequence[Settings],
        X: Any,
        y: Any,
        cv: Any,
        scoring: Mapping[str, Score],
    ) -> tuple[Settings, str]:
        """Return the parameters with the best mean score over folds, and by which of the scores it is the best.

        Parameters
        ----------
        label : str
            For the progress bar.
        estimator : estimator
            Its `fit` runs in threads; where it diverges, with a `DivergedError`, the parameters lose.
        grid : sequence of dict
            Of several that are best the first is chosen; it grows where that lies at its edge (see `grown`).
        X, y : array or sparse array
        cv : splitter
            Of scikit-learn.
        scoring : mapping
            Ways to measure what was trained, among which is chosen too.

        Raises
        ------
        InvalidInputError
            When every training diverged.
        """
        from joblib import parallel_config
        from sklearn.model_selection import GridSearchCV

        try:
            folds = list(cv.split(X, y))
        except ValueError as error:
            raise InvalidInputError(
                f"the {X.shape[0]:,} training rows cannot be dealt into folds ({error}); choose fewer by --folds, or "
                "bring more rows."
            ) from error
        scorers = {way: partial(_score, score) for way, score in scoring.items()}

        def measured(points: Sequence[Settings]) -> Array:
            """Return the mean scores of points, shape (ways, points)."""
            values = [{f"estimator__{name}": [value] for name, value in one.items()} for one in points]
            with self.run.ticks(f"selecting for {label}", len(folds) * len(points)) as tick:
                trial, how = _Trial(estimator, tick), {"refit": False, "error_score": "raise"}
                search = GridSearchCV(trial, values, cv=folds, scoring=scorers, **how)
                # The threads are many enough; those of BLAS would only be in their way.
                with one_blas_thread(), parallel_config("threading", n_jobs=-1), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "One or more of the .* scores are non-finite")
                    found = search.fit(X, y).cv_results_
            means = np.array([found[f"mean_test_{way}"] for way in scoring])
            return np.nan_to_num(means, nan=-np.inf)

        points, means = grown(
            grid, measured, lambda means: np.flatnonzero((means == means.max()).any(axis=0)),
            lambda what: self.run.say(f"{label}: {what}"),
        )  # fmt: skip
        way, place = np.unravel_index(means.argmax(), means.shape)
        if means[way, place] == -np.inf:
            raise InvalidInputError(
                f"training diverged for every value of the grid {list(grid)}; try smaller values, or scale the rows."
            )
        return points[place], list(scoring)[way]


def _named(train: Callable[[Settings], Cell], place: int, one: Settings) -> tuple[int, Cell]:
    """Return a place and its result; an error says whose it is."""
    try:
        return place, train(one)
    except InvalidInputError as error:
        if "method" not in one:
            raise
        raise InvalidInputError(f"{one['method']}, seed {one['seed']}: {error}") from error


class Kept:
    """A function whose last results are kept; in another process it begins without any.

    Parameters
    ----------
    function : callable
    count : int
        Results that are kept.
    """

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        self.made_of = function, count
        self.call = lru_cache(count)(function)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __reduce__(self) -> Any:
        return Kept, self.made_of


class _Trial(BaseEstimator):
    """A training that may diverge; nothing is fitted then, and the score of that is NaN."""

    def __init__(self, estimator: Any, tick: Callable[[], None]) -> None:
        self.estimator, self.tick = estimator, tick

    def fit(self, X: Any, y: Any) -> Self:
        try:
            self.estimator.fit(X, y)
            self.fitted_ = self.estimator
        except DivergedError:
            self.fitted_ = None
        self.tick()
        return self


def _score(score: Score, trial: _Trial, X: Any, y: Any) -> float:
    return np.nan if trial.fitted_ is None else score(trial.fitted_, X, y)


def averaged(found: Sequence[Cell], **measures: str | None) -> Cell:
    """Return what a row of a table says of a model's results, one for each seed.

    Parameters
    ----------
    found : sequence of dict
        With `seconds` and the measures, which are None where the model diverged.
    **measures
        For each measure the name of its standard error, which one seed does not have; None: no such column. A mean
        is over all seeds, and None when the model diverged on any.

    Returns
    -------
    dict
        Means and standard errors, and the median `train_seconds`.
    """
    row: Cell = {}
    for measure, error in measures.items():
        values = [cell[measure] for cell in found if cell[measure] is not None]
        there = values and len(values) == len(found)
        row[measure], sem = mean_and_sem(values) if there else (None, None)
        if there and all(isinstance(value, int) for value in values) and row[measure].is_integer():
            row[measure] = int(row[measure])
        if error is not None and len(found) > 1:
            row[error] = sem
    seconds = [cell["seconds"] for cell in found if cell["seconds"] is not None]
    return row | {"train_seconds": float(np.median(seconds)) if seconds else None}


@dataclass(frozen=True)
class Difference:
    """A measure of one model less that of another, seed by seed, so that both saw the same split.

    Attributes
    ----------
    mean : float
        NaN where a model diverged.
    sem : float or None
        The standard error of the mean; None for one seed.
    count : int
        Seeds.

    Examples
    --------
    >>> ours, theirs = (
    ...     [{"map": 0.7}, {"map": 0.8}, {"map": 0.75}],
    ...     [{"map": 0.6}, {"map": 0.72}, {"map": 0.66}],
    ... )
    >>> found = Difference.of(ours, theirs, "map")
    >>> print(found, found.verdict)
    +0.090 ± 0.006 above
    """

    mean: float
    sem: float | None
    count: int

    @classmethod
    def of(cls, ours: Sequence[Cell], theirs: Sequence[Cell], measure: str | Callable[[Cell], Any]) -> Self:
        """Return the difference of the results of two models, in a measure or in what a function makes of them."""
        value = itemgetter(measure) if isinstance(measure, str) else measure
        pairs = [(value(a), value(b)) for a, b in zip(ours, theirs, strict=True)]
        ours_too, theirs_too = np.array(
            [(np.nan, np.nan) if None in pair else pair for pair in pairs], dtype=float
        ).T
        gaps = ours_too - theirs_too
        # What rounding may leave of equal numbers is no difference.
        gaps[np.abs(gaps) <= 1e-12 * np.maximum(np.abs(ours_too), np.abs(theirs_too))] = 0.0
        return cls(*mean_and_sem(gaps), len(gaps))

    @property
    def margin(self) -> float:
        """How far from 0 the mean must be, by Student's distribution, to be told from chance; 0 for one seed."""
        return 0.0 if self.sem is None else float(stdtrit(self.count - 1, 1 - CHANCE / 2)) * self.sem

    @property
    def verdict(self) -> str:
        """Whether the first model is "above", "level" with or "below" the second; "unknown" where one diverged."""
        if not np.isfinite(self.mean):
            return "unknown"
        return "level" if abs(self.mean) <= self.margin else "above" if self.mean > 0 else "below"

    def __str__(self) -> str:
        return f"{self.mean:+.3f}" + (f" ± {self.sem:.3f}" if self.sem is not None else "")


def above(claim: str, gaps: Mapping[str, Difference], needs: str) -> Claim:
    """Return the claim that a model is above another in all of some settings, such as ranks, by their names.

    It is reproduced where it is above in all, not where it is below in any, and open where it is level.
    """
    if not gaps:
        return Claim(claim, None, f"needs {needs}")
    verdicts = [gap.verdict for gap in gaps.values()]
    if "unknown" in verdicts:
        return Claim(claim, None, "a model diverged")
    shown = "; ".join(f"{name}{': ' * bool(name)}{gap.verdict}, {gap}" for name, gap in gaps.items())
    held = False if "below" in verdicts else None if "level" in verdicts else True
    once = "" if next(iter(gaps.values())).sem is not None else "; one seed: try --seeds 5"
    return Claim(claim, held, f"{shown}{once}")


def near(claim: str, gaps: Mapping[str, tuple[Difference, float]], numbers: str, needs: str) -> Claim:
    """Return the claim that a model is not behind another by more than a tolerance, in all of some settings.

    Parameters
    ----------
    claim : str
    gaps : mapping
        From settings to the difference, higher being better, and its tolerance.
    numbers : str
        Shown beside the differences.
    needs : str
        What is missing where there are no settings.
    """
    if not gaps:
        return Claim(claim, None, f"needs {needs}")
    if not all(np.isfinite(gap.mean) for gap, _ in gaps.values()):
        return Claim(claim, None, "a model diverged")
    shown = "; ".join(f"{name}{': ' * bool(name)}{gap}" for name, (gap, _) in gaps.items())
    surely = all(gap.mean - gap.margin >= -most for gap, most in gaps.values())
    never = any(gap.mean + gap.margin < -most for gap, most in gaps.values())
    return Claim(claim, True if surely else False if never else None, f"{numbers}; {shown}")
