"""Text as the LORETA paper prepares it: the most informative terms, then tf-idf weights (section 7.1.2)."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from problems.data.bundles import ClassBundle, holds_counts
from problems.validation import classes
from rmopt.core.arguments import array, integer
from rmopt.core.matrices import sound
from rmopt.errors import InvalidInputError

__all__ = ["information_gain", "informative_unit_rows", "prepare_text", "select_terms", "tfidf"]

GAIN_DECIMALS = 12


def information_gain(X: Any, y: ArrayLike) -> NDArray[np.float64]:
    """Measure the bits that the presence or absence of each term tells about the class.

    This is the mutual information of class and presence (Yang and Pedersen, 1997). Working memory is that
    of the stored counts plus n_classes × n_features.

    Parameters
    ----------
    X : sparse or dense array, shape (n_samples, n_features)
        Term counts; a term is present where its count is positive.
    y : array, shape (n_samples,)
        Class labels, at least two different ones.

    Returns
    -------
    ndarray, shape (n_features,)
        Bits, between 0 and log2(n_classes).

    Raises
    ------
    InvalidInputError
        When `X` does not hold finite counts, or `y` does not fit it or has a single class.

    References
    ----------
    Yang and Pedersen, A comparative study on feature selection in text categorization, ICML (1997).
    """
    counts = _as_counts(X)
    n_samples, n_features = counts.shape
    labels, of_sample, class_size = classes(y)
    if len(of_sample) != n_samples:
        raise InvalidInputError(f"y must have shape ({n_samples},) as X has rows, got {of_sample.shape}.")
    if len(labels) < 2:
        raise InvalidInputError("y holds a single class; information gain needs two.")
    cell = np.repeat(of_sample * n_features, np.diff(counts.indptr)) + counts.indices
    try:
        present = np.bincount(cell, minlength=len(labels) * n_features).reshape(len(labels), n_features)
    except (MemoryError, ValueError):
        raise InvalidInputError(
            f"X has {n_features:,} features, too many for memory; is one mistyped?"
        ) from None
    with_term = present.sum(axis=0)

    k_log_k = np.arange(n_samples + 1) * np.log2(np.maximum(np.arange(n_samples + 1), 1))
    gain = k_log_k[n_samples] - k_log_k[class_size].sum()
    gain = gain + k_log_k[present].sum(axis=0) + k_log_k[class_size[:, None] - present].sum(axis=0)
    gain -= k_log_k[with_term] + k_log_k[n_samples - with_term]
    return np.maximum(gain / n_samples, 0.0)


def select_terms(X: Any, y: ArrayLike, train_mask: ArrayLike, n_features: int) -> NDArray[np.int64]:
    """Choose the terms with the highest information gain on the training part.

    Parameters
    ----------
    X : sparse or dense array, shape (n_samples, n_features)
        As in `information_gain`.
    y : array, shape (n_samples,)
        Class labels.
    train_mask : array of bool, shape (n_samples,)
        The rows that are looked at.
    n_features : int
        How many terms to choose, 1 .. X.shape[1].

    Returns
    -------
    ndarray of int, shape (n_features,)
        Columns of X, the most informative first; equal gains (to 12 decimals) in column order.

    Raises
    ------
    InvalidInputError
        When an argument is out of range or the training part has a single class.
    """
    counts = _as_counts(X)
    n_features = integer("n_features", n_features, 1, counts.shape[1])
    train = _as_mask(train_mask, counts.shape[0])
    labels = array("y", y)
    if labels.shape != train.shape:
        raise InvalidInputError(f"y must have shape {train.shape} as X has rows, got {labels.shape}.")
    # Terms that are equally informative must not be told apart by the rounding of a sum.
    gain = np.round(information_gain(counts[train], labels[train]), GAIN_DECIMALS)
    return np.argsort(-gain, kind="stable")[:n_features]


def tfidf(X: Any, train_mask: ArrayLike, *, sublinear: bool = False) -> csr_array:
    """Weight counts by tf-idf with document frequencies of the training part, and scale rows to length 1.

    The idf of a term in d of n training documents is log((1 + n) / (1 + d)) + 1, as scikit-learn's
    TfidfTransformer has it by default.

    Parameters
    ----------
    X : sparse or dense array, shape (n_samples, n_features)
        Term counts.
    train_mask : array of bool, shape (n_samples,)
        The rows that the document frequencies come from.
    sublinear : bool
        Use 1 + log(count) in place of the count.

    Returns
    -------
    csr_array, shape (n_samples, n_features)
        Float64 with int32 sorted indices; rows of length 1, or 0 where a document has no term.

    Raises
    ------
    InvalidInputError
        When `X` does not hold finite counts or `train_mask` does not fit it.
    """
    counts = _as_counts(X)
    train = _as_mask(train_mask, counts.shape[0])
    return csr_array(TfidfTransformer(sublinear_tf=sublinear).fit(counts[train]).transform(counts))


def prepare_text(bundle: ClassBundle, n_features: int, *, sublinear: bool = False) -> ClassBundle:
    """Keep the most informative terms of a set of term counts and weight them by tf-idf.

    Terms and weights come from the training part alone. The columns of the result are in order of
    decreasing information gain, so that a truncated identity starts a model on the best terms.

    Parameters
    ----------
    bundle : ClassBundle
        Term counts, for example `problems.data.sets.news20`.
    n_features : int
        How many terms to keep.
    sublinear : bool
        See `tfidf`.

    Returns
    -------
    ClassBundle
        X is a csr_array, shape (n_samples, n_features), with rows of length 1; documents without any kept
        term stay as empty rows.

    Raises
    ------
    InvalidInputError
        When `n_features` is out of range or the bundle does not hold counts.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.data import ClassBundle
    >>> from problems.data.text import prepare_text
    >>> counts = sp.csr_array([[3.0, 1, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0], [2, 0, 0]])
    >>> test = np.array([False, False, False, False, True])
    >>> bundle = ClassBundle("mine", "by hand", counts, np.array([0, 0, 1, 1, 0]), test)
    >>> prepare_text(bundle, n_features=2).X.toarray().round(2).tolist()
    [[0.98, 0.22], [0.83, 0.55], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    """
    counts = _as_counts(bundle.X)
    terms = select_terms(counts, bundle.y, bundle.train, n_features)
    X = tfidf(counts[:, terms], bundle.train, sublinear=sublinear)
    return replace(bundle, X=X, feature_names=_chosen_names(bundle, terms))


def _chosen_names(bundle: ClassBundle, columns: NDArray[np.int64]) -> tuple[str, ...] | None:
    names = bundle.feature_names
    return None if names is None else tuple(map(names.__getitem__, columns))


def informative_unit_rows(
    bundle: ClassBundle, n_features: int = 0, *, sublinear: bool = False
) -> ClassBundle:
    """Return the bundle with its most informative columns and rows of length 1; counts are weighted by tf-idf.

    Parameters
    ----------
    bundle : ClassBundle
        A sparse X of whole numbers holds counts (`prepare_text`); the columns of others are only chosen and their
        rows scaled. One with negative numbers holds measurements, which are neither there nor not: its columns stay.
    n_features : int
        Columns to keep, by information gain on the training part; 0: all.
    sublinear : bool
        Of counts; see `tfidf`.

    Raises
    ------
    InvalidInputError
        When `n_features` is out of range or the bundle does not hold what it should.
    """
    wanted = integer("n_features", n_features, 0, bundle.X.shape[1]) or bundle.X.shape[1]
    if holds_counts(bundle.X):
        return prepare_text(bundle, wanted, sublinear=sublinear)
    if bundle.X.min() >= 0:
        columns = select_terms(bundle.X, bundle.y, bundle.train, wanted)
    elif wanted < bundle.X.shape[1]:
        raise InvalidInputError(
            f"{bundle.name} has negative features, among which information gain cannot choose {wanted}; take all, or "
            "choose columns of a file by features=FIRST+SECOND."
        )
    else:
        columns = np.arange(bundle.X.shape[1])
    chosen = bundle.X[:, columns]
    if issparse(chosen):
        X = normalize(chosen)
        X.sort_indices()
    else:
        lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
        X = chosen / np.where(lengths > 0, lengths, 1.0)
    return replace(bundle, X=X, feature_names=_chosen_names(bundle, columns))


def _as_counts(X: Any) -> csr_array:
    """Return X as canonical CSR in float64 without stored zeros; the argument is left as it is."""
    known = issparse(sound("X", X)) or isinstance(X, np.ndarray)
    if not known or X.ndim != 2 or X.dtype.kind not in "buif" or 0 in X.shape:
        raise InvalidInputError(
            "X must be a two-dimensional array of term counts, or a sparse one, not empty."
        )
    counts = csr_array(X, dtype=np.float64)
    if not (counts.has_canonical_format and counts.data.all()):
        counts = counts.copy() if issparse(X) else counts
        counts.sum_duplicates()
        counts.eliminate_zeros()
    if counts.nnz and not (counts.data.min() >= 1e-100 and counts.data.max() <= 1e100):
        raise InvalidInputError(
            "X must hold term counts: 0, or from 1e-100 to 1e100; others go to informative_unit_rows."
        )
    counts.indices, counts.indptr = (
        part.astype(np.int32, copy=False) for part in (counts.indices, counts.indptr)
    )
    return counts


def _as_mask(train_mask: ArrayLike, n_samples: int) -> NDArray[np.bool_]:
    mask = array("train_mask", train_mask)
    if mask.dtype != np.bool_ or mask.shape != (n_samples,) or not mask.any():
        raise InvalidInputError(f"train_mask must hold {n_samples} booleans, at least one of them True.")
    return mask
