"""One comparison for all families: methods × settings × splits, each cell written when it is done.

How an experiment is written:

1. A method is a `Method`: a label, an unfitted estimator of the scikit-learn kind, and the grid of parameters that
   cross-validation chooses among. What an experiment must know of a method is an attribute of its estimator; no
   decision looks at a label or a name.
2. ``check_options(locals(), splits=1, rows=0)`` holds whole-number options to their least values.
3. ``comparison = Comparison(run, resume, data=data, seed=run.seed)`` keeps one result for each settings, a plain dict
   that tells all that the result depends on, in ``cells.jsonl``; ``resume=None`` keeps none.
4. ``settings = crossed(split=range(splits), method=chosen, rank=ranks)`` is a list of such dicts, of which the last
   choice varies fastest. ``results = comparison.results(settings, train, by=("method", "rank"))`` takes
   ``train(settings)`` for those that are not known, moves the progress bar, and lists results by method and rank.
5. Parameters come from ``comparison.search(label, estimator, grid, X, y, cv, scoring)``, in a function that is given
   to ``comparison.cell(settings, choose)`` where its choice is to be kept too. A training that diverges loses.
6. `averaged` makes the numbers of a row from the results of a model, `positive` and `wins` claims from differences.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from problems.cells import Cell, Cells, mean_and_sem
from rmopt.core import DivergedError, InvalidInputError, Problem
from rmopt.engines.threads import one_blas_thread
from rmopt.experiments import Claim, Run
from rmopt.solvers import Solver

Settings = dict[str, Any]
# Tells how good a fitted estimator is on held-out rows; higher is better.
Score = Callable[[Any, Any, Any], float]


@dataclass(frozen=True)
class Method:
    """A method of a comparison.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    estimator : estimator
        Unfitted, with the parameters that it has without cross-validation.
    grid : list of dict
        The parameters that cross-validation chooses among; empty: nothing.
    ours : bool
        Whether it is the paper's own, whose training is followed.
    """

    label: str
    estimator: Any
    grid: Sequence[Settings] = ()
    ours: bool = False

    def made(self, **parameters: Any) -> Any:
        """Return a new estimator with some parameters."""
        return clone(self.estimator).set_params(**parameters)


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


def crossed(**choices: Iterable[Any]) -> list[Settings]:
    """Return all combinations of choices; the last one varies fastest."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


class Comparison:
    """The results of a comparison by their settings, computed unless they are known.

    Parameters
    ----------
    run : Run
    resume : bool or None
        Go on from the results in the output folder; None: keep no results there.
    **about
        What all settings have in common.
    """

    def __init__(self, run: Run, resume: bool | None, **about: Any) -> None:
        self.run, self.about = run, about
        self._cells = None if resume is None else Cells(run.path("cells.jsonl"), resume)

    def cell(self, settings: Settings, train: Callable[[Settings], Cell]) -> Cell:
        """Return the result for some settings: what `train` makes of them and of the common ones."""
        whole = self.about | settings
        return train(whole) if self._cells is None else self._cells.get(whole, partial(train, whole))

    def results(
        self,
        settings: Sequence[Settings],
        train: Callable[[Settings], Cell],
        by: Sequence[str],
        what: str = "models",
    ) -> dict[Any, list[Cell]]:
        """Return the results for all settings, under a progress bar.

        Parameters
        ----------
        settings : sequence of dict
        train : callable
            Maps settings, the common ones among them, to a result.
        by : sequence of str
            Results are listed by these settings: by the value of one, or by a tuple of several.
        what : str
            What the progress bar counts.
        """
        key, found = itemgetter(*by), dict[Any, list[Cell]]()
        with self.run.ticks(what, len(settings)) as tick:
            for one in settings:
                found.setdefault(key(one), []).append(self.cell(one, train))
                tick()
        return found

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
            Of several that are best the first is chosen.
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

        values = [{f"estimator__{name}": [value] for name, value in one.items()} for one in grid]
        scorers = {way: partial(_score, score) for way, score in scoring.items()}
        with self.run.ticks(f"selecting for {label}", cv.get_n_splits(X, y) * len(grid)) as tick:
            search = GridSearchCV(
                _Trial(estimator, tick), values, cv=cv, scoring=scorers, refit=False, error_score="raise"
            )
            # The threads are many enough; those of BLAS would only be in their way.
            with one_blas_thread(), parallel_config("threading", n_jobs=-1), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "One or more of the .* scores are non-finite")
                found = search.fit(X, y).cv_results_
        means = {way: np.nan_to_num(found[f"mean_test_{way}"], nan=-np.inf) for way in scoring}
        way = max(means, key=lambda way: means[way].max())
        if means[way].max() == -np.inf:
            raise InvalidInputError(
                f"training diverged for every value of the grid {list(grid)}; try smaller values, or scale the rows."
            )
        return grid[int(np.argmax(means[way]))], way


class _Trial(BaseEstimator):
    """A training that may diverge; nothing is fitted then, and the score of that is NaN."""

    def __init__(self, estimator: Any, tick: Callable[[], None]) -> None:
        self.estimator, self.tick = estimator, tick

    def fit(self, X: Any, y: Any) -> Self:
        try:
            self.fitted_ = self.estimator.fit(X, y)
        except DivergedError:
            self.fitted_ = None
        self.tick()
        return self


def _score(score: Score, trial: _Trial, X: Any, y: Any) -> float:
    return np.nan if trial.fitted_ is None else score(trial.fitted_, X, y)


def averaged(found: Sequence[Cell], **measures: str | None) -> Cell:
    """Return what a row of a table says of a model's results, one for each split.

    Parameters
    ----------
    found : sequence of dict
        With `seconds` and the measures, which are None where the model diverged.
    **measures
        For each measure the name of its standard error. Such a mean is over all splits, and None when the model
        diverged on any. Where the name is None there is no such column, and the mean is over the other splits.

    Returns
    -------
    dict
        Means and standard errors, and the median `train_seconds`.
    """
    row: Cell = {}
    for measure, error in measures.items():
        values = [cell[measure] for cell in found if cell[measure] is not None]
        there = values and (error is None or len(values) == len(found))
        row[measure], sem = mean_and_sem(values) if there else (None, None)
        if error is not None:
            row[error] = sem
    seconds = [cell["seconds"] for cell in found if cell["seconds"] is not None]
    return row | {"train_seconds": float(np.median(seconds)) if seconds else None}


def positive(claim: str, gaps: Sequence[float], numbers: str) -> Claim:
    """Return the claim that all differences are positive; models that diverged have none."""
    if not np.isfinite(gaps).all():
        return Claim(claim, None, "a model diverged")
    return Claim(claim, bool(min(gaps) > 0), numbers)


def wins(claim: str, gaps: Sequence[float], needs: str) -> Claim:
    """Return the claim that all differences of mean average precision, one for each rank, are positive."""
    if not gaps:
        return Claim(claim, None, f"needs {needs}")
    won = sum(gap > 0 for gap in gaps)
    numbers = f"above at {won} of {len(gaps)} ranks, mAP differences {min(gaps):+.3f} to {max(gaps):+.3f}"
    return positive(claim, gaps, numbers)
