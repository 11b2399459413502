"""Single and double precision of arrays: which one results, how much coarser single is, and from one to the other."""

from typing import Any

import numpy as np

from rmopt.namespaces import converted, is_array, is_single, namespace, numbers_of

__all__ = ["coarseness", "limits", "matched", "rank_of", "real_type", "slack"]


def real_type(*arrays: Any) -> np.dtype[Any]:
    """Return float32 where all arrays are of single precision, and float64 for others, for integers and for lists."""
    single = all(hasattr(array, "dtype") and is_single(array) for array in arrays)
    return np.dtype(np.float32 if single else np.float64)


def limits(*arrays: Any) -> Any:
    """Return the limits of numpy's ``finfo`` for the precision of some arrays."""
    return np.finfo(real_type(*arrays))


def coarseness(*arrays: Any) -> float:
    """Return how many times coarser than double precision numbers are rounded: 1, or 2²⁹ where an array is single.

    Limits that count roundings are multiplied by it.
    """
    for array in arrays:
        if is_single(array):
            return 2.0**29
    return 1.0


def slack(limit: float, *arrays: Any) -> float:
    """Return how far off arrays may be that a limit of double precision holds; of single at most 1e-4.

    A limit that leaves room for the roundings of a long run would be no limit any more, were it so many roundings of
    single precision: 1e-4 are a thousand.
    """
    return min(limit * coarseness(*arrays), max(limit, 1e-4))


def matched(array: Any, like: Any) -> Any:
    """Return an array in the precision, the library and the field of another one; the array itself where it is so.

    Complex numbers stay complex.
    """
    if type(array) is type(like) and array.dtype == like.dtype:
        return array
    kind = numbers_of(array).kind
    if kind not in "biufc" or (not hasattr(array, "astype") and not is_array(array)):
        return array
    wanted = real_type(like)
    if kind == "c" or numbers_of(like).kind == "c":
        wanted = np.result_type(wanted, np.complex64)
    if namespace(array) is namespace(like) and numbers_of(array) == wanted:
        return array
    return converted(array, like, wanted)


def rank_of(values: np.ndarray) -> int:
    """Return how many of some falling singular or eigenvalues do not vanish beside the first one, up to rounding."""
    return int(np.sum(values > 1e-15 * coarseness(values) * abs(values[0])))
