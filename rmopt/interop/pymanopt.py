"""pymanopt both ways: its optimizers on rmopt's manifolds, its manifolds under rmopt's solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymanopt
from pymanopt import optimizers
from pymanopt.manifolds.manifold import Manifold as PymanoptManifold

from rmopt.core.ambient import Ambient, Array
from rmopt.core.cost import HasHessianAction
from rmopt.core.errors import DivergedError, InvalidInputError
from rmopt.core.manifold import HasHessian, Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.solvers.base import Result

# From here on isinstance(rmopt manifold, pymanopt manifold) holds, which is all that pymanopt asks for.
PymanoptManifold.register(Manifold)


def to_pymanopt(problem: Problem) -> pymanopt.Problem:
    """Return a problem for pymanopt's optimizers: cost, Euclidean gradient and, where known, Hessian.

    Parameters
    ----------
    problem : Problem
    """
    manifold, cost = problem.manifold, problem.cost
    target = manifold.foreign if isinstance(manifold, FromPymanopt) else manifold
    wrap = pymanopt.function.numpy(target)
    parts: dict[str, Any] = {"euclidean_gradient": wrap(lambda point: cost.gradient(point))}
    if isinstance(cost, HasHessianAction) and isinstance(manifold, HasHessian):
        parts["euclidean_hessian"] = wrap(lambda point, direction: _hessian(cost, point, direction))
    return pymanopt.Problem(target, wrap(lambda point: cost.value(point)), **parts)


def _hessian(cost: Any, point: Any, direction: Ambient) -> Ambient:
    return cost.hessian(point, direction)


class PymanoptSolver:
    """One of pymanopt's batch optimizers as an rmopt solver.

    Parameters
    ----------
    optimizer : str or pymanopt optimizer
        "SteepestDescent", "ConjugateGradient", "TrustRegions", or an optimizer made by pymanopt.
    **options : object
        Passed to the optimizer when it is given by name, e.g. ``max_iterations``.
    """

    def __init__(self, optimizer: Any = "ConjugateGradient", **options: Any) -> None:
        if isinstance(optimizer, str):
            names = ("SteepestDescent", "ConjugateGradient", "TrustRegions")
            if optimizer not in names:
                raise InvalidInputError(
                    f"optimizer = {optimizer!r} is unknown; choose one of {', '.join(names)}."
                )
            self.optimizer = getattr(optimizers, optimizer)(**{"verbosity": 0, **options})
        elif options:
            raise InvalidInputError(f"set {', '.join(options)} on the optimizer itself, which you passed.")
        else:
            self.optimizer = optimizer

    def run(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
    ) -> Result:
        """Minimise the cost; the result's history is empty and `updates` counts iterations.

        Raises
        ------
        DivergedError
            When the cost at the last point is not finite.
        """
        seed = 0 if random_state is None else random_state
        if initial_point is None:
            initial_point = problem.manifold.random_point(np.random.default_rng(seed))
        reason = problem.manifold.check_point(initial_point)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {problem.manifold}: {reason}.")
        options = {"initial_point": initial_point}
        if isinstance(self.optimizer, optimizers.ConjugateGradient | optimizers.SteepestDescent):
            # pymanopt's line search remembers step lengths of the last run; a fresh one makes runs repeatable.
            options["reuse_line_searcher"] = False
        found = self.optimizer.run(to_pymanopt(problem), **options)
        if not np.isfinite(found.cost):
            raise DivergedError(
                f"{type(self.optimizer).__name__} ended at a cost of {found.cost} after {found.iterations} "
                "iterations; check that the cost is finite on the manifold.",
                found.iterations,
            )
        return Result(
            point=found.point,
            steps=found.iterations,
            updates=found.iterations,
            seconds=found.time,
            stopped_by=found.stopping_criterion,
            seed=seed if isinstance(seed, int) else 0,
            history=[],
        )


class ForeignRetraction(Retraction):
    """The retraction that a pymanopt manifold brings along."""

    order = 1
    name = "foreign"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        """Return the point reached from `point` along t · `tangent`."""
        return manifold.foreign.retraction(point, t * tangent)


class FromPymanopt(Manifold):
    """A pymanopt manifold whose points are arrays, as an rmopt manifold.

    Parameters
    ----------
    foreign : pymanopt manifold
        With `point_layout` 1, e.g. ``Sphere(5)``.
    """

    def __init__(self, foreign: Any) -> None:
        if foreign.point_layout != 1:
            raise InvalidInputError(
                f"{foreign} has points of {foreign.point_layout} arrays; only manifolds of single arrays fit."
            )
        self.foreign = foreign
        self.default_retraction = ForeignRetraction()

    def __repr__(self) -> str:
        return f"FromPymanopt({self.foreign})"

    @property
    def dim(self) -> int:
        """Dimension of the manifold."""
        return int(self.foreign.dim)

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        """Return the Riemannian inner product of two tangent vectors."""
        return float(self.foreign.inner_product(point, tangent_vector_a, tangent_vector_b))

    def projection(self, point: Array, ambient: Any) -> Array:
        """Return the orthogonal projection of an ambient array onto the tangent space."""
        return self.foreign.projection(point, ambient)

    def to_tangent_space(self, point: Array, vector: Array) -> Array:
        """Remove rounding errors from a tangent vector."""
        return self.foreign.projection(point, vector)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Any) -> Array:
        """Return the Riemannian gradient for an ambient one."""
        return self.foreign.euclidean_to_riemannian_gradient(point, euclidean_gradient)

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Array, euclidean_hessian: Array, tangent_vector: Array
    ) -> Array:
        """Return the Riemannian Hessian along a tangent vector."""
        return self.foreign.euclidean_to_riemannian_hessian(
            point, euclidean_gradient, euclidean_hessian, tangent_vector
        )

    def embedding(self, point: Array, tangent_vector: Array) -> Array:
        """Return a tangent vector as an ambient array."""
        return self.foreign.embedding(point, tangent_vector)

    def embed_point(self, point: Array) -> Array:
        """Return the point itself."""
        return point

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a random point; pymanopt draws it from numpy's global state, here seeded and restored."""
        with _global_seed(rng):
            return self.foreign.random_point()

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        """Return a random tangent vector."""
        with _global_seed(rng):
            return self.foreign.random_tangent_vector(point)

    def zero_vector(self, point: Array) -> Array:
        """Return the zero tangent vector."""
        return self.foreign.zero_vector(point)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector from one tangent space to another."""
        return self.foreign.transport(point_a, point_b, tangent_vector_a)

    def check_point(self, point: Any) -> str | None:
        """Return why `point` cannot be a point, as far as its form tells; pymanopt has no such check."""
        expected = self.random_point(np.random.default_rng(0)).shape
        if not isinstance(point, np.ndarray) or point.shape != expected:
            return f"a point of {self} is an array of shape {expected}"
        return None if np.isfinite(point).all() else "the point holds NaN or infinity"


class _global_seed:  # noqa: N801 - used like a function
    """Seed numpy's global state inside a with block and restore it afterwards."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.seed = int(np.random.default_rng(rng).integers(2**32))

    def __enter__(self) -> None:
        self.before = np.random.get_state()
        np.random.seed(self.seed)

    def __exit__(self, *exception: object) -> None:
        np.random.set_state(self.before)


def from_pymanopt(manifold: Any) -> FromPymanopt:
    """Return a pymanopt manifold as an rmopt manifold, for SGD with the reference engine."""
    return FromPymanopt(manifold)


__all__ = ["FromPymanopt", "PymanoptSolver", "from_pymanopt", "to_pymanopt"]
