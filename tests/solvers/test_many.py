"""Many independent problems at once: each goes as it would alone, on arrays of each library."""

from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from in_library import array_of, far_away
from tabled import each_row

import rmopt
from rmopt import namespaces as ns
from rmopt.core import Cost
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Oblique, Sphere
from rmopt.solvers import solve_many

K, N = 30, 5
METHODS = ("barzilai-borwein", "trust-regions")


class Quotients(Cost):
    """½ Re tr(XᴴA X) of each of many points, by the matrices of the problems, which can be told apart."""

    def __init__(self, A: Any) -> None:
        self.A, self.asked = A, []

    def _products(self, X: Any) -> Any:
        return (self.A @ X[..., None])[..., 0] if X.ndim == 2 else self.A @ X

    def value_and_gradient(self, point: Any) -> Any:
        self.asked.append(point.shape[0])
        G = self._products(point)
        halves = 0.5 * ns.real_dots(point, G, point.ndim - 1)
        return ns.namespace(halves).reshape(halves, (-1,)), G

    def value(self, point: Any) -> Any:
        return self.value_and_gradient(point)[0]

    def hessian(self, point: Any, direction: Any) -> Any:
        return self._products(direction)


class Indexed(Quotients):
    """The cost of some of the problems is known, too."""

    def __getitem__(self, rows: Any) -> "Indexed":
        found = Indexed(ns.namespace(rows).take(self.A, rows, axis=0))
        found.asked = self.asked
        return found


def matrices(field: str = "real", k: int = K) -> np.ndarray:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((k, N, N)) + (1j * rng.standard_normal((k, N, N)) if field == "complex" else 0.0)
    return A + ns.adjoint(A)


def starts(manifold: Any, k: int = K) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.array([manifold.random_point(rng) for _ in range(k)])


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch", "jax.numpy"])
@each_row("method, manifold, columns", [
    ("barzilai-borwein", Sphere(N, field="complex"), 1), ("trust-regions", Oblique(N, 2), 2),
])  # fmt: skip
@far_away()
def test_all_problems_end_at_their_least_eigenvalue(
    library: str, method: str, manifold: Any, columns: int
) -> None:
    A, like = matrices(manifold.field), array_of(library)
    # JAX compiles each operation for each number of problems.
    kind = Quotients if library == "jax.numpy" else Indexed
    given = ns.asarray(starts(manifold), like)
    result = solve_many(manifold, kind(ns.asarray(A, like)), given, method=method)
    assert type(result.points) is type(result.costs) is type(result.converged) is type(given)
    least = np.linalg.eigvalsh(A)[:, 0]
    np.testing.assert_allclose(ns.to_numpy(result.costs), 0.5 * columns * least, atol=1e-9)
    assert ns.to_numpy(result.converged).all()
    assert "30 of 30 converged" in repr(result)
    assert manifold.refusal(result.points) is None


@each_row("method", METHODS)
def test_a_problem_goes_as_it_would_alone(method: str) -> None:
    A, x = matrices(), starts(Sphere(N))
    cost, halved = Quotients(A), Indexed(A)
    result, other = (solve_many(Sphere(N), one, x, method=method, tol=1e-5) for one in (cost, halved))
    assert set(cost.asked) == {K}
    assert min(halved.asked) <= K // 2
    for i in range(K):
        alone = solve_many(Sphere(N), Quotients(A[i : i + 1]), x[i : i + 1], method=method, tol=1e-5)
        for many in (result, other):
            assert many.iterations[i] == alone.iterations[0]
            np.testing.assert_allclose(many.points[i], alone.points[0], atol=1e-12)
            np.testing.assert_allclose(many.gradient_norms[i], alone.gradient_norms[0], rtol=1e-5)


def test_single_precision_stays() -> None:
    A, x = matrices().astype(np.float32), starts(Sphere(N)).astype(np.float32)
    result = solve_many(Sphere(N), Quotients(A), x)
    assert result.points.dtype == result.costs.dtype == np.float32
    assert result.converged.all()


@pytest.mark.parametrize("library", ["autograd", "torch", "jax"])
@each_row("method", METHODS)
def test_costs_by_automatic_differentiation(library: str, method: str) -> None:
    module = pytest.importorskip("autograd.numpy" if library == "autograd" else library)
    A, x = matrices(), starts(Sphere(N))
    held = module.asarray(A) if library == "torch" else A
    einsum = getattr(module, "numpy", module).einsum
    cost = getattr(rmopt, f"{library}_cost")(lambda x: 0.5 * einsum("ki,kij,kj->k", x, held, x))
    found, wanted = (solve_many(Sphere(N), one, x, method=method) for one in (cost, Quotients(A)))
    np.testing.assert_allclose(found.points, wanted.points, atol=1e-6)
    assert found.converged.all()


def test_a_problem_without_numbers_stays_where_it_is() -> None:
    """It does not count as converged, and the others go on; one at its minimum is there at once."""
    x = np.array([[1.0, 1.0], [0.0, 0.0], [-1.0, 0.5]])
    # Neither hides that problems depend on each other.
    with pytest.raises(ValueError, match="changed with other points"):
        solve_many(Euclidean(2), lambda x: anp.log(1.5 + x[:, 0] * 2.0) + 1e-6 * anp.sum(x[:, 1]), x)
    result = solve_many(Euclidean(2), lambda x: anp.sum(x**2, 1) + 0.0 * anp.log(1.5 + x[:, 0] * 2.0), x)
    assert result.converged.tolist() == [True, True, False]
    assert result.iterations[1:].tolist() == [0, 0]
    np.testing.assert_array_equal(result.points[2], x[2])
    # A cost without a minimum: the budget ends it.
    result = solve_many(Euclidean(2), lambda x: anp.exp(-x[:, 0]), x, max_iter=7, tol=1e-300)
    assert not result.converged.any()
    assert result.iterations.tolist() == [7, 7, 7]


SPHERE, X = Sphere(N), starts(Sphere(N), 4)


@each_row("match, manifold, cost, points", [
    ("as many numbers", SPHERE, lambda x: anp.sum(x**4), X),
    ("array of shape", SPHERE, rmopt.autograd_cost, X[0]),
    ("array of shape", SPHERE, Quotients(matrices(k=4)), X[:, :4]),
    ("array of shape", SPHERE, Quotients(matrices(k=4)), [*X]),
    ("not all on Sphere", SPHERE, Quotients(matrices(k=4)), X * [[1.0], [1.0], [2.0], [1.0]]),
    ("field='complex'", SPHERE, Quotients(matrices(k=4)), X + 0j),
    ("NaN or infinity", SPHERE, Quotients(matrices(k=4)), X * np.nan),
    ("changed with other points", SPHERE, lambda x: x[:, 0] * anp.sum(x[:, 1]), X),
    ("changed with other points", SPHERE, lambda x: anp.roll(x[:, 0], 1), X),
    ("is not a cost", SPHERE, 3, X),
    ("points are arrays", FixedRankEmbedded(3, 3, 1), Quotients(matrices()), X),
])  # fmt: skip
def test_what_does_not_fit_is_said_before_any_work(match: str, manifold: Any, cost: Any, points: Any) -> None:
    with pytest.raises((ValueError, rmopt.core.RmoptError), match=match):
        solve_many(manifold, cost, points)


def test_trust_regions_need_second_derivatives() -> None:
    class First(Quotients):
        hessian = property()

    with pytest.raises(rmopt.core.MissingCapabilityError, match="hessian"):
        solve_many(SPHERE, First(matrices(k=4)), X, method="trust-regions")
