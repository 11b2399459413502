"""Matrix completion as scikit-learn estimators: by gossip, and by batch solvers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from problems.door import file_path
from problems.subspace.completion import MatrixCompletion
from problems.subspace.completion_estimator import CompletionEstimator
from problems.subspace.training import PLAN, GossipPlan, gossip
from rmopt.core import InvalidInputError, Problem
from rmopt.core.arguments import Check, bounded, flag, integer, number
from rmopt.core.streams import Stream, generator
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

Array = np.ndarray


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
    >>> # Of rank 3 once the mean is subtracted.
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> known = sp.csc_array(truth * (rng.random((40, 60)) < 0.6))
    >>> model = GossipMatrixCompletion(rank=3, n_agents=3, lam=0.0, random_state=0).fit(known)
    >>> bool(np.abs(model.predict([0, 5], [7, 9]) - truth[[0, 5], [7, 9]]).max() < 0.05)
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

    _parameters: ClassVar[dict[str, Check]] = {
        **CompletionEstimator._parameters,
        **PLAN,
        "n_agents": bounded(integer, 2),
        "checkpoint": file_path,
        "verbose": flag,
    }

    @property
    def _n_agents(self) -> int:
        return self.n_agents

    def plan(self) -> GossipPlan:
        """Return how the agents gossip."""
        return GossipPlan(
            self.rho, self.variant, self.graph, self.step_size, self.decay, self.n_updates, self.clock,
            self.retraction, self.init,
        )  # fmt: skip

    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        if self.checkpoint is not None and self.bias:
            raise InvalidInputError(
                "checkpoint holds one run, and bias makes several; give only one of them."
            )
        recorder, plan = Recorder(progress=self.verbose, description="gossip"), self.plan()
        if plan.rho != "auto":
            plan = replace(plan, rho=float(plan.rho) / self._unit / self._unit)
        found = gossip(
            tasks, self.rank, plan, seed, start=start, recorder=recorder, checkpoint=self.checkpoint
        )
        self.agents_, self.disagreement_ = found.points, found.disagreement
        # In the units of the ratings, as far as there are numbers.
        self.rho_ = min(found.rho * self._unit * self._unit, np.finfo(float).max)
        return found.mean


class BatchCompletion(CompletionEstimator):
    """Matrix completion by one batch solver that sees all columns; the start is a truncated SVD.

    `RCGMC` and `RTRMC` say which parameters and attributes there are.
    """

    _parameters: ClassVar[dict[str, Check]] = {
        **CompletionEstimator._parameters,
        "max_iterations": bounded(integer, 1),
        "tol": bounded(number, least=0),
    }

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
        U = leading_subspace(tasks, self.rank, seed) if start is None else start
        problem = Problem(Grassmann(tasks.n_rows, self.rank), tasks)
        length = problem.manifold.norm(U, problem.riemannian_gradient(U))
        if length == 0.0:
            self.n_iter_ = 0
            return U
        solver = PymanoptSolver(
            self.optimizer, max_iterations=self.max_iterations, min_gradient_norm=self.tol * length
        )
        result = solver.run(problem, U)
        self.n_iter_ = result.steps
        return result.point


class RTRMC(BatchCompletion):
    """Matrix completion by Riemannian trust regions, preconditioned (Boumal and Absil 2015).

    The optimizer is pymanopt's on `Grassmann`; the start is a truncated SVD of the known entries.

    Parameters
    ----------
    rank : int
    lam : float
        λ: how much entries that are not known are drawn to 0, from 0 to below ½.
    max_iterations : int
    tol : float
        Stop when the gradient is this short, relative to its length at the start.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    limits : (float, float), optional
        Predictions are clipped to them.
    random_state : int, RandomState or None
        Of the start of the truncated SVD; equal integers give equal bits.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U, orthonormal.
    weights_ : array, shape (n, rank)
        W.
    mean_ : float
        Of the known entries.
    row_effects_, column_effects_ : array, shape (m,) and (n,)
        Zero without `bias`.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rng = np.random.default_rng(0)
    >>> # Of rank 3 once the mean is subtracted.
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> known = sp.csc_array(truth * (rng.random((40, 60)) < 0.6))
    >>> model = RTRMC(rank=3, lam=0.0, random_state=0).fit(known)
    >>> bool(np.abs(model.predict(5, range(60)) - truth[5]).max() < 1e-5)
    True
    """

    optimizer = "TrustRegions"


class RCGMC(BatchCompletion):
    """Matrix completion by Riemannian conjugate gradients, preconditioned as in `RTRMC`.

    The optimizer is pymanopt's on `Grassmann`; the start is a truncated SVD of the known entries.

    Parameters
    ----------
    rank : int
    lam : float
        λ: how much entries that are not known are drawn to 0, from 0 to below ½.
    max_iterations : int
    tol : float
        Stop when the gradient is this short, relative to its length at the start.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    limits : (float, float), optional
        Predictions are clipped to them.
    random_state : int, RandomState or None
        Of the start of the truncated SVD; equal integers give equal bits.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U, orthonormal.
    weights_ : array, shape (n, rank)
        W.
    mean_ : float
        Of the known entries.
    row_effects_, column_effects_ : array, shape (m,) and (n,)
        Zero without `bias`.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rng = np.random.default_rng(0)
    >>> # Of rank 3 once the mean is subtracted.
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> known = sp.csc_array(truth * (rng.random((40, 60)) < 0.6))
    >>> model = RCGMC(rank=3, lam=0.0, random_state=0).fit(known)
    >>> bool(np.abs(model.predict(5, range(60)) - truth[5]).max() < 0.05)
    True
    """

    optimizer = "ConjugateGradient"


def leading_subspace(tasks: MatrixCompletion, rank: int, seed: int) -> Array:
    """Return the leading left singular vectors of the known entries, where all others are 0."""
    from scipy.sparse.linalg import svds

    whole = tasks.whole
    if not whole.data.any():
        return Grassmann(tasks.n_rows, rank).random_point(generator(seed, Stream.SPECTRUM))
    start = generator(seed, Stream.SPECTRUM).standard_normal(min(whole.shape))
    return np.ascontiguousarray(svds(whole, rank, v0=start)[0])
