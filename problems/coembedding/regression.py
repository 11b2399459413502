"""Metric regression: inner products under the metric are to equal those without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from problems.door import table_of_numbers
from rmopt.core.ambient import Array
from rmopt.costs import EmbeddedCost


class MetricRegression(EmbeddedCost):
    """‖XᵀX − XᵀWX‖² (Mirzazadeh et al. 2015, equation 12 without its trace term).

    With more samples than features, X is exchanged for the triangle R of Xᵀ = QR: RᵀR = XXᵀ, and the norms are the
    same, so that only n × min(n, t) numbers matter.

    Parameters
    ----------
    X : array or sparse array, shape (n_features, n_samples)

    Raises
    ------
    InvalidInputError
        When X is not a table of finite numbers.

    See Also
    --------
    MultilabelCoembedding : where there are labels.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> X = np.random.default_rng(0).standard_normal((3, 20))
    >>> cost = MetricRegression(X)
    >>> cost.value(np.eye(3)) < 1e-12
    True
    >>> bool(np.isclose(cost.value(np.zeros((3, 1))), np.linalg.norm(X.T @ X) ** 2))
    True
    """

    lower_bound = 0.0

    def __init__(self, X: Any) -> None:
        X = table_of_numbers("X", X, sparse=False)
        n, t = X.shape
        self.features = np.linalg.qr(X.T, mode="r") if t > n else np.ascontiguousarray(X.T)
        self.target = self.features @ self.features.T

    def measure(self, A: Array, B: Array) -> Array:
        """Return the symmetric part of ABᵀ: all inner products of samples."""
        product = A @ B.T
        return product if B is A else 0.5 * (product + product.T)

    def spread(self, slopes: Array, Z: Array) -> Array:
        return slopes @ Z

    def loss(self, measurements: Array) -> tuple[float, Array]:
        """Return the squared distance to the inner products without the metric."""
        residual = measurements - self.target
        return float(np.vdot(residual, residual)), 2.0 * residual

    def curvature(self, measurements: Array, change: Array) -> Array:
        return 2.0 * change

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Return the eigenvectors of FᵀF that F sees, and their eigenvalues."""
        _, lengths, directions = np.linalg.svd(self.features, full_matrices=False)
        return directions.T, lengths**2

    def preconditioner(self, Y: Array, floor: float = 0.0) -> Callable[[Array], Array] | None:
        """Return the inverse of D ↦ 4 FᵀF D (YᵀFᵀF Y) + C D, where C is what bends alone, by eigenvectors of FᵀF.

        Where W commutes with FᵀF, as the minimum does, all curvature that moves W is this one or twice this one.
        """
        if not Y.shape[1]:
            return None
        U, a = self._spectrum
        inside = U.T @ Y
        b, Q = np.linalg.eigh(inside.T @ (a[:, None] * inside))
        alone = np.maximum(floor - 4.0 * a**2 * (1.0 - (inside**2).sum(axis=1)), 0.0)
        bends = 4.0 * np.outer(a, np.maximum(b, 0.0)) + alone[:, None]
        least = 1e-14 * float(bends.max())
        # Where F is blind, and how far that is from what it would be as a part of the rest.
        blind = 1.0 / max(floor, least) if len(a) < len(Y) else 0.0
        sees = 1.0 / np.maximum(bends, least) - blind

        def precondition(V: Array) -> Array:
            return U @ ((U.T @ V @ Q * sees) @ Q.T) + blind * V

        return precondition


def closed_form(X: Array, beta: float) -> tuple[Array, float]:
    """Return the minimiser of ‖XᵀX − XᵀWX‖² + β tr W for X of full rank, and the minimum.

    With X = U S Vᵀ it is U diag(max(0, 1 − β/(2 sᵢ⁴))) Uᵀ; an oracle for tests.
    """
    U, s, _ = np.linalg.svd(np.asarray(X, dtype=float), full_matrices=False)
    kept = np.maximum(0.0, 1.0 - beta / (2.0 * s**4))
    value = float(np.sum((s**2 * (1.0 - kept)) ** 2) + beta * kept.sum())
    return (U * kept) @ U.T, value
