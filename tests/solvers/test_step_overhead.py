"""What a step of whole gradients costs beside the numerics: calls of Python within the library."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from tabled import each_row

from rmopt import Problem
from rmopt.core import Cost, LowRankPoint
from rmopt.manifolds import FixedRankEmbedded, Grassmann
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent

RNG = np.random.default_rng(0)
A = RNG.standard_normal((64, 64))
A = A + A.T
TARGET, SEEN = RNG.standard_normal((60, 50)), RNG.random((60, 50)) < 0.5


class Trace(Cost):
    """Minus the squared length of what a subspace captures."""

    def value(self, point: Any) -> float:
        return float(-np.vdot(point, A @ point))

    def gradient(self, point: Any) -> Any:
        return -2.0 * A @ point


class Missing(Cost):
    """The squared error of a matrix at the entries that are known."""

    def errors(self, W: LowRankPoint) -> Any:
        return np.where(SEEN, W.U @ W.S @ W.V.T - TARGET, 0.0)

    def value(self, point: Any) -> float:
        return 0.5 * float((self.errors(point) ** 2).sum())

    def gradient(self, point: Any) -> Any:
        return self.errors(point)


def calls(work: Callable[[], Any]) -> int:
    """Return how many functions of the library were called."""
    count = 0

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        # A clone may be a folder of that name, with an environment in it.
        count += event == "call" and frame.f_globals.get("__name__", "").startswith("rmopt.")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


SUBSPACES, MATRICES = Problem(Grassmann(64, 5), Trace()), Problem(FixedRankEmbedded(60, 50, 3), Missing())


@each_row(
    "solver, problem, most",
    [
        (GradientDescent, SUBSPACES, 45),
        (ConjugateGradient, SUBSPACES, 45),
        (LBFGS, SUBSPACES, 70),
        (LBFGS, MATRICES, 330),
    ],
)
def test_a_step_makes_few_calls(solver: Any, problem: Problem, most: int) -> None:
    solver(max_iter=2).run(problem, random_state=0)
    few, many = (calls(lambda n=n: solver(max_iter=n, tol=0).run(problem, random_state=0)) for n in (10, 30))
    assert (many - few) / 20 <= most
