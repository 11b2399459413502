"""What ``rmopt best`` runs: models of this library and simple rivals, tuned alike on a file; it writes the winner."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy.sparse import issparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from problems.comparison import Difference, averaged, crossed, listed
from problems.data import Bundle, ClassBundle, MultilabelBundle, Ratings, read_texts
from problems.data.bundles import scaling
from problems.evaluation import evaluate_retrieval
from problems.methods import Cell, Method, Settings
from problems.metric import experiment as metric
from problems.options import loaded
from problems.ranking import LoretaLabelRanker
from problems.ranking.experiment import METHODS as RANKERS
from problems.ranking.experiment import Ranking
from problems.serving import SimilarityIndex
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.similarity.experiment import METHODS as SIMILARITIES
from problems.similarity.experiment import scores_of
from problems.subspace import BayesianCompletion, BiasedALS, EntryKFold, entries
from rmopt.core import DivergedError, InvalidInputError
from rmopt.experiments import Outcome, Run
from rmopt.files import write_atomically
from rmopt.solvers.threads import one_blas_thread

# Folds, of which each is held out once; parameters are chosen by some folds of the first training part.
SPLITS, FOLDS = 5, 3
# The share of the time in which parameters are chosen, and from how many rows on by one fold alone.
TUNING, MANY = 0.5, 200_000
HEADINGS = {"rmse": "RMSE", "votes": "kNN", "sem": "± s.e.m.", "behind_sem": "±", "train_seconds": "fit s"}


class Contest(NamedTuple):
    """Rivals, on what they compete, and how.

    Attributes
    ----------
    X, y : array
    kinds : list of Method
    given : dict
        Parameters of all that have them.
    measure : str
        The name of what scikit-learn's `scoring` gives, or of minus that.
    scoring : str or callable
    splitter : callable
        Maps a number of folds to a splitter of scikit-learn.
    keep : callable
        Fits a model to all, writes it, and returns what is to be said of that.
    """

    X: Any
    y: Any
    kinds: Sequence[Method]
    given: Settings
    measure: str
    scoring: Any
    splitter: Callable[[int], Any]
    keep: Callable[[Any], str]


@dataclass(eq=False)
class Rival:
    """A method, the points that are left to try, those that were tried with their scores, and what it measured."""

    kind: Method
    left: list[Settings]
    tried: list[tuple[float, Settings]] = field(default_factory=list)
    spent: float = 0.0
    cells: list[Cell] = field(default_factory=list)

    @property
    def best(self) -> Settings:
        """The parameters with the highest score."""
        return max(self.tried, key=itemgetter(0))[1]

    def measured(self, contest: Contest, point: Settings, folds: Sequence[Any]) -> list[Cell]:
        """Return what it measures with some parameters on each fold, and its `seconds`."""
        model, how = self.kind.made(point, **contest.given), {"scoring": contest.scoring, "cv": folds}
        with warnings.catch_warnings(), joblib.parallel_config("threading", n_jobs=len(folds)):
            warnings.simplefilter("ignore")
            found = cross_validate(model, contest.X, contest.y, error_score="raise", **how)
        pairs = zip(found["test_score"].tolist(), found["fit_time"].tolist(), strict=True)
        return [{"score": score, contest.measure: abs(score), "seconds": seconds} for score, seconds in pairs]


def tune(rivals: Sequence[Rival], contest: Contest, rows: Any, end: float, tick: Callable[..., None]) -> None:
    """Try each rival with its defaults, and then, until the time ends, the one that had the least time, on folds."""
    splits = contest.splitter(SPLITS).split(contest.X[rows], contest.y[rows])
    folds = [(rows[train], rows[test]) for train, test in splits][: 1 if len(rows) > MANY else FOLDS]
    while waiting := [
        one for one in rivals
        if one.left and (not one.tried or perf_counter() + one.spent / len(one.tried) < end)
    ]:  # fmt: skip
        rival, begun = min(waiting, key=attrgetter("spent")), perf_counter()
        tick(f"tuning {rival.kind.label}")
        point, score = rival.left.pop(0), -np.inf
        # A rank, say, may be too large for these data.
        with suppress(DivergedError, InvalidInputError):
            score = float(np.mean([cell["score"] for cell in rival.measured(contest, point, folds)]))
        rival.tried.append((score, point))
        rival.spent += perf_counter() - begun


def ratings(bundle: Ratings, run: Run, file: str) -> Contest:
    """Return who competes on ratings."""
    kinds = [
        Method("users and items alone", BiasedALS(0), crossed(lam_effects=(1.0, 2.0, 5.0, 10.0, 20.0))),
        Method("BiasedALS", BiasedALS(), crossed(rank=(5, 10, 20, 40), lam=(0.4, 0.6, 0.9, 1.3, 2.0))),
        Method("BayesianCompletion", BayesianCompletion(), crossed(rank=(5, 10, 20, 30))),
    ]  # fmt: skip

    def keep(model: Any) -> str:
        model.set_params(handle_unknown="error").fit(bundle).save(run.path("model.npz"))
        return f"{type(model).__name__}.load reads model.npz, and rmopt serve {shlex.quote(str(run.out))} shows it."

    given = {"random_state": run.seed, "limits": bundle.limits, "handle_unknown": "mean"}
    splitter = partial(EntryKFold, random_state=run.seed)
    return Contest(*entries(bundle), kinds, given, "rmse", "neg_root_mean_squared_error", splitter, keep)


def retrieval(model: Any, X: Any, y: Any) -> float:
    """Return the mean average precision of rows that search those of their class."""
    return evaluate_retrieval(scores_of(model[-1], model[:-1].transform(X)), y, ks=()).map


# Of rows with several labels, of words, and of features: a measure, a splitter, rivals, and what stands behind them.
LABELS: Any = ("map", Ranking.score, KFold, [
    *(RANKERS[name] for name in ("ridge", "one-vs-rest", "low-rank-logistic")),
    Method("LoretaLabelRanker", LoretaLabelRanker(), crossed(rank=(20, 50, 100))),
], [])  # fmt: skip
WORDS: Any = ("map", retrieval, StratifiedKFold, [
    SIMILARITIES["svm"], SIMILARITIES["logistic"],
    Method("ContrastiveSimilarity", ContrastiveSimilarity(), crossed(rank=(30, 100), temperature=(0.2, 0.3, 0.5))),
    Method("LoretaSimilarity", LoretaSimilarity(), crossed(rank=(20, 50), step_size=(1.0, 3.0, 10.0))),
], [])  # fmt: skip
FEATURES: Any = ("votes", "accuracy", StratifiedKFold, [
    metric.METHODS[name] for name in ("euclidean", "lda", "comet", "comet-distance", "lego")
], [("neighbours", KNeighborsClassifier(metric.VOTERS))])  # fmt: skip


def samples(bundle: Any, run: Run, file: str) -> Contest:
    """Return who competes on texts, on rows with several labels, and on features for nearest neighbours."""
    X, several, names = bundle.X, isinstance(bundle, MultilabelBundle), getattr(bundle, "class_names", None)
    y = bundle.Y.toarray().astype(np.int8) if several else bundle.y
    y = y if names is None else np.array(names)[y]
    measure, scoring, splitter, kinds, behind = LABELS if several else WORDS if issparse(X) else FEATURES
    # Measurements may be alike in size as they are.
    scalings: Any = [{"scaling": one} for one in (StandardScaler(), "passthrough")] if behind else [{}]

    def piped(kind: Method) -> Method:
        steps = [("scaling", scaling(X)), ("lengths", Normalizer()), ("model", kind.estimator), *behind]
        points = [{f"model__{name}": point[name] for name in point} for point in kind.grid or [{}]]
        return Method(kind.label, Pipeline(steps), [point | more for point in points for more in scalings])

    def keep(model: Any) -> str:
        model.fit(X, y)
        with suppress(InvalidInputError):
            texts, _, places = read_texts(file)
            words = CountVectorizer(vocabulary=bundle.feature_names)
            if scoring is retrieval:
                rows, embed = model.transform(X).astype(np.float32), make_pipeline(words, *model[:-1])
                SimilarityIndex(model[-1], rows, names=places, texts=texts, vectorizer=embed).save(run.out)
                return f"rmopt serve {shlex.quote(str(run.out))} searches these texts."
            model = make_pipeline(words, *model)
        write_atomically(run.path("model.joblib"), partial(joblib.dump, model))
        return "joblib.load reads model.joblib, the whole pipeline; load files that you trust."

    given, folds = {"random_state": run.seed}, partial(splitter, shuffle=True, random_state=run.seed)
    return Contest(X, y, [*map(piped, kinds)], given, measure, scoring, folds, keep)


CONTESTS: dict[type, Any] = {Ratings: ratings, ClassBundle: samples, MultilabelBundle: samples}


def best(run: Run, file: str, minutes: float = 5.0, data_home: Path | None = None) -> Outcome:
    """Tune and measure all rivals within some minutes, and write the winner.

    Parameters
    ----------
    run : Run
    file : str
        As `problems.data.load` takes it.
    minutes : float
        Half of them for parameters, the rest for measuring. Each rival is tried with its defaults, and measured on
        two splits, however long that takes.
    data_home : Path, optional
        Of registered data sets.
    """
    begun, bundle = perf_counter(), loaded(run, file, data_home, Bundle)
    if type(bundle) not in CONTESTS:
        raise InvalidInputError(f"{bundle.source} holds {bundle.holds}: no rivals are known; see rmopt data.")
    contest, draw = CONTESTS[type(bundle)](bundle, run, file), Random(run.seed).sample
    rivals = [Rival(one, [one.defaults, *draw(one.grid, len(one.grid))]) for one in contest.kinds]
    run.say(f"{bundle.source}: {bundle.holds}. Rivals: {', '.join(one.kind.label for one in rivals)}.")
    splits = list(contest.splitter(SPLITS).split(contest.X, contest.y))
    with one_blas_thread(), run.ticks("best", sum(len(one.left) + SPLITS for one in rivals)) as tick:
        tune(rivals, contest, splits[0][0], begun + TUNING * 60.0 * minutes, tick)
        start = perf_counter()
        for number, split in enumerate(splits):
            if number > 1 and perf_counter() + (perf_counter() - start) / number > begun + 60.0 * minutes:
                break
            for one in rivals:
                tick(f"measuring {one.kind.label}")
                one.cells += one.measured(contest, one.best, [split])
        rivals.sort(key=lambda one: -sum(cell["score"] for cell in one.cells))
        said = contest.keep(rivals[0].kind.made(rivals[0].best, **contest.given))
    gaps = {one.kind.label: Difference.of(rivals[0].cells, one.cells, "score") for one in rivals}
    rows: list[Cell] = [
        {"model": label} | averaged(one.cells, **{contest.measure: "sem"})
        | {"behind": gap.mean, "behind_sem": gap.sem, "tried": len(one.tried)}
        for one, (label, gap) in zip(rivals, gaps.items(), strict=True)
    ]  # fmt: skip
    winner, *level = [label for label, gap in gaps.items() if gap.verdict == "level"]
    chosen = {one.kind.label: listed(one.best).replace("model__", "") or "none" for one in rivals}
    told = f"; chance may have put it before {', '.join(level)}" if level else ""
    notes = [
        f"\n{winner} is the best{told}.",
        f"Parameters, by folds of the training part of the first of {len(rivals[0].cells)} splits: "
        f"{'; '.join(': '.join(pair) for pair in chosen.items())}.",
        f"{sum(len(one.tried) for one in rivals)} settings were tried; all took {perf_counter() - begun:.0f} s.",
        said,
    ]
    about = {"file": file, "minutes": minutes, "chosen": chosen}
    return Outcome(bundle.name, about, rows, HEADINGS, notes=notes)
