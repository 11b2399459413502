"""Costs that score pairs by a bilinear form: Σ φ(lᵀ W r, y)."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core.ambient import Array, Factored, dense
from rmopt.core.arguments import numbers, real_only
from rmopt.core.cost import FiniteSum
from rmopt.core.low_rank import LowRankPoint, PSDPoint
from rmopt.core.matrices import as_rows, checked_matrix, index_rows, row_dots
from rmopt.costs.losses import Loss, as_loss, check_targets, hinge
from rmopt.errors import InvalidInputError


class Bilinear(FiniteSum):
    """The base of costs with terms φ(lᵀ W r, y) for rows l of one matrix.

    Attributes
    ----------
    left, right : CSR arrays, shapes (N, n) and (M, m)
        The rows to which terms refer.
    rows : (array or CSR array, array or CSR array)
        The same rows in the form for products.
    loss : Loss

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.
    """

    point_type = (np.ndarray, LowRankPoint, PSDPoint)
    remedy = "take FixedRankEmbedded, PSDFixedRank or a manifold of matrices"

    rows: tuple[Any, Any]
    loss: Loss

    def _take(self, left: Any, right: Any, names: tuple[str, str]) -> None:
        """Store copies of the rows in the form for products: arrays if at least half of the numbers are not zero."""
        first = checked_matrix(left, names[0], copy=True)
        other = first if right is left else checked_matrix(right, names[1], copy=True)
        self.rows = first, other

    @cached_property
    def left(self) -> sp.csr_array:
        return as_rows(self.rows[0], "left")

    @cached_property
    def right(self) -> sp.csr_array:
        return self.left if self.rows[1] is self.rows[0] else as_rows(self.rows[1], "right")

    @abstractmethod
    def resolve(self, terms: Array) -> tuple[Array, Array, Array, Array]:
        """Return the rows and targets of a list of terms.

        Parameters
        ----------
        terms : int array, shape (N · term_width,)

        Returns
        -------
        left, plus, minus : int64 arrays, shape (N,)
            The left row, the right row, and the right row to subtract (−1 for none).
        targets : float array, shape (N,)
        """

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of W, (n, m)."""
        left, right = self.rows
        return left.shape[1], right.shape[1]

    def value(self, point: LowRankPoint) -> float:
        return float(self.term_values(point, self.all_terms()).sum())

    def term_values(self, point: LowRankPoint, terms: Array) -> Array:
        """Return the losses of some terms, shape (N,)."""
        left, right, targets = self.vectors(terms)
        return self.loss.values(scores(point, left, right), targets)

    def term_gradient(self, point: LowRankPoint, terms: Array) -> Factored:
        """Return Σ φ' l rᵀ over some terms, as an operator of at most that rank."""
        left, right, targets = self.vectors(terms)
        slopes = self.loss.slopes(scores(point, left, right), targets)
        return Factored(left.T, _scaled(right, slopes).T)

    def hessian(self, point: LowRankPoint, direction: Factored) -> Factored:
        """Return Σ φ'' (lᵀ D r) l rᵀ over all terms for a direction D, best given by factors."""
        left, right, targets = self.vectors(self.all_terms())
        curvatures = self.loss.curvatures(scores(point, left, right), targets)
        if isinstance(direction, Factored):
            change = np.einsum("ik,ik->i", left @ direction.left, right @ direction.right)
        else:
            change = scores(dense(direction), left, right)
        return Factored(left.T, _scaled(right, curvatures * change).T)

    def vectors(self, terms: Array) -> tuple[Any, Any, Array]:
        """Return the left rows, the right rows and the targets of a list of terms, one row per term.

        Rows are arrays or CSR arrays, as in `rows`.
        """
        left, plus, minus, targets = self.resolve(np.asarray(terms))
        lefts, rights = self.rows
        right = _taken(rights, plus)
        if (minus >= 0).any():
            right = right - _scaled(rights[np.maximum(minus, 0)], minus >= 0)
        return _taken(lefts, left), right, targets


class BilinearSum(Bilinear):
    """Σᵢ φ(lᵢᵀ W rᵢ, yᵢ) over paired rows.

    Parameters
    ----------
    left : array or sparse matrix, shape (N, n)
    right : array or sparse matrix, shape (N, m)
    loss : Loss, optional
        Defaults to the hinge.
    targets : array, shape (N,), optional
        Defaults to ones.

    See Also
    --------
    TripletSum : order instead of targets.
    problems.subspace.MatrixCompletion : known entries, with one factor in closed form.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import LBFGS
    >>> rng = np.random.default_rng(0)
    >>> left, right = rng.random((60, 4)), rng.random((60, 3))
    >>> truth = np.outer([1, 2, 3, 4], [1, 0, 2])
    >>> cost = BilinearSum(left, right, squared, np.sum(left @ truth * right, axis=1))
    >>> problem = Problem(FixedRankEmbedded(4, 3, 1), cost)
    >>> W = LBFGS(tol=1e-8).run(problem, random_state=0).point
    >>> bool(np.allclose(W.U @ W.S @ W.V.T, truth, atol=1e-5))
    True
    """

    def __init__(self, left: Any, right: Any, loss: Loss = hinge, targets: Any = None) -> None:
        self._take(left, right, ("left", "right"))
        self.loss = as_loss(loss)
        n_terms, n_right = (rows.shape[0] for rows in self.rows)
        if n_right != n_terms or n_terms == 0:
            raise InvalidInputError(
                f"BilinearSum pairs the rows of left and right, which have {n_terms} and "
                f"{n_right} rows; give the same positive number."
            )
        self.targets = np.ones(n_terms) if targets is None else numbers("targets", targets, (n_terms,))
        check_targets(self.loss, self.targets)

    @property
    def n_terms(self) -> int:
        """Number of pairs."""
        return int(self.rows[0].shape[0])

    def resolve(self, terms: Array) -> tuple[Array, Array, Array, Array]:
        terms = np.ascontiguousarray(terms, dtype=np.int64)
        return terms, terms, np.full(terms.size, -1), self.targets[terms]


class TripletSum(Bilinear):
    """Σ φ(qᵀ W (d₊ − d₋), 1) over triplets (query, positive, negative) of row numbers.

    With the hinge this is the ranking loss of Shalit et al. (2012), §7.1.1. Triplets are row numbers, and rows are
    never copied.

    Parameters
    ----------
    queries : array or sparse matrix, shape (N, n)
    documents : array or sparse matrix, shape (M, m)
    loss : Loss, optional
        Defaults to the hinge.
    triplets : int array, shape (T, 3), optional
        The terms of the sum. Without them the cost is a stream: a sampler draws the triplets, and only sums over
        given terms can be evaluated.

    See Also
    --------
    BilinearSum : targets instead of an order.
    problems.similarity.LoretaSimilarity : the estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import TripletSum
    >>> X = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 1.0]])
    >>> cost = TripletSum(X, X, triplets=[[0, 1, 2], [2, 1, 0]])
    >>> cost.n_terms, cost.value(np.eye(2)), cost.value(2.0 * np.eye(2))
    (2, 0.5, 0.0)
    """

    term_width = 3

    def __init__(self, queries: Any, documents: Any, loss: Loss = hinge, triplets: Any = None) -> None:
        self._take(queries, documents, ("queries", "documents"))
        self.loss = as_loss(loss)
        counts = self.rows[0].shape[0], self.rows[1].shape[0]
        self.triplets = None if triplets is None else checked_triplets(triplets, *counts)

    @property
    def n_terms(self) -> int | None:
        """Number of triplets, or None for a stream."""
        return None if self.triplets is None else len(self.triplets)

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        """Rows of the queries and twice of the documents."""
        n_queries, n_documents = (rows.shape[0] for rows in self.rows)
        return [(0, n_queries), (0, n_documents), (0, n_documents)]

    def all_terms(self) -> Array:
        if self.triplets is None:
            raise InvalidInputError(
                "this TripletSum is a stream without stored triplets, so it has no total value; "
                "pass `triplets`, or use `term_values` for some."
            )
        return self.triplets.ravel()

    def resolve(self, terms: Array) -> tuple[Array, Array, Array, Array]:
        triplets = terms.reshape(-1, 3).astype(np.int64)
        query, plus, minus = (np.ascontiguousarray(column) for column in triplets.T)
        return query, plus, minus, np.ones(len(triplets))


def scores(point: Any, left: Any, right: Any) -> Array:
    """Return lᵢᵀ W rᵢ for the paired rows of two matrices, also at a point that is an array."""
    factored = not isinstance(point, np.ndarray)
    found = np.asarray(point.bilinear(left, right)) if factored else row_dots(right, left @ point)
    return real_only("a loss of lᵀ W r", found)


def _taken(rows: Any, places: Array) -> Any:
    """Return rows by their numbers, without a copy for all rows in order."""
    n = rows.shape[0]
    return rows if len(places) == n and np.array_equal(places, np.arange(n)) else rows[places]


def _scaled(rows: Any, factors: Array) -> Any:
    """Return each row times a number."""
    if isinstance(rows, np.ndarray):
        return rows * factors[:, None]
    last = rows.indptr[-1]
    scaled = rows.data[:last] * np.repeat(factors, np.diff(rows.indptr))
    return type(rows)((scaled, rows.indices[:last], rows.indptr), shape=rows.shape)


def checked_triplets(triplets: Any, n_queries: int, n_documents: int) -> Array:
    """Return triplets as an int64 array of shape (T, 3), and refuse rows that do not exist."""
    rows = index_rows("triplets", triplets, (n_queries, n_documents, n_documents))
    if not len(rows):
        raise InvalidInputError("triplets are empty; give at least one (query, positive, negative).")
    return rows
