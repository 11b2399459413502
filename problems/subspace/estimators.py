"""Matrix completion as scikit-learn estimators: by gossip, and by batch solvers."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds
from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from problems.data import Ratings
from problems.door import array_of, begin, file_path, positions, seedable
from problems.subspace.cost import KnownEntries, MatrixCompletion, columns_of, known_entries, predictions
from problems.subspace.training import GossipPlan, gossip
from rmopt.core import InvalidInputError, Problem
from rmopt.core.arguments import Checked, bounded, flag, integer, number, optional, shown
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.manifolds import Grassmann
from rmopt.renamed import renamed
from rmopt.solvers import ConjugateGradient, GradientSolver, Recorder, StrongWolfe, TrustRegions
from rmopt.solvers.threads import one_blas_thread

Array = np.ndarray

# Ratings that are added, all of the mean, before the effect of a row or of a column is averaged.
DAMPING = (5.0, 10.0)
BIAS_SWEEPS = 8
BIAS_ROUNDS = 3


def entries(ratings: Any) -> tuple[Array, Array]:
    """Return the known entries of a sparse matrix as pairs of a row and a column, shape (N, 2), and their values.

    Parameters
    ----------
    ratings : sparse array, shape (m, n)

    Returns
    -------
    pairs : int array, shape (N, 2)
    values : array, shape (N,)
    """
    table = known_entries(ratings)
    return np.column_stack([table.indices, columns_of(table)]), table.data.copy()


class EntryKFold(BaseCrossValidator):
    """Folds of known entries in which the entries of each row are spread evenly.

    So a row with two entries or more is never without one in a training part.

    Parameters
    ----------
    n_splits : int
    random_state : int, RandomState or None

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from sklearn.model_selection import cross_val_score
    >>> from problems.subspace import RCGMC, EntryKFold, entries
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> pairs, values = entries(sp.csc_array(truth * (rng.random((40, 60)) < 0.5)))
    >>> scores = cross_val_score(RCGMC(3, lam=0.0), pairs, values, cv=EntryKFold(3), params={"shape": (40, 60)})
    >>> bool(scores.min() > -0.2)
    True
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0) -> None:
        self.n_splits = integer("n_splits", n_splits, 2)
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def _iter_test_masks(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Array]:
        rows, _ = checked_pairs(X, None, None)
        if len(rows) < self.n_splits:
            raise InvalidInputError(f"{len(rows)} known entries are too few for {self.n_splits} folds.")
        order = np.random.default_rng(seed_of(self.random_state)).permutation(len(rows))
        fold = np.empty(len(rows), dtype=np.int64)
        fold[order[np.argsort(rows[order], kind="stable")]] = np.arange(len(rows)) % self.n_splits
        yield from (fold == number for number in range(self.n_splits))


def table_of(ratings: Any, values: Any, shape: Any) -> KnownEntries:
    """Return known entries, given as a sparse matrix, as a bundle, or as pairs and values."""
    if values is None:
        ratings = ratings.table() if isinstance(ratings, Ratings) else ratings
        if shape is not None:
            raise InvalidInputError(f"shape = {shape} belongs to pairs and values; a matrix has its own.")
        return known_entries(ratings)
    sides = None
    if shape is not None:
        if np.shape(shape) != (2,):
            raise InvalidInputError(f"shape = {shape!r} must be two numbers, of rows and of columns.")
        sides = tuple(integer("shape", side, 1) for side in shape)
    rows, columns = checked_pairs(ratings, None, sides)
    values = column_or_1d(check_array(values, ensure_2d=False, dtype=np.float64, input_name="y"))
    check_consistent_length(rows, values)
    sides = (int(rows.max()) + 1, int(columns.max()) + 1) if sides is None else sides
    return known_entries(sp.coo_array((values, (rows, columns)), shape=sides))


def checked_pairs(rows: Any, columns: Any, shape: Any) -> tuple[Array, Array]:
    """Return the rows and the columns of pairs of numbers, which lie within a shape where it is given."""
    if columns is None:
        pairs = array_of("pairs", rows)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidInputError(
                f"pairs must be integers of shape (N, 2), a row and a column for each entry, got shape {pairs.shape}."
            )
        rows, columns = pairs.T
    numbers = [array_of("rows", rows), array_of("columns", columns)]
    lengths = {one.shape for one in numbers if one.ndim}
    if (
        len(lengths) > 1
        or any(one.ndim > 1 for one in numbers)
        or not all(np.issubdtype(one.dtype, np.integer) for one in numbers)
    ):
        raise InvalidInputError(
            "rows and columns must be equally many integers, or one of them a single number; got "
            f"{' and '.join(f'{one.dtype} of shape {one.shape}' for one in numbers)}."
        )
    sizes = (2**31, 2**31) if shape is None else shape
    for name, found, size in zip(("rows", "columns"), numbers, sizes, strict=True):
        if found.size and not (found.min() >= 0 and found.max() < size):
            raise InvalidInputError(
                f"{name} must lie between 0 and {size - 1}, got {found.min()} to {found.max()}; the matrix has shape "
                f"{tuple(sizes)}."
            )
    rows, columns = (np.array(one, dtype=np.int32, ndmin=1) for one in np.broadcast_arrays(*numbers))
    return rows, columns


def _limits(name: str, value: Any) -> tuple[float, float]:
    """Return a lower and an upper limit."""
    if isinstance(value, str) or np.shape(value) != (2,):
        raise InvalidInputError(f"{name} = {shown(value)} must be a pair (lowest, highest), or None.")
    low = number(f"{name}[0]", value[0])
    return low, number(f"{name}[1]", value[1], above=low)


@dataclass(eq=False, repr=False)
class CompletionEstimator(Checked, BaseEstimator):
    """A matrix as mean + effects of row and column + u_i · w_j; a subclass finds the span of U in `learn`.

    Known entries are given as a sparse matrix or a bundle, ``fit(ratings)``, or as pairs of a row and a column with a
    value for each, ``fit(pairs, values)``. scikit-learn's cross-validation and searches split the pairs (see
    `EntryKFold`).
    """

    # What scikit-learn's metadata routing hands on, unless asked otherwise.
    __metadata_request__fit: ClassVar = {"shape": True}

    rank: Annotated[int, bounded(integer, 1)] = 10
    _: KW_ONLY
    lam: Annotated[float, bounded(number, least=0, below=0.5)] = 0.01
    bias: Annotated[bool, flag] = False
    limits: Annotated[tuple[float, float] | None, optional(_limits)] = None
    random_state: Annotated[Any, seedable] = None

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

    def fit(self, ratings: Any, y: Any = None, *, shape: tuple[int, int] | None = None) -> Self:
        """Complete a matrix.

        Parameters
        ----------
        ratings : sparse array, shape (m, n), or int array, shape (N, 2), or Ratings
            The known entries; stored zeros are known. Or pairs of a row and a column. Or a bundle of `problems.data`,
            whose names `recommend` knows.
        y : array, shape (N,), optional
            The values at the pairs.
        shape : (int, int), optional
            The shape of the matrix that pairs belong to; just large enough for them unless given, which may be too
            small for other pairs in cross-validation.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            For parameters or ratings that cannot be used; when scikit-learn's cross-validation splits the rows of a
            sparse matrix, since a row that `fit` did not see has no prediction.
        """
        seed = begin(self)
        if y is None and sys._getframe(1).f_globals.get("__name__") == "sklearn.model_selection._validation":
            # Nothing else tells a part of the rows from a matrix, and scores of other rows mean nothing.
            raise InvalidInputError(
                "rows of a matrix cannot be held out; split its known entries instead: pairs, values = "
                "entries(ratings), and cross_val_score(model, pairs, values, cv=EntryKFold(5), params={'shape': "
                "ratings.shape}), both from problems.subspace."
            )
        table = table_of(ratings, y, shape)
        if self.rank >= min(table.shape):
            raise InvalidInputError(
                f"rank = {self.rank} must be an integer from 1 to below the sides of the matrix, {table.shape}."
            )
        self._unit = unit = _unit(table.data)
        values = table.data / unit
        self.mean_ = float(values.mean())
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)
        rows, columns = table.indices, columns_of(table)
        low, basis = np.zeros(table.nnz), None
        with one_blas_thread():
            for _ in range(BIAS_ROUNDS if self.bias else 1):
                if self.bias:
                    self._fit_effects(values - self.mean_ - low, rows, columns)
                effects = self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
                left = KnownEntries((values - effects, rows, table.indptr), shape=table.shape)
                tasks = MatrixCompletion(left, self.n_agents, self.lam)
                basis = self.learn(tasks, basis, seed)
                W = np.concatenate([tasks.weights(basis, agent) for agent in tasks.here])
                low = predictions(basis, W, rows, columns)
        assert basis is not None
        self.components_, self.weights_, self.mean_ = basis, W * unit, self.mean_ * unit
        self.row_effects_, self.column_effects_ = self.row_effects_ * unit, self.column_effects_ * unit
        self.n_features_in_ = table.shape[1] if y is None else 2
        self.known_ = sp.csc_array(
            (np.ones(table.nnz, bool), table.indices, table.indptr), table.shape, copy=True
        )
        self.row_names_, self.column_names_ = (np.arange(size) for size in table.shape)
        if isinstance(ratings, Ratings) and ratings.row_names is not None:
            self.row_names_ = ratings.row_names
        if isinstance(ratings, Ratings) and ratings.column_names is not None:
            self.column_names_ = ratings.column_names
        return self

    def _fit_effects(self, values: Array, rows: Array, columns: Array) -> None:
        """Fit damped effects of rows and columns to what is left of the values, in turns."""
        b, c = self.row_effects_, self.column_effects_
        counts = [np.bincount(n, minlength=len(e)) for n, e in ((rows, b), (columns, c))]
        for _ in range(BIAS_SWEEPS):
            b = np.bincount(rows, values - c[columns], len(b)) / (counts[0] + DAMPING[0])
            c = np.bincount(columns, values - b[rows], len(c)) / (counts[1] + DAMPING[1])
        self.row_effects_, self.column_effects_ = b, c

    def predict(self, rows: Any, columns: Any = None) -> Array:
        """Return the entries at pairs of a row and a column, within `limits` where they are given.

        Parameters
        ----------
        rows, columns : int or int array, shape (N,)
            One of them may be a single number: ``predict(5, range(n))``. Without `columns` the rows are pairs, shape
            (N, 2).

        Raises
        ------
        InvalidInputError
            When the numbers are not integers, or outside of the matrix.
        """
        check_is_fitted(self, "components_")
        rows, columns = checked_pairs(rows, columns, (len(self.components_), len(self.weights_)))
        found = predictions(self.components_, self.weights_, rows, columns)
        found += self.mean_ + self.row_effects_[rows] + self.column_effects_[columns]
        return found if self.limits is None else np.clip(found, *self.limits)

    def recommend(self, column: Any, n: int = 10) -> list[tuple[Any, float]]:
        """Return the rows with the highest predictions in a column, without those that are known there.

        Where rows are items and columns users, these are the items that a user may like best.

        Parameters
        ----------
        column : int or str
            Its name where `fit` got a bundle with names, else its number.
        n : int
            How many; fewer where fewer are not known.

        Returns
        -------
        list of (name, float)
            Rows, by their names or numbers, and predictions, the highest first.

        Raises
        ------
        InvalidInputError
            When `fit` did not see the column.
        """
        check_is_fitted(self, "components_")
        n, number = integer("n", n, 1), int(positions("column", self.column_names_, np.array([column]))[0])
        found = self.predict(np.arange(len(self.components_)), number)
        found[self.known_.indices[self.known_.indptr[number] : self.known_.indptr[number + 1]]] = -np.inf
        best = np.argsort(-found, kind="stable")[:n]
        return [(self.row_names_[row].item(), float(found[row])) for row in best if found[row] > -np.inf]

    def rmse(self, ratings: Any, y: Any = None) -> float:
        """Return the root mean square error of the predictions of known entries, given as in `fit`."""
        check_is_fitted(self, "components_")
        shape = len(self.components_), len(self.weights_)
        table = table_of(ratings, y, None if y is None else shape)
        if table.shape != shape:
            raise InvalidInputError(
                f"the ratings have shape {table.shape}, and fit saw a matrix of {shape}; the model has no other rows "
                "and columns."
            )
        gaps = self.predict(table.indices, columns_of(table)) - table.data
        unit = _unit(gaps)
        return float(np.sqrt(np.mean((gaps / unit) ** 2))) * unit

    def score(self, ratings: Any, y: Any = None) -> float:
        """Return minus the root mean square error: higher is better, as scikit-learn wants it."""
        return -self.rmse(ratings, y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Rows are no samples, and pairs are numbers of rows and columns.
        tags.no_validation = True
        return tags


def _unit(values: Array) -> float:
    """Return 1, or for very large or small values the power of 2 in whose units squares of squares are safe."""
    largest = float(np.abs(values).max(initial=0.0))
    return 1.0 if 1e-30 < largest < 1e30 or largest == 0.0 else 2.0 ** int(np.log2(largest))


@renamed(n_updates="n_epochs")
@dataclass(eq=False, repr=False)
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
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    limits : (float, float), optional
        Predictions are clipped to them.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    variant : {"stochastic", "parallel", "precon-stochastic", "precon-parallel"}
    graph : {"path", "ring", "grid", "star", "complete", "erdos-renyi"}, Graph or list of edges
        Who talks to whom.
    n_epochs : float
        How often each edge is expected to be taken.
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

    _parameters = CompletionEstimator._parameters | GossipPlan._parameters

    n_agents: Annotated[int, bounded(integer, 2)] = 5
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

    def plan(self) -> GossipPlan:
        """Return how the agents gossip."""
        return GossipPlan.of(self)

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


@renamed(max_iterations="max_iter")
@dataclass(eq=False, repr=False)
class BatchCompletion(CompletionEstimator):
    """Matrix completion by one batch solver that sees all columns.

    The start is a truncated SVD of the known entries.

    Parameters
    ----------
    rank : int
    lam : float
        λ: how much entries that are not known are drawn to 0, from 0 to below ½.
    bias : bool
        Add effects of rows and columns, fitted in turns with the subspace.
    limits : (float, float), optional
        Predictions are clipped to them.
    random_state : int, RandomState or None
        Of the start of the truncated SVD; equal integers give equal bits.
    max_iter : int
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
    known_ : sparse array, shape (m, n)
        True where an entry is known; `recommend` leaves these out.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rng = np.random.default_rng(0)
    >>> # Of rank 3 once the mean is subtracted.
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> known = sp.csc_array(truth * (rng.random((40, 60)) < 0.6))
    >>> model = RTRMC(rank=3, lam=0.0, max_iter=60, random_state=0).fit(known)
    >>> bool(np.abs(model.predict(5, range(60)) - truth[5]).max() < 1e-5)
    True
    """

    _: KW_ONLY
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-6

    def learn(self, tasks: MatrixCompletion, start: Array | None, seed: int) -> Array:
        U = leading_subspace(tasks, self.rank, seed) if start is None else start
        manifold = Grassmann(*U.shape)
        result = self.solver(manifold).run(Problem(manifold, tasks), U, random_state=seed)
        self.n_iter_ = result.steps
        return result.point

    @abstractmethod
    def solver(self, manifold: Grassmann) -> GradientSolver:
        """Return the solver that learns."""


class RTRMC(BatchCompletion):
    """Matrix completion by Riemannian trust regions, preconditioned (Boumal and Absil 2015)."""

    def solver(self, manifold: Grassmann) -> GradientSolver:
        radius = manifold.typical_dist / 8.0
        return TrustRegions(max_iter=self.max_iter, tol=self.tol, first_radius=radius)


class RCGMC(BatchCompletion):
    """Matrix completion by Riemannian conjugate gradients, preconditioned as in `RTRMC`."""

    def solver(self, manifold: Grassmann) -> GradientSolver:
        steps = StrongWolfe(flatness=0.3)
        return ConjugateGradient("hybrid", steps, max_iter=self.max_iter, tol=self.tol)


for kind in (RTRMC, RCGMC):
    # Below their own first lines, what is said of both.
    said = (BatchCompletion.__doc__ or "").partition("\n")[2]
    kind.__doc__ = f"{kind.__doc__}\n{said.replace('RTRMC(', f'{kind.__name__}(')}"


def leading_subspace(tasks: MatrixCompletion, rank: int, seed: int) -> Array:
    """Return the leading left singular vectors of the known entries, where all others are 0."""
    whole = tasks.whole
    if not whole.data.any():
        return Grassmann(tasks.n_rows, rank).random_point(generator(seed, Stream.SPECTRUM))
    start = generator(seed, Stream.SPECTRUM).standard_normal(min(whole.shape))
    return np.ascontiguousarray(svds(whole, rank, v0=start)[0])
