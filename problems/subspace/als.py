"""Alternating least squares with effects of rows and columns, and a penalty that grows with the number of entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from problems.subspace.completer import PointCompletion, unit_of
from problems.subspace.cost import KnownEntries, pieces_of
from problems.subspace.kernels import regress_piece
from problems.threads import in_pieces
from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, integer, number
from rmopt.core.streams import Stream, generator

# Standard deviation of the factors at the start, in units where entries have one of 1.
START = 0.1
# Factors whose length a sweep changes by less than this share are as long as they were.
STILL = 0.02


class Regressed(NamedTuple):
    """What a half sweep finds of each column: the factors with the random numbers, their mean, the squared residuals.

    Shapes (n, d), (n, d) and (n,); the first factor is the effect.
    """

    drawn: Array
    means: Array
    squares: Array


class Side:
    """Known entries by columns, as `regress_piece` takes them.

    Parameters
    ----------
    table : sparse array
        By columns, a CSC array; or by rows, a CSR array, whose rows are then what is regressed.
    values : array, shape (N,)
        In place of the stored ones.
    spare : int
        So many columns without an entry come after the last one.
    """

    def __init__(self, table: Any, values: Array, spare: int = 0) -> None:
        indptr = np.append(table.indptr, np.repeat(table.indptr[-1], spare)).astype(np.int64)
        self.known = indptr, table.indices.astype(np.int32, copy=False), values
        self.cuts = pieces_of(indptr)
        self.counts = np.diff(indptr)

    def regress(
        self, features: Array, precision: Array, pull: Array, alpha: float, noise: Array, scales: Array
    ) -> Regressed:
        """Regress each column; see `problems.subspace.kernels`.

        Raises
        ------
        InvalidInputError
            When the system of a column is singular to rounding.
        """
        n, d = len(self.counts), features.shape[1]
        found = Regressed(np.empty((n, d)), np.empty((n, d)), np.empty(n))
        given = self.known, features, (scales, precision, pull, alpha), noise
        self.each(lambda *columns: regress_piece(*given, *columns, *found), d - 1, "or a smaller rank")
        return found

    def each(self, solve: Callable[[int, int], Any], rank: int, cure: str) -> None:
        """Let a compiled function of the first column and an end solve each; refuse the last that it cannot."""
        work = self.counts.sum() * (rank + 1) ** 2
        failed = max(in_pieces(lambda _, *columns: int(solve(*columns)), self.cuts, work))
        if failed >= 0:
            raise InvalidInputError(
                f"column or row {failed} with {self.counts[failed]} known entries has no unique solution at rank "
                f"{rank} in double precision; choose a larger lam, {cure}."
            )


def standardised(values: Array) -> tuple[Array, float, float]:
    """Return values of mean 0 and standard deviation 1 (zeros where all are alike), the mean and the deviation."""
    unit = unit_of(values)
    values = values / unit
    mean, deviation = float(values.mean()), float(values.std())
    if deviation <= 1e-14 * abs(mean):
        return np.zeros_like(values), mean * unit, 0.0
    return (values - mean) / deviation, mean * unit, deviation * unit


@dataclass(frozen=True)
class Penalty:
    """λ c^power ‖factors‖² of each row and column with c entries."""

    lam: float
    power: float

    def scales(self, side: Side) -> Array:
        """Return the weight of each row or column; what has no entry has factors 0 at any penalty."""
        return float(self.lam) * np.maximum(side.counts, 1.0) ** float(self.power)

    def __call__(self, side: Side, factors: Array) -> float:
        return float(self.scales(side) @ np.einsum("ij,ij->i", factors, factors))

    def regressed(self, side: Side, features: Array) -> Regressed:
        """Return the regression of each row or column on features of the others."""
        d = features.shape[1]
        zeros = np.zeros((len(side.counts), d))
        return side.regress(features, np.eye(d), zeros, 1.0, zeros, self.scales(side))


def settled(fall: float, cost: float, tol: float, W: Array, before: Array) -> bool:
    """Return whether a sweep gained a share of the cost below `tol`, and left factors as long as they were.

    Near 0, where they start, the cost hardly falls while they grow or shrink by large factors.
    """
    new, old = np.linalg.norm(W), np.linalg.norm(before)
    return fall <= tol * cost and abs(new - old) <= STILL * old


def alternated(
    table: KnownEntries, values: Array, penalty: Penalty, W: Array, max_iter: int, tol: float
) -> tuple[Array, Array, float, int]:
    """Regress rows and columns in turns, from factors W of the columns, until they are `settled`.

    Returns the factors of rows and columns of standardised entries, effects first; the cost, and sweeps.
    """
    by_rows = sp.csr_array(KnownEntries((values, table.indices, table.indptr), shape=table.shape))
    rows, columns = Side(by_rows, by_rows.data), Side(table, values)
    cost = np.inf
    for sweep in range(1, max_iter + 1):
        U = penalty.regressed(rows, W).means
        found = penalty.regressed(columns, U)
        W, last, before = found.means, W, cost
        cost = float(found.squares.sum() + penalty(rows, U) + penalty(columns, W))
        if settled(before - cost, cost, tol, W[:, 1:], last[:, 1:]) or sweep == max_iter:
            break
    return U, W, cost, sweep


@dataclass(eq=False, repr=False)
class BiasedALS(PointCompletion):
    """Matrix completion by alternating least squares: mean + effects of row and column + u_i · w_j.

    Minimises Σ (y_ij − b_i − c_j − u_i · w_j)² + λ Σ_i n_i^p (b_i² + ‖u_i‖²) + λ Σ_j n_j^p (c_j² + ‖w_j‖²) over the
    known entries, which are centred and scaled to a standard deviation of 1; row i has n_i of them. With p = 0 all
    rows have one penalty, with p = 1 it is that of Zhou, Wilkinson, Schreiber and Pan 2008. An effect and the factors
    of a row are solved for at once.

    Parameters
    ----------
    rank : int
        0: effects alone.
    limits, handle_unknown : optional
        As in `RTRMC`.
    random_state : int, RandomState or None
        Of the start; equal integers give equal bits.
    lam : float
        λ.
    count_power : float
        p, from 0 to 1.
    max_iter : int
        Sweeps over rows and columns.
    tol : float
        Stop when a sweep lowers the cost by less than this, relative to the cost, and hardly changes the length of
        the factors.

    Attributes
    ----------
    components_, weights_, mean_, row_effects_, column_effects_
        As of `RTRMC`, but U is not orthonormal.
    known_, row_names_, column_names_
        As of `RTRMC`.
    n_iter_ : int
    cost_ : float
        What is minimised, at the end.

    See Also
    --------
    BayesianCompletion : usually a smaller error, with standard deviations, for more time.
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
    count_power: Annotated[float, bounded(number, least=0, most=1)] = 0.5
    max_iter: Annotated[int, bounded(integer, 1)] = 15
    tol: Annotated[float, bounded(number, least=0)] = 1e-4

    _arrays: ClassVar = {**PointCompletion._arrays, "_rows": (float, ("m", None))}
    _numbers: ClassVar = {**PointCompletion._numbers, "_unit": number, "cost_": number, "n_iter_": integer}

    def _learn(self, table: KnownEntries, seed: int, *features: Any) -> None:
        values, self.mean_, self._unit = standardised(table.data)
        W = START * generator(seed, Stream.START).standard_normal((table.shape[1], self.rank + 1))
        W[:, 0] = 0.0
        penalty = Penalty(self.lam, self.count_power)
        U, W, self.cost_, self.n_iter_ = alternated(table, values, penalty, W, self.max_iter, self.tol)
        self._rows = U
        self.components_, self.row_effects_ = np.ascontiguousarray(U[:, 1:]), self._unit * U[:, 0]
        self.weights_, self.column_effects_ = self._unit * W[:, 1:], self._unit * W[:, 0]

    def _solved(self, table: KnownEntries) -> tuple[Array, Array]:
        values = (table.data - self.mean_) / (self._unit or 1.0)
        W = self._unit * Penalty(self.lam, self.count_power).regressed(Side(table, values), self._rows).means
        return W[:, 1:], W[:, 0]
