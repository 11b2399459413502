"""Matrices with XᴴBX = I: eigenvalues of pencils and canonical correlations, and B of every kind."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from in_library import LIBRARIES, array_of, through
from scipy.sparse.linalg import eigsh
from tabled import each_row

from rmopt import Problem
from rmopt import namespaces as ns
from rmopt.checks import checks_of
from rmopt.core import Cost, Parts
from rmopt.errors import MissingCapabilityError
from rmopt.manifolds import GeneralizedGrassmann, GeneralizedStiefel, Grassmann, Product, Stiefel
from rmopt.solvers import TrustRegions

KINDS = (GeneralizedStiefel, GeneralizedGrassmann)
MASS = sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(7, 7)) / 6.0
HERMITIAN = MASS.toarray() + 0.1j * (np.eye(7, k=1) - np.eye(7, k=-1))


class Operator:
    """A positive definite matrix that is known by products and solves."""

    def __init__(self, B: Any, inverse: Any = None) -> None:
        self.shape, self.B = B.shape, B
        self.inverse = np.linalg.inv(B) if inverse is None else inverse

    def __matmul__(self, X: Any) -> Any:
        return self.B @ X

    def solve(self, X: Any) -> Any:
        return self.inverse @ X


FORMS: tuple[tuple[Any, str], ...] = (
    (MASS, "real"), (MASS.toarray(), "real"), (Operator(MASS.toarray()), "real"), (MASS, "complex"),
    (HERMITIAN, "complex"), (sp.csc_array(HERMITIAN), "complex"), (Operator(HERMITIAN), "complex"),
)  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold_for_every_kind_of_B(kind: Any, library: str) -> None:
    failed = []
    for place, (B, field) in enumerate(FORMS):
        M = through(kind(B, 3, field=field), library)
        for dtype in (np.float64, np.float32):
            failed += [f"{place}: {check}" for check in checks_of(M, place, dtype) if not check]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_B_gives_the_same_numbers_of_many_points(kind: Any) -> None:
    rng, like = np.random.default_rng(0), array_of("array_api_strict")
    dense = kind(MASS.toarray(), 2)
    X = np.array([dense.random_point(rng) for _ in range(3)])
    G = rng.standard_normal(X.shape)
    for other in (kind(MASS, 2), kind(Operator(MASS.toarray()), 2)):
        for name in ("projection", "euclidean_to_riemannian_gradient", "retraction"):
            wanted = np.array([getattr(dense, name)(x, g) for x, g in zip(X, G, strict=True)])
            for given in ((X, G), (ns.asarray(X, like), ns.asarray(G, like))):
                found = getattr(other, name)(*given)
                assert isinstance(found, type(given[0]))
                np.testing.assert_allclose(ns.to_numpy(found), wanted, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "plain"), [(GeneralizedStiefel, Stiefel), (GeneralizedGrassmann, Grassmann)]
)
@pytest.mark.parametrize("field", ["real", "complex"])
def test_with_an_identity_it_is_the_plain_manifold(kind: Any, plain: Any, field: str) -> None:
    M, N, rng = kind(sp.eye_array(6), 2, field=field), plain(6, 2, field=field), np.random.default_rng(0)
    x, G, H = N.random_point(rng), N.drawn(rng), N.drawn(rng)
    v = N.projection(x, G)
    for name, given in {
        "projection": (G,), "euclidean_to_riemannian_gradient": (G,), "euclidean_to_riemannian_hessian": (G, H, v),
        "inner_product": (v, N.projection(x, H)),
    }.items():  # fmt: skip
        np.testing.assert_allclose(getattr(M, name)(x, *given), getattr(N, name)(x, *given), atol=1e-14)
    np.testing.assert_allclose(M.retraction(x, v), N.fitting("polar")(N, x, v), atol=1e-14)
    assert (M.dim, M.typical_dist, M.diameter) == (N.dim, N.typical_dist, N.diameter)
    assert not M.knows("exp")
    with pytest.raises(MissingCapabilityError, match="give B as an array"):
        M.exp(x, v)


class Energy(Cost):
    """Half of the trace of XᴴAX."""

    def __init__(self, A: Any) -> None:
        self.A = A

    def value(self, point: Any) -> float:
        return 0.5 * float(np.vdot(point, self.A @ point).real)

    def gradient(self, point: Any) -> Any:
        return self.A @ point

    def hessian(self, point: Any, direction: Any) -> Any:
        return self.A @ direction


def test_a_sparse_pencil_of_3000_rows() -> None:
    n, p, rng = 3000, 4, np.random.default_rng(0)
    stiffness = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    stiffness = sp.csr_array(stiffness + sp.diags_array(0.01 * rng.random(n)))
    mass = sp.csc_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)) / 6.0)
    problem = Problem(GeneralizedGrassmann(mass, p), Energy(stiffness))
    result = TrustRegions(tol=1e-7).run(problem, random_state=1)
    wanted = eigsh(stiffness, p, M=mass, sigma=0.0)[0]
    assert result.converged
    assert result.cost == pytest.approx(0.5 * wanted.sum(), rel=1e-7)
    found = np.linalg.eigvalsh(result.point.T @ (stiffness @ result.point))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_hermitian_pencil() -> None:
    A, M = np.diag(np.arange(7.0)), GeneralizedStiefel(HERMITIAN, 2, field="complex")
    result = TrustRegions(tol=1e-9).run(Problem(M, Energy(A)), random_state=0)
    assert 2.0 * result.cost == pytest.approx(scipy.linalg.eigvalsh(A, HERMITIAN)[:2].sum(), abs=1e-10)


class Correlation(Cost):
    """Minus the weighted correlations of columns of two tables."""

    def __init__(self, cross: Any) -> None:
        self.cross, self.weights = cross, np.array([3.0, 2.0, 1.0])

    def value(self, point: Any) -> float:
        return -float(np.sum(point[0] * (self.cross @ point[1] * self.weights)))

    def gradient(self, point: Any) -> Any:
        return Parts((-self.cross @ point[1] * self.weights, -self.cross.T @ point[0] * self.weights))


def test_canonical_correlations() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 20))
    Y = 0.3 * X[:, :15] @ rng.standard_normal((15, 15)) + rng.standard_normal((400, 15))
    A, B, cross = X.T @ X, Y.T @ Y, X.T @ Y
    M = Product([GeneralizedStiefel(A, 3), GeneralizedStiefel(B, 3)])
    result = TrustRegions(tol=1e-9).run(Problem(M, Correlation(cross)), random_state=0)
    left, right = (np.linalg.qr(table)[0] for table in (X, Y))
    wanted = np.linalg.svd(left.T @ right, compute_uv=False)[:3]
    found = np.diag(result.point[0].T @ cross @ result.point[1])
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@each_row("B, reason", [
    (np.diag([1.0, 1.0, -1.0]), "not positive definite"), (np.triu(np.ones((3, 3))), "not positive definite"),
    (sp.csr_array(np.diag([1.0, 0.0, 1.0])), "not positive definite"), (np.full((3, 3), np.nan), "not positive"),
    (sp.csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])), "not positive definite"),
    (Operator(-np.eye(3)), "not positive definite"), (Operator(np.eye(3), np.ones((3, 3))), "is not X"),
    (Operator(np.triu(np.ones((3, 3)))), "not positive definite"), (np.eye(3) + 0j, "field='complex'"),
    (np.ones((3, 2)), "square"), ("B", "must be an array"), (np.eye(2), "empty|r < m"),
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_inner_product_is_refused(kind: Any, B: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        kind(B, 3 if getattr(B, "shape", None) == (2, 2) else 2)
