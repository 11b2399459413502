"""Leading eigenpairs of operators."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from regression_runs import Array

from problems.coembedding import MultilabelCoembedding, TagRecommender
from problems.coembedding.estimators import minimise
from rmopt.linalg import leading_eigh
from rmopt.solvers import RankIncremental
from rmopt.solvers.certified.certificate import leading_eigenpairs


@pytest.mark.parametrize(("p", "k"), [(30, 4), (700, 5), (700, 300)])
@pytest.mark.parametrize("top", [3.0, 1e-7, -0.2])
def test_leading_eigenpairs(p: int, k: int, top: float) -> None:
    """Some directions are known, with eigenvalues near 0, as at an optimum; the others have a spread."""
    rng = np.random.default_rng(p)
    V = np.linalg.qr(rng.standard_normal((p, p)))[0]
    others = np.concatenate([[top], top - np.linspace(0.1, 2.0, 7), -rng.uniform(2.3, 50, p - 14)])
    matrix = (V * np.concatenate([1e-9 * rng.standard_normal(6), others])) @ V.T
    found, vectors, bound = leading_eigenpairs(lambda X: matrix @ X, V[:, :6], k, 1.0, 1e-8)
    exact = float(np.linalg.eigvalsh(matrix)[-1])
    assert exact - 1e-13 <= bound <= exact + 1e-6
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(found)), atol=1e-12)
    assert 1 <= len(found) <= k
    # Rough ones, but of the leading space.
    if top > 1.0:
        wanted = np.sort(others)[::-1][: min(k, 8)]
        np.testing.assert_allclose(found[: len(wanted)], wanted, atol=0.05 * top)
        np.testing.assert_allclose(found[len(wanted) :], 0.0, atol=1e-8)


class Thin:
    """Features that refuse to be multiplied with anything but a few columns."""

    def __init__(self, features: Any, widest: int) -> None:
        self.features, self.widest = features, widest
        self.shape = features.shape

    @property
    def T(self) -> "Thin":
        return Thin(self.features.T, self.widest)

    def __matmul__(self, other: Array) -> Array:
        assert np.ndim(other) == 2
        assert other.shape[1] <= self.widest
        return self.features @ other


def test_nothing_of_size_p_by_p_is_formed() -> None:
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    X = sp.random_array((60, 3000), density=0.01, random_state=rng, format="csr")
    loss = MultilabelCoembedding(X, rng.random((60, 4)) < 0.4)
    loss.features = Thin(loss.features, 20)
    result = minimise(loss, 0.2, RankIncremental(tol=1e-5))
    assert result.is_global
    assert result.point.rank > 1


def test_equal_eigenvalues_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK's bisection returns too few of them now and then, and for some builds none in these tags."""
    TagRecommender().fit([[1, 2], [1, 2], [2, 2], [0, 1]], [2, 0, 0, 0])
    whole = scipy.linalg.eigh

    def losing(*matrices: Any, subset_by_index: Any = None, **options: Any) -> Any:
        values, vectors = whole(*matrices, **options)
        return (values, vectors) if subset_by_index is None else (values[:0], vectors[:, :0])

    monkeypatch.setattr(scipy.linalg, "eigh", losing)
    rng = np.random.default_rng(0)
    metric = np.diag(rng.uniform(1.0, 2.0, 9))
    matrix = np.diag(rng.choice([0.0, -1.0, 0.3], 9))
    for b in (None, metric):
        values, vectors = leading_eigh(matrix, 3, b)
        exact = matrix.diagonal() / (1.0 if b is None else b.diagonal())
        np.testing.assert_allclose(values, np.sort(exact)[::-1][:3], atol=1e-14)
        np.testing.assert_allclose(
            matrix @ vectors, (vectors if b is None else b @ vectors) * values, atol=1e-14
        )
