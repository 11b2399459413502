"""The door of every estimator: data and parameters are checked here, once, and trusted inside.

An `Estimator` declares its parameters in `_parameters`, a mapping of their names to checks from
`rmopt.core.arguments` and from here; a dataclass may declare them as fields (`Checked`). Its `fit` begins with
`begin` (or with `check_parameters`, where there is no seed) and takes its data through `admit`; what needs a fitted
model takes them through `seen`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from rmopt.core.ambient import Array
from rmopt.core.arguments import (
    Checked,
    array,
    bounded,
    check_parameters,
    instance,
    integer,
    named,
    number,
    numbers,
    one_of,
    optional,
    shown,
    whole,
)
from rmopt.core.matrices import sound
from rmopt.core.streams import seed_of
from rmopt.core.world import ONE_PROCESS, World
from rmopt.costs import LOSSES, Loss
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.solvers.checkpoint import Checkpoint
from rmopt.solvers.step_sizes import as_step_size

loss_named = bounded(named, LOSSES, Loss)
engine_name = bounded(one_of, ("auto", "compiled", "reference"))
# Where a state is saved; None: nowhere.
file_path = optional(instance, (str, os.PathLike), "a path, or None")


MOST_THREADS = 1000
# An offset beyond so many standard deviations costs half of the digits of squared distances.
FAR = 1e4


class Estimator(Checked, BaseEstimator):
    """An estimator of scikit-learn that declares its parameters, and refuses weights where it has no use for them."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in {"fit", "partial_fit", "score"} & vars(cls).keys():
            setattr(cls, name, _unweighted(vars(cls)[name]))


def _unweighted(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that says so where it takes no `sample_weight`; its signature stays, by which others know."""
    if "sample_weight" in signature(method).parameters:
        return method

    @wraps(method)
    def called(self: Any, *given: Any, **named: Any) -> Any:
        if named.pop("sample_weight", None) is not None:
            raise MissingCapabilityError(
                f"{type(self).__name__}.{method.__name__} takes no sample_weight: all samples count alike; leave it "
                "out."
            )
        return method(self, *given, **named)

    return called


def count(name: str, value: Any, most: int = 10**15) -> int:
    """Return a positive number of steps, far from where 64 bits end."""
    return integer(name, integer(name, value, 1), 1, most)


# Of what is kept in memory.
kept_count = bounded(count, 10**9)


def thread_count(name: str, value: Any) -> int:
    """Return a number of threads, or a negative one that counts from all cores down, as joblib has it."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value == 0 or abs(value) > MOST_THREADS:
        raise InvalidInputError(
            f"{name} = {shown(value)} must be None, a positive number of threads up to {MOST_THREADS}, or a negative "
            "one: −1 for all cores, −2 for all but one."
        )
    return int(value)


def seedable(name: str, value: Any) -> Any:
    """Return what `seed_of` takes; no number is drawn from a generator."""
    if not isinstance(value, np.random.Generator | np.random.RandomState):
        seed_of(value)
    return value


def begin(estimator: Any) -> int:
    """Hold the parameters of an estimator to what it declares; return the seed of its run."""
    check_parameters(estimator, estimator._parameters)
    path = getattr(estimator, "checkpoint", None)
    if estimator.random_state is None and path is not None and (seed := Checkpoint(path).seed()) is not None:
        return seed  # a run that is there goes on
    return seed_of(estimator.random_state)


def step_rule(name: str, value: Any, searches: bool = False) -> Any:
    """Return a positive number, a `StepSize` or a function of step numbers; some solvers also take searches."""
    if isinstance(value, type) or not callable(value):
        return number(name, value, above=0)
    rule = as_step_size(value, searches)
    try:
        rule(np.arange(1))
    except InvalidInputError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} = {shown(value)} must map an array of step numbers to step sizes, and fails: {error}."
        ) from error
    return rule


def natural_size(
    rows: Any, share: float, power: float, world: World = ONE_PROCESS, *, centred: bool = False
) -> float:
    """Return the share over a power of the mean of ‖x‖²: a default in the units of the data, if it is a number.

    The mean is that over the rows of all processes. Where distances count, x is measured from the mean row.
    """
    values = rows.data if sp.issparse(rows) else rows
    whole = float(np.vdot(values, values))
    spread = whole - rows.shape[0] * np.linalg.norm(rows.mean(axis=0)) ** 2 if centred else whole
    # Rounding is no scale.
    scaled = values.any() and not spread < 1e-12 * whole
    square, count, scaled = world.total([spread, rows.shape[0], float(scaled)])
    # The squares of very small numbers have few digits, which are not to pass for a scale.
    mean_square = 0.0 if square < count * np.finfo(float).tiny else float(square / count)
    try:
        size = share / (1.0 if abs(mean_square - 1.0) < 1e-9 else mean_square) ** power if scaled else share
    except ArithmeticError:
        size = 0.0
    if not 0.0 < size < np.inf:
        raise InvalidInputError(
            f"the rows of X have a mean squared length of {mean_square:.1e}, out of reach of defaults in their "
            "units; scale X, for example to rows of length 1."
        )
    return size


def admit(estimator: Any, X: Any, y: Any = "no_validation", *, sparse: bool = True, **how: Any) -> Any:
    """Return X, or X and y, as float64 rows: an array, or a whole and canonical CSR array.

    The estimator learns or compares `n_features_in_` and `feature_names_in_`; `how` goes to ``validate_data`` of
    scikit-learn, whose ValueError stands for what is no table of finite numbers and not refused here.
    """
    _check_form("X", X)
    whole("y", y)
    found = validate_data(
        estimator, X, as_text(y), accept_sparse="csr" if sparse else False, dtype=np.float64, **how
    )
    rows = found[0] if isinstance(found, tuple) else found
    if hasattr(rows, "sum_duplicates") and not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not isinstance(found, tuple):
        return rows
    # Of a None among objects scikit-learn makes NaN after it has looked for it.
    return rows, numbers("y", found[1]) if how.get("y_numeric") else found[1]


def _check_form(name: str, X: Any, columns: bool = True) -> None:
    """Refuse a dict, text, a damaged matrix, and dates in an array or in a frame's `columns`: nanoseconds else."""
    whole(name, sound(name, X))
    # What scipy calls dok is a dict.
    if isinstance(X, dict | str | bytes) and not sp.issparse(X):
        raise InvalidInputError(
            f"{name} = {shown(X)} has no rows; give a table, of a dict of columns pandas.DataFrame({name})."
        )
    types = [X.dtype] if hasattr(X, "dtype") else getattr(X, "dtypes", []) if columns else []
    if any(getattr(one, "kind", "f") in "mM" or getattr(one, "is_temporal", bool)() for one in types):
        raise InvalidInputError(
            f"{name} holds dates or durations; turn them into numbers, for example days since a start."
        )


def classes(y: Any) -> tuple[Array, Array, Array]:
    """Return the different labels, the number of each row's label among them, and how often each occurs."""
    labels = in_order("y", array("y", y))
    if labels.ndim != 1:
        raise InvalidInputError(f"y must have one label for each row, got shape {labels.shape}.")
    if np.any(labels != labels):
        raise InvalidInputError(
            "y holds NaN, which is no class; leave these rows out, or name a class for them."
        )
    return np.unique(labels, return_inverse=True, return_counts=True)


def as_text(values: Any) -> Any:
    """Return numpy's text of any length as text that scikit-learn knows, and others as they are."""
    return array("text", values) if getattr(getattr(values, "dtype", None), "kind", "") == "T" else values


def in_order(name: str, labels: Any) -> Any:
    """Return labels, which can be put in order, in a type that scikit-learn knows.

    They stay as they are but for numpy's text of any length, and numbers that are objects.
    """
    labels = as_text(sound(name, labels))
    try:
        if not sp.issparse(labels):
            found = np.asarray(labels)
            if found.dtype.kind == "O" and (numeric := array_of(name, labels)).dtype.kind != "O":
                labels = found = numeric
            if made_text(labels, found):
                raise TypeError("they are text, numbers and gaps side by side")
            np.unique(found)
    except TypeError as error:
        raise InvalidInputError(
            f"{name} must hold numbers or strings, which can be put in order ({error}); leave rows with gaps out, or "
            "name a class for them."
        ) from None
    except ValueError:
        # Of rows that differ in length scikit-learn says more.
        pass
    return labels


def labelled(estimator: Any, X: Any, y: Any, **how: Any) -> tuple[Any, Array]:
    """Return X and one class for each row, as `admit` does."""
    X, y = admit(estimator, X, in_order("y", y), **how)
    check_classification_targets(y)
    return X, y


def seen(estimator: Any, X: Any, attribute: str | None = None, *, sparse: bool = True) -> Any:
    """Return X as `admit` does, for an estimator that is fitted (has an attribute), and to as many features."""
    check_is_fitted(estimator, attribute)
    return admit(estimator, X, sparse=sparse, reset=False)


def passed_on(estimator: Any, X: Any, *, reset: bool = True) -> Any:
    """Return X as it is, such as a frame or a list of texts, for models inside that look at it themselves."""
    if reset:
        # Texts have no features, and leave those of an earlier fit as they are.
        vars(estimator).pop("n_features_in_", None)
    else:
        check_is_fitted(estimator)
    # Models inside may know what to do with dates among other columns.
    _check_form("X", X, columns=False)
    return indexable(validate_data(estimator, as_text(X), skip_check_array=True, reset=reset))[0]


def product(X: Any, factor: Array) -> Array:
    """Return the product of rows and a factor of a model; one that is not finite is refused."""
    with np.errstate(all="ignore"):
        return finite(np.asarray(X @ factor))


def unit_rows(U: Array) -> tuple[Array, Array]:
    """Return rows of unit length and their lengths; a row of zeros stays."""
    # Squares of very large and very small numbers are no numbers.
    sizes = np.abs(U).max(axis=1, keepdims=True, initial=0.0)
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    U = U / sizes
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    return U / lengths, lengths * sizes


def finite(values: Array) -> Array:
    """Return what a model says of data, or say that they are too large for it."""
    if not np.isfinite(values).all():
        raise InvalidInputError("X is too large for the model: products overflow; scale X as it was for fit.")
    return values


def check_learned(estimator: Any, names: tuple[str, ...], *products: tuple[Array, Array]) -> None:
    """Raise a `DivergedError`, which names parameters, unless products of rows of arrays add up to finite scores."""
    with np.errstate(all="ignore"):
        largest = sum(
            A.shape[1] * np.abs(A).max(initial=0.0) * np.abs(B).max(initial=0.0) for A, B in products
        )
    if not np.isfinite(largest):
        cure = ", ".join(f"{name} than {float(getattr(estimator, name)):g}" for name in names)
        raise DivergedError(
            f"the scores of the training data are no finite numbers; choose a smaller {cure}."
        )


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A transformer to the space of the rows of `components_`: names of columns for ``set_output``."""

    components_: Array

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.target_tags.required = True
        return tags


def in_range(X: Any, name: str = "X") -> Any:
    """Return rows whose fourth powers are finite, as curvatures need them."""
    if not abs(X).max() < 1e75:
        raise InvalidInputError(
            f"{name} holds numbers up to {abs(X).max():.1e}; scale it, for example by StandardScaler()."
        )
    return X


def table_of_numbers(name: str, X: Any, *, sparse: bool = True) -> Any:
    """Return a table of finite numbers, not empty: a C-contiguous array, or of a sparse one where `sparse` CSR."""
    _check_form(name, X)
    try:
        found: Any = X.tocsr().astype(float) if sp.issparse(X) else np.ascontiguousarray(X, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be a table of finite numbers ({error}).") from None
    is_table = len(found.shape) == 2 and 0 not in found.shape
    if not is_table or not np.isfinite(found.data if sp.issparse(found) else found).all():
        cure = "remove or impute NaN or infinity" if is_table else "give rows and columns, one row as [row]"
        raise InvalidInputError(f"{name} must be a table of finite numbers, got shape {found.shape}; {cure}.")
    return found if sparse or not sp.issparse(found) else found.toarray()


def array_of(name: str, value: Any) -> Array:
    """Return what can be read as an array; numbers in a frame whose columns may lack values are numbers."""
    found = array(name, value)
    numbers = found.dtype.kind == "O" and all(isinstance(one, Real) for one in found.flat)
    return array(name, found.tolist()) if numbers else found


def label_array(Y: Any) -> Array:
    """Return an array of indicators of labels; names of the labels of each row are refused, with the remedy."""
    if Y is None:
        raise InvalidInputError(
            "Y is missing: this estimator requires y to be passed, but the target y is None."
        )
    whole("Y", Y)
    with suppress(InvalidInputError):
        found = array_of("Y", Y)
        if found.dtype.kind not in "OU":
            return found
    raise InvalidInputError(
        "Y must be a table of the numbers 0 and 1, with a column for each label; of the labels of each row it is "
        "made by sklearn.preprocessing.MultiLabelBinarizer().fit_transform(Y)."
    )


def table_of_labels(Y: Any, count: int) -> Array:
    """Return indicators of labels, one row for each of so many samples, as an array."""
    Y = sound("Y", Y).toarray() if sp.issparse(Y) else label_array(Y)
    if Y.ndim != 2 or len(Y) != count or not Y.size or not np.isin(Y, (0, 1)).all():
        raise InvalidInputError(f"Y must be a table of 0 and 1, {count} rows and one column for each label.")
    return Y.astype(int)


def near_zero(X: Any) -> Any:
    """Return rows from which a common offset is taken, such as that of dates: distances lose their digits in it."""
    if not isinstance(X, np.ndarray):
        return X
    centre = X.mean(axis=0)
    return X - centre if np.any(np.abs(centre) > FAR * X.std(axis=0)) else X


def one_each(what: str, values: Any) -> Array:
    """Return an array with one value for each row; what is sparse or made of fields is refused."""
    found = array_of(what, values)
    if found.ndim == 0 or found.dtype.names is not None:
        raise InvalidInputError(f"{what} must be an array with one value for each row, got {shown(values)}.")
    return found


def made_text(given: Any, found: Array) -> bool:
    """Return whether numpy wrote what is no text as text, such as a gap as 'nan': it does so in lists."""
    flat = isinstance(given, list | tuple) and found.dtype.kind == "U" and found.ndim == 1
    return flat and not all(isinstance(one, str) for one in given)


def column_of_names(what: str, names: Any) -> Array:
    """Return names or numbers, one for each row, which can be sorted and told apart."""
    column = one_each(what, names)
    try:
        same = (
            bool(np.all(column == column))
            and not np.iscomplexobj(column)
            and not made_text(names, column)
            and None not in set(column.tolist())
        )
        np.unique(column)
    except TypeError:
        same = False
    if not same or (column.dtype.kind == "f" and not np.isfinite(column).all()):
        raise InvalidInputError(
            f"{what} must hold a name or a number for each row, all of one type, without NaN, infinity or None; got "
            f"{column.dtype}."
        )
    return column


def joined_names(what: str, known: Array, more: Array) -> Array:
    """Return names with others behind them, of the same kind: text, or numbers, which keep all of their digits."""
    if (known.dtype.kind == "U") != (more.dtype.kind not in "biuf"):
        kind = "text" if known.dtype.kind == "U" else "numbers"
        raise InvalidInputError(f"{what} must be {kind}, as those that fit saw, got {shown(more)}.")
    return array(what, [*known.tolist(), *more.tolist()])


def check_columns(estimator: Any, X: Any) -> None:
    """Refuse a frame whose columns are not those that `feature_names_in_` tells, in their order."""
    known, columns = getattr(estimator, "feature_names_in_", None), getattr(X, "columns", None)
    if known is None or columns is None or list(columns) == list(known):
        return
    raise InvalidInputError(
        f"X has the columns {shown(list(columns))}, and fit saw {shown(list(known))}; bring them into that order, by "
        "X[model.feature_names_in_]."
    )


def check_labels(estimator: Any, Y: Any, *, learn: bool = False, grows: bool = False) -> None:
    """Refuse a frame of labels whose columns are not those that `label_names_in_` tells, in their order.

    With `learn` they are kept there; where the model `grows`, others may stand on the right.
    """
    if not hasattr(Y, "columns"):
        return
    names, known = list(Y.columns), list(getattr(estimator, "label_names_in_", ()))
    if {type(name) for name in names} not in ({str}, {int}):
        names = [str(name) for name in names]
    if known and known != (names[: len(known)] if grows else names):
        raise InvalidInputError(
            f"Y has the labels {shown(names)}, and fit saw {shown(known)}; give these, in their order"
            f"{', and new ones on the right' if grows else ''}, by Y.reindex(columns=…, fill_value=0)."
        )
    if learn:
        estimator.label_names_in_ = np.array(names, dtype=object)


def learn_labels(estimator: Any, Y: Any) -> None:
    """Keep the names of the columns of a frame of labels, and none of an earlier fit."""
    estimator.__dict__.pop("label_names_in_", None)
    check_labels(estimator, Y, learn=True)


def positions(what: str, known: Array, names: Array, other: int | None = None) -> Array:
    """Return where names stand among those that `fit` saw; others are refused, unless a number stands for them."""
    numbers = {name: number for number, name in enumerate(known.tolist())}
    names = column_of_names(what, names)
    unknown = [name for name in names.tolist() if name not in numbers]
    if unknown and other is None:
        cure = "fit it with the others"
        if (known.dtype.kind in "OU") != (names.dtype.kind in "OU"):
            cure = f"give names such as {known[:1].tolist()[0]!r}"
        raise InvalidInputError(f"{what} {unknown[0]!r} was not seen by fit; {cure}.")
    return np.array([numbers.get(name, other) for name in names.tolist()], dtype=np.int64)


def package(module: str, distribution: str | None = None, instead: str = "take the index 'exact'") -> Any:
    """Return a module of a package that is installed apart; an `InvalidInputError` tells how."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise InvalidInputError(
            f"{name} cannot be imported ({error}); pip install {distribution or name}, or {instead}."
        ) from error
