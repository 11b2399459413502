"""The abstract manifold, with pymanopt's names, and the capabilities that some manifolds add."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import signature
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np

from rmopt import namespaces as ns
from rmopt.core import points
from rmopt.core.ambient import Ambient, dense
from rmopt.core.arguments import Explained, integer, named, one_of
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByManifold, Transport, as_transport
from rmopt.errors import InvalidInputError, MissingCapabilityError, RmoptError

FIELDS = ("real", "complex")


class Manifold(Explained, ABC):
    """A Riemannian manifold embedded in a space of matrices.

    Names and argument order are those of ``pymanopt.manifolds.manifold.Manifold``, so that
    pymanopt's optimizers run on every rmopt manifold (see `rmopt.interop`).

    Attributes
    ----------
    default_retraction : Retraction
        The retraction that `retraction` applies. Exchange it by `using`.
    default_transport : Transport
        How solvers carry tangent vectors along.
    point_layout : int
        1: a point is one object.
    point_type : type
        The class of its points, which some costs require.
    retractions : mapping from str to Retraction
        Its own retractions by name. Others are tested at a random point before they are used.

    See Also
    --------
    rmopt.manifolds.ArrayManifold : less to write if points are arrays.
    FixedRankManifold : matrices of one rank.

    Notes
    -----
    Some manifolds have more methods, which solvers look up by name: ``euclidean_to_riemannian_hessian``; ``n_blocks``
    with ``block_of(ambient, block)``, the part of a symmetric ambient operator in a block, as a tangent vector; and
    if straight lines leave the manifold, ``max_step(point, direction)``, the least t at which one does, with
    ``safe_step(point, direction)``, the longest step of a solver. ``edge(point, gradient, first_norm, gradient_at)``
    returns one sentence if a run has ended at the boundary of an open manifold without converging.

    References
    ----------
    Absil, Mahony and Sepulchre, Optimization Algorithms on Matrix Manifolds, Princeton University Press (2008),
    https://doi.org/10.1515/9781400830244. Boumal, An Introduction to Optimization on Smooth Manifolds, Cambridge
    University Press (2023), https://doi.org/10.1017/9781009166164.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import Manifold
    >>> from rmopt.manifolds import Sphere
    >>> manifold = Sphere(3)
    >>> x, ambient = np.array([1.0, 0.0, 0.0]), np.array([5.0, 2.0, 0.0])
    >>> xi = manifold.projection(x, ambient)
    >>> isinstance(manifold, Manifold), xi.tolist()
    (True, [0.0, 2.0, 0.0])
    >>> manifold.retraction(x, xi).round(3).tolist()
    [0.447, 0.894, 0.0]
    """

    default_retraction: Retraction
    default_transport: Transport = ByManifold()
    point_type: ClassVar[type] = object
    retractions: Mapping[str, Retraction] = {}
    point_layout: int = 1
    num_values: int = 1

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the manifold."""

    @property
    def typical_dist(self) -> float:
        """The scale of the manifold, from which trust-region radii are derived."""
        return float(np.sqrt(self.dim))

    @property
    def diameter(self) -> float:
        """The largest distance of two points, which bounds the first trust region. It is infinite if unknown."""
        return float("inf")

    @abstractmethod
    def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
        """Return the Riemannian inner product of two tangent vectors at a point."""

    def inner(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> Any:
        """Return `inner_product` on the device of the vectors: it may be an array of no dimensions."""
        return self.inner_product(point, tangent_vector_a, tangent_vector_b)

    def norm(self, point: Any, tangent_vector: Any) -> float:
        """Return the Riemannian norm of a tangent vector."""
        square = self.inner_product(point, tangent_vector, tangent_vector)
        if square < 0.0:
            # An indefinite form may become negative by rounding.
            if square < -1e-8 * points.size_of(tangent_vector) ** 2:
                raise InvalidInputError(
                    f"the inner product of a tangent vector with itself is {square:.1e} on {self!r}, and must not be "
                    "negative; test inner_product and projection by rmopt.checks.check_manifold."
                )
            return 0.0
        if square < 1e-30:
            # Below 1e-160, in single precision below 1e-19, the square of a length is zero although the length is
            # not.
            least, scale = (1e-290, 1e150) if points.coarseness_of(point) == 1.0 else (1e-30, 1e15)
            if square < least:
                longer = tangent_vector * scale
                return sqrt(max(self.inner_product(point, longer, longer), 0.0)) / scale
        return sqrt(square)

    @abstractmethod
    def projection(self, point: Any, ambient: Ambient) -> Any:
        """Return the orthogonal projection of an ambient operator onto the tangent space.

        It is orthogonal in the inner product of the ambient space, or in the metric alone if `inner_product` also
        takes ambient arrays. `rmopt.checks` accepts both. For gradients see `euclidean_to_riemannian_gradient`.
        """

    def to_tangent_space(self, point: Any, vector: Any) -> Any:
        """Remove rounding errors by which a tangent vector has left the tangent space."""
        return self.projection(point, self.embedding(point, vector))

    def euclidean_to_riemannian_gradient(self, point: Any, euclidean_gradient: Ambient) -> Any:
        """Return the Riemannian gradient for an ambient gradient: its projection, if the metric is the ambient one.

        Its inner product with each tangent vector equals that of the ambient gradient in the ambient space.
        """
        return self.projection(point, euclidean_gradient)

    def embedding(self, point: Any, tangent_vector: Any) -> Ambient:
        """Return a tangent vector as an ambient operator: unchanged if it is an ambient array."""
        return tangent_vector

    def embed_point(self, point: Any) -> Ambient:
        """Return a point as an ambient operator: unchanged if it is an ambient array."""
        if not hasattr(point, "shape"):
            raise MissingCapabilityError(
                f"{self} has points of type {type(point).__name__}; write methods `embed_point` and `embedding`."
            )
        return point

    @abstractmethod
    def random_point(self, rng: np.random.Generator | None = None) -> Any:
        """Return a random point, in numpy's double precision.

        rmopt's manifolds take an array ``like=``, and return a point in its library, device and precision.
        """

    def random_tangent_vector(self, point: Any, rng: np.random.Generator | None = None) -> Any:
        """Return a random tangent vector of norm 1."""
        rng, zero = np.random.default_rng(rng), self.zero_vector(point)
        # The first numbers may be those that made the point: then their tangent part is rounding alone.
        for _ in range(2):
            drawn = points.normal_like(zero, rng)
            vector = self.projection(point, self.embedding(point, drawn))
            if points.size_of(vector) > 1e-8 * points.coarseness_of(vector) ** 0.5 * points.size_of(drawn):
                break
        return vector / self.norm(point, vector)

    @abstractmethod
    def zero_vector(self, point: Any) -> Any:
        """Return the zero of the tangent space."""

    def transport(self, point_a: Any, point_b: Any, tangent_vector_a: Any) -> Any:
        """Transport a tangent vector to the tangent space at another point, by projection unless overridden."""
        return self.projection(point_b, self.embedding(point_a, tangent_vector_a))

    def as_point(self, given: Any) -> Any:
        """Return the start of a run as a point, for manifolds whose points may be given in other forms."""
        return given

    @abstractmethod
    def check_point(self, point: Any) -> str | None:
        """Return why `point` is not on the manifold, or None when it is."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "inner_product" in vars(cls) and "inner" not in vars(cls):
            # A base class would give its own `inner`.
            setattr(cls, "inner", Manifold.inner)  # noqa: B010
        if "retraction" in vars(cls) and "default_retraction" not in vars(cls):
            raise InvalidInputError(
                f"{cls.__name__} has a method `retraction`, which solvers do not call, since retractions are "
                "exchangeable. Write a class derived from rmopt.core.Retraction, and set "
                "`default_retraction` to an object of it."
            )

    def retraction(self, point: Any, tangent_vector: Any) -> Any:
        """Move from a point along a tangent vector by the default retraction."""
        return self.default_retraction(self, point, tangent_vector)

    def _in_a_run(self) -> Self:
        """Return the manifold for a run: solvers never write to points and vectors, so results may be cached."""
        return self

    def using(
        self, retraction: Retraction | str | None = None, transport: Transport | str | None = None
    ) -> Self:
        """Return the same manifold with another default retraction (see `fitting`) or transport.

        Parameters
        ----------
        retraction : Retraction or str, optional
        transport : Transport or str, optional
            Also a name: "manifold", "projection", "isometric" or "retraction".
        """
        twin = copy.copy(self)
        if retraction is not None:
            twin.default_retraction = self.fitting(retraction)
        twin.default_transport = as_transport("transport", transport) or self.default_transport
        return twin

    def fitting(self, retraction: Retraction | str | None) -> Retraction:
        """Return a retraction that moves points of this manifold.

        Parameters
        ----------
        retraction : Retraction, str or None
            Also a name from `retractions`. None means the default. An object of another class must take a short step
            from a random point along a tangent vector to a point on the manifold.

        Raises
        ------
        InvalidInputError
            If it is not a retraction, or belongs to another manifold.
        """
        if retraction is None:
            return self.default_retraction
        retraction = named(f"retraction of {self}", retraction, self.retractions, Retraction)
        own = type(retraction) in map(type, self.retractions.values())
        if not own and (reason := self._misfit(retraction)) is not None:
            raise InvalidInputError(
                f"{retraction} is not a retraction of {self}: {reason}; its default retraction is "
                f"{self.default_retraction}."
            )
        return retraction

    def _misfit(self, retraction: Retraction) -> str | None:
        """Return a description of what is wrong with a short step from a random point, or None."""
        step, rng = 1e-3, np.random.default_rng(0)
        point = self.random_point(rng)
        tangent = self.random_tangent_vector(point, rng)
        try:
            try:
                moved = retraction(self, point, tangent, step)
            except (AttributeError, TypeError):
                if not hasattr(self, "block_of"):
                    raise
                # It may move single blocks, for coordinate descent.
                tangent = self.block_of(self.embedding(point, tangent), 0)
                moved = retraction(self, point, tangent, step)
        except RmoptError:
            raise
        except Exception as error:
            return f"a short step of it fails ({type(error).__name__}: {error})"
        reason = self.check_point(moved)
        if reason is None:
            start: Any = self.embed_point(point)
            done = self.projection(point, self.embed_point(moved) - start)
            if not self.norm(point, done - tangent * step) < 0.4 * step:
                return "a short step of it goes elsewhere"
        return None if reason is None else f"after a short step of it, {reason}"

    # pymanopt declares these for every manifold, and calls them only if an optimizer needs them.

    def exp(self, point: Any, tangent_vector: Any) -> Any:
        """Follow the geodesic, on manifolds with a closed form."""
        raise self._lacks("an exponential map", "use `retraction`")

    def log(self, point_a: Any, point_b: Any) -> Any:
        """Return the initial velocity of the geodesic between two points, if it is known."""
        raise self._lacks("a logarithm (`log`)", "choose a solver that does not need it")

    def dist(self, point_a: Any, point_b: Any) -> float:
        """Return the geodesic distance, if it is known."""
        raise self._lacks("a geodesic distance (`dist`)", "compare the embedded points instead")

    def projected_mean(self, points: Sequence[Any], weights: np.ndarray) -> Any:
        """Return the nearest point to a weighted sum, unchecked: `rmopt.manifolds.projected_mean` has checks."""
        raise self._lacks("a mean in the space around", "use rmopt.manifolds.frechet_mean")

    def pair_mean(self, point_a: Any, point_b: Any) -> Any:
        """Return the midpoint of the geodesic between two points, halfway along `log`."""
        return self.exp(point_a, 0.5 * self.log(point_a, point_b))

    def knows(self, method: str) -> bool:
        """Return whether `exp`, `log`, `dist` or `projected_mean` has a closed form here."""
        return getattr(type(self), method) is not getattr(Manifold, method)

    @property
    def knows_hessians(self) -> bool:
        """Whether there is a `euclidean_to_riemannian_hessian`."""
        return hasattr(self, "euclidean_to_riemannian_hessian")

    def _lacks(self, what: str, cure: str) -> MissingCapabilityError:
        return MissingCapabilityError(f"{self} has no closed form of {what}; {cure}.")


class OverField:
    """Shared methods of manifolds whose points are real or complex.

    Attributes
    ----------
    field : {"real", "complex"}
    """

    shape: tuple[int, ...]
    field: str = "real"

    @property
    def _in_field(self) -> str:
        return "" if self.field == "real" else f", field={self.field!r}"

    def _take(self, field: str) -> None:
        """Store a field, and refuse any other value."""
        self.field = one_of("field", field, FIELDS)

    @property
    def _per_number(self) -> int:
        """Dimension of the field over the reals."""
        return 1 + (self.field == "complex")

    def drawn(self, rng: np.random.Generator | None, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Return independent standard normal numbers of the field."""
        rng, shape = np.random.default_rng(rng), self.shape if shape is None else shape
        found = rng.standard_normal(shape)
        return found if self.field == "real" else found + 1j * rng.standard_normal(shape)

    def _other_field(self, array: Any) -> str | None:
        """Return one sentence if an array is of the other field, or None."""
        own = FIELDS[ns.is_complex(array)]
        if own == self.field:
            return None
        cure = "take their real parts" if own == "complex" else "add 0j to them"
        if "field" in signature(type(self)).parameters:
            cure += f", or give the manifold field={own!r}"
        return f"its numbers are {own}, and those of {self} are {self.field}; {cure}"


class FixedRankManifold(OverField, Manifold):
    """A manifold of matrices of one rank, whose points and tangent vectors become operators by `as_ambient`.

    Attributes
    ----------
    shape : (int, int)
        Numbers of rows and columns.
    rank : int
    """

    shape: tuple[int, int]
    rank: int

    def with_rank(self, k: int) -> Self:
        """Return the same manifold with another rank."""
        twin = copy.copy(self)
        twin.rank = checked_rank(k, self.shape)
        return twin

    def _of_field(self, point: Any) -> Any:
        """Return a point in double precision, complex if the manifold is."""
        if self.field == "real":
            return point
        return points.rebuilt(
            point, [ns.converted(one, one, np.complex128) for one in points.arrays_of(point)]
        )

    def _checked(self, point: Any, what: str, *given: Any) -> Any:
        """Return a point in the precision and library of its source, and refuse a lower rank."""
        point = points.in_precision(self._of_field(point), ns.real_type(*given))
        if (reason := self.refusal(point)) is not None:
            raise InvalidInputError(f"{what} is no point of {self}: {reason}.")
        return point if ns.namespace(given[0]) is np else points.as_like(point, given[0])

    def embedding(self, point: Any, tangent_vector: Any) -> Ambient:
        return tangent_vector.as_ambient(point)

    def embed_point(self, point: Any) -> Ambient:
        return point.as_ambient()

    def check_point(self, point: Any) -> str | None:
        if not isinstance(point, self.point_type):
            kind = self.point_type.__name__
            return f"a point of {self} is a {kind}, not {type(point).__name__}; `from_matrix` makes one"
        k, sizes, parts = self.rank, iter(self.shape), vars(point)
        names, shapes = ", ".join(parts), [tuple(part.shape) for part in parts.values()]
        wanted = [(k, k) if name == "S" else (next(sizes), k) for name in parts]
        if shapes != wanted:
            return f"{names} have shapes {shapes}, not {wanted}"
        if len({ns.namespace(part) for part in parts.values()}) > 1:
            return f"{names} are of several libraries"
        for part in parts.values():
            if (reason := self._other_field(part)) is not None:
                return reason
        if not points.is_finite(point):
            return f"one of {names} holds NaN or infinity"
        for name, factor in parts.items():
            if name == "S":
                continue
            error = np.abs(ns.to_numpy(ns.adjoint(factor) @ factor) - np.eye(k)).max()
            if error > ns.slack(1e-10, factor):
                return f"{name} is not orthonormal: |{name}ᴴ{name} − I| reaches {error:.1e}"
        return self.refusal(point)

    def refusal(self, point: Any) -> str | None:
        """Return why orthonormal factors of the right shapes are not a point, or None if all of them are points."""
        return None

    def to_dense(self, point: Any) -> np.ndarray:
        """Return a point as an n × m array, for small matrices and tests."""
        return dense(self.embed_point(point))


def checked_rank(rank: Any, shape: tuple[int, int]) -> int:
    """Return the rank of matrices of a shape as an int, or raise an error that gives the range."""
    rank = integer("rank", rank, 1)
    if rank > min(shape):
        raise InvalidInputError(
            f"rank = {rank} is out of range for {shape[0]} × {shape[1]} matrices; choose 1 to {min(shape)}."
        )
    return rank
