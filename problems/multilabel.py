"""Data sets whose samples have several labels, with their published split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from problems.arrays import read_table
from problems.datasets import Split, digits, loader
from rmopt.core.files import read_arrays

__all__ = ["MultilabelBundle", "bibtex", "delicious", "digits_labels", "emotions", "enron", "scene"]


@dataclass(frozen=True, eq=False)
class MultilabelBundle(Split):
    """Samples, their labels, and which of them are held out.

    Attributes
    ----------
    name, source : str
        The registered name, and what was read.
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

    X: Any
    Y: Any
    test: NDArray[np.bool_]

    def _flaw(self) -> str | None:
        n_samples = self.X.shape[0]
        values = self.X.data if issparse(self.X) else self.X
        if self.X.ndim != 2 or 0 in self.X.shape or not np.isfinite(values).all():
            return "X must be a table of finite numbers"
        if self.Y.shape[0] != n_samples or self.Y.shape[1] < 2:
            return f"Y must have {n_samples} rows and at least 2 labels, got shape {self.Y.shape}"
        return self._flaw_of_split()

    def resplit(self, seed: int) -> Self:
        """Return the same samples with a new random split, the parts as large as they are."""
        return replace(self, test=np.random.default_rng(seed).permutation(self.test))

    def with_training_rows(self, n_train: int, seed: int) -> Self:
        """Return the same samples with a new random split that has so many training rows."""
        test = np.ones(len(self.test), dtype=bool)
        test[np.random.default_rng(seed).permutation(len(test))[:n_train]] = False
        return replace(self, test=test)

    def scaled(self, unit_rows: bool = True) -> Self:
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


@loader()
def digits_labels() -> MultilabelBundle:
    """Load the handwritten digits of scikit-learn with 16 labels, 4 for each: digit, parity, size, loops.

    As the LORETA paper adds the ancestors of a class, each digit gets what it is: even or odd, small (0 to 4) or
    large, and with a closed loop (0, 6, 8, 9) or without one.
    """
    bundle = digits()
    y = bundle.y
    loop = np.isin(y, (0, 6, 8, 9))
    kinds = (y % 2 == 0, y % 2 == 1, y < 5, y >= 5, loop, ~loop)
    Y = np.column_stack([np.eye(10, dtype=bool)[y], *kinds])
    return MultilabelBundle("digits-labels", bundle.source, bundle.X, csr_array(Y.astype(float)), bundle.test)


def _published(name: str, what: str) -> Callable[..., MultilabelBundle]:
    """Return the loader of a data set that is read from ``name.npz``."""

    def read(path: Path) -> MultilabelBundle:
        X, Y = read_table(path, "X", ones=True), csr_array(read_table(path, "Y", ones=True))
        n_train = int(read_arrays(path, {"n_train": (int, ())})["n_train"])
        return MultilabelBundle(name, path.name, X, Y, np.arange(X.shape[0]) >= n_train)

    read.__name__, read.__doc__ = name, f"Load {what}."
    return loader(f"{name}.npz", advice="it is a file with X, Y (arrays or CSR parts) and n_train")(read)


delicious = _published(
    "delicious",
    "Delicious: 16105 web pages, 500 words, 983 tags (19 a page), the first 12920 pages for training",
)
bibtex = _published("bibtex", "Bibtex: 7395 references, 1836 words, 159 tags")
enron = _published("enron", "Enron: 1702 letters, 1001 words, 53 labels")
emotions = _published("emotions", "Emotions: 593 pieces of music, 72 features, 6 labels")
scene = _published("scene", "Scene: 2407 images, 294 features, 6 labels")
