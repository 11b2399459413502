"""The cone of positive definite matrices with the affine-invariant metric, and its row and column coordinates."""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.linalg.lapack import dtrtrs

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.errors import InvalidInputError
from rmopt.core.manifold import Manifold
from rmopt.core.retraction import Retraction
from rmopt.core.row_column import RowColumn
from rmopt.core.transport import ByProjection, Transport
from rmopt.kernels import row_column
from rmopt.linalg import leading_eigh, symmetric
from rmopt.retractions.positive_definite import POSITIVE_DEFINITE_RETRACTIONS, SecondOrderPD


class PositiveDefinite(Manifold):
    """Positive definite d × d matrices with the metric ⟨ξ, η⟩ = tr(W⁻¹ξ W⁻¹η) (Bhatia 2007, chapter 6).

    Points are symmetric arrays, tangent vectors symmetric arrays, or `RowColumn` directions where one row and
    column moves alone. Geodesics, distances and parallel transport have closed forms.

    Parameters
    ----------
    d : int
        Number of rows and columns.
    retraction : Retraction or str, optional
        The default retraction; `SecondOrderPD` unless given.

    Raises
    ------
    InvalidInputError
        For a size that is not positive.
    """

    point_type = np.ndarray
    default_retraction: Retraction = SecondOrderPD()
    # Parallel transport takes several times as long, and saves no iterations.
    default_transport: Transport = ByProjection()
    retractions = POSITIVE_DEFINITE_RETRACTIONS

    def __init__(self, d: int, retraction: Retraction | str | None = None) -> None:
        self.shape = (integer("d", d, 1),) * 2
        self.default_retraction = self.fitting(retraction)

    def __repr__(self) -> str:
        return f"PositiveDefinite({self.shape[0]})"

    @property
    def dim(self) -> int:
        return self.shape[0] * (self.shape[0] + 1) // 2

    # The tangent space

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        try:
            factor = np.linalg.cholesky(point)
        except np.linalg.LinAlgError:
            # Rounding has led a run out of the cone, where there is no metric: solvers take NaN for divergence.
            return float("nan")
        a = _whitened(factor, tangent_vector_a)
        same = tangent_vector_b is tangent_vector_a
        return float(np.vdot(a, a if same else _whitened(factor, tangent_vector_b)))

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return symmetric(dense(ambient))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return W G W for the symmetric part G of the Euclidean gradient."""
        return symmetric(point @ symmetric(dense(euclidean_gradient)) @ point)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return W H W + sym(ξ G W) for the symmetric parts G and H of the Euclidean gradient and its derivative."""
        G, H = (symmetric(dense(part)) for part in (euclidean_gradient, euclidean_hessian))
        return symmetric(point @ H @ point + tangent_vector @ G @ point)

    def embedding(self, point: Array, tangent_vector: Any) -> Array:
        return dense(tangent_vector)

    def zero_vector(self, point: Array) -> Array:
        return np.zeros(self.shape)

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        rng = np.random.default_rng(rng)
        factor = _cholesky(point)
        inner = symmetric(rng.standard_normal(self.shape))
        return symmetric(factor @ inner @ factor.T) / np.linalg.norm(inner)

    # Geodesics

    def exp(self, point: Array, tangent_vector: Any) -> Array:
        """Follow the geodesic: W exp(W⁻¹ξ)."""
        factor = _cholesky(point)
        values, vectors = np.linalg.eigh(_whitened(factor, dense(tangent_vector)))
        spread = factor @ vectors * np.exp(0.5 * values)
        return spread @ spread.T

    def log(self, point_a: Array, point_b: Array) -> Array:
        factor, values, vectors = self._relative(point_a, point_b)
        spread = factor @ vectors
        return symmetric((spread * np.log(values)) @ spread.T)

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the geodesic distance, the length of the logarithms of the eigenvalues of A⁻¹B."""
        values = eigh(point_b, point_a, eigvals_only=True)
        return float(np.linalg.norm(np.log(values)))

    def pair_mean(self, point_a: Array, point_b: Array) -> Array:
        """Return the geometric mean, the midpoint of the geodesic."""
        factor, values, vectors = self._relative(point_a, point_b)
        spread = factor @ vectors * values**0.25
        return spread @ spread.T

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Any) -> Array:
        """Carry a tangent vector along the geodesic, in parallel: E ξ Eᵀ with E = (B A⁻¹)^½."""
        factor, values, vectors = self._relative(point_a, point_b)
        spread = factor @ vectors
        carried = _whitened(spread, dense(tangent_vector_a), triangular=False)
        root = np.sqrt(np.sqrt(values))
        return symmetric((spread * root) @ (root[:, None] * carried * root) @ (spread * root).T)

    @staticmethod
    def _relative(point_a: Array, point_b: Array) -> tuple[Array, Array, Array]:
        """Return L, Λ, U with A = L Lᵀ and B = L U Λ Uᵀ Lᵀ."""
        factor = _cholesky(point_a)
        values, vectors = np.linalg.eigh(_whitened(factor, point_b))
        return factor, values, vectors

    # Rows and columns

    @property
    def n_blocks(self) -> int:
        """Number of blocks, d: block k is row and column k."""
        return self.shape[0]

    def block_of(self, ambient: Ambient, block: int) -> RowColumn:
        """Return row and column k of a symmetric operator."""
        unit = np.zeros(self.shape[0])
        unit[block] = 1.0
        return RowColumn.from_column(block, np.asarray(ambient @ unit))

    def schur_along(
        self, point: Array, direction: RowColumn, inverse: Array | None = None
    ) -> row_column.Schur:
        """Return D, b, a of the Schur complement D + 2bη − aη² of W_kk along W + η · direction.

        Parameters
        ----------
        point : array, shape (d, d)
        direction : RowColumn
        inverse : array, optional
            W⁻¹; with it this costs O(d²).
        """
        k, rest = direction.k, direction.u.copy()
        rest[k] = 0.0
        if inverse is None:
            unit = np.zeros(self.shape[0])
            unit[k] = 1.0
            w, moved = np.ascontiguousarray(cho_solve(cho_factor(point), np.column_stack([unit, rest])).T)
        else:
            w, moved = np.ascontiguousarray(inverse[k]), inverse @ rest
        return row_column.schur_along(w, moved, direction.u, k)

    def max_step(self, point: Array, direction: Any, inverse: Array | None = None) -> float:
        """Return the least t ≥ 0 at which W + t · direction leaves the cone, or infinity.

        Parameters
        ----------
        point : array, shape (d, d)
        direction : RowColumn or symmetric array
            For a row and column the bound is the root of a quadratic, the Schur complement along the line
            (Atzmon, Shalit and Chechik 2015); in general it comes from the least eigenvalue of W⁻¹ · direction.
        inverse : array, optional
            W⁻¹; with it the bound of a row and column costs O(d²).
        """
        if isinstance(direction, RowColumn):
            return float(row_column.max_step(self.schur_along(point, direction, inverse)))
        fall = leading_eigh(-dense(direction), 1, point)[0][0]
        return float(1.0 / fall) if fall > 0.0 else float("inf")

    def safe_step(self, point: Array, direction: Any) -> float:
        """Return how far a solver may go: there the Schur complement is as small as an inverse can bear."""
        if isinstance(direction, RowColumn):
            corner = point[direction.k, direction.k]
            return float(row_column.reach(row_column.STRAIGHT, self.schur_along(point, direction), corner))
        return (1.0 - row_column.MARGIN) * self.max_step(point, direction)

    # Points

    def check_point(self, point: Any) -> str | None:
        if not isinstance(point, np.ndarray) or point.shape != self.shape:
            return f"a point of {self} is an array of shape {self.shape}"
        if not np.isfinite(point).all():
            return "the point holds NaN or infinity"
        if np.abs(point - point.T).max() > 1e-12 * np.abs(point).max():
            return "the matrix is not symmetric"
        try:
            np.linalg.cholesky(point)
        except np.linalg.LinAlgError:
            return f"the matrix is not positive definite: its least eigenvalue is {np.linalg.eigvalsh(point)[0]:.1e}"
        return None

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a matrix with uniformly distributed eigenvectors and eigenvalues in [½, 1½]."""
        rng = np.random.default_rng(rng)
        Q, _ = np.linalg.qr(rng.standard_normal(self.shape))
        return symmetric((Q * rng.uniform(0.5, 1.5, self.shape[0])) @ Q.T)


def _cholesky(point: Array) -> Array:
    try:
        return np.linalg.cholesky(point)
    except np.linalg.LinAlgError:
        raise InvalidInputError(
            "the point is not positive definite to machine precision: a step led to the boundary of the cone. Take "
            "smaller steps, or scale the data."
        ) from None


def _whitened(factor: Array, matrix: Array, triangular: bool = True) -> Array:
    """Return F⁻¹ M F⁻ᵀ."""
    if triangular:
        # On small matrices `scipy.linalg.solve_triangular` takes seven times as long.
        half = dtrtrs(factor, dense(matrix), lower=1)[0]
        return symmetric(dtrtrs(factor, half.T, lower=1)[0])
    half = np.linalg.solve(factor, dense(matrix))
    return symmetric(np.linalg.solve(factor, half.T))
