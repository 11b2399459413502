"""The checks, checked: parts as strangers write them, right ones that pass and wrong ones that a named law finds.

What tests find in the library itself is in `mutation.py`, which is run by hand.
"""

import dataclasses
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mutation
import numpy as np
import pytest
import scipy.sparse as sp
from tabled import each_row

from rmopt import Problem
from rmopt.checks import (
    Check,
    check_cost,
    check_engine,
    check_gradient,
    check_hessian,
    check_manifold,
    check_retraction,
    check_sampler,
    check_step_size,
)
from rmopt.checks.catalogue import instances
from rmopt.checks.derivatives import COST, HESSIAN
from rmopt.checks.geometry import MANIFOLD, RETRACTION
from rmopt.checks.runs import ENGINE, SAMPLER, STEP_SIZE
from rmopt.core import Actions, AgentSum, Cost, FiniteSum, LowRankPoint, PSDPoint, Retraction
from rmopt.core.ambient import dense
from rmopt.core.transport import Transport
from rmopt.costs import BilinearSum, EmbeddedCost, LogDetTriplet, ResidualSum, squared
from rmopt.engines.reference import ReferenceEngine, ReferenceState
from rmopt.linalg import symmetric
from rmopt.manifolds import (
    ArrayManifold,
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    PolarPSD,
    PositiveDefinite,
    Power,
    Product,
    PSDFixedRank,
    Sphere,
)
from rmopt.retractions import (
    QR,
    Additive,
    AffineExponential,
    MetricProjection,
    Polar,
    SchurExponential,
    SecondOrderPD,
)
from rmopt.solvers import Constant, FromFunction, InverseSqrt
from rmopt.solvers.stochastic.samplers import Cyclic, FromDraw, ShuffledEpochs, Uniform

Array = np.ndarray


# Strangers' manifolds, right as they stand


class Frames(ArrayManifold):
    """Matrices with orthonormal columns, as a submanifold."""

    default_retraction: Retraction = Polar()

    def __init__(self, n: int = 7, p: int = 3) -> None:
        self.shape = (n, p)

    @property
    def dim(self) -> int:
        n, p = self.shape
        return n * p - p * (p + 1) // 2

    def projection(self, point: Array, ambient: Any) -> Array:
        return dense(ambient) - point @ symmetric(point.T @ dense(ambient))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Any, euclidean_hessian: Any, tangent_vector: Array
    ) -> Array:
        turn = symmetric(point.T @ dense(euclidean_gradient))
        return self.projection(point, dense(euclidean_hessian) - tangent_vector @ turn)

    def random_point(self, rng: Any = None) -> Array:
        return np.linalg.qr(np.random.default_rng(rng).standard_normal(self.shape))[0]

    def check_point(self, point: Any) -> str | None:
        error = float(np.abs(point.T @ point - np.eye(self.shape[1])).max())
        return None if error < 1e-10 else f"XᵀX − I reaches {error:.1e}"


def retraction(
    order: int, call: Callable[..., Any], base: type[Retraction] = Retraction, **members: Any
) -> Retraction:
    """Return a retraction of the point, the vector and t."""

    def move(self: Any, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return call(manifold, point, tangent, t)

    return type("Own", (base,), {"__call__": move, "order": order, "name": "own", **members})()


def by_qr(manifold: Any, point: Array, tangent: Array, t: float) -> Array:
    Q, R = np.linalg.qr(point + t * tangent)
    return Q * np.where(np.diag(R) < 0.0, -1.0, 1.0)


def by_two_qr(manifold: Any, point: Any, tangent: Any, t: float) -> LowRankPoint:
    """Move factors and core apart, as Meyer et al. (2011) do: the Q of a QR depends on the basis."""
    inverse = np.linalg.inv(point.S)
    U = by_qr(manifold, point.U, tangent.Up @ inverse, t)
    return LowRankPoint(U, point.S + t * tangent.M, by_qr(manifold, point.V, tangent.Vp @ inverse.T, t))


def of(base: type, *arguments: Any, **members: Any) -> Any:
    """Return an instance of a subclass with these members in the place of the right ones."""
    return type(base.__name__, (base,), members)(*arguments)


# Strangers' costs


A = np.random.default_rng(0).standard_normal((40, 7))
WEIGHTS = np.array([3.0, 2.0, 1.0])
S = symmetric(np.cov(A.T))


class Variance(FiniteSum):
    """−½ Σ ‖aᵢᵀU‖²: depends on the span alone."""

    n_terms = len(A)  # type: ignore[assignment]

    def value(self, point: Array) -> float:
        return -0.5 * float(np.sum((A @ point) ** 2))

    def gradient(self, point: Array) -> Array:
        return -A.T @ (A @ point)

    def term_gradient(self, point: Array, terms: Array) -> Array:
        return -A[terms].T @ (A[terms] @ point)

    def hessian(self, point: Array, direction: Any) -> Array:
        return -A.T @ (A @ dense(direction))

    def precondition(self, point: Array, tangent: Array) -> Array:
        return 0.5 * tangent


class Brockett(Cost):
    """½ tr(XᵀSXN), of frames."""

    def value(self, point: Array) -> float:
        return 0.5 * float(np.sum(WEIGHTS * point * (S @ point)))

    def gradient(self, point: Array) -> Any:
        return WEIGHTS * (S @ point)

    def hessian(self, point: Array, direction: Any) -> Array:
        return WEIGHTS * (S @ dense(direction))


class Likelihood(Cost):
    """tr(SW) − log det W, of positive definite matrices."""

    def value(self, point: Array) -> float:
        return float(np.vdot(S, point) - np.linalg.slogdet(point)[1])

    def gradient(self, point: Array) -> Array:
        return S - np.linalg.inv(point)

    def hessian(self, point: Array, direction: Any) -> Array:
        return np.linalg.inv(point) @ dense(direction) @ np.linalg.inv(point)


class Agents(AgentSum):
    """The variance, divided among four agents."""

    n_terms = 4  # type: ignore[assignment]

    def agent_value(self, point: Array, agent: int) -> float:
        return -0.5 * float(np.sum((A[agent::4] @ point) ** 2))

    def agent_gradient(self, point: Array, agent: int) -> tuple[Array, Array]:
        part = A[agent::4] @ point
        return -A[agent::4].T @ part, part.T @ part


def corner(point: Any) -> float:
    return float(np.asarray(getattr(point, "U", getattr(point, "Q", point)))[0, 0])


class Factors(Cost):
    """½‖W‖², and a multiple of an entry of a factor, which is none of W."""

    share = 0.0

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum(point.S**2)) + self.share * corner(point)

    def gradient(self, point: Any) -> Any:
        return point.as_ambient()


triplets = np.random.default_rng(1).integers(20, size=(30, 3))
METRIC = {"loss": squared, "alpha": 1.0, "beta": 1.0, "sparsity": 0.1}


def metric(**members: Any) -> Any:
    made = type("Metric", (LogDetTriplet,), members)
    return check_cost(Problem(PositiveDefinite(7), made(A[:20], triplets, **METRIC)))


def on_subspaces(kind: Any = Variance, **members: Any) -> list[Check]:
    return check_cost(Problem(Grassmann(7, 3), of(kind, **members)))


class Lengths(EmbeddedCost):
    """½ Σ (W_ii − 1)²."""

    lower_bound = 0.0
    features = np.eye(5)

    def measure(self, A: Array, B: Array) -> Array:
        return np.asarray(np.sum(A * B, axis=1))

    def spread(self, slopes: Array, Z: Array) -> Array:
        return slopes[:, None] * Z

    def loss(self, lengths: Array) -> tuple[float, Array]:
        return 0.5 * float(np.sum((lengths - 1.0) ** 2)), lengths - 1.0


def on_psd(**members: Any) -> list[Check]:
    return check_cost(Problem(PSDFixedRank(5, 2), of(Lengths, **members)))


def on_frames(**members: Any) -> list[Check]:
    return check_cost(Problem(Frames(), of(Brockett, **members)))


FIT, SKEW = np.random.default_rng(9).standard_normal((7, 5)), np.diag([1.0, 1.0, 1.0, 1.0, 0.9])


def on_frames_by_rows(row_gradient: Any) -> list[Check]:
    return check_cost(Problem(Euclidean(7, 3), of(Variance, row_gradient=row_gradient)))


class Shifted(Transport):
    def __call__(self, manifold: Any, start: Any, end: Any, vector: Any) -> Any:
        return end - 3.0 * vector


def fitted(forward: Any, backward: Any) -> list[Check]:
    class Fit(ResidualSum):
        def residuals(self, point: Array) -> Array:
            return FIT @ point - 1.0

        def linearised(self, point: Array) -> Any:
            return forward, backward

    return check_cost(Problem(Sphere(5), Fit()))


def writing(self: Any, point: Array, ambient: Any) -> Array:
    Z = np.asarray(ambient)
    Z -= point @ symmetric(point.T @ Z)
    return Z


def frames(**members: Any) -> list[Check]:
    return check_manifold(of(Frames, **members))


def subspaces(**members: Any) -> list[Check]:
    return check_manifold(of(Grassmann, 6, 2, **members))


def cone(**members: Any) -> list[Check]:
    return check_manifold(of(PositiveDefinite, 5, **members))


def moved_by(order: int, call: Callable[..., Any], base: Any = Retraction, **members: Any) -> list[Check]:
    return check_retraction(retraction(order, call, base, **members), Frames())


def drawn_when_made() -> Retraction:
    number = random.random()
    return retraction(1, lambda m, x, v, t: by_qr(m, x, v + t * number * m.projection(x, x[::-1]), t))


def along_the_cone(base: type[Retraction], **members: Any) -> list[Check]:
    return check_retraction(of(base, **members), PositiveDefinite(5))


def hessian_of_frames(move: Retraction, **members: Any) -> list[Check]:
    return check_hessian(Problem(of(Frames, default_retraction=move, **members), Brockett()))


def hessian_of_cone(move: Retraction, cost: Cost | None = None, **members: Any) -> list[Check]:
    manifold = of(PositiveDefinite, 7, **members).using(move)
    return check_hessian(Problem(manifold, Likelihood() if cost is None else cost))


SUM = Problem(Grassmann(7, 3), Variance())


def engine(problem: Problem = SUM, **members: Any) -> list[Check]:
    made = type("Own", (ReferenceEngine,), members)
    retraction = problem.manifold.default_retraction
    return check_engine(
        problem, engine=made(problem.manifold, problem.cost, retraction), steps=30, step_size=0.01
    )


# Wrong methods


def scaled(cls: type, name: str, factor: float) -> Callable[..., Any]:
    """Return a method whose result is wrong by a factor."""
    method = getattr(cls, name)
    return lambda self, *arguments: factor * method(self, *arguments)


def oblique(self: Any, point: Array, ambient: Any) -> Array:
    lean = point + 0.1
    return dense(ambient) - np.vdot(point, dense(ambient)) / np.vdot(point, lean) * lean


def lax(self: Any, point: Any) -> str | None:
    error = np.abs(point.T @ point - np.eye(self.shape[1])).max()
    return "not orthonormal" if error > 1e-10 else None


def normalising(self: Any, point_a: Array, point_b: Array, vector: Array) -> Array:
    carried = self.projection(point_b, vector)
    return carried * (np.linalg.norm(vector) / np.linalg.norm(carried))


def counted_once(self: Any, point: Array, terms: Array) -> Array:
    weights = np.zeros(len(A))
    weights[terms] += 1.0
    return -A.T @ (weights[:, None] * (A @ point))


def in_place(manifold: Any, point: Array, tangent: Array, t: float) -> Array:
    point += t * tangent
    return by_qr(manifold, point, tangent, 0.0)


def shortening(manifold: Any, point: Array, tangent: Array, t: float) -> Array:
    tangent *= t
    return by_qr(manifold, point, tangent, 1.0)


def noisy(self: Any, point: Array) -> float:
    return Brockett.value(self, point) + 1e-6 * np.random.default_rng().standard_normal()


def touching(self: Any, point: Array) -> Array:
    point *= 1.0 + 1e-9
    return Brockett.gradient(self, point)


def bending(self: Any, point: Array, direction: Array) -> Array:
    direction *= -1.0
    return Brockett.hessian(self, point, -direction)


def forgetting(self: Any, point: Array, terms: Array) -> Array:
    found = Variance.term_gradient(self, point, terms)
    terms[:] = 0
    return found


def badly_transposed(self: Any, point: Array) -> Actions:
    G = Brockett.gradient(self, point)
    return Actions(G.shape, lambda X: G @ X, lambda X: -G.T @ X)


def flat(self: Any, point: Array, gradient: Any, hessian: Any, vector: Array) -> Array:
    return self.projection(point, dense(hessian))


def flat_cone(self: Any, point: Array, gradient: Any, hessian: Any, vector: Array) -> Array:
    return symmetric(point @ symmetric(dense(hessian)) @ point)


def normalised(self: Any, point: Array, vector: Any) -> Array:
    return Brockett.hessian(self, point, vector) / np.linalg.norm(vector)


def lopsided(self: Any, point: Array, direction: Array) -> Array:
    return WEIGHTS * (np.triu(S) @ direction)


def grown(self: Any, point: Array, block: int, step: float) -> Array:
    return point + (point - LogDetTriplet.proximal_step(self, point, block, step))


FURTHER = MetricProjection()


def unseeded(self: Any, point: Array, rng: Any = None) -> Array:
    return Frames.random_tangent_vector(self, point, 0)


def plain(self: Any, rank: int) -> Any:
    return FixedRankEmbedded(6, 5, rank)


def drawn(draw: Callable[..., Array]) -> list[Check]:
    return check_sampler(FromDraw(lambda rng, start, size: draw(rng, size)), 9)


def next_block(self: Any, point: Array, block: int) -> Any:
    return dataclasses.replace(LogDetTriplet.block_gradient(self, point, (block + 1) % 7), k=block)


def half_steps(self: Any, state: Any, schedule: Array, etas: Array) -> Any:
    return ReferenceEngine.advance(self, state, schedule, 0.5 * etas)


def forgetful(self: Any, state: Any, schedule: Array, etas: Array) -> Any:
    # The first step of a call is shorter: a memory that starts anew.
    return ReferenceEngine.advance(self, state, schedule, np.r_[0.5 * etas[:1], etas[1:]])


def idle(self: Any, state: ReferenceState, schedule: Array, etas: Array) -> ReferenceState:
    return dataclasses.replace(state, steps=state.steps + len(etas), updates=0)


GENERATOR = np.random.default_rng(5)
CALLS: list[int] = []


def calls(t: Array) -> Array:
    CALLS.append(len(t))
    return np.full(len(t), 1.0 / len(CALLS))


def shuffled_once(self: Any, rng: np.random.Generator, start: int, size: int) -> Array:
    order = vars(self).setdefault("order", rng.permutation(9))
    return order[np.arange(start, start + size) % 9][:, None]


def wrong(law: str, checks: Callable[..., list[Check]], *arguments: Any, **members: Any) -> Any:
    """Return the checks of a part with wrong members, to be called, and the law that must find it."""
    return partial(checks, *arguments, **members), law


MUTANTS: list[tuple[Callable[[], Any], str]] = [
    # Geodesics
    wrong("exp and log", subspaces, log=scaled(Grassmann, "log", 1.5)),
    wrong(
        "exp and log", subspaces,
        log=lambda self, a, b: (Grassmann.log if self.dist(a, b) < 1.0 else Grassmann.projection)(self, a, b),
    ),
    wrong("distance", subspaces, dist=scaled(Grassmann, "dist", 3.0)),
    wrong("distance", subspaces, dist=lambda self, a, b: float(np.linalg.norm(a @ a.T - b @ b.T))),
    wrong("triangle", subspaces, diameter=0.1),
    wrong("triangle", subspaces, dist=lambda self, a, b: Grassmann.dist(self, a, b) ** 2),
    wrong("midpoint", subspaces, pair_mean=lambda self, a, b: a),
    wrong("speed", subspaces, exp=lambda self, x, v: by_qr(self, x, v, 1.0)),
    wrong("curvature", frames, euclidean_to_riemannian_hessian=flat),
    # Transport
    wrong("transport", frames, default_transport=Shifted()),
    wrong("transport", frames, transport=normalising),
    wrong(
        "transport nearby", subspaces,
        transport=lambda self, a, b, v: 2 * self.projection(b, v) if a is not b else v,
    ),
    # Tangent space
    wrong("manifold purity", frames, projection=writing),
    wrong("dimension", frames, projection=lambda self, x, Z: dense(Z) - x @ (x.T @ dense(Z))),
    wrong("dimension", frames, dim=21),
    wrong("projection", frames, projection=lambda self, x, Z: dense(Z) - 2 * x @ symmetric(x.T @ dense(Z))),
    wrong("orthogonality", lambda: check_manifold(of(Sphere, 6, projection=oblique))),
    wrong("duality", frames, inner_product=lambda self, x, a, b: 2 * float(np.vdot(a, b))),
    wrong("duality", cone, euclidean_to_riemannian_gradient=lambda self, x, G: symmetric(dense(G))),
    wrong("bilinearity", frames, inner_product=lambda self, x, a, b: float(np.vdot(a, b) + a[0, 0] * b[1, 1])),
    wrong("bilinearity", frames, norm=lambda self, x, a: float(np.abs(a).max())),
    wrong("tangency", frames, random_tangent_vector=scaled(Frames, "random_tangent_vector", 2.0)),
    wrong("tangency", frames, embedding=lambda self, x, v: 2 * v),
    wrong("tangency", frames, to_tangent_space=lambda self, x, v: x @ (x.T @ v)),
    wrong("randomness", frames, random_point=lambda self, rng=None: Frames.random_point(self, GENERATOR)),
    wrong("randomness", frames, random_tangent_vector=unseeded),
    wrong("linearity", frames, zero_vector=lambda self, x: np.ones(self.shape)),
    wrong("linearity", frames, embedding=lambda self, x, v: v + 1e-3),
    # Points and capabilities
    wrong("points", frames, check_point=lambda self, x: None),
    wrong("points", frames, check_point=lax),
    wrong("points", frames, check_point=lambda self, x: "it is no frame"),
    wrong("other rank", lambda: check_manifold(of(FixedRankEmbedded, 6, 5, 2, with_rank=plain).using(FURTHER))),
    wrong("blocks", cone, n_blocks=4),
    wrong("blocks", cone, block_of=lambda self, Z, k: 2.0 * PositiveDefinite.block_of(self, Z, k)),
    wrong("step bound", cone, max_step=scaled(PositiveDefinite, "max_step", 1.1)),
    wrong("step bound", cone, safe_step=scaled(PositiveDefinite, "safe_step", 2.0)),
    # Retractions
    wrong("repetition", moved_by, 1, lambda m, x, v, t: by_qr(m, x, v, t + 1e-6 * t * random.random())),
    wrong("repetition", moved_by, 1, lambda m, x, v, t: by_qr(m, x, v, t + 1e-3 * (t > 2.0) * random.random())),
    wrong("repetition", lambda: check_retraction(drawn_when_made, Frames())),
    wrong("invariance", lambda: check_retraction(retraction(1, by_two_qr), FixedRankEmbedded(6, 5, 2))),
    wrong("zero step", moved_by, 1, lambda m, x, v, t: np.linalg.qr(x + t * v)[0]),
    wrong("zero step", moved_by, 1, lambda m, x, v, t: by_qr(m, x, v / m.norm(x, v), t * m.norm(x, v))),
    wrong("rigidity", moved_by, 1, lambda m, x, v, t: by_qr(m, x, 1.1 * v, t)),
    wrong("scaling", moved_by, 1, lambda m, x, v, t: by_qr(m, x, t * v, t)),
    wrong("scaling", moved_by, 1, lambda m, x, v, t: by_qr(m, x, v, abs(t))),
    wrong("scaling", moved_by, 1, lambda m, x, v, t: by_qr(m, x, v, min(t, 1.0))),
    wrong("staying", moved_by, 1, lambda m, x, v, t: x + t * v),
    wrong("staying", moved_by, 1, lambda m, x, v, t: by_qr(m, x, v, t) * (1.0 + 1e-3 * (t > 2.0))),
    wrong("staying", along_the_cone, Additive, reach=scaled(Additive, "reach", 3.0)),
    wrong("order 2", moved_by, 2, by_qr),
    wrong("purity", moved_by, 1, in_place),
    wrong("velocity", along_the_cone, AffineExponential, velocity=lambda self, m, x, v, t: dense(v)),
    # Costs
    wrong("gradient", on_frames, gradient=scaled(Brockett, "gradient", 1.01)),
    wrong("gradient", fitted, lambda D: 3 * FIT @ D, lambda w: 3 * FIT.T @ w),
    wrong("transposed residuals", fitted, lambda D: FIT @ D, lambda w: SKEW @ (FIT.T @ w)),
    wrong("transposed gradient", on_frames, gradient=badly_transposed),
    wrong("terms", on_subspaces, gradient=lambda self, U: Variance.gradient(self, U) + U),
    wrong("terms", on_subspaces, term_gradient=counted_once),
    wrong("terms", on_frames_by_rows, lambda self, X, terms: (terms[:1], self.term_gradient(X, terms)[:1])),
    wrong("invariance", lambda: check_cost(Problem(Grassmann(7, 3), Brockett()))),
    wrong("invariance", lambda: check_cost(Problem(FixedRankEmbedded(6, 5, 2), of(Factors, share=1.0)))),
    wrong("invariance", lambda: check_cost(Problem(PSDFixedRank(6, 2), of(Factors, share=1.0)))),
    wrong("repetition", on_frames, value=noisy),
    wrong("purity", on_frames, gradient=touching),
    wrong("purity", on_frames, hessian=bending),
    wrong("purity", on_subspaces, term_gradient=forgetting),
    wrong("block gradients", metric, block_gradient=next_block),
    wrong("block gradients", metric, block_scale=lambda self, W, k: 0.0),
    wrong("proximal step", metric, proximal_step=grown),
    wrong("shortcuts", on_subspaces, value_and_gradient=lambda self, U: (self.value(U), -self.gradient(U))),
    wrong("shortcuts", on_subspaces, hessian_along=lambda self, U: lambda v: 2.0 * self.hessian(U, v)),
    wrong("preconditioner", on_subspaces, preconditioner_at=lambda self, U: lambda v: v),
    wrong("preconditioner", on_subspaces, precondition=lambda self, U, v: np.multiply(v, 0.5, out=v)),
    wrong("preconditioner", on_subspaces, precondition=lambda self, U, v: -v),
    wrong("preconditioner", on_subspaces, precondition=lambda self, U, v: v / np.linalg.norm(v)),
    wrong("mixtures", on_psd, mixture=lambda self, Ys: lambda c: EmbeddedCost.mixture(self, Ys)(np.ones(len(c)))),
    wrong("agents", on_subspaces, Agents, value=lambda self, U: 4 * self.agent_value(U, 0)),
    # Hessians
    wrong("Hessian", hessian_of_frames, Polar(), euclidean_to_riemannian_hessian=flat),
    wrong("Hessian", hessian_of_cone, Additive(), euclidean_to_riemannian_hessian=flat_cone),
    wrong("Hessian", hessian_of_cone, SchurExponential(), euclidean_to_riemannian_hessian=flat_cone),
    wrong("Hessian", hessian_of_cone, Additive(), of(Likelihood, hessian=scaled(Likelihood, "hessian", 1.01))),
    wrong("Hessian symmetry", lambda: check_hessian(Problem(Frames(), of(Brockett, hessian=lopsided)))),
    wrong("Hessian symmetry", lambda: check_hessian(Problem(Frames(), of(Brockett, hessian=normalised)))),
    # Engines, samplers, step sizes
    wrong("compiled engine", engine, advance=half_steps),
    wrong("compiled engine", engine, advance=idle),
    wrong("exact split", engine, advance=forgetful),
    wrong("draws", drawn, lambda rng, size: 1 + rng.integers(9, size=(size, 1))),
    wrong("draws", drawn, lambda rng, size: rng.integers(9, size=(size, 1)) - 1),
    wrong("draws", drawn, lambda rng, size: np.zeros((1, size), int)),
    wrong("repeatability", drawn, lambda rng, size: GENERATOR.integers(9, size=(size, 1))),
    wrong("repeatability", lambda: check_sampler(of(Cyclic, 9, draw=shuffled_once))),
    wrong("step sizes", lambda: check_step_size(of(Constant, 0.1, __call__=lambda self, t: 0.1 / t))),
    wrong("step sizes", lambda: check_step_size(of(Constant, 0.1, __call__=lambda self, t: 1.0 - t / 1e5))),
    wrong("step sizes", lambda: check_step_size(FromFunction(calls))),
]  # fmt: skip


@each_row(("checks", "law"), MUTANTS)
def test_a_wrong_part_is_found_by_its_law(checks: Callable[[], list[Check]], law: str) -> None:
    failed = {check.name: check for check in checks() if not check}
    assert law in failed, sorted(failed)
    assert "likely cause: " in failed[law].detail
    assert "but it raised" not in failed[law].detail or law == "staying"


def test_every_law_has_a_part_that_breaks_it() -> None:
    laws = {
        law.name for laws in (MANIFOLD, RETRACTION, COST, HESSIAN, ENGINE, SAMPLER, STEP_SIZE) for law in laws
    }
    # Parts that break the laws of precision are in test_single_precision.py.
    found = {law for _, law in MUTANTS} | {"precision"}
    assert found == laws | {"rigidity", "order 2", "gradient", "Hessian"}
    page = (Path(__file__).parents[2] / "docs" / "extend" / "index.md").read_text(encoding="utf-8")
    assert not [law for law in laws if not re.search(rf"[|,] {law}[,;]? ", page)]


def test_mistakes_in_the_library_can_still_be_made() -> None:
    assert not list(filter(None, map(mutation.Mutant.flaw, mutation.MUTANTS)))
    assert len({mutant.name for mutant in mutation.MUTANTS}) == len(mutation.MUTANTS)


# Right parts: of strangers, and of the library


def geometry(seed: int) -> list[Check]:
    checks: list[Check] = []
    for manifold in (Frames(), Frames(4, 1)):
        checks += check_manifold(manifold, seed) + check_retraction(
            manifold.default_retraction, manifold, seed
        )
    return checks + check_retraction(retraction(1, by_qr), Frames(), seed)


def costs(seed: int) -> list[Check]:
    cone, frames, subspaces = PositiveDefinite(7), Frames(), Grassmann(7, 3)
    checks = check_cost(Problem(frames, Brockett()), seed) + check_hessian(Problem(frames, Brockett()), seed)
    for cost in (Variance(), Agents()):
        checks += check_cost(Problem(subspaces, cost), seed)
    for manifold in (subspaces, Grassmann(7, 3).using(QR())):
        checks += check_hessian(Problem(manifold, Variance()), seed)
    first = of(Frames, default_retraction=retraction(1, by_qr))
    checks += check_hessian(Problem(first, Brockett()), seed)
    for move in (SecondOrderPD(), AffineExponential(), Additive(), SchurExponential()):
        checks += check_hessian(Problem(PositiveDefinite(7).using(move), Likelihood()), seed)
    checks += check_cost(Problem(cone, Likelihood()), seed) + check_cost(
        Problem(PSDFixedRank(5, 2), Lengths()), seed
    )
    checks += check_cost(Problem(cone, LogDetTriplet(A[:20], triplets, **METRIC)), seed)
    for matrices in (FixedRankEmbedded(6, 5, 2), PSDFixedRank(6, 2), PolarPSD(6, 2)):
        checks += check_cost(Problem(matrices, Factors()), seed)
    # A sparse gradient, and terms of it.
    rows, columns = sp.eye_array(6).tocsr()[[0, 1, 5, 5]], sp.eye_array(5).tocsr()[[4, 1, 2, 0]]
    bilinear = BilinearSum(rows, columns, squared, np.arange(4.0))
    return checks + check_cost(Problem(FixedRankEmbedded(6, 5, 2), bilinear), seed)


def runs(seed: int) -> list[Check]:
    checks = check_engine(SUM, rng=seed, engine="reference", steps=30, step_size=0.01)
    product = Product([Grassmann(5, 2), Power(Euclidean(2, 3), 2)])
    checks += check_manifold(product, seed)
    for sampler in (Uniform(9), Uniform(9, 3), ShuffledEpochs(9, 2), Cyclic(9)):
        checks += check_sampler(sampler, rng=seed)
    for rule in (Constant(0.1), InverseSqrt(1.0), FromFunction(lambda t: 0.5**t)):
        checks += check_step_size(rule)
    return checks + check_step_size(FromFunction(lambda t: np.linspace(1.0, 0.0, 70)[t]), steps=70)


RIGHT = {"geometry": geometry, "costs": costs, "runs": runs}


@pytest.mark.parametrize("kind", RIGHT)
def test_right_parts_pass(kind: str) -> None:
    checks = RIGHT[kind](0)
    assert not [str(check) for check in checks if not check]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm(seed: int) -> None:
    from rmopt.checks import run_catalogue

    checks = [check for right in RIGHT.values() for check in right(seed)]
    checks += run_catalogue([one.name for one in instances()], seed)
    assert not [str(check) for check in checks if not check]


def test_check_gradient_tells_of_the_first_broken_law() -> None:
    problem = Problem(Grassmann(7, 3), of(Variance, term_gradient=scaled(Variance, "term_gradient", -1.0)))
    found = check_gradient(problem)
    assert not found
    assert found.name == "terms"
    assert check_gradient(SUM).name == "gradient"


def test_a_point_in_another_form_is_the_same_point() -> None:
    from rmopt.checks.derivatives import _other_form

    rng = np.random.default_rng(3)
    for manifold in (
        FixedRankEmbedded(6, 5, 2),
        PSDFixedRank(6, 2),
        Grassmann(6, 2),
        Power(Grassmann(6, 1), 2),
    ):
        point = manifold.random_point(rng)
        form = _other_form(manifold, point, rng)
        assert manifold.check_point(form) is None
        if isinstance(point, LowRankPoint | PSDPoint):
            assert np.allclose(dense(form.as_ambient()), dense(point.as_ambient()))
            assert not np.allclose(corner(form), corner(point))
        else:
            assert manifold.dist(point, form) < 1e-12


def test_a_minimum_is_no_false_alarm() -> None:
    rng = np.random.default_rng(0)
    manifold = FixedRankEmbedded(6, 5, 2)
    truth = manifold.random_point(rng)
    rows, columns = rng.standard_normal((30, 6)), rng.standard_normal((30, 5))
    cost = BilinearSum(rows, columns, squared, truth.bilinear(rows, columns))
    assert not [str(check) for check in check_cost(Problem(manifold, cost), point=truth) if not check]


def test_other_laws_of_a_retraction_that_writes_into_what_it_is_given_measure_what_it_does() -> None:
    for move in (in_place, shortening):
        assert [check.name for check in moved_by(1, move) if not check] == ["purity"]


def test_a_retraction_without_a_point_has_one_finding() -> None:
    def crash(*_: Any) -> Any:
        raise NameError("name 'tangant' is not defined")

    for move, said in ((crash, "raised NameError: name 'tangant'"), (zip, "returned zip, not ndarray")):
        (check,) = moved_by(1, lambda *given, move=move: move(*given[1:3]))
        assert (check.name, check.passed) == ("result", False)
        assert f"it {said}" in check.detail


def test_a_part_that_raises_is_a_broken_law_and_a_missing_capability_is_none() -> None:
    def broken(self: Any, a: Any, b: Any, v: Any) -> Any:
        raise ValueError("operands could not be broadcast together")

    failed = {check.name: check.detail for check in frames(transport=broken) if not check}
    assert set(failed) == {
        "manifold purity", "precision", "transport", "transport nearby"
    }  # fmt: skip
    assert "raised ValueError: operands" in failed["transport"]
    names = {check.name for check in frames()}
    assert not names & {"exp and log", "midpoint", "distance", "speed", "other rank", "blocks"}
