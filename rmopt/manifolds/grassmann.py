"""The Grassmann manifold: subspaces, represented by orthonormal bases."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmopt import linalg
from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError
from rmopt.manifolds.arrays import ArrayManifold, root_of_sums
from rmopt.retractions.grassmann import GRASSMANN_RETRACTIONS, Exponential


class Grassmann(ArrayManifold):
    """The r-dimensional subspaces of ℝᵐ or ℂᵐ (Edelman, Arias and Smith 1998; Absil, Mahony and Sepulchre 2008).

    A point is an orthonormal basis U (m × r), and U O is the same point for every orthogonal or unitary O. A tangent
    vector is a horizontal matrix ξ with Uᴴξ = 0, which depends on the basis U. The metric is ⟨ξ, η⟩ = Re tr(ξᴴη).

    Parameters
    ----------
    m, r : int
        Dimensions of the space and of the subspaces, 1 ≤ r < m.
    field : {"real", "complex"}

    See Also
    --------
    Stiefel : if the columns themselves count, and not only their span.

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
    # Parallel transport takes ten times as long and saves no iterations.
    default_transport: Transport = ByProjection()
    retractions = GRASSMANN_RETRACTIONS

    def __init__(self, m: int, r: int, *, field: str = "real") -> None:
        self._take(field)
        self.shape = (integer("m", m, 2), integer("r", r, 1))
        if r >= m:
            raise InvalidInputError(f"Grassmann needs 1 ≤ r < m, got m = {m}, r = {r}; choose a smaller r.")

    @property
    def dim(self) -> int:
        m, r = self.shape
        return r * (m - r) * self._per_number

    @property
    def typical_dist(self) -> float:
        return float(np.sqrt(self.shape[1]))

    @property
    def diameter(self) -> float:
        m, r = self.shape
        return float(0.5 * np.pi * np.sqrt(min(r, m - r)))

    # The tangent space

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return linalg.leave_span(point, dense(ambient, point))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return (I − U Uᴴ) H − ξ UᴴG for the Euclidean gradient G and its derivative H along ξ."""
        turn = ns.adjoint(point) @ dense(euclidean_gradient, point)
        return linalg.leave_span(point, dense(euclidean_hessian, point) - tangent_vector @ turn)

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic: U V cos(Σ) Vᴴ + W sin(Σ) Vᴴ for ξ = W Σ Vᴴ (Mishra et al. 2019, equation 6).

        cos Σ and sin Σ / Σ are smooth functions of ξᴴξ, so no singular vectors of ξ are needed.
        """
        single = point.ndim == tangent_vector.ndim == 2
        if not single or type(point) is not np.ndarray or point.dtype.kind != "f":
            even, odd = linalg.gram_functions(tangent_vector, linalg.cosine, linalg.sine)
            return linalg.orthonormalised(point @ even + tangent_vector @ odd)
        # `dot` has half the overhead of `@`.
        squares, V = linalg.small_eigh(tangent_vector.T.dot(tangent_vector))
        if squares[-1] == 0.0:
            return point.copy()
        angles = np.sqrt(np.maximum(squares, 1e-30))
        moved = point.dot(V * np.cos(angles))
        moved += tangent_vector.dot(V * (np.sin(angles) / angles))
        # Rotated back, and made orthonormal to rounding.
        return moved.dot(1.5 * V.T - (0.5 * moved.T.dot(moved)).dot(V.T))

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the shortest geodesic from one subspace to another.

        It is twice that to the midpoint, to which all angles are small. If an angle is π/2, this is one of several
        shortest geodesics. The printed form (Mishra et al. 2019, equation 7) inverts AᴴB, which is singular there.
        """
        P, half, beyond = _halfway(point_a, point_b)
        squares, V = _squares(half, beyond)
        sines = ns.at_least(squares, 1e-30) ** 0.5
        stretch = 2.0 * ns.namespace(sines).asin(sines) / sines
        return beyond @ (half @ (V * stretch[..., None, :]) @ ns.adjoint(P @ V))

    def principal_angles(self, point_a: Array, point_b: Array) -> Array:
        """Return the angles between two subspaces, ascending, each to rounding (Björck and Golub 1973)."""
        _, half, beyond = _halfway(point_a, point_b)
        xp = ns.namespace(beyond)
        return 2.0 * xp.flip(xp.asin(xp.linalg.svdvals(beyond @ half)), axis=-1)

    def dist(self, point_a: Array, point_b: Array) -> Any:
        """Return the geodesic distance, the norm of the principal angles."""
        squares, _ = _squares(*_halfway(point_a, point_b)[1:])
        return 2.0 * root_of_sums(ns.namespace(squares).asin(ns.at_least(squares, 0.0) ** 0.5) ** 2, 1)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Transport a tangent vector in parallel along the shortest geodesic, to the basis of the end."""
        velocity = self.log(point_a, point_b)
        turn, bend = linalg.gram_functions(velocity, linalg.sine, linalg.versine)
        along = ns.adjoint(velocity) @ tangent_vector_a
        carried = tangent_vector_a - velocity @ (bend @ along) - point_a @ (turn @ along)
        return carried @ (ns.adjoint(self.exp(point_a, velocity)) @ point_b)

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        """Return the subspace of the leading eigenvectors of the weighted sum of projectors."""
        xp = ns.namespace(points[0])
        Q, triangle = xp.linalg.qr(xp.concat(list(points), axis=-1))
        shares = ns.asarray(np.repeat(weights, self.shape[1]), triangle, ns.real_type(triangle))
        gram = (triangle * shares) @ ns.adjoint(triangle)
        mean = Q @ linalg.leading_eigh(linalg.symmetric(gram), self.shape[1])[1]
        return np.ascontiguousarray(mean) if xp is np else mean

    # Points

    def refusal(self, point: Array) -> str | None:
        error = np.abs(ns.to_numpy(ns.adjoint(point) @ point) - np.eye(self.shape[1])).max()
        if error > ns.slack(1e-10, point):
            return f"its columns are not orthonormal: UᴴU − I reaches {error:.1e}; take np.linalg.qr(U)[0]"
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a uniformly distributed subspace."""
        return as_like(np.linalg.qr(self.drawn(rng))[0], like)


def _halfway(A: Array, B: Array) -> tuple[Array, Array, Array]:
    """Return P, D and H: H D are the principal directions of the midpoint, less their parts in the span of A.

    They are orthogonal to the directions A P, with sines of at most √½.
    """
    xp, inner = ns.namespace(A), ns.adjoint(A) @ B
    P, cosines, back = xp.linalg.svd(inner)
    # Twice, since once leaves the rounding errors of A's orthonormality.
    beyond = linalg.leave_span(A, B - A @ inner)
    # The sum of the directions of A and of B is as long as this root.
    return P, ns.adjoint(back) / xp.sqrt(2.0 + 2.0 * cosines)[..., None, :], beyond


def _squares(half: Array, beyond: Array) -> tuple[Array, Array]:
    """Return the squared sines of `_halfway`, the eigenvalues of (H D)ᴴ H D, with eigenvectors."""
    return linalg.small_eigh(ns.adjoint(half) @ (ns.adjoint(beyond) @ beyond) @ half)
