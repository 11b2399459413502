"""Alternating least squares for what was viewed, bought or played: all other entries count as a weak no."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from problems.subspace.als import START, Penalty, Side, settled
from problems.subspace.completer import PointCompletion
from problems.subspace.cost import KnownEntries
from problems.subspace.kernels import weigh_piece
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, number
from rmopt.core.streams import Stream, generator

# Beyond this the weight of a single entry is all that a system of double precision sees.
LARGEST_CONFIDENCE = 1e12


@dataclass(eq=False, repr=False)
class ImplicitALS(PointCompletion):
    """Recommendations from implicit feedback by confidence-weighted alternating least squares (Hu et al. 2008).

    A known entry with a value r > 0, how often or how surely, says yes with a confidence of 1 + α r; all other
    entries say no with a confidence of 1. Minimises Σ c_ij (p_ij − u_i · w_j)² over all entries, p = 1 for yes and 0
    for no, plus λ Σ_i n_i^q ‖u_i‖² + λ Σ_j n_j^q ‖w_j‖²; row i has n_i known entries. A zero that is stored says no
    as the others do, but counts as known, and is not recommended; ``eliminate_zeros()`` removes such. A sweep costs
    O(N k² + (m + n) k³) for N known entries at rank k: the others are never visited. Predictions are scores, mostly
    from 0 to 1, and meant for `recommend`; `score` is the nDCG of ten recommendations.

    Parameters
    ----------
    rank : int
    limits : (float, float), optional
        Predictions are clipped to them.
    handle_unknown : {"error", "mean"}
        What to do with rows and columns that `fit` did not see; "mean": predict 0, with a warning.
    random_state : int, RandomState or None
        Of the start; equal integers give equal bits, with any number of threads.
    alpha : float
        α.
    lam : float
        λ.
    count_power : float
        q, from 0 to 1; 0 is the penalty of Hu, Koren and Volinsky.
    max_iter : int
        Sweeps over rows and columns.
    tol : float
        Stop when a sweep lowers the cost by less than this, relative to the cost, and hardly changes the length of
        the factors.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U.
    weights_ : array, shape (n, rank)
        W.
    known_, row_names_, column_names_
        As of `RTRMC`.
    n_iter_ : int
    cost_ : float
        What is minimised, at the end.

    See Also
    --------
    BiasedALS : ratings, where a missing one says nothing.

    References
    ----------
    Hu, Koren and Volinsky, Collaborative filtering for implicit feedback datasets, ICDM (2008),
    https://doi.org/10.1109/ICDM.2008.22.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import ImplicitALS
    >>> rng = np.random.default_rng(0)
    >>> group_of_film, group_of_user = np.arange(40) % 2, np.arange(60) % 2
    >>> alike = group_of_film[:, None] == group_of_user
    >>> views = sp.csc_array(np.where(rng.random((40, 60)) < 0.3 * alike, 1.0, 0.0))
    >>> model = ImplicitALS(rank=2, random_state=0).fit(views)
    >>> {film % 2 for film, score in model.recommend(3, 10)}
    {1}
    """

    _: KW_ONLY
    alpha: Annotated[float, bounded(number, above=0)] = 2.0
    lam: Annotated[float, bounded(number, above=0)] = 3.0
    count_power: Annotated[float, bounded(number, least=0, most=1)] = 0.5
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-3

    _rates: ClassVar = False
    _numbers: ClassVar = {**PointCompletion._numbers, "cost_": number, "n_iter_": integer}

    def _learn(self, table: KnownEntries, seed: int, *features: Any) -> None:
        columns = self._side(table)
        by_rows = sp.csr_array(table)
        rows = Side(by_rows, by_rows.data)
        m, n = table.shape
        self.weights_ = START * generator(seed, Stream.START).standard_normal((n, self.rank))
        cost, penalty = np.inf, Penalty(self.lam, self.count_power)
        for sweep in range(self.max_iter):
            last = self.weights_
            self.components_, _ = self._weighed(rows, last)
            self.weights_, known = self._weighed(columns, self.components_)
            U, W, before = self.components_, self.weights_, cost
            everywhere = float(np.sum((U.T @ U) * (W.T @ W)))
            cost = float(known.sum() + everywhere + penalty(rows, U) + penalty(columns, W))
            self.n_iter_ = sweep + 1
            if settled(before - cost, cost, self.tol, W, last):
                break
        self.cost_, self.mean_ = cost, 0.0
        self.row_effects_, self.column_effects_ = np.zeros(m), np.zeros(n)

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        return self._weighed(self._side(table), self.components_)[0], np.zeros(table.shape[1])

    def score(self, ratings: Any, y: Any = None) -> float:
        """Return the nDCG of ten recommendations to pairs, or to a bundle, by `ranked`: higher is better."""
        return super().score(ratings, y)

    def _quality(self, ratings: Any, y: Any) -> float:
        return self.ranked(ratings, y).ndcg

    def _liked(self) -> float:
        return 1.0

    def _side(self, table: KnownEntries) -> Side:
        least, most = float(table.data.min()), float(table.data.max())
        if least < 0.0 or most == 0.0 or not self.alpha * most <= LARGEST_CONFIDENCE:
            raise InvalidInputError(
                f"values run from {least:g} to {most:g}; they must say how often or how surely: numbers from 0, some "
                f"of them above, up to {LARGEST_CONFIDENCE / self.alpha:g}. Leave out what was disliked; of large "
                "counts take numpy.log1p."
            )
        return Side(table, table.data)

    def _weighed(self, side: Side, features: Array) -> tuple[Array, Array]:
        """Return the factors of each column of a side, and its cost as `weigh_piece` says."""
        n, d = len(side.counts), features.shape[1]
        found, costs = np.empty((n, d)), np.empty(n)
        scales = Penalty(self.lam, self.count_power).scales(side)
        given = side.known, features, features.T @ features, scales, float(self.alpha)

        cure = "a smaller rank or a smaller alpha"
        side.each(lambda *columns: weigh_piece(*given, *columns, found, costs), d, cure)
        return found, costs
