"""Problems with kinks whose minima are known: by closed forms, by scalars, or by methods that agree."""

from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from rmopt import Problem
from rmopt.core import Cost
from rmopt.costs import L1, GroupL2, NonNegative, NonsmoothProblem, ResidualSum
from rmopt.manifolds import FixedRankEmbedded, Oblique, Sphere, Stiefel
from rmopt.solvers import LBFGS, Result

Array = np.ndarray


class Quadratic(Cost):
    """tr XᵀAX of a symmetric A, or −‖BX‖²."""

    def __init__(self, A: Array | None = None, B: Array | None = None) -> None:
        self.A, self.B = A, B

    def value(self, X: Array) -> float:
        return self.value_and_gradient(X)[0]

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        if self.A is not None:
            AX = self.A @ X
            return float(np.vdot(X, AX)), 2.0 * AX
        BX = self.B @ X
        return -float(np.vdot(BX, BX)), -2.0 * (self.B.T @ BX)


class Rows(ResidualSum):
    """c(x) = linear(x) with its transposed map."""

    def __init__(self, linear: Any, transposed: Any) -> None:
        self.linear, self.transposed = linear, transposed

    def residuals(self, point: Any) -> Array:
        return np.asarray(self.linear(point))

    def linearised(self, point: Any) -> Any:
        return self.linear, self.transposed


def components(n: int, k: int, weight: float, whole: bool = True) -> NonsmoothProblem:
    """Return sparse principal components of 50 rows, whose columns have length 1."""
    B = np.random.default_rng(0).standard_normal((50, n))
    B -= B.mean(0)
    B /= np.linalg.norm(B, axis=0)
    cost = Quadratic(A=-B.T @ B) if whole else Quadratic(B=B)
    return NonsmoothProblem(Stiefel(n, k), cost, L1(weight))


def modes(n: int, k: int, weight: float = 0.15, length: float = 50.0) -> NonsmoothProblem:
    """Return compressed modes of −½ d²/dx² on a circle (Ozoliņš, Lai, Caflisch, Osher 2013)."""
    one = np.eye(n)
    A = (n / length) ** 2 * (one - 0.5 * np.roll(one, 1, 0) - 0.5 * np.roll(one, -1, 0))
    return NonsmoothProblem(Stiefel(n, k), Quadratic(A=A), L1(weight))


def hyperplane(d: int = 10, inside: int = 300, outside: int = 200) -> tuple[NonsmoothProblem, Array, Array]:
    """Return a search for the normal of most rows, that normal, and the last principal component."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(d)
    normal /= np.linalg.norm(normal)
    rows = rng.standard_normal((inside, d))
    rows = np.concatenate([rows - np.outer(rows @ normal, normal), rng.standard_normal((outside, d))])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = NonsmoothProblem(Sphere(d), None, L1(1.0), of=Rows(lambda x: rows @ x, lambda w: rows.T @ w))
    return problem, normal, np.linalg.svd(rows)[2][-1]


def completion(n: int, m: int, k: int, seen: float, wrong: float) -> tuple[NonsmoothProblem, Array]:
    """Return the ℓ1 completion of a matrix of which some entries are wrong by much, and the matrix."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((n, k)), rng.standard_normal((m, k))
    i, j = np.nonzero(rng.random((n, m)) < seen)
    told = np.sum(left[i] * right[j], axis=1)
    bad = rng.random(len(told)) < wrong
    told[bad] += 10.0 * rng.standard_normal(bad.sum())

    def entries(point: Any) -> Array:
        return np.einsum("ik,ik->i", (point.U @ point.S)[i], point.V[j]) - told

    of = Rows(entries, lambda w: sp.csr_array((w, (i, j)), shape=(n, m)))
    return NonsmoothProblem(FixedRankEmbedded(n, m, k), None, L1(1.0), of=of), left @ right.T


def two_pieces(n: int = 20, weight: float = 1.0) -> tuple[NonsmoothProblem, float]:
    """Return total variation of a step on the sphere, whose pieces move towards each other, and its least value."""
    signal = np.repeat(np.eye(3)[:, :2], n // 2, axis=1)

    class Distance(Cost):
        def value(self, X: Array) -> float:
            return 0.5 * float(np.sum((X - signal) ** 2))

        def gradient(self, X: Array) -> Array:
            return X - signal

    def back(weights: Array) -> Array:
        return -np.diff(weights.reshape(-1, 3).T, axis=1, prepend=0.0, append=0.0)

    of = Rows(lambda X: np.diff(X, axis=1).T.ravel(), back)
    exact = scipy.optimize.minimize_scalar(
        lambda t: n * (1.0 - np.cos(t)) + 2.0 * weight * np.sin(np.pi / 4.0 - t),
        bounds=(0.0, np.pi / 4.0), method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    return NonsmoothProblem(Oblique(3, n), Distance(), GroupL2(weight, 3), of=of), float(exact.fun)


def nonnegative(n: int) -> tuple[NonsmoothProblem, Array]:
    """Return the first principal component without negative entries, and that of a projected power method."""
    rng = np.random.default_rng(3)
    spike = np.maximum(rng.standard_normal(n), 0.0)
    spike /= np.linalg.norm(spike)
    noise = rng.standard_normal((n, n)) / np.sqrt(8.0 * n)
    A = 2.0 * np.outer(spike, spike) + noise + noise.T
    x = spike
    for _ in range(3000):
        x = np.maximum(A @ x + 10.0 * x, 0.0)
        x /= np.linalg.norm(x)
    return NonsmoothProblem(Sphere(n), Quadratic(A=-A), NonNegative()), x


def smoothed(problem: NonsmoothProblem, start: Any, rounds: int) -> Result:
    """Return where L-BFGS ends on smoothed costs, from ε = 0.1 on by tens."""
    for eps in 10.0 ** -np.arange(1.0, rounds + 1.0):
        cost = problem.cost + problem.h.smoothed(eps, problem.of)
        found = LBFGS(max_iter=500).run(Problem(problem.manifold, cost), start, random_state=0)
        start = found.point
    return found
