"""Gradient descent whose step sizes follow the gradients seen so far, without a line search."""

from dataclasses import dataclass
from typing import Any

from rmopt.solvers import Converged, Solver


@dataclass(frozen=True)
class Seen:
    """Where a run stands: point, cost, gradient and its length, and the sum of the squared lengths."""

    point: Any
    cost: float
    gradient: Any
    norm: float
    total: float
    steps: int = 0
    updates: int = 0


class AdaGrad(Solver):
    """Steps of length η‖g‖ / √(‖g₀‖² + … + ‖g‖²) along the negative gradient g (Ward, Wu and Bottou 2020)."""

    def __init__(self, step_size: float, max_iter: int = 1000, tol: float = 1e-6) -> None:
        self.step_size, self.max_iter, self.tol = step_size, max_iter, tol

    def _look(self, problem: Any, point: Any, total: float, steps: int) -> Seen:
        cost, ambient = problem.cost.value_and_gradient(point)
        gradient = problem.manifold.euclidean_to_riemannian_gradient(point, ambient)
        norm = problem.manifold.norm(point, gradient)
        return Seen(point, cost, gradient, norm, total + norm**2, steps, steps)

    def begin(self, problem: Any, point: Any) -> Seen:
        return self._look(problem, point, 0.0, 0)

    def advance(self, problem: Any, state: Seen, steps: int) -> Seen:
        if steps == 0:
            return state
        manifold, eta = problem.manifold, self.step_size / state.total**0.5
        point = manifold.default_retraction(manifold, state.point, state.gradient, -eta)
        return self._look(problem, point, state.total, state.steps + 1)

    def observe(self, problem: Any, state: Seen) -> dict[str, float]:
        return {"cost": state.cost, "gradient_norm": state.norm}

    def finished(self, problem: Any, state: Seen) -> str | None:
        return Converged("a short gradient") if state.norm <= self.tol else None
