"""The contest of ``rmopt best``: models of this library and simple rivals, tuned alike on a file."""

import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import perf_counter
from typing import Any
from warnings import catch_warnings

import joblib
import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from problems.comparison import Difference, averaged, crossed, listed
from problems.data import Bundle, ClassBundle, MultilabelBundle, Ratings, read_texts
from problems.data.bundles import holds_counts, scaling
from problems.evaluation import evaluate_retrieval
from problems.methods import Cell, Method, Settings
from problems.metric.experiment import METHODS as MEASURES
from problems.options import loaded
from problems.ranking import LoretaLabelRanker
from problems.ranking import experiment as ranking
from problems.serving import SimilarityIndex
from problems.serving.texts import SIMILAR, TextSearch, blended, bm25, finds, scores_of_words
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.similarity import experiment as similarity
from problems.subspace import BayesianCompletion, BiasedALS, EntryKFold, entries
from problems.subspace.experiment import METHODS as COMPLETERS
from problems.subspace.recommendations import titled, write_lists
from rmopt.core import DivergedError, InvalidInputError
from rmopt.experiments import Outcome, Run
from rmopt.files import write_atomically
from rmopt.solvers.threads import one_blas_thread

# The number of outer folds; that of inner folds for the choice of parameters, and the size of data from which only
# one is used; their share of the time; the density below which data are sparse.
SPLITS, FOLDS, MANY, TUNING, WORDS = 5, 3, 2_000_000, 0.5, 0.2
HEADINGS = {"rmse": "RMSE", "votes": "kNN", "sem": "± s.e.m.", "behind_sem": "±", "train_seconds": "fit s"}


@dataclass(eq=False)
class Rival:
    """A method, its untried points, the best point with its score, the total time, and its measurements."""

    kind: Method
    left: list[Settings]
    best: tuple[float, Settings] = (-np.inf, {})
    tried: int = 0
    spent: float = 0.0
    cells: list[Cell] = field(default_factory=list)


def ratings(bundle: Ratings, run: Run, file: str) -> tuple[Any, ...]:
    """Return the contest on ratings or counts, see `CONTESTS`."""
    low, middle, high = np.percentile(bundle.values, (0, 50, 100))
    splitter = partial(EntryKFold, random_state=run.seed)
    given: Settings = {"random_state": run.seed, "handle_unknown": "mean"}

    def keep(model: Any) -> str:
        model.set_params(handle_unknown="error").fit(bundle).save(run.path("model.npz"))
        write_lists(run, model)
        return f"rmopt serve {shlex.quote(str(run.out))} shows model.npz, a {type(model).__name__}."

    if low == high or (low >= 0 and high > 10 * middle):
        run.say("The values are counts, or all equal: lists of ten are measured.")
        lists = [COMPLETERS[name] for name in ("popular", "neighbors", "implicit")]
        return *entries(bundle), lists, given, "ndcg", None, splitter, keep
    sampled = crossed(implicit=(False, True), rank=(5, 10, 20, 30))
    kinds = [Method("users and items alone", BiasedALS(0), crossed(lam_effects=(1.0, 2.0, 3.0, 5.0, 10.0, 20.0))),
             Method("BiasedALS", BiasedALS(), crossed(rank=(5, 10, 20, 40), lam=(0.4, 0.6, 0.9, 1.3, 2.0))),
             Method("BayesianCompletion", BayesianCompletion(), sampled)]  # fmt: skip
    given["limits"] = bundle.limits
    return *entries(bundle), kinds, given, "rmse", "neg_root_mean_squared_error", splitter, keep


class WordsAlone(DummyClassifier):
    """Documents with equal scores, so that only their words tell them apart."""

    transform = DummyClassifier.predict_proba


def retrieval(model: Any, X: Any, y: Any) -> float:
    """Return the mean average precision of rows as queries for their class, ranked as texts similar to one are."""
    learned = similarity.scores_of(model[-1], model[:-1].transform(X))
    if not holds_counts(X):
        return evaluate_retrieval(learned, y, ks=()).map
    counts, words = csr_array(X), bm25(X).T.tocsr()

    def scores(rows: Any) -> Any:
        return blended(learned(rows), scores_of_words(counts[rows], words), SIMILAR)

    return evaluate_retrieval(scores, y, ks=()).map


_ROWS = Method("LoretaLabelRanker", LoretaLabelRanker(), crossed(rank=(20, 50, 100)))
_STEPS = Method("LoretaSimilarity", LoretaSimilarity(), crossed(rank=(20, 50), step_size=(1.0, 3.0, 10.0)))
_BATCHES = crossed(rank=(30, 100), temperature=(0.2, 0.3, 0.5))
_COSINES = Method("ContrastiveSimilarity", ContrastiveSimilarity(), _BATCHES)
# For rows with several labels, for sparse features, for texts, and for features.
RANKERS: Any = *map(ranking.METHODS.get, ("ridge", "svm", "low-rank-logistic")), _ROWS
SPARSE: Any = *map(similarity.METHODS.get, ("svm", "logistic")), _STEPS, _COSINES
TEXTS: Any = Method("words alone", WordsAlone()), *SPARSE
METRICS: Any = tuple(map(MEASURES.get, ("euclidean", "lda", "comet-default", "comet-distance", "lego")))


def samples(bundle: Any, run: Run, file: str) -> tuple[Any, ...]:
    """Return the contest on texts, on rows with several labels, or on features for neighbours, see `CONTESTS`."""
    X, several, names = bundle.X, isinstance(bundle, MultilabelBundle), getattr(bundle, "class_names", None)
    # A table of words is mostly zeros.
    if several and (sparse := csr_array(X)).nnz < WORDS * np.prod(X.shape):
        X = sparse
    # In int8 scikit-learn's LabelBinarizer would confuse the labels from the 128th on.
    y = bundle.Y.toarray().astype(int) if several else bundle.y
    y, splitter = y if names is None else np.array(names)[y], KFold if several else StratifiedKFold
    kinds = RANKERS if several else METRICS if not issparse(X) else TEXTS if holds_counts(X) else SPARSE
    scoring: Any = ranking.Ranking.score if several else retrieval if issparse(X) else "accuracy"
    behind = [("neighbours", KNeighborsClassifier())] * (kinds is METRICS)
    # Measurements may already have similar sizes.
    scalings: Any = crossed(scaling=(StandardScaler(), "passthrough")) if behind else [{}]

    weights = scaling(X)
    if isinstance(weights, TfidfTransformer):
        # The logarithm of counts, which nearly always helps.
        weights.set_params(sublinear_tf=True)

    def piped(kind: Method) -> Method:
        steps = [("scaling", weights), ("lengths", Normalizer()), ("model", kind.estimator), *behind]
        points = [{f"model__{name}": point[name] for name in point} for point in kind.grid or [{}]]
        return Method(kind.label, Pipeline(steps), [point | more for point in points for more in scalings])

    def keep(model: Any) -> str:
        model.fit(X, y)
        with suppress(InvalidInputError):
            texts, labels, places = read_texts(file)
            model.steps.insert(0, ("words", CountVectorizer(vocabulary=bundle.feature_names)))
            if scoring is retrieval:
                rows = model[1:].transform(X).astype(np.float32)
                about = {"names": places, "texts": texts, "vectorizer": model[:-1], "labels": labels}
                index = SimilarityIndex(model[-1], rows, **about)
                index.save(run.out)
                found, tries = finds(TextSearch(index), Random(run.seed))
                how = f"there, the first ten words of a text found it {found} times of {tries} among ten results"
                return f"rmopt serve {shlex.quote(str(run.out))} searches these texts; {how}."
        write_atomically(run.path("model.joblib"), partial(joblib.dump, model))
        return "joblib.load reads model.joblib, the whole pipeline; load files that you trust."

    folds = partial(splitter, shuffle=True, random_state=run.seed)
    measure = "votes" if behind else "map"
    return X, y, [*map(piped, kinds)], {"random_state": run.seed}, measure, scoring, folds, keep


# For each kind of data: X, y, rivals, shared parameters, the name of a measure, scikit-learn's scoring for it, a
# function from a number of folds to a splitter, and a function that fits a model to all data, writes it, and returns
# a remark.
CONTESTS: dict[type, Any] = {Ratings: ratings, ClassBundle: samples, MultilabelBundle: samples}


def best(run: Run, file: str, minutes: float = 5.0, data_home: Any = None, names: Any = None) -> Outcome:
    """Tune and measure all rivals within some minutes, and write the winner.

    Parameters
    ----------
    run : Run
    file : str
        A file as for `problems.data.load`.
    minutes : float
        Half of them for parameters, the rest for measurements. Each rival is always tried with its defaults and
        measured on two splits, even beyond this time.
    data_home : Path, optional
        The folder of registered data sets.
    names : Path, optional
        A file with the titles of items, for ratings.
    """
    begun, bundle = perf_counter(), loaded(run, file, data_home, Ratings if names else Bundle)
    bundle = titled(run, bundle, names) if names else bundle
    if type(bundle) not in CONTESTS:
        raise InvalidInputError(f"{bundle.source} holds {bundle.holds}: no rivals are known; see rmopt data.")
    X, y, kinds, given, measure, scoring, splitter, keep = CONTESTS[type(bundle)](bundle, run, file)
    draw, end, tuned = Random(run.seed).sample, begun + 60.0 * minutes, begun + TUNING * 60.0 * minutes
    points = {one.label: filter(one.defaults.__ne__, draw(one.grid, len(one.grid))) for one in kinds}
    rivals = [Rival(one, [one.defaults, *points[one.label]]) for one in kinds]
    run.say(f"{bundle.source}: {bundle.holds}. Rivals: {', '.join(one.label for one in kinds)}.")
    # Small classes are among the odd things of rmopt data.
    with catch_warnings(action="ignore"):
        (rows, _), *_ = splits = list(splitter(SPLITS).split(X, y))
        inner = splitter(SPLITS).split(X[rows], y[rows])
        folds = [(rows[train], rows[test]) for train, test in inner][: 1 if X.size > MANY else FOLDS]

    def measured(one: Rival, point: Settings, folds: Any) -> list[Cell]:
        model = one.kind.made(point, **given)
        with catch_warnings(action="ignore"), joblib.parallel_config("threading", n_jobs=len(folds)):
            found = cross_validate(model, X, y, cv=folds, scoring=scoring, error_score="raise")
        pairs = zip(found["test_score"].tolist(), found["fit_time"].tolist(), strict=True)
        return [{"score": score, measure: abs(score), "seconds": seconds} for score, seconds in pairs]

    def due(one: Rival) -> bool:
        return bool(one.left) and (not one.tried or perf_counter() + one.spent / one.tried < tuned)

    with one_blas_thread(), run.ticks("best", sum(len(one.left) + SPLITS for one in rivals)) as tick:
        while waiting := list(filter(due, rivals)):
            one, start = min(waiting, key=lambda one: one.spent), perf_counter()
            tick(f"tuning {one.kind.label}")
            point = one.left.pop(0)
            # A rank, for example, may be too large for these data.
            with suppress(DivergedError, InvalidInputError):
                score = float(np.mean([cell["score"] for cell in measured(one, point, folds)]))
                one.best = max(one.best, (score, point), key=lambda found: found[0])
            one.tried, one.spent = one.tried + 1, one.spent + perf_counter() - start
        rivals, start = [one for one in rivals if one.best[0] > -np.inf], perf_counter()
        if not rivals:
            raise InvalidInputError(f"no rival learns anything from {bundle.source}; see rmopt data.")
        for number, split in enumerate(splits):
            if number > 1 and perf_counter() + (perf_counter() - start) / number > end:
                break
            for one in rivals:
                tick(f"measuring {one.kind.label}")
                one.cells += measured(one, one.best[1], [split])
        first, *_ = rivals = sorted(rivals, key=lambda one: -sum(cell["score"] for cell in one.cells))
    pairs = [(one, Difference.of(first.cells, one.cells, "score")) for one in rivals]
    table: list[Cell] = [
        {"model": one.kind.label} | averaged(one.cells, **{measure: "sem"})
        | {"behind": gap.mean, "behind_sem": gap.sem, "tried": one.tried} for one, gap in pairs
    ]  # fmt: skip
    n, (winner, *level) = len(first.cells), [one.kind.label for one, gap in pairs if gap.verdict == "level"]
    shown = f"{n} splits show only differences above {Difference(0.0, 1.0, n).margin:.1f} standard errors"
    doubt = f"; {shown}, and leave it level with {', '.join(level)}" if level else ""
    chosen = {one.kind.label: listed(one.best[1]).replace("model__", "") or "none" for one in rivals}
    by = f"Means over {n} splits with {1 / SPLITS:.0%} held out. Parameters, by folds of the first training part"
    notes = [f"\n{winner} is the best{doubt}.", f"{by}: {'; '.join(map(': '.join, chosen.items()))}."]
    every = "; all settings were tried" * (not any(one.left for one in rivals))
    notes.append(keep(first.kind.made(first.best[1], **given)))
    notes.append(f"All took {perf_counter() - begun:.0f} s{every}.")
    return Outcome(bundle.name, {"minutes": minutes, "chosen": chosen}, table, HEADINGS, notes=notes)
