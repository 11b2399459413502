"""Products of manifolds, and powers of one; both may be nested."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, sequence, shown
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, as_like
from rmopt.core.product import BlockDiagonal, Parts, diagonal_blocks, matrix_shape
from rmopt.core.retraction import Retraction
from rmopt.core.transport import Transport
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.retractions.product import Componentwise


class ByFactors(Transport):
    """The default transport of each factor, part by part."""

    def __call__(self, manifold: Any, start: Parts, end: Parts, vector: Parts) -> Parts:
        parts = zip(manifold.factors, start, end, vector, strict=True)
        return Parts([factor.default_transport(factor, *of_factor) for factor, *of_factor in parts])


class Product(Manifold):
    """The product of some manifolds, with the sum of their metrics.

    Points and tangent vectors are `Parts`. As ambient matrices they are block-diagonal, so the gradient of a cost
    is a `BlockDiagonal`, of which only the blocks that are not zero need be given.

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
        self.default_retraction = Componentwise([factor.default_retraction for factor in self.factors])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.factors))})"

    def fitting(self, retraction: Retraction | str | None) -> Retraction:
        """Return a retraction of the whole: one of a factor, or its name, is applied to all of them."""
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
        """Return the geodesic distance, the root of the sum of the factors' squared ones."""
        return float(np.linalg.norm(list(self._each("dist", point_a, point_b))))

    def projected_mean(self, points: Sequence[Parts], weights: Array) -> Parts:
        of_factors = zip(self.factors, zip(*points, strict=True), strict=True)
        return Parts([factor.projected_mean(parts, weights) for factor, parts in of_factors])

    # Points

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
        """Return what a method of every factor makes of its parts."""
        parts = zip(self.factors, *arguments, strict=True)
        return Parts([getattr(factor, method)(*of_factor) for factor, *of_factor in parts])

    def _of_blocks(self, method: str, point: Parts, ambient: Any) -> Parts:
        """Return what a method of every factor makes of its block of an ambient matrix; zero where it has none."""
        blocks = self._blocks_of(point, ambient)
        found = [
            getattr(factor, method)(part, blocks[i]) if i in blocks else factor.zero_vector(part)
            for i, (factor, part) in enumerate(zip(self.factors, point, strict=True))
        ]
        return Parts(found)

    def _blocks_of(self, point: Parts, ambient: Any) -> dict[int, Any]:
        """Return the blocks on the diagonal of an ambient matrix, as the factors have them: points may be vectors."""
        shapes = [tuple(part.shape) for part in self._each("embed_point", point)]
        blocks = diagonal_blocks(ambient, [matrix_shape(shape) for shape in shapes])
        return {
            i: block if len(shapes[i]) == 2 else dense(block).reshape(shapes[i])
            for i, block in blocks.items()
        }

    @staticmethod
    def _blocks(parts: Parts) -> BlockDiagonal:
        return BlockDiagonal([matrix_shape(part.shape) for part in parts], dict(enumerate(parts)))


class Power(Product):
    """The product of a manifold with itself: a point has one part for each of n agents, say.

    Parameters
    ----------
    base : Manifold
    n : int
        Number of factors.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import Grassmann, Power
    >>> agents = Power(Grassmann(5, 2), 3).random_point(np.random.default_rng(0))
    >>> len(agents), agents[0].shape
    (3, (5, 2))
    """

    def __init__(self, base: Manifold, n: int) -> None:
        super().__init__([base] * integer("n", n, 1))
        self.base = base

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base}, {len(self.factors)})"
