"""Label ranking of ImageNet's shape, generated, by CPU time: figure 5 of the LORETA paper, and a pass over all rows.

Run with ``pytest -o addopts= -s tests/benchmarks/test_ranking_curves.py``, half an hour. One thread; methods learn in
turns, some rows at a time. Step sizes are chosen by rank, on rows of another model.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit
from scipy.linalg import solve
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits

from problems.comparison import Difference, crossed, mean_and_sem, searched
from problems.data.generated import SETS
from problems.methods import Method
from problems.online import OnlineSolver, factors_of, point_of_factors
from problems.ranking import LoretaLabelRanker, WarpRanking, mean_average_precision
from problems.ranking.experiment import METHODS, LabelLearner
from problems.ranking.kernels import warp_violation
from rmopt.engines.bilinear import rows_of
from rmopt.experiments import Run
from rmopt.kernels.vectors import gather, scatter

# Rows that are learned at a time, and rows that measure; seconds of training after which parameters are chosen.
PART, TEST, CHOOSING = 500, 2_000, 1.5
# The mean of ‖x‖²: features have a variance of 1 more than the sum of 1 / i to the rank.
SQUARE = 5_500.0
# Seconds of training after which the test rows are ranked: as many with all seeds, all with one; and ranks with all.
MARKS, SHORT, LONG = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 4, (50, 100)
MADE: Any = replace(SETS["generated-imagenet"], rows=908_210, test=0)


@njit(nogil=True)
def descend(A: Any, B: Any, X: Any, Y: Any, terms: Any, etas: Any, harmonic: Any) -> int:
    """Do WARP's gradient steps on both factors; return the number of the first bad step, or −1."""
    u, v, labels, weights = np.empty(A.shape[1]), np.empty(A.shape[1]), np.empty(2, np.int32), np.empty(2)
    for t in range(len(etas)):
        start, stop = X.indptr[terms[t, 0]], X.indptr[terms[t, 0] + 1]
        own = Y.indices[Y.indptr[terms[t, 0]] : Y.indptr[terms[t, 0] + 1]]
        gather(B, X.indices, X.values, start, stop, v)
        found = warp_violation(A, v, own, terms[t, 1], harmonic, labels, weights)
        if found < 0:
            return t
        gather(A, labels, weights, 0, found, u)
        scatter(A, labels, weights, 0, found, -etas[t] * v)
        scatter(B, X.indices, X.values, start, stop, -etas[t] * u)
    return -1


class NaiveDescent(OnlineSolver):
    """Descent on the factors of W = A Bᵀ by WARP's violations (Weston et al. 2011, norms without bounds)."""

    cost_type = WarpRanking

    def parts(self, cost: Any) -> Any:
        data = *rows_of(cost.X, cost.Y), np.append(0.0, np.cumsum(1.0 / np.arange(1.0, cost.shape[0] + 1)))

        def loop(arrays: Any, moves: Any, terms: Any, etas: Any) -> int:
            return int(descend(arrays["A"], arrays["B"], *data[:2], terms.reshape(-1, 2), etas, data[2]))

        return factors_of, point_of_factors, loop


class Online:
    """A learner of the experiment whose rows come in parts: between them it stays where its engine stands."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.state = learner, None

    def partial_fit(self, X: Any, Y: Any) -> None:
        solver, problem, start = self.learner.parts(X, Y)
        self.engine = solver.engine(problem)
        if self.state is None:
            # Later starts are of no use, and take no time.
            self.state, self.learner.init = self.engine.load(start), "identity"
        terms = solver.sampler.draw(np.random.default_rng(self.state.steps), 0, X.shape[0])
        self.state = self.engine.advance(self.state, terms, np.full(X.shape[0], self.learner.step_size))

    def decision_function(self, X: Any) -> Any:
        return self.learner.decision_function(X, self.engine.dump(self.state))


class Ridge(BaseEstimator):
    """Least squares of the indicators, penalty 1 / `step_size`; the seconds are those of sums over rows."""

    def __init__(self, step_size: float = 1.0) -> None:
        self.step_size, self.sums = step_size, 0.0

    def partial_fit(self, X: Any, Y: Any) -> None:
        X = X.toarray()
        self.sums = self.sums + np.hstack([X.T @ X, (Y.T @ X).T])

    def decision_function(self, X: Any) -> Any:
        n = X.shape[1]
        return X @ solve(self.sums[:, :n] + np.eye(n) / self.step_size, self.sums[:, n:], assume_a="pos")


NAIVE = Method("naive descent, WARP", LabelLearner(NaiveDescent, sampling="warp"))
OURS, *OTHERS = METHODS["loreta-warp"], METHODS["loreta"], NAIVE, METHODS["pa"]
GRID = crossed(step_size=(0.03, 0.1, 0.3))
# The better one for each method at rank 100, of two that take no time.
STARTS = {"passive-aggressive": "gaussian"}
WHOLE = METHODS["matrix-perceptron"], METHODS["group-perceptron"], Method("ridge", Ridge())


def parts(made: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of a set, some at a time, with a mean of ‖x‖² of 1."""
    for block in made.blocks():
        n, features = block["X"].shape
        # Each feature of each row, in the form that loops read.
        places = np.tile(np.arange(features, dtype=np.int32), n), np.arange(n + 1) * features
        X, Y = sp.csr_array((block["X"].ravel() / SQUARE**0.5, *places), shape=(n, features)), block["Y"]
        for first in range(0, n, PART):
            yield X[first : first + PART], Y[first : first + PART]


def ranked(model: Any, block: Any) -> float:
    """Return the mean average precision of a model on some rows of a block."""
    scores = model.decision_function(block["X"][:TEST] / SQUARE**0.5)
    return mean_average_precision(scores, block["Y"][:TEST])


def raced(models: dict[str, Any], rows: Iterable[Any], marks: Any, block: Any) -> dict[str, list[float]]:
    """Let models learn in turns; return the mean average precision of each when it has used so many seconds."""
    used, found = dict.fromkeys(models, 0.0), {name: [] for name in models}
    for part in rows:
        going = [name for name in models if len(found[name]) < len(marks)]
        for name in going:
            begun = time.process_time()
            models[name].partial_fit(*part)
            used[name] += time.process_time() - begun
            if used[name] >= marks[len(found[name])]:
                passed = sum(mark <= used[name] for mark in marks)
                found[name] += [ranked(models[name], block)] * (passed - len(found[name]))
        if not going:
            break
    return found


def test_one_pass(measured: Any) -> None:
    """LORETA-1, WARP, rank 100, one pass over 908,210 generated rows of ImageNet's shape, one thread."""
    with threadpool_limits(1):
        measured(one_pass)


def one_pass() -> list[dict[str, Any]]:
    model, used = LoretaLabelRanker(100, step_size=0.1, random_state=0), 0.0
    for part in parts(MADE):
        begun = time.process_time()
        model.partial_fit(*part)
        used += time.process_time() - begun
    row = {"rows": model.n_iter_, "one core, s": used, "peak, GB": getrusage(RUSAGE_SELF).ru_maxrss / 1e6}
    return [row | {"mAP": ranked(model, MADE.block(200)), "own mAP": MADE.ceiling()}]


@pytest.mark.parametrize("rank", [50, 100, 200, 400, 0])
def test_by_time(measured: Any, rank: int, tmp_path: Path) -> None:
    """mAP after so many seconds on generated rows of ImageNet's shape; five seeds up to the seconds of the ±."""
    with threadpool_limits(1):
        measured(by_time, rank, tmp_path)


def by_time(rank: int, folder: Path) -> list[dict[str, Any]]:
    kinds = {kind.label: kind for kind in (OURS, *(OTHERS if rank else WHOLE))}
    few, held_out = list(islice(parts(replace(MADE, seed=100)), 50)), replace(MADE, seed=100).block(200)

    def model(name: str, point: Any) -> Any:
        made = kinds[name].made(point, rank=rank or 100, n_epochs=1, init=STARTS.get(name, "identity"))
        return Online(made) if isinstance(made, LabelLearner) else made

    def score(name: str, point: Any, rows: Any) -> float:
        return raced({"": model(name, point)}, cycle(rows), (CHOOSING,), held_out)[""][0]

    steps, found, common = {}, [], len(MARKS) if rank in LONG else SHORT
    for name in kinds:
        # What is compiled is compiled before.
        model(name, {}).partial_fit(*few[0])
        steps[name] = searched(Run("", 0, folder), name, GRID, partial(score, name), [few])
    for seed in range(5):
        made, marks = replace(MADE, seed=seed), MARKS[: None if seed == 0 else common]
        models = {name: model(name, point) for name, point in steps.items()}
        found.append(raced(models, parts(made), marks, made.block(200)))
        print(steps, found[-1], flush=True)
    table = []
    for kind in (OURS, *OTHERS) if rank else WHOLE:
        means, sems = mean_and_sem(one[name := kind.label][:common] for one in found)
        ours, theirs = ([{"map": one[of][common - 1]} for one in found] for of in (OURS.label, name))
        row = {"method": name, "rank": None if kind in WHOLE else rank or 100, **steps[name]}
        values = zip(MARKS, [*means, *found[0][name][common:]], strict=True)
        row |= {f"{mark:g} s": value for mark, value in values}
        gap = None if kind is OURS else str(Difference.of(ours, theirs, "map"))
        table.append(row | {f"± at {MARKS[common - 1]:g} s": sems[-1], f"{OURS.label} is": gap})
    return table
