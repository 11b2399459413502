"""Agents who hold the columns of a matrix of low rank, each drawing its own (Mishra et al. 2019, section 6.2)."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.subspace import MatrixCompletion
from rmopt.solvers import World


def low_rank_tasks(
    m: int, n: int, rank: int, n_agents: int, world: World | None = None, condition: float = 1.0,
    noise: float = 1e-6, seed: int = 0,
) -> MatrixCompletion:  # fmt: skip
    """Return A diag(σ) Bᵀ, with σ from 1 to 1 / condition, of which 6 r (m + n − r) entries are known."""
    A = np.random.default_rng([seed, 5]).standard_normal((m, rank))
    if condition != 1.0:
        A = np.linalg.qr(A)[0] * np.sqrt(m)
    A, width = A * np.geomspace(1.0, 1.0 / condition, rank), n // n_agents
    parts = {}
    for agent in (world or World()).mine(n_agents):
        rng = np.random.default_rng([seed, 6, agent])
        B = rng.standard_normal((width, rank))
        cells = rng.permutation(m * width)[: 6 * rank * (m + n - rank) // n_agents]
        columns, rows = np.divmod(cells, m)
        values = np.einsum("ij,ij->i", A[rows], B[columns]) + noise * rng.standard_normal(len(cells))
        parts[agent] = sp.csc_array((values, (rows, columns)), shape=(m, width))
    return MatrixCompletion(parts, n_agents)


def train_mse(tasks: MatrixCompletion, points: Any) -> float:
    """Return the mean squared error of each agent's subspace on its own entries."""
    sums = [tasks.residual_sum(points[agent], agent) for agent in tasks.here]
    return sum(square for square, _ in sums) / sum(count for _, count in sums)
