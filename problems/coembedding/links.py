"""Co-embeddings as scikit-learn estimators for links of a graph, and for tags, which link users and items."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted, validate_data

from problems.coembedding import kernels
from problems.coembedding.cost import LinkPrediction, TagRanking
from problems.coembedding.estimators import Certified, CertifiedEmbedder, gap, weight
from problems.rows import check_learned, finite, in_range
from problems.validation import (
    Estimator,
    admit,
    array_of,
    column_of_names,
    count,
    kept_count,
    positions,
    seedable,
    table_of_numbers,
    two_columns,
)
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, check_parameters, number, numbers
from rmopt.core.matrices import index_rows
from rmopt.core.streams import seed_of
from rmopt.solvers.threads import one_blas_thread

# The number of pairs without a link drawn for each link of a graph.
NEGATIVES = 2


@dataclass(eq=False, repr=False)
class LinkPredictor(CertifiedEmbedder):
    """Objects in a Euclidean space: two are linked if they are nearer to each other than to the threshold.

    Mirzazadeh et al. (2015), section 3, with the convex loss of `LinkPrediction`, minimised by `RankIncremental`.

    Parameters
    ----------
    beta : float
        Weight of the trace. The loss is a sum over pairs, so more pairs allow a larger one.
    max_rank, tol, verbose : optional
        As in `CoembeddingClassifier`.
    random_state : int, RandomState or None
        The source of the pairs without a link, two for each link, if `fit` gets a graph.

    Attributes
    ----------
    components_ : array, shape (rank, n_features)
    threshold_embedding_ : array, shape (rank,)
    rank_, n_iter_, objective_, gap_, is_global_, history_
        See `CoembeddingClassifier`.

    See Also
    --------
    CoembeddingClassifier : links between samples and labels.

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
    random_state: Annotated[Any, seedable] = None

    @one_blas_thread()
    def fit(self, X: Any, links: Any) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array or sparse array, shape (n_objects, n_features)
        links : array or sparse array, shape (n_objects, n_objects), or a pair of arrays
            The symmetric table of links, numbers above 0, from which pairs without a link are drawn, or ``(pairs,
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
        """Return all links of a graph, and random pairs without a link."""
        table = sp.csr_array(table_of_numbers("links", graph))
        if table.shape != (n, n) or table.data.min(initial=0.0) < 0.0 or ((table > 0) != (table > 0).T).nnz:
            raise InvalidInputError(
                f"links must be a symmetric {n} × {n} table of numbers from 0, or a tuple (pairs, linked); got "
                f"shape {table.shape}."
            )
        upper = sp.triu(table > 0, 1).tocoo()
        there, possible = np.unique(upper.row.astype(np.int64) * n + upper.col), n * (n - 1) // 2
        if not 0 < len(there) < possible:
            raise InvalidInputError("links must have some pairs with a link, some without; a graph has both.")
        rng = np.random.default_rng(seed_of(self.random_state))
        wanted = min(NEGATIVES * len(there), possible - len(there))
        others = np.empty(0, dtype=np.int64)
        while len(others) < wanted:
            i, j = np.sort(rng.integers(n, size=(2, 2 * wanted)), axis=0)
            others = np.setdiff1d(np.append(others, (i * n + j)[i < j]), there)
        keys = np.append(there, rng.permutation(others)[:wanted])
        return np.column_stack(np.divmod(keys, n)), np.arange(len(keys)) < len(there)

    def decision_function(self, X: Any, pairs: Any) -> Array:
        """Return min(t(x), t(y)) − d(x, y) for pairs of rows of X, shape (n_pairs,), positive for a link."""
        Z = self._embedded(X)
        x, y = index_rows("pairs of rows of X", array_of("pairs", pairs), (len(Z), len(Z))).T
        with np.errstate(all="ignore"):
            thresholds = ((Z - self.threshold_embedding_) ** 2).sum(axis=1)
            return finite(np.minimum(thresholds[x], thresholds[y]) - ((Z[x] - Z[y]) ** 2).sum(axis=1))

    def predict(self, X: Any, pairs: Any) -> Array:
        """Return 1 for linked pairs and 0 for others."""
        return (self.decision_function(X, pairs) > 0.0).astype(int)

    def score(self, X: Any, linked: Any, pairs: Any) -> float:
        """Return the area under the receiver operating characteristic of the scores of pairs."""
        scores = self.decision_function(X, pairs)
        linked = numbers("linked", linked, scores.shape)
        if len(np.unique(linked)) < 2:
            raise InvalidInputError("linked must have pairs of both kinds, or no area is defined.")
        return float(roc_auc_score(linked, scores))


def posts_f1(pairs: Array, tags: Array, predict: Callable[[Array], Array]) -> float:
    """Return the F1 measure of predicted tags: precision and recall are averaged over the posts."""
    posts, which = np.unique(pairs, axis=0, return_inverse=True)
    shares = []
    for post, names in enumerate(predict(posts)):
        true = set(tags[which.ravel() == post].tolist())
        hits = len(true & set(names.tolist()))
        shares.append((hits / len(names), hits / len(true)))
    p, r = np.mean(shares, axis=0).tolist()
    return 2.0 * p * r / (p + r) if p + r > 0.0 else 0.0


@dataclass(eq=False, repr=False)
class TagModel(Estimator):
    """A recommender of tags for pairs of a user and an item. A subclass learns scores."""

    _: KW_ONLY
    n_tags: Annotated[int, kept_count] = 5

    @abstractmethod
    def learn(self, triples: Array, counts: tuple[int, int, int]) -> None:
        """Learn from numbered triples (user, item, tag)."""

    @abstractmethod
    def scores(self, users: Array, items: Array) -> Array:
        """Return the scores of all tags for pairs of numbered users and items, shape (n_pairs, n_tags)."""

    @one_blas_thread()
    def fit(self, X: Any, y: Any) -> Self:
        """Learn from tags that users gave to items.

        Parameters
        ----------
        X : array, shape (n_samples, 2)
            Names or numbers of users and items.
        y : array, shape (n_samples,)
            Names or numbers of tags, one for each row. A post with three tags has three rows.
        """
        check_parameters(self, self._parameters)
        columns, pair = [], two_columns("X", X)
        validate_data(self, X, skip_check_array=True)
        for name, column in zip(("users", "items", "tags"), (*pair, y), strict=True):
            known, places = np.unique(column_of_names(name, column), return_inverse=True)
            setattr(self, f"{name}_", known)
            columns.append(places)
        if columns[2].shape != columns[0].shape or not len(columns[0]):
            raise InvalidInputError(f"y must have one tag for each of the {len(columns[0])} rows of X.")
        self.n_features_in_ = 2
        self.learn(np.column_stack(columns), (len(self.users_), len(self.items_), len(self.tags_)))
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the scores of all `tags_` for pairs of a user and an item, shape (n_samples, n_tags)."""
        return self.scores(*self._numbered(X))

    def _numbered(self, X: Any) -> tuple[Array, Array]:
        """Return the numbers of users and items."""
        check_is_fitted(self, "tags_")
        users, items = two_columns("X", X)
        validate_data(self, X, skip_check_array=True, reset=False)
        return positions("user", self.users_, users), positions("item", self.items_, items)

    def _best(self, scores: Array) -> Array:
        n_tags = kept_count("n_tags", self.n_tags)
        return self.tags_[np.argsort(-scores, axis=1, kind="stable")[:, :n_tags]]

    def predict(self, X: Any) -> Array:
        """Return the `n_tags` best tags for pairs of a user and an item, the best first."""
        return self._best(self.decision_function(X))

    def score(self, X: Any, y: Any) -> float:
        """Return the F1 measure of the predicted tags, as in the ECML/PKDD challenge 2009.

        Precision and recall are averaged over the posts, and F1 is their harmonic mean.
        """
        posts, y = np.column_stack(self._numbered(X)), column_of_names("tags", y)
        if y.shape != (len(posts),) or not len(y):
            raise InvalidInputError(f"y must have one tag for each of {len(posts)} rows, and at least one.")
        return posts_f1(posts, y, lambda pairs: self._best(self.scores(*pairs.T)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


@dataclass(eq=False, repr=False)
class TagRecommender(Certified, TagModel):
    """Users, items and tags in one space: the best tags are those next to both the user and the item.

    Mirzazadeh et al. (2015), section 7: the convex equation 14, minimised by `RankIncremental`.

    Parameters
    ----------
    beta : float
        Weight of the trace. The loss is a sum over pairs of given and other tags: take 1 for some hundred given ones,
        and 10 to 100 for thousands. Near their number the model is empty, of rank 0, and `fit` warns.
    n_tags : int
        Number of tags that `predict` returns.
    max_rank, tol, verbose : optional
        As in `CoembeddingClassifier`.

    Attributes
    ----------
    users_, items_, tags_ : array
        The names in `fit`, sorted.
    user_embedding_, item_embedding_, tag_embedding_ : array, shape (n, rank)
    rank_, n_iter_, objective_, gap_, is_global_, history_
        See `CoembeddingClassifier`.

    See Also
    --------
    PairwiseInteractionTags : factors by stochastic gradients, for very many users and items.

    Examples
    --------
    >>> from problems.coembedding import TagRecommender
    >>> posts = [["ann", "a"], ["ann", "b"], ["bob", "a"], ["bob", "b"]]
    >>> tags = ["red", "blue", "red", "blue"]
    >>> model = TagRecommender(beta=0.1, n_tags=1).fit(posts, tags)
    >>> model.predict([["ann", "a"]]).tolist()
    [['red']]
    """

    _parameters = TagModel._parameters | Certified._parameters
    beta: Annotated[float, weight] = 1.0
    _: KW_ONLY
    tol: Annotated[float, gap] = 1e-3

    def learn(self, triples: Array, counts: tuple[int, int, int]) -> None:
        """Minimise equation 14."""
        Y = self._minimised(TagRanking(triples, counts), self.beta)
        ends = np.cumsum(counts)
        self.user_embedding_, self.item_embedding_, self.tag_embedding_ = (
            Y[start:stop] for start, stop in zip([0, *ends], ends, strict=False)
        )

    def scores(self, users: Array, items: Array) -> Array:
        """Return minus the sum of both squared distances, up to a constant for each pair."""
        both, tags = self.user_embedding_[users] + self.item_embedding_[items], self.tag_embedding_
        return 2.0 * (both @ tags.T - (tags**2).sum(axis=1))


@dataclass(eq=False, repr=False)
class PairwiseInteractionTags(TagModel):
    """Factors of users and items, each with their own factors of tags: ŷ = ⟨T^U_t, U_u⟩ + ⟨T^I_t, I_i⟩.

    The winner of the ECML/PKDD challenge 2009 (Rendle and Schmidt-Thieme 2009): stochastic gradient ascent on pairs
    of a tag of a post and another one.

    Parameters
    ----------
    rank : int
    n_tags : int
        Number of tags that `predict` returns.
    n_epochs : int
        Passes over the triples.
    step_size, penalty, scale : float
        The step size of the ascent, the weight of the squared factors, and the size of the random start.
    random_state : int, RandomState or None

    Attributes
    ----------
    users_, items_, tags_ : array
        The names in `fit`, sorted.
    user_factors_, item_factors_ : array, shape (n, rank)
    tag_user_factors_, tag_item_factors_ : array, shape (n_tags, rank)

    See Also
    --------
    TagRecommender : a global optimum, with only β to tune.

    References
    ----------
    Rendle and Schmidt-Thieme, Factor models for tag recommendation in BibSonomy, ECML PKDD Discovery Challenge
    (2009). Rendle and Schmidt-Thieme, Pairwise interaction tensor factorization for personalized tag
    recommendation, WSDM (2010), https://doi.org/10.1145/1718487.1718498.

    Examples
    --------
    >>> from problems.coembedding import PairwiseInteractionTags
    >>> posts = [["ann", "a"], ["ann", "b"], ["bob", "a"], ["bob", "b"]]
    >>> model = PairwiseInteractionTags(rank=4, n_tags=1, random_state=0)
    >>> model.fit(posts, ["red", "blue", "red", "blue"]).predict([["ann", "a"]]).tolist()
    [['red']]
    """

    rank: Annotated[int, kept_count] = 64
    _: KW_ONLY
    n_epochs: Annotated[int, count] = 200
    step_size: Annotated[float, bounded(number, above=0)] = 0.05
    penalty: Annotated[float, bounded(number, least=0)] = 5e-3
    scale: Annotated[float, bounded(number, above=0)] = 0.1
    random_state: Annotated[Any, seedable] = None

    def learn(self, triples: Array, counts: tuple[int, int, int]) -> None:
        """Do the ascent."""
        step_size, penalty, scale = float(self.step_size), float(self.penalty), float(self.scale)
        rng = np.random.default_rng(seed_of(self.random_state))
        n_users, n_items, n_tags = counts
        U, V, TU, TI = (
            scale * rng.standard_normal((n, self.rank)) for n in (n_users, n_items, n_tags, n_tags)
        )
        posts = triples[:, 0] * n_items + triples[:, 1]
        taken = posts * n_tags + triples[:, 2]
        for _ in range(self.n_epochs):
            order = rng.permutation(len(triples))
            others = rng.integers(n_tags, size=len(triples))
            # A tag of the post itself gives no contrast.
            valid = ~np.isin(posts[order] * n_tags + others, taken)
            kernels.pairwise_interaction(
                U, V, TU, TI, triples[order][valid], others[valid], step_size, penalty
            )
            check_learned(self, ("step_size", "penalty", "scale"), (U, TU), (V, TI))
        self.user_factors_, self.item_factors_, self.tag_user_factors_, self.tag_item_factors_ = U, V, TU, TI

    def scores(self, users: Array, items: Array) -> Array:
        """Return the interactions."""
        return (
            self.user_factors_[users] @ self.tag_user_factors_.T
            + self.item_factors_[items] @ self.tag_item_factors_.T
        )
