"""Parts as strangers write them, who know the words of rmopt and nothing of its engines.

`overridden` makes a subclass with one override, for every method that a part has; below are costs by hand and by
autograd, losses, retractions, manifolds, samplers and step sizes of one's own, and pymanopt's. `WRONG_SCHEDULES` and
`WRONG_STEP_SIZES` hold those that a run must refuse, each with a piece of the sentence.
"""

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from problems.ranking import LabelRanking, WarpRanking
from rmopt import Problem
from rmopt.core import AgentSum, Cost, Factored, FiniteSum, LowRankPoint, Retraction
from rmopt.core.ambient import RowColumn, dense
from rmopt.core.low_rank import LowRankTangent, PSDTangent
from rmopt.costs import BilinearSum, LogDetTriplet, Loss, TripletSum, hinge, squared
from rmopt.manifolds import ArrayManifold, FixedRankEmbedded, PositiveDefinite, PSDFixedRank
from rmopt.retractions import Additive, SecondOrder, SecondOrderPSD
from rmopt.solvers import (
    SGD,
    Constant,
    CoordinateDescent,
    FromDraw,
    Momentum,
    Sampler,
    Solver,
    StepSize,
    Uniform,
)

Array = np.ndarray
RNG = np.random.default_rng(0)


# Compiled compositions, whose parts strangers subclass


@dataclass(frozen=True)
class Composition:
    """Parts with a compiled engine, and how to put them to work."""

    manifold: Any
    cost: Any
    retraction: Any
    solver: Callable[..., Solver] = SGD
    options: tuple[tuple[str, Any], ...] = ()

    def swapped(self, role: str, part: Any) -> "Composition":
        """Return the composition with another part; the loss is part of the cost."""
        parts = {"manifold": self.manifold, "cost": self.cost, "retraction": self.retraction}
        if role == "loss":
            parts["cost"] = copy.copy(self.cost)
            parts["cost"].loss = part
        else:
            parts[role] = part
        return Composition(**parts, solver=self.solver, options=self.options)

    def end(self, engine: str, n_steps: int = 10) -> Array:
        """Return where a short run ends, as an array; the start is that of the library's own manifold."""
        kind = next(one for one in type(self.manifold).__mro__ if one.__module__.startswith("rmopt"))
        start = kind.random_point(self.manifold, np.random.default_rng(1))
        solver = self.solver(
            0.05, max_iter=n_steps, retraction=self.retraction, engine=engine, **dict(self.options)
        )
        point = solver.run(Problem(self.manifold, self.cost), start, random_state=0).point
        if isinstance(point, LowRankPoint):
            return point.U @ point.S @ point.V.T
        return point.Q @ point.S @ point.Q.T if hasattr(point, "Q") else point


def _by_blocks(step_size: float, **options: Any) -> CoordinateDescent:
    return CoordinateDescent(step_size=0.1 * step_size, **options)


def compositions() -> dict[str, Composition]:
    """Return one composition for every compiled engine."""
    left, right = RNG.standard_normal((40, 9)), RNG.standard_normal((40, 7))
    targets = RNG.standard_normal(40)
    labels = RNG.random((30, 7)) < 0.3
    triplets = RNG.integers(40, size=(60, 3))
    general, pairs = FixedRankEmbedded(9, 7, 3), BilinearSum(left, right, squared, targets)
    ranked = FixedRankEmbedded(7, 9, 3)
    return {
        "bilinear": Composition(general, pairs, SecondOrder()),
        "triplets": Composition(FixedRankEmbedded(9, 9, 2), TripletSum(left, left, hinge, triplets), SecondOrder()),
        "batch": Composition(general, pairs, SecondOrder(), options=(("batch_size", 2),)),
        "remembers": Composition(general, pairs, SecondOrder(), options=(("rule", Momentum()),)),
        "psd": Composition(PSDFixedRank(9, 3), BilinearSum(left, left, squared, targets), SecondOrderPSD()),
        "ranking": Composition(ranked, LabelRanking(left[:30], labels), SecondOrder()),
        "warp": Composition(
            ranked,
            WarpRanking(left[:30], labels),
            SecondOrder(),
            options=(("sampler", Uniform(np.column_stack([np.arange(30), np.arange(30) * 977]))),),
        ),
        "log-det": Composition(
            PositiveDefinite(7), LogDetTriplet(right, triplets, squared, sparsity=0.1), Additive(), _by_blocks
        ),
    }  # fmt: skip


# One override each


def methods_of(part: Any) -> list[str]:
    """Return the names of the public methods of a part's class, `__call__` included."""
    found = [name for name in dir(type(part)) if not name.startswith("_") or name == "__call__"]
    # A manifold with a `retraction` of its own is refused.
    return [n for n in found if n != "retraction" and isinstance(_found(part, n), types.FunctionType)]


def overridden(part: Any, method: str) -> Any:
    """Return a part in a subclass that overrides one method: half of what it returned, or less of a step."""
    inherited = _found(part, method)

    def own(self: Any, *args: Any, **keywords: Any) -> Any:
        if method == "__call__":
            keywords["t"] = 0.75 * keywords.pop("t", args[3] if len(args) > 3 else 1.0)
            # A point stays whole: half of it is no place that a retraction may lead to. Half the step is refused.
            return inherited(self, *args[:3], **keywords)
        return halved(inherited(self, *args, **keywords))

    return of_class(part, type(f"Own{type(part).__name__}", (type(part),), {method: own}))


def subclassed(part: Any) -> Any:
    """Return a copy of a part in a subclass that overrides nothing."""
    return of_class(part, type(f"Own{type(part).__name__}", (type(part),), {}))


def patched(part: Any, method: str) -> Any:
    """Return a copy of a part, of the same class, with half of what a method returned before."""
    twin = copy.copy(part)
    object.__setattr__(twin, method, lambda *args: halved(getattr(part, method)(*args)))
    return twin


def of_class(part: Any, kind: type) -> Any:
    """Return a copy of a part that is of a subclass."""
    twin = copy.copy(part)
    object.__setattr__(twin, "__class__", kind)
    return twin


def halved(result: Any) -> Any:
    """Return half of a number, array or vector, of the last part of a tuple; anything else as it is."""
    if isinstance(result, tuple) and type(result) is tuple:
        return (*result[:-1], halved(result[-1]))
    vectors = float | np.floating | Factored | RowColumn | LowRankTangent | PSDTangent
    if isinstance(result, vectors) or (isinstance(result, Array) and result.dtype.kind == "f"):
        return result * 0.5
    return result


def _found(part: Any, name: str) -> Any:
    return next(vars(kind)[name] for kind in type(part).__mro__ if name in vars(kind))


# Costs of one's own


class Residual(FiniteSum):
    """½ Σ (W_ij − T_ij)² over the rows of T: a sum by hand on low-rank matrices or arrays."""

    def __init__(self, target: Array) -> None:
        self.target = target

    @property
    def n_terms(self) -> int:
        return len(self.target)

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum((_matrix(point) - self.target) ** 2))

    def gradient(self, point: Any) -> Array:
        return _matrix(point) - self.target

    def term_gradient(self, point: Any, terms: Array) -> Array:
        gradient = np.zeros_like(self.target)
        np.add.at(gradient, terms, self.gradient(point)[terms])
        return gradient


class Whole(Cost):
    """The same, and no sum."""

    def __init__(self, target: Array) -> None:
        self.target = target

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum((_matrix(point) - self.target) ** 2))

    def gradient(self, point: Any) -> Array:
        return _matrix(point) - self.target


class Agents(AgentSum):
    """−½ tr UᵀA_iU for the agent i."""

    def __init__(self, matrices: Array) -> None:
        self.matrices = matrices + matrices.transpose(0, 2, 1)

    @property
    def n_terms(self) -> int:
        return len(self.matrices)

    def agent_value(self, point: Array, agent: int) -> float:
        return -0.5 * float(np.vdot(point, self.matrices[agent] @ point))

    def agent_gradient(self, point: Array, agent: int) -> tuple[Array, Array]:
        return -self.matrices[agent] @ point, np.eye(point.shape[1])


def by_autograd(target: Array, factors: bool) -> Cost:
    """The same by automatic derivatives, of the factors or of an array."""
    import autograd.numpy as anp

    import rmopt

    if factors:
        return rmopt.autograd_cost(lambda A, B: 0.5 * anp.sum((A @ B.T - target) ** 2))
    return rmopt.autograd_cost(lambda W: 0.5 * anp.sum((W - target) ** 2))


def _matrix(point: Any) -> Array:
    return point.U @ point.S @ point.V.T if isinstance(point, LowRankPoint) else point


# Losses of one's own


@numba.njit
def _huber_value(z: float, y: float) -> float:
    return np.sqrt(1.0 + (z - y) ** 2)


@numba.njit
def _huber_slope(z: float, y: float) -> float:
    return (z - y) / np.sqrt(1.0 + (z - y) ** 2)


class Tempered(Loss):
    """A loss whose slopes are clipped by a method, which no pair of functions knows."""

    def slopes(self, z: Array, y: Array) -> Array:
        return np.clip(super().slopes(z, y), -0.1, 0.1)


huber = Loss("huber", _huber_value, _huber_slope)
pinball = Loss("pinball", lambda z, y: max(0.9 * (y - z), 0.1 * (z - y)), lambda z, y: -0.9 if z < y else 0.1)
tempered = Tempered("tempered", _huber_value, _huber_slope)
tempered_hinge = Tempered(*(getattr(hinge, name) for name in ("name", "value", "slope", "curvature")))


# Functions that are no loss, and what is said of them.
WRONG_LOSSES: dict[str, tuple[Any, str]] = {
    "unknown name": (lambda z, y: unknown(z), "name 'unknown' is not defined"),  # noqa: F821
    "one argument": (lambda z: z, "takes 1 arguments"),
    "text": (lambda z, y: "x", "it returns"),
    "array": (lambda z, y: np.array([z]), "it returns array"),
    "complex": (lambda z, y: z + 1j, "it returns complex"),
}


# Retractions and manifolds of one's own


class Normalised(Retraction):
    """Rows of length one; knows its velocity."""

    order = 2
    name = "normalised"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = point + t * tangent
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    def velocity(self, manifold: Any, point: Array, tangent: Array, t: float) -> Array:
        moved = point + t * tangent
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return tangent / lengths - moved * np.sum(moved * tangent, axis=1, keepdims=True) / lengths**3


class Unhurried(Retraction):
    """The same without a velocity."""

    order = 2
    name = "unhurried"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return Normalised()(manifold, point, tangent, t)


class Spheres(ArrayManifold):
    """n points on the sphere of a space of d dimensions; block i is row i."""

    def __init__(self, n: int, d: int, retraction: Retraction | None = None) -> None:
        self.shape, self.default_retraction = (n, d), Normalised() if retraction is None else retraction

    @property
    def dim(self) -> int:
        return self.shape[0] * (self.shape[1] - 1)

    @property
    def n_blocks(self) -> int:
        return self.shape[0]

    def block_of(self, ambient: Any, block: int) -> Array:
        part = np.zeros(self.shape)
        part[block] = ambient[block]
        return part

    def projection(self, point: Array, ambient: Any) -> Array:
        return ambient - point * np.sum(point * ambient, axis=1, keepdims=True)

    def random_point(self, rng: Any = None) -> Array:
        return Normalised()(self, np.random.default_rng(rng).standard_normal(self.shape), 0.0)

    def refusal(self, point: Array) -> str | None:
        off = np.abs(np.linalg.norm(point, axis=1) - 1.0).max()
        return None if off < 1e-10 else f"the rows are not of length one: off by {off:.1e}"


class PolarByMetric(Retraction):
    """The factor of (X + ξ) that is orthonormal by B."""

    order = 2
    name = "polar by metric"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = point + t * tangent
        values, vectors = np.linalg.eigh(moved.T @ manifold.B @ moved)
        return moved @ (vectors / np.sqrt(values)) @ vectors.T


class GeneralizedStiefel(ArrayManifold):
    """XᵀBX = I with the metric ⟨ξ, Bη⟩, by which it projects: off the ambient normals, as Manopt does."""

    default_retraction = PolarByMetric()

    def __init__(self, n: int, p: int, seed: int = 0) -> None:
        root = np.random.default_rng(seed).standard_normal((n, n))
        self.B, self.shape = root @ root.T / n + np.eye(n), (n, p)

    @property
    def dim(self) -> int:
        n, p = self.shape
        return n * p - p * (p + 1) // 2

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(np.vdot(tangent_vector_a, self.B @ tangent_vector_b))

    def normals(self, point: Array) -> Array:
        """Return the Y of the normal vectors Y S, for symmetric S."""
        return point

    def projection(self, point: Array, ambient: Any) -> Array:
        ambient = dense(ambient)
        inside = point.T @ (self.B @ ambient)
        return ambient - self.normals(point) @ (0.5 * (inside + inside.T))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Any) -> Array:
        G = dense(euclidean_gradient)
        inside = point.T @ G
        return np.linalg.solve(self.B, G) - point @ (0.5 * (inside + inside.T))

    def random_point(self, rng: Any = None) -> Array:
        return PolarByMetric()(self, np.random.default_rng(rng).standard_normal(self.shape), 0.0)

    def refusal(self, point: Array) -> str | None:
        off = np.abs(point.T @ self.B @ point - np.eye(self.shape[1])).max()
        return None if off < 1e-9 else f"XᵀBX differs from I by {off:.1e}"


class ObliqueByMetric(GeneralizedStiefel):
    """The same, projected along other directions than those that are normal by B, or in the ambient space."""

    def normals(self, point: Array) -> Array:
        aside = np.cos(np.arange(float(point.size))).reshape(point.shape)
        return point + 0.1 * (aside - point @ (point.T @ self.B @ aside))


class SelfProjecting(ObliqueByMetric):
    """That, with an inner product which projects what it is given, and so agrees with any projection."""

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        along = (self.projection(point, vector) for vector in (tangent_vector_a, tangent_vector_b))
        return super().inner_product(point, *along)


def pymanopt_manifolds() -> list[Any]:
    """Return manifolds of pymanopt whose points are arrays of shape (6, 3), or (6, 6)."""
    from pymanopt import manifolds

    from rmopt.interop import from_pymanopt

    made = (manifolds.Stiefel(6, 3), manifolds.Grassmann(6, 3), manifolds.Oblique(6, 3), manifolds.Euclidean(6, 3),
            manifolds.SymmetricPositiveDefinite(6), manifolds.SpecialOrthogonalGroup(6))  # fmt: skip
    return [from_pymanopt(one) for one in made]


# Samplers and step sizes of one's own


class Backwards(Sampler):
    """The terms from the last to the first."""

    def __init__(self, n_terms: int) -> None:
        self.n_terms = n_terms

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        return (-1 - np.arange(start, start + size))[:, None] % self.n_terms


class Halving(StepSize):
    """Half the step size every ten steps."""

    def __call__(self, t: Array) -> Array:
        return 0.05 * 0.5 ** (t // 10)


class Wild(Sampler):
    """Whatever a function of the number of steps gives, unchecked."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self.function = function

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Any:
        return self.function(size)


def _every(value: Any, width: int = 1, kind: Any = int) -> Callable[[int], Array]:
    return lambda size: np.full((size, width), value, dtype=kind)


# By name: what a sampler draws for the 40 terms of `compositions()["bilinear"]`, and what is said of it.
WRONG_SCHEDULES: dict[str, tuple[Callable[[int], Any], str]] = {
    "negative": (_every(-1), r"names terms from -1 to -1, and there are 40; they count from 0"),
    "too large": (_every(10**6), r"names terms from 1000000 to 1000000, and there are 40"),
    "too wide": (_every(0, 3), r"int64 of shape \(\d+, 3\); \d+ steps need integers of shape \(\d+, 1\)"),
    "no integers": (_every(0.5, kind=float), r"float64 of shape"),
    "flat": (lambda size: np.zeros(size, dtype=int), r"int64 of shape \(\d+,\)"),
    "too few": (lambda size: np.zeros((3, 1), dtype=int), r"int64 of shape \(3, 1\)"),
}


class Loose(StepSize):
    """Whatever a function of the step numbers gives, unchecked."""

    def __init__(self, function: Callable[[Array], Any]) -> None:
        self.function = function

    def __call__(self, t: Array) -> Any:
        return self.function(t)


WRONG_STEP_SIZES: dict[str, tuple[Callable[[Array], Any], str]] = {
    "one number": (lambda t: 0.1, r"one finite number"),
    "negative": (lambda t: np.full(len(t), -0.1), r"one finite number"),
    "nan": (lambda t: np.where(t == 5, np.nan, 0.1), r"one finite number"),
}

SAMPLERS: dict[str, Any] = {
    "backwards": Backwards(40),
    "function": lambda rng, start, size: rng.integers(40, size=(size, 1)),
    "drawn": FromDraw(lambda rng, start, size: rng.integers(40, size=(size, 1))),
    "uniform, its own draw": overridden(Uniform(40), "draw"),
}
STEP_SIZES: dict[str, Any] = {
    "halving": Halving(),
    "function": lambda t: 0.1 / (1.0 + t),
    "constant, its own call": of_class(
        Constant(0.1), type("Own", (Constant,), {"__call__": lambda self, t: np.full(len(t), 0.5 * self.a)})
    ),
}
