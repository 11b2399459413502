"""Arrays of unit length, and matrices with columns or rows of unit length."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.low_rank import FactorArray
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError
from rmopt.linalg import horizontal, sinc
from rmopt.manifolds.arrays import ArrayManifold, root_of_sums, weighted_sum
from rmopt.retractions.arrays import SPHERE_RETRACTIONS, Normalisation


class UnitLength(ArrayManifold):
    """Arrays of length 1, or with parts of length 1, by the inner products of a subclass."""

    default_retraction: Retraction = Normalisation()
    # Parallel transport takes longer and saves no iterations.
    default_transport: Transport = ByProjection()
    retractions = SPHERE_RETRACTIONS
    # Its length is the rank of W, the matrix of inner products along it.
    rank_axis: ClassVar[int] = -1

    @abstractmethod
    def products(self, a: Array, b: Array) -> Any:
        """Return the real inner product of two arrays, or of many as an array that broadcasts with them."""

    def normalised(self, array: Array) -> Array:
        """Divide an array by its length, in place for numpy, and return it."""
        length = self.products(array, array) ** 0.5
        if type(array) is not np.ndarray:
            return array / length
        array /= length
        return array

    def projection(self, point: Array, ambient: Ambient) -> Array:
        Z = dense(ambient, point)
        normal = point * self.products(point, Z)
        if type(normal) is not np.ndarray:
            return Z - normal
        # In the memory order of the point instead of that of the ambient array.
        return np.subtract(Z, normal, out=normal)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return P(H) − ξ ⟨X, G⟩ for the Euclidean gradient G and its derivative H along ξ."""
        bend = tangent_vector * self.products(point, dense(euclidean_gradient, point))
        H = dense(euclidean_hessian, point)
        change = np.subtract(H, bend, out=bend) if type(bend) is np.ndarray else H - bend
        return self.projection(point, change)

    def with_rank(self, k: int) -> Self:
        """Return the same manifold with points of another rank."""
        shape = list(self.shape)
        shape[self.rank_axis] = k
        return type(self)(*shape)

    def dual_map(self, point: Array, gradient: Array) -> Callable[[Array], Array]:
        """Return V ↦ A*(y) V, the product with Lagrange multipliers (see `rmopt.solvers.certify`)."""
        multipliers = self.products(point, gradient)
        return lambda V: multipliers * V

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        """Follow the great circle."""
        angle = self.products(tangent_vector, tangent_vector) ** 0.5
        cosine = ns.namespace(angle).cos(angle)
        return self.normalised(point * cosine + tangent_vector * sinc(angle))

    # Points

    def refusal(self, point: Array) -> str | None:
        error = np.abs(ns.to_numpy(self.products(point, point)) ** 0.5 - 1.0).max()
        return (
            f"its length differs from 1 by {error:.1e}; divide by it"
            if error > ns.slack(1e-10, point)
            else None
        )

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a uniformly distributed point."""
        return as_like(self.normalised(self.drawn(rng)), like)


class Sphere(UnitLength):
    """The arrays of some shape whose Frobenius norm is 1: vectors, matrices or more.

    Tangent vectors at X are the arrays ξ of the same shape with ⟨X, ξ⟩ = 0.

    Parameters
    ----------
    *shape : int
        ``Sphere(n)`` holds vectors, ``Sphere(n, m)`` matrices.
    field : {"real", "complex"}

    See Also
    --------
    Oblique : columns of length 1.
    Simplex : probabilities, by x = s².

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Sphere
    >>> sphere = Sphere(3)
    >>> x, y, z = np.eye(3)
    >>> bool(np.isclose(sphere.dist(x, y), np.pi / 2))
    True
    >>> bool(np.allclose(sphere.exp(x, sphere.log(x, y)), y))
    True
    """

    def __init__(self, *shape: int, field: str = "real") -> None:
        self._take(field)
        self.shape = tuple(integer("a size", size, 1) for size in shape)
        if self.dim < 1:
            raise InvalidInputError(f"{self} has no tangent directions; give vectors two or more entries.")

    @property
    def dim(self) -> int:
        return int(np.prod(self.shape)) * self._per_number - 1

    @property
    def typical_dist(self) -> float:
        return float(np.pi)

    @property
    def diameter(self) -> float:
        return self.typical_dist

    def products(self, a: Array, b: Array) -> Any:
        axes = len(self.shape)
        if type(a) is np.ndarray and a.ndim == b.ndim == axes:
            return a.dot(b) if axes == 1 and a.dtype is ns.F8 else ns.real_dot(a, b)
        return ns.real_dots(a, b, axes)

    # Geodesics

    def log(self, point_a: Array, point_b: Array) -> Array:
        """Return the initial velocity of the shortest great circle, or of one of many between opposite points."""
        angle, chord = self._angles(point_a, point_b), point_b - point_a
        # Only opposite points would leave nothing but rounding.
        wave = np.cos(np.arange(float(np.prod(self.shape)))).reshape(self.shape)
        opposite = ns.matched(angle > 3.1415, ns.real(chord))
        aside = ns.matched(1e-15 * ns.coarseness(chord) * wave, chord) * opposite
        velocity = self.projection(point_a, self.projection(point_a, chord) + aside)
        length = self.products(velocity, velocity) ** 0.5
        return velocity * (angle / ns.at_least(length, float(ns.limits(chord).tiny)))

    def dist(self, point_a: Array, point_b: Array) -> Any:
        """Return the angle, exact to rounding even for close and opposite points."""
        return root_of_sums(self._angles(point_a, point_b) ** 2, len(self.shape))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector along the shortest great circle, in parallel."""
        middle = point_a + point_b
        half = ns.at_least(0.5 * self.products(middle, middle), float(ns.limits(middle).tiny))
        return tangent_vector_a - middle * (self.products(point_b, tangent_vector_a) / half)

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        return self.normalised(weighted_sum(points, weights))

    def _angles(self, point_a: Array, point_b: Array) -> Any:
        apart, middle = point_a - point_b, point_a + point_b
        lengths = self.products(apart, apart) ** 0.5, self.products(middle, middle) ** 0.5
        return 2.0 * ns.namespace(lengths[0]).atan2(*lengths)


class Oblique(Sphere):
    """The n × m matrices whose columns have length 1: a product of m spheres in one array.

    Tangent vectors at X are the n × m matrices ξ with diag(Xᵀξ) = 0.

    Parameters
    ----------
    n, m : int
        Numbers of rows and columns.
    field : {"real", "complex"}
        Complex numbers of length 1 are ``Oblique(1, m, field="complex")``.

    See Also
    --------
    Elliptope : for functions of XᵀX, without rotations.
    Sphere : one length for the whole array.

    References
    ----------
    Absil and Gallivan, Joint diagonalization on the oblique manifold for independent component analysis, ICASSP
    (2006).

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Oblique
    >>> manifold = Oblique(2, 3)
    >>> X = np.eye(2)[:, [0, 1, 0]]
    >>> manifold.dim, manifold.projection(X, np.ones((2, 3))).tolist()
    (3, [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    """

    rank_axis = -2

    def __init__(self, n: int, m: int, *, field: str = "real") -> None:
        super().__init__(integer("n", n, 1), integer("m", m, 1), field=field)

    @property
    def dim(self) -> int:
        n, m = self.shape
        return (n * self._per_number - 1) * m

    @property
    def typical_dist(self) -> float:
        return float(np.pi * self.shape[1] ** 0.5)

    def products(self, a: Array, b: Array) -> Array:
        """Return the inner products of the columns."""
        if type(a) is np.ndarray and a.dtype.kind == "f" and a.ndim == b.ndim == 2:
            return np.einsum("ij,ij->j", a, b)
        products = ns.real(ns.conj(a) * b)
        return ns.namespace(products).sum(products, axis=-2, keepdims=True)


class Elliptope(UnitLength):
    """The n × n correlation matrices W = YYᵀ of rank k, as in max-cut, by n × k factors Y with rows of length 1.

    Y and Y O represent the same W for every orthogonal O. A tangent vector is a horizontal array ξ: its rows are
    orthogonal to those of Y, and Yᵀξ is symmetric, so that no part of it only rotates Y. The metric is tr(ξᵀη)
    (Journée et al. 2010; Grubišić and Pietersz 2007). Geodesics are great circles in each row. Distances have no
    known closed form. A cost must be a function of YYᵀ: parts of a gradient that rotate Y are dropped.

    If the solution has a rank below k, as that of a relaxation has, the quotient has a corner there, at which runs
    end all the same. On the spheres without the quotient, ``Oblique(k, n)`` for Yᵀ, each step takes less time.
    `rmopt.solvers.certify` tests whether a minimum is that of all correlation matrices, and
    `rmopt.solvers.RankIncremental` finds the rank at which it is.

    Parameters
    ----------
    n, k : int
        Numbers of rows and columns of the factors, 2 ≤ k ≤ n.

    See Also
    --------
    Oblique : spheres without the quotient, with faster steps.

    References
    ----------
    Journée, Bach, Absil and Sepulchre, Low-rank optimization on the cone of positive semidefinite matrices, SIAM
    J. Optim. 20 (2010), https://doi.org/10.1137/080731359. Grubišić and Pietersz, Efficient rank reduction of
    correlation matrices, Linear Algebra and its Applications 422 (2007).

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Elliptope
    >>> from rmopt.solvers import TrustRegions
    >>> target = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.9], [0.1, 0.9, 1.0]])
    >>> cost = autograd_cost(lambda Y: ((Y @ Y.T - target) ** 2).sum())
    >>> result = TrustRegions(tol=1e-9).run(Problem(Elliptope(3, 2), cost), random_state=0)
    >>> (result.point @ result.point.T).round(2)
    array([[1.  , 0.77, 0.18],
           [0.77, 1.  , 0.77],
           [0.18, 0.77, 1.  ]])
    """

    # Costs of matrices W that take factors are accepted as well.
    point_type: ClassVar[type] = FactorArray

    def __init__(self, n: int, k: int) -> None:
        self.shape = (integer("n", n, 1), integer("k", k, 1))
        if not 2 <= k <= n:
            raise InvalidInputError(f"Elliptope needs 2 ≤ k ≤ n, got n = {n}, k = {k}; choose another k.")
        self.sizes = n, n

    @property
    def dim(self) -> int:
        n, k = self.shape
        return n * (k - 1) - k * (k - 1) // 2

    def products(self, a: Array, b: Array) -> Any:
        if type(a) is np.ndarray and a.ndim == b.ndim == 2:
            return np.einsum("ij,ij->i", a, b)[:, None]
        return ns.real_dots(a, b, 1)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return horizontal(point, super().projection(point, ambient))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Transport a tangent vector by projection, with the rotation between start and end."""
        left, _, right = ns.namespace(point_a).linalg.svd(point_a.mT @ point_b)
        return self.projection(point_b, tangent_vector_a @ (left @ right))

    def to_dense(self, point: Array) -> Array:
        """Return W as an n × n array, for small matrices and tests."""
        return point @ point.mT
