"""Logarithms of frames with the canonical metric, for which no closed form is known."""

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import MissingCapabilityError
from rmopt.linalg import rotation, rotation_log
from rmopt.precision import coarseness

# Steps towards a geodesic: three for near points, some dozens at 0.8 π.
MAX_STEPS = 500


def log(X: Array, Y: Array) -> Array:
    """Return the initial velocity of a geodesic from X to Y (Zimmermann 2017; Zimmermann and Hüper 2022, section 3).

    In the space of X and Y a rotation that leads from X to Y is wanted whose logarithm is [[A, −Bᵀ], [B, 0]]. It is
    free in how it turns what is orthogonal to X, by which the last block C is brought to zero.

    Parameters
    ----------
    X, Y : array, shape (n, p)

    Raises
    ------
    MissingCapabilityError
        When C stays: the points are far apart. And for square matrices of which one is no rotation of the other.
    """
    n, p = X.shape
    M = X.T @ Y
    Q = np.linalg.qr(np.hstack([X, Y - X @ M]))[0][:, p:]
    V = np.vstack([M, Q.T @ Y])
    V = np.hstack([V, np.linalg.qr(V, mode="complete")[0][:, p:]])
    # The nearest to the identity in its last block, for a start.
    left, _, right = np.linalg.svd(V[p:, p:])
    V[:, p:] = V[:, p:] @ right.T
    if np.linalg.det(V) * np.linalg.det(left) < 0.0:
        if n == p:
            raise MissingCapabilityError(
                "no geodesic leads from one point to the other: one of the square matrices has determinant 1, "
                "the other −1. Take points of the same determinant."
            )
        V[:, -1] *= -1.0
    V[:, p:] = V[:, p:] @ left.T
    for _ in range(MAX_STEPS):
        generator = rotation_log(V)
        B, C = generator[p:, :p], generator[p:, p:]
        if np.linalg.norm(C) <= 1e-13 * coarseness(C):
            return X @ generator[:p, :p] + Q @ B
        # To third order in B the block C moves by S Γ + Γ S with S = BBᵀ/12 − I/2, which far off is no guide.
        squares, vectors = np.linalg.eigh(B @ B.T)
        pull = np.maximum(0.5 - squares / 12.0, 0.02)
        turn = vectors @ ((vectors.T @ C @ vectors) / (pull[:, None] + pull)) @ vectors.T
        V[:, p:] = V[:, p:] @ rotation(0.5 * (turn.T - turn))
    raise MissingCapabilityError(
        f"no geodesic was found between two frames in {MAX_STEPS} steps: they are about π or more apart. Use a "
        "solver that needs no logarithm, or points that are closer."
    )
