"""The examples of pymanopt, and some of Manopt's, for rmopt; each beside the same one under pymanopt.

In each pair the first function is what the docs show; the second does what pymanopt's script does: its manifold, its
cost by autograd, its solver. Both take the same data and start, and stop at a gradient of the same length.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import scipy.linalg
import scipy.sparse as sp
import scipy.special
from autograd.scipy.special import logsumexp
from pymanopt import manifolds as foreign
from pymanopt import optimizers
from pymanopt.manifolds.fixed_rank import _FixedRankPoint
from scipy.sparse.linalg import eigsh

import rmopt
from rmopt.core import Cost, LowRankPoint, Parts
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
    frechet_mean,
)
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions

Array = np.ndarray


def by_pymanopt(manifold: Any, function: Any, optimizer: str, start: Any, **options: Any) -> Any:
    """Return the point at which an optimizer of pymanopt ends, with derivatives by autograd."""
    problem = pymanopt.Problem(manifold, pymanopt.function.autograd(manifold)(function))
    solver = getattr(optimizers, optimizer)(**{"verbosity": 0} | options)
    with warnings.catch_warnings():
        # Near the end its equations on factors are nearly singular, and scipy says so.
        warnings.simplefilter("ignore", RuntimeWarning)
        return solver.run(problem, initial_point=start).point


# Arrays of unit length


class Captured(Cost):
    """−tr(XᵀAX) for a symmetric A: three lines by hand, and one product with A where autograd takes two or more."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        AX = self.matrix @ X
        return -float(np.vdot(X, AX)), -2.0 * AX

    def value(self, X: Array) -> float:
        return self.value_and_gradient(X)[0]

    def hessian(self, X: Array, direction: Array) -> Array:
        return -2.0 * (self.matrix @ direction)


def eigenvector(matrix: Array, start: Array) -> Array:
    problem = rmopt.Problem(Sphere(*start.shape), Captured(matrix))
    return TrustRegions(gradient_norm=1e-6).run(problem, start).point


def their_eigenvector(matrix: Array, start: Array) -> Array:
    return by_pymanopt(foreign.Sphere(*start.shape), lambda x: -x.T @ matrix @ x, "SteepestDescent", start)


def unit_columns(matrix: Array, start: Array) -> Array:
    @rmopt.autograd_cost
    def distance(X: Array) -> Any:
        return 0.5 * anp.sum((X - matrix) ** 2)

    problem = rmopt.Problem(Oblique(*start.shape), distance)
    return GradientDescent(gradient_norm=1e-6).run(problem, start).point


def their_unit_columns(matrix: Array, start: Array) -> Array:
    def distance(X: Array) -> Any:
        return 0.5 * anp.sum((X - matrix) ** 2)

    manifold = foreign.Oblique(*start.shape)
    return by_pymanopt(manifold, distance, "ConjugateGradient", start, beta_rule="FletcherReeves")


def correlations(matrix: Array, start: Array) -> Array:
    @rmopt.autograd_cost
    def distance(X: Array) -> Any:
        return 0.25 * anp.sum((X.T @ X - matrix) ** 2)

    problem = rmopt.Problem(Oblique(*start.shape), distance)
    return LBFGS(gradient_norm=1e-6).run(problem, start).point


def their_correlations(matrix: Array, start: Array) -> Array:
    def distance(X: Array) -> Any:
        return 0.25 * anp.linalg.norm(X.T @ X - matrix) ** 2

    return by_pymanopt(foreign.Oblique(*start.shape), distance, "TrustRegions", start)


class Nearest(Cost):
    """A smooth maximum of the products of all pairs of columns."""

    epsilon = 0.005

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        # No product is above 1, so nothing overflows.
        powers = np.exp((X.T @ X - 1.0) / self.epsilon)
        np.fill_diagonal(powers, 0.0)
        total = 0.5 * powers.sum()
        return 1.0 + self.epsilon * float(np.log(total)), X @ powers / total

    def value(self, X: Array) -> float:
        return self.value_and_gradient(X)[0]


def packing(start: Array) -> Array:
    problem = rmopt.Problem(Oblique(*start.shape), Nearest())
    return ConjugateGradient(gradient_norm=1e-8, max_iter=100_000).run(problem, start).point


def their_packing(start: Array) -> Array:
    def nearest(Y: Array) -> Any:
        products = Y @ Y.T
        largest = anp.max(anp.triu(products, 1))
        powers = anp.triu(anp.exp((products - largest) / 0.005), 1)
        return largest + 0.005 * anp.log(anp.sum(powers))

    manifold = foreign.Elliptope(*start.T.shape)
    options = {"min_gradient_norm": 1e-8, "max_iterations": 1e5}
    return by_pymanopt(manifold, nearest, "ConjugateGradient", np.ascontiguousarray(start.T), **options).T


def max_cut(laplacian: Array, start: Array) -> Array:
    @rmopt.autograd_cost
    def minus_cut(X: Array) -> Any:
        return -0.25 * anp.sum(X * (X @ laplacian))

    problem = rmopt.Problem(Oblique(*start.shape), minus_cut)
    return TrustRegions(gradient_norm=1e-6).run(problem, start).point


def their_max_cut(laplacian: Array, start: Array) -> Array:
    def minus_cut(Y: Array) -> Any:
        return -0.25 * anp.sum(Y * (laplacian @ Y))

    manifold = foreign.Elliptope(*start.T.shape)
    return by_pymanopt(manifold, minus_cut, "TrustRegions", np.ascontiguousarray(start.T)).T


# Frames, subspaces and rotations


def components(samples: Array, start: Array) -> Array:
    # What is lost is what there is, less what is captured of the covariance.
    problem = rmopt.Problem(Stiefel(*start.shape), Captured(samples.T @ samples))
    return TrustRegions(gradient_norm=1e-6).run(problem, start).point


def their_components(samples: Array, start: Array) -> Array:
    def lost(W: Array) -> Any:
        return anp.linalg.norm(samples - samples @ W @ W.T) ** 2

    return by_pymanopt(foreign.Stiefel(*start.shape), lost, "TrustRegions", start)


def subspace(matrix: Array, start: Array) -> Array:
    problem = rmopt.Problem(Grassmann(*start.shape), Captured(matrix))
    return TrustRegions(gradient_norm=1e-6).run(problem, start).point


def their_subspace(matrix: Array, start: Array) -> Array:
    def minus_trace(X: Array) -> Any:
        return -anp.trace(X.T @ matrix @ X)

    return by_pymanopt(foreign.Grassmann(*start.shape), minus_trace, "TrustRegions", start)


def complex_subspace(matrix: Array, start: Array) -> Array:
    # A complex matrix is a real one of twice the size, and so is a basis; each eigenvalue is there twice.
    def real(Z: Array) -> Array:
        return np.block([[Z.real, -Z.imag], [Z.imag, Z.real]])

    k = start.shape[1]
    basis = subspace(0.5 * real(matrix), real(start))
    # The space is that of complex vectors; as many of the 2k columns span it.
    found = basis[: len(matrix)] + 1j * basis[len(matrix) :]
    return np.linalg.svd(found, full_matrices=False)[0][:, :k]


def their_complex_subspace(matrix: Array, start: Array) -> Array:
    def minus_trace(X: Array) -> Any:
        return -anp.real(anp.trace(anp.conj(X.T) @ matrix @ X))

    return by_pymanopt(foreign.ComplexGrassmann(*start.shape), minus_trace, "TrustRegions", start)


def nonlinear_eigenspace(laplacian: Array, start: Array) -> Array:
    factor = scipy.linalg.inv(laplacian)

    @rmopt.autograd_cost
    def energy(X: Array) -> Any:
        density = anp.sum(X * X, axis=1)
        return 0.5 * anp.sum(X * (laplacian @ X)) + 0.25 * density @ factor @ density

    problem = rmopt.Problem(Grassmann(*start.shape), energy)
    return GradientDescent(gradient_norm=1e-6).run(problem, start).point


def their_nonlinear_eigenspace(laplacian: Array, start: Array) -> Array:
    factor = scipy.linalg.inv(laplacian)

    def energy(X: Array) -> Any:
        density = anp.sum(X**2, 1)
        return 0.5 * anp.trace(X.T @ (laplacian @ X)) + 0.25 * density @ factor @ density

    return by_pymanopt(foreign.Grassmann(*start.shape), energy, "TrustRegions", start)


def rotations(targets: Array, start: Array) -> Array:
    @rmopt.autograd_cost
    def minus_match(X: Array) -> Any:
        return -anp.sum(X * targets)

    problem = rmopt.Problem(SpecialOrthogonal(3, len(start)), minus_match)
    return TrustRegions(gradient_norm=1e-6).run(problem, start).point


def their_rotations(targets: Array, start: Array) -> Array:
    def minus_match(X: Array) -> Any:
        return -anp.tensordot(X, targets, axes=3)

    manifold = foreign.SpecialOrthogonalGroup(3, k=len(start))
    return by_pymanopt(manifold, minus_match, "SteepestDescent", start)


class Synchronisation(Cost):
    """−½ tr(XᵀHX) for rotations X, one above the other, and a sparse H of noisy quotients Q ≈ XᵢXⱼᵀ."""

    def __init__(self, i: Array, j: Array, quotients: Array) -> None:
        rows, columns, places = np.append(i, j), np.append(j, i), np.arange(3)
        H = sp.coo_array(
            (
                np.concatenate([quotients, quotients.mT]).ravel(),
                (
                    np.repeat(3 * rows[:, None] + places, 3, axis=1).ravel(),
                    np.tile(3 * columns[:, None] + places, 3).ravel(),
                ),
            )
        )
        self.H = sp.bsr_array(H, blocksize=(3, 3))

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        G = self.hessian(X, X)
        return 0.5 * float(np.vdot(X, G)), G

    def value(self, X: Array) -> float:
        return self.value_and_gradient(X)[0]

    def gradient(self, X: Array) -> Array:
        return self.hessian(X, X)

    def hessian(self, X: Array, direction: Array) -> Array:
        return -(self.H @ direction.reshape(-1, 3)).reshape(X.shape)


def relative_rotations(k: int, count: int, noise: float, rng: Any) -> tuple[Array, Array, Array]:
    """Return pairs i > j of a connected graph on k rotations, and their noisy quotients."""
    manifold = SpecialOrthogonal(3, count)
    R = SpecialOrthogonal(3, k).random_point(rng)
    pairs = {(i, int(rng.integers(i))) for i in range(1, k)}
    while len(pairs) < count:
        j, i = sorted(rng.integers(k, size=2).tolist())
        if i != j:
            pairs.add((i, j))
    i, j = np.array(sorted(pairs)).T
    U, _, Vt = np.linalg.svd(R[i] @ R[j].mT + noise * rng.standard_normal(manifold.shape))
    U[:, :, 2] *= np.linalg.det(U @ Vt)[:, None]
    return i, j, U @ Vt


def along_tree(i: Array, j: Array, quotients: Array) -> Array:
    """Return rotations that fit the quotients along a spanning tree."""
    k = int(i.max()) + 1
    # An entry is the number of a quotient, and below 0 where it leads the other way; 0 would be no entry.
    numbers = np.arange(1, len(i) + 1)
    edges = sp.csr_array((np.append(numbers, -numbers), (np.append(i, j), np.append(j, i))), shape=(k, k))
    order, before = sp.csgraph.breadth_first_order(edges, 0)
    X = np.empty((k, 3, 3))
    X[0] = np.eye(3)
    for one, number in zip(order[1:], edges[order[1:], before[order[1:]]], strict=True):
        quotient = quotients[abs(number) - 1]
        X[one] = (quotient if number > 0 else quotient.T) @ X[before[one]]
    return X


def certificate(cost: Synchronisation, X: Array) -> float:
    """Return the least eigenvalue of Λ − H: where it is 0, up to rounding, no other rotations cost less.

    Λ has the blocks sym((HX)ᵢXᵢᵀ). Where Λ − H is positive semidefinite, −½ tr Λ bounds the cost from below, and at a
    stationary X it is the cost (Rosen et al. 2019).
    """
    blocks = -cost.gradient(X) @ X.mT
    k = len(X)
    dual = sp.bsr_array((0.5 * (blocks + blocks.mT), np.arange(k), np.arange(k + 1)), shape=cost.H.shape)
    return float(eigsh((dual - cost.H).tocsr(), k=4, which="SA", return_eigenvectors=False).min())


# Matrices of low rank, and positive definite ones


class Distance(Cost):
    """|W − M|² of matrices of low rank, without W − M."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    def value(self, point: Any) -> float:
        W = point.as_ambient()
        inner = np.vdot(W.left, self.matrix @ W.right)
        return float(
            np.vdot(self.matrix, self.matrix) - 2.0 * inner + np.vdot(W.left.T @ W.left, W.right.T @ W.right)
        )

    def gradient(self, point: Any) -> Any:
        return (point.as_ambient() - self.matrix) * 2.0

    def hessian(self, point: Any, direction: Any) -> Any:
        return direction * 2.0


def low_rank(matrix: Array, start: LowRankPoint) -> Array:
    manifold = FixedRankEmbedded(*matrix.shape, len(start.S))
    problem = rmopt.Problem(manifold, Distance(matrix))
    return manifold.to_dense(GradientDescent(gradient_norm=1e-6).run(problem, start).point)


def their_low_rank(matrix: Array, start: LowRankPoint) -> Array:
    def distance(u: Array, s: Array, vt: Array) -> Any:
        return anp.linalg.norm(u @ anp.diag(s) @ vt - matrix) ** 2

    manifold = foreign.FixedRankEmbedded(*matrix.shape, len(start.S))
    begin = _FixedRankPoint(start.U, np.diag(start.S).copy(), start.V.T)
    u, s, vt = by_pymanopt(manifold, distance, "ConjugateGradient", begin, beta_rule="PolakRibiere")
    return (u * s) @ vt


def low_rank_psd(matrix: Array, start: Array) -> Array:
    manifold = PSDFixedRank(*start.shape)
    problem = rmopt.Problem(manifold, Distance(matrix))
    point = TrustRegions(gradient_norm=1e-6).run(problem, manifold.from_factor(start)).point
    return manifold.to_dense(point)


def their_low_rank_psd(matrix: Array, start: Array) -> Array:
    def distance(Y: Array) -> Any:
        return anp.linalg.norm(Y @ Y.T - matrix, "fro") ** 2

    manifold = foreign.PSDFixedRank(*start.shape)
    options = {"max_iterations": 500, "min_step_size": 1e-6}
    Y = by_pymanopt(manifold, distance, "TrustRegions", start, **options)
    return Y @ Y.T


def centre(matrices: Array, start: Array) -> Array:
    return frechet_mean(PositiveDefinite(len(start)), list(matrices), tol=1e-9)


def their_centre(matrices: Array, start: Array) -> Array:
    manifold = foreign.SymmetricPositiveDefinite(len(start))

    @pymanopt.function.numpy(manifold)
    def cost(X: Array) -> float:
        return sum(manifold.dist(X, A) ** 2 for A in matrices) / (2 * len(matrices))

    @pymanopt.function.numpy(manifold)
    def gradient(X: Array) -> Array:
        return -sum(manifold.log(X, A) for A in matrices) / len(matrices)

    problem = pymanopt.Problem(manifold, cost, riemannian_gradient=gradient)
    return optimizers.SteepestDescent(verbosity=0).run(problem, initial_point=start).point


# Flat spaces, and products


def regression(samples: Array, targets: Array, start: Array) -> Array:
    @rmopt.autograd_cost
    def residuals(weights: Array) -> Any:
        return anp.sum((targets - samples @ weights) ** 2)

    problem = rmopt.Problem(Euclidean(*start.shape), residuals)
    return TrustRegions(gradient_norm=1e-6).run(problem, start).point


def their_regression(samples: Array, targets: Array, start: Array) -> Array:
    def residuals(weights: Array) -> Any:
        return anp.linalg.norm(targets - samples @ weights) ** 2

    return by_pymanopt(foreign.Euclidean(*start.shape), residuals, "TrustRegions", start)


def offset_regression(samples: Array, targets: Array, weights: Array, offset: Array) -> Any:
    @rmopt.autograd_cost
    def residuals(weights: Array, offset: Array) -> Any:
        return anp.sum((targets - samples @ weights - offset) ** 2)

    manifold = Product([Euclidean(*weights.shape), Euclidean(1, 1)])
    start = Parts([weights, offset])
    return TrustRegions(gradient_norm=1e-6).run(rmopt.Problem(manifold, residuals), start).point


def their_offset_regression(samples: Array, targets: Array, weights: Array, offset: Array) -> Any:
    def residuals(weights: Array, offset: Array) -> Any:
        return anp.sum((targets - samples @ weights - offset) ** 2)

    manifold = foreign.Product([foreign.Euclidean(*weights.shape), foreign.Euclidean(1, 1)])
    return by_pymanopt(manifold, residuals, "TrustRegions", [weights, offset])


def mixture(samples: Array, covariances: Array, weights: Array) -> Any:
    """A mixture of Gaussians, whose means and covariances are one matrix each (Hosseini and Sra 2015)."""
    longer = np.vstack([samples.T, np.ones(len(samples))])

    @rmopt.autograd_cost
    def minus_likelihood(*parts: Array) -> Any:
        S, weights = anp.stack(parts[:-1]), anp.concatenate([parts[-1], anp.zeros((1, 1))])
        squares = anp.sum(longer * (anp.linalg.inv(S) @ longer), axis=1)
        scores = weights - 0.5 * (squares + anp.linalg.slogdet(S)[1][:, None])
        return len(samples) * anp.log(anp.sum(anp.exp(weights))) - anp.sum(logsumexp(scores, axis=0))

    k, d, _ = covariances.shape
    manifold = Product([*(PositiveDefinite(d) for _ in range(k)), Euclidean(k - 1, 1)])
    problem = rmopt.Problem(manifold, minus_likelihood)
    point = GradientDescent(gradient_norm=1e-6).run(problem, Parts([*covariances, weights])).point
    return np.stack(point[:k]), point[k]


def their_mixture(samples: Array, covariances: Array, weights: Array) -> Any:
    longer = np.vstack([samples.T, np.ones(len(samples))])[None]

    def minus_likelihood(S: Array, v: Array) -> Any:
        shares = anp.exp(anp.append(v, 0.0))
        shares = anp.log(shares / anp.sum(shares))
        squares = anp.sum(longer * anp.linalg.solve(S, longer), axis=1)
        scores = shares[:, None] - 0.5 * (squares + anp.linalg.slogdet(S)[1][:, None])
        return -anp.sum(logsumexp(scores, axis=0))

    k, d, _ = covariances.shape
    manifold = foreign.Product([foreign.SymmetricPositiveDefinite(d, k=k), foreign.Euclidean(k - 1)])
    S, v = by_pymanopt(manifold, minus_likelihood, "SteepestDescent", [covariances, weights[:, 0]])
    return S, v[:, None]


# The data, small for the default tests and large for the times; the cost of what was found; and the least cost, where
# a closed form is known.


@dataclass
class Example:
    """One of the examples.

    Attributes
    ----------
    name, manifold, derivatives : str
    data : callable
        From a generator and whether it is to be large to the arguments of both functions.
    ours, theirs : callable
    value : callable
        From the arguments and what was found to the cost.
    least : callable, optional
        From the arguments to the least cost.
    """

    name: str
    manifold: str
    derivatives: str
    data: Callable[[Any, bool], tuple[Any, ...]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    value: Callable[..., float]
    least: Callable[..., float] | None = None


def symmetric(rng: Any, n: int) -> Array:
    A = rng.standard_normal((n, n))
    return 0.5 * (A + A.T)


def unit(rng: Any, *shape: int) -> Array:
    X = rng.standard_normal(shape)
    return X / np.linalg.norm(X, axis=0)


def frame(rng: Any, n: int, k: int) -> Array:
    return np.linalg.qr(rng.standard_normal((n, k)))[0]


def of_eigenvector(rng: Any, large: bool) -> tuple[Array, ...]:
    n = 1000 if large else 16
    return symmetric(rng, n), unit(rng, n)


def of_unit_columns(rng: Any, large: bool) -> tuple[Array, ...]:
    shape = (100, 5000) if large else (5, 8)
    return rng.standard_normal(shape), unit(rng, *shape)


def of_correlations(rng: Any, large: bool) -> tuple[Array, ...]:
    n, k = (300, 20) if large else (10, 3)
    return symmetric(rng, n), unit(rng, k, n)


def of_packing(rng: Any, large: bool) -> tuple[Array, ...]:
    return (unit(rng, 3, 48 if large else 12),)


def of_max_cut(rng: Any, large: bool) -> tuple[Array, ...]:
    n, k = (300, 26) if large else (20, 7)
    edges = np.triu(rng.random((n, n)) < 0.1, 1) * 1.0
    edges += edges.T
    return np.diag(edges.sum(0)) - edges, unit(rng, k, n)


def of_components(rng: Any, large: bool) -> tuple[Array, ...]:
    count, n, k = (1000, 100, 5) if large else (200, 3, 2)
    samples = rng.standard_normal((count, n)) * np.linspace(3.0, 1.0, n)
    return samples - samples.mean(axis=0), frame(rng, n, k)


def of_subspace(rng: Any, large: bool) -> tuple[Array, ...]:
    n, k = (500, 10) if large else (16, 2)
    return symmetric(rng, n), frame(rng, n, k)


def of_complex_subspace(rng: Any, large: bool) -> tuple[Array, ...]:
    n, k = (300, 5) if large else (12, 2)
    A, X = ((rng.standard_normal((n, m)) + 1j * rng.standard_normal((n, m))) for m in (n, k))
    return A + A.conj().T, np.linalg.qr(X)[0]


def of_nonlinear_eigenspace(rng: Any, large: bool) -> tuple[Array, ...]:
    n, k = (500, 20) if large else (20, 3)
    return 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1), frame(rng, n, k)


def of_rotations(rng: Any, large: bool) -> tuple[Array, ...]:
    k = 100 if large else 10
    A, B = rng.standard_normal((2, k, 3, 10))
    return A @ B.mT, SpecialOrthogonal(3, k).random_point(rng)


def of_low_rank(rng: Any, large: bool) -> tuple[Any, ...]:
    n, m, k = (600, 500, 10) if large else (8, 6, 2)
    matrix = rng.standard_normal((n, k)) @ rng.standard_normal((k, m)) + 0.3 * rng.standard_normal((n, m))
    return matrix, FixedRankEmbedded(n, m, k).random_point(rng)


def of_low_rank_psd(rng: Any, large: bool) -> tuple[Array, ...]:
    n, k = (500, 5) if large else (20, 2)
    Y = rng.standard_normal((n, k + 3)) * np.append(np.ones(k), np.full(3, 0.3))
    return Y @ Y.T, rng.standard_normal((n, k))


def of_centre(rng: Any, large: bool) -> tuple[Array, ...]:
    n, count = (10, 100) if large else (4, 10)
    A = rng.standard_normal((count, n, 3 * n))
    matrices = A @ A.mT / n
    return matrices, matrices[0]


def of_regression(rng: Any, large: bool) -> tuple[Array, ...]:
    count, n = (20_000, 100) if large else (200, 3)
    samples = rng.standard_normal((count, n)) * np.linspace(1.0, 10.0, n)
    return samples, 2.0 + samples.sum(1, keepdims=True) + rng.standard_normal((count, 1)), np.zeros((n, 1))


def of_offset_regression(rng: Any, large: bool) -> tuple[Array, ...]:
    return *of_regression(rng, large), np.zeros((1, 1))


def of_mixture(rng: Any, large: bool) -> tuple[Array, ...]:
    count = 1000 if large else 200
    kinds = rng.choice(3, size=count, p=[0.1, 0.6, 0.3])
    means = np.array([[-4.0, 1.0], [0.0, 0.0], [2.0, -1.0]])
    spreads = np.array([[[3.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 3.0]], [[0.5, 0.0], [0.0, 0.5]]])
    noise = np.einsum("nij,nj->ni", np.linalg.cholesky(spreads)[kinds], rng.standard_normal((count, 2)))
    samples = means[kinds] + noise
    # All begin with the spread of the samples, each around a mean of its own.
    longer = np.hstack([means + 0.5 * rng.standard_normal((3, 2)), np.ones((3, 1))])
    start = longer[:, :, None] * longer[:, None, :]
    start[:, :2, :2] += np.cov(samples.T)
    return samples, start, np.zeros((2, 1))


def energy_of(arguments: Any, X: Array) -> float:
    laplacian, density = arguments[0], np.sum(X * X, axis=1)
    return float(0.5 * np.sum(X * (laplacian @ X)) + 0.25 * density @ np.linalg.solve(laplacian, density))


def nearest_of(arguments: Any, X: Array) -> float:
    return float(0.005 * scipy.special.logsumexp((X.T @ X)[np.triu_indices(X.shape[1], 1)] / 0.005))


def icosahedron(arguments: Any) -> float:
    golden = 0.5 * (1.0 + 5.0**0.5)
    corners = np.array([(0.0, a, b * golden) for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    corners = np.vstack([np.roll(corners, i, axis=1) for i in range(3)]).T
    return nearest_of(arguments, corners / np.linalg.norm(corners, axis=0))


def nearest_rotations(arguments: Any) -> float:
    U, s, Vt = np.linalg.svd(arguments[0])
    s[:, 2] *= np.linalg.det(U @ Vt)
    return -float(s.sum())


def squares_around(arguments: Any, X: Array) -> float:
    whole = np.linalg.inv(scipy.linalg.sqrtm(X))
    logarithms = np.log(np.linalg.eigvalsh(whole @ arguments[0] @ whole))
    return float(np.sum(logarithms**2) / (2 * len(arguments[0])))


def minus_likelihood_of(arguments: Any, found: Any) -> float:
    (S, v), samples = found, arguments[0]
    scores = np.append(v, 0.0)
    longer = np.hstack([samples, np.ones((len(samples), 1))])
    densities = [
        score
        - 0.5 * (np.einsum("ni,in->n", longer, np.linalg.solve(one, longer.T)) + np.linalg.slogdet(one)[1])
        for one, score in zip(S, scores - scipy.special.logsumexp(scores), strict=True)
    ]
    return -float(np.sum(scipy.special.logsumexp(densities, axis=0)))


def fitted(samples: Array, targets: Array) -> float:
    return float(np.linalg.lstsq(samples, targets, rcond=None)[1][0])


def least_trace(arguments: Any) -> float:
    k = arguments[1].shape[1] if arguments[1].ndim > 1 else 1
    return -float(np.linalg.eigvalsh(arguments[0])[-k:].sum())


def left_over(arguments: Any, k: int) -> float:
    return float(np.sum(np.linalg.svd(arguments[0], compute_uv=False)[k:] ** 2))


def distance_of(arguments: Any, X: Array) -> float:
    return float(np.sum((X - arguments[0]) ** 2))


def minus_trace_of(arguments: Any, X: Array) -> float:
    return -float(np.vdot(X, arguments[0] @ X).real)


def correlations_of(arguments: Any, X: Array) -> float:
    return 0.25 * float(np.sum((X.T @ X - arguments[0]) ** 2))


EXAMPLES = [
    Example(
        "dominant eigenvector", "Sphere", "by hand", of_eigenvector, eigenvector, their_eigenvector,
        minus_trace_of, least_trace,
    ),
    Example(
        "unit columns", "Oblique", "autograd", of_unit_columns, unit_columns, their_unit_columns,
        lambda a, X: 0.5 * distance_of(a, X),
        lambda a: 0.5 * float(np.sum((np.linalg.norm(a[0], axis=0) - 1.0) ** 2)),
    ),
    Example(
        "rank-k correlations", "Oblique", "autograd", of_correlations, correlations, their_correlations,
        correlations_of,
    ),
    Example(
        "packing on the sphere", "Oblique", "by hand", of_packing, packing, their_packing, nearest_of,
        lambda a: icosahedron(a) if a[0].shape[1] == 12 else -np.inf,
    ),
    Example(
        "max-cut", "Oblique", "autograd", of_max_cut, max_cut, their_max_cut,
        lambda a, X: -0.25 * float(np.sum(X * (X @ a[0]))),
    ),
    Example(
        "principal components", "Stiefel", "by hand", of_components, components, their_components,
        lambda a, W: float(np.sum((a[0] - a[0] @ W @ W.T) ** 2)), lambda a: left_over(a, a[1].shape[1]),
    ),
    Example(
        "invariant subspace", "Grassmann", "by hand", of_subspace, subspace, their_subspace,
        minus_trace_of, least_trace,
    ),
    Example(
        "complex subspace", "Grassmann", "by hand", of_complex_subspace, complex_subspace,
        their_complex_subspace, minus_trace_of, least_trace,
    ),
    Example(
        "nonlinear eigenspace", "Grassmann", "autograd", of_nonlinear_eigenspace, nonlinear_eigenspace,
        their_nonlinear_eigenspace, energy_of,
    ),
    Example(
        "optimal rotations", "SpecialOrthogonal", "autograd", of_rotations, rotations, their_rotations,
        lambda a, X: -float(np.sum(X * a[0])), nearest_rotations,
    ),
    Example(
        "low rank", "FixedRankEmbedded", "by hand", of_low_rank, low_rank, their_low_rank, distance_of,
        lambda a: left_over(a, len(a[1].S)),
    ),
    Example(
        "low rank, positive semidefinite", "PSDFixedRank", "by hand", of_low_rank_psd, low_rank_psd,
        their_low_rank_psd, distance_of, lambda a: left_over(a, a[1].shape[1]),
    ),
    Example("centre", "PositiveDefinite", "by hand", of_centre, centre, their_centre, squares_around),
    Example(
        "linear regression", "Euclidean", "autograd", of_regression, regression, their_regression,
        lambda a, w: float(np.sum((a[1] - a[0] @ w) ** 2)), lambda a: fitted(a[0], a[1]),
    ),
    Example(
        "regression with offset", "Euclidean × Euclidean", "autograd", of_offset_regression,
        offset_regression, their_offset_regression,
        lambda a, x: float(np.sum((a[1] - a[0] @ x[0] - x[1]) ** 2)),
        lambda a: fitted(np.hstack([a[0], np.ones((len(a[0]), 1))]), a[1]),
    ),
    Example(
        "mixture of Gaussians", "PositiveDefinite³ × Euclidean", "autograd", of_mixture, mixture,
        their_mixture, minus_likelihood_of,
    ),
]  # fmt: skip
