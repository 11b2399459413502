"""Costs by autograd: exact actions, also where singular values are tied."""

import copy
import importlib
import itertools
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import pytest
from in_library import array_of, in_library
from tabled import each_row

import rmopt
from rmopt import InvalidInputError, Problem
from rmopt import namespaces as ns
from rmopt.checks import check_gradient, check_hessian
from rmopt.core import Factored, LowRankPoint, Parts
from rmopt.core.low_rank import PSDPoint
from rmopt.interop import from_pymanopt
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    Sphere,
    Stiefel,
)
from rmopt.solvers import LBFGS, GradientDescent, TrustRegions

N, M, K = 12, 9, 3
MANIFOLD = FixedRankEmbedded(N, M, K)
TARGET = np.random.default_rng(0).standard_normal((N, M))


@rmopt.autograd_cost
def log_cosh(A: np.ndarray, B: np.ndarray) -> float:
    """Sum of log cosh of the residuals."""
    return anp.sum(anp.log(anp.cosh(anp.dot(A, B.T) - TARGET)))


def points() -> dict[str, LowRankPoint]:
    rng = np.random.default_rng(1)
    free = MANIFOLD.random_point(rng)
    return {"free": free, "tied": LowRankPoint(free.U, np.eye(K), free.V), "identity": MANIFOLD.identity()}


@pytest.mark.parametrize("name", points())
def test_actions_are_exact(name: str) -> None:
    point = points()[name]
    rng = np.random.default_rng(2)
    R = MANIFOLD.to_dense(point) - TARGET
    G = np.tanh(R)
    X, Y = rng.standard_normal((M, 4)), rng.standard_normal((N, 2))
    gradient = log_cosh.gradient(point)
    assert gradient.shape == (N, M)
    np.testing.assert_allclose(gradient @ X, G @ X, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gradient.T @ Y, G.T @ Y, rtol=1e-13, atol=1e-13)
    D = Factored(rng.standard_normal((N, 2)), rng.standard_normal((M, 2)))
    H = (1 - G**2) * (D @ np.eye(M))
    hessian = log_cosh.hessian(point, D)
    np.testing.assert_allclose(hessian @ X, H @ X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(hessian.T @ Y, H.T @ Y, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_cosh.value(point), np.sum(np.log(np.cosh(R))), rtol=1e-14)


def test_slopes_at_a_tie() -> None:
    problem = Problem(MANIFOLD, log_cosh)
    assert check_gradient(problem, point=points()["tied"])
    assert all(check_hessian(problem, point=points()["tied"]))


def test_a_masked_cost_at_a_tie_where_gaps_of_singular_values_give_nan() -> None:
    rng = np.random.default_rng(3)
    rows, cols = np.nonzero(rng.random((N, M)) < 0.4)
    values = TARGET[rows, cols]

    def masked(A: np.ndarray, B: np.ndarray) -> float:
        return 0.5 * anp.sum((anp.einsum("ik,ik->i", A[rows], B[cols]) - values) ** 2)

    point = points()["tied"]
    W = MANIFOLD.to_dense(point)
    G = np.zeros((N, M))
    G[rows, cols] = W[rows, cols] - values
    X, Y = rng.standard_normal((M, 4)), rng.standard_normal((N, 4))
    cost = rmopt.autograd_cost(masked)
    np.testing.assert_allclose(cost.gradient(point) @ X, G @ X, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(cost.gradient(point).T @ Y, G.T @ Y, rtol=1e-13, atol=1e-13)

    foreign = pymanopt.manifolds.FixedRankEmbedded(N, M, K)
    triple = pymanopt.function.autograd(foreign)(lambda u, s, vt: masked(u * s, vt.T))
    theirs = pymanopt.Problem(foreign, triple)
    with np.errstate(all="ignore"):
        found = theirs.riemannian_gradient([point.U, np.ones(K), point.V.T])
    assert not all(np.isfinite(part).all() for part in found)


def test_nothing_of_size_n_by_m_is_formed() -> None:
    n, m = 300_000, 200_000
    rng = np.random.default_rng(4)
    rows, cols, values = rng.integers(n, size=50), rng.integers(m, size=50), rng.standard_normal(50)

    @rmopt.autograd_cost
    def masked(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(anp.tanh(anp.sum(A[rows] * B[cols], axis=1) - values))

    U, V = np.eye(n, 2), np.eye(m, 2)
    point = LowRankPoint(U, np.eye(2), V)
    manifold = FixedRankEmbedded(n, m, 2)
    slopes = 1 - np.tanh(np.einsum("ik,ik->i", U[rows], V[cols]) - values) ** 2
    gradient = manifold.projection(point, masked.gradient(point))
    expected = np.zeros((n, 2))
    np.add.at(expected, rows, slopes[:, None] * V[cols])
    np.testing.assert_allclose(U @ gradient.M + gradient.Up, expected, rtol=1e-13, atol=1e-13)
    tangent = manifold.random_tangent_vector(point, rng)
    assert (masked.hessian(point, manifold.embedding(point, tangent)) @ V).shape == (n, 2)


def test_a_linear_cost_has_the_zero_hessian() -> None:
    @rmopt.autograd_cost
    def linear(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(TARGET * anp.dot(A, B.T))

    point = points()["free"]
    D = Factored(np.ones((N, 2)), np.ones((M, 2)))
    np.testing.assert_allclose(linear.gradient(point) @ np.eye(M), TARGET, rtol=1e-14)
    np.testing.assert_array_equal(linear.hessian(point, D) @ np.eye(M), np.zeros((N, M)))
    np.testing.assert_array_equal(linear.hessian(point, D).T @ np.eye(N), np.zeros((M, N)))


def test_a_small_difference_of_large_numbers_is_a_cost() -> None:
    point = points()["free"]
    total = np.sum(MANIFOLD.to_dense(point) ** 2)

    @rmopt.autograd_cost
    def difference(A: np.ndarray, B: np.ndarray) -> float:
        return 1e9 * (anp.sum(anp.dot(A, B.T) ** 2) - total)

    assert abs(difference.value(point)) < 1e-3


@pytest.mark.parametrize("act", ["value", "gradient"])
def test_costs_of_the_factors_are_refused_whatever_is_asked_first(act: str) -> None:
    costs = {
        r"depends on more than A Bᵀ": [
            lambda A, B: anp.sum(A**2),
            lambda A, B: 1e-9 * anp.sum(A**2),
            lambda A, B: anp.sum(anp.dot(A, B.T) ** 2) / A.shape[1],
            lambda A, B: anp.sum(anp.dot(A, B.T) ** 2) + anp.sum(B),
        ],
        r"not a real number.*\(complex points need field='complex'\).*autograd_residuals": [
            lambda A, B: None,
            lambda A, B: 1j,
            lambda A, B: anp.sum(A, axis=0),
        ],
        r"is nan at the first point": [lambda A, B: anp.nan],
    }
    for sentence, functions in costs.items():
        for function in functions:
            with pytest.raises(InvalidInputError, match=sentence):
                getattr(rmopt.autograd_cost(function), act)(points()["free"])
    with pytest.raises(InvalidInputError, match=r"needs a function of the factors A and B.*got 3"):
        rmopt.autograd_cost(3)  # type: ignore[arg-type]


def test_a_linear_cost_of_an_array_has_the_zero_hessian() -> None:
    cost = rmopt.autograd_cost(lambda X: anp.sum(2.0 * X))
    X = np.ones((3, 2))
    np.testing.assert_array_equal(cost.gradient(X), 2.0 * X)
    np.testing.assert_array_equal(cost.hessian(X, X), np.zeros((3, 2)))
    np.testing.assert_array_equal(rmopt.autograd_cost(lambda X: 3.0).gradient(X), np.zeros((3, 2)))


def test_points_that_are_vectors() -> None:
    sphere = from_pymanopt(pymanopt.manifolds.Sphere(5))
    cost = rmopt.autograd_cost(lambda x, power=3: anp.sum(x**power))
    assert check_gradient(Problem(sphere, cost))
    x = np.arange(5.0)
    np.testing.assert_allclose(cost.hessian(x, np.ones(5)), 6.0 * x)


def test_a_function_that_does_not_fit_the_points_is_named() -> None:
    @rmopt.autograd_cost
    def of_factors(A: np.ndarray, B: np.ndarray) -> float:
        return anp.sum(anp.dot(A, B.T))

    @rmopt.autograd_cost
    def of_a_point(X: np.ndarray) -> float:
        return anp.sum(X)

    for manifold, wanted in ((Euclidean(3, 3), "of the point"), (PSDFactors(3, 3), "give OnFactors")):
        with pytest.raises(InvalidInputError, match=f"of_factors .* of type .* {wanted}"):
            Problem(manifold, of_factors)
    with pytest.raises(InvalidInputError, match=r"of_a_point .* of type LowRankPoint; .* of A and B"):
        Problem(MANIFOLD, of_a_point)
    with pytest.raises(InvalidInputError, match="one argument for each of the 2 parts"):
        rmopt.autograd_cost(lambda A, B, C: 0.0).value(Parts([np.eye(2), np.eye(2)]))


# The same cost for each library: the arrays of its words, and the decorator.
def libraries() -> dict[str, tuple[Any, Callable[..., Any], Callable[..., Any]]]:
    found: dict[str, Any] = {"autograd": (anp, anp.array, rmopt.autograd_cost)}
    try:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        found["jax"] = jnp, jnp.asarray, rmopt.jax_cost
    except ImportError:
        pass
    try:
        import torch

        found["torch"] = torch, torch.as_tensor, rmopt.torch_cost
    except ImportError:
        pass
    return found


LIBRARIES = libraries()
MIXED = Product([Grassmann(7, 2), FixedRankEmbedded(5, 4, 2), Euclidean(3, 2)])
NESTED = Product([PSDFixedRank(5, 2), Product([Euclidean(4, 1), FixedRankEmbedded(6, 5, 2)])])


def written(place: str, xp: Any, arrays: Callable[..., Any]) -> Callable[..., Any]:
    """Return a cost in the words of a library."""
    rng = np.random.default_rng(6)
    square, wide, small = (arrays(rng.standard_normal(shape)) for shape in ((7, 7), (5, 4), (3, 2)))
    tall = arrays(rng.standard_normal((6, 5)))

    def array(X: Any) -> Any:
        return xp.sum(xp.sin(X) * small) + xp.sum(X**3)

    def matrix(A: Any, B: Any) -> Any:
        return xp.sum(xp.tanh(A @ B.T - wide) ** 2)

    def mixed(U: Any, W: Any, X: Any) -> Any:
        A, B = W
        subspace = xp.sum((square @ U @ (U.T @ square)) ** 2)
        return 0.01 * subspace * (1.0 + xp.sum(X**2)) + matrix(A, B) * xp.sum(X * small) + array(X)

    def nested(W: Any, rest: Any) -> Any:
        (A, B), (x, (C, D)) = W, rest
        return xp.sum((A @ B.T) ** 2 * xp.sum(x**2)) + xp.sum((C @ D.T - tall) ** 2) * xp.sum(xp.cos(x))

    def power(Xs: Any) -> Any:
        return xp.sum((Xs[1:] - Xs[:-1]) ** 2) + array(Xs[0])

    return {"array": array, "matrix": matrix, "mixed": mixed, "nested": nested, "power": power}[place]


PLACES = {
    "array": Euclidean(3, 2), "matrix": FixedRankEmbedded(5, 4, 2), "mixed": MIXED, "nested": NESTED,
    "power": Power(Euclidean(3, 2), 3),
}  # fmt: skip


@pytest.mark.parametrize("library", ["autograd", "jax", "torch"])
@pytest.mark.parametrize("place", PLACES)
def test_every_library_on_every_form_of_points(library: str, place: str) -> None:
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not installed.")
    manifold = PLACES[place]
    cost = LIBRARIES[library][2](written(place, *LIBRARIES[library][:2]))
    problem, oracle = Problem(manifold, cost), rmopt.autograd_cost(written(place, *LIBRARIES["autograd"][:2]))
    assert check_gradient(problem)
    assert all(check_hessian(problem))
    # Laws see slopes; the same words in another library must give the same numbers.
    rng = np.random.default_rng(7)
    point = manifold.random_point(rng)
    along = manifold.random_tangent_vector(point, rng)
    value, ambient = cost.value_and_gradient(point)
    there, theirs = oracle.value_and_gradient(point)
    np.testing.assert_allclose([value, cost.value(point)], there, rtol=1e-13)
    gradient, expected = (manifold.euclidean_to_riemannian_gradient(point, one) for one in (ambient, theirs))
    assert manifold.norm(point, gradient - expected) <= 1e-13 * manifold.norm(point, expected)
    bent, expected = (
        manifold.projection(point, one.hessian(point, manifold.embedding(point, along)))
        for one in (cost, oracle)
    )
    assert manifold.norm(point, bent - expected) <= 1e-12 * manifold.norm(point, expected)


def given(library: str) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """Return the words of a library, or skip the test where it is missing."""
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not installed.")
    return LIBRARIES[library]


def a_point(kind: str, drawn: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """Return a point, its matrix W, and a tangent direction L Rᵀ by L and R."""
    if kind == "array":
        return (W := drawn(6, 6)), W, (drawn(6, 6), np.eye(6))
    U, S, V = np.linalg.qr(drawn(6, 2))[0], drawn(2, 2), np.linalg.qr(drawn(6, 2))[0]
    point = PSDPoint(U, S @ S.conj().T) if kind == "psd" else LowRankPoint(U, S, V)
    W = point.as_ambient()
    right = U if kind == "psd" else V
    tangent = np.hstack([drawn(6, 2), U]), np.hstack([right, drawn(6, 2)]).conj()
    return point, W.left @ W.right.T, tangent


@pytest.mark.parametrize("library", ["autograd", "jax", "torch"])
@pytest.mark.parametrize("place", ["numpy", "torch", "jax.numpy"])
@each_row("kind, field", itertools.product(["array", "matrix", "psd"], ["real", "complex"]))
def test_derivatives_have_their_closed_form_in_the_library_of_the_point(
    library: str, place: str, kind: str, field: str
) -> None:
    xp, arrays, decorated = given(library)
    like, rng = array_of(place), np.random.default_rng(8)

    def drawn(*shape: int) -> Any:
        found = rng.standard_normal(shape)
        return found + 1j * rng.standard_normal(shape) if field == "complex" else found

    point, W, tangent = a_point(kind, drawn)
    n, m = W.shape
    T = drawn(n, m)
    target, there = arrays(T), in_library(point, like)

    @decorated
    def cost(X: Any, B: Any = None) -> Any:
        X = X if B is None else X @ B.T
        return xp.sum(xp.abs(X - target) ** 2) + 0.5 * xp.sum(xp.abs(X) ** 4)

    def holds(found: Any, wanted: Any) -> None:
        """Hold a derivative, of matrices its images of blocks, against an array G with df = Re tr(Gᴴ dW)."""
        pairs = [(found, wanted)]
        if kind != "array":
            known = (point.Q, point.Q.conj()) if kind == "psd" else (point.V, point.U.conj())
            pairs = [(found @ ns.asarray(X, like), wanted @ X) for X in (drawn(m, 2), known[0])]
            pairs += [(found.T @ ns.asarray(Y, like), wanted.T @ Y) for Y in (drawn(n, 2), known[1])]
        for one, other in pairs:
            assert type(one) is type(ns.asarray(T, like))
            np.testing.assert_allclose(ns.to_numpy(one), other, rtol=1e-12, atol=1e-12)

    value, gradient = cost.value_and_gradient(there)
    assert value == pytest.approx(np.sum(abs(W - T) ** 2) + 0.5 * np.sum(abs(W) ** 4), rel=1e-13)
    holds(gradient, 2.0 * (W - T) + 2.0 * abs(W) ** 2 * W)
    for L, R in (tangent, (drawn(n, 2), drawn(m, 2))):
        D = L @ R.T
        bent = 2.0 * D + 2.0 * abs(W) ** 2 * D + 4.0 * (W.conj() * D).real * W
        moves = [ns.asarray(D, like), Factored(ns.asarray(L, like), ns.asarray(R, like))]
        for move in moves[: 1 + (kind != "array")]:
            holds(cost.hessian(there, move), bent)


@pytest.mark.parametrize("library", ["autograd", "jax", "torch"])
def test_the_function_is_given_the_points_own_memory(library: str) -> None:
    xp, _, decorated = given(library)
    point = array_of({"autograd": "numpy", "jax": "jax.numpy"}.get(library, library))
    x, seen = ns.asarray(np.ones((300, 200)), point), []

    def where(array: Any) -> int:
        data = {"autograd": "ctypes.data", "jax": "unsafe_buffer_pointer", "torch": "data_ptr"}[library]
        found = attrgetter(data)(getattr(array, "_value", array) if library == "autograd" else array)
        return found if library == "autograd" else found()

    @decorated
    def cost(X: Any) -> Any:
        with suppress(Exception):
            seen.append(where(X))
        return xp.sum(X**2)

    cost.value(x)
    gradient = cost.gradient(x)
    assert type(gradient) is type(x)
    assert seen
    assert set(seen) == {where(x)}
    assert not getattr(x, "requires_grad", False)
    assert not getattr(gradient, "requires_grad", False)


def test_steps_from_a_tensor_that_is_recorded_are_not_recorded() -> None:
    torch = pytest.importorskip("torch")
    start = torch.nn.Parameter(torch.full((4,), 0.5, dtype=torch.float64))
    with warnings.catch_warnings(action="error"):
        result = LBFGS().run(Problem(Sphere(4), rmopt.torch_cost(lambda x: (x**4).sum() + x[0])), start)
    assert type(result.point) is torch.Tensor
    assert not result.point.requires_grad
    assert start.requires_grad
    assert start.grad is None


def by_hand(value: Callable[[Any], Any], gradient: Callable[[Any], Any], manifold: Any = None) -> Problem:
    methods = {"value": lambda _, x: value(x), "gradient": lambda _, x: gradient(x)}
    return Problem(manifold or Euclidean(4), type("ByHand", (rmopt.core.Cost,), methods)())


@pytest.mark.parametrize("place", ["torch", "jax.numpy"])
def test_costs_written_for_numpy_are_right_at_other_arrays_or_told_in_a_sentence(place: str) -> None:
    like, start = array_of(place), np.full((4,), 2.0)
    gradients = [lambda x: 1.0 * x, lambda x: np.asarray(x), lambda x: np.asarray(x, np.float32)]
    values = [
        lambda x: 0.5 * np.vdot(np.asarray(x), np.asarray(x)),
        lambda x: 0.5 * x @ x,
        lambda x: sum(x * x) / 2,
    ]
    for value, gradient in itertools.product(values, gradients):
        result = LBFGS().run(by_hand(value, gradient), ns.asarray(start, like))
        assert type(result.point) is type(ns.asarray(start, like))
        np.testing.assert_allclose(ns.to_numpy(result.point), 0.0, atol=1e-6)
    sentence = rf"failed at an array of {place} .*with functions of {place}"
    with pytest.raises(InvalidInputError, match=sentence):
        LBFGS().run(by_hand(lambda x: x.astype("no type"), gradients[0]), ns.asarray(start, like))
    with pytest.raises(InvalidInputError, match="not a real number"):
        LBFGS().run(by_hand(lambda x: 1j * x[0], gradients[0]), ns.asarray(start, like))


def test_functions_of_another_library_are_refused_where_no_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ns.asarray(np.ones(3), array_of("torch"))
    monkeypatch.setattr(ns, "device_of", lambda array: "cuda:0")
    with pytest.raises(
        InvalidInputError, match=r"of autograd meets a point on cuda:0; write it with functions"
    ):
        rmopt.autograd_cost(lambda x: x[0]).value(x)
    assert rmopt.torch_cost(lambda x: x[0]).value(x) == 1.0


def test_value_and_gradient_take_one_evaluation() -> None:
    calls = []

    @rmopt.autograd_cost
    def counted(A: np.ndarray, B: np.ndarray) -> float:
        calls.append(1)
        return anp.sum(anp.abs(anp.dot(A, B.T) - TARGET) ** 2)

    for manifold in (MANIFOLD, FixedRankEmbedded(N, M, K, field="complex")):
        point = manifold.random_point(0)
        counted.value(point)
        calls.clear()
        value, gradient = counted.value_and_gradient(point)
        manifold.projection(point, gradient)
        assert len(calls) == 1
        assert value == pytest.approx(counted.value(point), rel=1e-14)


def test_what_was_seen_is_no_part_of_a_cost() -> None:
    fresh = rmopt.autograd_cost(log_cosh.function)
    before = fresh.__getstate__()
    fresh.gradient(points()["free"])
    assert fresh.__getstate__() == before
    assert copy.deepcopy(fresh).value(points()["free"]) == log_cosh.value(points()["free"])


@each_row(
    "cut",
    [
        lambda x: (x @ x).item(), lambda x: (x.detach() ** 3).sum(), lambda x: float((x.detach().numpy() ** 3).sum()),
        lambda x: (x > 0).sum(),
    ],
)  # fmt: skip
def test_functions_that_are_cut_off_are_told(cut: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match=r"cut off from them by detach\(\), item\(\)"):
        LBFGS().run(Problem(Sphere(6), rmopt.torch_cost(cut)), random_state=1)


@pytest.mark.parametrize("library", ["autograd", "jax", "torch"])
def test_errors_of_the_function_itself_stay_what_they_are(library: str) -> None:
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not installed.")

    def unhappy(x: Any) -> Any:
        raise TypeError("mine")

    for function, kind in ((unhappy, TypeError), (lambda x: {}[0] * x, KeyError)):
        with pytest.raises(kind):
            LIBRARIES[library][2](function).gradient(np.ones(3))


def test_torch_data_in_another_precision_are_named() -> None:
    torch = pytest.importorskip("torch")
    data, manifold = torch.ones((3, 3)), Stiefel(3, 2)
    problem = Problem(manifold, rmopt.torch_cost(lambda x: torch.sum((data @ x) ** 2 * x)))
    assert check_gradient(problem, point=manifold.random_point(0, like=data))
    rotated = rmopt.torch_cost(lambda x: torch.abs(data.to(torch.complex128) @ x).sum())
    for cost, remedy in ((problem.cost, "make data so, or give initial_point="), (rotated, "for complex")):
        with pytest.raises(RuntimeError) as said:
            cost.value(np.eye(3))
        assert said.value.__notes__[0].startswith(f"Points are float64; {remedy}")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wrong_factors_are_seen_along_directions_that_are_not_of_the_seed_of_the_point(dtype: Any) -> None:
    A, manifold = np.diag(np.arange(8.0)), Stiefel(8, 3)
    for factor in (2.0, 1.5):
        values, slopes = (lambda x: (x * (A @ x)).sum()), (lambda x, factor=factor: factor * (A @ x))
        problem = by_hand(values, slopes, manifold)
        assert bool(check_gradient(problem, point=manifold.random_point(0), dtype=dtype)) is (factor == 2.0)


def test_torch_differentiates_where_that_is_switched_off() -> None:
    torch = pytest.importorskip("torch")
    problem = Problem(
        Sphere(6), rmopt.torch_cost(lambda x: (x * torch.arange(6.0, dtype=torch.float64) * x).sum())
    )
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert TrustRegions().run(problem, random_state=1).history[-1]["cost"] == pytest.approx(
                0.0, abs=1e-9
            )
            np.testing.assert_array_equal(problem.cost.hessian(np.zeros(6), np.ones(6)), 2.0 * np.arange(6.0))
    linear = rmopt.torch_cost(lambda x: x.sum())
    np.testing.assert_array_equal(linear.hessian(np.ones(3), np.ones(3)), np.zeros(3))


LARGE = np.zeros(200_000)


def changed(way: str, xp: Any) -> tuple[Callable[[Any], Any], Callable[[float], Any]]:
    """Return the squared distance from something that a function finds outside, and what changes that."""
    holder, settings, target = SimpleNamespace(shift=0.0), {"shift": 0.0}, LARGE.copy()

    def rebound(shift: float) -> None:
        nonlocal target
        target = np.full(3, shift)

    def by_environment(x: Any) -> Any:
        return xp.sum((x - float(os.environ.get("RMOPT_SHIFT", "0"))) ** 2)

    within = getattr(importlib.import_module("jax"), "jit", None) if way == "compiled by the user" else None
    inner = within(lambda x: xp.sum((x - settings["shift"]) ** 2)) if within else None
    return {
        "a large array": (lambda x: xp.sum((x - xp.asarray(target)[:3]) ** 2), target.fill),
        "a name": (lambda x: xp.sum((x - xp.asarray(target)[:3]) ** 2), rebound),
        "an attribute": (
            lambda x: xp.sum((x - holder.shift) ** 2), lambda shift: setattr(holder, "shift", shift)
        ),
        "the environment": (by_environment, lambda shift: os.environ.update(RMOPT_SHIFT=str(shift))),
        "compiled by the user": (lambda x: inner(x), lambda shift: settings.update(shift=shift)),
    }[way]  # fmt: skip


@pytest.mark.parametrize("library", ["autograd", "jax", "torch"])
@pytest.mark.parametrize(
    "way", ["a large array", "a name", "an attribute", "the environment", "compiled by the user"]
)
def test_what_a_function_finds_outside_is_that_of_now(
    monkeypatch: pytest.MonkeyPatch, library: str, way: str
) -> None:
    if library not in LIBRARIES or (way == "compiled by the user" and library != "jax"):
        pytest.skip(f"{library} is not installed, or compiles nothing.")
    monkeypatch.setenv("RMOPT_SHIFT", "0")
    function, change = changed(way, LIBRARIES[library][0])
    cost, x = LIBRARIES[library][2](function), np.ones(3)
    problem = Problem(Euclidean(3), cost)
    # From 3 on, -1 and 7 give the same value, but other slopes.
    for shift in (0.0, 5.0, -1.0, 7.0):
        change(shift)
        assert cost.value(x) == pytest.approx(3.0 * (1.0 - shift) ** 2)
        np.testing.assert_allclose(cost.gradient(x), 2.0 * (x - shift))
        np.testing.assert_allclose(LBFGS().run(problem, 3.0 * x).point, shift, atol=1e-6)
        states = list(GradientDescent().iterate(problem, 3.0 * x))
        np.testing.assert_allclose(states[-1].point, shift, atol=1e-6)


def test_a_compiled_function_is_traced_once_while_nothing_changes() -> None:
    pytest.importorskip("jax")
    calls = []

    def counted(x: Any) -> Any:
        calls.append(None)
        return (x**2 * np.arange(1.0, 9.0)).sum()

    problem = Problem(Sphere(8), rmopt.jax_cost(counted))
    LBFGS().run(problem, random_state=0)
    first = len(calls)
    steps = LBFGS().run(problem, random_state=1).steps
    # Held against the function once: its value and its slopes.
    assert len(calls) - first <= 4 < steps


def test_a_function_that_draws_numbers_is_compiled_again_once_a_run() -> None:
    pytest.importorskip("jax")
    draws, calls = np.random.default_rng(0), []

    def noisy(x: Any) -> Any:
        calls.append(None)
        return (x**2).sum() + 1e-3 * draws.random()

    problem = Problem(Euclidean(3), rmopt.jax_cost(noisy))
    for _ in range(3):
        assert LBFGS().run(problem, np.ones(3)).converged
    assert len(calls) < 40


def test_idioms_of_jax() -> None:
    jnp = pytest.importorskip("jax").numpy
    cost = rmopt.jax_cost(lambda x: jnp.sum(x.at[0].set(0.0) ** 2) - x[0])
    result = LBFGS().run(Problem(Sphere(4), cost), random_state=1)
    np.testing.assert_allclose(result.point, [1.0, 0.0, 0.0, 0.0], atol=1e-6)


def test_functions_do_not_write_into_points() -> None:
    def writing(x: Any) -> Any:
        x -= 0.1
        return anp.sum(x**3)

    x = np.array([0.6, 0.8, 0.0, 0.0])
    with pytest.raises(ValueError, match="read-only"):
        rmopt.autograd_cost(writing).value(x)
    np.testing.assert_array_equal(x, [0.6, 0.8, 0.0, 0.0])
