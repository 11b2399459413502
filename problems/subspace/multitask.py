"""Features that several regressions share, as a search for their span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from problems.subspace.agents import Memo, OwnedData, cuts_of, scaled_inverse
from rmopt.core import InvalidInputError
from rmopt.core.arguments import array, integer, number, sequence

Array = np.ndarray
Task = tuple[Array, Array]


class MultitaskFeatures(OwnedData):
    """Σ_t min over w_t of ½ ‖X_t U w_t − y_t‖² + λ ‖w_t‖², a function of the span of U (m × r).

    Mishra et al. 2019, equation 14; the paper's equations 15 and 16 leave λ ‖w_t‖² out of the outer cost, but its
    gradient Σ X_tᵀ(X_t U w_t − y_t) w_tᵀ is that of equation 14. The inner solution is
    (UᵀX_tᵀX_t U + 2λ I) w_t = UᵀX_tᵀ y_t.

    Parameters
    ----------
    tasks : sequence of (array, array)
        Examples X_t, shape (d_t, m), and labels y_t, shape (d_t,). Or, where the data of other agents are elsewhere,
        a mapping from agents to such sequences.
    n_agents : int
        Agents get consecutive tasks, as many each as can be.
    lam : float
        λ, not negative.

    Raises
    ------
    InvalidInputError
        For tasks without examples, of different widths, or with numbers that are not finite; for fewer tasks than
        agents. From `value` and `gradient`: when a task has no unique solution.
    """

    def __init__(
        self, tasks: Sequence[Task] | Mapping[int, Sequence[Task]], n_agents: int = 1, lam: float = 0.0
    ) -> None:
        self.lam, self._n_agents = number("lam", lam, least=0, most=1e150), integer("n_agents", n_agents, 1)
        parts = tasks if isinstance(tasks, Mapping) else dealt_tasks(sequence("tasks", tasks), n_agents)
        self.parts = {agent: TaskGroup(part, f"agent {agent}, ") for agent, part in parts.items()}
        widths = {part.X.shape[1] for part in self.parts.values()}
        if len(widths) != 1:
            raise InvalidInputError(f"the tasks have {sorted(widths)} features; all need the same number.")
        self.n_rows = widths.pop()
        self._solved = {agent: Memo() for agent in self.parts}

    def agent_value(self, point: Array, agent: int) -> float:
        return self._solve(point, agent).total

    def agent_gradient(self, point: Array, agent: int) -> tuple[Array, Array]:
        """Return the Euclidean gradient of an agent's part (m × r), and WᵀW."""
        solved, group = self._solve(point, agent), self.parts[agent]
        return group.X.T @ (solved.gaps[:, None] * solved.W[group.task]), solved.W.T @ solved.W

    def weights(self, point: Array, agent: int) -> Array:
        """Return the inner solutions w_t of an agent's tasks, shape (n_tasks, r)."""
        return self._solve(point, agent).W.copy()

    def hessian(self, point: Array, direction: Array) -> Array:
        """Return the derivative of the Euclidean gradient along a direction, shape (m, r)."""
        return sum(self._turned(point, np.asarray(direction), agent) for agent in self.here)  # type: ignore[return-value]

    def precondition(self, point: Array, tangent: Array) -> Array:
        """Return ξ (WᵀW)⁻¹ times the mean eigenvalue of WᵀW."""
        curvature = sum(W.T @ W for W in (self.weights(point, agent) for agent in self.here))
        return scaled_inverse(curvature, tangent)

    def _solve(self, point: Array, agent: int) -> Solution:
        group = self._part(agent)
        return self._solved[agent].get(point, lambda U: Solution(group, self._checked(U), self.lam, agent))

    def _turned(self, point: Array, E: Array, agent: int) -> Array:
        """Return an agent's part of the Hessian along E."""
        group, solved = self.parts[agent], self._solve(point, agent)
        W, V, moved = solved.W[group.task], solved.V, group.X @ E
        along = np.einsum("ij,ij->i", moved, W)
        rates = np.linalg.solve(
            solved.systems, -group.sums(moved * solved.gaps[:, None] + V * along[:, None])[..., None]
        )[..., 0][group.task]
        gap_rates = along + np.einsum("ij,ij->i", V, rates)
        return group.X.T @ (gap_rates[:, None] * W + solved.gaps[:, None] * rates)


class TaskGroup:
    """The tasks of one agent, stacked: X (D × m), y, the task of each row, and the first row of each task."""

    def __init__(self, tasks: Sequence[Task], where: str) -> None:
        tasks = [tuple(sequence(f"{where}a task", task)) for task in sequence("tasks", tasks)]
        if any(len(task) != 2 for task in tasks):
            raise InvalidInputError(f"{where}tasks must be pairs of examples X and labels y.")
        if not tasks:
            raise InvalidInputError(f"{where}there are no tasks; choose fewer agents.")
        for place, (X, y) in enumerate(tasks):
            if np.ndim(X) != 2 or np.ndim(y) != 1 or len(X) != len(y) or len(y) == 0:
                raise InvalidInputError(
                    f"{where}task {place}: examples of shape {np.shape(X)} and labels of shape {np.shape(y)} do not "
                    "belong together; each task needs one row and one label per example, and at least one."
                )
            if np.shape(X)[1] != np.shape(tasks[0][0])[1]:
                raise InvalidInputError(
                    f"{where}task {place} has {np.shape(X)[1]} features, task 0 {np.shape(tasks[0][0])[1]}."
                )
        X, y = (
            np.concatenate([array("tasks", part) for part in parts]) for parts in zip(*tasks, strict=True)
        )
        if not all(part.dtype.kind in "iufb" and np.isfinite(part).all() for part in (X, y)):
            raise InvalidInputError(
                f"{where}the examples or labels hold NaN, infinity or text; clean them first."
            )
        self.X, self.y = X.astype(float), y.astype(float)
        sizes = np.array([len(y) for _, y in tasks])
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.task = np.repeat(np.arange(len(sizes)), sizes)

    def sums(self, rows: Array) -> Array:
        """Return the sums of the rows of each task."""
        return np.add.reduceat(rows, self.starts, axis=0)


class Solution:
    """The inner solutions W of one agent at a point (n_tasks × r), V = X U, the gaps X_t U w_t − y_t and the cost."""

    def __init__(self, group: TaskGroup, U: Array, lam: float, agent: int) -> None:
        self.V = group.X @ U
        r = U.shape[1]
        self.systems = group.sums(self.V[:, :, None] * self.V[:, None, :]) + 2.0 * lam * np.eye(r)
        singular = np.linalg.cond(self.systems) > 1e14
        if singular.any():
            number = int(np.argmax(singular))
            raise InvalidInputError(
                f"agent {agent}, task {number} with {int(np.sum(group.task == number))} examples has no unique "
                f"solution at rank {r} and lam = {lam:g}; choose lam > 0 or a smaller rank."
            )
        right = group.sums(self.V * group.y[:, None])
        self.W = np.linalg.solve(self.systems, right[..., None])[..., 0]
        self.gaps = np.einsum("ij,ij->i", self.V, self.W[group.task]) - group.y
        self.total = float(0.5 * self.gaps @ self.gaps + lam * np.sum(self.W**2))


def dealt_tasks(tasks: Sequence[Task], n_agents: int) -> dict[int, Sequence[Task]]:
    """Return consecutive tasks for each agent, as many each as can be."""
    ends = pairwise(cuts_of("tasks", len(tasks), n_agents))
    return {agent: tasks[first:last] for agent, (first, last) in enumerate(ends)}
