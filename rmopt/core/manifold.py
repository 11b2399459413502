"""The abstract manifold, in pymanopt's words, and the capabilities that some manifolds add."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from rmopt.core.ambient import Ambient
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.retraction import Retraction


class Manifold(ABC):
    """A Riemannian manifold embedded in a space of matrices.

    Names and argument order are those of ``pymanopt.manifolds.manifold.Manifold``, so that
    pymanopt's optimizers run on every rmopt manifold (see `rmopt.interop`).

    Attributes
    ----------
    default_retraction : Retraction
        The retraction that `retraction` applies; `using` exchanges it.
    point_layout : int
        1: a point is one object.
    point_type : type
        The class of its points, where retractions ask for one.
    """

    default_retraction: Retraction
    point_type: ClassVar[type] = object
    point_layout: int = 1
    num_values: int = 1

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the manifold."""

    @property
    def typical_dist(self) -> float:
        """Scale of the manifold, from which trust-region radii are derived."""
        return float(np.sqrt(self.dim))

    @abstractmethod
    def inner_product(self, point: Any, tangent_vector_a: Any, tangent_vector_b: Any) -> float:
        """Return the Riemannian inner product of two tangent vectors at a point."""

    def norm(self, point: Any, tangent_vector: Any) -> float:
        """Return the Riemannian norm of a tangent vector."""
        return float(np.sqrt(np.maximum(0.0, self.inner_product(point, tangent_vector, tangent_vector))))

    @abstractmethod
    def projection(self, point: Any, ambient: Ambient) -> Any:
        """Return the orthogonal projection of an ambient operator onto the tangent space."""

    def to_tangent_space(self, point: Any, vector: Any) -> Any:
        """Remove the rounding errors that lead a tangent vector out of the tangent space."""
        return self.projection(point, self.embedding(point, vector))

    def euclidean_to_riemannian_gradient(self, point: Any, euclidean_gradient: Ambient) -> Any:
        """Return the Riemannian gradient for an ambient gradient: its projection."""
        return self.projection(point, euclidean_gradient)

    @abstractmethod
    def embedding(self, point: Any, tangent_vector: Any) -> Ambient:
        """Return a tangent vector as an ambient operator."""

    @abstractmethod
    def embed_point(self, point: Any) -> Ambient:
        """Return a point as an ambient operator."""

    @abstractmethod
    def random_point(self, rng: np.random.Generator | None = None) -> Any:
        """Return a random point."""

    @abstractmethod
    def random_tangent_vector(self, point: Any, rng: np.random.Generator | None = None) -> Any:
        """Return a random tangent vector of norm 1."""

    @abstractmethod
    def zero_vector(self, point: Any) -> Any:
        """Return the zero of the tangent space."""

    @abstractmethod
    def transport(self, point_a: Any, point_b: Any, tangent_vector_a: Any) -> Any:
        """Carry a tangent vector at one point to the tangent space at another."""

    @abstractmethod
    def check_point(self, point: Any) -> str | None:
        """Return why `point` is not on the manifold, or None when it is."""

    def retraction(self, point: Any, tangent_vector: Any) -> Any:
        """Move from a point along a tangent vector by the default retraction."""
        return self.default_retraction(self, point, tangent_vector)

    def using(self, retraction: Retraction) -> Self:
        """Return the same manifold with another default retraction."""
        twin = copy.copy(self)
        twin.default_retraction = self.fitting(retraction)
        return twin

    def fitting(self, retraction: Retraction) -> Retraction:
        """Return a retraction that moves points of this manifold, or raise `InvalidInputError`."""
        wanted = retraction.point_type
        if wanted is not None and not issubclass(self.point_type, wanted):
            raise InvalidInputError(
                f"{retraction} moves points of type {wanted.__name__}, and those of {self} are of type "
                f"{self.point_type.__name__}; its default retraction is {self.default_retraction}."
            )
        return retraction

    # pymanopt declares these for every manifold and asks for them only where an optimizer uses them.

    def exp(self, point: Any, tangent_vector: Any) -> Any:
        """Follow the geodesic; only manifolds with a closed form have it."""
        raise self._lacks("an exponential map", "use `retraction`")

    def log(self, point_a: Any, point_b: Any) -> Any:
        """Return the initial velocity of the geodesic between two points, where it is known."""
        raise self._lacks("a logarithm (HasLog)", "choose a solver that does not need it")

    def dist(self, point_a: Any, point_b: Any) -> float:
        """Return the geodesic distance, where it is known."""
        raise self._lacks("a geodesic distance (HasLog)", "compare the embedded points instead")

    def pair_mean(self, point_a: Any, point_b: Any) -> Any:
        """Return the midpoint of the geodesic between two points, where it is known."""
        raise self._lacks("geodesic midpoints (HasLog)", "choose a solver that does not need them")

    @property
    def knows_geodesics(self) -> bool:
        """Whether `exp` has a closed form."""
        return type(self).exp is not Manifold.exp

    def _lacks(self, what: str, cure: str) -> MissingCapabilityError:
        return MissingCapabilityError(f"{self} has no closed form of {what}; {cure}.")

    def __str__(self) -> str:
        return repr(self)


class FixedRankManifold(Manifold):
    """A manifold of matrices of one rank.

    Attributes
    ----------
    shape : (int, int)
        Numbers of rows and columns.
    rank : int
    """

    shape: tuple[int, int]
    rank: int

    @abstractmethod
    def with_rank(self, k: int) -> Self:
        """Return the manifold of matrices of the same shape and another rank, with the same retraction."""


@runtime_checkable
class HasHessian(Protocol):
    """A manifold that turns an ambient Hessian action into the Riemannian one."""

    def euclidean_to_riemannian_hessian(
        self, point: Any, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Any
    ) -> Any:
        """Return the Riemannian Hessian along a tangent vector."""


@runtime_checkable
class HasBlocks(Protocol):
    """A manifold whose tangent vectors are sums of blocks, for solvers that move one block a step."""

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""

    def block_of(self, ambient: Ambient, block: int) -> Any:
        """Return the part of a symmetric ambient operator in a block, as a tangent vector."""


@runtime_checkable
class HasStepBound(Protocol):
    """A manifold that knows how far a straight line stays on it."""

    def max_step(self, point: Any, direction: Any) -> float:
        """Return the least t ≥ 0 at which point + t · direction leaves the manifold, or infinity."""

    def safe_step(self, point: Any, direction: Any) -> float:
        """Return how far a solver may go along a straight line and stay clear of the boundary."""
