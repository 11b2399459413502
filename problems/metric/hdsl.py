"""HDSL: similarity learning in high dimension by sparse rank-one bases (Liu, Bellet and Sha 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.metric import kernels
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number
from rmopt.costs.bilinear import checked_triplets
from rmopt.costs.log_det import DENSE_SHARE
from rmopt.costs.rows import as_rows
from rmopt.engines.log_det import samples_of

Array = np.ndarray

# Iterations between two looks at the diagonal of the gradient.
RENEW_EVERY = 25


def hdsl(
    X: Any,
    triplets: Any,
    *,
    scale: float = 100.0,
    n_iterations: int = 8000,
    n_candidates: int = 10,
    seed: int = 0,
) -> Array:
    """Minimise the smoothed hinge of qᵀM(p − n), averaged, over convex combinations of scaled 2 × 2 bases.

    The bases are λ (e_i ± e_j)(e_i ± e_j)ᵀ. Frank–Wolfe adds one pair of features at a time, the one along which the
    gradient is steepest, with step 2/(t + 2) (Algorithm 1 of the paper, without its removal steps). The whole
    gradient would take nearly all the time: as the paper suggests for many features, i is sought among
    a few random ones, whose rows of the gradient are exact, and j among all.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, d)
    triplets : int array, shape (T, 3)
        Row numbers: query, positive, negative.
    scale : float
        λ, the size of the bases.
    n_iterations : int
        Number of bases added; stopping early keeps few features active.
    n_candidates : int
        Number of features that i is sought among.
    seed : int
        Draws them.

    Returns
    -------
    array, shape (d, d)
        M, symmetric and positive semidefinite.

    Raises
    ------
    InvalidInputError
        For bad data or parameters out of range.
    """
    rows = as_rows(X, "X")
    triplets = checked_triplets(triplets, rows.shape[0], rows.shape[0])
    d = rows.shape[1]
    scale, n_iterations = number("scale", scale, above=0), integer("n_iterations", n_iterations, 1)
    if d < 2:
        raise InvalidInputError(f"HDSL moves pairs of features: it needs 2 features or more, got {d}.")
    samples = samples_of(rows, triplets, bool(rows.nnz > DENSE_SHARE * rows.shape[0] * d))
    draws = candidates(d, n_iterations, n_candidates, seed)
    M, scores, diagonal = np.zeros((d, d)), np.zeros(len(triplets)), np.zeros(d)
    kernels.frank_wolfe(samples, M, scores, diagonal, draws, scale, 0, RENEW_EVERY)
    return M


def candidates(d: int, n_iterations: int, count: int, seed: int) -> Array:
    """Return the features that i is sought among: one row an iteration."""
    return np.random.default_rng(seed).integers(d, size=(n_iterations, min(count, d)))
