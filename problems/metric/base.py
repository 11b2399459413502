"""What every learned Mahalanobis metric offers, in scikit-learn's and metric-learn's words."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Self

import numpy as np
from scipy.linalg import LinAlgError
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from problems.door import (
    Embedder,
    admit,
    begin,
    finite,
    kept_count,
    labelled,
    near_zero,
    product,
    seedable,
    seen,
)
from problems.triplets import ClassTriplets, NeighborTriplets
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import Checked, array, bounded, one_of, optional
from rmopt.core.streams import Stream, generator
from rmopt.costs.bilinear import checked_triplets
from rmopt.solvers import Sampler
from rmopt.solvers.threads import one_blas_thread

TRIPLETS_PER_ROW = 20
TRIPLETS = ("random", "neighbors")


class MahalanobisMetric(Checked, Embedder, BaseEstimator):
    """A metric (x − z)ᵀ W (x − z); a subclass sets `mahalanobis_` = W and `components_` = L with W = LᵀL."""

    mahalanobis_: Array
    # Whether `fit` learns, and so needs classes.
    learns = True
    # What the cost speaks of: "similarity", qᵀWp, or "distance", (q − p)ᵀW(q − p).
    ranks_by = "distance"

    def transform(self, X: Any) -> Array:
        """Return X Lᵀ with W = LᵀL: there, the Euclidean distance is the learned metric."""
        return product(seen(self, X, "components_"), self.components_.T)

    def pair_distance(self, pairs: Any) -> Array:
        """Return the learned distance of each pair.

        Parameters
        ----------
        pairs : array, shape (n_pairs, 2, n_features)

        Returns
        -------
        array, shape (n_pairs,)
        """
        check_is_fitted(self, "components_")
        pairs, n = array("pairs", pairs), self.components_.shape[1]
        if pairs.shape[1:] != (2, n) or pairs.dtype.kind not in "biuf" or not np.isfinite(pairs).all():
            raise InvalidInputError(
                f"pairs must be finite numbers of shape (n_pairs, 2, {n}), got {pairs.dtype} of {pairs.shape}."
            )
        with np.errstate(all="ignore"):
            moved = product(pairs[:, 0].astype(float) - pairs[:, 1], self.components_.T)
            return finite(np.linalg.norm(moved, axis=1))

    def pair_score(self, pairs: Any) -> Array:
        """Return minus the learned distance of each pair: higher means more similar."""
        return -self.pair_distance(pairs)

    def get_mahalanobis_matrix(self) -> Array:
        """Return a copy of W, of shape (n_features, n_features)."""
        check_is_fitted(self, "components_")
        return self.mahalanobis_.copy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.target_tags.required = True, self.learns
        return tags


class TripletLearner(MahalanobisMetric):
    """A metric learned from triplets, or from classes of which triplets are drawn; a subclass has parameters."""

    n_triplets: Annotated[int | None, optional(kept_count)]
    triplets: Annotated[str, bounded(one_of, TRIPLETS)] = "random"
    random_state: Annotated[Any, seedable]
    # How often `fit` draws triplets and learns.
    n_rounds = 1
    n_iter_: int

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

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from class labels: rows of one class are closer than rows of different ones.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        """
        seed = begin(self)
        X, y = labelled(self, X, y, ensure_min_samples=3)
        count = TRIPLETS_PER_ROW * len(y) if self.n_triplets is None else int(self.n_triplets)
        rng, sampler = generator(seed, Stream.TRIPLETS), self.sampler(X, y)
        self.classes_ = np.unique(y)
        self._finish(X, sampler.draw(rng, 0, count), seed)
        for _ in range(1, self.n_rounds):
            done, nearer = self.n_iter_, NeighborTriplets(product(near_zero(X), self.components_.T), y)
            self._finish(X, nearer.draw(rng, 0, count), seed, start=self.mahalanobis_)
            self.n_iter_ += done
        return self

    def sampler(self, X: Any, y: Any) -> Sampler:
        """Return what draws the triplets of `fit`."""
        return ClassTriplets(y) if self.triplets == "random" else NeighborTriplets(X, y)

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
            raise InvalidInputError(
                "the learned metric is not finite; scale X, for example to rows of length 1."
            )
        self.mahalanobis_ = W
        self.components_ = factor(self.mahalanobis_)
        return self


def factor(W: Array) -> Array:
    """Return L with W = LᵀL: the transposed Cholesky factor, or for a singular W the scaled eigenvectors."""
    try:
        return np.linalg.cholesky(W).T.copy()
    except LinAlgError:
        values, vectors = np.linalg.eigh(W)
        return (vectors * np.sqrt(np.maximum(values, 0.0))).T
