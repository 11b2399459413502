"""Riemannian stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmopt.core.ambient import Array
from rmopt.core.errors import InvalidInputError
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.engines.choose import ENGINES, choose_engine
from rmopt.solvers.base import Solver
from rmopt.solvers.samplers import Sampler, as_sampler
from rmopt.solvers.step_sizes import StepSize, as_step_size


class SGD(Solver):
    """Gradient of a few terms, projection onto the tangent space, retraction; again and again.

    On `FixedRankEmbedded` with `SecondOrder` and a bilinear cost this is LORETA
    (Shalit et al. 2012, Algorithms 1–4).

    Parameters
    ----------
    step_size : float, StepSize or callable
        A number is a constant step size; a function maps an int array of step numbers to step sizes.
    n_steps : int
        The budget.
    batch_size : int
        Terms per step.
    sampler : Sampler or callable, optional
        Which terms each step looks at; uniform with replacement unless given.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine where there is one.
    """

    def __init__(
        self,
        step_size: float | StepSize | Callable[[Array], Array],
        *,
        n_steps: int = 10_000,
        batch_size: int = 1,
        sampler: Sampler | Callable[..., Any] | None = None,
        retraction: Retraction | None = None,
        engine: str = "auto",
    ) -> None:
        if not isinstance(n_steps, int) or n_steps < 0:
            raise InvalidInputError(f"n_steps = {n_steps!r} must be an integer of at least 0.")
        if engine not in ENGINES:
            raise InvalidInputError(f"engine = {engine!r} is unknown; choose one of {', '.join(ENGINES)}.")
        self.step_size, self.n_steps, self.batch_size = as_step_size(step_size), n_steps, batch_size
        self.sampler, self.retraction, self.engine_name = sampler, retraction, engine

    def engine(self, problem: Problem) -> Engine:
        """Return the engine that does the steps."""
        batch_size = self.sampler_for(problem).batch_size
        return choose_engine(problem, self.retraction, self.engine_name, batch_size)

    def sampler_for(self, problem: Problem) -> Sampler:
        """Return the sampler of the schedule."""
        return as_sampler(self.sampler, problem.cost, self.batch_size)

    def step_size_rule(self) -> StepSize:
        """Return the rule of the step sizes."""
        return self.step_size
