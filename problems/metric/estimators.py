"""The base of learned Mahalanobis metrics, with scikit-learn's and metric-learn's names, and COMET."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from scipy.linalg import LinAlgError, eigh
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import check_is_fitted

from problems.following import checkpoint_of
from problems.rows import in_range, natural_size, near_zero, product
from problems.triplets import ClassTriplets, NeighborTriplets, loss_named
from problems.validation import (
    Embedder,
    Estimator,
    admit,
    begin,
    classes,
    file_path,
    kept_count,
    labelled,
    seedable,
    seen,
    step_rule,
)
from rmopt.core import InvalidInputError, Problem, Retraction
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, named, number, one_of, optional
from rmopt.core.matrices import as_rows
from rmopt.core.streams import Stream, generator
from rmopt.costs import LogDetTriplet
from rmopt.costs.bilinear import checked_triplets
from rmopt.costs.log_det import SCORES
from rmopt.manifolds import PositiveDefinite
from rmopt.retractions import POSITIVE_DEFINITE_RETRACTIONS
from rmopt.solvers import CoordinateDescent, Recorder, Sampler
from rmopt.solvers.threads import one_blas_thread

TRIPLETS_PER_ROW = 20
TRIPLETS = ("random", "neighbors")
# The defaults for rows of length 1.
BETA = 1e-5
# Comparisons and priors for cross-validation, its largest number of rows, its passes, and its held-out rows.
FORMS = (("similarity", 1.0), ("distance", 1.0), ("distance", 0.2), ("distance", 0.02))
FOLDS, MOST_ROWS, MOST_EPOCHS, ENOUGH = 3, 3000, 2.0, 2000
# Numbers of neighbours for votes and for precision.
VOTERS, NEIGHBORS = 3, 10


class MahalanobisMetric(Embedder, Estimator):
    """A metric (x − z)ᵀ W (x − z). A subclass sets `mahalanobis_` = W and `components_` = L with W = LᵀL."""

    mahalanobis_: Array
    # The comparison in the cost: "similarity", qᵀWp, or "distance", (q − p)ᵀW(q − p).
    ranks_by = "distance"

    def transform(self, X: Any) -> Array:
        """Return X Lᵀ with W = LᵀL, whose Euclidean distance is the learned metric."""
        return product(seen(self, X, "components_"), self.components_.T)

    def get_mahalanobis_matrix(self) -> Array:
        """Return a copy of W, of shape (n_features, n_features)."""
        check_is_fitted(self, "components_")
        return self.mahalanobis_.copy()


@dataclass(kw_only=True, eq=False, repr=False)
class TripletLearner(MahalanobisMetric):
    """A metric learned from triplets, given or drawn from classes. A subclass has parameters."""

    n_triplets: Annotated[int | None, optional(kept_count)] = None
    triplets: Annotated[str, bounded(one_of, TRIPLETS)] = "random"
    random_state: Annotated[Any, seedable] = None

    @abstractmethod
    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        """Return W, of shape (d, d), symmetric and positive semidefinite.

        Parameters
        ----------
        X : array or CSR array, shape (N, d)
        triplets : int array, shape (T, 3)
            Row numbers: query, positive, negative.
        seed : int
        """

    @one_blas_thread()
    def fit(self, X: Any, y: Any) -> Self:
        """Learn from class labels: rows of one class are closer than rows of different ones.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        """
        seed = begin(self)
        X, y = labelled(self, X, y, ensure_min_samples=3)
        self._fit(X, y, seed)
        self.classes_ = np.unique(y)
        return self

    def _fit(self, X: Any, y: Any, seed: int, **more: Any) -> Self:
        """Learn from triplets of the classes."""
        count = TRIPLETS_PER_ROW * len(y) if self.n_triplets is None else int(self.n_triplets)
        triplets = self.sampler(X, y).draw(generator(seed, Stream.TRIPLETS), 0, count)
        return self._finish(X, triplets, seed, **more)

    def sampler(self, X: Any, y: Any) -> Sampler:
        """Return the sampler of the triplets of `fit`."""
        near = self.triplets or ("neighbors" if self.ranks_by == "distance" else "random")
        return NeighborTriplets(X, y) if near == "neighbors" else ClassTriplets(y)

    def fit_triplets(self, X: Any, triplets: Any) -> Self:
        """Learn from given triplets.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        triplets : int array, shape (T, 3)
            Row numbers in X: query, positive, negative.
        """
        seed, X = begin(self), admit(self, X)
        self.__dict__.pop("classes_", None)
        return self._finish(X, checked_triplets(triplets, X.shape[0], X.shape[0]), seed)

    @one_blas_thread()
    def _finish(self, X: Any, triplets: Array, seed: int, **more: Any) -> Self:
        W = self.learn(near_zero(X) if self.ranks_by == "distance" else X, triplets, seed, **more)
        if not np.isfinite(W).all():
            raise InvalidInputError("the learned metric is not finite; scale X, say to rows of length 1.")
        self.mahalanobis_, self.components_ = W, factor(W)
        return self


def between_classes(X: Array, y: Any, prior: float) -> Array:
    """Return L₀ of the metric L₀ᵀL₀ between linear discriminant analysis, for a prior near 0, and Euclid, for 1.

    The covariance within the classes is shrunk to a multiple of the identity, by half or more. In its units, a
    direction with variance v between the classes has weight v / (1 + v), at least the prior.
    """
    _, codes, counts = classes(y)
    means = np.array([X[codes == code].mean(axis=0) for code in range(len(counts))])
    between, within = means[codes] - X.mean(axis=0), X - means[codes]
    within, shrinkage = within.T @ within / len(X), 0.5 + 0.5 * prior
    size = np.trace(within) / len(within) or 1.0
    within = (1.0 - shrinkage) * within + shrinkage * size * np.eye(len(within))
    values, vectors = eigh(between.T @ between / len(X), within)
    # For directions of equal weight the matrix is unique, and so is its factor, whatever basis rounding gives.
    return factor((vectors * np.maximum(values / (1.0 + values), prior)) @ vectors.T)


def factor(W: Array) -> Array:
    """Return L with W = LᵀL: the transposed Cholesky factor, or for a singular W the scaled eigenvectors."""
    try:
        return np.linalg.cholesky(W).T.copy()
    except LinAlgError:
        values, vectors = np.linalg.eigh(W)
        return (vectors * np.sqrt(np.maximum(values, 0.0))).T


@dataclass(eq=False, repr=False)
class CometMetric(TripletLearner):
    """A metric learned by block coordinate descent over positive definite matrices (Atzmon et al. 2015).

    Minimises the mean loss of qᵀW(p − n) over triplets (query, positive, negative), minus α log det W, plus
    β/2 ‖W‖². Each step moves one row and column of W within a known bound, so W stays positive definite without a
    projection. With classes, W may also compare distances of near rows, starting from linear discriminant analysis.
    Cross-validation chooses between them. Features should be standardised, or rows of counts scaled to unit length.

    Parameters
    ----------
    n_epochs : float
        The budget, in steps over the number of features.
    n_triplets : int or None
        Number of triplets that `fit` draws. None means 20 for each row.
    triplets : {"random", "neighbors"} or None
        The triplets that `fit` draws: any, or of near rows (`problems.triplets.NeighborTriplets`), for a vote of
        nearest neighbours. None means near ones with "distance", and else any.
    random_state : int, RandomState or None
        Equal integers give identical results.
    alpha : float
    beta : float or None
        Weights of the barrier and, positive, of ‖W‖²/2, relative to the mean loss. None means 10⁻⁵ times the square
        of the mean of ‖x‖², or with "distance" of ‖x − x̄‖², so that the scale of X has no effect. The smaller α, the
        more epochs the minimum takes. With α = 0 it may not be reached.
    sparsity : float
        Weight of Σ_k ‖row k without its diagonal entry‖: entire features lose their links to the others. A step uses
        the term of its own feature alone, so the descent stays slightly above the minimum, and ends by its budget.
    loss : {"logistic", "hinge", "squared_hinge"} or Loss
        The loss of a score with the target 1; in the paper the hinge.
    compare : {"similarity", "distance"} or None
        "similarity", the paper's: qᵀW(p − n). "distance": ½ (‖q − n‖² − ‖q − p‖²) in the metric, as nearest
        neighbours compare. With None, `fit` chooses the better one on held-out rows, by votes of three neighbours and
        precision at 10, in two passes over folds of at most 3,000 rows, and `fit_triplets` takes "similarity".
    prior : float or None
        The metric towards which the barrier and β draw W, and with which `fit` begins and finds near rows. 1 is the
        Euclidean one, and near 0 that of linear discriminant analysis, in which directions without differences of
        class means count little. None means 1, or with "distance" 1, 0.2 or 0.02 by the same folds.
    step_size : StepSize, float, callable or None
        None means an exact line search. See `rmopt.solvers.CoordinateDescent`.
    order : {"shuffled", "uniform", "cyclic"}
        The order of rows and columns. The paper draws uniformly.
    retraction : {"additive", "schur-exponential", "affine-exponential", "second-order"} or Retraction
        The curve that a step follows.
    tol : float
        Stop when the optimality residual is at most this after a pass.
    checkpoint : path or None
        Save the state there every half minute, and resume from it if the file exists.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_ : array, shape (n_features, n_features)
        L with W = LᵀL.
    mahalanobis_ : array, shape (n_features, n_features)
        W.
    classes_ : array
        The classes known to `fit`.
    compare_ : str
    prior_ : float
        The comparison and the prior in use.
    n_features_in_, n_iter_ : int
    stopped_by_ : str
        Why the run ended: the budget, or a small optimality residual.
    history_ : list of dict
        The measurements of the `recorder` of `learn`.

    See Also
    --------
    problems.similarity.LoretaSimilarity : for many sparse features, and a low rank.
    LegoMetric : one pass over the triplets, without a search.
    HdslMetric : few of many features.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from problems.metric import CometMetric
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = CometMetric(random_state=0)
    >>> model = make_pipeline(StandardScaler(), metric, KNeighborsClassifier())
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    """

    @property
    def ranks_by(self) -> str:  # type: ignore[override]
        return getattr(self, "compare_", self.compare or "similarity")

    n_epochs: Annotated[float, bounded(number, least=0, most=1e9)] = 8.0
    _: KW_ONLY
    triplets: Annotated[str | None, optional(one_of, TRIPLETS)] = None  # type: ignore[assignment]
    alpha: Annotated[float, bounded(number, least=0)] = 1e-4
    beta: Annotated[float | None, optional(bounded(number, above=0))] = None
    sparsity: Annotated[float, bounded(number, least=0)] = 0.0
    loss: Annotated[Any, loss_named] = "logistic"
    compare: Annotated[str | None, optional(one_of, SCORES)] = None
    prior: Annotated[float | None, optional(number, above=0, most=1)] = None
    step_size: Annotated[Any, optional(step_rule, searches=True)] = None
    order: Annotated[str, bounded(named, CoordinateDescent.orders, Sampler)] = "shuffled"
    retraction: Annotated[Any, bounded(named, POSITIVE_DEFINITE_RETRACTIONS, Retraction)] = "additive"
    tol: Annotated[float, bounded(number, least=0)] = 1e-4
    checkpoint: Annotated[Path | str | None, file_path] = None
    verbose: Annotated[bool, flag] = False

    def fit_triplets(self, X: Any, triplets: Any) -> Self:
        self.compare_, self.prior_ = self.compare or "similarity", 1.0
        return super().fit_triplets(X, triplets)

    def _fit(self, X: Any, y: Any, seed: int, **more: Any) -> Self:
        self.compare_, self.prior_ = self._form(X, y, seed)
        if self.prior_ == 1.0:
            return super()._fit(X, y, seed, **more)
        X = np.ascontiguousarray(X.toarray() if issparse(X) else near_zero(X))
        unit = natural_size(in_range(X), 1.0, 0.5, centred=True)
        start = unit * between_classes(unit * X, y, self.prior_)
        super()._fit(product(X, start.T), y, seed, **more)
        self.components_ = self.components_ @ start
        self.mahalanobis_ = self.components_.T @ self.components_
        return self

    def _form(self, X: Any, y: Any, seed: int) -> tuple[str, float]:
        """Return the comparison and the prior, as given or by cross-validation."""
        forms = [(kind, self.prior or prior) for kind, prior in FORMS if self.compare in (None, kind)]
        some = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
        _, codes, counts = classes(y[some])
        # Two classes have pairs in all folds.
        if len({*forms}) == 1 or len(counts) < 2 or np.sort(counts)[-2] < FOLDS:
            return forms[0]
        few = {"n_epochs": min(self.n_epochs, MOST_EPOCHS), "checkpoint": None, "verbose": False}
        X, order = near_zero(X), np.argsort(codes, kind="stable")

        def found(form: tuple[str, float]) -> float:
            trial, shares = clone(self).set_params(**few, compare=form[0], prior=form[1]), []
            for fold in range(max(1, min(FOLDS, round(FOLDS * ENOUGH / len(order))))):
                rest, fit = order[fold::FOLDS], np.delete(order, np.s_[fold::FOLDS])
                L = trial._fit(X[some[fit]], codes[fit], seed).components_.T
                known, new = product(X[some[fit]], L), product(X[some[rest]], L)
                voters = KNeighborsClassifier(min(VOTERS, len(fit)), algorithm="brute").fit(known, codes[fit])
                near = voters.kneighbors(new, min(NEIGHBORS, len(fit)), return_distance=False)
                same = codes[fit][near] == codes[rest][:, None]
                shares.append(voters.score(new, codes[rest]) + float(same.mean()))
            return sum(shares)

        return max(dict.fromkeys(forms), key=found)

    def learn(self, X: Any, triplets: Array, seed: int, recorder: Recorder | None = None) -> Array:
        # If the rows grow by a factor c, a W that gives the same scores shrinks by c².
        beta = self.beta
        if beta is None:
            beta = natural_size(as_rows(X, "X"), BETA, -2, centred=self.ranks_by == "distance")
        # The cost is a sum of losses, so its weights grow with their number.
        weights = {"alpha": self.alpha, "beta": beta, "sparsity": self.sparsity}
        scaled = {name: float(weight) * len(triplets) for name, weight in weights.items()}
        loss = loss_named("loss", self.loss)
        cost = LogDetTriplet(X, triplets, loss, score=self.ranks_by, **scaled)
        solver = CoordinateDescent(
            self.n_epochs,
            step_size=self.step_size,
            order=self.order,
            retraction=named("retraction", self.retraction, POSITIVE_DEFINITE_RETRACTIONS, Retraction),
            tol=self.tol,
        )
        # The start is as large as W, so no variable refers to it while the solver runs.
        result = solver.run(
            Problem(PositiveDefinite(cost.n_blocks), cost),
            cost.best_multiple_of_identity(),
            random_state=seed,
            recorder=recorder or Recorder(progress=self.verbose, description="COMET"),
            checkpoint=checkpoint_of(self, X=X, triplets=triplets),
        )
        self.n_iter_, self.history_, self.stopped_by_ = result.steps, result.history, result.stopped_by
        return result.point
