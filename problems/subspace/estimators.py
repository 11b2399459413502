"""Matrix completion as scikit-learn estimators: by gossip, and by batch solvers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from problems.subspace.completer import PointCompletion, unit_of
from problems.subspace.cost import KnownEntries, MatrixCompletion, columns_of, predictions
from problems.subspace.training import GossipPlan, gossip
from problems.validation import file_path
from rmopt.core import InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, integer, number, optional
from rmopt.core.streams import Stream, generator
from rmopt.linalg import lanczos_svd
from rmopt.manifolds import Grassmann
from rmopt.solvers import ConjugateGradient, GradientNorm, GradientSolver, Recorder, StrongWolfe, TrustRegions

# Ratings that are added, all of the mean, before the effect of a row or of a column is averaged.
DAMPING = (5.0, 10.0)
BIAS_SWEEPS = 8
N_AGENTS = 5
BIAS_ROUNDS = 3


@dataclass(eq=False, repr=False)
class CompletionEstimator(PointCompletion):
    """A completed matrix whose columns lie in one subspace; a subclass finds it in `learn`."""

    _: KW_ONLY
    lam: Annotated[float, bounded(number, least=0, below=0.5)] = 0.01
    bias: Annotated[bool, flag] = False

    _numbers: ClassVar = {**PointCompletion._numbers, "_unit": number}

    n_agents = 1

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

    def _learn(self, table: KnownEntries, seed: int, *features: Any) -> None:
        self._unit = unit = unit_of(table.data)
        values = table.data / unit
        self.mean_ = float(values.mean())
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)
        rows, columns = table.indices, columns_of(table)
        low, basis = np.zeros(table.nnz), None
        for _ in range(BIAS_ROUNDS if self.bias else 1):
            if self.bias:
                self._fit_effects(values - self.mean_ - low, rows, columns)
            effects = self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
            left = table.with_values(values - effects)
            tasks = MatrixCompletion(left, self.n_agents or min(N_AGENTS, table.shape[1]), self.lam)
            basis = self.learn(tasks, basis, seed)
            empty = np.bincount(rows, minlength=len(basis)) == 0
            if basis[empty].any():
                # A row without an entry stays where it began, at random.
                basis = np.linalg.qr(np.where(empty[:, None], 0.0, basis))[0]
            W = np.concatenate([tasks.weights(basis, agent) for agent in tasks.here])
            low = predictions(basis, W, rows, columns)
        assert basis is not None
        self.components_, self.weights_, self.mean_ = basis, W * unit, self.mean_ * unit
        self.row_effects_, self.column_effects_ = self.row_effects_ * unit, self.column_effects_ * unit

    def _fit_effects(self, values: Array, rows: Array, columns: Array) -> None:
        """Fit damped effects of rows and columns to what is left of the values, in turns."""
        b, c = self.row_effects_, self.column_effects_
        for _ in range(BIAS_SWEEPS):
            b = _mean_effects(values - c[columns], rows, len(b), DAMPING[0])
            c = _mean_effects(values - b[rows], columns, len(c), DAMPING[1])
        self.row_effects_, self.column_effects_ = b, c

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        rows, columns, unit = table.indices, columns_of(table), self._unit
        values = (table.data - self.mean_ - self.row_effects_[rows]) / unit
        low, c = np.zeros(table.nnz), np.zeros(table.shape[1])
        for _ in range(BIAS_ROUNDS if self.bias else 1):
            if self.bias:
                c = _mean_effects(values - low, columns, len(c), DAMPING[1])
            left = table.with_values(values - c[columns])
            W = MatrixCompletion(left, 1, self.lam).weights(self.components_, 0)
            low = predictions(self.components_, W, rows, columns)
        return W * unit, c * unit


def _mean_effects(values: Array, numbers: Array, count: int, damping: float) -> Array:
    """Return the mean of the values of each row, or of each column, with so many zeros more."""
    return np.bincount(numbers, values, count) / (np.bincount(numbers, minlength=count) + damping)


@dataclass(eq=False, repr=False)
class GossipMatrixCompletion(CompletionEstimator):
    """Agents that each hold some columns complete them by a common subspace (Mishra et al. 2019).

    Parameters
    ----------
    rank : int
    n_agents : int or None
        Agents get consecutive columns, as many each as can be. None: 5, or as many as there are columns.
    rho : float or "auto"
        Weight ρ of the agreement; "auto": a tenth of the agents' mean curvature.
    limits, handle_unknown : optional
        As in `RTRMC`.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    lam : float
        λ: how much entries that are not known are drawn to 0.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    variant : {"stochastic", "parallel", "precon-stochastic", "precon-parallel"}
    graph : {"path", "ring", "grid", "star", "complete", "erdos-renyi"}, Graph or list of edges
        Who talks to whom.
    n_epochs : float
        How often each edge is expected to be taken. With a `decay`, a checkpoint of another number is refused.
    step_size, decay : float
        Step sizes go from a to a / (1 + decay), in units of one over an agent's largest curvature.
    clock : {"shared", "own"}
        "own": each agent counts its own updates.
    retraction : {"exponential", "qr", "polar"}
    init : {"common", "independent"}
        Do agents start with the same random subspace.
    checkpoint : path, optional
        Save the state there, and resume from it when the file exists. Not with `bias`.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_, weights_, mean_, row_effects_, column_effects_
        As of `RTRMC`; the basis is that of the Fréchet mean of the agents' subspaces.
    known_, row_names_, column_names_
        As of `RTRMC`.
    agents_ : Parts
        Each agent's basis; `save` does not keep them.
    rho_ : float
        The weight that was used.
    disagreement_ : float
        The largest distance between the subspaces of neighbours.

    See Also
    --------
    RTRMC : where all columns are in one place.
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
    clock: str = "shared"
    retraction: str = "exponential"
    init: str = "common"
    checkpoint: Annotated[Path | str | None, file_path] = None
    verbose: Annotated[bool, flag] = False

    _numbers: ClassVar = {**CompletionEstimator._numbers, "rho_": number, "disagreement_": number}

    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        if self.checkpoint is not None and self.bias:
            raise InvalidInputError(
                "checkpoint holds one run, and bias makes several; give only one of them."
            )
        recorder = Recorder(progress=self.verbose, description="gossip")
        plan = GossipPlan.of(self, self._unit)
        found = gossip(
            tasks, self.rank, plan, seed, start=start, recorder=recorder, checkpoint=self.checkpoint
        )
        self.agents_, self.disagreement_ = found.points, found.disagreement
        # In the units of the ratings, as far as there are numbers.
        self.rho_ = min(found.rho * self._unit * self._unit, np.finfo(float).max)
        return found.mean


@dataclass(eq=False, repr=False)
class BatchCompletion(CompletionEstimator):
    """Matrix completion by one batch solver that sees all columns.

    The start is a truncated SVD of the known entries.

    Parameters
    ----------
    rank : int
    limits : (float, float), optional
        The least and the largest value that an entry can have; None: those of the bundle that `fit` gets, if it gets
        one. Predictions are clipped to them, and other entries are refused.
    handle_unknown : {"error", "mean"}
        What to do with rows and columns that `fit` did not see; "mean": predict the mean, with a warning.
    random_state : int, RandomState or None
        Of the start of the truncated SVD; equal integers give equal bits.
    lam : float
        λ: how much entries that are not known are drawn to 0, from 0 to below ½.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    max_iter : int
        The most iterations; `n_iter_` tells where they ended. 15 do for ratings; entries without noise take more to
        be met to rounding.
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
        Zero without `bias`.
    row_names_, column_names_ : array, shape (m,) and (n,)
        What rows and columns stand for; their numbers where `fit` got no names.
    limits_ : (float, float) or None
        `limits`, or those of the bundle.
    known_ : sparse array, shape (m, n)
        True where an entry is known; `recommend` leaves these out.
    n_iter_ : int
    """

    _: KW_ONLY
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-6

    _numbers: ClassVar = {**CompletionEstimator._numbers, "n_iter_": integer}

    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        U = leading_subspace(tasks, self.rank, seed) if start is None else start
        manifold = Grassmann(*U.shape)
        # The start may be the end: what is left of its gradient, of which tol is a part, is rounding.
        rounding = GradientNorm(np.finfo(float).eps * float(tasks.whole.data @ tasks.whole.data))
        result = self.solver(manifold).run(Problem(manifold, tasks), U, random_state=seed, stop=rounding)
        self.n_iter_ = result.steps
        return result.point

    @abstractmethod
    def solver(self, manifold: Grassmann) -> GradientSolver:
        """Return the solver that learns."""


class RTRMC(BatchCompletion):
    """Matrix completion by Riemannian trust regions, preconditioned (Boumal and Absil 2015).

    See Also
    --------
    RCGMC : first derivatives alone; cheaper steps, and more of them.
    BayesianCompletion : predictions with standard deviations, and nothing to tune.
    GossipMatrixCompletion : where the columns lie with several agents.

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

    See Also
    --------
    RTRMC : second derivatives, for a high accuracy.
    BiasedALS : effects and a penalty by counts, for ratings.
    GossipMatrixCompletion : where the columns lie with several agents.

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


for kind in (RTRMC, RCGMC):
    # What is said of both stands between their first lines and what is said of each.
    first, _, own = (kind.__doc__ or "").partition("\n")
    said = (BatchCompletion.__doc__ or "").partition("\n")[2].rstrip()
    kind.__doc__ = f"{first}\n{said}\n{own}"


def leading_subspace(tasks: MatrixCompletion, rank: int, seed: int) -> Array:
    """Return the leading left singular vectors of the known entries, where all others are 0."""
    whole = tasks.whole
    if not whole.data.any():
        return Grassmann(tasks.n_rows, rank).random_point(generator(seed, Stream.SPECTRUM))
    start = generator(seed, Stream.SPECTRUM).standard_normal(min(whole.shape))
    return np.ascontiguousarray(lanczos_svd(whole, rank, start)[0])
