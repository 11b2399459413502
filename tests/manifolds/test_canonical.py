"""The canonical metric of frames: against matrix exponentials of all space, spheres, rotations and differences."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tabled import each_row

from rmopt import InvalidInputError, Problem
from rmopt.core import Cost, MissingCapabilityError
from rmopt.manifolds import Elliptope, SpecialOrthogonal, Stiefel, stiefel
from rmopt.retractions import Cayley
from rmopt.solvers import LBFGS, ConjugateGradient, TrustRegions

Array = np.ndarray
FRAMES = [
    Stiefel(n, p, k, metric="canonical")
    for n, p, k in ((9, 3, 1), (5, 4, 1), (6, 1, 1), (3, 3, 1), (6, 2, 4))
]


def drawn(manifold: Any, length: float = 0.7, seed: int = 0) -> tuple[Array, Array, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x = manifold.random_point(rng)
    return x, length * manifold.random_tangent_vector(x, rng), rng


def singles(manifold: Stiefel, *arrays: Array) -> Any:
    """Return points and vectors one frame after the other."""
    return zip(*(array.reshape(-1, manifold.n, manifold.p) for array in arrays), strict=True)


def generator(x: Array, xi: Array) -> Array:
    """Return the skew-symmetric n × n matrix W with ξ = W x that does not turn what is orthogonal to both."""
    half = xi - 0.5 * x @ (x.T @ xi)
    return half @ x.T - x @ half.T


@each_row("manifold", FRAMES)
def test_the_metric_is_that_of_the_rotations_of_all_space(manifold: Stiefel) -> None:
    x, xi, rng = drawn(manifold)
    eta = manifold.random_tangent_vector(x, rng)
    wanted = sum(
        0.5 * np.vdot(generator(*a), generator(*b))
        for a, b in zip(singles(manifold, x, xi), singles(manifold, x, eta), strict=True)
    )
    np.testing.assert_allclose(manifold.inner_product(x, xi, eta), wanted, atol=1e-15)


@each_row("manifold", FRAMES)
def test_geodesics_and_cayley_transforms_are_those_of_all_space(manifold: Stiefel) -> None:
    for length in (1e-9, 1.0, 6.0):
        x, xi, _ = drawn(manifold, length, seed=3)
        moved = Cayley()(manifold, x, xi)
        for one, along, end, there in singles(manifold, x, xi, manifold.exp(x, xi), moved):
            turn, identity = generator(one, along), np.eye(manifold.n)
            np.testing.assert_allclose(end, scipy.linalg.expm(turn) @ one, atol=1e-13 * max(1.0, length))
            transform = np.linalg.solve(identity - 0.5 * turn, identity + 0.5 * turn)
            np.testing.assert_allclose(there, transform @ one, atol=1e-14)


@each_row("manifold", FRAMES)
def test_logarithms_lead_back(manifold: Stiefel) -> None:
    # Shortest up to 0.89 π, in each frame of a batch.
    for length in (1e-7, 0.1, 1.0, 2.0, 2.7):
        x, xi, _ = drawn(manifold, length, seed=1)
        y = manifold.exp(x, xi)
        np.testing.assert_allclose(manifold.log(x, y), xi, atol=1e-11)
        np.testing.assert_allclose(manifold.dist(x, y), length, atol=1e-12)
        np.testing.assert_allclose(manifold.dist(y, x), length, atol=1e-12)
        np.testing.assert_allclose(manifold.exp(x, 0.5 * xi), manifold.pair_mean(x, y), atol=1e-11)


def test_logarithms_between_random_frames_end_where_they_should() -> None:
    rng = np.random.default_rng(0)
    for manifold in (Stiefel(9, 3, metric="canonical"), Stiefel(7, 5, metric="canonical")):
        for _ in range(10):
            x, y = (manifold.random_point(rng) for _ in range(2))
            np.testing.assert_allclose(manifold.exp(x, manifold.log(x, y)), y, atol=1e-12)
    # Nothing of the end is orthogonal to the start.
    manifold = Stiefel(6, 3, metric="canonical")
    x = manifold.random_point(rng)
    for turn in (np.eye(3), SpecialOrthogonal(3).random_point(rng), np.diag([-1.0, 1.0, 1.0])):
        found = manifold.log(x, x @ turn)
        np.testing.assert_allclose(manifold.exp(x, found), x @ turn, atol=1e-12)
        np.testing.assert_allclose(manifold.projection(x, found), found, atol=1e-12)


@pytest.mark.parametrize(("metric", "step"), [("canonical", "rotation_log"), ("euclidean", "skew_form")])
def test_far_frames_take_few_steps(metric: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    plain = getattr(stiefel.linalg, step)
    monkeypatch.setattr(stiefel.linalg, step, lambda *arrays: steps.append(0) or plain(*arrays))
    manifold, rng = Stiefel(30, 10, metric=metric), np.random.default_rng(0)
    for _ in range(10):
        x, y = (manifold.random_point(rng) for _ in range(2))
        np.testing.assert_allclose(manifold.exp(x, manifold.log(x, y)), y, atol=1e-12)
    assert len(steps) < 300


class Brockett(Cost):
    """tr(XᵀAXN), least at eigenvectors of A in the order of N."""

    A, N = np.diag(np.arange(1.0, 13.0)), np.diag([3.0, 2.0, 1.0])

    def value(self, point: Array) -> float:
        return float(np.vdot(point, self.A @ point @ self.N))

    def gradient(self, point: Array) -> Array:
        return 2.0 * self.A @ point @ self.N

    def hessian(self, point: Array, direction: Array) -> Array:
        return 2.0 * self.A @ direction @ self.N


@pytest.mark.parametrize("transport", ["projection", "manifold", "isometric", "retraction"])
def test_solvers_find_eigenvectors_with_every_transport(transport: str) -> None:
    for metric in ("canonical", "euclidean"):
        manifold = Stiefel(12, 3, metric=metric).using(transport=transport)
        for solver in (TrustRegions(tol=1e-9), LBFGS(tol=1e-8), ConjugateGradient(tol=1e-8)):
            # Moving a vector by the derivative of a retraction, which is taken numerically, takes a while.
            for retraction in list(manifold.retractions)[: 1 if transport == "retraction" else None]:
                result = solver.run(Problem(manifold.using(retraction), Brockett()), random_state=0)
                assert result.converged
                np.testing.assert_allclose(Brockett().value(result.point), 3.0 + 2.0 * 2.0 + 3.0, rtol=1e-12)


def test_copies_keep_the_metric() -> None:
    manifold = Stiefel(5, 2, metric="canonical").using("qr")
    for twin in (copy.copy(manifold), pickle.loads(pickle.dumps(manifold)), manifold.using("qr")):
        assert (repr(twin), twin.default_retraction) == (repr(manifold), manifold.default_retraction)
        assert twin.metric == "canonical"

    class Mine(Stiefel):
        pass

    with pytest.raises(InvalidInputError, match="Mine has the Euclidean metric"):
        Mine(5, 2, metric="canonical")


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(InvalidInputError, match="metric = 'round'"):
        Stiefel(4, 2, metric="round")
    with pytest.raises(MissingCapabilityError, match="logarithm"):
        Elliptope(4, 2).log(np.eye(4)[:, :2], np.eye(4)[:, :2])
    assert not Elliptope(4, 2).knows("log")
    assert Stiefel(4, 2, metric="canonical").knows("log")
    square = Stiefel(3, 3, metric="canonical")
    with pytest.raises(MissingCapabilityError, match="determinant"):
        square.log(np.eye(3), -np.eye(3))
