"""Products of manifolds, and powers of one, which may be nested."""

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, sequence, shown
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, as_like
from rmopt.core.product import BlockDiagonal, Parts, diagonal_blocks, matrix_shape
from rmopt.core.retraction import Retraction
from rmopt.core.tensors import TensorPoint
from rmopt.core.transport import Transport
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds.arrays import ArrayManifold, root_of_sums
from rmopt.retractions.product import Componentwise, Each


def _of_base(method: str) -> Any:
    """Make the method of a power from that of its base, for many points."""

    def of_many(self: Any, *arguments: Any) -> Any:
        """Apply the method of the base to all points."""
        return getattr(self.base, method)(*arguments)

    of_many.__name__ = method
    return of_many


class ByFactors(Transport):
    """The default transport of each factor, part by part."""

    def __call__(self, manifold: Any, start: Parts, end: Parts, vector: Parts) -> Parts:
        parts = zip(manifold.factors, start, end, vector, strict=True)
        return Parts([factor.default_transport(factor, *of_factor) for factor, *of_factor in parts])


class Product(Manifold):
    """The product of some manifolds, with the sum of their metrics.

    Points and tangent vectors are `Parts`. As ambient matrices they are block-diagonal, so the gradient of a cost is
    a `BlockDiagonal`, which needs only the blocks that are not zero.

    Parameters
    ----------
    factors : sequence of Manifold

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Euclidean, Product, Sphere
    >>> manifold = Product([Sphere(3), Euclidean(2, 1)])
    >>> x, y = manifold.random_point(np.random.default_rng(0))
    >>> x.shape, y.shape, manifold.dim
    ((3,), (2, 1), 4)
    """

    point_type: ClassVar[type] = Parts
    default_transport: Transport = ByFactors()

    def __init__(self, factors: Sequence[Manifold]) -> None:
        self.factors = tuple(sequence("factors", factors))
        if not self.factors or not all(isinstance(factor, Manifold) for factor in self.factors):
            raise InvalidInputError(
                f"{type(self).__name__} needs one or more manifolds, got {shown(factors)}; "
                "rmopt.interop.from_pymanopt turns one of pymanopt's into one."
            )
        for factor in self.factors:
            if issubclass(factor.point_type, TensorPoint):
                raise MissingCapabilityError(
                    f"products hold matrices and arrays, no {factor}; use its arrays as parts: Euclidean for "
                    "a core, Stiefel for factors."
                )
        self.default_retraction = Componentwise([factor.default_retraction for factor in self.factors])

    def __repr__(self) -> str:
        first, k = self.factors[0], len(self.factors)
        if k > 1 and all(factor is first for factor in self.factors):
            return f"{type(self).__name__}([{first}] * {k})"
        return f"{type(self).__name__}({', '.join(map(repr, self.factors))})"

    def fitting(self, retraction: Retraction | str | None) -> Retraction:
        """Return a retraction of the product: one of a factor, or its name, is applied to all factors."""
        if retraction is None:
            return self.default_retraction
        if isinstance(retraction, Componentwise) and len(retraction.retractions) == len(self.factors):
            parts = zip(self.factors, retraction.retractions, strict=True)
            return Componentwise([factor.fitting(part) for factor, part in parts])
        if getattr(retraction, "point_type", None) is Parts and not isinstance(retraction, Componentwise):
            return super().fitting(retraction)
        return Componentwise([factor.fitting(retraction) for factor in self.factors])

    @property
    def dim(self) -> int:
        return sum(factor.dim for factor in self.factors)

    @property
    def typical_dist(self) -> float:
        return float(np.sqrt(sum(factor.typical_dist**2 for factor in self.factors)))

    @property
    def diameter(self) -> float:
        return float(np.sqrt(sum(factor.diameter**2 for factor in self.factors)))

    def _in_a_run(self) -> Self:
        twin = copy(self)
        twin.factors = tuple(factor._in_a_run() for factor in self.factors)
        return twin

    # The tangent space

    def inner_product(self, point: Parts, tangent_vector_a: Parts, tangent_vector_b: Parts) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def inner(self, point: Parts, tangent_vector_a: Parts, tangent_vector_b: Parts) -> Any:
        parts = zip(self.factors, point, tangent_vector_a, tangent_vector_b, strict=True)
        return sum(factor.inner(*vectors) for factor, *vectors in parts)

    def projection(self, point: Parts, ambient: Ambient) -> Parts:
        return self._of_blocks("projection", point, ambient)

    def to_tangent_space(self, point: Parts, vector: Parts) -> Parts:
        return self._each("to_tangent_space", point, vector)

    def euclidean_to_riemannian_gradient(self, point: Parts, euclidean_gradient: Ambient) -> Parts:
        return self._of_blocks("euclidean_to_riemannian_gradient", point, euclidean_gradient)

    def euclidean_to_riemannian_hessian(
        self, point: Parts, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Parts
    ) -> Parts:
        """Return the Riemannian Hessians of the factors along a tangent vector."""
        gradients, hessians = (
            self._blocks_of(point, ambient) for ambient in (euclidean_gradient, euclidean_hessian)
        )
        found = []
        for i, (factor, part, along) in enumerate(zip(self.factors, point, tangent_vector, strict=True)):
            if not factor.knows_hessians:
                raise MissingCapabilityError(
                    f"{factor} has no `euclidean_to_riemannian_hessian`; use a first-order solver on {self}."
                )
            pair = [
                blocks[i] if i in blocks else ns.zeros(factor.embed_point(part).shape, arrays_of(part)[0])
                for blocks in (gradients, hessians)
            ]
            found.append(factor.euclidean_to_riemannian_hessian(part, *pair, along))
        return Parts(found)

    def embedding(self, point: Parts, tangent_vector: Parts) -> BlockDiagonal:
        return self._blocks(self._each("embedding", point, tangent_vector))

    def embed_point(self, point: Parts) -> BlockDiagonal:
        return self._blocks(self._each("embed_point", point))

    def zero_vector(self, point: Parts) -> Parts:
        return self._each("zero_vector", point)

    def random_tangent_vector(self, point: Parts, rng: np.random.Generator | None = None) -> Parts:
        """Return a random tangent vector of norm 1, evenly spread over the dimensions of the factors."""
        rng = np.random.default_rng(rng)
        shares = np.sqrt(rng.chisquare([max(factor.dim, 1) for factor in self.factors]))
        shares /= np.linalg.norm(shares)
        parts = zip(self.factors, point, shares, strict=True)
        vector = Parts(
            [factor.random_tangent_vector(part, rng) * float(share) for factor, part, share in parts]
        )
        return vector / self.norm(point, vector)

    def transport(self, point_a: Parts, point_b: Parts, tangent_vector_a: Parts) -> Parts:
        return self._each("transport", point_a, point_b, tangent_vector_a)

    @property
    def knows_hessians(self) -> bool:
        return all(factor.knows_hessians for factor in self.factors)

    # Geodesics

    def knows(self, method: str) -> bool:
        return super().knows(method) and all(factor.knows(method) for factor in self.factors)

    def exp(self, point: Parts, tangent_vector: Parts) -> Parts:
        return self._each("exp", point, tangent_vector)

    def log(self, point_a: Parts, point_b: Parts) -> Parts:
        return self._each("log", point_a, point_b)

    def dist(self, point_a: Parts, point_b: Parts) -> float:
        """Return the geodesic distance, the root of the sum of the factors' squared distances."""
        return float(np.linalg.norm(list(self._each("dist", point_a, point_b))))

    def projected_mean(self, points: Sequence[Parts], weights: Array) -> Parts:
        of_factors = zip(self.factors, zip(*points, strict=True), strict=True)
        return Parts([factor.projected_mean(parts, weights) for factor, parts in of_factors])

    # Points

    def as_point(self, given: Any) -> Any:
        """Return a point as `Parts`, also from a list or tuple."""
        if not isinstance(given, Parts | list | tuple) or len(given) != len(self.factors):
            return given
        return Parts([factor.as_point(part) for factor, part in zip(self.factors, given, strict=True)])

    def check_point(self, point: Any) -> str | None:
        if not isinstance(point, Parts) or len(point) != len(self.factors):
            return f"a point of {self} is a rmopt.core.Parts with {len(self.factors)} parts"
        for i, (factor, part) in enumerate(zip(self.factors, point, strict=True)):
            reason = factor.check_point(part)
            if reason is not None:
                return f"part {i}: {reason}"
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Parts:
        rng = np.random.default_rng(rng)
        return as_like(Parts([factor.random_point(rng) for factor in self.factors]), like)

    def _each(self, method: str, *arguments: Parts) -> Parts:
        """Apply a method of every factor to its parts."""
        parts = zip(self.factors, *arguments, strict=True)
        return Parts([getattr(factor, method)(*of_factor) for factor, *of_factor in parts])

    def _of_blocks(self, method: str, point: Parts, ambient: Any) -> Parts:
        """Apply a method of every factor to its block of an ambient matrix, or return zero if it has none."""
        blocks = self._blocks_of(point, ambient)
        found = [
            getattr(factor, method)(part, blocks[i]) if i in blocks else factor.zero_vector(part)
            for i, (factor, part) in enumerate(zip(self.factors, point, strict=True))
        ]
        return Parts(found)

    def _blocks_of(self, point: Parts, ambient: Any) -> dict[int, Any]:
        """Return the diagonal blocks of an ambient matrix in the factors' shapes, since points may be vectors."""
        shapes = [tuple(part.shape) for part in self._each("embed_point", point)]
        blocks = dict(diagonal_blocks(ambient, [matrix_shape(shape) for shape in shapes]))
        for i, block in blocks.items():
            if len(shapes[i]) != 2:
                whole = dense(block)
                blocks[i] = ns.namespace(whole).reshape(whole, shapes[i])
        return blocks

    @staticmethod
    def _blocks(parts: Parts) -> BlockDiagonal:
        return BlockDiagonal([matrix_shape(part.shape) for part in parts], dict(enumerate(parts)))


class Power(ArrayManifold):
    """The product of a manifold with itself: k points in one array move at once, without a loop.

    Points, tangent vectors and gradients of a base of arrays are arrays of shape (k, …), and all formulas are those
    of the base with one more axis in front. For another base, such as matrices of one rank, this is the `Product` of
    k of them, whose points are `Parts`.

    Parameters
    ----------
    base : Manifold
        Also a power.
    k : int
        Number of points.

    See Also
    --------
    Product : different manifolds, or points in separate arrays.
    rmopt.solvers.solve_many : many separate problems.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Grassmann, Power
    >>> agents = Power(Grassmann(5, 2), 3).random_point(np.random.default_rng(0))
    >>> agents.shape
    (3, 5, 2)
    """

    def __new__(cls, base: Manifold, k: int) -> Any:
        return super().__new__(cls) if isinstance(base, ArrayManifold) else Product([base] * _count(k))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.base, self.k

    def __init__(self, base: Any, k: int) -> None:
        self.base, self.k = base, _count(k)
        self.shape = (self.k, *base.shape)
        self.field = base.field
        self.default_retraction, self.default_transport = (
            Each(base.default_retraction),
            base.default_transport,
        )
        self.retractions = {name: Each(retraction) for name, retraction in base.retractions.items()}
        self._refuse_single()

    def _refuse_single(self) -> None:
        """Refuse a base whose formulas take single points only."""
        rng = np.random.default_rng(0)
        points = np.stack([self.base.random_point(rng) for _ in range(3)])
        vectors = self.drawn(rng, points.shape)
        single = [self._short_step(*pair) for pair in zip(points, vectors, strict=True)]
        try:
            right = np.allclose(self._short_step(points, vectors), single)
        except Exception:
            right = False
        if not right:
            raise InvalidInputError(
                f"the formulas of {self.base} take single points, and Power passes k points in one array; "
                "let them work on the last axes (X.mT instead of X.T), or take Product([manifold] * k)."
            )

    def _in_a_run(self) -> Self:
        twin = copy(self)
        twin.base = self.base._in_a_run()
        return twin

    def _short_step(self, points: Array, vectors: Array) -> Array:
        return self.base.retraction(points, 0.1 * self.base.projection(points, vectors))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base}, {self.k})"

    def fitting(self, retraction: Retraction | str | None) -> Retraction:
        """Return a retraction of all points: one of the base, or its name, is applied to each."""
        if retraction is None:
            return self.default_retraction
        return Each(self.base.fitting(retraction.retraction if isinstance(retraction, Each) else retraction))

    @property
    def dim(self) -> int:
        return self.k * self.base.dim

    @property
    def typical_dist(self) -> float:
        return self.k**0.5 * self.base.typical_dist

    @property
    def diameter(self) -> float:
        return self.k**0.5 * self.base.diameter

    @property
    def has_ambient_metric(self) -> bool:
        """Whether the inner product is that of the ambient space."""
        return self.base.has_ambient_metric

    @property
    def knows_hessians(self) -> bool:
        return self.base.knows_hessians

    def knows(self, method: str) -> bool:
        return self.base.knows(method)

    inner_product = _of_base("inner_product")
    inner = _of_base("inner")
    projection = _of_base("projection")
    to_tangent_space = _of_base("to_tangent_space")
    euclidean_to_riemannian_gradient = _of_base("euclidean_to_riemannian_gradient")
    euclidean_to_riemannian_hessian = _of_base("euclidean_to_riemannian_hessian")
    embedding = _of_base("embedding")
    zero_vector = _of_base("zero_vector")
    transport = _of_base("transport")
    exp = _of_base("exp")
    log = _of_base("log")
    projected_mean = _of_base("projected_mean")
    refusal = _of_base("refusal")

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        found = self.base.inner_products(point, tangent_vectors_a, tangent_vectors_b)
        return ns.namespace(found).sum(found, axis=-1)

    def dist(self, point_a: Array, point_b: Array) -> Any:
        """Return the geodesic distance, the root of the sum of the points' squared distances."""
        return root_of_sums(self.base.dist(point_a, point_b) ** 2, 1)

    # Points

    def as_point(self, given: Any) -> Any:
        """Return the array of k points, also from a list or `Parts`."""
        if not isinstance(given, Parts | list | tuple):
            return given
        parts = [self.base.as_point(part) for part in given]
        if len({tuple(getattr(part, "shape", ())) for part in parts}) != 1:
            return given
        return ns.namespace(parts[0]).stack(parts)

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        rng = np.random.default_rng(rng)
        return as_like(np.stack([self.base.random_point(rng) for _ in range(self.k)]), like)


def _count(k: Any) -> int:
    return integer("k", k, 1)
