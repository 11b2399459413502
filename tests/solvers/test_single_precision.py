"""Points of single precision: the laws, what runs from them give back, and what of other precisions is done with."""

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tabled import each_row

import rmopt
from rmopt import Problem, autograd_cost
from rmopt.checks import check_manifold, check_retraction, checks_of
from rmopt.checks.catalogue import instances
from rmopt.core import Cost, InvalidInputError, LowRankPoint, Parts, Retraction, in_precision
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of
from rmopt.costs import BilinearSum, squared
from rmopt.costs.backends import AUTOGRAD, JAX, TORCH
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import (
    Elliptope,
    Euclidean,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    Hyperbolic,
    Oblique,
    PolarPSD,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
)
from rmopt.retractions import Normalisation
from rmopt.solvers import (
    LBFGS,
    SGD,
    AdaptiveCubics,
    Conjugate,
    ConjugateGradient,
    GradientDescent,
    Hybrid,
    LineSearchSolver,
    StrongWolfe,
    TrustRegions,
)
from rmopt.testing import parametrize_with_laws

MANIFOLDS = [
    Sphere(9), Oblique(5, 4), Elliptope(9, 3), Stiefel(5, 2), Stiefel(5, 2, metric="canonical"), Stiefel(4, 2, 3),
    SpecialOrthogonal(3, 4), SpecialOrthogonal(5),
    SpecialOrthogonal(3, 200), Hyperbolic(4), Simplex(4, 3), Grassmann(9, 3),
    SymmetricPositiveDefinite(4), SymmetricPositiveDefinite(3, 2, metric="log-euclidean"),
    SymmetricPositiveDefinite(4, metric="bures-wasserstein"), FixedRankEmbedded(9, 7, 3), PSDFixedRank(9, 3),
    PolarPSD(9, 2), PSDFactors(6, 2), FixedRankFactors(6, 5, 2), Power(Grassmann(6, 2), 2),
    Product([SpecialOrthogonal(3), Euclidean(2, 3), FixedRankEmbedded(5, 4, 2)]),
]  # fmt: skip
BACKENDS = {one.name: one for one in (AUTOGRAD, JAX, TORCH)}
SOLVERS = [
    GradientDescent(), ConjugateGradient(), LBFGS(), TrustRegions(), AdaptiveCubics(), Hybrid(),
    LineSearchSolver(Conjugate("hager-zhang"), StrongWolfe(flatness=0.1)), TrustRegions(first_radius=0.1),
]  # fmt: skip


def kinds(thing: Any) -> set[str]:
    return {array.dtype.name for array in arrays_of(thing) if array.dtype.kind == "f" and array.ndim}


@parametrize_with_laws(MANIFOLDS, seeds=(0,), dtype=np.float32)
def test_laws(check: Any) -> None:
    check()


def test_laws_of_costs() -> None:
    # Data of double precision, and a gradient that is no array.
    rng = np.random.default_rng(0)
    fit = BilinearSum(
        rng.standard_normal((30, 9)), rng.standard_normal((30, 7)), squared, rng.standard_normal(30)
    )
    for cost, manifold in ((fit, FixedRankEmbedded(9, 7, 3)), (energy(np.float32), Sphere(9))):
        found = checks_of(Problem(manifold, cost), dtype=np.float32)
        assert len(found) >= 5
        assert all(found), list(map(str, found))


@each_row(
    "name",
    [
        "sphere-9", "stiefel-5-4", "positive-definite-spread", "power-grassmann", "fixed-rank-spread",
        "psd-spread", "polar-spread",
    ],
)  # fmt: skip
def test_laws_of_instances(name: str) -> None:
    (instance,) = (one for one in instances() if one.name == name)
    found = checks_of(replace(instance, problems={}), dtype=np.float32)
    assert not [str(check) for check in found if not check]


def energy(dtype: Any) -> Any:
    weights = np.arange(1.0, 10.0).astype(dtype)
    return autograd_cost(lambda x: 0.5 * (weights * x**2).sum())


# Wrong parts, each right in double precision


class Promoting(Normalisation):
    """It adds an array of numpy's own precision."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return super().__call__(manifold, point, tangent + np.zeros(point.shape), t)


class TooLong(Normalisation):
    """Two percent too long."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return super().__call__(manifold, point, tangent, 1.02 * t)


class Bent(Normalisation):
    """Of second order by its word, and of first in truth."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        aside = np.roll(point, 1) * (0.3 * t * t * float(np.vdot(tangent, tangent)))
        return super().__call__(manifold, point, tangent * t + manifold.projection(point, aside))


class Undivided(Sphere):
    """Its points keep the roundings of some thousand steps."""

    def random_point(self, rng: Any = None) -> Any:
        return super().random_point(rng) * (1.0 + 3e-4)


class WrongLog(Sphere):
    """Three percent too long."""

    def log(self, point_a: Any, point_b: Any) -> Any:
        return super().log(point_a, point_b) * 1.03


class Forgetful(Sphere):
    """It forgets the precision of the point."""

    def zero_vector(self, point: Any) -> Any:
        return np.zeros(self.shape)


@each_row(
    "retraction, broken",
    [(Promoting(), {"staying"}), (TooLong(), {"rigidity", "order 2"}), (Bent(), {"order 2"})],
)
def test_wrong_retractions_are_seen(retraction: Retraction, broken: set[str]) -> None:
    for seed in range(5):
        found = {
            check.name
            for check in check_retraction(retraction, Sphere(9), seed, dtype=np.float32)
            if not check
        }
        assert broken <= found, (seed, found)


@each_row(
    "manifold, broken",
    [(Undivided(9), {"points"}), (WrongLog(9), {"exp and log", "distance"}), (Forgetful(9), {"precision"})],
)
def test_wrong_manifolds_are_seen(manifold: Any, broken: set[str]) -> None:
    for seed in range(5):
        found = {check.name for check in check_manifold(manifold, seed, dtype=np.float32) if not check}
        assert broken <= found, (seed, found)


# Solvers


class Nearest(Cost):
    """½‖X − A‖² in the ambient space."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def _gap(self, point: Any) -> Any:
        return dense(point if isinstance(point, np.ndarray) else point.as_ambient()) - self.target

    def value(self, point: Any) -> float:
        gap = self._gap(point)
        return 0.5 * float(np.vdot(gap, gap))

    def gradient(self, point: Any) -> Any:
        return self._gap(point)

    def hessian(self, point: Any, direction: Any) -> Any:
        return dense(direction)


class NearestWithPreconditioner(Nearest):
    """It computes in double precision, whatever the point."""

    def precondition(self, point: Any, tangent: Any) -> Any:
        return in_precision(tangent, float) * 0.5


@each_row("solver", SOLVERS)
def test_runs_stay_single_and_end_where_double_ends(solver: Any) -> None:
    rng = np.random.default_rng(3)
    for manifold in (Sphere(9), Stiefel(5, 2), FixedRankEmbedded(9, 7, 2), SymmetricPositiveDefinite(4)):
        start = manifold.random_point(rng)
        target = dense(manifold.embed_point(manifold.random_point(rng)))
        target = target + 0.05 * rng.standard_normal(target.shape)
        exact = solver.run(Problem(manifold, Nearest(target)), start)
        for kind, dtype in (
            (Nearest, np.float32),
            (Nearest, np.float64),
            (NearestWithPreconditioner, np.float64),
        ):
            problem = Problem(manifold, kind(target.astype(dtype)))
            *_, state = solver.iterate(problem, in_precision(start, np.float32))
            assert kinds(state) == {"float32"}, (manifold, kind)
            result = solver.run(problem, in_precision(start, np.float32))
            assert result.converged, (manifold, kind, result.stopped_by)
            assert manifold.check_point(result.point) is None
            # At a minimum the cost is exact to the square of the gradient.
            assert (
                abs(exact.history[-1]["cost"] - result.history[-1]["cost"]) <= 1e-5 * exact.history[0]["cost"]
            )


@pytest.mark.parametrize("name", ["autograd", "jax", "torch"])
def test_automatic_costs_stay_single(name: str) -> None:
    library = pytest.importorskip(
        name, reason=f"costs of single precision by {name} are not tested: pip install {name}"
    )
    make = getattr(rmopt, f"{name}_cost")
    numbers = library if name == "torch" else importlib.import_module(f"{name}.numpy")
    shift, wide = np.random.default_rng(0).standard_normal((2, 8, 7)).astype(np.float32)
    square = wide[:7] + wide[:7].T

    def of(data: Any, like: Any) -> Any:
        # PyTorch multiplies matrices of one precision alone.
        return library.tensor(data).to(like.dtype) if name == "torch" else numbers.asarray(data)

    def gap(A: Any, B: Any) -> Any:
        return 0.5 * numbers.sum((A @ B.T - of(shift, A)) ** 2) + numbers.sum(A * (of(wide, B) @ B))

    def form(X: Any) -> Any:
        return 0.5 * numbers.sum(X * (of(square, X) @ X))

    frames, matrices = Stiefel(7, 2), FixedRankEmbedded(8, 7, 2)
    psd, dense_gap = PSDFixedRank(7, 2), lambda W: matrices.to_dense(W) - shift + wide
    for manifold, function, by_hand in (
        (frames, form, lambda x: [square @ x]),
        (matrices, gap, lambda x: [dense_gap(x)]),
        (psd, lambda A, B: 0.5 * numbers.sum((A @ B.T - of(square, A)) ** 2), lambda x: [psd.to_dense(x) - square]),
        (
            Product([frames, matrices]), lambda X, W: form(X) + gap(*W),
            lambda x: [square @ x[0], dense_gap(x[1])],
        ),
    ):  # fmt: skip
        problem, point = Problem(manifold, make(function)), in_precision(manifold.random_point(1), np.float32)
        gradient = problem.cost.gradient(point)
        found = [dense(part) for part in (gradient if isinstance(point, Parts) else [gradient])]
        for one, other in zip(found, by_hand(in_precision(point, float)), strict=True):
            assert one.dtype == np.float32
            assert np.abs(one - other).max() <= 2e-6 * np.abs(other).max()
        assert all(checks_of(problem, dtype=np.float32))
        result = TrustRegions().run(problem, point)
        assert result.converged
        assert kinds(result.point) == {"float32"}


def test_the_default_tolerance_is_that_of_the_precision() -> None:
    problem = Problem(Sphere(9), energy(np.float32))
    for dtype, least, most in ((np.float64, 1e-9, 1e-6), (np.float32, 1e-7, 1e-4)):
        start = in_precision(problem.manifold.random_point(1), dtype)
        history = GradientDescent().run(problem, start).history
        assert least < history[-1]["gradient_norm"] / history[0]["gradient_norm"] <= most
    # What is asked for is what is done, also where rounding does not let it be reached.
    A = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)
    turned = Problem(Sphere(9), autograd_cost(lambda x: 0.5 * (x @ A @ (A.T @ x))))
    result = GradientDescent(tol=1e-12).run(turned, in_precision(turned.manifold.random_point(1), np.float32))
    assert not result.converged
    assert "rounding" in result.stopped_by


def test_other_solvers_begin_in_double_precision() -> None:
    rng = np.random.default_rng(0)
    manifold = FixedRankEmbedded(8, 7, 2)
    left, right = rng.standard_normal((40, 8)), rng.standard_normal((40, 7))
    problem = Problem(manifold, BilinearSum(left, right, squared, left[:, 0] * right[:, 1]))
    start = in_precision(manifold.random_point(np.random.default_rng(1)), np.float32)
    single, double = (
        SGD(0.01, max_iter=200).run(problem, point, random_state=0).point
        for point in (start, manifold.random_point(np.random.default_rng(1)))
    )
    assert kinds(single) == {"float64"}
    assert manifold.check_point(single) is None
    assert np.abs(manifold.to_dense(single) - manifold.to_dense(double)).max() < 1e-5
    foreign = PymanoptSolver("ConjugateGradient", max_iterations=20).run(problem, start)
    assert kinds(foreign.point) == {"float64"}
    assert manifold.check_point(foreign.point) is None


# Points


def test_in_precision() -> None:
    point = Parts([np.ones(2, np.float32), LowRankPoint(np.eye(3)[:, :1], np.eye(1), np.eye(2)[:, :1])])
    assert kinds(in_precision(point)) == {"float64"}
    single = in_precision(point, np.float32)
    assert kinds(single) == {"float32"}
    assert in_precision(single) is single
    assert in_precision(single, "float32") is single


def test_laws_of_solvers_are_held_in_double_precision() -> None:
    problem = Problem(Sphere(9), energy(np.float32))
    with pytest.raises(InvalidInputError, match="another precision than double"):
        checks_of((GradientDescent(), problem), dtype=np.float32)
