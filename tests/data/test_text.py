"""Choosing and weighting terms, against scikit-learn and by hand."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import mutual_info_score
from tabled import each_row

from problems.data import ClassBundle
from problems.data.text import information_gain, informative_unit_rows


@pytest.fixture
def counts() -> csr_array:
    """60 documents × 40 terms; document 7 is empty, term 3 is everywhere else, term 5 nowhere."""
    rng = np.random.default_rng(1)
    dense = rng.poisson(0.3, (60, 40)).astype(float)
    dense[:, 3], dense[:, 5], dense[7] = 2, 0, 0
    return csr_array(dense)


@pytest.fixture
def y() -> np.ndarray:
    return np.random.default_rng(2).permutation(np.arange(60) % 4)


@pytest.fixture
def train() -> np.ndarray:
    return np.random.default_rng(3).permutation(np.arange(60) < 36)


class TestInformationGain:
    @each_row("form", [csr_array, coo_array, lambda X: X.toarray(), lambda X: X.tocsc().astype(int)])
    def test_is_mutual_information_in_bits(self, counts: csr_array, y: np.ndarray, form: Any) -> None:
        present = counts.toarray() > 0
        expected = [mutual_info_score(y, term) / np.log(2) for term in present.T]
        np.testing.assert_allclose(information_gain(form(counts), y), expected, atol=1e-13)

    def test_by_hand(self) -> None:
        """Of four documents: the first term tells all of one bit, the second nothing, the third 0.3113."""
        X = np.array([[1, 1, 1], [5, 0, 0], [0, 1, 0], [0, 0, 0]])
        bits = 1 - 0.75 * (np.log2(3) / 3 + 2 / 3 * np.log2(1.5))
        np.testing.assert_allclose(information_gain(X, ["a", "a", "b", "b"]), [1, 0, bits], atol=1e-15)

    def test_stored_zeros_and_duplicates_do_not_count(self, y: np.ndarray) -> None:
        plain = csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
        odd = csr_array((np.array([0.5, 0.5, 0.0, 2.0]), [0, 0, 0, 1], [0, 2, 4]), shape=(2, 2))
        np.testing.assert_array_equal(information_gain(odd, [0, 1]), information_gain(plain, [0, 1]))
        assert odd.nnz == 4


def bundle_of(counts: Any, y: np.ndarray, train: np.ndarray) -> ClassBundle:
    names = tuple(f"term {n}" for n in range(counts.shape[1]))
    return ClassBundle("toy", "memory", csr_array(counts), y, ~train, feature_names=names)


class TestUnitRows:
    def test_equal_gains_with_other_rounding_go_by_column(self) -> None:
        """Terms that 0 to 6 documents of seven equal classes hold: one gain, summed in many orders."""
        y, rng = np.repeat(np.arange(7), 11), np.random.default_rng(0)
        held = np.array([rng.permutation(7) for _ in range(30)])
        X = (np.arange(77)[:, None] % 11 < held.T[y]).astype(float)
        # The last row, which is held out, does not count.
        X, y = np.vstack([X, np.ones(30)]), np.append(y, 0)
        assert len(set(information_gain(X[:-1], y[:-1]).tolist())) > 1
        bundle = bundle_of(X, y, np.arange(78) < 77)
        assert informative_unit_rows(bundle).feature_names == bundle.feature_names

    def test_looks_at_the_training_part_only(
        self, counts: csr_array, y: np.ndarray, train: np.ndarray
    ) -> None:
        other_rows, other_labels = counts.toarray(), np.where(train, y, 0)
        other_rows[~train] = 9 * (y[~train, None] == np.arange(40) % 4)
        before = informative_unit_rows(bundle_of(counts, y, train), 12)
        after = informative_unit_rows(bundle_of(other_rows, other_labels, train), 12)
        assert before.feature_names == after.feature_names
        np.testing.assert_array_equal(before.X[train].toarray(), after.X[train].toarray())

    @pytest.mark.parametrize("sublinear", [False, True])
    def test_is_selection_then_weights(
        self, counts: csr_array, y: np.ndarray, train: np.ndarray, sublinear: bool
    ) -> None:
        before = counts.copy()
        prepared = informative_unit_rows(bundle_of(counts, y, train), 12, sublinear=sublinear)
        gain = information_gain(counts[train], y[train])
        columns = np.argsort(-gain.round(12), kind="stable")[:12]
        chosen = counts.toarray()[:, columns]
        expected = TfidfTransformer(sublinear_tf=sublinear).fit(chosen[train]).transform(chosen).toarray()
        np.testing.assert_allclose(prepared.X.toarray(), expected, rtol=1e-13)
        assert prepared.X.has_canonical_format
        assert prepared.X.indices.dtype == np.int32
        assert prepared.y is y
        np.testing.assert_array_equal(counts.toarray(), before.toarray())
