"""Equal integers give equal bits: on one and on two threads, with a cold and a warm cache of compiled loops."""

import importlib
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from problems.coembedding import CalibratedLabelRanking
from rmopt import Problem
from rmopt.costs import BilinearSum, hinge, squared
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD
from rmopt.solvers.threads import one_blas_thread

FAMILIES = ("similarity", "metric", "ranking", "subspace", "coembedding")
# How many threads sum changes the bits of BLAS from some size on, which these data reach.
ROWS = 300


def estimators() -> dict[str, type]:
    """Return every public estimator by its name."""
    found: dict[str, type] = {}
    for family in FAMILIES:
        module = importlib.import_module(f"problems.{family}")
        public = {name: getattr(module, name) for name in module.__all__}
        found |= {
            name: part for name, part in public.items() if isinstance(part, type) and hasattr(part, "fit")
        }
    return found


def recipes() -> dict[str, tuple[dict[str, Any], tuple[Any, ...]]]:
    """Return parameters and data for every public estimator."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:ROWS] / 16.0, y[:ROWS]
    rng = np.random.default_rng(0)
    labels = (rng.random((ROWS, 60)) < 0.05).astype(np.int64)
    labels[np.arange(ROWS), rng.integers(60, size=ROWS)] = 1
    ratings = sp.csr_array(rng.integers(1, 6, (ROWS, 200)) * (rng.random((ROWS, 200)) < 0.3).astype(float))
    pairs = rng.integers(ROWS, size=(2000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    posts = (rng.integers(30, size=(600, 2)), rng.integers(80, size=600))
    tasks = np.arange(ROWS) % 12
    seed = {"random_state": 0}
    return {
        "ContrastiveSimilarity": ({"rank": 8, "n_epochs": 3, **seed}, (X, y)),
        "LoretaSimilarity": ({"rank": 8, "max_iter": 2000, **seed}, (X, y)),
        "CometMetric": ({"n_epochs": 1.0, **seed}, (X, y)),
        "BoostMetric": ({"max_iter": 5, **seed}, (X, y)),
        "HdslMetric": ({"max_iter": 50, **seed}, (X, y)),
        "LegoMetric": ({"n_triplets": 500, **seed}, (X, y)),
        "EuclideanMetric": ({}, (X, y)),
        "LoretaLabelRanker": ({"rank": 8, "n_epochs": 1, **seed}, (X, labels)),
        "LowRankLogisticRegression": ({"rank": 8, "n_epochs": 2, **seed}, (X, labels)),
        "BayesianCompletion": ({"rank": 3, "n_samples": 5, "burn_in": 2, **seed}, (ratings,)),
        "BiasedALS": ({"rank": 3, "max_iter": 3, **seed}, (ratings,)),
        "ScaledSGDCompletion": ({"rank": 3, "n_epochs": 3, **seed}, (ratings,)),
        "ImplicitALS": ({"rank": 3, "max_iter": 3, **seed}, (abs(ratings),)),
        "RTRMC": ({"rank": 4, "max_iter": 3, **seed}, (ratings,)),
        "RCGMC": ({"rank": 4, "max_iter": 3, **seed}, (ratings,)),
        "GossipMatrixCompletion": ({"rank": 4, "n_epochs": 3.0, **seed}, (ratings,)),
        "MultitaskSubspace": ({"rank": 4, "n_epochs": 3.0, **seed}, (X, y.astype(float), tasks)),
        "CoembeddingClassifier": ({"max_rank": 3, "tol": 1e-2}, (X, labels)),
        "CoembeddingClassifierCV": ({"betas": (5.0, 20.0), "cv": 2, "max_rank": 2, "n_jobs": 2}, (X, labels)),
        "LinkPredictor": ({"max_rank": 3, "tol": 1e-2, **seed}, (X, (pairs, np.ptp(y[pairs], axis=1) % 2))),
        "TagRecommender": ({"max_rank": 2, "tol": 1e-1}, posts),
        "PairwiseInteractionTags": ({"rank": 8, "n_epochs": 2, **seed}, posts),
        "CalibratedLabelRanking": ({"estimator": RidgeClassifier()}, (X, labels[:, :5])),
        "LabelThresholds": (
            {"estimator": CalibratedLabelRanking(RidgeClassifier()), "cv": 2},
            (X, labels[:, :5]),
        ),
    }


def runs() -> dict[str, Callable[[], Any]]:
    """Return runs of solvers whose engines the estimators do not use on these data."""
    rng = np.random.default_rng(1)
    left, right, signs = (
        rng.standard_normal((60, 400)),
        rng.standard_normal((60, 300)),
        rng.choice([-1.0, 1.0], 60),
    )
    problem = Problem(FixedRankEmbedded(400, 300, 8), BilinearSum(left, right, hinge, signs))
    smooth = Problem(problem.manifold, BilinearSum(left, right, squared, signs))
    return {
        "SGD, dense rows": lambda: SGD(0.1, max_iter=120).run(problem, random_state=0),
        "SGD, four terms": lambda: SGD(0.1, max_iter=40, batch_size=4).run(problem, random_state=0),
        "SGD, reference": lambda: SGD(0.1, max_iter=40, engine="reference").run(problem, random_state=0),
        "PymanoptSolver": lambda: PymanoptSolver(max_iterations=5).run(smooth, random_state=0),
    }


def digest(part: Any) -> Any:
    """Return what tells the bits of a fitted attribute or a point; `TypeError` for what cannot be told."""
    if sp.issparse(part):
        return [digest(piece) for piece in (part.data, part.indices, part.indptr)]
    if isinstance(part, np.ndarray) and part.dtype != object:
        return sha256(np.ascontiguousarray(part).tobytes()).hexdigest()[:16]
    if isinstance(part, (list, tuple)):
        return [digest(piece) for piece in part]
    if isinstance(part, dict):
        return {str(key): digest(piece) for key, piece in part.items() if key != "seconds"}
    return repr(part) if isinstance(part, (int, float, str, np.generic, type(None))) else digest(vars(part))


def digests() -> dict[str, Any]:
    """Return the digests of every estimator, fitted, and of the runs."""
    classes, found = estimators(), {}
    for name, (parameters, data) in recipes().items():
        with warnings.catch_warnings():
            # scikit-learn 1.7 says so of few rows.
            warnings.filterwarnings("ignore", "The number of unique classes")
            model = classes[name](**parameters).fit(*data)
        found[name] = digest({key: value for key, value in vars(model).items() if key.endswith("_")})
    return found | {name: digest(run().point) for name, run in runs().items()}


def in_processes(*threads: int, cache: Path | None = None) -> list[dict[str, Any]]:
    """Return the digests that processes of their own find, side by side, each with a number of threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    place = {} if cache is None else {"NUMBA_CACHE_DIR": str(cache)}
    started = [
        subprocess.Popen(
            [sys.executable, __file__],
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(names, str(count)) | place,
        )
        for count in threads
    ]
    ended = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started)
    return [json.loads(out) for out in ended]


def test_every_public_estimator_has_a_recipe() -> None:
    assert set(recipes()) == set(estimators())


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread anyway")
def test_one_and_two_threads_give_equal_bits() -> None:
    with threadpool_limits(1):
        one = json.loads(json.dumps(digests()))
    (two,) = in_processes(2)
    assert not [name for name in one if one[name] != two[name]]


@pytest.mark.slow
def test_a_cold_and_a_warm_cache_give_equal_bits_on_any_number_of_threads(tmp_path: Path) -> None:
    (cold,) = in_processes(2, cache=tmp_path)
    for warm in in_processes(1, 2, 4, cache=tmp_path):
        assert not [name for name in warm if warm[name] != cold[name]]


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_limits_that_overlap_in_threads_end_with_the_last() -> None:
    begun, done, within = threading.Event(), threading.Event(), []

    @one_blas_thread()
    def other() -> None:
        begun.set()
        done.wait(10.0)
        within.extend(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            thread = threading.Thread(target=other)
            thread.start()
            assert begun.wait(10.0)
        assert set(blas_threads()) == {1}, "the other thread is still inside"
        done.set()
        thread.join()
        assert blas_threads() == before
    assert set(within) == {1}


def test_a_failed_fit_lifts_the_limit() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with pytest.raises(ZeroDivisionError), one_blas_thread(), one_blas_thread():
            raise ZeroDivisionError
        assert blas_threads() == before


if __name__ == "__main__":
    print(json.dumps(digests()))
