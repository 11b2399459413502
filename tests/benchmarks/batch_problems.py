"""Ten standard problems for full-gradient solvers, as arrays and functions that rmopt and its peers share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from pymanopt import manifolds as foreign
from pymanopt.manifolds.fixed_rank import _FixedRankPoint
from scipy.sparse.linalg import svds

from rmopt import Problem
from rmopt.core import Cost, LowRankPoint, Parts
from rmopt.core.ambient import Actions
from rmopt.manifolds import (
    Euclidean,
    FixedRankEmbedded,
    Grassmann,
    Oblique,
    PositiveDefinite,
    Product,
    PSDFixedRank,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
)

Array = np.ndarray


class Counted(Cost):
    """A cost made of functions: cost and gradient in one, and the derivative of the gradient."""

    def __init__(
        self, both: Callable[[Any], tuple[float, Any]], bend: Callable[[Any, Any], Any] | None
    ) -> None:
        self.both = both
        if bend is not None:
            self.hessian = bend

    def value(self, point: Any) -> float:
        return self.both(point)[0]

    def value_and_gradient(self, point: Any) -> tuple[float, Any]:
        return self.both(point)


@dataclass
class Peer:
    """A problem in pymanopt's words: manifold, cost, gradient, Hessian or None, start, and kind of the gradient."""

    manifold: Any
    cost: Callable[..., float]
    gradient: Callable[..., Any]
    hessian: Callable[..., Any] | None
    start: Any
    kind: str = "euclidean"


@dataclass
class Standard:
    """A problem with its start, and the same one for pymanopt."""

    name: str
    problem: Problem
    start: Any
    peer: Peer


def arrays(name: str, manifold: Any, ours: Any, start: Any, both: Any, bend: Any) -> Standard:
    """Return a problem whose points are single arrays, with Euclidean derivatives."""
    peer = Peer(manifold, lambda X: both(X)[0], lambda X: both(X)[1], bend, start)
    return Standard(name, Problem(ours, Counted(both, bend)), start, peer)


def subspace(n: int, m: int, p: int) -> Standard:
    """Return the dominant subspace of a matrix whose squared singular values are 1/i."""
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((n, m)))[0]
    Z = np.ascontiguousarray((Q / np.sqrt(np.arange(1, m + 1))).T)
    start = np.linalg.qr(rng.standard_normal((n, p)))[0]

    def both(U: Array) -> tuple[float, Array]:
        G = -(Z.T @ (Z @ U))
        return 0.5 * float(np.vdot(U, G)), G

    def bend(U: Array, H: Array) -> Array:
        return -(Z.T @ (Z @ H))

    return arrays(f"1 subspace {n}", foreign.Grassmann(n, p), Grassmann(n, p).using("qr"), start, both, bend)


def brockett() -> Standard:
    """Return Brockett's cost ½ tr(XᵀAXN) on the Stiefel manifold."""
    n, p = 500, 10
    rng = np.random.default_rng(2)
    B = rng.standard_normal((n, n))
    A, N = (B + B.T) / 2, np.arange(p, 0, -1.0)[None, :]
    start = np.linalg.qr(rng.standard_normal((n, p)))[0]

    def both(X: Array) -> tuple[float, Array]:
        G = (A @ X) * N
        return 0.5 * float(np.vdot(X, G)), G

    def bend(X: Array, H: Array) -> Array:
        return (A @ H) * N

    return arrays("2 Brockett", foreign.Stiefel(n, p), Stiefel(n, p), start, both, bend)


def max_cut() -> Standard:
    """Return the relaxation of max-cut of rank 32, with columns of unit length."""
    n, r = 500, 32
    rng = np.random.default_rng(3)
    upper = np.triu(rng.random((n, n)) < 0.06, 1)
    W = sp.csr_array((upper | upper.T).astype(float))
    # Stored by columns, as products with W want them.
    start = np.asfortranarray(rng.standard_normal((r, n)))
    start /= np.linalg.norm(start, axis=0)

    def times(X: Array) -> Array:
        return np.asarray((W @ X.T).T)

    def both(X: Array) -> tuple[float, Array]:
        G = times(X)
        return 0.5 * float(np.vdot(X.T, G.T)), G

    return arrays("3 max-cut", foreign.Oblique(r, n), Oblique(r, n), start, both, lambda X, H: times(H))


def karcher() -> Standard:
    """Return the Riemannian mean of 50 positive definite 20 × 20 matrices, from the first of them."""
    count, k = 50, 20
    rng = np.random.default_rng(4)
    Qs = np.linalg.qr(rng.standard_normal((count, k, k)))[0]
    As = (Qs * np.exp(rng.standard_normal((count, 1, k)))) @ np.swapaxes(Qs, 1, 2)

    def sym(X: Array) -> Array:
        return 0.5 * (X + X.T)

    def relative(X: Array) -> tuple[Array, Array, Array, Array]:
        L = np.linalg.cholesky(X)
        Li = np.linalg.inv(L)
        values, V = np.linalg.eigh(Li @ As @ Li.T)
        return L, Li, np.log(values), V

    def riemannian(X: Array) -> tuple[float, Array]:
        L, _, logs, V = relative(X)
        gradient = -sym(L @ np.tensordot(V * logs[:, None, :], V, ([0, 2], [0, 2])) @ L.T) / count
        return 0.5 * float(np.sum(logs**2)) / count, gradient

    def riemannian_hessian(X: Array, xi: Array) -> Array:
        L, Li, logs, V = relative(X)
        kappa = 0.5 * np.abs(logs[:, :, None] - logs[:, None, :])
        h = np.where(kappa > 1e-8, kappa / np.tanh(np.maximum(kappa, 1e-8)), 1.0)
        inner = np.swapaxes(V, 1, 2) @ (Li @ xi @ Li.T) @ V
        return sym(L @ (V @ (h * inner) @ np.swapaxes(V, 1, 2)).mean(0) @ L.T)

    def both(X: Array) -> tuple[float, Array]:
        value, gradient = riemannian(X)
        Xi = np.linalg.inv(X)
        return value, sym(Xi @ gradient @ Xi)

    def bend(X: Array, xi: Array) -> Array:
        Xi = np.linalg.inv(X)
        return sym(Xi @ (riemannian_hessian(X, xi) - sym(xi @ Xi @ riemannian(X)[1])) @ Xi)

    start = sym(As[0])
    peer = Peer(
        foreign.SymmetricPositiveDefinite(k), lambda X: riemannian(X)[0], lambda X: riemannian(X)[1],
        riemannian_hessian, start, "riemannian",
    )  # fmt: skip
    return Standard("4 Karcher mean", Problem(PositiveDefinite(k), Counted(both, bend)), start, peer)


def completion(n: int) -> Standard:
    """Return the completion of an n × n matrix of rank 5 from five times as many entries as it has parameters."""
    r = 5
    rng = np.random.default_rng(5)
    L, R = rng.standard_normal((n, r)), rng.standard_normal((n, r))
    count = 5 * r * (2 * n - r)
    flat = np.sort(rng.choice(n * n, count, replace=False))
    rows, columns = np.divmod(flat, n)
    values = np.einsum("ik,ik->i", L[rows], R[columns])
    indptr = np.searchsorted(rows, np.arange(n + 1))

    def matrix(entries: Array) -> Any:
        return sp.csr_array((entries, columns, indptr), shape=(n, n))

    def entries(A: Array, S: Array, B: Array) -> Array:
        return np.einsum("ik,ik->i", (A @ S)[rows], B[columns])

    return _low_rank(
        f"5 completion {n}", (n, n, r), _start(matrix(values * (n * n / count)), r), entries, matrix, values
    )


def remembered(data: Array) -> Callable[[Array], Array]:
    """Return the product with an array, which is kept until another one comes: cost and gradient share it."""
    last: list[Any] = [None, None]

    def times(factor: Array) -> Array:
        if last[0] is not factor:
            last[:] = factor, data @ factor
        return last[1]

    return times


def sensing() -> Standard:
    """Return the regression of a 100 × 80 matrix of rank 3 on 3,000 measurements xᵀWz."""
    n, m, r, count = 100, 80, 3, 3000
    rng = np.random.default_rng(6)
    X, Z = rng.standard_normal((count, n)), rng.standard_normal((count, m))
    L, R = rng.standard_normal((n, r)), rng.standard_normal((m, r))
    y = np.einsum("ik,ik->i", X @ L, Z @ R) + 0.1 * rng.standard_normal(count)
    scale = 1.0 / np.sqrt(count)

    by_x, by_z = remembered(X), remembered(Z)

    def measured(A: Array, S: Array, B: Array) -> Array:
        return scale * np.einsum("ik,ik->i", by_x(A) @ S, by_z(B))

    def spread(residual: Array) -> Any:
        weights = (scale * residual)[:, None]
        return Actions((n, m), lambda B: X.T @ (weights * by_z(B)), lambda A: Z.T @ (weights * by_x(A)))

    U, s, Vt = np.linalg.svd(X.T @ (y[:, None] * Z) / count, full_matrices=False)
    start = LowRankPoint(np.ascontiguousarray(U[:, :r]), np.diag(s[:r]), np.ascontiguousarray(Vt[:r].T))
    return _low_rank("6 sensing", (n, m, r), start, measured, spread, scale * y)


def _start(matrix: Any, r: int) -> LowRankPoint:
    U, s, Vt = svds(matrix, k=r, v0=np.ones(matrix.shape[0]))
    order = np.argsort(-s)
    return LowRankPoint(
        np.ascontiguousarray(U[:, order]), np.diag(s[order]), np.ascontiguousarray(Vt[order].T)
    )


def _low_rank(
    name: str, sizes: tuple[int, int, int], start: LowRankPoint, measured: Any, spread: Any, targets: Array
) -> Standard:
    """Return ½ |measurements of W less targets|² on matrices of low rank."""

    def both(p: LowRankPoint) -> tuple[float, Any]:
        residual = measured(p.U, p.S, p.V) - targets
        return 0.5 * float(residual @ residual), spread(residual)

    def bend(p: LowRankPoint, D: Any) -> Any:
        return spread(measured(D.left, np.eye(D.left.shape[1]), D.right))

    def cost(u: Array, s: Array, vt: Array) -> float:
        residual = measured(u, np.diag(s), vt.T) - targets
        return 0.5 * float(residual @ residual)

    def gradient(u: Array, s: Array, vt: Array) -> tuple[Array, Array, Array]:
        V = vt.T
        G = spread(measured(u, np.diag(s), V) - targets)
        GV, GtU = np.asarray(G @ V), np.asarray(G.T @ u)
        return GV * s, np.einsum("ik,ik->k", u, GV), (GtU * s).T

    there = _FixedRankPoint(start.U, np.diag(start.S).copy(), start.V.T)
    peer = Peer(foreign.FixedRankEmbedded(*sizes), cost, gradient, None, there)
    return Standard(name, Problem(FixedRankEmbedded(*sizes), Counted(both, bend)), start, peer)


def rotations() -> Standard:
    """Return the synchronisation of 100 rotations from noisy quotients of 30 % of the pairs."""
    k = 100
    rng = np.random.default_rng(7)

    def made(A: Array) -> Array:
        Q = np.linalg.qr(A)[0]
        Q[..., 0] *= np.sign(np.linalg.det(Q))[..., None]
        return Q

    def nearest(M: Array) -> Array:
        U, _, Vt = np.linalg.svd(M)
        U[:, 2] *= np.sign(np.linalg.det(U @ Vt))
        return U @ Vt

    R, start = made(rng.standard_normal((k, 3, 3))), made(rng.standard_normal((k, 3, 3)))
    H, pairs = np.zeros((k, 3, k, 3)), 0
    for i in range(k):
        for j in range(i):
            if rng.random() < 0.3:
                M = nearest(R[i] @ R[j].T + 0.2 * rng.standard_normal((3, 3)))
                H[i, :, j], H[j, :, i] = M, M.T
                pairs += 1
    H = H.reshape(3 * k, 3 * k)

    def both(X: Array) -> tuple[float, Array]:
        G = -(H @ X.reshape(3 * k, 3)).reshape(k, 3, 3)
        return 3.0 * pairs + 0.5 * float(np.sum(X * G)), G

    def bend(X: Array, D: Array) -> Array:
        return -(H @ D.reshape(3 * k, 3)).reshape(k, 3, 3)

    return arrays(
        "7 rotations", foreign.SpecialOrthogonalGroup(3, k=k), SpecialOrthogonal(3, k), start, both, bend
    )


def sphere() -> Standard:
    """Return a Rayleigh quotient on the sphere in O(n): all overhead."""
    n = 1000
    rng = np.random.default_rng(8)
    v = rng.standard_normal(n)
    v /= np.linalg.norm(v)
    values = np.concatenate([[1.0], np.linspace(0.99, 0.0, n - 1)])
    start = rng.standard_normal(n)
    start /= np.linalg.norm(start)

    def times(x: Array) -> Array:
        y = values * (x - (2.0 * (v @ x)) * v)
        return y - (2.0 * (v @ y)) * v

    def both(x: Array) -> tuple[float, Array]:
        g = -times(x)
        return 0.5 * float(x @ g), g

    return arrays("8 sphere", foreign.Sphere(n), Sphere(n), start, both, lambda x, h: -times(h))


def product() -> Standard:
    """Return principal components with an offset, on Grassmann(100, 5) × ℝ¹⁰⁰."""
    n, p, count = 100, 5, 500
    rng = np.random.default_rng(9)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    X = (rng.standard_normal((count, n)) / np.sqrt(np.arange(1, n + 1))) @ Q.T + rng.standard_normal(n)
    U0, b0, mean = np.linalg.qr(rng.standard_normal((n, p)))[0], X[0].copy(), X.mean(0)

    def both(U: Array, b: Array) -> tuple[float, Array, Array]:
        R, m = X - b, mean - b
        RU = R @ U
        return 0.5 * float(np.sum(R * R) - np.sum(RU**2)) / count, -(R.T @ RU) / count, U @ (U.T @ m) - m

    def bend(U: Array, b: Array, HU: Array, hb: Array) -> tuple[Array, Array]:
        R, m = X - b, mean - b
        dU = -(R.T @ (R @ HU)) / count + np.outer(hb, m @ U) + np.outer(m, hb @ U)
        return dU, HU @ (U.T @ m) + U @ (HU.T @ m) - U @ (U.T @ hb) + hb

    def ours(x: Parts) -> tuple[float, Any]:
        value, G, g = both(x[0], x[1][:, 0])
        return value, Parts([G, g[:, None]])

    def ours_bent(x: Parts, D: Any) -> Any:
        dU, db = bend(x[0], x[1][:, 0], np.asarray(D.blocks[0]), np.asarray(D.blocks[1])[:, 0])
        return Parts([dU, db[:, None]])

    problem = Problem(Product([Grassmann(n, p).using("qr"), Euclidean(n, 1)]), Counted(ours, ours_bent))
    theirs = foreign.Product([foreign.Grassmann(n, p), foreign.Euclidean(n)])
    peer = Peer(theirs, lambda U, b: both(U, b)[0], lambda U, b: both(U, b)[1:], bend, [U0, b0])
    return Standard("9 product", problem, Parts([U0, b0[:, None]]), peer)


def positive_semidefinite(rank: int) -> Standard:
    """Return the approximation of a positive semidefinite 500 × 500 matrix, of rank 10 where `rank` is above."""
    n = 500
    rng = np.random.default_rng(10)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    tail = np.linspace(0.3, 0.0, n - 10) if rank == 10 else np.zeros(n - 10)
    A = (Q * np.concatenate([np.linspace(10.0, 1.0, 10), tail])) @ Q.T
    A = (A + A.T) / 2
    Y0 = rng.standard_normal((n, rank)) / np.sqrt(n)

    def of_factor(Y: Array) -> tuple[float, Array]:
        return 0.25 * float(np.sum((Y @ Y.T - A) ** 2)), Y @ (Y.T @ Y) - A @ Y

    def bend(Y: Array, H: Array) -> Array:
        return H @ (Y.T @ Y) + Y @ (H.T @ Y + Y.T @ H) - A @ H

    def both(p: Any) -> tuple[float, Any]:
        QS = p.Q @ p.S

        def action(X: Array) -> Array:
            return 0.5 * (QS @ (p.Q.T @ X) - A @ X)

        return 0.25 * float(np.sum((QS @ p.Q.T - A) ** 2)), Actions((n, n), action, action)

    manifold = PSDFixedRank(n, rank)
    peer = Peer(foreign.PSDFixedRank(n, rank), lambda Y: of_factor(Y)[0], lambda Y: of_factor(Y)[1], bend, Y0)
    problem = Problem(manifold, Counted(both, lambda p, D: D * 0.5))
    return Standard(f"10 PSD rank {rank}", problem, manifold.from_factor(Y0), peer)


PROBLEMS: dict[str, Callable[[], Standard]] = {
    "1s": lambda: subspace(64, 64, 5), "1l": lambda: subspace(2000, 500, 20), "2": brockett, "3": max_cut,
    "4": karcher, "5s": lambda: completion(1000), "5l": lambda: completion(3000), "6": sensing, "7": rotations,
    "8": sphere, "9": product, "10": lambda: positive_semidefinite(10),
    "10o": lambda: positive_semidefinite(20),
}  # fmt: skip
