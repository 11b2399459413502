"""User-given folds of a cross-validation."""

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, check_cv

from rmopt.core import InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, shown


def folds_of(cv: Any, X: Any, Y: Array, groups: Any) -> list[tuple[Array, Array]]:
    """Return the folds that `cv` makes, as numbers of rows."""
    rows = np.arange(len(Y))
    try:
        if cv is None or isinstance(cv, Integral):
            dealer = KFold(5 if cv is None else integer("cv", cv, 2), shuffle=True, random_state=0)
        else:
            dealer = check_cv(cv if hasattr(cv, "split") else list(cv))
        # For masks and for numbers.
        return [(rows[list(train)], rows[list(test)]) for train, test in dealer.split(X, Y, groups=groups)]
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f"cv = {shown(cv)} cannot deal {len(Y)} rows into folds ({error}); it must be a number of folds, a "
            "splitter, None, or pairs of arrays (train, test), and if it needs groups, give fit groups=."
        ) from error
