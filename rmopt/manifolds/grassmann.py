"""The Grassmann manifold: subspaces, held by orthonormal bases."""

from collections.abc import Sequence

import numpy as np

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError
from rmopt.linalg import gram_functions, leading_eigh, leave_span, sine, small_eigh, symmetric, versine
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.precision import slack
from rmopt.retractions.grassmann import GRASSMANN_RETRACTIONS, Exponential


class Grassmann(ArrayManifold):
    """The r-dimensional subspaces of ℝᵐ (Edelman, Arias and Smith 1998; Absil, Mahony and Sepulchre 2008).

    A point is an orthonormal basis U (m × r), and so is U O for every orthogonal O. A tangent vector is the
    horizontal matrix ξ with Uᵀξ = 0, with the metric ⟨ξ, η⟩ = tr(ξᵀη); it belongs to the basis U.

    Parameters
    ----------
    m, r : int
        Dimensions of the space and of the subspaces, 1 ≤ r < m.

    See Also
    --------
    Stiefel : where the columns themselves count, and not only what they span.

    References
    ----------
    Edelman, Arias and Smith, The geometry of algorithms with orthogonality constraints, SIAM J. Matrix Anal.
    Appl. 20 (1998), https://doi.org/10.1137/S0895479895290954. Absil, Mahony and Sepulchre, Optimization
    Algorithms on Matrix Manifolds, Princeton University Press (2008), https://doi.org/10.1515/9781400830244.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Grassmann
    >>> manifold = Grassmann(5, 2)
    >>> U = np.eye(5)[:, :2]
    >>> manifold.dim, round(manifold.dist(U, -U[:, ::-1]), 8)
    (6, 0.0)
    >>> bool(np.isclose(manifold.dist(U, np.eye(5)[:, 1:3]), np.pi / 2))
    True
    """

    default_retraction: Retraction = Exponential()
    # Parallel transport takes ten times as long, and saves no iterations.
    default_transport: Transport = ByProjection()
    retractions = GRASSMANN_RETRACTIONS

    def __init__(self, m: int, r: int) -> None:
        self.shape = (integer("m", m, 2), integer("r", r, 1))
        if r >= m:
            raise InvalidInputError(f"Grassmann needs 1 ≤ r < m, got m = {m}, r = {r}; choose a smaller r.")

    @property
    def dim(self) -> int:
        m, r = self.shape
        return r * (m - r)

    @property
    def typical_dist(self) -> float:
        return float(np.sqrt(self.shape[1]))

    @property
    def diameter(self) -> float:
        m, r = self.shape
        return float(0.5 * np.pi * np.sqrt(min(r, m - r)))

    # The tangent space

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return leave_span(point, dense(ambient, point))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return (I − U Uᵀ) H − ξ UᵀG for the Euclidean gradient G and its derivative H along ξ."""
        turn = point.T @ dense(euclidean_gradient, point)
        return leave_span(point, dense(euclidean_hessian, point) - tangent_vector @ turn)

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic: U V cos(Σ) Vᵀ + W sin(Σ) Vᵀ for ξ = W Σ Vᵀ (Mishra et al. 2019, equation 6).

        cos Σ and sin Σ / Σ are smooth functions of ξᵀξ, so no singular vectors of ξ are needed.
        """
        # `dot` takes half of the time that `@` takes to begin.
        squares, V = small_eigh(tangent_vector.T.dot(tangent_vector))
        if squares[-1] == 0.0:
            return point.copy()
        angles = np.sqrt(np.maximum(squares, 1e-30))
        moved = point.dot(V * np.cos(angles))
        moved += tangent_vector.dot(V * (np.sin(angles) / angles))
        # Turned back, and made orthonormal to rounding.
        return moved.dot(1.5 * V.T - (0.5 * moved.T.dot(moved)).dot(V.T))

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the shortest geodesic from one subspace to another.

        Where an angle between them is π/2 there are several shortest geodesics; this is one of them. The printed
        form (Mishra et al. 2019, equation 7) inverts AᵀB, which is singular there.
        """
        P, cosines, beyond = _principal(point_a, point_b)
        wide = _wide(cosines)
        large, small = beyond[:, wide], beyond[:, ~wide]
        sines = np.linalg.norm(large, axis=0)
        velocity = (large * (np.arctan2(sines, cosines[wide]) / sines)) @ P[:, wide].T
        if small.shape[1]:
            # Small angles may share a cosine to rounding: they are told apart by their sines.
            (stretch,) = gram_functions(small, _arc_over_sine)
            velocity += small @ (stretch @ P[:, ~wide].T)
        return velocity

    def principal_angles(self, point_a: Array, point_b: Array) -> Array:
        """Return the angles between two subspaces, ascending, each to rounding (Björck and Golub 1973)."""
        _, cosines, beyond = _principal(point_a, point_b)
        wide = _wide(cosines)
        large = np.arctan2(np.linalg.norm(beyond[:, wide], axis=0), cosines[wide])
        sines = np.linalg.svd(beyond[:, ~wide], compute_uv=False)
        return np.sort(np.concatenate([np.arcsin(np.minimum(sines, 1.0)), large]))

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the geodesic distance, the length of the vector of principal angles."""
        return float(np.linalg.norm(self.principal_angles(point_a, point_b)))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the shortest geodesic, in parallel, to the basis of the end."""
        velocity = self.log(point_a, point_b)
        turn, bend = gram_functions(velocity, sine, versine)
        along = velocity.T @ tangent_vector_a
        carried = tangent_vector_a - velocity @ (bend @ along) - point_a @ (turn @ along)
        return carried @ (self.exp(point_a, velocity).T @ point_b)

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        """Return the subspace of the leading eigenvectors of the weighted sum of projectors."""
        Q, triangle = np.linalg.qr(np.hstack(points))
        gram = (triangle * np.repeat(weights, self.shape[1])) @ triangle.T
        return np.ascontiguousarray(Q @ leading_eigh(symmetric(gram), self.shape[1])[1])

    # Points

    def refusal(self, point: Array) -> str | None:
        error = float(np.abs(point.T @ point - np.eye(self.shape[1])).max())
        if error > slack(1e-10, point):
            return f"its columns are not orthonormal: UᵀU − I reaches {error:.1e}; take np.linalg.qr(U)[0]"
        return None

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a uniformly distributed subspace."""
        return np.linalg.qr(np.random.default_rng(rng).standard_normal(self.shape))[0]


def _principal(A: Array, B: Array) -> tuple[Array, Array, Array]:
    """Return P, c and H: the principal directions of A, the cosines, and what of those of B lies outside of A."""
    P, cosines, Qt = np.linalg.svd(A.T @ B)
    beyond = B @ Qt.T - A @ (P * cosines)
    # Twice: once leaves the rounding errors of A's orthonormality.
    return P, cosines, leave_span(A, beyond)


def _wide(cosines: Array) -> Array:
    """Return which angles are above π/4: these are known by their cosines, the others by their sines."""
    return cosines * cosines < 0.5


def _arc_over_sine(squares: Array) -> Array:
    """Return arcsin(s)/s."""
    sines = np.sqrt(np.minimum(squares, 1.0))
    return np.divide(np.arcsin(sines), sines, out=np.ones_like(sines), where=sines > 0.0)
