"""Manifold identification: steps on the manifold alternate with steps inside the present column and row space."""

from dataclasses import dataclass

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.low_rank import LowRankPoint
from rmopt.costs.bilinear import Bilinear
from rmopt.engines.base import Engine, checked, diverged
from rmopt.linalg import factor_product


@dataclass(frozen=True)
class IdentificationState:
    """The factors of W = A Bᵀ and two counters: rounds, and steps that moved something."""

    A: Array
    B: Array
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class IdentificationEngine(Engine):
    """Rounds of Shalit et al. (2012), Algorithm 6: a step on W = A Bᵀ, then steps on M in W = A M Bᵀ.

    Each row of a schedule holds the term of the outer step and those of the inner steps.

    Attributes
    ----------
    cost : Bilinear
    inner_ratio : float
        Step size of the inner steps over that of the outer step.
    inner : {"paper", "gauge"}
        "paper": M moves along (Aᵀp)(Bᵀq)ᵀ, so that the path depends on the factors of W. "gauge": along
        (A†p)(B†q)ᵀ, so that A M Bᵀ moves along the gradient of W projected on its column and row space,
        whatever the factors.
    """

    cost: Bilinear
    inner_ratio: float
    inner: str

    def load(self, point: LowRankPoint) -> IdentificationState:
        """Return a state with balanced factors of a point."""
        return IdentificationState(*point.balanced_factors())

    @np.errstate(all="ignore")
    def advance(self, state: IdentificationState, schedule: Array, etas: Array) -> IdentificationState:
        schedule = checked(schedule, etas, self.cost.term_ranges)
        A, B, steps, updates = vars(state).values()
        for terms, eta in zip(schedule, etas, strict=True):
            left, right, targets = self.cost.vectors(terms)
            # Algorithm 3 for the first term. What it makes of A and of B matters here, not only of A Bᵀ.
            p, q = dense(left[[0]])[0], dense(right[[0]])[0]
            slope = self._slope((p @ A) @ (q @ B), targets[0], steps, eta)
            if slope != 0.0:
                p = -eta * slope * p
                a, b = np.linalg.solve(A.T @ A, p @ A), np.linalg.solve(B.T @ B, q @ B)
                s = b @ a
                p_move = (A @ a) * (0.375 * s - 0.5) + p * (1.0 - 0.5 * s)
                q_move = (B @ b) * (0.375 * s - 0.5) + q * (1.0 - 0.5 * s)
                A, B, updates = A + np.outer(p_move, b), B + np.outer(q_move, a), updates + 1
            # M moves from the identity, and is shared between the factors by its singular values.
            M, moves, U, V = np.eye(A.shape[1]), 0, left @ A, right @ B
            along_U, along_V = U, V
            if self.inner == "gauge":
                along_U, along_V = (np.linalg.solve(F.T @ F, rows.T).T for F, rows in ((A, U), (B, V)))
            for i in range(1, len(targets)):
                slope = self._slope(U[i] @ M @ V[i], targets[i], steps, eta)
                if slope != 0.0:
                    M -= eta * self.inner_ratio * slope * np.outer(along_U[i], along_V[i])
                    moves += 1
            if moves:
                P, sigma, Qt = np.linalg.svd(M)
                A, B = A @ (P * np.sqrt(sigma)), B @ (Qt.T * np.sqrt(sigma))
            steps, updates = steps + 1, updates + moves
        return IdentificationState(A, B, steps, updates)

    def _slope(self, score: float, target: float, step: int, eta: float) -> float:
        if not np.isfinite(score):
            raise diverged(step, eta)
        return float(self.cost.loss.slope(float(score), float(target)))

    def dump(self, state: IdentificationState) -> LowRankPoint:
        return LowRankPoint(*factor_product(state.A, np.eye(state.A.shape[1]), state.B))
