"""Arrays of any library: their namespaces, and the few functions whose names differ between libraries.

The type of an array determines its namespace, without a flag. Numpy's arrays come first and directly. PyTorch and
CuPy follow the array API standard through array-api-compat, JAX by itself.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from rmopt.errors import InvalidInputError, MissingCapabilityError

# The number types of points.
TYPES = ("float32", "float64", "complex64", "complex128")
# Numpy has a single object for this type, so `is` is the fastest comparison.
F8 = np.dtype(np.float64)
SINGLE = (np.dtype(np.float32), np.dtype(np.complex64))
# The namespaces of the classes seen so far.
_KNOWN: dict[type, Any] = {np.ndarray: np}


def namespace(array: Any) -> Any:
    """Return the functions for an array (see the array API standard), numpy for numbers, lists and sparse arrays."""
    found = _KNOWN.get(type(array))
    return _met(array) if found is None else found


def _met(array: Any) -> Any:
    kind, found = type(array), np
    root = kind.__module__.partition(".")[0]
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        found = jax.numpy
    elif root in ("torch", "cupy") and hasattr(array, "data_ptr" if root == "torch" else "get"):
        try:
            found = import_module(f"array_api_compat.{root}")
        except ModuleNotFoundError as error:
            raise MissingCapabilityError(
                f"arrays of {root} need array-api-compat; pip install array-api-compat."
            ) from error
    elif not isinstance(array, np.ndarray | np.generic) and hasattr(array, "__array_namespace__"):
        found = array.__array_namespace__()
    _KNOWN[kind] = found
    return found


def is_array(thing: Any) -> bool:
    """Return whether an object is a dense array of numpy or of another library."""
    return isinstance(thing, np.ndarray) or namespace(thing) is not np


def numbers_of(array: Any) -> np.dtype[Any]:
    """Return numpy's type for the numbers of an array: object if numpy has none."""
    return _in_numpy(array.dtype)


@lru_cache(None, typed=True)
def _in_numpy(dtype: Any) -> np.dtype[Any]:
    try:
        return dtype if isinstance(dtype, np.dtype) else np.dtype(str(dtype).rpartition(".")[2])
    except TypeError:
        return np.dtype(object)


def is_complex(array: Any) -> bool:
    """Return whether an array is of complex numbers."""
    return array.dtype is not F8 and numbers_of(array).kind == "c"


def is_single(array: Any) -> bool:
    """Return whether an array is of single precision, real or complex."""
    return array.dtype is not F8 and numbers_of(array) in SINGLE


def conj(array: Any) -> Any:
    """Return the complex conjugates, or a real array unchanged."""
    return namespace(array).conj(array) if is_complex(array) else array


def adjoint(matrix: Any) -> Any:
    """Return the conjugate transposes of matrices."""
    return matrix.mT if matrix.dtype is F8 else conj(matrix.mT)


def real(array: Any) -> Any:
    """Return the real parts, or a real array unchanged."""
    return namespace(array).real(array) if is_complex(array) else array


def real_dot(a: Any, b: Any) -> Any:
    """Return the real inner product of two arrays, as a number or a 0-dimensional array on their device."""
    if type(a) is np.ndarray:
        if a.dtype is not F8 and a.dtype.kind == "c":
            return np.vdot(a, b).real
        if a.ndim == 1:
            # The same sum as by `vdot`, which takes twice as long to start.
            return a.dot(b)
        if a.flags.fnc:
            # `vdot` copies arrays that are stored by columns.
            a, b = a.T, b.T
        return np.vdot(a, b)
    xp = namespace(a)
    return real(xp.vecdot(xp.reshape(a, (-1,)), xp.reshape(b, (-1,))))


def dot_for(array: Any) -> Callable[[Any, Any], Any]:
    """Return a function like `real_dot` for arrays like this one, which saves the dispatch for many short arrays."""
    return np.vdot if type(array) is np.ndarray and array.dtype is F8 else real_dot


def real_dots(a: Any, b: Any, axes: int) -> Any:
    """Return the real inner products over the last axes of one or more points, with these axes kept at length 1."""
    xp = namespace(a)
    if xp is not np:
        return xp.sum(real(conj(a) * b), axis=tuple(range(-axes, 0)), keepdims=True)
    if axes != 1:
        a, b = (one.reshape(*one.shape[: one.ndim - axes], -1) for one in (a, b))
    return np.vecdot(a, b).real[(..., *[None] * axes)]


def to_numpy(array: Any) -> Any:
    """Return an array of any library as one of numpy: a copy if it is on another device, and else a view."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().resolve_conj().resolve_neg()
    elif namespace(array) is not np and hasattr(array, "get"):
        array = array.get()
    return np.asarray(array)


def device_of(array: Any) -> Any:
    """Return the device of an array, or None while JAX traces a function."""
    return None if is_traced(array) else getattr(array, "device", None)


def is_traced(array: Any) -> bool:
    """Return whether an array has no numbers yet, while JAX traces a function."""
    return type(array).__name__.endswith("Tracer")


def converted(array: Any, like: Any, dtype: Any) -> Any:
    """Return an array in a numpy type, in the library and on the device of another one."""
    xp, own = namespace(like), namespace(array)
    if xp is np:
        if own is not np:
            array = to_numpy(array)
        return array.astype(dtype, copy=False)
    kind = getattr(xp, np.dtype(dtype).name)
    return xp.astype(array, kind, copy=False) if own is xp else asarray(array, like, dtype)


def asarray(numbers: Any, like: Any, dtype: Any = None) -> Any:
    """Return numbers as an array of the library and device of another one, in a numpy type."""
    xp, numbers = namespace(like), to_numpy(numbers) if is_array(numbers) else np.asarray(numbers)
    if xp is np:
        return np.asarray(numbers, dtype)
    kind = getattr(xp, np.dtype(dtype or numbers.dtype).name)
    # Tensors have no negative strides, and cannot share read-only memory.
    writable = numbers if numbers.flags.writeable and numbers.flags.c_contiguous else numbers.copy()
    return xp.asarray(writable, dtype=kind, device=device_of(like))


def copied(array: Any) -> Any:
    """Return a copy of an array, or the array itself if it is read-only."""
    if type(array) is np.ndarray:
        return array.copy()
    xp = namespace(array)
    return array if xp.__name__.startswith("jax") else xp.asarray(array, copy=True)


def at_least(array: Any, least: float) -> Any:
    """Return an array with smaller numbers replaced by `least`."""
    if (xp := namespace(array)) is np:
        return np.maximum(array, least)
    # For PyTorch this takes half the time of array-api-compat.
    return array.clamp(min=least) if hasattr(array, "clamp") else xp.clip(array, least, None)


def same(a: Any, b: Any) -> bool:
    """Return whether all numbers of two arrays of one shape are equal."""
    return a is b or bool(namespace(a).all(a == b))


def eye(n: int, like: Any) -> Any:
    """Return an identity matrix in the type and on the device of an array."""
    xp = namespace(like)
    if xp is np:
        return np.eye(n, dtype=like.dtype)
    return xp.eye(n, dtype=like.dtype, device=device_of(like))


def zeros(shape: Any, like: Any) -> Any:
    """Return zeros in the type and on the device of an array."""
    xp = namespace(like)
    if xp is np:
        return np.zeros(shape, like.dtype if like.dtype.kind in "fc" else float)
    return xp.zeros(tuple(shape), dtype=like.dtype, device=device_of(like))


def real_type(*arrays: Any) -> np.dtype[Any]:
    """Return float32 if all arrays are of single precision, and else float64, as for integers and lists."""
    single = all(hasattr(array, "dtype") and is_single(array) for array in arrays)
    return np.dtype(np.float32 if single else np.float64)


def limits(*arrays: Any) -> Any:
    """Return the limits of numpy's ``finfo`` for the precision of some arrays."""
    return np.finfo(real_type(*arrays))


def coarseness(*arrays: Any) -> float:
    """Return how many times coarser than in double precision numbers are rounded: 1, or 2²⁹ if an array is single.

    Limits that count roundings are multiplied by it.
    """
    for array in arrays:
        if is_single(array):
            return 2.0**29
    return 1.0


def slack(limit: float, *arrays: Any) -> float:
    """Return the tolerance for arrays that corresponds to one in double precision: in single at most 1e-4.

    A limit that allows for the roundings of a long run would be meaningless as that many roundings of single
    precision: 1e-4 is a thousand of them.
    """
    return min(limit * coarseness(*arrays), max(limit, 1e-4))


def matched(array: Any, like: Any, stays: bool = False) -> Any:
    """Return an array in the precision, library and field of another one: the same object if it already is.

    Complex numbers stay complex.

    Raises
    ------
    InvalidInputError
        If the array `stays` on its device, and the other one is on a GPU.
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
    if (
        stays
        and namespace(array) is not namespace(like)
        and "cpu" not in str(device_of(like) or "cpu").lower()
    ):
        raise InvalidInputError(
            f"an array of {namespace(array).__name__} meets a point on {device_of(like)}; give one on that device: "
            "copies in each step would take longer than the steps."
        )
    return converted(array, like, wanted)


def rank_of(values: np.ndarray) -> int:
    """Return how many descending singular values or eigenvalues exceed the rounding error of the first."""
    return int(np.sum(values > 1e-15 * coarseness(values) * abs(values[0])))
