"""Solvers of sums of terms: passes over the data until the cost is 1e-8 of what it was above its minimum.

Each method has the best of some step sizes or schedules. A step with reduced variance looks at its terms twice. The
others have five times as many passes as SRG takes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from descent_parts import Variance

from rmopt import Problem
from rmopt.costs import LOSSES, BilinearSum
from rmopt.manifolds import FixedRankEmbedded, Grassmann
from rmopt.solvers import SGD, SRG, SVRG, Adam, Below, Cosine, InverseTime, Recorder, TrustRegions

Array = np.ndarray
BATCH, MOST = 10, 130


def components() -> Variance:
    X = np.random.default_rng(0).standard_normal((2000, 30)) * np.geomspace(1, 0.05, 30)
    return Variance(X / np.linalg.norm(X, axis=1).mean())


def regression() -> BilinearSum:
    rng = np.random.default_rng(2)
    rows, columns = (rng.standard_normal((2000, n)) / n**0.5 for n in (12, 10))
    truth = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 10))
    targets = np.einsum("ij,jk,ik->i", rows, truth, columns) + 0.1 * rng.standard_normal(2000)
    return BilinearSum(rows, columns, LOSSES["squared"], targets)


def completion() -> BilinearSum:
    rng = np.random.default_rng(4)
    rows, columns = np.nonzero(rng.random((60, 50)) < 0.5)
    truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    targets = truth[rows, columns] + 0.1 * rng.standard_normal(len(rows))
    return BilinearSum(np.eye(60)[rows], np.eye(50)[columns], LOSSES["squared"], targets)


SUMS: dict[str, Callable[[], tuple[Problem, float]]] = {
    "principal components": lambda: (Problem(Grassmann(30, 4), components()), 1.0),
    "regression on a matrix of rank 2": lambda: (Problem(FixedRankEmbedded(12, 10, 2), regression()), 3.0),
    "completion of a matrix of rank 2": lambda: (Problem(FixedRankEmbedded(60, 50, 2), completion()), 5.0),
}


def methods(unit: float, steps: int, most: int) -> dict[str, list[tuple[Any, float]]]:
    """Return solvers by their names, each with the terms that a step looks at, for at most so many passes."""
    sizes = [unit * share for share in (0.03, 0.1, 0.3)]
    falling = [InverseTime(a, b) for a in (sizes[-1], unit) for b in (1e-3, 1e-2)]
    falling += [Cosine(a, most * steps) for a in (sizes[-1], unit)]
    budget = {"max_iter": most * steps, "batch_size": BATCH}
    return {
        "SRG": [(SGD(eta, rule=SRG(), **budget), 3 * BATCH) for eta in sizes],
        "SVRG": [(SGD(eta, rule=SVRG(), **budget), 3 * BATCH) for eta in sizes],
        "Adam": [(SGD(Cosine(a, most * steps), rule=Adam(), **budget), BATCH) for a in (0.003, 0.01)],
        "SGD": [(SGD(rule, **budget), BATCH) for rule in falling],
    }


@pytest.mark.parametrize("name", SUMS)
def test_finite_sums(measured: Any, name: str) -> None:
    """Passes over the data to 1e-8, at most five times those of SRG; and what was reached."""
    rows = measured(compared, name)
    assert rows[0]["passes"] is not None


def compared(name: str) -> list[dict[str, Any]]:
    problem, unit = SUMS[name]()
    count = problem.cost.n_terms
    best = problem.value(TrustRegions(tol=1e-12).run(problem, random_state=0).point)
    start = problem.manifold.random_point(np.random.default_rng(5))
    above = problem.value(start) - best

    # Steps that are too long lead beyond the largest number.
    @np.errstate(all="ignore")
    def reached(solver: Any, width: float) -> tuple[float, float]:
        recorder = Recorder({"gap": lambda x: (problem.value(x) - best) / above}, at=range(0, 10**6, 20))
        try:
            result = solver.run(problem, start, random_state=0, recorder=recorder, stop=Below(1e-8, "gap"))
        except (ValueError, ArithmeticError):
            return np.inf, np.inf
        return (result.steps * width / count if result.converged else np.inf), result.history[-1]["gap"]

    rows, most = [], MOST
    for solver in methods(unit, count // BATCH, most):
        tried = methods(unit, count // BATCH, most)[solver]
        passes, gap = min(reached(*one) for one in tried)
        if solver == "SRG":
            most = int(np.ceil(5.0 * passes))
        rows.append(
            {"problem": name, "solver": solver, "passes": passes if np.isfinite(passes) else None}
            | {"at most": float(most), "reached": float(gap)}
        )
    return rows
