"""Common ground of the family's costs: data that belong to agents, some of them elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.core import AgentSum, InvalidInputError

Array = np.ndarray


class OwnedData(AgentSum):
    """A sum over agents, minimised over inner weights W; a subclass sets the attributes.

    Attributes
    ----------
    parts : dict
        The data of the agents in this process.
    lam : float
    n_rows : int
        Number of rows of a point, m.
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


def scaled_inverse(curvature: Array, tangent: Array) -> Array:
    """Return ξ C⁻¹ times the mean eigenvalue of C, so that lengths stay comparable, as trust regions need it."""
    scale = np.trace(curvature) / len(curvature)
    if scale == 0.0:
        return tangent
    return np.linalg.solve(curvature / scale + 1e-12 * np.eye(len(curvature)), tangent.T).T
