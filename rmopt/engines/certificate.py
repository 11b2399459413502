"""How far from the global minimum a point of the cone can be at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmopt.core.ambient import Array
from rmopt.costs.convex import ConvexCost
from rmopt.engines.spectrum import leading_eigenpairs


@dataclass(frozen=True)
class Certificate:
    """A bound on f(W) − f(W*), from the dual certificate S = ∇f(W).

    For convex f, f(W) − f(W*) ≤ ⟨S, W⟩ − ⟨S, W*⟩ ≤ ⟨S, W⟩ + λ tr W* with λ = max(0, −λ_min(S)); and
    tr W* ≤ (f(W) − b)/β where f ≥ b + β tr everywhere. At a global minimum both terms vanish (Mirzazadeh et al. 2015,
    equation 10).

    Attributes
    ----------
    objective : float
        f(W).
    eigenvalue : float
        λ: an upper bound on the largest eigenvalue of −S, at least 0.
    complementarity : float
        ⟨S, W⟩, which vanishes where Y is stationary.
    trace_bound : float
        An upper bound on tr W*.
    """

    objective: float
    eigenvalue: float
    complementarity: float
    trace_bound: float

    @property
    def gap(self) -> float:
        """The bound on f(W) − f(W*)."""
        return max(0.0, self.complementarity + self.eigenvalue * self.trace_bound)

    @property
    def relative_gap(self) -> float:
        """The gap over the size of f(W)."""
        return self.gap / abs(self.objective) if self.gap > 0.0 else 0.0

    def is_global(self, tol: float) -> bool:
        """Return whether the gap is at most `tol` times the size of f(W)."""
        return self.relative_gap <= tol


def certify(
    cost: ConvexCost, Y: Array, n_candidates: int = 1, tol: float = 1e-8
) -> tuple[Certificate, Array, Array]:
    """Return the certificate at YYᵀ, and the directions that lead down from there.

    Parameters
    ----------
    cost : ConvexCost
        With a positive `trace_weight`.
    Y : array, shape (p, d)
    n_candidates : int
        How many directions to look for.
    tol : float
        How exactly eigenvalues are to be known, relative to `trace_weight`; more where this is below rounding.

    Returns
    -------
    certificate : Certificate
    values : array, shape (j,)
        The positive eigenvalues among the `n_candidates` largest of −∇f, descending.
    vectors : array, shape (p, j)
        Their eigenvectors.
    """
    local = cost.at(Y)
    values, vectors, bound = leading_eigenpairs(
        lambda V: -local.apply(V), np.linalg.qr(Y)[0], n_candidates, cost.trace_weight, tol
    )
    found = Certificate(
        objective=local.value,
        eigenvalue=max(0.0, float(bound)),
        complementarity=0.5 * float(np.vdot(local.factor_gradient(), Y)),
        trace_bound=max(0.0, local.value - cost.lower_bound) / cost.trace_weight,
    )
    positive = values > 0.0
    return found, values[positive], vectors[:, positive]
