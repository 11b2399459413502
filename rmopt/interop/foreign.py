"""pymanopt's manifolds of single arrays as rmopt manifolds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold
from pymanopt.manifolds.manifold import RetrAsExpMixin

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import shown
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.manifold import Manifold
from rmopt.core.retraction import Retraction


class ForeignRetraction(Retraction):
    """The retraction that a pymanopt manifold brings along."""

    order = 1
    name = "foreign"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return manifold.foreign.retraction(point, t * tangent)


def _as_there(method: str) -> Any:
    """Return a method that does what pymanopt's does, where it has it."""

    def asked(self: FromPymanopt, *arguments: Any) -> Any:
        if not self.knows(method):
            raise MissingCapabilityError(
                f"{self} has no `{method}`; choose a manifold or a solver that needs none."
            )
        return getattr(self.foreign, method)(*arguments)

    asked.__doc__ = getattr(Manifold, method, asked).__doc__
    return asked


FOREIGN_RETRACTIONS: dict[str, Retraction] = {"foreign": ForeignRetraction()}


class FromPymanopt(Manifold):
    """A pymanopt manifold whose points are arrays, as an rmopt manifold.

    What the foreign manifold has in closed form (`exp`, `log`, `dist`, `pair_mean`), it has here.

    Parameters
    ----------
    foreign : pymanopt manifold
        With `point_layout` 1, e.g. ``Sphere(5)``.

    Raises
    ------
    InvalidInputError
        For anything else.
    """

    inner_product = _as_there("inner_product")
    norm = _as_there("norm")
    zero_vector = _as_there("zero_vector")
    transport = _as_there("transport")
    exp = _as_there("exp")
    log = _as_there("log")
    dist = _as_there("dist")
    pair_mean = _as_there("pair_mean")
    embedding = _as_there("embedding")
    _convert_gradient = _as_there("euclidean_to_riemannian_gradient")
    _convert_hessian = _as_there("euclidean_to_riemannian_hessian")
    point_type = np.ndarray
    default_retraction: Retraction = ForeignRetraction()
    retractions = FOREIGN_RETRACTIONS

    def __init__(self, foreign: Any) -> None:
        if isinstance(foreign, Manifold) or not isinstance(foreign, PymanoptManifold):
            raise InvalidInputError(
                f"from_pymanopt needs a manifold made by pymanopt, e.g. pymanopt.manifolds.Sphere(5), got "
                f"{shown(foreign)}."
            )
        if foreign.point_layout != 1:
            raise InvalidInputError(
                f"{foreign} has points of {foreign.point_layout} arrays; only manifolds of single arrays fit."
            )
        self.foreign = foreign

    def __repr__(self) -> str:
        return f"FromPymanopt({self.foreign})"

    @property
    def dim(self) -> int:
        return int(self.foreign.dim)

    @property
    def typical_dist(self) -> float:
        try:
            return float(self.foreign.typical_dist)
        except NotImplementedError:
            return super().typical_dist

    def projection(self, point: Array, ambient: Any) -> Array:
        return self.foreign.projection(point, dense(ambient))

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        try:
            return self.foreign.to_tangent_space(point, vector)
        except NotImplementedError:
            return super().to_tangent_space(point, vector)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Any) -> Array:
        return self._convert_gradient(point, dense(euclidean_gradient))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Any, euclidean_hessian: Any, tangent_vector: Array
    ) -> Array:
        """Return the Riemannian Hessian along a tangent vector."""
        return self._convert_hessian(
            point, dense(euclidean_gradient), dense(euclidean_hessian), tangent_vector
        )

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a random point; pymanopt draws it from numpy's global state, here seeded and restored."""
        with global_seed(rng):
            return self.foreign.random_point()

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        with global_seed(rng):
            return self.foreign.random_tangent_vector(point)

    def knows(self, method: str) -> bool:
        """Return whether pymanopt has a closed form; a retraction in the place of a geodesic is none."""
        without = [getattr(kind, method, None) for kind in (PymanoptManifold, RetrAsExpMixin)]
        return getattr(type(self.foreign), method, None) not in without

    # Points

    def check_point(self, point: Any) -> str | None:
        """Return why `point` is not on the manifold, or None; pymanopt has no such check.

        Besides its form it is told by the zero step, which leaves a point of the manifold in its place.
        """
        expected = self.shape
        if not isinstance(point, np.ndarray) or point.shape != expected:
            return f"a point of {self} is an array of shape {expected}"
        if not np.isfinite(point).all():
            return "the point holds NaN or infinity"
        try:
            stays = self.foreign.retraction(point, np.zeros_like(point))
        except NotImplementedError:
            return None
        except np.linalg.LinAlgError as error:
            return f"a step of length zero fails ({error})"
        off = np.linalg.norm(stays - point) / max(1.0, float(np.linalg.norm(point)))
        return None if off < 1e-8 else f"a step of length zero moves the point by {off:.1e}"

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point."""
        return self.random_point(np.random.default_rng(0)).shape


@contextmanager
def global_seed(rng: np.random.Generator | None) -> Iterator[None]:
    """Seed numpy's global state inside a with block and restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(int(np.random.default_rng(rng).integers(2**32)))
    try:
        yield
    finally:
        np.random.set_state(before)


def from_pymanopt(manifold: Any) -> FromPymanopt:
    """Return a manifold of pymanopt as one of rmopt (see `FromPymanopt`).

    Parameters
    ----------
    manifold : pymanopt manifold
        For example ``pymanopt.manifolds.Sphere(5)``.
    """
    return FromPymanopt(manifold)
