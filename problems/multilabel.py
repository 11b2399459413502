"""Data sets whose samples have several labels, with their published split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from problems.arrays import found_in, read_table
from problems.datasets import data_folder, digits
from rmopt.core.errors import InvalidInputError
from rmopt.core.files import read_arrays, reading

__all__ = ["MultilabelBundle", "bibtex", "delicious", "digits_labels", "emotions", "enron", "scene"]


@dataclass(frozen=True, eq=False)
class MultilabelBundle:
    """Samples, their labels, and which of them are held out.

    Attributes
    ----------
    name : str
        The registered name, for example ``"delicious"``.
    source : str
        What was read: a file name, or ``"scikit-learn"``.
    X : ndarray or csr_array, shape (n_samples, n_features)
    Y : csr_array, shape (n_samples, n_labels)
        Ones where a label is true.
    test : ndarray of bool, shape (n_samples,)
        True for the held-out samples; neither part is empty.

    Raises
    ------
    InvalidInputError
        When a part is not as described above.
    """

    name: str
    source: str
    X: Any
    Y: Any
    test: NDArray[np.bool_]

    def __post_init__(self) -> None:
        n_samples = self.X.shape[0]
        values = self.X.data if issparse(self.X) else self.X
        flaw = None
        if self.X.ndim != 2 or 0 in self.X.shape or not np.isfinite(values).all():
            flaw = "X must be a table of finite numbers"
        elif self.Y.shape[0] != n_samples or self.Y.shape[1] < 2:
            flaw = f"Y must have {n_samples} rows and at least 2 labels, got shape {self.Y.shape}"
        elif self.test.shape != (n_samples,) or self.test.all() or not self.test.any():
            flaw = "the split leaves no training or no test samples"
        if flaw:
            raise InvalidInputError(
                f"the data set {self.name!r} (from {self.source}) cannot be used: {flaw}."
            )

    @property
    def train(self) -> NDArray[np.bool_]:
        """True for the training samples, shape (n_samples,)."""
        return ~self.test

    def resplit(self, seed: int) -> MultilabelBundle:
        """Return the same samples with a new random split, the parts as large as they are."""
        return replace(self, test=np.random.default_rng(seed).permutation(self.test))

    def with_training_rows(self, n_train: int, seed: int) -> MultilabelBundle:
        """Return the same samples with a new random split that has so many training rows."""
        test = np.ones(len(self.test), dtype=bool)
        test[np.random.default_rng(seed).permutation(len(test))[:n_train]] = False
        return replace(self, test=test)

    def scaled(self, unit_rows: bool = True) -> MultilabelBundle:
        """Return the samples scaled: counts by tf-idf, other features standardised, then rows to unit length.

        Weights, means and deviations are those of the training part.

        Parameters
        ----------
        unit_rows : bool
            Scale rows to unit length; those of counts are in any case.
        """
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.preprocessing import Normalizer, StandardScaler

        scaler = TfidfTransformer() if issparse(self.X) else StandardScaler()
        scaler.fit(self.X[self.train])
        X = scaler.transform(self.X)
        return replace(self, X=Normalizer().fit_transform(X) if unit_rows or issparse(X) else X)


def digits_labels(data_home: Path | str | None = None) -> MultilabelBundle:
    """Load the handwritten digits of scikit-learn with 16 labels, 4 for each: digit, parity, size, loops.

    As the LORETA paper adds the ancestors of a class, each digit gets what it is: even or odd, small (0 to 4) or
    large, and with a closed loop (0, 6, 8, 9) or without one.

    Parameters
    ----------
    data_home : path, optional
        The digits come with scikit-learn and need no folder; one that is given must exist all the same.
    """
    bundle = digits(data_home)
    y = bundle.y
    loop = np.isin(y, (0, 6, 8, 9))
    kinds = (y % 2 == 0, y % 2 == 1, y < 5, y >= 5, loop, ~loop)
    Y = np.column_stack([np.eye(10, dtype=bool)[y], *kinds])
    return MultilabelBundle("digits-labels", bundle.source, bundle.X, csr_array(Y.astype(float)), bundle.test)


def _published(name: str, what: str) -> Callable[..., MultilabelBundle]:
    """Return the loader of a data set that is read from ``name.npz``."""

    def loader(data_home: Path | str | None = None) -> MultilabelBundle:
        path = found_in(data_folder(data_home), (f"{name}.npz",), _CONTENT)
        X, Y = read_table(path, "X", ones=True), csr_array(read_table(path, "Y", ones=True))
        with reading(path):
            n_train = int(read_arrays(path, {"n_train": (int, ())})["n_train"])
            return MultilabelBundle(name, path.name, X, Y, np.arange(X.shape[0]) >= n_train)

    loader.__name__ = loader.__qualname__ = name
    loader.__doc__ = f"""Load {what}.

    Parameters
    ----------
    data_home : path, optional
        The folder of ``{name}.npz``; see `problems.datasets.data_folder`.

    Raises
    ------
    StorageError
        When the file is missing or damaged.
    """
    return loader


_CONTENT = "it is a file with X, Y (arrays or CSR parts) and n_train"

delicious = _published(
    "delicious",
    "Delicious: 16105 web pages, 500 words, 983 tags (19 a page), the first 12920 pages for training",
)
bibtex = _published("bibtex", "Bibtex: 7395 references, 1836 words, 159 tags")
enron = _published("enron", "Enron: 1702 letters, 1001 words, 53 labels")
emotions = _published("emotions", "Emotions: 593 pieces of music, 72 features, 6 labels")
scene = _published("scene", "Scene: 2407 images, 294 features, 6 labels")
