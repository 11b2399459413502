"""Folds of a cross-validation, as a user gives them."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, check_cv

from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, shown

FOLDS = "a number of folds, a splitter, None, or a list of pairs of arrays (train, test)"


def folds_named(name: str, value: Any) -> Any:
    """Return what `splitter` takes; folds that can be taken once are left for `fit`."""
    return value if isinstance(value, Iterator) else splitter(name, value)


def splitter(name: str, value: Any) -> Any:
    """Return a splitter."""
    if value is None or isinstance(value, Integral):
        return KFold(5 if value is None else integer(name, value, 2), shuffle=True, random_state=0)
    try:
        return check_cv(value if hasattr(value, "split") else [(train, test) for train, test in value])
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} = {shown(value)} must be {FOLDS}.") from None


def folds_of(cv: Any, X: Any, Y: Array, groups: Any) -> list[tuple[Array, Array]]:
    """Return the folds that `cv` makes of rows, as numbers of rows."""
    dealer, rows = splitter("cv", cv), np.arange(len(Y))
    try:
        # Of masks and of numbers.
        folds = dealer.split(X, Y, groups=groups)
        return [(rows[list(train)], rows[list(test)]) for train, test in folds]
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f"cv = {shown(cv)} cannot deal {len(Y)} rows into folds ({error}); it must be {FOLDS}, and where they go "
            "by groups give fit groups=."
        ) from error
