"""Convex multitask feature learning by alternating minimisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmopt.core.arguments import number

Array = np.ndarray


def alt_min(
    tasks: Sequence[tuple[Array, Array]],
    lam: float,
    *,
    tol: float = 1e-8,
    max_iterations: int = 2000,
    smoothing: float = 1e-8,
) -> tuple[Array, list[float]]:
    """Minimise ½ Σ_t ‖X_t a_t − y_t‖² + λ ‖A‖₊² over all a_t, where ‖A‖₊ is the trace norm, a little smoothed.

    The convex form of equation 13 of Mishra et al. 2019 (Argyriou, Evgeniou and Pontil 2008, Algorithm 1): ‖A‖₊² is
    the least Σ a_tᵀ D⁻¹ a_t over D ⪰ 0 of trace 1, and the minimum over A and over D has a closed form each. With
    ε > 0 in D = (A Aᵀ + ε I)^½ / tr, directions that A has lost can come back; ‖A‖₊ becomes Σ √(σ² + ε).

    Parameters
    ----------
    tasks : sequence of (array, array)
        Examples X_t, shape (d_t, m), and labels y_t.
    lam : float
        λ, positive.
    tol : float
        Stop when the objective changes by less than this, relative.
    max_iterations : int
    smoothing : float
        ε, relative to the mean squared singular value after the first iteration.

    Returns
    -------
    A : array, shape (m, n_tasks)
    history : list of float
        The objective after each iteration; it does not increase.

    Raises
    ------
    InvalidInputError
        When λ is not positive.
    """
    lam = number("lam", lam, above=0)
    grams = np.array([X.T @ X for X, _ in tasks])
    rights = np.array([X.T @ y for X, y in tasks])
    squares = sum(float(y @ y) for _, y in tasks)
    m = grams.shape[1]
    root, eps = np.eye(m) / np.sqrt(m), None
    history: list[float] = []
    for _ in range(max_iterations):
        # a = D^½ b with (D^½ XᵀX D^½ + 2λ I) b = D^½ Xᵀy: no inverse of D, which loses rank.
        b = np.linalg.solve(root @ grams @ root + 2.0 * lam * np.eye(m), (rights @ root)[..., None])[..., 0]
        A = root @ b.T
        spectrum, U = np.linalg.eigh(A @ A.T)
        eps = smoothing * float(np.mean(spectrum)) if eps is None else eps
        sigma = np.sqrt(np.maximum(spectrum, 0.0) + eps)
        if not sigma.any():
            # No label depends on any feature.
            return A, [*history, 0.5 * squares]
        root = (U * np.sqrt(sigma / sigma.sum())) @ U.T
        fit = 0.5 * (np.einsum("jt,tjk,kt->", A, grams, A) - 2.0 * np.sum(rights.T * A) + squares)
        history.append(float(fit + lam * sigma.sum() ** 2))
        if len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-1]):
            break
    return A, history
