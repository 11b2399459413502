"""Matrix completion as scikit-learn estimators: by gossip, and by batch solvers."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from problems.subspace.completer import PointCompletion
from problems.subspace.cost import PENALTIES, KnownEntries, MatrixCompletion
from problems.subspace.training import GossipPlan, gossip
from problems.validation import file_path
from rmopt.core import Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, integer, number, one_of, optional
from rmopt.core.streams import Stream, generator
from rmopt.linalg import lanczos_svd
from rmopt.manifolds import Grassmann
from rmopt.solvers import ConjugateGradient, GradientNorm, GradientSolver, Recorder, StrongWolfe, TrustRegions

N_AGENTS = 5


@dataclass(eq=False, repr=False)
class CompletionEstimator(PointCompletion):
    """A completed matrix whose columns lie in one subspace, which a subclass finds in `learn`."""

    _: KW_ONLY
    lam: Annotated[float, bounded(number, least=0, below=0.5)] = 0.01
    penalty: Annotated[str, bounded(one_of, PENALTIES)] = "unknown"

    n_agents = 1

    @abstractmethod
    def learn(self, tasks: MatrixCompletion, seed: int) -> Array:
        """Return an orthonormal basis, shape (m, rank)."""

    def _learn(self, table: KnownEntries, seed: int) -> None:
        self.mean_ = float(table.data.mean())
        n_agents = self.n_agents or min(N_AGENTS, table.shape[1])
        tasks = self._tasks(table, n_agents)
        basis = self.learn(tasks, seed)
        empty = np.bincount(table.indices, minlength=len(basis)) == 0
        if basis[empty].any():
            # A row without an entry stays at its random start.
            basis = np.linalg.qr(np.where(empty[:, None], 0.0, basis))[0]
        self.components_ = basis
        self.weights_ = np.concatenate([tasks.weights(basis, agent) for agent in tasks.here])
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        return self._tasks(table, 1).weights(self.components_, 0), np.zeros(table.shape[1])

    def _tasks(self, table: KnownEntries, n_agents: int) -> MatrixCompletion:
        return MatrixCompletion(table.with_values(table.data - self.mean_), n_agents, self.lam, self.penalty)


@dataclass(eq=False, repr=False)
class GossipMatrixCompletion(CompletionEstimator):
    """Matrix completion by agents that each hold some columns and find a common subspace (Mishra et al. 2019).

    Parameters
    ----------
    rank : int
    n_agents : int or None
        Number of agents, with nearly equal shares of consecutive columns. None means 5, at most the number of
        columns.
    rho : float or "auto"
        As in `GossipPlan`.
    limits, handle_unknown, random_state, lam, penalty : optional
        As in `RTRMC`.
    variant, graph, n_epochs, step_size, decay, init : optional
        As in `GossipPlan`.
    checkpoint : path, optional
        Save the state there, and resume from it if the file exists.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_, weights_, mean_, row_effects_, column_effects_, known_, row_names_, column_names_
        As of `RTRMC`. The basis is that of the Fréchet mean of the agents' subspaces.
    agents_ : Parts
        Each agent's basis, not stored by `save`.
    rho_ : float
        The weight that was used.
    disagreement_ : float
        The largest distance between the subspaces of neighbours.

    See Also
    --------
    RTRMC : for all columns in one place.
    gossip : the same for other costs between agents.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import GossipMatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20, 1)) @ rng.standard_normal((1, 60)) + 2.0
    >>> known = sp.csc_array(truth * (rng.random((20, 60)) < 0.6))
    >>> model = GossipMatrixCompletion(rank=2, n_agents=2, lam=0.0, random_state=0)
    >>> misfit = np.abs(model.fit(known).predict(5, range(60)) - truth[5])
    >>> bool(misfit.max() < 0.1), model.disagreement_ < 0.1
    (True, True)
    """

    _parameters = CompletionEstimator._parameters | GossipPlan._parameters

    n_agents: Annotated[int | None, optional(integer, 2)] = None  # type: ignore[assignment]
    rho: float | str = "auto"
    _: KW_ONLY
    variant: str = "stochastic"
    graph: Any = "path"
    n_epochs: float = 200.0
    step_size: float = 1.0
    decay: float = 1.0
    init: str = "common"
    checkpoint: Annotated[Path | str | None, file_path] = None
    verbose: Annotated[bool, flag] = False

    _numbers: ClassVar = {**CompletionEstimator._numbers, "rho_": number, "disagreement_": number}
    # Whether neighbours compare matrices instead of subspaces.
    flat = False

    def learn(self, tasks: MatrixCompletion, seed: int) -> Array:
        recorder = Recorder(progress=self.verbose, description="gossip")
        found = gossip(
            tasks, self.rank, GossipPlan.of(self), seed, recorder=recorder, checkpoint=self.checkpoint,
            flat=self.flat,
        )  # fmt: skip
        self.agents_, self.disagreement_, self.rho_ = found.points, found.disagreement, found.rho
        return found.mean


@dataclass(eq=False, repr=False)
class BatchCompletion(CompletionEstimator):
    """Matrix completion by a batch solver on all columns, from the leading singular vectors."""

    _: KW_ONLY
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-6

    _numbers: ClassVar = {**CompletionEstimator._numbers, "n_iter_": integer}

    def learn(self, tasks: MatrixCompletion, seed: int) -> Array:
        U = leading_subspace(tasks, self.rank, seed)
        manifold = Grassmann(*U.shape)
        # The start may be the end: then its gradient, the reference of tol, is rounding.
        data = tasks.parts[0].data
        rounding = GradientNorm(np.finfo(float).eps * float(data @ data))
        result = self.solver(manifold).run(Problem(manifold, tasks), U, random_state=seed, stop=rounding)
        self.n_iter_ = result.steps
        return result.point

    @abstractmethod
    def solver(self, manifold: Grassmann) -> GradientSolver:
        """Return the solver that learns."""


class RTRMC(BatchCompletion):
    """Matrix completion by Riemannian trust regions, preconditioned (Boumal and Absil 2015).

    The start is a truncated SVD of the known entries.

    Parameters
    ----------
    rank : int
    limits : (float, float), optional
        The least and the largest possible value of an entry, such as `limits` of a bundle: predictions are clipped to
        them, and other entries are refused.
    handle_unknown : {"error", "mean"}
        How to treat rows and columns unknown to `fit`. "mean" predicts the mean, with a warning.
    random_state : int, RandomState or None
        The source of the truncated SVD's start. Equal integers give identical results.
    lam : float
        λ, from 0 to below ½, which draws unknown entries towards 0.
    penalty : {"unknown", "all"}
        The entries that λ draws towards 0.
    max_iter : int
        The largest number of iterations. `n_iter_` is the actual one. 15 suffice for ratings. Entries without noise
        need more for a fit to rounding.
    tol : float
        Stop when the gradient is this short, relative to its length at the start.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U, orthonormal.
    weights_ : array, shape (n, rank)
        W.
    mean_ : float
        Of the known entries.
    row_effects_, column_effects_ : array, shape (m,) and (n,)
        Zero.
    row_names_, column_names_ : array, shape (m,) and (n,)
        The names of rows and columns, or their numbers if `fit` got no names.
    known_ : sparse array, shape (m, n)
        True for known entries. `recommend` leaves these out.
    n_iter_ : int

    See Also
    --------
    RCGMC : first derivatives alone, with cheaper steps, and more of them.
    BayesianCompletion : predictions with standard deviations, without tuning.
    GossipMatrixCompletion : for columns distributed over agents.

    References
    ----------
    Boumal and Absil, RTRMC: a Riemannian trust-region method for low-rank matrix completion, NIPS (2011). Boumal
    and Absil, Low-rank matrix completion via preconditioned optimization on the Grassmann manifold, Linear
    Algebra and its Applications 475 (2015), https://doi.org/10.1016/j.laa.2015.02.027.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import RTRMC
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20, 1)) @ rng.standard_normal((1, 40)) + 2.0
    >>> known = sp.csc_array(truth * (rng.random((20, 40)) < 0.8))
    >>> model = RTRMC(rank=2, lam=0.0, random_state=0).fit(known)
    >>> bool(np.abs(model.predict(5, range(40)) - truth[5]).max() < 1e-5)
    True
    """

    def solver(self, manifold: Grassmann) -> GradientSolver:
        radius = manifold.typical_dist / 8.0
        return TrustRegions(max_iter=self.max_iter, tol=self.tol, first_radius=radius)


class RCGMC(BatchCompletion):
    """Matrix completion by Riemannian conjugate gradients, preconditioned as in `RTRMC`.

    Parameters
    ----------
    rank, limits, handle_unknown, random_state, lam, penalty, max_iter, tol : optional
        As in `RTRMC`.

    Attributes
    ----------
    components_, weights_, mean_, known_, row_names_, column_names_, n_iter_
        As of `RTRMC`.

    See Also
    --------
    RTRMC : second derivatives, for a high accuracy.
    BiasedALS : effects and a penalty by counts, for ratings.
    GossipMatrixCompletion : for columns distributed over agents.

    References
    ----------
    Boumal and Absil, Low-rank matrix completion via preconditioned optimization on the Grassmann manifold, Linear
    Algebra and its Applications 475 (2015), https://doi.org/10.1016/j.laa.2015.02.027.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import RCGMC
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20, 1)) @ rng.standard_normal((1, 40)) + 2.0
    >>> known = sp.csc_array(truth * (rng.random((20, 40)) < 0.8))
    >>> model = RCGMC(rank=2, lam=0.0, random_state=0).fit(known)
    >>> bool(np.abs(model.predict(5, range(40)) - truth[5]).max() < 1e-3)
    True
    """

    def solver(self, manifold: Grassmann) -> GradientSolver:
        steps = StrongWolfe(flatness=0.3)
        return ConjugateGradient("hybrid", steps, max_iter=self.max_iter, tol=self.tol)


def leading_subspace(tasks: MatrixCompletion, rank: int, seed: int) -> Array:
    """Return the leading left singular vectors of the known entries, with 0 for all others."""
    whole = tasks.parts[0]
    if not whole.data.any():
        return Grassmann(tasks.n_rows, rank).random_point(generator(seed, Stream.SPECTRUM))
    start = generator(seed, Stream.SPECTRUM).standard_normal(min(whole.shape))
    return np.ascontiguousarray(lanczos_svd(whole, rank, start)[0])
