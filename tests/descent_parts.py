"""Costs with minima in closed form on all kinds of manifolds, and full-gradient solvers for them."""

import itertools
from typing import Any

import numpy as np
import pymanopt
import strangers

from rmopt import Problem
from rmopt.core import Cost, FiniteSum, LowRankPoint, PSDPoint
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of
from rmopt.costs import EmbeddedCost, OnFactors
from rmopt.interop import from_pymanopt
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    Oblique,
    PolarPSD,
    PositiveDefinite,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
)
from rmopt.solvers import (
    LBFGS,
    AdaptiveCubics,
    Backtracking,
    BarzilaiBorwein,
    Conjugate,
    ConjugateGradient,
    GradientDescent,
    Hybrid,
    LineSearchSolver,
    QuasiNewton,
    SteepestDescent,
    StrongWolfe,
    TrustRegions,
)
from rmopt.solvers.batch.directions import RULES

Array = np.ndarray
RNG = np.random.default_rng(0)


# Costs with a minimum in closed form


def whole(point: Any) -> Array:
    """Return a point as an array."""
    if isinstance(point, LowRankPoint):
        return point.U @ point.S @ point.V.T
    return point.Q @ point.S @ point.Q.T if isinstance(point, PSDPoint) else point


class Fit(Cost):
    """½ ‖√C ∘ (W − T)‖²."""

    def __init__(self, target: Array, weights: Any = 1.0) -> None:
        self.target, self.weights = target, weights

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum(self.weights * (whole(point) - self.target) ** 2))

    def gradient(self, point: Any) -> Array:
        return self.weights * (whole(point) - self.target)

    def hessian(self, point: Any, direction: Any) -> Any:
        return self.weights * dense(direction)

    def exact_step(self, manifold: Any, point: Array, tangent: Array) -> float:
        return -float(np.vdot(self.gradient(point), tangent) / np.vdot(tangent, self.weights * tangent))


class Quadratic(Cost):
    """½ tr XᵀAX."""

    def __init__(self, matrix: Array | None = None) -> None:
        self.matrix = np.diag(np.arange(1.0, 6.0)) if matrix is None else matrix

    def value(self, x: Array) -> float:
        return 0.5 * float(np.sum(x * (self.matrix @ x)))

    def gradient(self, x: Array) -> Any:
        return self.matrix @ x

    def hessian(self, x: Array, direction: Array) -> Array:
        return self.matrix @ direction


class Rayleigh(Cost):
    """−½ tr UᵀAU."""

    def __init__(self, A: Array) -> None:
        self.A = A

    def value(self, point: Array) -> float:
        return -0.5 * float(np.vdot(point, self.A @ point))

    def gradient(self, point: Array) -> Array:
        return -self.A @ point

    def hessian(self, point: Array, direction: Any) -> Array:
        return -self.A @ dense(direction)


class Variance(FiniteSum):
    """−½ Σ ‖Uᵀxᵢ‖²."""

    def __init__(self, X: Array) -> None:
        self.X = X

    n_terms = property(lambda self: len(self.X))

    def value(self, point: Array) -> float:
        return -0.5 * float(np.sum((self.X @ point) ** 2))

    def term_gradient(self, point: Array, terms: Array) -> Array:
        X = self.X[terms]
        return -(X.T @ (X @ point))

    def hessian(self, point: Array, direction: Array) -> Array:
        return -(self.X.T @ (self.X @ direction))


class EmbeddedFit(EmbeddedCost):
    """½‖W − T‖² − c, where c must not matter."""

    def __init__(self, T: Array, c: float = 0.0) -> None:
        self.features, self.T, self.c = np.eye(len(T)), T, c

    def measure(self, A: Array, B: Array) -> Array:
        return 0.5 * (A @ B.T + B @ A.T)

    def spread(self, slopes: Array, Z: Array) -> Array:
        return slopes @ Z

    def loss(self, measurements: Array) -> tuple[float, Array]:
        gap = measurements - self.T
        return 0.5 * float(np.sum(gap**2)) - self.c, gap

    def curvature(self, measurements: Array, change: Array) -> Array:
        return change


class LogDet(Cost):
    """tr CX − log det X, by one function for both."""

    def __init__(self, C: Array) -> None:
        self.C = C

    def value(self, point: Array) -> float:
        return self.value_and_gradient(point)[0]

    def value_and_gradient(self, point: Array) -> tuple[float, Array]:
        return float(np.vdot(self.C, point) - np.linalg.slogdet(point)[1]), self.C - np.linalg.inv(point)

    def hessian(self, point: Array, direction: Any) -> Array:
        inverse = np.linalg.inv(point)
        return inverse @ dense(direction) @ inverse


class PartByPart(Cost):
    """A sum over the parts of a point, with gradients as a list, or as an array where the point is one."""

    def __init__(self, *costs: Cost) -> None:
        self.costs = costs

    def value(self, point: Any) -> float:
        return sum(cost.value(part) for cost, part in zip(self.costs, point, strict=True))

    def gradient(self, point: Any) -> Any:
        found = [cost.gradient(part) for cost, part in zip(self.costs, point, strict=True)]
        return np.stack(found) if isinstance(point, np.ndarray) else found


class Conditioned(Fit):
    """One with a preconditioner, exact but for a factor."""

    def precondition(self, point: Array, tangent: Array) -> Array:
        return 0.5 * tangent / self.weights


class Counted(Cost):
    """Another cost, whose calls are counted; without second derivatives."""

    def __init__(self, cost: Any) -> None:
        self.cost, self.calls = cost, {"costs": 0, "gradients": 0, "hessians": 0}

    def value(self, point: Any) -> float:
        self.calls["costs"] += 1
        return self.cost.value(point)

    def gradient(self, point: Any) -> Any:
        self.calls["gradients"] += 1
        return self.cost.gradient(point)


class CountedTwice(Counted):
    """One with second derivatives too."""

    def hessian(self, point: Any, direction: Any) -> Any:
        self.calls["hessians"] += 1
        return self.cost.hessian(point, direction)


def with_spectrum(n: int) -> Array:
    Q = np.linalg.qr(RNG.standard_normal((n, n)))[0]
    return (Q * np.linspace(1.0, 3.0, n) ** 1.5) @ Q.T


A, S, C = with_spectrum(7), with_spectrum(6), with_spectrum(4)
T, B, Q3 = (RNG.standard_normal(shape) for shape in ((6, 5), (5, 3), (3, 3)))
WEIGHTS = np.array([1.0, 3.0, 10.0])


def top(count: int) -> float:
    """Return the minimum of `Rayleigh(A)`."""
    return -0.5 * float(np.linalg.eigvalsh(A)[-count:].sum())


def tail(matrix: Array) -> float:
    """Return the least distance to matrices of rank 2, squared and halved."""
    return 0.5 * float(np.sum(np.linalg.svd(matrix, compute_uv=False)[2:] ** 2))


def nearest_orthonormal(matrix: Array, det: bool) -> float:
    """Return the same for matrices with orthonormal columns; with `det`, of determinant 1."""
    U, _, Vt = np.linalg.svd(matrix, full_matrices=False)
    U[:, -1] *= np.sign(np.linalg.det(U @ Vt)) if det else 1.0
    return 0.5 * float(np.sum((U @ Vt - matrix) ** 2))


def unit_lengths(matrix: Array, axis: int) -> float:
    """Return the same for matrices whose columns (0) or rows (1) have length 1."""
    return 0.5 * float(np.sum((np.linalg.norm(matrix, axis=axis) - 1.0) ** 2))


LOG_DET = 4.0 + float(np.linalg.slogdet(C)[1])

# Problems, and their least costs.
PLACES: dict[str, tuple[Problem, float]] = {
    "euclidean": (Problem(Euclidean(5, 3), Fit(B, WEIGHTS)), 0.0),
    **{
        f"grassmann {name}": (Problem(Grassmann(7, 2).using(name), Rayleigh(A)), top(2))
        for name in ("exponential", "qr", "polar")
    },
    **{
        f"fixed rank {name}": (Problem(FixedRankEmbedded(6, 5, 2).using(name), Fit(T)), tail(T))
        for name in ("second-order", "metric-projection", "orthographic")
    },
    "psd": (Problem(PSDFixedRank(6, 2), Fit(S)), tail(S)),
    "polar": (Problem(PolarPSD(6, 2), Fit(S)), tail(S)),
    "positive definite": (Problem(PositiveDefinite(4), LogDet(C)), LOG_DET),
    "product": (
        Problem(Product([Grassmann(7, 2), Euclidean(5, 3)]), PartByPart(Rayleigh(A), Fit(B, WEIGHTS))),
        top(2),
    ),
    "power": (Problem(Power(Grassmann(7, 2), 2), PartByPart(Rayleigh(A), Rayleigh(A))), 2.0 * top(2)),
    "psd factors": (Problem(PSDFactors(6, 2), OnFactors(Fit(S))), tail(S)),
    "fixed-rank factors": (Problem(FixedRankFactors(6, 5, 2), OnFactors(Fit(T))), tail(T)),
    "sphere": (Problem(Sphere(7), Rayleigh(A)), top(1)),
    "oblique": (Problem(Oblique(5, 3), Fit(B)), unit_lengths(B, 0)),
    "stiefel": (Problem(Stiefel(5, 3), Fit(B)), nearest_orthonormal(B, det=False)),
    "rotations": (Problem(SpecialOrthogonal(3), Fit(Q3)), nearest_orthonormal(Q3, det=True)),
    "pymanopt's stiefel": (
        Problem(from_pymanopt(pymanopt.manifolds.Stiefel(5, 3)), Fit(B)), nearest_orthonormal(B, det=False)
    ),
    "a stranger's": (Problem(strangers.Spheres(4, 3), Fit(B[:4])), unit_lengths(B[:4], 1)),
}  # fmt: skip

DIRECTIONS = {"steepest": SteepestDescent, "quasi-newton": QuasiNewton} | {
    rule: lambda rule=rule: Conjugate(rule) for rule in RULES
}
LENGTHS = {"backtracking": Backtracking, "wolfe": lambda: StrongWolfe(flatness=0.1), "bb": BarzilaiBorwein}
# Conjugate directions want searches: with step lengths of Barzilai and Borwein they wander.
LINE_SEARCHES = {
    f"{direction}, {length}": lambda direction=direction, length=length, **options: LineSearchSolver(
        DIRECTIONS[direction](), LENGTHS[length](), **options
    )
    for direction, length in itertools.product(DIRECTIONS, LENGTHS)
    if length != "bb" or direction not in RULES
}
SOLVERS: dict[str, Any] = LINE_SEARCHES | {
    "trust regions": TrustRegions, "cubics": AdaptiveCubics, "hybrid": Hybrid, "lbfgs": LBFGS,
}  # fmt: skip
# One of each kind, for laws that do not depend on the rule.
KINDS = {
    "gd": GradientDescent, "cg": ConjugateGradient, "lbfgs": LBFGS, "wolfe": SOLVERS["quasi-newton, wolfe"],
    "trust regions": TrustRegions, "cubics": AdaptiveCubics, "hybrid": Hybrid,
}  # fmt: skip


def gap(result: Any, name: str) -> float:
    """Return how far above the least cost a run ended, relative to it."""
    problem, least = PLACES[name]
    return (problem.cost.value(result.point) - least) / max(1.0, abs(least))


def same_bits(one: Any, other: Any) -> None:
    """Hold two results to each other: points, rows but the seconds, counts."""
    for left, right in zip(arrays_of(one.point), arrays_of(other.point), strict=True):
        np.testing.assert_array_equal(left, right)
    assert [row | {"seconds": 0} for row in one.history] == [row | {"seconds": 0} for row in other.history]
    assert (one.counts, one.stopped_by, one.updates) == (other.counts, other.stopped_by, other.updates)
