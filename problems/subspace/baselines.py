"""Baselines of the gossip paper, in addition to the batch estimators, and popular alternatives."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from problems.subspace.als import BiasedALS, bm25
from problems.subspace.completer import CompletionModel, PointCompletion, checked_pairs
from problems.subspace.cost import KnownEntries, MatrixCompletion, TaskGroup, columns_of, predictions
from problems.subspace.estimators import N_AGENTS, CompletionEstimator, GossipMatrixCompletion
from problems.subspace.training import agree
from problems.validation import package
from rmopt.core import MissingCapabilityError, Parts, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, number
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.costs import GossipCost, Graph
from rmopt.linalg import gram_functions
from rmopt.manifolds import Grassmann, Product, frechet_mean
from rmopt.solvers import Solver

# ε of `alt_min`, relative to the mean squared singular value after the first iteration.
SMOOTHING = 1e-8
# Number of rows whose neighbours are found at a time.
CHUNK = 256


def alt_min(
    tasks: Sequence[tuple[Array, Array]], lam: float, *, tol: float = 1e-8, max_iter: int = 2000
) -> tuple[Array, list[float]]:
    """Minimise ½ Σ_t ‖X_t a_t − y_t‖² + λ ‖A‖₊² over all a_t, with ‖A‖₊ the slightly smoothed trace norm.

    The convex form of equation 13 of Mishra et al. 2019 (Argyriou, Evgeniou and Pontil 2008, Algorithm 1): ‖A‖₊² is
    the least Σ a_tᵀ D⁻¹ a_t over D ⪰ 0 of trace 1, and the minima over A and over D have closed forms. With ε > 0 in
    D = (A Aᵀ + ε I)^½ / tr, lost directions of A can slowly return: after 2,000 steps the cost may be a per cent or
    two above the minimum, and without ε more. ‖A‖₊ becomes Σ √(σ² + ε).

    Parameters
    ----------
    tasks : sequence of (array, array)
        Examples X_t, shape (d_t, m), and labels y_t.
    lam : float
        λ, positive.
    tol : float
        Stop when the objective changes by less than this, relative.
    max_iter : int

    Returns
    -------
    A : array, shape (m, n_tasks)
    history : list of float
        The objective after each iteration, which never increases.

    Raises
    ------
    InvalidInputError
        If λ or `max_iter` is not positive, or the tasks are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.subspace import alt_min
    >>> rng = np.random.default_rng(0)
    >>> truth = np.outer(rng.standard_normal(6), rng.standard_normal(5))
    >>> tasks = [(X, X @ a) for X, a in zip(rng.standard_normal((5, 10, 6)), truth.T)]
    >>> coef, history = alt_min(tasks, lam=1e-4)
    >>> bool(np.abs(coef - truth).max() < 1e-2), history[-1] < history[0]
    (True, True)
    """
    lam, max_iter = number("lam", lam, above=0), integer("max_iter", max_iter, 1)
    TaskGroup(tasks)
    grams = np.array([X.T @ X for X, _ in tasks])
    rights = np.array([X.T @ y for X, y in tasks])
    squares = sum(float(y @ y) for _, y in tasks)
    m = grams.shape[1]
    root, eps = np.eye(m) / np.sqrt(m), 0.0
    history: list[float] = []
    for _ in range(max_iter):
        # a = D^½ b with (D^½ XᵀX D^½ + 2λ I) b = D^½ Xᵀy: no inverse of D, which loses rank.
        b = np.linalg.solve(root @ grams @ root + 2.0 * lam * np.eye(m), (rights @ root)[..., None])[..., 0]
        A = root @ b.T
        spectrum, U = np.linalg.eigh(A @ A.T)
        eps = eps or SMOOTHING * float(np.mean(spectrum)) or np.finfo(float).tiny
        sigma = np.sqrt(np.maximum(spectrum, 0.0) + eps)
        root = (U * np.sqrt(sigma / sigma.sum())) @ U.T
        fit = 0.5 * (np.einsum("jt,tjk,kt->", A, grams, A) - 2.0 * np.sum(rights.T * A) + squares)
        history.append(float(fit + lam * sigma.sum() ** 2))
        if len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-1]):
            break
    return A, history


@dataclass(frozen=True)
class LMaFitState:
    """Each agent's estimate of the mean of all Z Yᵀ, its own Z Yᵀ at the last step, and its Y."""

    tracked: Array
    shares: Array
    factors: list[Array]
    steps: int = 0

    @property
    def updates(self) -> int:
        """The number of moves of agents, summed over the steps."""
        return self.steps * len(self.tracked)


class DLMaFit(Solver):
    """LMaFit with dynamic average consensus (Ling, Xu, Yin and Wen 2012; in one place: Wen, Yin and Zhang 2012).

    A baseline of Mishra et al. 2019 (case 4). Agent i holds its completed columns Z_i = X_i Y_i + P_Ω(M_i − X_i Y_i),
    never formed. At every step all agents at once set Y_i ← X_iᵀ Z_i and complete Z_i again; X_i ← an orthonormal
    basis of S_i, in which agent i tracks the mean of all Z_j Y_jᵀ: S_i ← Σ_j w_ij S_j + (Z_i Y_iᵀ − its value a step
    before), with Metropolis weights w. Bases are polar factors, so agents that agree have equal bases. The ρ of the
    cost is not used.

    Parameters
    ----------
    max_iter : int
        The budget. At every step each agent sends its factor to all its neighbours.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from rmopt import Problem
    >>> from rmopt.costs import GossipCost, Graph
    >>> from rmopt.manifolds import Grassmann, Product
    >>> from problems.subspace import DLMaFit, MatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> table = sp.csc_array(rng.random((20, 1)) @ rng.random((1, 60)))
    >>> tasks, manifold = MatrixCompletion(table, n_agents=3), Grassmann(20, 1)
    >>> cost = GossipCost(tasks, Graph.path(3), 0.0, manifold)
    >>> agents = (
    ...     DLMaFit(30).run(Problem(Product([manifold] * 3), cost), random_state=0).point
    ... )
    >>> max(tasks.value(U) for U in agents) < 1e-3
    True
    """

    def __init__(self, max_iter: int = 400) -> None:
        self.max_iter = integer("max_iter", max_iter)

    def check_every(self, problem: Problem) -> None:
        """Return None: only the budget ends a run."""

    def prepare(self, problem: Problem, seed: int) -> GossipCost:
        """Return the cost.

        Raises
        ------
        MissingCapabilityError
            If the problem is not matrix completion between agents with λ = 0.
        """
        cost = problem.cost
        if type(cost) is not GossipCost or type(cost.tasks) is not MatrixCompletion or cost.tasks.lam:
            raise MissingCapabilityError("DLMaFit needs a GossipCost of a MatrixCompletion with lam = 0.")
        return cost

    def begin(self, work: GossipCost, point: Parts) -> LMaFitState:
        zeros = [np.zeros((X.shape[1], part.shape[1])) for part, X in zip(_parts(work), point, strict=True)]
        shares, factors = _renewed_all(work, point, zeros)
        return LMaFitState(shares, shares, factors)

    def advance(self, work: GossipCost, state: LMaFitState, steps: int) -> LMaFitState:
        """Do some steps."""
        tracked, shares, factors = state.tracked, state.shares, state.factors
        for _ in range(steps):
            renewed, factors = _renewed_all(work, map(_basis, tracked), factors)
            tracked = np.einsum("ij,jab->iab", work.graph.averaging, tracked) + renewed - shares
            shares = renewed
        return LMaFitState(tracked, shares, factors, state.steps + steps)

    def point(self, work: GossipCost, state: LMaFitState) -> Parts:
        return Parts([_basis(S) for S in state.tracked])


def _parts(cost: GossipCost) -> list[Any]:
    """Return the agents' known entries, in their order."""
    tasks: Any = cost.tasks
    return [tasks.parts[agent] for agent in range(cost.graph.n)]


def _renewed_all(cost: GossipCost, bases: Iterable[Array], factors: list[Array]) -> tuple[Array, list[Array]]:
    """Return Z Yᵀ and Y of all agents after one step of each."""
    shares, renewed = zip(*map(_renewed, _parts(cost), bases, factors), strict=True)
    return np.array(shares), list(renewed)


def _renewed(part: Any, X: Array, Y: Array) -> tuple[Array, Array]:
    """Return Z Yᵀ and Y after one step of an agent from its basis and its last factor."""
    columns = columns_of(part)

    def gaps(factor: Array) -> Any:
        return part.with_values(part.data - predictions(X, factor.T, part.indices, columns))

    Y = Y + (gaps(Y).T @ X).T
    return X @ (Y @ Y.T) + gaps(Y) @ Y.T, Y


def _basis(S: Array) -> Array:
    (root,) = gram_functions(S, lambda squares: squares**-0.5)
    return S @ root


@dataclass(eq=False, repr=False)
class DLMaFitCompletion(CompletionEstimator):
    """A matrix that agents on a path complete by `DLMaFit`, at λ = 0, in 2 · `n_epochs` steps."""

    _: KW_ONLY
    n_agents: int = N_AGENTS
    n_epochs: float = 200.0

    def learn(self, tasks: MatrixCompletion, seed: int) -> Array:
        manifold, n = Grassmann(tasks.n_rows, self.rank), tasks.n_terms
        cost = GossipCost(MatrixCompletion(tasks.parts, n), Graph.path(n), 0.0, manifold)
        problem = Problem(power := Product([manifold] * n), cost)
        # An agent in the middle of a path moves twice as often as edges are used.
        solver, start = DLMaFit(round(2 * self.n_epochs)), generator(seed, Stream.START)
        self.agents_ = solver.run(problem, power.random_point(start), random_state=seed).point
        return frechet_mean(manifold, list(self.agents_), tol=1e-9)


@dataclass(eq=False, repr=False)
class TreeCompletion(CompletionEstimator):
    """A matrix that agents on a path complete by `agree`, with the result of all data together."""

    _: KW_ONLY
    n_agents: int = N_AGENTS

    def learn(self, tasks: MatrixCompletion, seed: int) -> Array:
        found = agree(tasks, self.rank, seed)
        self.agents_ = found.points
        return found.mean


class EuclideanGossip(GossipMatrixCompletion):
    """Gossip of neighbours that compare their matrices U instead of the spans (Mishra et al. 2019, equation 22)."""

    flat = True


@dataclass(eq=False, repr=False)
class Biases(BiasedALS):
    """Mean and effects of rows and columns alone: of rank 0, which no comparison changes."""

    rank: int = 0

    full_rank = True


@dataclass(eq=False, repr=False)
class MostPopular(PointCompletion):
    """Lists of the rows with most known entries, the same for all columns."""

    rank: Annotated[int, bounded(integer, 0)] = 0

    full_rank = True
    _rates: ClassVar = False

    def _learn(self, table: KnownEntries, seed: int) -> None:
        (m, n), self.mean_ = table.shape, 0.0
        self.components_, self.weights_ = np.zeros((m, 0)), np.zeros((n, 0))
        self.row_effects_ = np.bincount(table.indices, minlength=m).astype(float)
        self.column_effects_ = np.zeros(n)

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        return np.zeros((table.shape[1], 0)), np.zeros(table.shape[1])


@dataclass(eq=False, repr=False)
class ItemNeighbors(CompletionModel):
    """Lists of the rows similar to those known in a column, by inner products of BM25 weights.

    The neighbours of a row have the largest inner products with it. Its score in a column is the sum of their weights
    there, times these products.
    """

    rank: Annotated[int, bounded(integer, 0)] = 0
    _: KW_ONLY
    n_neighbors: Annotated[int, bounded(integer, 1)] = 100

    full_rank = True
    _rates: ClassVar = False
    _arrays: ClassVar = {
        **CompletionModel._arrays,
        "neighbors_": (int, ("m", "k")), "likeness_": (float, ("m", "k")), "known_weights_": (float, (None,)),
    }  # fmt: skip
    _numbers: ClassVar = {**CompletionModel._numbers, "mean_sum_": number}

    def _learn(self, table: KnownEntries, seed: int) -> None:
        m, sums = table.shape[0], table.sum(axis=0)
        self.mean_sum_ = float(sums[sums > 0.0].mean())
        self.known_weights_ = self._weights(table, np.bincount(table.indices, minlength=m), table.shape[1])
        by_rows = sp.csr_array(table.with_values(self.known_weights_))
        shape = m, min(self.n_neighbors, m - 1)
        self.neighbors_, self.likeness_ = np.empty(shape, int), np.empty(shape)
        for first in range(0, m, CHUNK):
            likeness = (by_rows[first : first + CHUNK] @ by_rows.T).toarray()
            here = np.arange(len(likeness))
            likeness[here, first + here] = -1.0
            nearest = np.argpartition(-likeness, shape[1] - 1, axis=1)[:, : shape[1]]
            self.neighbors_[first + here] = nearest
            self.likeness_[first + here] = np.take_along_axis(likeness, nearest, axis=1)

    def _weights(self, table: KnownEntries, supports: Array, n: int) -> Array:
        lengths = table.sum(axis=0) / self.mean_sum_
        return bm25(table.data, lengths[columns_of(table)], np.maximum(supports, 1)[table.indices], n)

    def _from(self, rows: Array, weights: Array) -> Array:
        """Return the scores in a column with weighted known rows."""
        given = np.zeros(len(self.neighbors_))
        given[rows] = weights
        return np.einsum("ij,ij->i", self.likeness_, given[self.neighbors_])

    def _scores(self, column: int) -> Array:
        span = slice(*self.known_.indptr[column : column + 2])
        return self._from(self.known_.indices[span], self.known_weights_[span])

    def _values(self, rows: Array, columns: Array) -> Array:
        found, (m, n) = np.zeros(len(rows)), self.known_.shape
        for column in np.unique(columns[columns < n]):
            here = (columns == column) & (rows < m)
            found[here] = self._scores(column)[rows[here]]
        return found

    def _factors(self) -> tuple[Array, Array]:
        m, n = self.known_.shape
        return np.zeros((m, 0)), np.zeros((n, 0))

    def _likeness(self, row: int) -> Array:
        return np.bincount(self.neighbors_[row], self.likeness_[row], len(self.neighbors_))

    def _in_new_column(self, table: KnownEntries) -> Array:
        return self._from(table.indices, self._weights(table, self._supports(), self.known_.shape[1]))


@dataclass(eq=False, repr=False)
class MyFM(BaseEstimator):
    """myfm: a Bayesian factorisation machine of row and column by Gibbs sampling, on one thread.

    An alternative to this package, installed by ``pip install "rmopt[bench]"``. Pairs with a number above those in
    `fit` get the mean.
    """

    rank: int = 10
    random_state: int = 0
    n_samples: int = 100
    burn_in: int = 10

    def fit(self, pairs: Any, values: Any) -> Self:
        """Fit the model to values at pairs, shape (N, 2)."""
        sides, values = checked_pairs(pairs), np.asarray(values, dtype=float)
        self.mean_, self.sizes_ = float(values.mean()), [int(side.max()) + 1 for side in sides]
        self.model_ = package("myfm", '"rmopt[bench]"', "leave it out").MyFMRegressor(
            rank=self.rank, random_seed=seed_of(self.random_state)
        )
        self.model_.fit(
            None, values, X_rel=self._blocks(sides), n_iter=self.burn_in + self.n_samples,
            n_kept_samples=self.n_samples, group_shapes=self.sizes_,
        )  # fmt: skip
        return self

    def predict(self, pairs: Any) -> Array:
        """Return predictions at pairs, shape (N,)."""
        sides = np.array(checked_pairs(pairs))
        known = np.all(np.less(sides.T, self.sizes_), axis=1)
        found = np.full(len(known), self.mean_)
        found[known] = self.model_.predict(None, X_rel=self._blocks(sides[:, known]))
        return found

    def _blocks(self, sides: Any) -> list[Any]:
        block = package("myfm", '"rmopt[bench]"', "leave it out").RelationBlock
        return [
            block(side, sp.csr_matrix(sp.eye_array(size)))
            for side, size in zip(sides, self.sizes_, strict=True)
        ]
