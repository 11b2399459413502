"""The baselines of COMET (Atzmon et al. 2015, section 5.1), behind the same interface."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator
from sklearn.utils import Tags

from problems.metric import kernels
from problems.metric.estimators import MahalanobisMetric, TripletLearner
from problems.online import Lego
from problems.rows import in_range, natural_size
from problems.validation import admit, in_order, kept_count, step_rule
from rmopt.core import InvalidInputError, Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, number, optional
from rmopt.core.matrices import as_rows
from rmopt.costs import LogDetTriplet, TripletSum
from rmopt.costs.log_det import DENSE_SHARE
from rmopt.engines.log_det import samples_of
from rmopt.linalg import lanczos_eigh
from rmopt.manifolds import Euclidean
from rmopt.solvers import ShuffledEpochs

# Iterations of HDSL between two updates of the gradient's diagonal, and the features tried in each.
RENEW_EVERY, N_CANDIDATES = 25, 10


class EuclideanMetric(MahalanobisMetric):
    """The plain Euclidean distance, W = I.

    See Also
    --------
    CometMetric : learns W.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from problems.metric import EuclideanMetric
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = EuclideanMetric().fit(X, y)
    >>> bool((metric.transform(X) == X).all())
    True
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the number of features.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, optional
            Not used, but it must fit X.
        """
        X = admit(self, X) if y is None else admit(self, X, in_order("y", y), multi_output=True)[0]
        self.mahalanobis_ = self.components_ = np.eye(X.shape[1])
        return self


@dataclass(eq=False, repr=False)
class LegoMetric(TripletLearner):
    """Online log-det metric learning (Jain et al. 2008) in its form for relative distances.

    The positive of a triplet should be within the 5th percentile of the squared distances of random rows, the
    negative beyond the 95th (`problems.online.Lego`).

    Parameters
    ----------
    step_size : float, StepSize, callable or None
        η, the weight of a pair against the present matrix. None means 1 over the square of the mean of ‖x − x̄‖², so
        that the scale of X has no effect.
    n_triplets, triplets, random_state : optional
        As in `CometMetric`.
    n_epochs : int
        Passes over the triplets.

    See Also
    --------
    CometMetric : minimises one objective completely, if there is time.

    References
    ----------
    Jain, Kulis, Dhillon and Grauman, Online metric learning and fast similarity search, NIPS (2008). Davis,
    Kulis, Jain, Sra and Dhillon, Information-theoretic metric learning, ICML (2007),
    https://doi.org/10.1145/1273496.1273523.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from problems.metric import LegoMetric
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = LegoMetric(0.1, random_state=0)
    >>> model = make_pipeline(StandardScaler(), metric, KNeighborsClassifier())
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    """

    step_size: Annotated[Any, optional(step_rule)] = None
    _: KW_ONLY
    n_epochs: Annotated[int, kept_count] = 1

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        d = X.shape[1]
        cost, step_size = TripletSum(X, X), self.step_size
        # If the rows grow by a factor c, the same W is learned, from squared distances that grow by c².
        step_size = natural_size(cost.left, 1.0, 2, centred=True) if step_size is None else step_size
        steps = int(self.n_epochs) * len(triplets)
        solver = Lego(step_size, max_iter=steps, sampler=ShuffledEpochs(triplets))
        return solver.run(Problem(Euclidean(d, d), cost), np.eye(d), random_state=seed).point


@dataclass(eq=False, repr=False)
class BoostMetric(TripletLearner):
    """A metric as a sum of rank-one matrices found by boosting (Shen et al. 2012).

    Minimises log Σ exp(−⟨A_t, W⟩) + v tr W with A_t = (q − n)(q − n)ᵀ − (q − p)(q − p)ᵀ. Each weak learner is u uᵀ
    for the leading eigenvector u of Σ_t p_t A_t with p_t ∝ exp(−⟨A_t, W⟩), and its weight solves a one-dimensional
    equation (Shen, Kim, Liu, Wang and van den Hengel 2012, Algorithm 1). The weights of earlier learners stay fixed,
    so that it ends above the minimum, by some percent unless v is small.

    Parameters
    ----------
    max_iter : int
        The largest number of weak learners.
    n_triplets, triplets, random_state : optional
        As in `CometMetric`.
    penalty : float or None
        v, the price of the trace, and the least eigenvalue for a new learner. None means 10⁻⁷ times the mean of ‖x −
        x̄‖², so that the scale of X has no effect.

    Attributes
    ----------
    learners_ : array, shape (n_learners, n_features)
        L with W = LᵀL. A row is the leading eigenvector of a weak learner times the root of its weight.

    See Also
    --------
    CometMetric : a positive definite W.

    References
    ----------
    Shen, Kim, Wang and van den Hengel, Positive semidefinite metric learning using boosting-like algorithms,
    JMLR 13 (2012), https://jmlr.org/papers/v13/shen12a.html.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from problems.metric import BoostMetric
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = BoostMetric(10, n_triplets=500, random_state=0)
    >>> model = make_pipeline(StandardScaler(), metric, KNeighborsClassifier())
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    """

    max_iter: Annotated[int, kept_count] = 100
    _: KW_ONLY
    penalty: Annotated[float | None, optional(bounded(number, above=0))] = None

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        # Its scores are ½⟨A_t, W⟩.
        cost, penalty = LogDetTriplet(in_range(X), triplets, score="distance"), self.penalty
        penalty = natural_size(as_rows(X, "X"), 1e-7, -1, centred=True) if penalty is None else float(penalty)
        (q, p, n), d = triplets.T, cost.n_blocks
        scores, start = np.zeros(len(q)), np.ones(d)
        learners: list[Array] = []
        for _ in range(self.max_iter):
            weights = np.exp(scores.min() - scores)
            weights /= weights.sum()
            value, vector = _leading(cost.X, cost.couplings(weights), start)
            if value <= penalty:
                if not learners:
                    raise InvalidInputError(
                        f"the best direction gains {value:.1e} on these triplets, not more than penalty = "
                        f"{penalty:g}, so that W would be zero; take a smaller one, or nearer positives."
                    )
                break
            start = vector
            place = np.asarray(cost.X @ vector)
            gain = (place[q] - place[n]) ** 2 - (place[q] - place[p]) ** 2
            size = _weight(weights, gain, penalty)
            if size == 0.0:
                break
            scores += size * gain
            learners.append(np.sqrt(size) * vector)
        self.n_iter_, self.learners_ = len(learners), np.reshape(learners, (-1, d))
        return self.learners_.T @ self.learners_


def _leading(X: Any, couplings: Any, start: Array) -> tuple[float, Array]:
    """Return the largest eigenvalue of 2 Xᵀ C X with its eigenvector."""
    d = X.shape[1]
    operator = LinearOperator((d, d), matvec=lambda x: 2.0 * (X.T @ (couplings @ (X @ x))), dtype=float)
    if d < 10:
        values, vectors = np.linalg.eigh(operator @ np.eye(d))
        return float(values[-1]), vectors[:, -1]
    if not (operator @ np.random.default_rng(0).standard_normal(d)).any():
        return 0.0, start
    values, vectors = lanczos_eigh(operator, 1, v0=start, tol=1e-6)
    return float(values[0]), vectors[:, 0]


def _weight(weights: Array, gain: Array, penalty: float) -> float:
    """Return the w with Σ p_t h_t exp(−w h_t) = v Σ p_t exp(−w h_t), the minimum of the cost along the learner."""
    # The search has its own units.
    unit = float(np.abs(gain).max())
    gain, penalty = gain / unit, penalty / unit

    def slope(size: float) -> float:
        moved = weights * np.exp(-size * (gain - gain.min()))
        return float(moved @ (gain - penalty))

    if slope(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while slope(high) > 0.0 and high < 1e6:
        high *= 2.0
    # All triplets gain: more weight always helps, and the largest tried is used.
    return (high if slope(high) > 0.0 else float(brentq(slope, 0.0, high))) / unit


@dataclass(eq=False, repr=False)
class HdslMetric(TripletLearner):
    """Sparse 2 × 2 bases added by Frank–Wolfe (HDSL: Liu, Bellet and Sha 2015).

    Minimises the smoothed hinge of qᵀM(p − n), averaged, over convex combinations of the bases
    λ (e_i ± e_j)(e_i ± e_j)ᵀ. Frank–Wolfe adds one pair of features at a time, that of the steepest gradient, with
    step 2/(t + 2) (Algorithm 1 of the paper, without its removal steps). The full gradient would take nearly all the
    time: as the paper suggests for many features, i is chosen among 10 random ones, whose rows of the gradient are
    exact, and j among all.

    Parameters
    ----------
    scale : float or None
        λ, the size of the bases. None means 1000 over the mean of ‖x‖², so that the scale of X has no effect.
    n_triplets, triplets, random_state : optional
        As in `CometMetric`.
    max_iter : int
        Number of added bases. Early stopping keeps few features active.

    See Also
    --------
    CometMetric : all features, with an optional sparsity penalty.

    References
    ----------
    Liu, Bellet and Sha, Similarity learning for high-dimensional sparse data, AISTATS (2015).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from problems.metric import HdslMetric
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = HdslMetric(max_iter=200, n_triplets=500, random_state=0)
    >>> model = make_pipeline(StandardScaler(), metric, KNeighborsClassifier())
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    """

    ranks_by = "similarity"
    scale: Annotated[float | None, optional(bounded(number, above=0))] = None
    _: KW_ONLY
    max_iter: Annotated[int, kept_count] = 8000

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        rows = as_rows(X, "X")
        d = rows.shape[1]
        if d < 2:
            raise InvalidInputError(
                f"HDSL moves pairs of features: it needs 2 features or more, got {d} feature(s)."
            )
        samples = samples_of(rows, triplets, bool(rows.nnz > DENSE_SHARE * rows.shape[0] * d))
        draws = candidates(d, self.max_iter, seed)
        self.n_iter_ = len(draws)
        scale = natural_size(rows, 1000.0, 1) if self.scale is None else float(self.scale)
        return kernels.frank_wolfe(samples, d, draws, scale, RENEW_EVERY)


def candidates(d: int, max_iter: int, seed: int) -> Array:
    """Return the candidates of HDSL for i, one row per iteration."""
    return np.random.default_rng(seed).integers(d, size=(max_iter, min(N_CANDIDATES, d)))
