"""What each agent holds of a matrix that is completed, and how a completion is measured there.

Beside `experiment`, for its data: also tutorials and tests draw them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.data import Ratings
from problems.subspace.cost import (
    KnownEntries,
    MatrixCompletion,
    columns_of,
    dealt,
    known_entries,
    predictions,
    shares_out,
)  # fmt: skip
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import numbers
from rmopt.core.streams import Stream, generator
from rmopt.solvers import World

# Of the paper's cases: known entries over degrees of freedom.
OVERSAMPLING = 6.0


@dataclass(frozen=True)
class Shares:
    """Matrix completion between agents, with what it takes to measure it.

    The tasks are the training entries, minus `mean`, of the agents in this process, and `test` the entries that the
    same agents hold out. Predictions are clipped to the limits.
    """

    tasks: MatrixCompletion
    test: dict[int, sp.csc_array]
    mean: float
    limits: tuple[float, float] | None
    world: World

    def train_mse(self, points: Any) -> float:
        """Return the mean squared error of each agent's subspace on its own training entries."""
        sums = [self.tasks.residual_sum(points[agent], agent) for agent in self.tasks.here]
        total, count = self.world.total(np.sum(sums, axis=0))
        return float(total / count)

    def test_rmse(self, points: Any) -> float:
        """Return the root mean squared error on all held-out entries; one basis, or one for each agent."""
        total, count = 0.0, 0
        for agent, part in self.test.items():
            U = points if isinstance(points, np.ndarray) else points[agent]
            found = predictions(U, self.tasks.weights(U, agent), part.indices, columns_of(part)) + self.mean
            gaps = self._clipped(found) - part.data
            total, count = total + float(gaps @ gaps), count + part.nnz
        total, count = self.world.total([total, count])
        return float(np.sqrt(total / count))

    def pairs(self, held_out: bool) -> tuple[Array, Array]:
        """Return numbers of row and column, shape (N, 2), of held-out or training entries here, and their values."""
        pairs, values, start = [], [], 0
        for agent in self.tasks.here:
            part, offset = (self.test[agent], 0.0) if held_out else (self.tasks.parts[agent], self.mean)
            pairs.append(np.column_stack([part.indices, columns_of(part) + start]))
            values.append(part.data + offset)
            start += part.shape[1]
        return np.concatenate(pairs).astype(np.int64), np.concatenate(values)

    def error(self, predict: Any, held_out: bool) -> float:
        """Return the mean squared error of a function of pairs on held-out or training entries."""
        pairs, values = self.pairs(held_out)
        found = numbers("predict(pairs)", predict(pairs), values.shape)
        return float(np.mean((self._clipped(found) - values) ** 2))

    def completed(self, basis: Array) -> Array:
        """Return the whole table that a basis predicts, where all agents are here."""
        W = np.concatenate([self.tasks.weights(basis, agent) for agent in self.tasks.here])
        return self._clipped(basis @ W.T + self.mean)

    def _clipped(self, found: Array) -> Array:
        return found if self.limits is None else np.clip(found, *self.limits)

    def fold(self, number: int, folds: int, seed: int) -> Shares:
        """Return the shares of which every agent holds out one of some folds of its training entries."""
        train, test = {}, {}
        for agent in self.tasks.here:
            part = self.tasks.parts[agent]
            out = generator(seed, Stream.FOLDS, agent).integers(folds, size=part.nnz) == number
            train[agent], test[agent] = _some(part, ~out, 0.0), _some(part, out, self.mean)
        if not self.world.total(sum(part.nnz for part in test.values())):
            raise InvalidInputError("a fold holds no entry; give fewer --folds, or no --select.")
        return replace(self, tasks=MatrixCompletion(train, self.tasks.n_terms, self.tasks.lam), test=test)


def shares_of(ratings: Ratings, test: Array, n_agents: int, lam: float, world: World) -> Shares:
    """Divide ratings among agents by columns; this process keeps those of its own agents."""
    whole, held = dealt(ratings.table(~test), n_agents), known_entries(ratings.table(test))
    columns = shares_out("columns", held.shape[1], n_agents)
    train = {agent: whole[agent] for agent in world.mine(n_agents)}
    total, count = world.total(np.sum([(part.data.sum(), part.nnz) for part in train.values()], axis=0))
    mean = float(total / count)
    for agent, part in train.items():
        train[agent] = KnownEntries((part.data - mean, part.indices, part.indptr), shape=part.shape)
    tasks = MatrixCompletion(train, n_agents, lam)
    return Shares(tasks, {agent: held[:, columns[agent]] for agent in train}, mean, ratings.limits, world)


def low_rank_shares(
    m: int,
    n: int,
    rank: int,
    n_agents: int,
    world: World,
    *,
    oversampling: float = OVERSAMPLING,
    condition: float = 1.0,
    noise: float = 1e-6,
    seed: int = 0,
) -> Shares:
    """Make a random matrix of low rank with few known entries (Mishra et al. 2019, section 6.2).

    The matrix is A diag(σ) Bᵀ with standard normal A (m × r) and B (n × r), with σ falling exponentially from 1 to
    1 / condition; A is orthogonalised where that is not 1. Every agent draws its own columns, as many known entries
    each, in its own process: `oversampling` times r (m + n − r) in all, with noise of a standard deviation.
    """
    A = generator(seed, Stream.FACTORS).standard_normal((m, rank))
    if condition != 1.0:
        A = np.linalg.qr(A)[0] * np.sqrt(m)
    A = A * np.geomspace(1.0, 1.0 / condition, rank)
    count = int(oversampling * rank * (m + n - rank) / n_agents)
    columns = shares_out("columns", n, n_agents)
    train, test = {}, {}
    for agent in world.mine(n_agents):
        rng, width = generator(seed, Stream.ENTRIES, agent), int(columns[agent].stop - columns[agent].start)
        if count > 0.8 * m * width:
            raise InvalidInputError(
                f"an oversampling of {oversampling:g} asks for {count:,} of the {m * width:,} entries of agent "
                f"{agent}; choose a larger matrix or a lower rank."
            )
        B = rng.standard_normal((width, rank))
        cells = np.unique(rng.integers(m * width, size=int(1.2 * count) + 100))
        while len(cells) < 1.1 * count:
            cells = np.unique(np.append(cells, rng.integers(m * width, size=count)))
        cells = rng.permutation(cells)
        train[agent] = _entries(A, B, cells[:count], noise, rng)
        test[agent] = _entries(A, B, cells[count:][: max(1, count // 10)], 0.0, rng)
    tasks = MatrixCompletion(train, n_agents, 0.0)
    return Shares(tasks, test, 0.0, None, world)


def _entries(A: Array, B: Array, cells: Array, noise: float, rng: np.random.Generator) -> sp.csc_array:
    columns, rows = np.divmod(cells, len(A))
    values = np.einsum("ij,ij->i", A[rows], B[columns]) + noise * rng.standard_normal(len(cells))
    return known_entries(sp.coo_array((values, (rows, columns)), shape=(len(A), len(B))))


def _some(table: sp.csc_array, chosen: Array, offset: float) -> sp.csc_array:
    where = (table.indices[chosen], columns_of(table)[chosen])
    return sp.csc_array(sp.coo_array((table.data[chosen] + offset, where), shape=table.shape))
