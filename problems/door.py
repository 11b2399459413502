"""The door of every estimator: data and parameters are checked here, once, and trusted inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from rmopt.core.errors import InvalidInputError
from rmopt.core.matrices import sound


def admit(estimator: Any, X: Any, y: Any = "no_validation", *, sparse: bool = True, **how: Any) -> Any:
    """Return X, or X and y, as float64 rows: an array, or a whole and canonical CSR array.

    Parameters
    ----------
    estimator : BaseEstimator
        Learns or compares `n_features_in_` and `feature_names_in_`.
    X : array, sparse matrix or data frame, shape (n_samples, n_features)
    y : array, optional
    sparse : bool
        Whether sparse rows are taken.
    **how
        Further options of ``sklearn.utils.validation.validate_data``, ``reset`` among them.

    Raises
    ------
    InvalidInputError
        For a damaged sparse matrix, complex numbers or dates.
    ValueError
        scikit-learn's sentence for everything else that is not a table of finite numbers.
    """
    sound("X", X)
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    if kind in "mM":
        raise InvalidInputError(
            "X holds dates or durations; turn them into numbers, for example days since a start."
        )
    found = validate_data(estimator, X, y, accept_sparse="csr" if sparse else False, dtype=np.float64, **how)
    return found
