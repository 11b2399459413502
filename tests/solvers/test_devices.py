"""Full-gradient solvers on arrays of other libraries: the iterates of numpy, few transfers, exact resumption."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_library import array_of, far_away
from tabled import each_row

from rmopt import Problem, jax_cost, torch_cost
from rmopt import namespaces as ns
from rmopt.core import Cost, Parts
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of, as_like
from rmopt.costs import ConstrainedProblem, jax_residuals, torch_residuals
from rmopt.errors import InvalidInputError
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Oblique,
    Power,
    Product,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
)
from rmopt.solvers import (
    LBFGS,
    AdaptiveCubics,
    AugmentedLagrangian,
    ConjugateGradient,
    GradientDescent,
    Recorder,
    StrongWolfe,
    TrustRegions,
)

LIBRARIES = ("torch", "jax.numpy")
STEPS = 15
SOLVERS = [
    GradientDescent(max_iter=STEPS, tol=0.0),
    ConjugateGradient(max_iter=STEPS, tol=0.0),
    # Near the end polynomials through values of the cost know a step to the root of a rounding.
    ConjugateGradient("hager-zhang", StrongWolfe(), max_iter=6, tol=0.0),
    LBFGS(max_iter=STEPS, tol=0.0),
    TrustRegions(max_iter=5, tol=0.0),
    AdaptiveCubics(max_iter=5, tol=0.0),
]
MANIFOLDS = [
    Sphere(12),
    Oblique(8, 3, field="complex"),
    Euclidean(6, 2),
    Product([Sphere(7, field="complex"), Euclidean(5, 2, field="complex")]),
    Power(Oblique(6, 2), 2),
    Grassmann(9, 3, field="complex"),
    Stiefel(8, 3),
    FixedRankEmbedded(6, 5, 2, field="complex"),
    SymmetricPositiveDefinite(3, field="complex"),
]


class Quadratic(Cost):
    """½⟨W, A W⟩ + ⟨B, W⟩ for a positive definite A, the least near the manifold: the sum of those of all parts."""

    def __init__(self, manifold: Any, like: Any) -> None:
        rng, self.terms = np.random.default_rng(0), []
        self.factors = manifold.factors if isinstance(manifold, Product) else (manifold,)
        for factor in self.factors:
            W = dense(factor.embed_point(factor.random_point(rng)))
            n = W.shape[max(W.ndim - 2, 0)]
            L, B = (rng.standard_normal(shape) for shape in ((n, n), W.shape))
            if ns.is_complex(W):
                L, B = (one + 1j * rng.standard_normal(one.shape) for one in (L, B))
            A = L @ L.conj().T / len(L) + np.diag(np.arange(1.0, len(L) + 1.0))
            self.terms.append([ns.matched(one, like) for one in (A, -A @ (W + 0.2 * B))])

    def each(self, point: Any) -> Iterator[Any]:
        parts = point if isinstance(point, Parts) else [point]
        for factor, part, (A, B) in zip(self.factors, parts, self.terms, strict=True):
            yield dense(factor.embed_point(part)), A, B

    def value(self, point: Any) -> Any:
        return sum(0.5 * ns.real_dot(W, A @ W) + ns.real_dot(B, W) for W, A, B in self.each(point))

    def of_parts(self, *parts: Any) -> Any:
        return self.value(parts[0] if len(parts) == 1 else Parts(parts))

    def gradient(self, point: Any) -> Any:
        found = [A @ W + B for W, A, B in self.each(point)]
        return found if isinstance(point, Parts) else found[0]

    def hessian(self, point: Any, direction: Any) -> Any:
        many = isinstance(point, Parts)
        along = [direction[i] for i in range(len(point))] if many else [dense(direction)]
        found = [
            A @ ns.namespace(W).reshape(D, W.shape)
            for D, (W, A, _) in zip(along, self.each(point), strict=True)
        ]
        return found if many else found[0]


def double(library: str) -> Any:
    """Return an array of a library in double precision."""
    return ns.converted(array_of(library), array_of(library), np.float64)


def start(manifold: Any, like: Any) -> Any:
    """Return a point where runs begin, the same in each library."""
    return as_like(manifold.random_point(np.random.default_rng(7)), like)


@pytest.mark.parametrize("library", LIBRARIES)
@each_row("manifold", MANIFOLDS)
@far_away()
def test_iterates_are_those_of_numpy(manifold: Any, library: str) -> None:
    like = double(library)
    problems = [Problem(manifold, Quadratic(manifold, one)) for one in (np.zeros(1), like)]
    for solver in SOLVERS:
        wanted, found = (
            solver.run(problem, start(manifold, one), random_state=0)
            for problem, one in zip(problems, (np.zeros(1), like), strict=True)
        )
        assert found.counts["hessians"] == wanted.counts["hessians"], solver
        for a, b in zip(arrays_of(found.point), arrays_of(wanted.point), strict=True):
            assert type(a) is type(like), solver
            np.testing.assert_allclose(ns.to_numpy(a), b, rtol=1e-10, atol=1e-10, err_msg=repr(solver))
        assert found.cost == pytest.approx(wanted.cost, rel=1e-10), solver


@pytest.mark.parametrize("library", LIBRARIES)
@each_row("manifold", MANIFOLDS)
@far_away()
def test_single_precision_stays_single(manifold: Any, library: str) -> None:
    like = ns.converted(array_of(library), array_of(library), np.float32)
    for solver in (LBFGS(max_iter=STEPS), TrustRegions(max_iter=5)):
        result = solver.run(
            Problem(manifold, Quadratic(manifold, like)), start(manifold, like), random_state=0
        )
        kinds = {ns.numbers_of(array).name for array in arrays_of(result.point)}
        assert kinds == {"float32"} or kinds == {"complex64"}, (solver, kinds)
        assert result.cost < result.history[0]["cost"]


@contextmanager
def transfers() -> Iterator[list[int]]:
    """Count how often numbers come from where tensors lie: each such call would wait for a device."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen, brought = [0], torch.Tensor.__array__

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[0] += function._schema.name.split("::")[1] in ("_local_scalar_dense", "is_nonzero", "equal")
            return function(*args, **(kwargs or {}))

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        seen[0] += 1
        return brought(self, *arguments, **named)

    torch.Tensor.__array__ = counted
    try:
        with Counting():
            yield seen
    finally:
        torch.Tensor.__array__ = brought


# Transfers an iteration, beside one for each product with the Hessian.
MOST = {GradientDescent: 2, ConjugateGradient: 2, LBFGS: 3, TrustRegions: 3, AdaptiveCubics: 3}


@each_row(
    "manifold",
    [
        one
        for one in MANIFOLDS
        if not isinstance(one, Euclidean | FixedRankEmbedded | SymmetricPositiveDefinite)
    ],
)
def test_an_iteration_waits_for_few_numbers(manifold: Any) -> None:
    like, done = double("torch"), {}
    by_hand = Quadratic(manifold, like)
    for solver, most in MOST.items():
        for problem in (Problem(manifold, by_hand), Problem(manifold, torch_cost(by_hand.of_parts))):
            for steps in (2, 7):
                with transfers() as seen:
                    result = solver(max_iter=steps, tol=0.0).run(
                        problem, start(manifold, like), random_state=0
                    )
                assert result.steps == steps
                done[steps] = seen[0] - result.counts["hessians"]
            assert (done[7] - done[2]) / 5 <= most, (solver, problem, done)


def hashed(library: str, folder: str, steps: int) -> list[str]:
    """Run three solvers from where files in a folder say, and return digests of their ends."""
    manifold, like, ends = MANIFOLDS[3], double(library), []
    for solver in (ConjugateGradient, LBFGS, TrustRegions):
        problem, file = Problem(manifold, Quadratic(manifold, like)), Path(folder) / f"{solver.__name__}.npz"
        result = solver(max_iter=steps, tol=0.0).run(
            problem,
            start(manifold, like),
            random_state=0,
            checkpoint=file,
            recorder=Recorder({"largest": largest}),
        )
        assert result.steps == steps
        assert {type(array) for array in arrays_of(result.point)} == {type(like)}
        numbers = b"".join(ns.to_numpy(array).tobytes() for array in arrays_of(result.point))
        ends.append(hashlib.blake2b(numbers).hexdigest())
    return ends


def largest(point: Any) -> float:
    assert {type(array) for array in arrays_of(point)} == {np.ndarray}
    return max(abs(array).max() for array in arrays_of(point))


@pytest.mark.parametrize("library", LIBRARIES)
def test_runs_go_on_with_the_same_bits_in_another_process(library: str, tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = hashed(library, str(tmp_path / "whole"), 9)
    hashed(library, str(tmp_path / "parts"), 4)
    code = f"import test_devices as t; print(*t.hashed({library!r}, {str(tmp_path / 'parts')!r}, 9))"
    places = [str(Path(__file__).parent), str(Path(__file__).parent.parent), *sys.path]
    again = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {places!r}; {code}"],
        capture_output=True,
        text=True,
    )
    assert again.stdout.split() == whole, again.stderr


def test_gradients_of_numpy_are_refused_far_away() -> None:
    with far_away(), pytest.raises(InvalidInputError, match="an array of numpy meets a point on cuda:0"):
        dense(np.eye(3), start(Sphere(3), double("torch")))


@pytest.mark.parametrize("library", LIBRARIES)
def test_constraints_at_points_of_other_libraries(library: str) -> None:
    like, manifold = double(library), Sphere(3)
    torch = library == "torch"
    cost, residuals = (torch_cost, torch_residuals) if torch else (jax_cost, jax_residuals)
    ends = []
    for one in (np.zeros(1), like):
        energy = cost(lambda x: -(x[0] ** 2 + 2.0 * x[1] ** 2 + 3.0 * x[2] ** 2))
        signs = residuals(lambda x: -x)
        half = cost(lambda x: x[2] ** 2 - 0.5)
        problem = ConstrainedProblem(manifold, energy, [half], [signs])
        ends.append(AugmentedLagrangian().run(problem, start(manifold, one), random_state=0))
        assert ends[-1].converged
        assert type(ends[-1].point) is type(one)
        assert type(ends[-1].equality_multipliers) is type(ends[-1].inequality_multipliers) is np.ndarray
    np.testing.assert_allclose(ns.to_numpy(ends[1].point), ends[0].point, atol=1e-6)
    np.testing.assert_allclose(ends[1].equality_multipliers, ends[0].equality_multipliers, atol=1e-5)


def test_what_a_jax_cost_finds_outside_may_change_between_runs() -> None:
    like, manifold, data = double("jax.numpy"), Sphere(3), {"goal": np.eye(3)[0]}
    problem = Problem(manifold, jax_cost(lambda x: -(data["goal"] * x).sum()))
    for goal in np.eye(3):
        data["goal"] = goal
        for solver in (ConjugateGradient(), LBFGS()):
            end = solver.run(problem, start(manifold, like), random_state=0)
            np.testing.assert_allclose(ns.to_numpy(end.point), goal, atol=1e-5)
    # In place, too.
    data["goal"][:] = [0.6, 0.8, 0.0]
    end = LBFGS().run(problem, start(manifold, like), random_state=0)
    np.testing.assert_allclose(ns.to_numpy(end.point), data["goal"], atol=1e-5)
