"""Text prepared as in the LORETA paper: the most informative terms, then tf-idf weights (section 7.1.2)."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from problems.data.bundles import ClassBundle, holds_counts
from problems.validation import classes
from rmopt.core.arguments import integer
from rmopt.core.matrices import as_rows
from rmopt.errors import InvalidInputError

__all__ = ["information_gain", "informative_unit_rows"]


def information_gain(X: Any, y: ArrayLike) -> NDArray[np.float64]:
    """Measure the information in bits of each term's presence about the class.

    This is the mutual information of class and presence (Yang and Pedersen, A comparative study on feature selection
    in text categorization, ICML 1997). Working memory is that of the stored counts plus n_classes × n_features.

    Parameters
    ----------
    X : sparse or dense array, shape (n_samples, n_features)
        Term counts. A term is present if its count is positive.
    y : array, shape (n_samples,)
        Class labels, at least two different ones.

    Returns
    -------
    ndarray, shape (n_features,)
        Bits, between 0 and log2(n_classes).

    Raises
    ------
    InvalidInputError
        If `X` does not hold finite counts, or `y` does not fit it or has a single class.
    """
    counts = as_rows(X, "X")
    if 0 in counts.shape or counts.data.min(initial=0.0) < 0.0:
        raise InvalidInputError("X must hold term counts, at least one; others go to informative_unit_rows.")
    n_samples, n_features = counts.shape
    labels, of_sample, class_size = classes(y)
    if len(of_sample) != n_samples or len(labels) < 2:
        raise InvalidInputError(f"y must have shape ({n_samples},) and several classes, got {len(labels)}.")
    cell = np.repeat(of_sample * n_features, np.diff(counts.indptr)) + counts.indices
    present = np.bincount(cell[counts.data != 0], minlength=len(labels) * n_features).reshape(len(labels), -1)
    with_term = present.sum(axis=0)

    k_log_k = np.arange(n_samples + 1) * np.log2(np.maximum(np.arange(n_samples + 1), 1))
    gain = k_log_k[n_samples] - k_log_k[class_size].sum()
    gain = gain + k_log_k[present].sum(axis=0) + k_log_k[class_size[:, None] - present].sum(axis=0)
    gain -= k_log_k[with_term] + k_log_k[n_samples - with_term]
    return np.maximum(gain / n_samples, 0.0)


def informative_unit_rows(
    bundle: ClassBundle, n_features: int = 0, *, sublinear: bool = False
) -> ClassBundle:
    """Return the bundle with its most informative columns and rows of length 1, with counts weighted by tf-idf.

    Among equal gains (to 12 decimals) the first column comes first. Terms and weights come from the training part
    alone: the idf of a term in d of n training documents is log((1 + n) / (1 + d)) + 1. Columns are in order of
    decreasing information gain, so that a truncated identity starts a model on the best terms.

    Parameters
    ----------
    bundle : ClassBundle
        A sparse X of whole numbers holds counts, which are weighted. Other data are only restricted to columns, and
        their rows scaled. Data with negative numbers are measurements, which are neither present nor absent, and keep
        their columns.
    n_features : int
        Number of columns, by information gain on the training part. 0 means all.
    sublinear : bool
        Use 1 + log(count) instead of the count.

    Raises
    ------
    InvalidInputError
        If `n_features` is out of range or the bundle is unsuitable.
    """
    X, names = bundle.X, bundle.feature_names
    wanted = integer("n_features", n_features, 0, X.shape[1]) or X.shape[1]
    columns = np.arange(X.shape[1])
    if X.min() >= 0:
        # Equally informative terms must not differ by the rounding of a sum.
        gain = np.round(information_gain(X[bundle.train], bundle.y[bundle.train]), 12)
        columns = np.argsort(-gain, kind="stable")[:wanted]
    elif wanted < X.shape[1]:
        cure = "take all, or leave out columns of a file by drop=FIRST+SECOND"
        raise InvalidInputError(f"{bundle.name} has negative features, of which none can be chosen; {cure}.")
    rows = X[:, columns]
    if holds_counts(X):
        rows = TfidfTransformer(sublinear_tf=sublinear).fit(rows[bundle.train]).transform(rows)
    rows = normalize(rows)
    return replace(
        bundle, X=as_rows(rows, "X") if issparse(rows) else rows,
        feature_names=None if names is None else tuple(names[column] for column in columns),
    )  # fmt: skip
