"""The cost of predicting links of an undirected graph, and its estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from problems.coembedding.certified import CertifiedEmbedder
from problems.door import admit, array_of, finite, in_range, seedable, table_of_numbers
from rmopt.core import BlockDiagonal, InvalidInputError
from rmopt.core.arguments import Check, bounded, check_parameters, number
from rmopt.core.matrices import sound
from rmopt.core.streams import seed_of
from rmopt.costs import Pairs, PairwiseDistance
from rmopt.engines.threads import one_blas_thread

Array = np.ndarray


def smooth_hinge(z: Array) -> Array:
    """Return (2 + z)²/4 for −2 ≤ z ≤ 0, 0 below and 1 + z above (Mirzazadeh et al. 2015, corrected)."""
    return np.where(z > 0.0, 1.0 + z, 0.25 * np.maximum(2.0 + z, 0.0) ** 2)


def smooth_hinge_slope(z: Array) -> Array:
    """Return its derivative."""
    return np.clip(0.5 * (2.0 + z), 0.0, 1.0)


def smooth_hinge_curvature(z: Array) -> Array:
    """Return its second derivative, which jumps at −2 and 0."""
    return np.where((z > -2.0) & (z < 0.0), 0.5, 0.0)


class LinkPrediction(PairwiseDistance):
    """A loss of the scores min(t(x), t(y)) − d(x, y) of pairs, which are positive for a link.

    Mirzazadeh et al. (2015), section 3, predict links by the sign of the score, with t(x) the squared distance of x
    and an embedded threshold; they print no loss. Here a link costs ln(exp h̃(d − t(x)) + exp h̃(d − t(y))), the soft
    maximum of the smooth hinges to both thresholds as in their equation 13. For a pair without a link,
    h̃(min(t(x), t(y)) − d) is not convex; it costs h̃(½ t(x) + ½ t(y) − d), which is convex and no smaller.

    W = YYᵀ is p × p with p = n_features + 1: features and threshold.

    Parameters
    ----------
    X : array or sparse array, shape (n_objects, n_features)
    pairs : int array, shape (n_pairs, 2)
        Numbers of two different objects.
    linked : array, shape (n_pairs,)
        True or 1 for a link.

    Raises
    ------
    InvalidInputError
        When the parts do not belong together, or an object is paired with itself.
    """

    # The hinge is parabolic between −2 and 0 and straight elsewhere.
    smooth_slope = False

    def __init__(self, X: Any, pairs: Any, linked: Any) -> None:
        X, pairs, linked = table_of_numbers("X", X), array_of("pairs", pairs), array_of("linked", linked)
        if pairs.ndim != 2 or pairs.shape[1:] != (2,) or linked.shape != (len(pairs),):
            raise InvalidInputError(
                f"pairs must have two columns and linked one number for each row, got shapes {pairs.shape}, "
                f"{linked.shape}."
            )
        if (pairs[:, 0] == pairs[:, 1]).any() or not np.isin(linked, (0, 1)).all():
            raise InvalidInputError("a pair needs two different objects, and linked must hold only 0 and 1.")
        n = X.shape[0]
        self.linked = linked.astype(bool)
        self.n_pairs = len(pairs)
        threshold = np.full(self.n_pairs, n)
        # Distances of the pairs, then those of the left and of the right objects to the threshold.
        left, right = (
            np.concatenate(part) for part in ((pairs[:, 0], *pairs.T), (pairs[:, 1], threshold, threshold))
        )
        Pairs(pairs[:, 0], pairs[:, 1], n)
        features = BlockDiagonal([X.shape, (1, 1)], {0: X, 1: np.ones((1, 1))})
        super().__init__(features, Pairs(left, right, n + 1))
        self.lower_bound = float(self.linked.sum() * np.log(2.0))

    def _margins(self, distances: Array) -> tuple[Array, Array, Array]:
        """Return d − t(x) and d − t(y) of the links, and ½ t(x) + ½ t(y) − d of the others."""
        d, t, s = distances.reshape(3, self.n_pairs)
        return (d - t)[self.linked], (d - s)[self.linked], (0.5 * (t + s) - d)[~self.linked]

    def _returned(self, first: Array, second: Array, others: Array) -> Array:
        """Return the adjoint of `_margins`."""
        out = np.zeros((3, self.n_pairs))
        out[0, self.linked], out[1, self.linked], out[2, self.linked] = first + second, -first, -second
        out[0, ~self.linked], out[1, ~self.linked], out[2, ~self.linked] = -others, 0.5 * others, 0.5 * others
        return out.ravel()

    def loss(self, distances: Array) -> tuple[float, Array]:
        """Return the loss of all pairs, and its slopes."""
        a, b, c = self._margins(distances)
        both = np.logaddexp(smooth_hinge(a), smooth_hinge(b))
        share = np.exp(smooth_hinge(a) - both)
        slopes = share * smooth_hinge_slope(a), (1.0 - share) * smooth_hinge_slope(b), smooth_hinge_slope(c)
        return float(both.sum() + smooth_hinge(c).sum()), self._returned(*slopes)

    def curvature(self, distances: Array, change: Array) -> Array:
        a, b, c = self._margins(distances)
        da, db, dc = self._margins(change)
        share = np.exp(smooth_hinge(a) - np.logaddexp(smooth_hinge(a), smooth_hinge(b)))
        slope_a, slope_b = smooth_hinge_slope(a), smooth_hinge_slope(b)
        shift = share * (1.0 - share) * (slope_a * da - slope_b * db)
        return self._returned(
            shift * slope_a + share * smooth_hinge_curvature(a) * da,
            -shift * slope_b + (1.0 - share) * smooth_hinge_curvature(b) * db,
            smooth_hinge_curvature(c) * dc,
        )


@dataclass(eq=False, repr=False)
class LinkPredictor(CertifiedEmbedder):
    """Objects in a Euclidean space: two are linked when they are nearer to each other than to the threshold.

    Mirzazadeh et al. (2015), section 3, with the convex loss of `LinkPrediction`, minimised by `RankIncremental`.

    Parameters
    ----------
    beta : float
        Weight of the trace.
    growth, max_rank, tol, verbose : optional
        As in `CoembeddingClassifier`.
    negatives : float
        Pairs without a link that are drawn for each link where `fit` gets a graph.
    random_state : int, RandomState or None
        Of the drawn pairs.

    Attributes
    ----------
    components_ : array, shape (rank, n_features)
    threshold_embedding_ : array, shape (rank,)
    rank_, n_iter_, objective_, gap_, is_global_, history_
        See `CoembeddingClassifier`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((80, 5))
    >>> near = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.5
    >>> model = LinkPredictor(beta=0.5, random_state=0).fit(X, near & ~np.eye(80, dtype=bool))
    >>> pairs = np.argwhere(np.triu(np.ones((80, 80)), 1))
    >>> model.score(X, near[tuple(pairs.T)], pairs=pairs) > 0.9
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        **CertifiedEmbedder._parameters,
        "negatives": bounded(number, above=0),
        "random_state": seedable,
    }

    beta: float = 1.0
    _: KW_ONLY
    negatives: float = 2.0
    random_state: Any = None

    @one_blas_thread()
    def fit(self, X: Any, links: Any) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array or sparse array, shape (n_objects, n_features)
        links : array or sparse array, shape (n_objects, n_objects), or a pair of arrays
            The symmetric table of links, of which pairs without a link are drawn; or ``(pairs, linked)``, integers of
            shape (n_pairs, 2) and 0 or 1 for each.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        X = admit(self, X)
        known = isinstance(links, tuple) and len(links) == 2
        pairs, linked = links if known else self._drawn(links, X.shape[0])
        Y = self.minimised(LinkPrediction(in_range(X), pairs, linked), self.beta)
        self.components_, self.threshold_embedding_ = np.ascontiguousarray(Y[:-1].T), Y[-1]
        return self

    def _drawn(self, graph: Any, n: int) -> tuple[Array, Array]:
        """Return all links of a graph, and as many random pairs without a link as wanted."""
        graph = sound("links", graph) if sp.issparse(graph) else array_of("links", graph)
        numbers = graph.dtype.kind in "biuf" and graph.shape == (n, n)
        table = sp.csr_array(graph, dtype=bool) if numbers and not np.isnan(graph.sum()) else None
        if table is None or (table != table.T).nnz:
            raise InvalidInputError(
                f"links must be a symmetric {n} × {n} table of numbers, or a tuple (pairs, linked); got "
                f"{graph.dtype} of shape {graph.shape}."
            )
        upper = sp.triu(table, 1).tocoo()
        there = set((upper.row.astype(np.int64) * n + upper.col).tolist())
        if not there or len(there) == n * (n - 1) // 2:
            raise InvalidInputError(
                "links must have some pairs with a link and some without; a graph has both."
            )
        rng = np.random.default_rng(seed_of(self.random_state))
        wanted = min(round(self.negatives * len(there)), n * (n - 1) // 2 - len(there))
        drawn: set[int] = set()
        while len(drawn) < wanted:
            i, j = np.sort(rng.integers(n, size=(2, 2 * wanted)), axis=0)
            for key in (i * n + j)[i < j].tolist():
                if key not in there and len(drawn) < wanted:
                    drawn.add(key)
        keys = np.array(sorted(there) + sorted(drawn))
        return np.column_stack(np.divmod(keys, n)), np.arange(len(keys)) < len(there)

    def decision_function(self, X: Any, pairs: Any) -> Array:
        """Return min(t(x), t(y)) − d(x, y) for pairs of rows of X, shape (n_pairs,); positive for a link."""
        Z, pairs = self._embedded(X), array_of("pairs", pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
            raise InvalidInputError(f"pairs must be integers with two columns, got shape {pairs.shape}.")
        if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(Z)):
            raise InvalidInputError(f"pairs must name rows of X, from 0 to {len(Z) - 1}.")
        x, y = pairs.T
        with np.errstate(all="ignore"):
            thresholds = ((Z - self.threshold_embedding_) ** 2).sum(axis=1)
            return finite(np.minimum(thresholds[x], thresholds[y]) - ((Z[x] - Z[y]) ** 2).sum(axis=1))

    def predict(self, X: Any, pairs: Any) -> Array:
        """Return 1 for pairs that are linked, else 0."""
        return (self.decision_function(X, pairs) > 0.0).astype(int)

    def score(self, X: Any, linked: Any, pairs: Any) -> float:
        """Return the area under the receiver operating characteristic of the scores of pairs."""
        scores, linked = self.decision_function(X, pairs), array_of("linked", linked)
        if linked.shape != scores.shape or set(linked.tolist()) != {0, 1}:
            raise InvalidInputError(
                f"linked must hold 0 and 1, both, one for each of {len(scores)} pairs, got shape {linked.shape}."
            )
        return float(roc_auc_score(linked, scores))
