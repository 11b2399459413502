"""Our defaults beside what practice would take, whose parameters are chosen on the first training part.

Run by hand: ``pytest -o addopts= -s tests/benchmarks/test_defaults.py``, with RMOPT_DATA_HOME.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from problems.comparison import Difference, mean_and_sem
from problems.data import load
from problems.data.bundles import ClassBundle, MultilabelBundle
from problems.data.text import information_gain
from problems.metric.experiment import Metric
from problems.ranking.experiment import Ranking
from problems.similarity.experiment import Similarity
from rmopt.experiments import Run

pytestmark = pytest.mark.skipif("RMOPT_DATA_HOME" not in os.environ, reason="RMOPT_DATA_HOME is not set.")


def compared(experiment: Any, folder: Path, ours: str, **measures: float) -> list[dict[str, Any]]:
    """Return the rows of an experiment, measures times a factor, and what ours is above each, split by split."""
    rows: list[Any] = []
    experiment.draw = rows.extend
    experiment(Run("defaults", 0, folder, quiet=True))
    best = next(row for row in rows if row["method"] == ours)

    def shown(name: str, mean: float, error: float, sign: str = "") -> str:
        factor = measures[name]
        digits = 1 if factor * best.mean(name) > 1.0 else 3
        spread = f" ± {factor * error:.{digits}f}" * (len(best.cells) > 1)
        return f"{factor * mean:{sign}.{digits}f}{spread}"

    found: list[dict[str, Any]] = []
    for row in rows:
        found.append({"data": experiment.bundle.name, "method": row.label})
        for name in measures:
            found[-1][name] = shown(name, *mean_and_sem(cell[name] for cell in row.cells))
        for name in measures if row is not best else ():
            gap = Difference.of(best.cells, row.cells, name)
            found[-1][f"{name}, ours above"] = shown(name, gap.mean, gap.sem, "+")
    return found


# Options of each data set, among them the rows of those that would take long.
METRICS: dict[str, dict[str, Any]] = {
    "digits": {"seeds": 5},
    "letter": {"seeds": 5, "rows": 5000},
    "semeion": {"seeds": 5, "triplets": 10_000},
    "mnist": {"seeds": 3, "rows": 10_000, "triplets": 40_000},
    "caltech101": {"seeds": 3, "triplets": 20_000, "scaling": "unit"},
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics(measured: Any, tmp_path: Path, name: str) -> None:
    """Votes of three nearest neighbours, in percent, and precision at 10 (80/20 splits)."""
    measured(metrics, tmp_path, name)


def metrics(folder: Path, name: str) -> list[dict[str, Any]]:
    how: dict[str, Any] = {"scaling": "raw", **METRICS[name]}
    home, data = os.environ["RMOPT_DATA_HOME"], name
    if count := how.pop("rows", 0):
        path = Path(home, f"{name}.npz")
        bundle = load(name if name == "mnist" else str(path), None, ClassBundle)
        some = np.random.default_rng(0).permutation(len(bundle.y))[:count]
        data = str(folder / f"{name}.npz")
        np.savez(data, X=bundle.X[some], y=bundle.y[some])
    elif name == "semeion":
        data = str(Path(home, "semeion.npz"))
    experiment = Metric(
        data=data, features=0, select="first", folds=3, select_by="votes",
        methods="euclidean,lda,lego,comet-default", **how,
    )  # fmt: skip
    return compared(experiment, folder, "comet-default", votes=100.0, precision_at_10=1.0)


@pytest.mark.parametrize(("name", "rank"), [("digits", 10), ("scipy-docs", 13), ("news20", 20)])
def test_similarities(measured: Any, tmp_path: Path, name: str, rank: int) -> None:
    """Mean average precision, and precision at 1 in percent; as many numbers as classes (65/35 splits)."""
    measured(similarities, tmp_path, name, rank)


def similarities(folder: Path, name: str, rank: int) -> list[dict[str, Any]]:
    experiment = Similarity(
        data=name, seeds=2 if name == "news20" else 5, rank=str(rank), select="first", folds=3,
        methods="svm,logistic,contrastive",
    )  # fmt: skip
    return compared(experiment, folder, "contrastive", map=1.0, precision_at_1=100.0)


@pytest.mark.parametrize(
    ("name", "rank"), [("enron", 52), ("bibtex", 100), ("news", 100), ("delicious", 200)]
)
def test_labels(measured: Any, tmp_path: Path, name: str, rank: int) -> None:
    """Precision at 1 and at 5, in percent (65/35 splits); "news" has words as labels, Delicious 2,500 rows."""
    measured(labels, tmp_path, name, rank)


def labels(folder: Path, name: str, rank: int) -> list[dict[str, Any]]:
    smaller = {"news": news, "delicious": some_of_delicious}
    methods = ["ridge", "svm", "omikuji", "low-rank-logistic"]
    if not find_spec("omikuji"):
        print("omikuji is left out: it is not installed; pip install 'rmopt[bench]'.")
        methods.remove("omikuji")
    experiment = Ranking(
        data=smaller[name](folder) if name in smaller else name, seeds=3, select="first", folds=3, rank=str(rank),
        methods=",".join(methods),
    )  # fmt: skip
    return compared(experiment, folder, "low-rank-logistic", precision_at_1=100.0, precision_at_5=100.0)


def news(folder: Path) -> str:
    """Write 4,000 posts of 20 Newsgroups: labels are groups and 180 words that tell of them, no features."""
    bundle = load("news20", None, ClassBundle)
    some = np.random.default_rng(0).permutation(len(bundle.y))[:4000]
    X, y = bundle.X[some], bundle.y[some]
    often = np.asarray((X > 0).sum(axis=0)).ravel()
    gain = np.where((often >= 20) & (often <= 1500), information_gain(X, y), -1.0)
    words = np.argsort(-gain, kind="stable")[:180]
    others = np.setdiff1d(np.flatnonzero(often >= 5), words)
    return written(folder / "news.npz", X[:, others], np.hstack([np.eye(20)[y], X[:, words].toarray() > 0]))


def some_of_delicious(folder: Path) -> str:
    """Write 2,500 rows of Delicious: a linear SVM for each of 983 labels takes a minute on all."""
    bundle = load("delicious", None, MultilabelBundle)
    some = np.random.default_rng(0).permutation(bundle.X.shape[0])[:2500]
    return written(folder / "delicious.npz", bundle.X[some], bundle.Y[some].toarray())


def written(path: Path, X: Any, Y: Any) -> str:
    rows = sp.csr_array(X)
    parts = {f"X_{name}": getattr(rows, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(path, Y=Y, **parts)
    return str(path)
