"""Validation for estimators: data and parameters are checked here once, and trusted afterwards.

An `Estimator` declares its parameters as ``name: Annotated[type, check] = default``, with checks of
`rmopt.core.arguments` and of this module. Its `fit` begins with `begin`, or without a seed with `check_parameters`,
and takes its data through `admit`. Methods of a fitted model take them through `seen`.
"""

from contextlib import suppress
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_array, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from rmopt.core.ambient import Array
from rmopt.core.arguments import (
    Checked,
    array,
    bounded,
    check_parameters,
    integer,
    number,
    numbers,
    optional,
    shown,
    whole,
)  # fmt: skip
from rmopt.core.matrices import sound
from rmopt.core.streams import seed_of
from rmopt.errors import InvalidInputError
from rmopt.solvers.save import Saver, file_name
from rmopt.solvers.stochastic.step_sizes import as_step_size

# The file of a saved state, or None.
file_path = optional(file_name)
# Steps, far below the end of 64 bits, and objects kept in memory.
count, kept_count = bounded(integer, 1, 10**15), bounded(integer, 1, 10**9)


class Estimator(Checked, BaseEstimator):
    """An estimator of scikit-learn that declares its parameters with their checks."""


class Supervised(BaseEstimator):
    """An estimator of dense or sparse rows that needs targets."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.target_tags.required = True
        return tags


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Supervised):
    """A transformer to the space of the rows of `components_`: names of columns for ``set_output``."""

    components_: Array

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def begin(estimator: Any) -> int:
    """Check the parameters of an estimator, and return the seed of its run."""
    check_parameters(estimator, getattr(estimator, "_parameters", {}))
    path, random_state = (getattr(estimator, name, None) for name in ("checkpoint", "random_state"))
    if random_state is None and path is not None and (seed := Saver("checkpoint", path).seed()) is not None:
        return seed  # of a run that is there, and goes on
    return seed_of(random_state)


# Checks of parameters.


def checked_later(name: str, value: Any) -> Any:
    """Return a value of any kind, which is checked where it is used."""
    return value


def thread_count(name: str, value: Any) -> int:
    """Return a number of threads, or a negative one that counts down from all cores, as in joblib."""
    if integer(name, value, -1000, 1000) == 0:
        raise InvalidInputError(f"{name} = 0 must be a number of threads, or −1 for all cores.")
    return int(value)


def seedable(name: str, value: Any) -> Any:
    """Return a valid argument of `seed_of`, without drawing from a generator."""
    if not isinstance(value, np.random.Generator | np.random.RandomState):
        seed_of(value)
    return value


def step_rule(name: str, value: Any, searches: bool = False) -> Any:
    """Return a positive number, a `StepSize` or a function of step numbers. Some solvers also take line searches."""
    if isinstance(value, type) or not callable(value):
        return number(name, value, above=0)
    rule = as_step_size(value, searches)
    try:
        rule(np.arange(1))
    except TypeError as error:
        raise InvalidInputError(
            f"{name} = {shown(value)} must map step numbers to sizes, and fails: {error}."
        ) from error
    return rule


# Tables of features.


def admit(estimator: Any, X: Any, y: Any = "no_validation", *, sparse: bool = True, **how: Any) -> Any:
    """Return X, or X and y, as float64 rows: an array, or a whole and canonical CSR array.

    The estimator learns or compares `n_features_in_` and `feature_names_in_`. `how` goes to ``validate_data`` of
    scikit-learn, whose ValueError refuses anything but a table of finite numbers.
    """
    _check_form("X", X)
    y = numbers("y", array_of("y", y)) if how.get("y_numeric") else whole("y", y)
    checked = validate_data(
        estimator, X, y, accept_sparse="csr" if sparse else False, dtype=np.float64, **how
    )
    rows, *targets = checked if isinstance(checked, tuple) else (checked,)
    if sp.issparse(rows) and not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return (rows, *targets) if targets else rows


def labelled(estimator: Any, X: Any, y: Any, **how: Any) -> tuple[Any, Array]:
    """Return X and one class for each row, as `admit` does."""
    X, y = admit(estimator, X, in_order("y", y), **how)
    check_classification_targets(y)
    return X, y


def seen(estimator: Any, X: Any, attribute: str | None = None, *, sparse: bool = True) -> Any:
    """Return X as `admit` does, for a fitted estimator (with an attribute) and its number of features."""
    check_is_fitted(estimator, attribute)
    return admit(estimator, X, sparse=sparse, reset=False)


def passed_on(estimator: Any, X: Any, *, reset: bool = True) -> Any:
    """Return X unchanged, such as a frame or a list of texts, for inner models that check it themselves."""
    if reset:
        # Texts have no features, and leave those of an earlier fit unchanged.
        vars(estimator).pop("n_features_in_", None)
    else:
        check_is_fitted(estimator)
    # Inner models may handle dates among other columns.
    _check_form("X", X, columns=False)
    return indexable(validate_data(estimator, X, skip_check_array=True, reset=reset))[0]


def table_of_numbers(name: str, X: Any, *, sparse: bool = True) -> Any:
    """Return a table of finite numbers, not empty: a C-contiguous array, or CSR if it is sparse and `sparse`."""
    _check_form(name, X)
    try:
        with np.errstate(invalid="ignore"):  # of infinities that are added
            table = check_array(X, accept_sparse="csr", dtype=np.float64, order="C", input_name=name)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidInputError(f"{name} must be a table of finite numbers ({reason}).") from None
    return table if sparse or not sp.issparse(table) else table.toarray()


def _check_form(name: str, X: Any, columns: bool = True) -> None:
    """Refuse a dict, text, a damaged matrix, and dates in an array or a frame's `columns`, else nanoseconds."""
    whole(name, sound(name, X))
    # Scipy's dok is a dict.
    if isinstance(X, dict | str | bytes) and not sp.issparse(X):
        raise InvalidInputError(
            f"{name} = {shown(X)} has no rows; give a table, of a dict of columns pandas.DataFrame({name})."
        )
    types = [X.dtype] if hasattr(X, "dtype") else getattr(X, "dtypes", []) if columns else []
    if any(getattr(kind, "kind", "f") in "mMT" or getattr(kind, "is_temporal", bool)() for kind in types):
        raise InvalidInputError(
            f"{name} holds dates or durations, or numpy's StringDType; turn dates into numbers, for example days "
            "since a start, and text into X.astype(str)."
        )


# Classes, tables of labels, names.


def array_of(name: str, value: Any) -> Array:
    """Return `value` as an array; numbers stored as objects, as in frames with missing values, become numbers.

    In a list of text and other objects each keeps its type, where numpy would make text, such as 'nan' for a gap.
    """
    read = array(name, value)
    if isinstance(value, list | tuple) and read.dtype.kind == "U" and read.ndim == 1:
        return read if all(isinstance(item, str) for item in value) else np.array(value, dtype=object)
    numeric = read.dtype.kind == "O" and all(isinstance(item, Real) for item in read.flat)
    return array(name, read.tolist()) if numeric else read


def in_order(name: str, labels: Any) -> Any:
    """Return labels in a type that scikit-learn knows, and refuse those that cannot be sorted."""
    if labels is None or sp.issparse(sound(name, labels)):
        return labels
    try:
        read = array_of(name, labels)
        np.unique(read)
        return read
    except TypeError as error:
        raise InvalidInputError(
            f"{name} must hold numbers or strings, which can be put in order ({error}); leave rows with gaps out, or "
            "name a class for them."
        ) from None


def classes(y: Any) -> tuple[Array, Array, Array]:
    """Return the different labels, the number of each row's label among them, and their frequencies."""
    return np.unique(column_of_names("y", y), return_inverse=True, return_counts=True)


def table_of_labels(Y: Any, count: int, least: int = 1) -> sp.csr_array:
    """Return indicators of labels, a row for each sample, as ones with sorted int32 indices."""
    table: Any = whole("Y", sound("Y", Y))
    with suppress(InvalidInputError):
        table = table if sp.issparse(table) else array_of("Y", table)
    shape: tuple[int, ...] = getattr(table, "shape", ())
    if len(shape) == 2 and shape[0] == count and shape[1] >= least and table.dtype.kind in "biuf":
        table = sp.csr_array(table, dtype=float, copy=True)
        table.sum_duplicates()
        table.eliminate_zeros()
        if (table.data == 1).all():
            parts = table.data, table.indices.astype(np.int32), table.indptr.astype(np.int32)
            return sp.csr_array(parts, shape=shape)
    raise InvalidInputError(
        f"Y must be a table of the numbers 0 and 1, {count} rows and at least {least} columns; of the labels of "
        "each row it is made by sklearn.preprocessing.MultiLabelBinarizer().fit_transform(Y)."
    )


def column_of_names(what: str, names: Any) -> Array:
    """Return names or numbers, one for each row, which can be sorted and distinguished."""
    column = array_of(what, names)
    with suppress(TypeError):
        if column.ndim == 1 and not (
            pd.isna(column).any() or (column.dtype.kind in "cf" and np.isinf(column).any())
        ):
            np.unique(column)
            return column
    raise InvalidInputError(
        f"{what} must hold a name or a number for each row, all of one type, without NaN, infinity or None; got "
        f"{shown(names)}."
    )


def two_columns(name: str, table: Any) -> tuple[Array, Array]:
    """Return both columns of a table, each with its own type."""
    try:
        frame = pd.DataFrame(whole(name, sound(name, table)))
    except (TypeError, ValueError, NotImplementedError):
        frame = pd.DataFrame()
    if frame.shape[1] != 2:
        raise InvalidInputError(f"{name} must be a table of shape (N, 2), got {shown(table)}.")
    columns = (frame.iloc[:, side].to_numpy() for side in (0, 1))
    first, second = (
        array_of(name, column.tolist() if column.dtype.kind == "O" else column) for column in columns
    )
    return first, second


def positions(what: str, known: Array, names: Any, *, others: bool = False) -> Array:
    """Return the positions of names among those of `fit`. Their number represents unknown ones, if allowed."""
    names = np.ravel(array_of(f"{what}s", names))
    numbered = names.dtype.kind in "iu" and np.array_equal(known, np.arange(len(known)))
    if numbered and names.min(initial=0) >= 0 and names.max(initial=0) < len(known):
        # Numbers of rows need no table of names.
        return names.astype(np.int32)
    if known.dtype.kind == "i" and names.dtype.kind == "U":
        # Numbers in a request are text.
        known = known.astype(str)
    try:
        places = pd.Index(known).get_indexer(names).astype(np.int32)
    except TypeError:
        raise InvalidInputError(f"{what}s must be names or numbers, got {shown(names)}.") from None
    unseen = names[places < 0]
    if len(unseen) and not others:
        raise InvalidInputError(
            f"{what} {unseen[:1].tolist()[0]!r} was not seen by fit; give names such as {known[:1].tolist()[0]!r}, "
            "or fit again with the others."
        )
    places[places < 0] = len(known)
    return places


def package(module: str, distribution: str, instead: str) -> Any:
    """Return a module of an optional package, or raise an `InvalidInputError` with the install command."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise InvalidInputError(
            f"{name} cannot be imported ({error}); pip install {distribution}, or {instead}."
        ) from error
