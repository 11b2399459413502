"""The compiled loop of steps with reduced variance between two whole gradients, on matrices of one rank."""

from typing import NamedTuple

import numpy as np
from numba import njit

from rmopt.kernels.directed_sgd import retracted, tangent
from rmopt.kernels.losses import slope
from rmopt.kernels.steps import FINISHED, NOT_FINITE, gather_row
from rmopt.kernels.vectors import dot, product, scatter


class Known(NamedTuple):
    """Where an estimate of the whole gradient is known, U S Vᵀ, and the estimate (M, Up, Vp)."""

    U: np.ndarray
    S: np.ndarray
    V: np.ndarray
    M: np.ndarray
    Up: np.ndarray
    Vp: np.ndarray


def _run(recursive, kind, code, point, known, symmetric, counts, left, right, terms, batch):
    """Do all steps; return (number of the next step, why the loop ended).

    A step costs O(batch · nnz · k + (n + m)k²).

    Parameters
    ----------
    recursive : bool
        Whether the estimate is known from step to step.
    kind : int
        The retraction (`rmopt.kernels.lifted`).
    point : (array, array, array)
        U, S and V; U once more in place of V where the matrix is symmetric, and its gradients are symmetric parts.
    counts : int array of two
        Steps and updates.
    batch : int
        A step looks at the terms batch·t, …, batch·t + batch − 1.
    """
    U, S, V = point
    k = S.shape[0]
    u, v, Sv = np.empty(k), np.empty(k), np.empty(k)
    for t in range(terms.etas.shape[0]):
        # The gradient of the step's terms where the estimate is known, then here.
        at_U, at_S, at_V = known.U, known.S, known.V
        M, Up, Vp = known.M, known.Up, known.Vp
        for here in (False, True):
            if here:
                at_U, at_S, at_V = U, S, V
            along_V, along_U = np.zeros(U.shape), np.zeros(V.shape)
            for term in range(t * batch, (t + 1) * batch):
                row, plus, minus = terms.left[term], terms.plus[term], terms.minus[term]
                gather_row(at_U, left, row, np.int64(-1), u)
                gather_row(at_V, right, plus, minus, v)
                product(at_S, v, Sv)
                weight = slope(code, dot(u, Sv), terms.targets[term])
                if weight != 0.0:
                    u *= weight
                    v *= weight
                    _scatter(along_V, left, row, v)
                    _scatter(along_U, right, plus, u)
                    _scatter(along_U, right, minus, -u)
            if symmetric:
                along_V = 0.5 * (along_V + along_U)
            core, up, vp = tangent(symmetric, at_U, at_V, along_V, along_U)
            if not here:
                # What the terms say there beside the estimate, projected here.
                core, up, vp = core - M, up - Up, vp - Vp
                turn_U, turn_V = at_U.T @ U, at_V.T @ V
                along_V = at_U @ (core @ turn_V + vp.T @ V) + up @ turn_V
                along_U = at_V @ (core.T @ turn_U + up.T @ U) + vp @ turn_U
                M, Up, Vp = tangent(symmetric, U, V, along_V, along_U)
        M, Up, Vp = core - M, up - Up, vp - Vp
        length = np.sqrt(np.sum(M * M) + np.sum(Up * Up) + np.sum(Vp * Vp))
        if not np.isfinite(length):
            return t, NOT_FINITE
        counts[0] += 1
        if recursive:
            known.U[:], known.S[:], known.V[:] = U, S, V
            known.M[:], known.Up[:], known.Vp[:] = M, Up, Vp
        if length > 0.0:
            counts[1] += 1
            U[:], S[:], V[:] = retracted(kind, symmetric, U, S, V, M, Up, Vp, -terms.etas[t])
    return terms.etas.shape[0], FINISHED


@njit(cache=True, nogil=True)
def _scatter(A, rows, row, g):
    """Add p gᵀ to A for a row p; nothing where its number is −1."""
    if row >= 0:
        scatter(A, rows.indices, rows.values, rows.indptr[row], rows.indptr[row + 1], g)


run = njit(cache=True, nogil=True)(_run)
