"""Matrix completion as scikit-learn estimators."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from problems.seeds import seed_from
from problems.subspace.completion import MatrixCompletion, columns_of, known_entries, predictions
from problems.subspace.training import GossipPlan, gossip
from rmopt.core import InvalidInputError, Problem
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

Array = np.ndarray

# Ratings that are added, all of the mean, before the effect of a row or of a column is averaged.
DAMPING = (5.0, 10.0)
BIAS_SWEEPS = 8
BIAS_ROUNDS = 3


class CompletionEstimator(BaseEstimator):
    """A matrix as mean + effects of row and column + u_i · w_j; a subclass finds the span of U in `learn`.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U, orthonormal.
    weights_ : array, shape (n, rank)
        W.
    mean_ : float
    row_effects_, column_effects_ : array
        Zero without `bias`.
    """

    rank: int
    lam: float
    bias: bool
    limits: tuple[float, float] | None
    random_state: Any
    components_: Array
    weights_: Array

    @abstractmethod
    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        """Return an orthonormal basis, shape (m, rank).

        Parameters
        ----------
        tasks : MatrixCompletion
        start : array, optional
            A basis that is near already.
        seed : int
        """

    @property
    def _n_agents(self) -> int:
        return 1

    def fit(self, ratings: Any, y: None = None) -> Self:
        """Complete a matrix.

        Parameters
        ----------
        ratings : sparse array, shape (m, n)
            The known entries; stored zeros are known.
        y : None
            Not used; for scikit-learn.

        Returns
        -------
        self
        """
        table, seed = known_entries(ratings), seed_from(self.random_state)
        if not isinstance(self.rank, (int, np.integer)) or not 1 <= self.rank < min(table.shape):
            raise InvalidInputError(
                f"rank = {self.rank!r} must be an integer from 1 to below the sides of the matrix, {table.shape}."
            )
        self.mean_ = float(table.data.mean())
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)
        rows, columns = table.indices, columns_of(table)
        low, basis = np.zeros(table.nnz), None
        # numpy's threads would stand in the way of the compiled passes'.
        with threadpool_limits(1, user_api="blas"):
            for _ in range(BIAS_ROUNDS if self.bias else 1):
                if self.bias:
                    self._fit_effects(table.data - self.mean_ - low, rows, columns)
                effects = self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
                left = sp.csc_array((table.data - effects, rows, table.indptr), shape=table.shape)
                tasks = MatrixCompletion(left, self._n_agents, self.lam)
                basis = self.learn(tasks, basis, seed)
                W = np.concatenate([tasks.weights(basis, agent) for agent in tasks.here])
                low = predictions(basis, W, rows, columns)
        assert basis is not None
        self.components_, self.weights_ = basis, W
        self.n_features_in_ = table.shape[1]
        return self

    def _fit_effects(self, values: Array, rows: Array, columns: Array) -> None:
        """Fit damped effects of rows and columns to what is left of the values, in turns."""
        b, c = self.row_effects_, self.column_effects_
        counts = [np.bincount(n, minlength=len(e)) for n, e in ((rows, b), (columns, c))]
        for _ in range(BIAS_SWEEPS):
            b = np.bincount(rows, values - c[columns], len(b)) / (counts[0] + DAMPING[0])
            c = np.bincount(columns, values - b[rows], len(c)) / (counts[1] + DAMPING[1])
        self.row_effects_, self.column_effects_ = b, c

    def predict(self, rows: Any, columns: Any) -> Array:
        """Return the entries at pairs of a row and a column, within `limits` where they are given.

        Parameters
        ----------
        rows, columns : int array, shape (N,)

        Raises
        ------
        InvalidInputError
            When the numbers are not integers, or outside of the matrix.
        """
        check_is_fitted(self, "components_")
        rows, columns = np.atleast_1d(rows), np.atleast_1d(columns)
        sizes = len(self.components_), len(self.weights_)
        for name, numbers, size in (("rows", rows, sizes[0]), ("columns", columns, sizes[1])):
            if (
                numbers.shape != rows.shape
                or numbers.ndim != 1
                or not np.issubdtype(numbers.dtype, np.integer)
            ):
                raise InvalidInputError(
                    f"rows and columns must be equally many integers, got {name} = {numbers!r}."
                )
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
                raise InvalidInputError(
                    f"{name} must lie between 0 and {size - 1}; fit saw a matrix of {sizes}."
                )
        found = predictions(self.components_, self.weights_, rows, columns)
        found += self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
        return found if self.limits is None else np.clip(found, *self.limits)

    def rmse(self, ratings: Any) -> float:
        """Return the root mean square error of the predictions of known entries."""
        check_is_fitted(self, "components_")
        table = known_entries(ratings)
        gaps = self.predict(table.indices, columns_of(table)) - table.data
        return float(np.sqrt(np.mean(gaps**2)))

    def score(self, ratings: Any, y: None = None) -> float:
        """Return minus the root mean square error: higher is better, as scikit-learn wants it."""
        return -self.rmse(ratings)


class GossipMatrixCompletion(CompletionEstimator):
    """Agents that each hold some columns complete them by a common subspace (Mishra et al. 2019).

    Parameters
    ----------
    rank : int
    n_agents : int
        Agents get consecutive columns, as many each as can be.
    rho : float or "auto"
        Weight ρ of the agreement; "auto": a tenth of the agents' mean curvature.
    lam : float
        λ: how much entries that are not known are drawn to 0.
    variant : {"stochastic", "parallel", "precon-stochastic", "precon-parallel"}
    graph : {"path", "ring", "grid", "star", "complete", "erdos-renyi"}, Graph or list of edges
        Who talks to whom.
    n_updates : float
        How often each edge is expected to be taken.
    step_size, decay : float
        Step sizes go from a to a / (1 + decay), in units of one over an agent's largest curvature.
    clock : {"shared", "own"}
        "own": each agent counts its own updates.
    retraction : {"exponential", "qr", "polar"}
    init : {"common", "independent"}
        Do agents start with the same random subspace.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    limits : (float, float), optional
        Predictions are clipped to them.
    checkpoint : path, optional
        Save the state there, and resume from it when the file exists. Not with `bias`.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_, weights_, mean_, row_effects_, column_effects_
        See `CompletionEstimator`; the basis is that of the Fréchet mean of the agents' subspaces.
    agents_ : Parts
        Each agent's basis.
    rho_ : float
        The weight that was used.
    disagreement_ : float
        The largest distance between the subspaces of neighbours.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> known = sp.csc_array(truth * (rng.random((40, 60)) < 0.6))
    >>> model = GossipMatrixCompletion(rank=2, n_agents=3, lam=0.0, random_state=0).fit(known)
    >>> bool(np.abs(model.predict([0, 5], [7, 9]) - truth[[0, 5], [7, 9]]).max() < 1e-3)
    True
    """

    def __init__(
        self,
        rank: int = 10,
        n_agents: int = 5,
        rho: float | str = "auto",
        *,
        lam: float = 0.01,
        variant: str = "stochastic",
        graph: Any = "path",
        n_updates: float = 200.0,
        step_size: float = 1.0,
        decay: float = 1.0,
        clock: str = "shared",
        retraction: str = "exponential",
        init: str = "common",
        bias: bool = False,
        limits: tuple[float, float] | None = None,
        checkpoint: Path | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.rank = rank
        self.n_agents = n_agents
        self.rho = rho
        self.lam = lam
        self.variant = variant
        self.graph = graph
        self.n_updates = n_updates
        self.step_size = step_size
        self.decay = decay
        self.clock = clock
        self.retraction = retraction
        self.init = init
        self.bias = bias
        self.limits = limits
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _n_agents(self) -> int:
        if not isinstance(self.n_agents, (int, np.integer)) or self.n_agents < 2:
            raise InvalidInputError(f"n_agents = {self.n_agents!r} must be an integer of at least 2.")
        return int(self.n_agents)

    def plan(self) -> GossipPlan:
        """Return how the agents gossip."""
        return GossipPlan(
            self.rho, self.variant, self.graph, self.step_size, self.decay, self.n_updates, self.clock,
            self.retraction, self.init,
        )  # fmt: skip

    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        """Return the basis of the mean of the agents' subspaces (see `CompletionEstimator.learn`)."""
        if self.checkpoint is not None and self.bias:
            raise InvalidInputError(
                "checkpoint holds one run, and bias makes several; give only one of them."
            )
        recorder = Recorder(progress=bool(self.verbose), description="gossip")
        found = gossip(
            tasks, self.rank, self.plan(), seed, start=start, recorder=recorder, checkpoint=self.checkpoint
        )
        self.agents_, self.rho_, self.disagreement_ = found.points, found.rho, found.disagreement
        return found.mean


class BatchCompletion(CompletionEstimator):
    """Matrix completion by one batch solver that sees all columns; the start is a truncated SVD.

    Parameters
    ----------
    rank : int
    lam : float
        λ: how much entries that are not known are drawn to 0.
    max_iterations : int
    tol : float
        Stop when the gradient is this short, relative to its length at the start.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    limits : (float, float), optional
        Predictions are clipped to them.
    random_state : int, RandomState or None
    """

    optimizer: str

    def __init__(
        self,
        rank: int = 10,
        *,
        lam: float = 0.01,
        max_iterations: int = 15,
        tol: float = 1e-6,
        bias: bool = False,
        limits: tuple[float, float] | None = None,
        random_state: Any = None,
    ) -> None:
        self.rank = rank
        self.lam = lam
        self.max_iterations = max_iterations
        self.tol = tol
        self.bias = bias
        self.limits = limits
        self.random_state = random_state

    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        """Return the basis (see `CompletionEstimator.learn`)."""
        U = leading_subspace(tasks, self.rank, seed) if start is None else start
        problem = Problem(Grassmann(tasks.n_rows, self.rank), tasks)
        length = problem.manifold.norm(U, problem.riemannian_gradient(U))
        solver = PymanoptSolver(
            self.optimizer, max_iterations=self.max_iterations, min_gradient_norm=self.tol * length
        )
        result = solver.run(problem, U)
        self.n_iter_ = result.steps
        return result.point


class RTRMC(BatchCompletion):
    """Riemannian trust regions, preconditioned (Boumal and Absil 2015), by pymanopt on `Grassmann`.

    Parameters and attributes are those of `BatchCompletion` and `CompletionEstimator`.
    """

    optimizer = "TrustRegions"


class RCGMC(BatchCompletion):
    """Riemannian conjugate gradients, preconditioned, by pymanopt on `Grassmann`.

    Parameters and attributes are those of `BatchCompletion` and `CompletionEstimator`.
    """

    optimizer = "ConjugateGradient"


def leading_subspace(tasks: MatrixCompletion, rank: int, seed: int) -> Array:
    """Return the leading left singular vectors of the known entries, where all others are 0."""
    from scipy.sparse.linalg import svds

    whole = tasks.whole
    start = np.random.default_rng([seed, 4]).standard_normal(min(whole.shape))
    return np.ascontiguousarray(svds(whole, rank, v0=start)[0])
