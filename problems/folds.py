"""Folds of a cross-validation, as a user gives them."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

from sklearn.model_selection import KFold, check_cv

from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer


def folds_named(name: str, value: Any) -> Any:
    """Return what `splitter` takes; folds that can be taken once are left for `fit`."""
    return value if isinstance(value, Iterator) else splitter(name, value)


def splitter(name: str, value: Any) -> Any:
    """Return a splitter."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(f"{name} = {value!r} must be a number of folds, a splitter or None.")
    if value is None or isinstance(value, Integral):
        return KFold(5 if value is None else integer(name, value, 2), shuffle=True, random_state=0)
    return check_cv(value)


def folds_of(cv: Any, X: Any, Y: Array, groups: Any) -> list[tuple[Array, Array]]:
    """Return the folds that `cv` makes of rows."""
    try:
        return list(splitter("cv", cv).split(X, Y, groups=groups))
    except ValueError as error:
        raise InvalidInputError(
            f"cv cannot deal {len(Y)} rows into folds ({error}); take fewer, and where they go by groups give fit "
            "groups=."
        ) from error
