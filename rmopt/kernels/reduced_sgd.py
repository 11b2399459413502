"""The compiled loop of steps with reduced variance between two whole gradients, on matrices of one rank."""

from typing import NamedTuple

import numpy as np

from rmopt.kernels.compiled import njit
from rmopt.kernels.directed_sgd import carried, retracted, tangent
from rmopt.kernels.losses import slope_of
from rmopt.kernels.matrices import combined, cross, inner, transposed, write
from rmopt.kernels.steps import FINISHED, NOT_FINITE, gather_row, scatter_row
from rmopt.kernels.vectors import dot, product


class Known(NamedTuple):
    """Where an estimate of the whole gradient is known, U S Vᵀ, and the estimate (M, Up, Vp)."""

    U: np.ndarray
    S: np.ndarray
    V: np.ndarray
    M: np.ndarray
    Up: np.ndarray
    Vp: np.ndarray


@njit(cache=True, nogil=True)
def run(loss, recursive, kind, point, known, symmetric, counts, left, right, terms, batch):
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
                weight = slope_of(loss, dot(u, Sv), terms.targets[term])
                if weight != 0.0:
                    for c in range(k):
                        u[c] *= weight
                        v[c] *= weight
                    scatter_row(along_V, left, row, v, 1.0)
                    scatter_row(along_U, right, plus, u, 1.0)
                    scatter_row(along_U, right, minus, u, -1.0)
            if symmetric:
                along_V = combined(0.5, along_V, 0.5, along_U)
            core, up, vp = tangent(symmetric, at_U, at_V, along_V, along_U)
            if not here:
                # What the terms say there beside the estimate, projected here.
                core, up, vp = (
                    combined(1.0, core, -1.0, M), combined(1.0, up, -1.0, Up), combined(1.0, vp, -1.0, Vp)
                )  # fmt: skip
                along_V = carried(at_U, core, up, vp, cross(at_V, V), V)
                along_U = carried(at_V, transposed(core), vp, up, cross(at_U, U), U)
                M, Up, Vp = tangent(symmetric, U, V, along_V, along_U)
        M, Up, Vp = combined(1.0, core, -1.0, M), combined(1.0, up, -1.0, Up), combined(1.0, vp, -1.0, Vp)
        length = np.sqrt(inner(M, M) + inner(Up, Up) + inner(Vp, Vp))
        if not np.isfinite(length):
            return t, NOT_FINITE
        counts[0] += 1
        if recursive:
            write(known.U, U)
            write(known.S, S)
            write(known.V, V)
            write(known.M, M)
            write(known.Up, Up)
            write(known.Vp, Vp)
        if length > 0.0:
            counts[1] += 1
            end_U, end_S, end_V = retracted(kind, symmetric, U, S, V, M, Up, Vp, -terms.etas[t])
            write(U, end_U)
            write(S, end_S)
            write(V, end_V)
    return terms.etas.shape[0], FINISHED
