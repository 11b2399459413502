"""Multi-label data sets: what ships, what is read from files, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from real_data import real

from problems.data import ClassBundle, MultilabelBundle, load
from problems.data.sets import digits_labels
from rmopt import InvalidInputError
from rmopt.core import StorageError


def test_digits_get_four_labels_each() -> None:
    bundle = digits_labels()
    Y = bundle.Y.toarray()
    assert Y.shape == (1797, 16)
    np.testing.assert_array_equal(Y.sum(axis=1), 4)
    eight = Y[Y[:, 8] == 1]
    assert set(map(tuple, eight[:, 10:].tolist())) == {(1, 0, 0, 1, 1, 0)}
    assert bundle.test.sum() == 539


def test_scaling_uses_the_training_part_alone() -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.5, (40, 9)).astype(float))
    Y, test = sp.csr_array(rng.random((40, 3)) < 0.5, dtype=float), np.arange(40) >= 30
    whole = MultilabelBundle("toy", "here", X, Y, test).scaled()
    alone = MultilabelBundle("toy", "here", X[:32], Y[:32], test[:32]).scaled()
    np.testing.assert_allclose(whole.X[:32].toarray(), alone.X.toarray())
    lengths = np.sqrt(np.asarray(whole.X.multiply(whole.X).sum(axis=1))).ravel()
    np.testing.assert_allclose(lengths[lengths > 0], 1.0)
    dense = MultilabelBundle("toy", "here", X.toarray() * 7 + 3, Y, test).scaled()
    np.testing.assert_allclose(np.linalg.norm(dense.X, axis=1), 1.0)


def test_resplits_keep_the_sizes() -> None:
    bundle = digits_labels()
    first, again, other = (bundle.resplit(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.test, again.test)
    assert (first.test != other.test).any()
    assert first.test.sum() == other.test.sum() == bundle.test.sum()


def test_files_are_read(tmp_path: Path) -> None:
    X, Y = sp.csr_array(np.eye(6, 4)), np.tile([[1, 0]], (6, 1))
    parts = {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr, "X_shape": X.shape}
    np.savez(tmp_path / "bibtex.npz", n_train=4, Y=Y.astype(np.uint8), **parts)
    bundle = load("bibtex", tmp_path, MultilabelBundle)
    np.testing.assert_array_equal(bundle.X.toarray(), np.eye(6, 4))
    np.testing.assert_array_equal(bundle.Y.toarray(), Y)
    np.testing.assert_array_equal(np.flatnonzero(bundle.test), [4, 5])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "enron.npz").write_bytes(b"no zip")
    with pytest.raises(StorageError, match=r"enron\.npz is damaged"):
        load("enron", tmp_path, MultilabelBundle)
    np.savez(tmp_path / "scene.npz", X=np.full((3, 2), np.nan), Y=np.ones((3, 2)), n_train=2)
    with pytest.raises(StorageError, match=r"scene.npz is damaged.* \(X holds NaN or infinity\)"):
        load("scene", tmp_path, MultilabelBundle)
    np.savez(tmp_path / "emotions.npz", X=np.ones((3, 2)), Y=np.ones((3, 2)), n_train=3)
    with pytest.raises(StorageError, match="both parts need some"):
        load("emotions", tmp_path, MultilabelBundle)
    with pytest.raises(InvalidInputError, match="gave a ClassBundle, not a MultilabelBundle"):
        load("digits", None, MultilabelBundle)
    with pytest.raises(InvalidInputError, match="gave a MultilabelBundle, not a ClassBundle"):
        load("digits-labels", kind=ClassBundle)


@real("delicious.npz")
def test_delicious_has_the_published_sizes() -> None:
    bundle = load("delicious", None, MultilabelBundle)
    assert bundle.X.shape == (16_105, 500)
    assert bundle.Y.shape == (16_105, 983)
    assert bundle.train.sum() == 12_920
    assert bundle.Y.nnz / 16_105 == pytest.approx(19.02, abs=0.005)
