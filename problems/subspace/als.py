"""Completion by factors: alternating least squares for ratings and for counts, and steps on single entries.

The models of `estimators` are subspaces instead.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from problems.rows import check_learned
from problems.subspace.completer import PointCompletion
from problems.subspace.cost import KnownEntries, columns_of, pieces_of
from problems.subspace.kernels import regress_piece, weigh_piece
from problems.threads import WORTH_THREADS, in_pieces
from rmopt import Problem
from rmopt.core import InvalidInputError, Parts
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, number, one_of
from rmopt.core.streams import Stream, generator
from rmopt.costs import BilinearSum, OnFactors, squared
from rmopt.errors import warn
from rmopt.manifolds import BoundedRank
from rmopt.solvers import Cosine, ScaledSGD

# Standard deviation of the initial factors, for entries of standard deviation 1.
START = 0.1
# A relative change of the factors' length by less than this counts as none.
STILL = 0.02
# Beyond this a single entry drowns all others in single precision.
LARGEST_CONFIDENCE = 1e6
# Steps of conjugate gradients in a half sweep, which continue from the last one.
STEPS = 3
# The largest number of virtual entries, at most that of a usual row, that damp the factors of a row.
FEW = 50.0
# Sweeps for effects alone, before steps on single entries.
SWEEPS = 15
# The weights of counts: BM25, their logarithm, the counts themselves, or 1.
WEIGHTS = ("bm25", "log", "counts", "ones")
# Parameters of BM25: the count of a usual row with half of the largest weight, and the influence of rows' sums.
HALF, RELATIVE = 1.2, 0.75
# Unweighted counts this far above their mean dominate the objective.
SKEWED = 30.0


# Returns the factors of each column of a side given those of its rows, and their costs, from the last factors.
Solve = Callable[["Side", Array, Any], tuple[Array, Array]]


class Regressed(NamedTuple):
    """The result of a half sweep for each column: factors with random numbers, their mean, and inner products.

    Shapes (n, d), (n, d) and (n, 3). The first factor is the effect. The products are those of residuals with
    themselves, of residuals with the factors' part beyond the effects, and of that part with itself.
    """

    drawn: Array
    means: Array
    squares: Array


class Side:
    """Known entries by columns, as `regress_piece` takes them."""

    def __init__(self, table: Any, values: Array, spare: int = 0) -> None:
        indptr = np.append(table.indptr, np.repeat(table.indptr[-1], spare)).astype(np.int64)
        self.known = indptr, table.indices.astype(np.int32, copy=False), values
        self.cuts = pieces_of(indptr)
        self.counts = np.diff(indptr)

    def regress(
        self, features: Array, precision: Array, pull: Array, alpha: float, noise: Array, scales: Array,
        corner: float = 0.0,
    ) -> Regressed:  # fmt: skip
        """Regress each column; see `problems.subspace.kernels`."""
        n, d = len(self.counts), features.shape[1]
        found = Regressed(np.empty((n, d)), np.empty((n, d)), np.empty((n, 3)))
        given = self.known, features, (scales, precision, pull, alpha, corner), noise
        self.each(lambda *columns: regress_piece(*given, *columns, *found), d - 1)
        return found

    def each(self, solve: Callable[[int, int], Any], rank: int) -> None:
        """Solve each column by a compiled function of the first column and an end, and refuse unsolvable ones."""
        work = self.counts.sum() * (rank + 1) ** 2
        cuts = self.cuts if work >= WORTH_THREADS else self.cuts[[0, -1]]
        failed = max(in_pieces(lambda _, *columns: int(solve(*columns)), cuts, work))
        if failed >= 0:
            raise InvalidInputError(
                f"column or row {failed} with {self.counts[failed]} known entries has no unique solution at rank "
                f"{rank} in double precision; choose a larger lam, or a smaller rank."
            )


def standardised(table: KnownEntries) -> tuple[KnownEntries, float, float]:
    """Return entries of mean 0 and standard deviation 1 (zeros if all are equal), the mean and the deviation."""
    mean, deviation = float(table.data.mean()), float(table.data.std())
    if deviation <= 1e-14 * abs(mean):
        return table.with_values(np.zeros(table.nnz)), mean, 0.0
    return table.with_values((table.data - mean) / deviation), mean, deviation


@dataclass(frozen=True)
class Penalty:
    """λ (c + few)^power ‖factors‖² for rows and columns of c entries; effects (factor 0) may have another λ."""

    lam: float
    power: float
    few: float = 0.0
    effects: float | None = None

    def scales(self, side: Side) -> Array:
        """Return the weight of each row or column. Without entries factors are 0 for any penalty."""
        return float(self.lam) * (np.maximum(side.counts, 1.0) + self.few) ** float(self.power)

    def __call__(self, side: Side, factors: Array) -> float:
        first, rest = (0.0, factors) if self.effects is None else (self.effects, factors[:, 1:])
        cost = float(self.scales(side) @ np.einsum("ij,ij->i", rest, rest))
        return cost + first * float(factors[:, 0] @ factors[:, 0])

    def regressed(self, side: Side, features: Array, last: Any = None) -> tuple[Array, Array]:
        """Return the regression of each row or column on features of the others, and the squared residuals."""
        d = features.shape[1]
        zeros, precision = np.zeros((len(side.counts), d)), np.eye(d)
        if self.effects is not None:
            precision[0, 0] = 0.0
        corner = float(self.effects or 0.0)
        found = side.regress(features, precision, zeros, 1.0, zeros, self.scales(side), corner)
        return found.means, found.squares[:, 0]


def regressed_on(model: PointCompletion, table: KnownEntries, penalty: Penalty) -> tuple[Array, Array]:
    """Return the factors and the effects of columns, regressed on the rows of a model."""
    features = np.column_stack([model.row_effects_, model.components_])
    W, _ = penalty.regressed(Side(table, table.data - model.mean_), features)
    return W[:, 1:], W[:, 0]


def alternated(
    table: KnownEntries, solve: Solve, penalty: Penalty, W: Array, max_iter: int, tol: float, first: int = 0
) -> tuple[Array, Array, float, int]:
    """Solve for rows and columns in turns, from factors W of the columns, until they converge.

    Convergence means that a sweep lowers the cost by a share below `tol` and does not change the length of the
    factors, from the `first` one on: near 0, their start, the cost hardly falls while they grow or shrink by large
    factors. `solve` returns the factors of each column of a side, and the cost of each without its penalty. Returns
    the factors of rows and columns, the cost, and the number of sweeps.
    """
    by_rows = sp.csr_array(table)
    rows, columns = Side(by_rows, by_rows.data), Side(table, table.data)
    cost, U = np.inf, np.zeros((table.shape[0], W.shape[1]), W.dtype)
    for sweep in range(1, max_iter + 1):
        U, _ = solve(rows, W, U)
        before, length = cost, np.linalg.norm(W[:, first:])
        W, costs = solve(columns, U, W)
        cost = float(costs.sum() + penalty(rows, U) + penalty(columns, W))
        still = abs(np.linalg.norm(W[:, first:]) - length) <= STILL * length
        if sweep == max_iter or (still and before - cost <= tol * cost):
            break
    return U, W, cost, sweep


@dataclass(eq=False, repr=False)
class BiasedALS(PointCompletion):
    """Matrix completion by alternating least squares: mean + effects of row and column + u_i · w_j.

    Minimises Σ (y_ij − b_i − c_j − u_i · w_j)² + Σ_i (μ b_i² + λ_i ‖u_i‖²) + Σ_j (μ c_j² + λ_j ‖w_j‖²) over the known
    entries, which are centred and scaled to a standard deviation of 1. For a row with n_i of them λ_i is λ (n_i +
    c)^p, as in Zhou, Wilkinson, Schreiber and Pan 2008 except for c: a few entries determine an effect roughly, and
    factors hardly at all. c is the average number of entries in the row, or the column, of an entry, the smaller of
    both and at most 50. The effect and the factors of a row are solved for together.

    Parameters
    ----------
    rank : int
        The rank. 0 means effects alone.
    limits, handle_unknown : optional
        As in `RTRMC`.
    random_state : int, RandomState or None
        The source of the start. Equal integers give identical results.
    lam, lam_effects : float
        λ and μ.
    count_power : float
        p, from 0 to 1.
    max_iter : int
        Sweeps over rows and columns.
    tol : float
        Stop when a sweep lowers the cost by less than this share, and hardly changes the length of the factors.

    Attributes
    ----------
    components_, weights_, mean_, row_effects_, column_effects_, known_, row_names_, column_names_
        As of `RTRMC`, but U is not orthonormal.
    n_iter_ : int
    cost_ : float
        The final value of the objective.

    See Also
    --------
    BayesianCompletion : usually a smaller error, with standard deviations, in more time.
    RTRMC : data without noise, to rounding.

    References
    ----------
    Zhou, Wilkinson, Schreiber and Pan, Large-scale parallel collaborative filtering for the Netflix prize, AAIM
    (2008), https://doi.org/10.1007/978-3-540-68880-8_32.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import BiasedALS
    >>> rng = np.random.default_rng(0)
    >>> truth = 3.0 + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60))
    >>> known = sp.csc_array(truth * (rng.random((40, 60)) < 0.6))
    >>> model = BiasedALS(rank=2, lam=1e-4, max_iter=100, random_state=0).fit(known)
    >>> bool(np.abs(model.predict(5, range(60)) - truth[5]).max() < 0.01)
    True
    """

    rank: Annotated[int, bounded(integer, 0)] = 10
    _: KW_ONLY
    lam: Annotated[float, bounded(number, above=0)] = 1.0
    lam_effects: Annotated[float, bounded(number, above=0)] = 3.0
    count_power: Annotated[float, bounded(number, least=0, most=1)] = 0.5
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-4

    _numbers: ClassVar = {**PointCompletion._numbers, "cost_": number, "n_iter_": integer}

    def _learn(self, table: KnownEntries, seed: int) -> None:
        entries, self.mean_, unit = standardised(table)
        W = START * generator(seed, Stream.START).standard_normal((table.shape[1], self.rank + 1))
        W[:, 0] = 0.0
        penalty = self._penalty(table)
        U, W, self.cost_, self.n_iter_ = alternated(
            entries, penalty.regressed, penalty, W, self.max_iter, self.tol, 1
        )
        self.components_, self.row_effects_ = U[:, 1:].copy(), unit * U[:, 0]
        self.weights_, self.column_effects_ = unit * W[:, 1:], unit * W[:, 0]

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        return regressed_on(self, table, self._penalty(self.known_))

    def _penalty(self, known: KnownEntries) -> Penalty:
        usual = (float(n @ n) / known.nnz for n in (np.bincount(known.indices), np.diff(known.indptr)))
        return Penalty(self.lam, self.count_power, min(FEW, *usual), self.lam_effects)


def bm25(counts: Array, lengths: Array, others: Array, documents: int) -> Array:
    """Return the BM25 weights of counts, for relative lengths and frequencies."""
    return np.log1p(documents / others) * counts / (counts + HALF * (1.0 - RELATIVE + RELATIVE * lengths))


@dataclass(eq=False, repr=False)
class ImplicitALS(PointCompletion):
    """Recommendations from implicit feedback by confidence-weighted alternating least squares (Hu et al. 2008).

    A known entry with a value r > 0, a count or a confidence, means yes with a weight of 1 + α f(r). All other
    entries mean no with a weight of 1. Minimises Σ c_ij (p_ij − u_i · w_j)² over all entries, p = 1 for yes and 0 for
    no, plus λ Σ_i n_i^q ‖u_i‖² + λ Σ_j n_j^q ‖w_j‖² for n_i known entries in row i. A stored zero means no as well,
    but counts as known and is not recommended. ``eliminate_zeros()`` removes such zeros. A half sweep makes three
    steps of conjugate gradients in each row, in single precision: O(N k + (m + n) k²) for N known entries at rank k,
    without visits to the others. Predictions are scores, mostly from 0 to 1, for use in `recommend`. `score` is the
    nDCG of ten recommendations.

    A few very large counts would dominate the objective. So f damps them: with BM25 a count's weight grows up to a
    limit, more slowly in rows with large counts, and is larger in columns with few entries. f has mean 1 over the
    known entries, and is 1 if all of them are equal.

    Parameters
    ----------
    rank : int
    limits : (float, float), optional
        Predictions are clipped to them.
    handle_unknown : {"error", "mean"}
        How to treat rows and columns unknown to `fit`. "mean" predicts 0, with a warning.
    random_state : int, RandomState or None
        The source of the start. Equal integers give identical results, with any number of threads.
    weights : {"bm25", "log", "counts", "ones"}
        f: BM25, the logarithm of 1 + r, r itself, or 1, divided by its mean.
    alpha : float
        α.
    lam : float
        λ.
    count_power : float
        q, from 0 to 1. 0 gives the penalty of Hu, Koren and Volinsky.
    max_iter : int
        Sweeps over rows and columns.
    tol : float
        Stop when a sweep lowers the cost by less than this share, and hardly changes the length of the factors.

    Attributes
    ----------
    components_ : array, shape (m, rank)
        U.
    weights_ : array, shape (n, rank)
        W.
    row_lengths_ : array, shape (m,)
        Sums of the values in each row, over their mean.
    weighing_ : str
        The f in use: ``weights``, or "ones" if all values are equal.
    unit_ : float
        The mean by which f is divided.
    known_, row_names_, column_names_
        As of `RTRMC`.
    n_iter_ : int
    cost_ : float
        The final value of the objective.

    See Also
    --------
    BiasedALS : ratings, in which missing ones mean nothing.

    References
    ----------
    Robertson and Zaragoza, The probabilistic relevance framework: BM25 and beyond, Foundations and Trends in
    Information Retrieval 3 (2009), https://doi.org/10.1561/1500000019.

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
    weights: Annotated[str, bounded(one_of, WEIGHTS)] = "bm25"
    alpha: Annotated[float, bounded(number, above=0)] = 1.0
    lam: Annotated[float, bounded(number, above=0)] = 2.0
    count_power: Annotated[float, bounded(number, least=0, most=1)] = 0.5
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-3

    _rates: ClassVar = False
    _arrays: ClassVar = {**PointCompletion._arrays, "row_lengths_": (float, ("m",))}
    _numbers: ClassVar = {
        **PointCompletion._numbers, "cost_": number, "n_iter_": integer, "unit_": number,
        "weighing_": bounded(one_of, WEIGHTS),
    }  # fmt: skip

    def _learn(self, table: KnownEntries, seed: int) -> None:
        counts = table.data[table.data > 0.0]
        if table.data.min() < 0.0 or len(counts) == 0:
            raise InvalidInputError(
                f"values run from {table.data.min():g} to {table.data.max():g}; they must be counts or confidences: "
                "numbers from 0, some of them above. Leave out disliked entries."
            )
        self.weighing_ = self.weights if counts.min() < counts.max() else "ones"
        if self.weighing_ == "counts" and counts.max() > SKEWED * counts.mean():
            warn(
                f"values run up to {counts.max():g}, {counts.max() / counts.mean():.0f} times their mean: a few "
                "entries dominate the objective; take weights='bm25' or 'log'."
            )
        sums = np.bincount(table.indices, table.data, table.shape[0])
        self.row_lengths_, self.unit_ = sums / sums[sums > 0.0].mean(), 1.0
        self.unit_ = float(self._weights(table)[table.data > 0.0].mean())
        confidences = self._confidences(table)
        W = START * generator(seed, Stream.START).standard_normal((table.shape[1], self.rank))
        penalty = Penalty(self.lam, self.count_power)
        U, W, self.cost_, self.n_iter_ = alternated(
            confidences, self._weighed, penalty, W.astype(np.float32), self.max_iter, self.tol
        )
        check_learned(self, ("lam",), (U, W))
        self.components_, self.weights_, self.mean_ = U.astype(float), W.astype(float), 0.0
        self.row_effects_, self.column_effects_ = (np.zeros(size) for size in table.shape)

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        new, features = self._confidences(table), self.components_.astype(np.float32)
        zeros = np.zeros((table.shape[1], self.rank), np.float32)
        return self._weighed(Side(new, new.data), features, zeros, 4 * self.rank)[0], zeros[:, 0]

    def _weights(self, table: KnownEntries) -> Array:
        """Return f of each known entry."""
        if self.weighing_ == "bm25":
            columns = np.diff(table.indptr)
            found = bm25(
                table.data, self.row_lengths_[table.indices], columns[columns_of(table)], table.shape[0]
            )
        else:
            found = {"log": np.log1p, "counts": np.abs, "ones": np.sign}[self.weighing_](table.data)
        return found / self.unit_

    def _confidences(self, table: KnownEntries) -> KnownEntries:
        """Return the weight of each known entry minus 1."""
        found = self.alpha * self._weights(table)
        if not found.max() <= LARGEST_CONFIDENCE:
            raise InvalidInputError(
                f"confidences run up to {found.max():.1e}, of at most {LARGEST_CONFIDENCE:g}; choose a smaller "
                "alpha, or weights='bm25'."
            )
        return table.with_values(found.astype(np.float32))

    def _weighed(self, side: Side, features: Array, last: Array, steps: int = STEPS) -> tuple[Array, Array]:
        """Return the factors of each column of a side, and the cost of each over all rows."""
        factors, costs = last.copy(), np.zeros(len(side.counts))
        gram, scales = features.T @ features, Penalty(self.lam, self.count_power).scales(side)
        given = side.known, features, gram, scales.astype(np.float32), steps
        side.each(lambda *columns: weigh_piece(*given, *columns, factors, costs), features.shape[1])
        return factors, costs + np.einsum("ij,ij->i", factors @ gram, factors)


@dataclass(eq=False, repr=False)
class ScaledSGDCompletion(PointCompletion):
    """Matrix completion by stochastic gradients of single entries, scaled to be independent of the condition.

    Minimises Σ (y_ij − u_i · w_j)² + λ (‖u_i‖² + ‖w_j‖²) over the known entries, which are centred and scaled to a
    standard deviation of 1, among balanced factors alone (UᵀU = WᵀW): if rows have many more or fewer entries than
    columns, other factors have a smaller penalty. u_i and w_j have two numbers more than the rank, initially the
    effects of rows and columns. A pass takes O(k) per entry, in threads and in single precision
    (`rmopt.solvers.ScaledSGD`). Step sizes fall to 0 along a cosine.

    Parameters
    ----------
    rank : int
    limits, handle_unknown : optional
        As in `RTRMC`.
    random_state : int, RandomState or None
        The source of start and order. Equal integers give identical results, with any number of threads.
    lam : float
        λ.
    step_size : float
        The step size of the first pass, as in `rmopt.solvers.ScaledSGD`.
    n_epochs : int
        Passes over the entries.

    Attributes
    ----------
    components_, weights_, mean_, row_effects_, column_effects_
        As of `BiasedALS`: effects contain the parts of U and W common to all of the other side.
    known_, row_names_, column_names_
        As of `RTRMC`.

    See Also
    --------
    BiasedALS : smaller errors for ratings, at O(k²) per entry.

    References
    ----------
    Zhang, Chiu and Zhang, Accelerating SGD for highly ill-conditioned huge-scale online matrix completion, NeurIPS
    (2022).

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import ScaledSGDCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = 3.0 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 80))
    >>> known = sp.csc_array(truth * (rng.random((60, 80)) < 0.6))
    >>> model = ScaledSGDCompletion(rank=2, lam=1e-4, n_epochs=40, random_state=0)
    >>> bool(np.abs(model.fit(known).predict(5, range(80)) - truth[5]).max() < 0.01)
    True
    """

    rank: Annotated[int, bounded(integer, 1)] = 10
    _: KW_ONLY
    lam: Annotated[float, bounded(number, above=0)] = 0.04
    step_size: Annotated[float, bounded(number, above=0)] = 3.0
    n_epochs: Annotated[int, bounded(integer, 1)] = 20

    def _learn(self, table: KnownEntries, seed: int) -> None:
        entries, self.mean_, unit = standardised(table)
        # The effects of rows and columns alone, for which a few sweeps suffice.
        penalty = Penalty(self.lam, 1.0)
        row_effects, column_effects, *_ = alternated(
            entries, penalty.regressed, penalty, np.zeros((table.shape[1], 1)), SWEEPS, 1e-4, 1
        )
        width, rng = min(self.rank + 2, *table.shape), generator(seed, Stream.START)
        U, W = (START * rng.standard_normal((size, width)) for size in table.shape)
        U[:, :2], W[:, :2] = np.insert(row_effects, 1, 1.0, axis=1), np.insert(column_effects, 0, 1.0, axis=1)
        m, n = table.shape
        # Unit vectors.
        rows, columns = (sp.eye_array(size, format="csr") for size in table.shape)
        cost = BilinearSum(rows[table.indices], columns[columns_of(table)], squared, entries.data)
        problem = Problem(BoundedRank(m, n, width), OnFactors(cost))
        solver = ScaledSGD(Cosine(self.step_size, self.n_epochs), n_epochs=self.n_epochs, penalty=self.lam)
        start = Parts([U.astype(np.float32), W.astype(np.float32)])
        U, W = solver.run(problem, start, random_state=seed).point
        # The mean of the other side's factors over entries gives an effect, which the rest does not contain.
        (U, u), (W, w) = (
            _centred(factors.astype(float), counts)
            for factors, counts in ((U, np.bincount(table.indices, minlength=m)), (W, np.diff(table.indptr)))
        )
        self.components_, self.weights_ = U, unit * W
        self.row_effects_, self.column_effects_ = unit * (U @ w), unit * (W @ u)
        self.mean_ += unit * float(u @ w)

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        return regressed_on(self, table, Penalty(self.lam, 1.0))

    def _factors(self) -> tuple[Array, Array]:
        # The remainder without effects has mean 0 over rows and over columns, each counted once.
        factors = self.components_, self.weights_
        U, W = (_centred(part, part.any(axis=1))[0] for part in factors)
        return U, W


def _centred(factors: Array, counts: Any) -> tuple[Array, Array]:
    """Return factors minus their mean, weighted by counts, and the mean; without entries factors are the mean."""
    mean = np.average(factors, axis=0, weights=counts)
    return np.where(counts[:, None] > 0, factors - mean, 0.0), mean
