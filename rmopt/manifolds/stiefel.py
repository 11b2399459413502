"""Frames, matrices with orthonormal columns, and rotations; both also in batches."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from rmopt import linalg
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, one_of
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds.arrays import ArrayManifold, weighted_sum
from rmopt.precision import coarseness, slack
from rmopt.retractions.arrays import CANONICAL_RETRACTIONS, FRAME_RETRACTIONS, CanonicalCayley
from rmopt.retractions.grassmann import Exponential, Polar

# Steps or shots towards a geodesic: from three with the canonical metric, and ten with the Euclidean one, for near
# points to some dozens for far ones. Beyond, some pairs have none that come nearer.
MAX_STEPS = 500
# Steps whose outcome the next one is made of.
MEMORY = 10
# Where along a geodesic what a shot misses is carried back to its start, as parts of its length.
STAGES = np.array([1.0, 2.0 / 3.0, 1.0 / 3.0])[:, None, None]

Move = Callable[[Array, Array], Array]


class Stiefel(ArrayManifold):
    """The n × p matrices X with orthonormal columns, or batches of them.

    A tangent vector at X is an array ξ of the same shape with Xᵀξ + ξᵀX = 0. Its square is ‖ξ‖² with the Euclidean
    metric, that of the space around, and ‖ξ‖² − ½ ‖Xᵀξ‖² with the canonical one (Edelman, Arias and Smith 1998).

    Logarithms and distances are found step by step (Zimmermann and Hüper 2022). Within π, with the canonical metric
    0.89 π, they are those of the one shortest geodesic; beyond those of one that need not be the shortest. Where none
    is found, which begins at 0.95 π, a `MissingCapabilityError` tells.

    Parameters
    ----------
    n, p : int
        Numbers of rows and columns, p ≤ n.
    k : int
        With more than 1, a point is a k × n × p array of as many matrices.
    metric : "euclidean" or "canonical"

    See Also
    --------
    Grassmann : where only the span counts.
    SpecialOrthogonal : as many columns as rows, and no reflections.

    References
    ----------
    Edelman, Arias and Smith, The geometry of algorithms with orthogonality constraints, SIAM J. Matrix Anal.
    Appl. 20 (1998), https://doi.org/10.1137/S0895479895290954. Zimmermann, A matrix-algebraic algorithm for the
    Riemannian logarithm on the Stiefel manifold under the canonical metric, SIAM J. Matrix Anal. Appl. 38
    (2017), https://doi.org/10.1137/16M1074485.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Stiefel
    >>> manifold = Stiefel(5, 2, metric="canonical")
    >>> rng = np.random.default_rng(0)
    >>> x, y = manifold.random_point(rng), manifold.random_point(rng)
    >>> bool(np.allclose(manifold.exp(x, manifold.log(x, y)), y))
    True
    """

    metric: ClassVar[str] = "euclidean"
    default_retraction: Retraction = Polar()
    retractions = FRAME_RETRACTIONS

    def __init__(self, n: int, p: int, k: int = 1, *, metric: str = "euclidean") -> None:
        if type(self) is Stiefel and metric == "canonical":
            # The methods of each metric are those of a class.
            self.__class__ = CanonicalStiefel
        self.n, self.p, self.k = integer("n", n, 1), integer("p", p, 1), integer("k", k, 1)
        self.shape = (self.n, self.p) if k == 1 else (self.k, self.n, self.p)
        if one_of("metric", metric, ("euclidean", "canonical")) == "canonical" != self.metric:
            raise InvalidInputError(
                f"{type(self).__name__} has the Euclidean metric; derive it from CanonicalStiefel for the other."
            )
        if p > n or self.dim < 1:
            raise InvalidInputError(
                f"{self} is empty, or has no directions to go: it needs p ≤ n and n ≥ 2; choose a larger n."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}, {self.p}{f', k={self.k}' if self.k > 1 else ''})"

    @property
    def dim(self) -> int:
        return self.k * (self.n * self.p - self.p * (self.p + 1) // 2)

    @property
    def typical_dist(self) -> float:
        return float((self.p * self.k) ** 0.5)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        Z = dense(ambient, point)
        normal = point @ linalg.symmetric(point.mT @ Z)
        return np.subtract(Z, normal, out=normal)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return P(H − ξ sym(XᵀG)) for the Euclidean gradient G and its derivative H along ξ."""
        bend = linalg.symmetric(point.mT @ dense(euclidean_gradient, point))
        return self.projection(point, dense(euclidean_hessian, point) - tangent_vector @ bend)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic, by exponentials of skew-symmetric matrices (Zimmermann and Hüper 2022)."""
        return _euclidean_exp(point, tangent_vector)

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of a geodesic.

        Raises
        ------
        MissingCapabilityError
            Where none is found between points that are far apart.
        """
        pairs = zip(*(point.reshape(-1, self.n, self.p) for point in (point_a, point_b)), strict=True)
        return np.array([self._log_of_one(*pair) for pair in pairs]).reshape(self.shape)

    def _log_of_one(self, point_a: Array, point_b: Array) -> Array:
        # Projections are the same for frames of any number of rows, without batches.
        return _euclidean_log(point_a, point_b, partial(Stiefel.projection, self))

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the length of that geodesic; errors are those of `log`."""
        return self.norm(point_a, self.log(point_a, point_b))

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        P, _, Qt = np.linalg.svd(weighted_sum(points, weights), full_matrices=False)
        return P @ Qt

    # Points

    def refusal(self, point: Array) -> str | None:
        error = float(np.abs(point.mT @ point - np.eye(self.p)).max())
        if error > slack(1e-10, point):
            return f"its columns are not orthonormal: XᵀX − I reaches {error:.1e}; take np.linalg.qr(X)[0]"
        return None

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a uniformly distributed point."""
        return linalg.positive_qr(np.random.default_rng(rng).standard_normal(self.shape))


class CanonicalStiefel(Stiefel):
    """`Stiefel` with the canonical metric; it is made by ``Stiefel(n, p, metric="canonical")``."""

    metric = "canonical"
    default_retraction: Retraction = CanonicalCayley()
    retractions = CANONICAL_RETRACTIONS

    def __repr__(self) -> str:
        return f"Stiefel({self.n}, {self.p}{f', k={self.k}' if self.k > 1 else ''}, metric='canonical')"

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        whole = super().inner_product(point, tangent_vector_a, tangent_vector_b)
        return whole - 0.5 * float(np.vdot(point.mT @ tangent_vector_a, point.mT @ tangent_vector_b))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return G − X GᵀX for the Euclidean gradient G."""
        G = dense(euclidean_gradient, point)
        return G - point @ (G.mT @ point)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return the Hessian of Edelman, Arias and Smith (1998, section 2.4.5)."""
        X, xi = point, tangent_vector
        G, H = dense(euclidean_gradient, X), dense(euclidean_hessian, X)
        bent = linalg.symmetric(X.mT @ G)
        outside = xi - X @ (X.mT @ xi)
        change = H + 0.5 * (X @ (xi.mT @ G) + G @ (xi.mT @ X)) - outside @ bent
        return self.euclidean_to_riemannian_gradient(X, change)

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic: turn all space at a constant rate."""
        frame, core = linalg.skew_form(point, tangent_vector)
        return linalg.orthonormalised(frame @ linalg.rotation(core)[..., : self.p])

    def _log_of_one(self, point_a: Array, point_b: Array) -> Array:
        return _canonical_log(point_a, point_b)


class SpecialOrthogonal(Stiefel):
    """The rotations of ℝⁿ, orthogonal n × n matrices of determinant 1, or batches of them.

    A tangent vector at X is an array ξ = XΩ of the same shape, with a skew-symmetric Ω. That of pymanopt's
    SpecialOrthogonalGroup is Ω itself; both have the same length.

    Parameters
    ----------
    n : int
        The dimension, 2 or more.
    k : int
        With more than 1, a point is a k × n × n array of as many rotations.

    See Also
    --------
    Stiefel : fewer columns than rows, and reflections.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import SpecialOrthogonal
    >>> manifold = SpecialOrthogonal(3)
    >>> Q = manifold.random_point(np.random.default_rng(0))
    >>> bool(np.isclose(np.linalg.det(Q), 1.0))
    True
    >>> bool(np.allclose(manifold.exp(Q, manifold.log(Q, np.eye(3))), np.eye(3)))
    True
    """

    default_retraction: Retraction = Exponential()
    # Parallel transport takes longer, and saves no iterations.
    default_transport: Transport = ByProjection()

    def __init__(self, n: int, k: int = 1) -> None:
        super().__init__(n, n, k)

    def __repr__(self) -> str:
        return f"SpecialOrthogonal({self.n}{f', k={self.k}' if self.k > 1 else ''})"

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic X exp(Ω), with even and odd powers of Ω as functions of ξᵀξ."""
        if self.n > 3:
            even, odd = linalg.gram_functions(tangent_vector, linalg.cosine, linalg.sine)
            return linalg.orthonormalised(point @ even + tangent_vector @ odd)
        # Rodrigues: two of the three squared singular values are equal, the third is 0.
        squares = 0.5 * (tangent_vector * tangent_vector).sum(axis=(-2, -1), keepdims=True)
        twice = tangent_vector @ (point.mT @ tangent_vector)
        return linalg.orthonormalised(
            point + tangent_vector * linalg.sine(squares) + twice * linalg.versine(squares)
        )

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the shortest geodesic; where an angle is π, of one of many.

        Raises
        ------
        MissingCapabilityError
            Where one of the matrices is no rotation.
        """
        quotients = _turning(point_a.mT @ point_b)
        if self.n == 3:
            return point_a @ _log_in_space(quotients)
        each = [linalg.rotation_log(one) for one in quotients.reshape(-1, self.n, self.n)]
        return point_a @ np.array(each).reshape(self.shape)

    def dist(self, point_a: Array, point_b: Array) -> float:
        """Return the geodesic distance: the length of the vector of all angles, where each counts twice."""
        return float(np.linalg.norm(np.angle(np.linalg.eigvals(_turning(point_a.mT @ point_b)))))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the shortest geodesic, in parallel: half of the turn on both sides of Ω."""
        middle = self.pair_mean(point_a, point_b)
        return middle @ (point_a.mT @ tangent_vector_a) @ (point_a.mT @ middle)

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        P, _, Qt = np.linalg.svd(weighted_sum(points, weights))
        P[..., :, -1] *= np.linalg.det(P @ Qt)[..., None]
        return P @ Qt

    # Points

    def refusal(self, point: Array) -> str | None:
        if (reason := super().refusal(point)) is not None:
            return reason
        return None if (np.linalg.det(point) > 0.0).all() else "its determinant is −1; turn a column around"

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a uniformly distributed point."""
        point = super().random_point(rng)
        point[..., 0] *= np.linalg.det(point)[..., None]
        return linalg.orthonormalised(point)


class _Memory:
    """The last steps towards a residual of zero, and what they did to it: a third of the steps (Anderson 1965)."""

    def __init__(self) -> None:
        self.seen, self.steps = list[Array](), list[Array]()

    def parts_of(self, residual: Array) -> tuple[Array, Any]:
        """Return what of a residual these steps do not explain, and the step that takes off the rest."""
        if self.seen and np.linalg.norm(residual) > np.linalg.norm(self.seen[-1]):
            self.seen, self.steps = [], []
        self.seen, self.steps = [*self.seen[-MEMORY:], residual], self.steps[-MEMORY:]
        moves = np.diff(self.seen, axis=0)
        shares = np.linalg.lstsq(moves.reshape(-1, residual.size).T, residual.ravel())[0]
        undone = np.tensordot(shares, self.steps, 1).astype(residual.dtype)
        return residual - np.tensordot(shares, moves, 1), -undone


def _euclidean_exp(X: Array, xi: Array) -> Array:
    frame, core = linalg.skew_form(X, xi)
    p = X.shape[-1]
    turn = core[..., :p, :p].copy()
    core[..., :p, :p] *= 2.0
    return linalg.orthonormalised(frame @ (linalg.rotation(core)[..., :p] @ linalg.rotation(-turn)))


def _euclidean_log(X: Array, Y: Array, projection: Move) -> Array:
    """Return the initial velocity of a geodesic from X to Y, by shots (Bryner 2017; Zimmermann and Hüper 2022).

    Single columns and square matrices have closed forms, at all distances. Otherwise each geodesic ends beside Y;
    what is missing is carried back along it, by projections that keep its length, and added to the velocity. All of
    that is in the space of X and Y, so a shot costs O(p³). `projection` is that of frames with p columns, and as many
    rows as X and Y span dimensions or more.
    """
    p = X.shape[1]
    M = X.T @ Y
    Q = np.linalg.qr(np.hstack([X, Y - X @ M]))[0][:, p:]
    if not Q.size:
        # Rotations: their geodesics are those of the group.
        return X @ linalg.rotation_log(_turning(M))
    goal = np.vstack([M, Q.T @ Y])
    if p == 1:
        # A great circle.
        return Q * np.arctan2(goal[1], goal[0])
    start = np.eye(*goal.shape, dtype=goal.dtype)
    velocity = projection(start, goal - start)
    velocity *= np.linalg.norm(goal - start) / max(float(np.linalg.norm(velocity)), 1e-30)
    enough = 3e-14 * coarseness(goal) * p**0.5
    memory, starts = _Memory(), np.broadcast_to(start, (len(STAGES), *start.shape))
    stages = STAGES.astype(goal.dtype)
    for _ in range(MAX_STEPS):
        places = _euclidean_exp(starts, velocity * stages)
        missing = goal - places[0]
        gap = float(np.linalg.norm(missing))
        for place in (*places, start):
            missing = projection(place, missing)
            carried = float(np.linalg.norm(missing))
            missing *= gap / max(carried, 1e-30)
        if gap <= enough:
            velocity = velocity + missing
            return X @ velocity[:p] + Q @ velocity[p:]
        step = np.add(*memory.parts_of(missing))
        memory.steps.append(step)
        velocity = velocity + step
    raise _too_far("shots")


def _canonical_log(X: Array, Y: Array) -> Array:
    """Return the initial velocity of a geodesic from X to Y (Zimmermann 2017; Zimmermann and Hüper 2022, section 3).

    In the space of X and Y a rotation that leads from X to Y is wanted whose logarithm is [[A, −Bᵀ], [B, 0]]. It is
    free in how it turns what is orthogonal to X, by which the last block C is brought to zero.
    """
    n, p = X.shape
    M = X.T @ Y if p < n else _turning(X.T @ Y)
    Q = np.linalg.qr(np.hstack([X, Y - X @ M]))[0][:, p:]
    V = np.vstack([M, Q.T @ Y])
    V = np.hstack([V, np.linalg.qr(V, mode="complete")[0][:, p:]])
    # The nearest to the identity in its last block, for a start.
    left, _, right = np.linalg.svd(V[p:, p:])
    V[:, p:] = V[:, p:] @ right.T
    if np.linalg.det(V) * np.linalg.det(left) < 0.0:
        V[:, -1] *= -1.0
    V[:, p:] = V[:, p:] @ left.T
    memory = _Memory()
    for _ in range(MAX_STEPS):
        generator = linalg.rotation_log(V)
        B, C = generator[p:, :p], generator[p:, p:]
        if np.linalg.norm(C) <= 1e-13 * coarseness(C):
            return X @ generator[:p, :p] + Q @ B
        rest, known = memory.parts_of(C)
        # To third order in B the block C moves by S Γ + Γ S with S = BBᵀ/12 − I/2, which far off is no guide.
        squares, vectors = np.linalg.eigh(B @ B.T)
        pull = np.maximum(0.5 - squares / 12.0, 0.02)
        turn = vectors @ ((vectors.T @ rest @ vectors) / (pull[:, None] + pull)) @ vectors.T
        memory.steps.append(0.5 * (turn.T - turn) + known)
        V[:, p:] = V[:, p:] @ linalg.rotation(memory.steps[-1])
    raise _too_far("steps")


def _turning(Q: Array) -> Array:
    """Return quotients XᵀY of square frames, or say that some are no rotations."""
    if (np.linalg.det(Q) > 0.0).all():
        return Q
    raise MissingCapabilityError(
        "there is no geodesic between square matrices with determinants of different signs; turn one column around."
    )


def _too_far(tried: str) -> MissingCapabilityError:
    return MissingCapabilityError(
        f"no geodesic was found between two frames in {MAX_STEPS} {tried}: they are about π or more apart. Use a "
        "solver that needs no logarithm, or points that are closer."
    )


def _log_in_space(Q: Array) -> Array:
    """Return the skew-symmetric logarithms of rotations of ℝ³ by axes and angles, exact at all angles."""
    # Entries [j, i] of all matrices at once: numbers of a single one.
    entries = Q.T
    x, y, z = (0.5 * (entries[i, j] - entries[j, i]) for i, j in ((1, 2), (2, 0), (0, 1)))
    cosines = 0.5 * (entries[0, 0] + entries[1, 1] + entries[2, 2] - 1.0)
    sines = np.sqrt(np.maximum(x * x + y * y + z * z, np.finfo(Q.dtype).tiny))
    angle = np.arctan2(sines, cosines)
    turn = np.array([x, y, z]) * (angle / sines)
    if np.any(cosines < 0.0):
        turn = np.where(cosines < 0.0, angle * _wide_axes(Q, turn, cosines), turn)
    x, y, z = turn
    zero = np.zeros_like(x)
    return np.ascontiguousarray(np.array([[zero, z, -y], [-z, zero, x], [y, -x, zero]]).T)


def _wide_axes(Q: Array, turn: Array, cosines: Any) -> Array:
    """Return the axes n of turns towards half turns, where sines vanish: the longest column of (1 − cos) n nᵀ."""
    square = linalg.symmetric(Q) - cosines[..., None, None] * np.eye(3, dtype=Q.dtype)
    longest = np.argmax(np.diagonal(square, axis1=-2, axis2=-1), axis=-1)
    column = np.take_along_axis(square, longest[..., None, None], axis=-1)[..., 0].T
    length = np.linalg.norm(column, axis=0)
    return column / np.where((column * turn).sum(0) < 0.0, -length, length)
