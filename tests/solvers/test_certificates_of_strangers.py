"""Certificates of costs that users write: with a lower bound, without one, and with a wrong one."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from descent_parts import EmbeddedFit

from rmopt import InvalidInputError, Problem
from rmopt.costs import EmbeddedCost, Trace
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, CertifiedResult, RankIncremental, TrustRegions, certify

Array = np.ndarray
TARGET = np.diag(np.arange(1.0, 9.0))


class Fit(EmbeddedFit):
    def __init__(self, c: float = 0.0) -> None:
        super().__init__(TARGET, c)


class Bounded(Fit):
    @property
    def lower_bound(self) -> float:  # type: ignore[override]
        return -self.c


class WronglyBounded(Fit):
    lower_bound = 0.0


class MaxCut(EmbeddedCost):
    """−⟨L, W⟩/4 + μ/2 ‖diag W − 1‖² for the Laplacian L of a graph."""

    def __init__(self, n: int, mu: float) -> None:
        A = np.triu(np.random.default_rng(0).random((n, n)) < 0.2, 1).astype(float)
        self.L = np.diag((A + A.T).sum(axis=1)) - A - A.T
        self.features, self.mu = np.eye(n), mu
        # −⟨L, W⟩/4 ≥ −λ/4 tr W; the least value of −λ/4 w + μ/2 (w − 1)² over one diagonal entry w, n times.
        top = float(np.linalg.eigvalsh(self.L)[-1])
        self.lower_bound = -n * (top / 4 + top**2 / (32 * mu))

    def measure(self, A: Array, B: Array) -> Array:
        return np.append(np.sum((self.L @ A) * B), np.sum(A * B, axis=1))

    def spread(self, slopes: Array, Z: Array) -> Array:
        return slopes[0] * (self.L @ Z) + slopes[1:, None] * Z

    def loss(self, measurements: Array) -> tuple[float, Array]:
        gap = measurements[1:] - 1.0
        return -measurements[0] / 4 + self.mu / 2 * float(gap @ gap), np.append(-0.25, self.mu * gap)

    def curvature(self, measurements: Array, change: Array) -> Array:
        return np.append(0.0, self.mu * change[1:])


def run(cost: Any, **options: Any) -> CertifiedResult:
    result = RankIncremental(**options).run(Problem(PSDFixedRank(cost.shape[0], 1), cost))
    assert isinstance(result, CertifiedResult)
    return result


def test_no_certificate_without_a_lower_bound() -> None:
    for cost in (Fit() + Trace(1e-3), Trace(1e-3) + Fit(50.0)):
        with pytest.raises(InvalidInputError, match=r"has no lower bound.*set `lower_bound`"):
            run(cost)
        with pytest.raises(InvalidInputError, match="has no lower bound"):
            certify(cost, np.eye(8))
    # What certifies nothing asks for nothing.
    LBFGS().run(Problem(PSDFixedRank(8, 8), Fit() + Trace(1e-3)), random_state=0)


@pytest.mark.parametrize("bound", [np.nan, np.inf, "0", 1j])
def test_a_lower_bound_is_a_number(bound: Any) -> None:
    cost = Fit()
    cost.lower_bound = bound
    with pytest.raises(InvalidInputError, match=r"lower_bound of Fit = .* must be a finite number"):
        run(cost + Trace(1e-3))


@pytest.mark.parametrize("c", [50.0, 102.0, 150.0, 1e4])
def test_a_wrong_lower_bound_is_found_out(c: float) -> None:
    with pytest.raises(InvalidInputError, match=r"lower_bound = 0 of .* does not hold: its value is"):
        run(WronglyBounded(c) + Trace(1e-3))
    # The value at T is above the bound, though not by as much as its trace.
    with pytest.raises(InvalidInputError, match="does not hold"):
        certify(WronglyBounded(1.0) + Trace(1.0), np.sqrt(TARGET))


def test_a_point_that_attains_the_bound_has_nowhere_to_fall() -> None:
    cost = Fit() + Trace(1e-3)
    cost.lower_bound = cost.at(np.zeros((8, 0))).value
    with pytest.raises(InvalidInputError, match="still falls along an eigenvector"):
        certify(cost, np.zeros((8, 0)))


class WrongBeside(Bounded):
    """A gradient that is wrong outside of the span of the factor alone: no point nearby tells."""

    def at(self, Y: Array) -> Any:
        local, Q = super().at(Y), np.linalg.qr(Y)[0]
        right = local.apply
        local.apply = lambda Z: right(Z) + 0.5 * (Z - Q @ (Q.T @ Z))
        return local


@pytest.mark.parametrize("c", [0.0, 1e6])
def test_a_gradient_that_is_wrong_along_the_eigenvector_alone_is_found_out(c: float) -> None:
    Y = np.sqrt(TARGET)[:, 5:]
    certify(Bounded(c) + Trace(1e-3), Y)
    with pytest.raises(InvalidInputError, match="along the certifying eigenvector"):
        certify(WrongBeside(c) + Trace(1e-3), Y)


def test_a_constant_in_cost_and_bound_changes_nothing() -> None:
    plain = run(Bounded() + Trace(1e-3))
    assert plain.is_global
    assert plain.point.rank == 8
    # Each T_ii is drawn towards 0 by the weight of the trace.
    least = 1e-3 * np.trace(TARGET) - 8 * 0.5e-6
    np.testing.assert_allclose(plain.certificate.objective, least, rtol=1e-6)
    for c in (-30.0, 50.0, 102.0, 150.0):
        shifted = run(Bounded(c) + Trace(1e-3))
        assert (shifted.is_global, shifted.point.rank, shifted.steps) == (True, 8, plain.steps)
        np.testing.assert_allclose(shifted.certificate.objective + c, least, rtol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(20):
        Y, c = rng.standard_normal((8, 3)), rng.uniform(-1e3, 1e3)
        one, other = (certify(Bounded(add) + Trace(1e-3), Y)[0] for add in (0.0, c))
        np.testing.assert_allclose(
            dataclasses.astuple(dataclasses.replace(other, objective=other.objective + c)),
            dataclasses.astuple(one), rtol=1e-9, atol=1e-9,
        )  # fmt: skip
        np.testing.assert_allclose(one.relative_gap, other.relative_gap, rtol=1e-9)


def test_max_cut_with_a_valid_bound() -> None:
    result = run(MaxCut(40, 200.0) + Trace(1e-6))
    assert result.is_global
    assert result.point.rank == 4
    np.testing.assert_allclose(result.certificate.objective, -119.372, atol=1e-3)


def test_where_eigenvalues_fall_to_zero_factors_are_the_geometry_to_take() -> None:
    cost, matrices, factors = MaxCut(40, 200.0) + Trace(1e-6), PSDFixedRank(40, 9), PSDFactors(40, 9)
    Y = np.random.default_rng(0).standard_normal((40, 9)) / 3
    solver = TrustRegions(max_iter=150, tol=1e-8)
    there, stalled = (
        solver.run(Problem(manifold, cost), start)
        for manifold, start in ((factors, Y), (matrices, matrices.from_factor(Y)))
    )
    assert there.converged
    np.testing.assert_allclose(there.history[-1]["cost"], -119.3721, atol=1e-3)
    assert np.linalg.eigvalsh(factors.to_dense(there.point))[-5] < 1e-6
    assert not stalled.converged
    assert stalled.history[-1]["cost"] > -118.0


class Wrong(Bounded):
    """A cost whose gradient is multiplied by numbers, of one entry or of all."""

    def __init__(self, by: Any) -> None:
        super().__init__()
        self.by = by

    def loss(self, measurements: Array) -> tuple[float, Array]:
        value, slopes = super().loss(measurements)
        return value, self.by * slopes


class WrongThere(Bounded):
    """A cost whose gradient is wrong at factors of two columns."""

    def at(self, Y: Array) -> Any:
        return (Wrong(0.1) if Y.shape[1] == 2 else super()).at(Y)


def test_a_gradient_that_is_wrong_at_the_point_alone_certifies_nothing() -> None:
    cost = WrongThere() + Trace(1e-3)
    certify(cost, np.eye(8)[:, :3])
    with pytest.raises(InvalidInputError, match="along the certifying eigenvector"):
        certify(cost, np.eye(8)[:, :2])


class Waves(Bounded):
    """A cost that is not convex."""

    def loss(self, measurements: Array) -> tuple[float, Array]:
        gap = measurements - TARGET
        return float(np.sum(1.0 - np.cos(gap))), np.sin(gap)


FORGOTTEN = np.ones(TARGET.shape)
FORGOTTEN[2, :] = FORGOTTEN[:, 2] = 0.0


@pytest.mark.parametrize("by", [0.0, 0.1, 0.9, 10.0, FORGOTTEN])
@pytest.mark.parametrize("rank", [0, 2, 8])
def test_a_wrong_gradient_certifies_nothing(by: Any, rank: int) -> None:
    cost = Wrong(by) + Trace(1e-3)
    with pytest.raises(InvalidInputError, match=r"no certificate.*check_gradient"):
        certify(cost, np.eye(8)[:, :rank])
    with pytest.raises(InvalidInputError, match=r"no certificate.*check_gradient"):
        run(cost)


def test_a_cost_that_is_seen_not_to_be_convex_certifies_nothing() -> None:
    with pytest.raises(InvalidInputError, match="not convex"):
        certify(Waves() + Trace(1e-3), np.linalg.cholesky(TARGET + np.pi))


class Robust(Bounded):
    """q/(1 + q) for the squared gap q, which flattens far away."""

    def loss(self, measurements: Array) -> tuple[float, Array]:
        gap = measurements - np.diag([3.0, 2.0, *6 * [0.0]])
        q = float(np.sum(gap**2))
        return q / (1.0 + q), 2.0 * gap / (1.0 + q) ** 2


def test_a_robust_loss_certifies_nothing() -> None:
    with pytest.raises(InvalidInputError, match="not convex"):
        run(Robust() + Trace(0.05))


@pytest.mark.parametrize("noise", [1e-12, 1e-8])
def test_right_gradients_are_certified_whatever_the_value_is_rounded_to(noise: float) -> None:
    class Rough(Bounded):
        def loss(self, measurements: Array) -> tuple[float, Array]:
            value, slopes = super().loss(measurements)
            return value * (1.0 + noise * np.sin(1e6 * value)), slopes

    rng = np.random.default_rng(0)
    for weight, scale in itertools.product((1e-6, 1e-3, 1.0), (0.0, 1e-6, 1.0, 1e3)):
        certify(Rough() + Trace(weight), scale * rng.standard_normal((8, 3)))
