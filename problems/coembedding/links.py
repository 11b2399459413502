"""Prediction of the links of an undirected graph, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from problems.coembedding.cost import LinkPrediction
from problems.coembedding.training import CertifiedEmbedder, weight
from problems.door import admit, array_of, finite, in_range, one_each, seedable
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, check_parameters, number
from rmopt.core.matrices import sound
from rmopt.core.streams import seed_of
from rmopt.solvers.threads import one_blas_thread


@dataclass(eq=False, repr=False)
class LinkPredictor(CertifiedEmbedder):
    """Objects in a Euclidean space: two are linked when they are nearer to each other than to the threshold.

    Mirzazadeh et al. (2015), section 3, with the convex loss of `LinkPrediction`, minimised by `RankIncremental`.

    Parameters
    ----------
    beta : float
        Weight of the trace; the loss is a sum over pairs, so that more of them bear a larger one.
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

    See Also
    --------
    CoembeddingClassifier : links between samples and labels.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import LinkPredictor
    >>> X = np.random.default_rng(0).standard_normal((40, 4))
    >>> near = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.5
    >>> graph = near & ~np.eye(40, dtype=bool)
    >>> model = LinkPredictor(beta=0.5, random_state=0).fit(X, graph)
    >>> pairs = np.argwhere(np.triu(np.ones((40, 40)), 1))
    >>> model.score(X, near[tuple(pairs.T)], pairs=pairs) > 0.9
    True
    """

    beta: Annotated[float, weight] = 1.0
    _: KW_ONLY
    negatives: Annotated[float, bounded(number, above=0)] = 2.0
    random_state: Annotated[Any, seedable] = None

    @one_blas_thread()
    def fit(self, X: Any, links: Any) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array or sparse array, shape (n_objects, n_features)
        links : array or sparse array, shape (n_objects, n_objects), or a pair of arrays
            The symmetric table of links, numbers above 0, of which pairs without a link are drawn; or ``(pairs,
            linked)``, integers of shape (n_pairs, 2) and 0 or 1 for each.
        """
        check_parameters(self, self._parameters)
        X = admit(self, X)
        known = isinstance(links, tuple) and len(links) == 2
        pairs, linked = links if known else self._drawn(links, X.shape[0])
        Y = self._minimised(LinkPrediction(in_range(X), pairs, linked), self.beta)
        self.components_, self.threshold_embedding_ = np.ascontiguousarray(Y[:-1].T), Y[-1]
        return self

    def _drawn(self, graph: Any, n: int) -> tuple[Array, Array]:
        """Return all links of a graph, and as many random pairs without a link as wanted."""
        graph = sound("links", graph) if sp.issparse(graph) else array_of("links", graph)
        given = sp.csr_array(graph) if graph.dtype.kind in "biuf" and graph.shape == (n, n) else None
        # Of NaN this is not so either.
        table = given.astype(bool) if given is not None and given.data.min(initial=0) >= 0 else None
        if table is None or (table != table.T).nnz:
            raise InvalidInputError(
                f"links must be a symmetric {n} × {n} table of numbers from 0, or a tuple (pairs, linked); got "
                f"{graph.dtype} of shape {graph.shape}."
            )
        table.eliminate_zeros()
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
        scores, linked = self.decision_function(X, pairs), one_each("linked", linked)
        both = np.isin(linked, (0, 1)).all() and np.isin((0, 1), linked).all()
        if linked.shape != scores.shape or not both:
            raise InvalidInputError(
                f"linked must hold 0 and 1, both, one for each of {len(scores)} pairs, got shape {linked.shape}."
            )
        return float(roc_auc_score(linked, scores))
