"""Rows of numbers: their scale, their lengths, and their images under a model."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core.ambient import Array
from rmopt.errors import DivergedError, InvalidInputError

# An offset beyond this many standard deviations costs half of the digits of squared distances.
FAR = 1e4


def natural_size(rows: Any, share: float, power: float, *, centred: bool = False) -> float:
    """Return the share over a power of the mean of ‖x‖²: a default in the units of the data, if it is finite.

    For distances, x is measured from the mean row.
    """
    values = rows.data if sp.issparse(rows) else rows
    square = spread = float(np.vdot(values, values))
    if centred:
        spread -= rows.shape[0] * float(np.linalg.norm(rows.mean(axis=0))) ** 2
    if not values.any() or spread < 1e-12 * square:
        return share  # rounding is no scale
    mean_square = spread / rows.shape[0]
    with np.errstate(all="ignore"):
        size = float(share / np.float64(1.0 if abs(mean_square - 1.0) < 1e-9 else mean_square) ** power)
    # The squares of very small numbers have too few digits for a scale.
    if mean_square < np.finfo(float).tiny or not 0.0 < size < np.inf:
        raise InvalidInputError(
            f"the rows of X have a mean squared length of {mean_square:.1e}, out of reach of defaults in their "
            "units; scale X, for example to rows of length 1."
        )
    return size


def in_range(X: Any, name: str = "X") -> Any:
    """Return rows whose fourth powers are finite, as curvatures need them."""
    if not abs(X).max() < 1e75:
        raise InvalidInputError(
            f"{name} holds numbers up to {abs(X).max():.1e}; scale it, for example by StandardScaler()."
        )
    return X


def near_zero(X: Any) -> Any:
    """Return rows without a common offset, such as that of dates, in which distances lose their digits."""
    if not isinstance(X, np.ndarray):
        return X
    centre = X.mean(axis=0)
    return X - centre if np.any(np.abs(centre) > FAR * X.std(axis=0)) else X


def unit_rows(U: Array) -> tuple[Array, Array]:
    """Return rows of unit length and their lengths, with rows of zeros unchanged."""
    # Squares of very large and very small numbers are no numbers.
    sizes = np.abs(U).max(axis=1, keepdims=True, initial=0.0)
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    U = U / sizes
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    return U / lengths, lengths * sizes


def product(X: Any, factor: Array) -> Array:
    """Return the product of rows and a factor of a model, and refuse one that is not finite."""
    with np.errstate(all="ignore"):
        return finite(np.asarray(X @ factor))


def finite(values: Array) -> Array:
    """Return the output of a model, and refuse data that are too large for it."""
    if not np.isfinite(values).all():
        raise InvalidInputError("X is too large for the model: products overflow; scale X as it was for fit.")
    return values


def check_learned(estimator: Any, names: tuple[str, ...], *products: tuple[Array, Array]) -> None:
    """Raise a `DivergedError`, with the names of parameters, unless products of rows of arrays give finite scores."""
    with np.errstate(all="ignore"):
        largest = sum(
            A.shape[1] * np.abs(A).max(initial=0.0) * np.abs(B).max(initial=0.0) for A, B in products
        )
    if not np.isfinite(largest):
        cure = ", ".join(f"{name} than {float(getattr(estimator, name)):g}" for name in names)
        raise DivergedError(f"the scores of the training data are not finite; choose a smaller {cure}.")
