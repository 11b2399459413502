"""Frames (matrices with orthonormal columns), rotations and unitary matrices, also in batches."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from rmopt import linalg
from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, one_of
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds.arrays import ArrayManifold, root_of_sums, weighted_sum
from rmopt.retractions.arrays import CANONICAL_RETRACTIONS, FRAME_RETRACTIONS, CanonicalCayley
from rmopt.retractions.grassmann import Exponential, Polar

# Iterations of a search for a geodesic: near points need three in the canonical metric and ten in the Euclidean one,
# far points some dozens. For farther pairs it may not converge.
MAX_STEPS = 500
# Number of earlier steps that the next one combines.
MEMORY = 10
# Places on a geodesic, as parts of its length, by which a shot's error is carried back to its start.
STAGES = np.array([1.0, 2.0 / 3.0, 1.0 / 3.0])[:, None, None]
# The skew-symmetric generators of rotations of ℝ³ around its axes, as rows.
TURNS = np.cross(np.eye(3), np.eye(3)[:, None]).reshape(3, 9)

Move = Callable[[Array, Array], Array]


class Stiefel(ArrayManifold):
    """The n × p matrices X with orthonormal columns, or batches of them.

    A tangent vector at X is an array ξ of the same shape with Xᴴξ + ξᴴX = 0. Its squared length is ‖ξ‖² in the
    Euclidean metric, that of the ambient space, and ‖ξ‖² − ½ ‖Xᴴξ‖² in the canonical one (Edelman, Arias and Smith
    1998).

    Logarithms and distances of real frames are found iteratively (Zimmermann and Hüper 2022). Within π, or 0.89 π in
    the canonical metric, they are those of the unique shortest geodesic. Beyond, the geodesic need not be the
    shortest, and from 0.95 π on a `MissingCapabilityError` may be raised because none is found.

    Parameters
    ----------
    n, p : int
        Numbers of rows and columns, p ≤ n.
    k : int
        The number of matrices: if more than 1, a point is a k × n × p array.
    metric : "euclidean" or "canonical"
    field : {"real", "complex"}

    See Also
    --------
    Grassmann : if only the span counts.
    SpecialOrthogonal : square matrices without reflections.
    Unitary : square complex matrices, with logarithms.

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
    rank_axis: ClassVar[int] = -2
    default_retraction: Retraction = Polar()
    retractions = FRAME_RETRACTIONS

    def __init__(self, n: int, p: int, k: int = 1, *, metric: str = "euclidean", field: str = "real") -> None:
        self._take(field)
        if type(self) is Stiefel and metric == "canonical":
            # Each metric has its own class.
            self.__class__ = CanonicalStiefel
        self.n, self.p, self.k = integer("n", n, 1), integer("p", p, 1), integer("k", k, 1)
        self.shape = (self.n, self.p) if k == 1 else (self.k, self.n, self.p)
        if one_of("metric", metric, ("euclidean", "canonical")) == "canonical" != self.metric:
            raise InvalidInputError(
                f"{type(self).__name__} has the Euclidean metric; derive it from CanonicalStiefel for the other."
            )
        if p > n or self.dim < 1:
            raise InvalidInputError(
                f"{self} is empty, or has no tangent directions: it needs p ≤ n and n ≥ 2; choose a larger n."
            )

    def __repr__(self) -> str:
        named = "" if self.metric == Stiefel.metric else f", metric={self.metric!r}"
        kind = type(self).__name__.removeprefix("Canonical")
        return f"{kind}({self.n}, {self.p}{f', k={self.k}' if self.k > 1 else ''}{named}{self._in_field})"

    @property
    def dim(self) -> int:
        # The constraint fixes as many numbers as the Hermitian XᴴX has.
        bound = self.p + self._per_number * self.p * (self.p - 1) // 2
        return self.k * (self._per_number * self.n * self.p - bound)

    @property
    def typical_dist(self) -> float:
        return float((self.p * self.k) ** 0.5)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        Z = dense(ambient, point)
        normal = point @ linalg.symmetric(ns.adjoint(point) @ Z)
        return np.subtract(Z, normal, out=normal) if type(normal) is np.ndarray else Z - normal

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return P(H − ξ sym(XᴴG)) for the Euclidean gradient G and its derivative H along ξ."""
        bend = linalg.symmetric(ns.adjoint(point) @ dense(euclidean_gradient, point))
        return self.projection(point, dense(euclidean_hessian, point) - tangent_vector @ bend)

    def with_rank(self, k: int) -> "Stiefel":
        """Return the manifold of frames with k rows, points of another rank if XᵀX or its blocks count."""
        return Stiefel(k, self.p, self.k, metric=self.metric, field=self.field)

    def dual_map(self, point: Array, gradient: Array) -> Callable[[Array], Array]:
        """Return V ↦ A*(y) V, the product with Lagrange multipliers (see `rmopt.solvers.certify`)."""
        multipliers = linalg.symmetric(ns.adjoint(point) @ gradient)
        return lambda V: V @ multipliers

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic, by exponentials of skew-symmetric matrices (Zimmermann and Hüper 2022)."""
        return _euclidean_exp(point, tangent_vector)

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of a geodesic.

        Raises
        ------
        MissingCapabilityError
            If none is found between points that are far apart, and for complex frames.
        """
        if not self.knows("log"):
            return super().log(point_a, point_b)
        pair = np.broadcast_arrays(*map(ns.to_numpy, (point_a, point_b)))
        pairs = zip(*(points.reshape(-1, self.n, self.p) for points in pair), strict=True)
        found = np.array([self._log_of_one(*one) for one in pairs]).reshape(pair[0].shape)
        return ns.asarray(found, point_a)

    def _log_of_one(self, point_a: Array, point_b: Array) -> Array:
        # Projections are the same for frames with any number of rows, without batches.
        return _euclidean_log(point_a, point_b, partial(Stiefel.projection, self))

    def dist(self, point_a: Array, point_b: Array) -> Any:
        """Return the length of the geodesic of `log`, which may raise the same errors."""
        velocity = self.log(point_a, point_b)
        if velocity.ndim == len(self.shape):
            return self.norm(point_a, velocity)
        return self.inner_products(point_a, velocity, velocity) ** 0.5

    def knows(self, method: str) -> bool:
        # The iteration for a logarithm is for real frames.
        found_by_steps = getattr(type(self), method) in (Stiefel.log, Stiefel.dist)
        return super().knows(method) and not (found_by_steps and self.field == "complex")

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        total = weighted_sum(points, weights)
        P, _, Qh = ns.namespace(total).linalg.svd(total, full_matrices=False)
        return P @ Qh

    # Points

    def refusal(self, point: Array) -> str | None:
        xp = ns.namespace(point)
        error = float(xp.max(xp.abs(ns.adjoint(point) @ point - ns.eye(self.p, point))))
        if error > ns.slack(1e-10, point):
            return f"its columns are not orthonormal: XᴴX − I reaches {error:.1e}; take np.linalg.qr(X)[0]"
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a uniformly distributed point."""
        return as_like(linalg.positive_qr(self.drawn(rng)), like)


class CanonicalStiefel(Stiefel):
    """`Stiefel` with the canonical metric, made by ``Stiefel(n, p, metric="canonical")``."""

    metric = "canonical"
    default_retraction: Retraction = CanonicalCayley()
    retractions = CANONICAL_RETRACTIONS

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        whole, back = super().inner_product(point, tangent_vector_a, tangent_vector_b), ns.adjoint(point)
        return whole - 0.5 * float(ns.real_dot(back @ tangent_vector_a, back @ tangent_vector_b))

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        turned = point @ (ns.adjoint(point) @ tangent_vectors_a)
        return super()._products(tangent_vectors_a - 0.5 * turned, tangent_vectors_b)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return G − X GᴴX for the Euclidean gradient G."""
        G = dense(euclidean_gradient, point)
        return G - point @ (ns.adjoint(G) @ point)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return the Hessian of Edelman, Arias and Smith (1998, section 2.4.5)."""
        X, xi = point, tangent_vector
        G, H = dense(euclidean_gradient, X), dense(euclidean_hessian, X)
        bent, back = linalg.symmetric(ns.adjoint(X) @ G), ns.adjoint(xi)
        outside = xi - X @ (ns.adjoint(X) @ xi)
        change = H + 0.5 * (X @ (back @ G) + G @ (back @ X)) - outside @ bent
        return self.euclidean_to_riemannian_gradient(X, change)

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic by rotating the whole space at a constant rate."""
        frame, core = linalg.skew_form(point, tangent_vector)
        return linalg.orthonormalised(frame @ linalg.rotation(core)[..., : self.p])

    def _log_of_one(self, point_a: Array, point_b: Array) -> Array:
        return _canonical_log(point_a, point_b)


class Turns(Stiefel):
    """The groups of square frames with logarithms: rotations and unitary matrices."""

    default_retraction: Retraction = Exponential()
    # Parallel transport takes longer, and saves no iterations.
    default_transport: Transport = ByProjection()

    def __init__(self, n: int, k: int = 1) -> None:
        super().__init__(n, n, k, field=self.field)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}{f', k={self.k}' if self.k > 1 else ''})"

    # Geodesics

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the geodesic X exp(Ω), with even and odd powers of Ω as functions of ξᴴξ."""
        even, odd = linalg.gram_functions(tangent_vector, linalg.cosine, linalg.sine)
        return linalg.orthonormalised(point @ even + tangent_vector @ odd)

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the shortest geodesic, or of one of many if an angle is π.

        Raises
        ------
        MissingCapabilityError
            If one of two real matrices is not a rotation.
        """
        quotients = _turning(ns.adjoint(point_a) @ point_b)
        if self.n == 3 and self.field == "real":
            return point_a @ _log_in_space(quotients)
        return point_a @ linalg.rotation_log(quotients)

    def dist(self, point_a: Array, point_b: Array) -> Any:
        """Return the geodesic distance: the norm of all angles, which count twice for rotations."""
        quotients, axes = ns.to_numpy(_turning(ns.adjoint(point_a) @ point_b)), len(self.shape) - 1
        angles = np.angle(np.linalg.eigvals(quotients))
        if angles.ndim == axes:
            return float(np.linalg.norm(angles))
        return ns.asarray(root_of_sums(angles**2, axes), point_a)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Transport a tangent vector along the shortest geodesic, in parallel: half the rotation each side of Ω."""
        middle, back = self.pair_mean(point_a, point_b), ns.adjoint(point_a)
        return middle @ (back @ tangent_vector_a) @ (back @ middle)


class SpecialOrthogonal(Turns):
    """The rotations of ℝⁿ, orthogonal n × n matrices of determinant 1, or batches of them.

    A tangent vector at X is an array ξ = XΩ of the same shape, with a skew-symmetric Ω. In pymanopt's
    SpecialOrthogonalGroup it is Ω itself, of the same length.

    Parameters
    ----------
    n : int
        The dimension, 2 or more.
    k : int
        The number of rotations: if more than 1, a point is a k × n × n array.

    See Also
    --------
    Stiefel : fewer columns than rows, or reflections.
    Unitary : complex matrices.

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

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        if self.n > 3:
            return super().exp(point, tangent_vector)
        # Rodrigues: two of the three squared singular values are equal, the third is 0.
        squares = _half_square(tangent_vector)
        twice = tangent_vector @ (point.mT @ tangent_vector)
        return linalg.orthonormalised(
            point + tangent_vector * linalg.sine(squares) + twice * linalg.versine(squares)
        )

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        total = weighted_sum(points, weights)
        xp = ns.namespace(total)
        P, _, Qt = xp.linalg.svd(total)
        last = P[..., -1:] * xp.linalg.det(P @ Qt)[..., None, None]
        return xp.concat([P[..., :-1], last], axis=-1) @ Qt

    # Points

    def refusal(self, point: Array) -> str | None:
        if (reason := super().refusal(point)) is not None:
            return reason
        xp = ns.namespace(point)
        regular = bool(xp.all(xp.linalg.det(point) > 0.0))
        return None if regular else "its determinant is −1; turn a column around"

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a uniformly distributed point."""
        point = super().random_point(rng)
        point[..., 0] *= np.linalg.det(point)[..., None]
        return as_like(linalg.orthonormalised(point), like)


class Unitary(Turns):
    """The unitary n × n matrices, of complex numbers, or batches of them.

    A tangent vector at X is an array ξ = XΩ of the same shape, with a skew-Hermitian Ω. In pymanopt's UnitaryGroup it
    is Ω itself, of the same length.

    Parameters
    ----------
    n : int
        Number of rows and columns.
    k : int
        The number of matrices: if more than 1, a point is a k × n × n array.

    See Also
    --------
    Stiefel : fewer columns than rows.
    SpecialOrthogonal : real matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Unitary
    >>> manifold = Unitary(3)
    >>> X = manifold.random_point(np.random.default_rng(0))
    >>> manifold.dim, bool(np.allclose(X.conj().T @ X, np.eye(3)))
    (9, True)
    >>> bool(np.allclose(manifold.exp(X, manifold.log(X, np.eye(3) + 0j)), np.eye(3)))
    True
    """

    field = "complex"


class _Memory:
    """The last steps towards a residual of zero and their effects, saving two thirds of the steps (Anderson 1965)."""

    def __init__(self) -> None:
        self.seen, self.steps = list[Array](), list[Array]()

    def parts_of(self, residual: Array) -> tuple[Array, Any]:
        """Return the part of a residual that these steps do not explain, and the step that removes the rest."""
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
    turn = core[..., :p, :p]
    core = linalg.blocks(2.0 * turn, core[..., :p, p:], core[..., p:, :p], core[..., p:, p:])
    return linalg.orthonormalised(frame @ (linalg.rotation(core)[..., :p] @ linalg.rotation(-turn)))


def _euclidean_log(X: Array, Y: Array, projection: Move) -> Array:
    """Return the initial velocity of a geodesic from X to Y, by shots (Bryner 2017; Zimmermann and Hüper 2022).

    Single columns and square matrices have closed forms, at all distances. Otherwise each geodesic ends near Y. Its
    error is carried back along it, by projections that preserve its length, and added to the velocity. All of that is
    in the span of X and Y, so a shot costs O(p³). `projection` is that of frames with p columns, and at least as many
    rows as the dimension of that span.
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
    enough = 3e-14 * ns.coarseness(goal) * p**0.5
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

    In the span of X and Y, find a rotation from X to Y whose logarithm is [[A, −Bᵀ], [B, 0]]. Its action on the
    complement of X is free, and is chosen to bring the last block C to zero.
    """
    n, p = X.shape
    M = X.T @ Y if p < n else _turning(X.T @ Y)
    Q = np.linalg.qr(np.hstack([X, Y - X @ M]))[0][:, p:]
    V = np.vstack([M, Q.T @ Y])
    V = np.hstack([V, np.linalg.qr(V, mode="complete")[0][:, p:]])
    # Start with the one nearest to the identity in its last block.
    left, _, right = np.linalg.svd(V[p:, p:])
    V[:, p:] = V[:, p:] @ right.T
    if np.linalg.det(V) * np.linalg.det(left) < 0.0:
        V[:, -1] *= -1.0
    V[:, p:] = V[:, p:] @ left.T
    memory = _Memory()
    for _ in range(MAX_STEPS):
        generator = linalg.rotation_log(V)
        B, C = generator[p:, :p], generator[p:, p:]
        if np.linalg.norm(C) <= 1e-13 * ns.coarseness(C):
            return X @ generator[:p, :p] + Q @ B
        rest, known = memory.parts_of(C)
        # To third order in B the block C moves by S Γ + Γ S with S = BBᵀ/12 − I/2, which is useless far away.
        squares, vectors = np.linalg.eigh(B @ B.T)
        pull = np.maximum(0.5 - squares / 12.0, 0.02)
        turn = vectors @ ((vectors.T @ rest @ vectors) / (pull[:, None] + pull)) @ vectors.T
        memory.steps.append(0.5 * (turn.T - turn) + known)
        V[:, p:] = V[:, p:] @ linalg.rotation(memory.steps[-1])
    raise _too_far("steps")


def _turning(Q: Array) -> Array:
    """Return quotients XᴴY of square frames, and refuse real ones that are not rotations."""
    xp = ns.namespace(Q)
    if ns.is_complex(Q) or bool(xp.all(xp.linalg.det(Q) > 0.0)):
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
    xp, skew = ns.namespace(Q), 0.5 * (Q - Q.mT)
    sines = xp.sqrt(ns.at_least(_half_square(skew), float(ns.limits(Q).tiny)))
    cosines = (0.5 * (Q[..., 0, 0] + Q[..., 1, 1] + Q[..., 2, 2] - 1.0))[..., None, None]
    angle, wide = xp.atan2(sines, cosines), cosines < 0.0
    found = skew * (angle / sines)
    if type(Q) is np.ndarray and not wide.any():
        return found
    return xp.where(wide, angle * _wide_turns(Q, skew, cosines), found)


def _wide_turns(Q: Array, skew: Array, cosines: Array) -> Array:
    """Return the rotations by angle 1 around axes n if sines vanish: the longest columns of (1 − cos) n nᵀ."""
    xp, identity = ns.namespace(Q), ns.eye(3, Q)
    square = linalg.symmetric(Q) - cosines * identity
    longest = xp.argmax(xp.linalg.diagonal(square), axis=-1)
    chosen = xp.reshape(xp.take(identity, xp.reshape(longest, (-1,)), axis=0), (*Q.shape[:-1], 1))
    turns = xp.reshape((square @ chosen).mT @ ns.matched(TURNS, Q), Q.shape)
    length = xp.sqrt(_half_square(turns))
    along = xp.sum(turns * skew, axis=(-2, -1), keepdims=True)
    return turns / xp.where(along < 0.0, -length, length)


def _half_square(skew: Array) -> Array:
    """Return ½ ‖Ω‖² with two axes of length 1. For rotations of ℝ³ these are the squared angles."""
    squares = skew * skew
    if type(squares) is np.ndarray:
        return 0.5 * squares.sum(axis=(-2, -1), keepdims=True)
    return 0.5 * ns.namespace(squares).sum(squares, axis=(-2, -1), keepdims=True)
