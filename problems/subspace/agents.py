"""Common ground of the family's costs: data that belong to agents, some of them elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rmopt.core import AgentSum, InvalidInputError

Array = np.ndarray
T = TypeVar("T")


class OwnedData(AgentSum):
    """A sum over agents, minimised over inner weights W; a subclass sets the attributes.

    `parts` are the data of the agents in this process, and `n_rows` is the number of rows of a point.
    """

    point_type = np.ndarray

    parts: dict[int, Any]
    lam: float
    n_rows: int
    _n_agents: int

    @property
    def n_terms(self) -> int:
        return self._n_agents

    @property
    def here(self) -> list[int]:
        return sorted(self.parts)

    def _checked(self, point: Any) -> Array:
        """Return a point as a C-contiguous array, or refuse one with other rows than the data."""
        U = np.ascontiguousarray(point, dtype=float)
        if U.ndim != 2 or len(U) != self.n_rows:
            raise InvalidInputError(
                f"a point needs {self.n_rows} rows, one per row of the data, got {U.shape}."
            )
        return U

    def _part(self, agent: int) -> Any:
        if agent not in self.parts:
            raise InvalidInputError(
                f"the data of agent {agent} are not in this process; here are {self.here}."
            )
        return self.parts[agent]


class Memo:
    """Results at the two latest points, of which optimizers ask for value, gradient and Hessian one after the other.

    A copy of each point is kept, so that results are right after a change in place too.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Array, Any]] = []

    def get(self, point: Array, compute: Callable[[Array], T]) -> T:
        """Return the result at a point, computed unless it is remembered."""
        for known, result in self._known:
            if np.array_equal(known, point):
                return result
        kept = np.array(point)
        result = compute(kept)
        self._known = [(kept, result), *self._known[:1]]
        return result

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": []}


def cuts_of(what: str, count: int, n_agents: int) -> Array:
    """Return where the consecutive shares of agents begin and the last one ends, as many each as can be."""
    if not 1 <= n_agents <= count:
        raise InvalidInputError(
            f"n_agents = {n_agents} must lie between 1 and the number of {what}, {count}."
        )
    return np.arange(n_agents + 1) * count // n_agents


def scaled_inverse(curvature: Array, tangent: Array) -> Array:
    """Return ξ C⁻¹ times the mean eigenvalue of C, so that lengths stay comparable, as trust regions need it."""
    scale = np.trace(curvature) / len(curvature)
    if scale == 0.0:
        return tangent
    return np.linalg.solve(curvature / scale + 1e-12 * np.eye(len(curvature)), tangent.T).T
