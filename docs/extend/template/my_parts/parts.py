"""A cost and a retraction: the smallest parts that solvers of rmopt take."""

import numpy as np
from scipy.linalg import solve_triangular

from rmopt.core import Cost, Retraction


class Spread(Cost):
    """Minus half the mean square of the rows of X inside a subspace.

    The minimum is the principal subspace of the rows.

    Parameters
    ----------
    X : array or sparse array of shape (n_rows, n_features)
    """

    def __init__(self, X):
        self.X = X

    def value(self, point):
        """Return the cost of an orthonormal basis."""
        return -0.5 * float(np.sum((self.X @ point) ** 2)) / self.X.shape[0]

    def gradient(self, point):
        """Return the Euclidean gradient; the manifold projects it."""
        return -(self.X.T @ (self.X @ point)) / self.X.shape[0]

    def hessian(self, point, direction):
        """Return the Euclidean Hessian times a direction, which trust regions need."""
        return -(self.X.T @ (self.X @ direction)) / self.X.shape[0]


class CholeskyQR(Retraction):
    """Make U + tZ orthonormal by the Cholesky factor of its Gram matrix."""

    order = 2
    name = "cholesky-qr"

    def __call__(self, manifold, point, tangent, t=1.0):
        moved = point + t * tangent
        factor = np.linalg.cholesky(moved.T @ moved)
        return solve_triangular(factor, moved.T, lower=True).T
