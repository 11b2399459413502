"""Small dense linear algebra: the factorisations."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from tabled import each_row

from rmopt import linalg
from rmopt import namespaces as ns
from rmopt.linalg import (
    factor_product,
    lanczos_eigh,
    lanczos_svd,
    symmetric,
    tall_qr,
    truncated_svd_of_product,
    whitened,
)


def test_a_singular_factor_is_named() -> None:
    for factor in (np.diag([1.0, 0.0]), np.diag([1.0, 0.0]).astype(np.float32)):
        with pytest.raises(np.linalg.LinAlgError, match="its diagonal is zero at 1"):
            whitened(factor, np.eye(2, dtype=factor.dtype))


def test_factorisations_of_products() -> None:
    rng = np.random.default_rng(1)
    A, core, B = rng.standard_normal((7, 3)), rng.standard_normal((3, 3)), rng.standard_normal((6, 3))
    U, S, V = factor_product(A, core, B)
    np.testing.assert_allclose(U @ S @ V.T, A @ core @ B.T, atol=1e-13)
    U, sigma, V = truncated_svd_of_product(A, core, B, 2)
    expected = np.linalg.svd(A @ core @ B.T)
    np.testing.assert_allclose(sigma, expected[1][:2])
    np.testing.assert_allclose((U * sigma) @ V.T, (expected[0][:, :2] * sigma) @ expected[2][:2], atol=1e-12)
    np.testing.assert_array_equal(symmetric(core), symmetric(core).T)


@each_row("shape", [(12, 30), (30, 12)])
def test_lanczos_runs_have_equal_bits_beyond_the_rank(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    table = np.zeros(shape)
    table[:8, :8] = rng.standard_normal((8, 3)) @ rng.standard_normal((3, 8))
    matrix = sp.csr_array(table)
    U, values, Vt = lanczos_svd(matrix, 6)
    np.testing.assert_allclose(values, np.linalg.svd(table)[1][:6], atol=1e-12)
    np.testing.assert_allclose((U * values) @ Vt, table, atol=1e-12)
    for basis in (U, Vt.T):
        np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)
    assert all(map(np.array_equal, lanczos_svd(matrix, 6), (U, values, Vt)))
    gram = matrix @ matrix.T
    assert all(map(np.array_equal, lanczos_eigh(gram, 6), lanczos_eigh(gram, 6)))


@each_row("dtype", [np.float64, np.float32])
@each_row("shape", [(200_001, 6), (50, 50), (2**20 + 3, 1)])
@each_row("share", [0.0, 0.9, 1.0])
def test_a_qr_of_many_rows_is_exact_whatever_the_columns_are(
    shape: tuple[int, int], dtype: type, share: float
) -> None:
    """Columns of sizes from 1 to 10¹² (10⁵ in single precision), the last up to a sum of others: Q is orthonormal."""
    k = shape[1]
    A = np.random.default_rng(0).standard_normal(shape)
    if k > 1:
        A[:, -1] = share * A[:, :-1].mean(1) * np.sqrt(k - 1) + (1.0 - share) * A[:, -1]
    A = (A * np.geomspace(1.0, 1e12 if dtype is np.float64 else 1e5, k)).astype(dtype)
    Q, R = tall_qr(A)
    eps = np.finfo(dtype).eps
    assert Q.dtype == R.dtype == dtype
    assert np.abs(Q.T @ Q - np.eye(k)).max() < 60 * eps
    assert np.array_equal(R, np.triu(R))
    assert np.all(np.abs(Q @ R - A).max(0) <= 60 * eps * np.linalg.norm(A, axis=0))


def test_a_qr_of_columns_that_are_nearly_orthogonal_goes_by_their_gram_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, qr, called = np.random.default_rng(0), np.linalg.qr, []
    monkeypatch.setattr(np.linalg, "qr", lambda *a, **how: called.append(1) or qr(*a, **how))
    A = rng.standard_normal((40_000, 8)) * np.geomspace(1e-120, 1e120, 8)
    tall_qr(A)
    assert not called
    # Columns of which squares are lost, and of length zero, and what is no number.
    for worst in (1e-158, 1e-180, 1e180, 0.0, np.nan):
        A[:, 0] = worst * rng.standard_normal(len(A)) if worst == worst else worst
        called.clear()
        Q, _ = tall_qr(A)
        assert called
        assert np.isnan(worst) or np.abs(Q.T @ Q - np.eye(8)).max() < 1e-13
    for kind in (np.int8, np.int16, np.uint8, np.bool_):
        Q, _ = tall_qr(rng.integers(2, size=(40_000, 8)).astype(kind))
        assert np.abs(Q.T @ Q - np.eye(8)).max() < 1e-13


def test_all_singular_values() -> None:
    matrix = sp.csr_array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]])
    for one in (matrix, matrix.T, matrix[:1]):
        U, values, Vt = lanczos_svd(one, min(one.shape))
        np.testing.assert_allclose(U * values @ Vt, one.toarray(), atol=1e-12)


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch", "jax.numpy"])
@each_row("leading, field", [((), "real"), ((), "complex"), ((4,), "real"), ((4,), "complex")])
def test_functions_of_small_matrices_take_arrays_of_any_library(
    library: str, leading: Any, field: str
) -> None:
    pytest.importorskip(library.partition(".")[0])
    like, rng = import_module(library).zeros(1), np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        found = rng.standard_normal((*leading, *shape)) + 1j * rng.standard_normal((*leading, *shape))
        return found if field == "complex" else found.real.copy()

    A, B, C = drawn(6, 3), drawn(7, 3), drawn(3, 3)
    K, Q = C - ns.adjoint(C), np.linalg.qr(A)[0]
    a, b, c, k, q, xi = (ns.asarray(one, like) for one in (A, B, C, K, Q, drawn(6, 3)))
    U, S, V = linalg.factor_product(a, c, b)
    P, sigma, W = linalg.truncated_svd_of_product(a, c, b, 2)
    frame, core = linalg.skew_form(q, xi)
    signed, turned = linalg.positive_qr(a), scipy.linalg.expm(K)
    upper = ns.adjoint(signed) @ a
    cosines = linalg.gram_functions(k, linalg.cosine)[0]
    found = {
        "product": (U @ S @ ns.adjoint(V), A @ C @ ns.adjoint(B)),
        "values": (sigma, np.linalg.svd(A @ C @ ns.adjoint(B))[1][..., :2]),
        "triples": (ns.adjoint(P) @ (a @ c @ ns.adjoint(b)) @ W, ns.to_numpy(sigma)[..., None] * np.eye(2)),
        "signed": (upper, np.triu(abs(ns.to_numpy(upper)) * np.eye(3)) + np.triu(ns.to_numpy(upper), 1)),
        "cosines": (cosines, 0.5 * (turned + scipy.linalg.expm(-K))),
        "rotation": (linalg.rotation(k), turned),
        "cayley": (linalg.cayley(k), np.linalg.solve(np.eye(3) - K / 2, np.eye(3) + K / 2)),
        "tangent": (frame @ core[..., :3], ns.to_numpy(xi)),
        "symmetric": (linalg.symmetric(c), (C + ns.adjoint(C)) / 2),
        "eigenvalues": (linalg.small_eigh(linalg.symmetric(c))[0], np.linalg.eigvalsh((C + ns.adjoint(C)) / 2)),
        "outside": (linalg.leave_span(q, xi), (np.eye(6) - Q @ ns.adjoint(Q)) @ ns.to_numpy(xi)),
        "near": (linalg.orthonormalised(q * (1.0 + 1e-9)), Q),
    }  # fmt: skip
    for name, (value, expected) in found.items():
        assert type(value) is type(like), name
        np.testing.assert_allclose(ns.to_numpy(value), expected, atol=1e-12, err_msg=name)
    for one, log in zip(turned.reshape(-1, 3, 3), K.reshape(-1, 3, 3), strict=True):
        if abs(np.linalg.eigvals(log)).max() < np.pi:
            np.testing.assert_allclose(linalg.rotation_log(one), log, atol=1e-12)


def test_a_tall_qr_by_the_gram_matrix_is_that_of_any_library() -> None:
    A = np.random.default_rng(0).standard_normal((2, 50_000, 6))
    for library in ("numpy", "array_api_strict", "torch", "jax.numpy"):
        pytest.importorskip(library.partition(".")[0])
        like = import_module(library).zeros(1)
        a = ns.asarray(A[0] + 1j * A[1], like)
        q, r = linalg.tall_qr(a)
        assert abs(ns.to_numpy(ns.adjoint(q) @ q) - np.eye(6)).max() < 3e-14
        np.testing.assert_allclose(ns.to_numpy(q @ r), ns.to_numpy(a), atol=1e-13)
