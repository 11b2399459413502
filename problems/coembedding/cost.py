"""The costs of co-embedding samples and their labels, linked objects, and users, items and tags."""

import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.coembedding import kernels
from problems.validation import array_of, table_of_labels, table_of_numbers
from rmopt.core import BlockDiagonal, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, number, numbers, one_of
from rmopt.core.matrices import index_rows
from rmopt.costs import LOSSES, EmbeddedCost, Grid, Pairs, PairwiseDistance

# Losses that are smooth and convex in the scores, as certificates and trust regions require.
SMOOTH = ("squared_hinge", "logistic")


class MultilabelCoembedding(PairwiseDistance):
    """Σₓ sftmax over the labels of x of h̃(d(x, y) − t(x)) + sftmax over the others of h̃(t(x) − d(x, ȳ)).

    Mirzazadeh et al. (2015), equation 13 without its trace term. d is the squared distance of the embeddings of a
    sample and a label, t(x) that of a sample and the embedded threshold; sftmax z = ln Σ exp z; a sample without
    labels, or with all, has only one term. The smooth hinge is h̃(z) = (2 + z)²/4 for −2 ≤ z ≤ 0, 0 below and 1 + z
    above. (The paper prints 0 ≤ z ≤ 2, for which h̃ would jump at 2 and not be smooth.)

    W = YYᵀ is p × p with p = n_features + n_labels + 1: features, labels, threshold.

    Parameters
    ----------
    X : array or sparse array, shape (n_samples, n_features)
    Y : array or sparse array, shape (n_samples, n_labels)
        1 or True for labels that apply.

    Raises
    ------
    InvalidInputError
        For values that are not finite, labels that are not 0 or 1, or numbers of rows that differ.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MultilabelCoembedding
    >>> loss = MultilabelCoembedding(np.eye(2), np.eye(2))
    >>> near = np.array([[1.0, -1.0, 1.0, -1.0, 0.0]]).T
    >>> loss.value(3.0 * near) < loss.value(0.0 * near)
    True
    """

    # The hinge is parabolic between −2 and 0 and straight elsewhere.
    smooth_slope = False

    def __init__(self, X: Any, Y: Any) -> None:
        X = table_of_numbers("X", X)
        self.labels = table_of_labels(Y, X.shape[0]).toarray().astype(np.int8)
        n, m = self.labels.shape
        own = sp.eye_array(m + 1, format="csr")
        features = BlockDiagonal([X.shape, own.shape], {0: X, 1: own})
        super().__init__(features, Grid(range(n), range(n, n + m + 1)))
        counts = self.labels.sum(axis=1)
        both = np.concatenate([counts, m - counts])
        # The soft maximum of k values that are at least 0 is at least ln k.
        self.lower_bound = float(np.log(both[both > 0]).sum())

    def loss(self, distances: Array) -> tuple[float, Array]:
        return kernels.multilabel_loss(distances, self.labels)

    def curvature(self, distances: Array, change: Array) -> Array:
        return kernels.multilabel_curvature(distances, self.labels, np.ascontiguousarray(change))


class OneVsRestCoembedding(MultilabelCoembedding):
    """Σₓ Σ_y w_y φ(±(t(x) − d(x, y))), with + if the label y applies to x: each label is decided separately.

    `MultilabelCoembedding` with our own loss: the former compares the labels of a sample, this one each label with
    the threshold, like a linear classifier for each label. The weights are larger for rare labels, w_y = √((1 + maxᵤ
    n_u) / (1 + n_y)) if n_y samples have the label y.

    Parameters
    ----------
    X, Y : array or sparse array
        See `MultilabelCoembedding`.
    loss : {"squared_hinge", "logistic"}
        φ.

    Raises
    ------
    InvalidInputError
        As for `MultilabelCoembedding`, and for an unknown loss.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import OneVsRestCoembedding
    >>> loss = OneVsRestCoembedding(np.eye(2), np.eye(2))
    >>> near = np.array([[1.0, -1.0, 1.0, -1.0, 0.0]]).T
    >>> loss.value(near) < loss.value(0.0 * near)
    True
    """

    def __init__(self, X: Any, Y: Any, loss: str = "squared_hinge") -> None:
        super().__init__(X, Y)
        self.of_scores = LOSSES[one_of("loss", loss, SMOOTH)]
        self.smooth_slope = loss != "squared_hinge"
        self.lower_bound = 0.0
        counts = 1.0 + self.labels.sum(axis=0)
        self.label_weights = np.sqrt(counts.max() / counts)
        self.signs = 2.0 * self.labels - 1.0

    def loss(self, distances: Array) -> tuple[float, Array]:
        scores = distances[:, -1:] - distances[:, :-1]
        value = float(self.of_scores.values(scores, self.signs).sum(axis=0) @ self.label_weights)
        return value, self._returned(self.of_scores.slopes(scores, self.signs))

    def curvature(self, distances: Array, change: Array) -> Array:
        scores, moved = (one[:, -1:] - one[:, :-1] for one in (distances, change))
        return self._returned(self.of_scores.curvatures(scores, self.signs) * moved)

    def _returned(self, slopes: Array) -> Array:
        """Return the slopes of the distances to labels and threshold, given those of the unweighted scores."""
        slopes *= self.label_weights
        return np.column_stack([-slopes, slopes.sum(axis=1)])


def smooth_hinge(z: Array) -> tuple[Array, Array, Array]:
    """Return h̃(z) (see `MultilabelCoembedding`), its slope, and its curvature, which jumps at −2 and 0."""
    slope = np.clip(0.5 * (2.0 + z), 0.0, 1.0)
    return np.where(z > 0.0, 1.0 + z, slope**2), slope, np.where((z > -2.0) & (z < 0.0), 0.5, 0.0)


class LinkPrediction(PairwiseDistance):
    """A loss of the scores min(t(x), t(y)) − d(x, y) of pairs, which are positive for a link.

    Mirzazadeh et al. (2015), section 3, predict links by the sign of the score, with t(x) the squared distance of x
    and an embedded threshold. They print no loss. Here a link costs ln(exp h̃(d − t(x)) + exp h̃(d − t(y))), the soft
    maximum of the smooth hinges to both thresholds as in their equation 13. For a pair without a link, h̃(min(t(x),
    t(y)) − d) is not convex. It costs h̃(½ t(x) + ½ t(y) − d), which is convex and no smaller.

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
        If the parts do not match, or an object is paired with itself.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import LinkPrediction
    >>> loss = LinkPrediction(np.eye(4), [[0, 1], [2, 3], [0, 2]], [1, 1, 0])
    >>> near = np.array([[1.0, 1.0, -1.0, -1.0, 0.0]]).T
    >>> loss.value(3.0 * near) < loss.value(0.0 * near)
    True
    """

    # The hinge is parabolic between −2 and 0 and straight elsewhere.
    smooth_slope = False

    def __init__(self, X: Any, pairs: Any, linked: Any) -> None:
        X = table_of_numbers("X", X)
        n = X.shape[0]
        left, right = index_rows("pairs of rows of X", array_of("pairs", pairs), (n, n)).T
        linked = numbers("linked", array_of("linked", linked), left.shape)
        if np.any(left == right) or not np.isin(linked, (0, 1)).all():
            raise InvalidInputError("a pair needs two different objects, and linked must hold only 0 and 1.")
        self.linked = linked.astype(bool)
        threshold = np.full(len(left), n)
        # Distances of the pairs, then those of the left and of the right objects to the threshold.
        ends = np.concatenate([left, left, right]), np.concatenate([right, threshold, threshold])
        features = BlockDiagonal([X.shape, (1, 1)], {0: X, 1: np.ones((1, 1))})
        super().__init__(features, Pairs(*ends, n + 1))
        self.lower_bound = float(self.linked.sum() * np.log(2.0))

    def _margins(self, distances: Array) -> tuple[Array, Array, Array]:
        """Return d − t(x) and d − t(y) of the links, and ½ t(x) + ½ t(y) − d of the others."""
        d, t, s = distances.reshape(3, -1)
        return (d - t)[self.linked], (d - s)[self.linked], (0.5 * (t + s) - d)[~self.linked]

    def _returned(self, first: Array, second: Array, others: Array) -> Array:
        """Return the adjoint of `_margins`."""
        out = np.zeros((3, len(self.linked)))
        out[0, self.linked], out[1, self.linked], out[2, self.linked] = first + second, -first, -second
        out[0, ~self.linked], out[1, ~self.linked], out[2, ~self.linked] = -others, 0.5 * others, 0.5 * others
        return out.ravel()

    def loss(self, distances: Array) -> tuple[float, Array]:
        (a, slope_a, _), (b, slope_b, _), (c, slope_c, _) = map(smooth_hinge, self._margins(distances))
        both = np.logaddexp(a, b)
        share = np.exp(a - both)
        return float(both.sum() + c.sum()), self._returned(share * slope_a, (1.0 - share) * slope_b, slope_c)

    def curvature(self, distances: Array, change: Array) -> Array:
        (a, slope_a, bent_a), (b, slope_b, bent_b), (*_, bent_c) = map(smooth_hinge, self._margins(distances))
        da, db, dc = self._margins(change)
        share = np.exp(a - np.logaddexp(a, b))
        shift = share * (1.0 - share) * (slope_a * da - slope_b * db)
        return self._returned(
            shift * slope_a + share * bent_a * da, -shift * slope_b + (1.0 - share) * bent_b * db, bent_c * dc
        )


class LargeMarginNeighbors(PairwiseDistance):
    """Σ d(q, p) over the pairs (q, p) of the triplets + Σ h(1 + d(q, p) − d(q, n)) over the triplets (q, p, n).

    Large margin nearest neighbours, as Mirzazadeh et al. (2015), section 2, have it, without its regulariser: rows q
    should be near to p, and farther from n by a margin of 1. W = YYᵀ is p × p with p = n_features. The hinge of the
    paper, h(z) = max(z, 0), is rounded between −s and s, where it is (z + s)²/(4s), so that the cost is smooth and
    its minimum can be certified. `hinge_gap` completes the certificate to one for the hinge itself.

    Parameters
    ----------
    X : array or sparse array, shape (n_samples, n_features)
    triplets : int array, shape (N, 3)
        Numbers of rows: query, positive, negative; for example ``NeighborTriplets(X, y, 3, len(X)).every()``.
    smoothing : float
        s.

    Raises
    ------
    InvalidInputError
        When triplets are no numbers of rows, or s is not positive.

    See Also
    --------
    rmopt.solvers.RankIncremental : minimises the cost, added to `rmopt.costs.Trace`, to a certified minimum.

    References
    ----------
    Weinberger and Saul, Distance metric learning for large margin nearest neighbor classification, JMLR 10 (2009),
    https://jmlr.org/papers/v10/weinberger09a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import LargeMarginNeighbors
    >>> loss = LargeMarginNeighbors(
    ...     np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), [[0, 1, 2]]
    ... )
    >>> loss.value(np.array([[2.0], [0.0]])) < loss.value(np.array([[0.0], [2.0]]))
    True
    """

    # The rounded hinge is parabolic between −s and s and straight elsewhere.
    smooth_slope = False
    lower_bound = 0.0

    def __init__(self, X: Any, triplets: Any, smoothing: float = 0.1) -> None:
        X, self.smoothing = table_of_numbers("X", X), number("smoothing", smoothing, above=0)
        n = X.shape[0]
        query, positive, negative = index_rows("triplets", array("triplets", triplets), (n, n, n)).T
        pairs, places = np.unique(
            np.concatenate([query * n + positive, query * n + negative]), return_inverse=True
        )
        self.near, self.far = places.reshape(2, -1)
        self.pull = np.zeros(len(pairs))
        self.pull[self.near] = 1.0
        super().__init__(X, Pairs(*np.divmod(pairs, n), n))

    def _hinges(self, distances: Array) -> tuple[Array, Array, Array, Array]:
        """Return z of the triplets, and the values, slopes and curvatures of their rounded hinges."""
        z, s = 1.0 + distances[self.near] - distances[self.far], self.smoothing
        values, slopes, bent = smooth_hinge(z / s - 1.0)
        return z, s * values, slopes, bent / s

    def _returned(self, slopes: Array) -> Array:
        """Return the slopes of the distances, given those of the triplets."""
        near, far = (np.bincount(place, slopes, len(self.pull)) for place in (self.near, self.far))
        return near - far

    def loss(self, distances: Array) -> tuple[float, Array]:
        _, values, slopes, _ = self._hinges(distances)
        return float(self.pull @ distances + values.sum()), self.pull + self._returned(slopes)

    def curvature(self, distances: Array, change: Array) -> Array:
        return self._returned(self._hinges(distances)[-1] * (change[self.near] - change[self.far]))

    def hinge_gap(self, point: Any) -> float:
        """Return what to add to a certified gap, so that it bounds the distance to the minimum with the hinge itself.

        The slopes of the rounded hinges are multipliers of the dual problem of the hinge: every triplet adds
        max(z, 0) − z h′(z), at most s/8, and 0 where the hinge is not rounded.
        """
        Z = self.features @ point.factor()
        z, _, slopes, _ = self._hinges(self.measure(Z, Z))
        return float((np.maximum(z, 0.0) - z * slopes).sum())


class TagRanking(PairwiseDistance):
    """Σ over posts, their tags y and all other tags ȳ of ln(1 + exp(d(x, z, y) − d(x, z, ȳ))).

    Mirzazadeh et al. (2015), equation 14 without its trace term, with the logistic loss of Rendle and Schmidt-Thieme
    (2009); d(x, z, y) is the squared distance of the embeddings of user x and tag y plus that of item z and tag y.
    W = YYᵀ is p × p with p = n_users + n_items + n_tags.

    Parameters
    ----------
    triples : int array, shape (N, 3)
        Numbers of user, item and tag.
    counts : (int, int, int), optional
        Numbers of users, items and tags. Defaults to one more than the largest in `triples`.

    Raises
    ------
    InvalidInputError
        If the triples are not such a table, or every tag belongs to every post.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import TagRanking
    >>> cost = TagRanking([[0, 0, 0], [0, 1, 1], [1, 0, 0]])
    >>> bool(np.isclose(cost.value(np.zeros((6, 1))), 3 * np.log(2)))
    True
    """

    lower_bound = 0.0

    def __init__(self, triples: Any, counts: tuple[int, int, int] | None = None) -> None:
        bounds = (sys.maxsize,) * 3
        if counts is not None:
            bounds = tuple(index_rows("counts", [counts], bounds)[0].tolist())
        triples = index_rows("triples", triples, bounds)
        if not len(triples):
            raise InvalidInputError("triples must hold a tag of a user for an item; there is none.")
        self.counts = tuple((triples.max(axis=0) + 1).tolist()) if counts is None else bounds
        triples = np.unique(triples, axis=0)
        self.posts, sizes = np.unique(triples[:, :2], axis=0, return_counts=True)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        # Sorted by user, item and tag, so that those of a post are contiguous.
        self.tags = np.ascontiguousarray(triples[:, 2])
        if sizes.min() == self.counts[2]:
            raise InvalidInputError("every post has every tag, so there is nothing to rank; give more tags.")
        n_users, n_items, n_tags = self.counts
        self._posts, n = (self.posts, n_users, self.starts, self.tags), n_users + n_items
        super().__init__(sp.eye_array(n + n_tags, format="csr"), Grid(range(n), range(n, n + n_tags)))

    def loss(self, distances: Array) -> tuple[float, Array]:
        return kernels.ranking_loss(distances, row_odds(distances), *self._posts)

    def curvature(self, distances: Array, change: Array) -> Array:
        odds = row_odds(distances)
        return kernels.ranking_curvature(distances, odds, *self._posts, np.ascontiguousarray(change))


def row_odds(distances: Array) -> tuple[Array, Array, Array]:
    """Return exp(least − d) for the entries of each row, the least entries, and the ranges of the rows."""
    least = distances.min(axis=1)
    return np.exp(least[:, None] - distances), least, distances.max(axis=1) - least


class MetricRegression(EmbeddedCost):
    """‖XᵀX − XᵀWX‖² (Mirzazadeh et al. 2015, equation 12 without its trace term).

    With more samples than features, X is replaced by the triangle R of Xᵀ = QR: RᵀR = XXᵀ, and the norms are the
    same, so that only n × min(n, t) numbers are needed.

    Parameters
    ----------
    X : array or sparse array, shape (n_features, n_samples)

    Raises
    ------
    InvalidInputError
        If X is not a table of finite numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> X = np.random.default_rng(0).standard_normal((3, 20))
    >>> cost = MetricRegression(X)
    >>> cost.value(np.eye(3)) < 1e-12
    True
    >>> bool(np.isclose(cost.value(np.zeros((3, 1))), np.linalg.norm(X.T @ X) ** 2))
    True
    """

    lower_bound = 0.0

    def __init__(self, X: Any) -> None:
        X = table_of_numbers("X", X, sparse=False)
        n, t = X.shape
        self.features = np.linalg.qr(X.T, mode="r") if t > n else np.ascontiguousarray(X.T)
        self.target = self.features @ self.features.T

    def measure(self, A: Array, B: Array) -> Array:
        """Return the symmetric part of ABᵀ: all inner products of samples."""
        product = A @ B.T
        return product if B is A else 0.5 * (product + product.T)

    def spread(self, slopes: Array, Z: Array) -> Array:
        return slopes @ Z

    def loss(self, measurements: Array) -> tuple[float, Array]:
        """Return the squared distance to the inner products without the metric."""
        residual = measurements - self.target
        return float(np.vdot(residual, residual)), 2.0 * residual

    def curvature(self, measurements: Array, change: Array) -> Array:
        return 2.0 * change

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Return the eigenvectors of FᵀF with nonzero eigenvalues, and these."""
        _, lengths, directions = np.linalg.svd(self.features, full_matrices=False)
        return directions.T, lengths**2

    def preconditioner(self, Y: Array, floor: float = 0.0) -> Callable[[Array], Array] | None:
        """Return the inverse of D ↦ 4 FᵀF D (YᵀFᵀF Y) + C D, with C curving D alone, by eigenvectors of FᵀF.

        If W commutes with FᵀF, as the minimum does, all curvature that moves W is this one or twice this one.
        """
        if not Y.shape[1]:
            return None
        U, a = self._spectrum
        inside = U.T @ Y
        b, Q = np.linalg.eigh(inside.T @ (a[:, None] * inside))
        alone = np.maximum(floor - 4.0 * a**2 * (1.0 - (inside**2).sum(axis=1)), 0.0)
        bends = 4.0 * np.outer(a, np.maximum(b, 0.0)) + alone[:, None]
        least = 1e-14 * float(bends.max())
        # The kernel of F, and its difference from its value as a part of the rest.
        blind = 1.0 / max(floor, least) if len(a) < len(Y) else 0.0
        sees = 1.0 / np.maximum(bends, least) - blind

        def precondition(V: Array) -> Array:
            return U @ ((U.T @ V @ Q * sees) @ Q.T) + blind * V

        return precondition


def closed_form(X: Array, beta: float) -> tuple[Array, float]:
    """Return the minimiser of ‖XᵀX − XᵀWX‖² + β tr W for X of full rank, and the minimum.

    With X = U S Vᵀ it is U diag(max(0, 1 − β/(2 sᵢ⁴))) Uᵀ, an oracle for tests.
    """
    U, s, _ = np.linalg.svd(np.asarray(X, dtype=float), full_matrices=False)
    kept = np.maximum(0.0, 1.0 - beta / (2.0 * s**4))
    value = float(np.sum((s**2 * (1.0 - kept)) ** 2) + beta * kept.sum())
    return (U * kept) @ U.T, value
