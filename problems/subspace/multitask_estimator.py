"""Related regressions in a common subspace, as a scikit-learn estimator."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler

from problems.rows import finite, in_range
from problems.subspace.baselines import alt_min
from problems.subspace.completer import sizable
from problems.subspace.cost import MultitaskFeatures
from problems.subspace.training import GossipPlan, gossip
from problems.validation import Estimator, admit, begin, column_of_names, positions, seedable, seen
from rmopt.core import InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import (
    array,
    bounded,
    check_parameters,
    flag,
    integer,
    number,
    numbers,
    one_of,
    optional,
)
from rmopt.core.streams import Stream, generator
from rmopt.errors import warn
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder, TrustRegions
from rmopt.solvers.threads import one_blas_thread

N_AGENTS = 6
SCALES, CENTRES = ("none", "standard"), ("none", "tasks")
# The grids of cross-validation, with weights relative to the sum of squares of a feature in a task.
FOLDS, RANKS, WEIGHTS = 3, (1, 2, 3, 5, 8), (0.001, 0.01, 0.05, 0.2, 1.0, 10.0)

Tasks = list[tuple[Array, Array]]


def is_constant(values: Array) -> Array:
    """Return whether values, or columns of them, are equal up to rounding."""
    eps, n, spread = np.finfo(float).eps, len(values), values.var(axis=0)
    return spread <= n * eps * spread + (n * eps * values.mean(axis=0)) ** 2


def pooled(parts: Tasks) -> Array:
    """Return the coefficients of one ridge regression for all tasks, with a cross-validated penalty."""
    X, y = map(np.concatenate, zip(*parts, strict=True))
    size = float(np.sum(X**2)) / X.shape[1] or 1.0
    return RidgeCV(size * np.logspace(-6, 1, 8), fit_intercept=False).fit(X, y).coef_


def moments(parts: Tasks) -> tuple[Array, Array]:
    """Return XᵀX and Xᵀy of each task."""
    return np.array([X.T @ X for X, _ in parts]), np.array([X.T @ y for X, y in parts])


def weights_of(parts: Tasks) -> list[float]:
    """Return weights of squared coefficients, from nearly none to one that shrinks them to nearly 0."""
    size = float(np.mean([np.sum(X**2) / X.shape[1] for X, _ in parts])) or 1.0
    return [size * weight for weight in WEIGHTS]


def within(grams: Array, rights: Array, U: Array, lam: float) -> Array:
    """Return the coefficients of each task within the span of U, with λ ‖w‖² added to half the squares."""
    ridge = 2.0 * max(lam, 1e-6) * np.eye(U.shape[1])
    return np.linalg.solve(U.T @ grams @ U + ridge, (rights @ U)[..., None])[..., 0] @ U.T


def directions(grams: Array, rights: Array, lam: float) -> Array:
    """Return an orthonormal basis, leading with the main directions of separate regressions."""
    alone = within(grams, rights, np.eye(grams.shape[1]), lam)
    return np.linalg.svd(alone.T, full_matrices=True)[0]


def common(grams: Array, rights: Array, lam: float) -> Array:
    """Return the c that minimises Σ ‖X_t (c + d_t) − y_t‖² / 2 + λ ‖d_t‖² over c and all d_t."""
    damped = np.linalg.inv(grams / (2.0 * max(lam, 1e-6)) + np.eye(grams.shape[1]))
    return np.linalg.lstsq(np.sum(damped @ grams, axis=0), np.einsum("tij,tj->i", damped, rights))[0]


def tables(parts: Tasks, either: Any, lams: Any, ranks: Any) -> Iterator[Array]:
    """Yield coefficients with c or without, for each λ and rank, within the span of separate regressions."""
    grams, rights = moments(parts)
    for shared, lam in product(either, lams):
        c = common(grams, rights, lam) if shared else np.zeros(grams.shape[1])
        left = rights - grams @ c
        U = directions(grams, left, lam)
        yield from (c + within(grams, left, U[:, :rank], lam) for rank in ranks)


def best_of(learn: Callable[[Tasks], Iterable[Array]], parts: Tasks, seed: int) -> int:
    """Return which of the coefficient tables from `learn` has the least error on held-out rows of each task."""
    rng, errors = generator(seed, Stream.TASKS), []
    # Single rows are never held out.
    folds = [rng.permutation(len(y)) % FOLDS if len(y) > 1 else np.array([-1]) for _, y in parts]
    for out in range(FOLDS):
        masks = [fold == out for fold in folds]
        test = [(X[mask], y[mask]) for (X, y), mask in zip(parts, masks, strict=True)]
        found = learn([(X[~mask], y[~mask]) for (X, y), mask in zip(parts, masks, strict=True)])
        errors.append([
            sum(float(np.sum((y - X @ w) ** 2)) for (X, y), w in zip(test, coef, strict=True)) for coef in found
        ])  # fmt: skip
    return int(np.sum(errors, axis=0).argmin())


@dataclass(eq=False, repr=False)
class TaskRegressions(RegressorMixin, Estimator):
    """Linear regressions of several tasks. A subclass has `scale`, `centre`, and `learn`.

    `fit`, `predict` and `score` need the task of each example in addition to X and y.
    """

    # The arguments that scikit-learn's metadata routing passes by default.
    __metadata_request__fit: ClassVar = {"tasks": True}
    __metadata_request__predict: ClassVar = {"tasks": True}
    __metadata_request__score: ClassVar = {"tasks": True}

    _: KW_ONLY
    scale: Annotated[str, bounded(one_of, SCALES)] = "standard"
    centre: Annotated[str, bounded(one_of, CENTRES)] = "tasks"

    @abstractmethod
    def _learned(self, parts: Tasks) -> Array:
        """Return the coefficients of each task, shape (n_tasks, m), from its examples and labels."""

    @one_blas_thread()
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Fit the regressions.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        tasks : array, shape (n_samples,)
            The name or number of each example's task.
        """
        check_parameters(self, self._parameters)
        X, y = admit(self, X, y, sparse=False, y_numeric=True, order="C")
        in_range(X)
        sizable("y", y)
        self.tasks_, which = np.unique(self._checked_tasks(tasks, len(y)), return_inverse=True)
        middle, spread = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.scale == "standard":
            scaler = StandardScaler().fit(X)
            middle, spread = scaler.mean_, scaler.scale_
        members = [np.flatnonzero(which == task) for task in range(len(self.tasks_))]
        means, levels = np.tile(middle, (len(members), 1)), np.zeros(len(members))
        if self.centre == "tasks":
            means = np.array([X[rows].mean(axis=0) for rows in members])
            levels = np.array([y[rows].mean() for rows in members])
        parts = [
            ((X[rows] - mean) / spread, y[rows] - level)
            for rows, mean, level in zip(members, means, levels, strict=True)
        ]
        self.coef_ = self._learned(parts) / spread
        self.intercept_ = levels - np.einsum("ij,ij->i", self.coef_, means)
        return self

    def predict(self, X: Any, tasks: Any = None) -> Array:
        """Return the predictions of examples of known tasks.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        tasks : array, shape (n_samples,)
        """
        X = seen(self, X, sparse=False)
        tasks = self._checked_tasks(tasks, len(X))
        which = positions("task", self.tasks_, tasks)
        with np.errstate(all="ignore"):
            return finite(np.einsum("ij,ij->i", X, self.coef_[which]) + self.intercept_[which])

    def score(self, X: Any, y: Any, tasks: Any = None) -> float:
        """Return 1 minus the normalised mean squared error, averaged over the tasks: higher is better."""
        predicted, tasks = self.predict(X, tasks), np.asarray(tasks)
        y = numbers("y", y, predicted.shape)
        parts = [tasks == name for name in np.unique(tasks)]
        found = [r2_score(y[part], predicted[part]) for part in parts if part.sum() > 1]
        if not found:
            raise InvalidInputError("no task has two rows, as an R² needs; give more rows.")
        if not np.isfinite(found).all():
            raise InvalidInputError("the R² of a task is out of reach of double precision; scale X and y.")
        return float(np.mean(found))

    @staticmethod
    def _checked_tasks(tasks: Any, count: int) -> Array:
        names = array("tasks", tasks)
        if tasks is None or names.shape != (count,):
            raise InvalidInputError(
                f"tasks must name one task for each of {count} examples, got shape {names.shape}; scikit-learn's "
                "metadata routing hands it to fit and score, but cross_val_predict and scorers hand none to predict."
            )
        return column_of_names("tasks", names)


@dataclass(eq=False, repr=False)
class MultitaskSubspace(TaskRegressions):
    """Linear regressions of several tasks, whose coefficients c + U w_t differ within an r-dimensional subspace.

    Mishra et al. 2019, equation 14, which has no shared c: here that is a ridge regression on all examples, and the
    subspace is learned from its residuals. The tasks belong to agents that gossip about the subspace, or are in one
    place. The shared c and cross-validation use sums over all.

    `fit`, `predict` and `score` need the task of each example in addition to X and y. In scikit-learn's searches,
    cross-validation and pipelines, ``sklearn.set_config(enable_metadata_routing=True)`` passes it there:
    ``GridSearchCV(MultitaskSubspace(), grid, cv=cv).fit(X, y, tasks=tasks)``. The folds must leave some examples of
    every task in each training part: ``cv = list(StratifiedKFold(5).split(X, tasks))``. scikit-learn does not pass
    tasks to `predict`: leave `scoring` unchanged, and predict by ``search.best_estimator_.predict(X, tasks)``.

    Parameters
    ----------
    rank : int or None
        None chooses it by cross-validation within the rows of each task.
    scale : {"standard", "none"}
        "standard" subtracts the mean of each feature over all examples, and divides by its standard deviation.
    centre : {"tasks", "none"}
        "tasks" subtracts each task's mean from its examples and labels, which fits an intercept for each.
    lam : float or None
        Weight λ of ‖w_t‖², with None as for `rank`. With a large weight all tasks have the coefficients c.
    shared : bool or None
        Whether there is a c, or it is 0, with None as for `rank`.
    solver : {"gossip", "batch"}
        "batch" means trust regions on all tasks.
    n_agents : int or None
        For "gossip": number of agents, with nearly equal shares of consecutive tasks. None means 6, at most the
        number of tasks.
    rho, variant, graph, n_epochs, step_size, decay, init : optional
        For "gossip", as in `GossipPlan`.
    max_iter : int
        Of "batch".
    random_state : int, RandomState or None
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_ : array, shape (n_features, rank)
        U, orthonormal.
    rank_, lam_ : int and float
        As given, or chosen.
    coef_ : array, shape (n_tasks, n_features)
        Coefficients of the unscaled features.
    intercept_ : array, shape (n_tasks,)
    tasks_ : array
        The names of the tasks, sorted.
    agents_ : Parts
        Each agent's basis, for "gossip".

    See Also
    --------
    alt_min : a convex problem instead of a rank.
    sklearn.linear_model.Ridge : a separate regression for each task.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.subspace import MultitaskSubspace
    >>> rng = np.random.default_rng(0)
    >>> X, tasks = rng.standard_normal((300, 8)), np.repeat(np.arange(10), 30)
    >>> coef = rng.standard_normal((10, 2)) @ rng.standard_normal((2, 8))
    >>> y = np.einsum("ij,ij->i", X, coef[tasks])
    >>> model = MultitaskSubspace(rank=2, lam=1e-6, solver="batch").fit(X, y, tasks=tasks)
    >>> model.score(X, y, tasks=tasks) > 0.999
    True
    """

    _parameters = TaskRegressions._parameters | GossipPlan._parameters

    rank: Annotated[int | None, optional(integer, 1)] = None
    _: KW_ONLY
    lam: Annotated[float | None, optional(bounded(number, least=0))] = None
    shared: Annotated[bool | None, optional(flag)] = None
    solver: Annotated[str, bounded(one_of, ("gossip", "batch"))] = "gossip"
    n_agents: Annotated[int | None, optional(integer, 2)] = None
    rho: float | str = "auto"
    variant: str = "stochastic"
    graph: Any = "path"
    n_epochs: float = 200.0
    step_size: float = 1.0
    decay: float = 1.0
    init: str = "common"
    max_iter: Annotated[int, bounded(integer, 1)] = 100
    random_state: Annotated[Any, seedable] = None
    verbose: Annotated[bool, flag] = False

    def _learned(self, parts: Tasks) -> Array:
        seed, n_features = begin(self), self.n_features_in_
        if (self.rank or 1) >= n_features:
            raise InvalidInputError(
                f"rank = {self.rank or 1} must be below the number of features, {n_features}."
            )
        has_shared, self.lam_, self.rank_ = self._chosen(parts, seed)
        shared = common(*moments(parts), self.lam_) if has_shared else np.zeros(n_features)
        left, gossips = [(X, y - X @ shared) for X, y in parts], self.solver == "gossip"
        # The agents of an earlier fit.
        self.__dict__.pop("agents_", None)
        n_agents = (self.n_agents or min(N_AGENTS, len(parts))) if gossips else 1
        cost = MultitaskFeatures(left, n_agents, self.lam_)
        if gossips:
            recorder = Recorder(progress=self.verbose, description="gossip")
            found = gossip(cost, self.rank_, GossipPlan.of(self), seed, recorder=recorder)
            self.components_, self.agents_ = found.mean, found.points
        else:
            start = directions(*moments(left), self.lam_)[:, : self.rank_].copy()
            self.components_ = self._batch(cost, start, seed)
        W = np.concatenate([cost.weights(self.components_, agent) for agent in cost.here])
        return shared + W @ self.components_.T

    def _chosen(self, parts: Tasks, seed: int) -> tuple[bool, float, int]:
        """Return `shared`, `lam` and `rank`, as given, or with the least error of the span of regressions alone."""
        ranks = [self.rank] if self.rank else [rank for rank in RANKS if rank < self.n_features_in_]
        lams = weights_of(parts) if self.lam is None else [self.lam]
        either = (True, False) if self.shared is None else (self.shared,)
        points = list(product(either, lams, ranks))

        learn = partial(tables, either=either, lams=lams, ranks=ranks)
        return points[best_of(learn, parts, seed) if len(points) > 1 else 0]

    def _batch(self, cost: MultitaskFeatures, start: Array, seed: int) -> Array:
        """Return the minimiser that trust regions find from the span of ridge regressions of each task."""
        problem, solver = Problem(Grassmann(*start.shape), cost), TrustRegions(max_iter=self.max_iter)
        result = solver.run(problem, start, random_state=seed)
        if result.steps == self.max_iter and not result.converged:
            warn(
                f"the subspace is not yet the best one ({result.stopped_by}); raise max_iter.",
                ConvergenceWarning,
            )
        return result.point


@dataclass(eq=False, repr=False)
class AltMin(TaskRegressions):
    """Linear regressions of several tasks whose coefficients A have a small trace norm, all data in one place.

    Minimises ½ Σ_t ‖X_t a_t - y_t‖² + λ ‖A‖₊² over all a_t at once (Argyriou, Evgeniou and Pontil 2008): the convex
    counterpart of `MultitaskSubspace`, by `alt_min`.

    Attributes
    ----------
    coef_ : array, shape (n_tasks, n_features)
        Coefficients of the unscaled features.
    intercept_ : array, shape (n_tasks,)
    tasks_ : array
        The names of the tasks, sorted.
    """

    trace_lam: Annotated[float, bounded(number, above=0)] = 0.1

    def _learned(self, parts: Tasks) -> Array:
        return alt_min(parts, self.trace_lam)[0].T


@dataclass(eq=False, repr=False)
class PooledRidge(TaskRegressions):
    """One ridge regression for all tasks with an effect of each, the baseline for `MultitaskSubspace`.

    Parameters
    ----------
    slopes : bool
        Let the coefficients of tasks differ from the shared ones, shrunk to them by cross-validation.
    scale, centre : optional
        As in `MultitaskSubspace`.

    Attributes
    ----------
    coef_, intercept_, tasks_
        As of `MultitaskSubspace`.
    """

    slopes: Annotated[bool, flag] = False

    def _learned(self, parts: Tasks) -> Array:
        if not self.slopes:
            return np.tile(pooled(parts), (len(parts), 1))
        learn = partial(tables, either=[True], ranks=[self.n_features_in_])
        lams = weights_of(parts)
        return next(learn(parts, lams=[lams[best_of(partial(learn, lams=lams), parts, 0)]]))
