"""The arrays and numbers of points and states of any class, in a fixed order and by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from itertools import repeat
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.product import Parts
from rmopt.errors import InvalidInputError

# Types that are always leaves.
PLAIN = {np.ndarray, float, int, bool, np.float64, np.int64}


def arrays_of(point: Any) -> list[Array]:
    """Return the arrays of a point or state: a dataclass, a mapping, a sequence of points, or one array or number."""
    if ns.is_array(point):
        return [point]
    return [leaf if ns.is_array(leaf) else np.asarray(leaf) for leaf in _leaves(point)[1]]


def plain(point: Any) -> Any:
    """Return a point, tangent vector or state with numpy arrays: the same object if it has them already."""
    arrays = arrays_of(point)
    if all(isinstance(one, np.ndarray) for one in arrays):
        return point
    return rebuilt(point, list(map(ns.to_numpy, arrays)))


def plain_reals(point: Any, taker: str) -> Any:
    """Return a point of real numpy arrays. The error for others names the object that needs them."""
    if all(isinstance(one, np.ndarray) and not ns.is_complex(one) for one in arrays_of(point)):
        return point
    raise InvalidInputError(
        f"the point is complex or of another library, and {taker} takes real arrays of numpy; bring it there, or "
        "take a full-gradient solver, such as ConjugateGradient."
    )


def of_plain_reals(load: Callable[[Any, Any], Any]) -> Any:
    """Make a method refuse points that are not real numpy arrays."""

    @wraps(load)
    def guarded(self: Any, point: Any) -> Any:
        return load(self, plain_reals(point, type(self).__name__))

    return guarded


def as_like(point: Any, like: Any) -> Any:
    """Return a point with its arrays in the library, on the device and in the precision of an array or a point."""
    if like is None:
        return point
    first = arrays_of(like)[0]
    wanted = in_precision(point, ns.real_type(first))
    return rebuilt(wanted, [ns.asarray(array, first) for array in arrays_of(wanted)])


def normal_like(point: Any, rng: np.random.Generator) -> Any:
    """Return a point's arrays filled with independent standard normal numbers, of their field."""
    drawn = []
    for part in arrays_of(point):
        found = rng.standard_normal(tuple(part.shape))
        drawn.append(
            ns.matched(found + 1j * rng.standard_normal(found.shape) if ns.is_complex(part) else found, part)
        )
    return rebuilt(point, drawn)


def rebuilt(template: Any, arrays: list[Array]) -> Any:
    """Return a point of the class of `template` from the result of `arrays_of`."""
    values: list[Any] = list(arrays)
    for place, leaf in enumerate(_leaves(template)[1]):
        if not ns.is_array(leaf):
            values[place] = values[place][()] if isinstance(leaf, np.generic) else values[place].item()
    return _filled(template, iter(values))


def in_precision(point: Any, dtype: Any = None) -> Any:
    """Return a point, tangent vector or state with all its arrays, except integers, in one precision.

    Parameters
    ----------
    point : point
    dtype : dtype, optional
        np.float32 or np.float64. Defaults to single if all arrays are single, and else to double.

    Returns
    -------
    point
        The same object if no conversion is needed.

    Raises
    ------
    InvalidInputError
        For another type.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import Parts, in_precision
    >>> [
    ...     part.dtype.name
    ...     for part in in_precision(Parts([np.ones(2), np.zeros(3)]), np.float32)
    ... ]
    ['float32', 'float32']
    """
    leaves = _leaves(point)[1]
    held = [leaf for leaf in leaves if ns.is_array(leaf) and ns.numbers_of(leaf).kind in "fc"]
    kind = (ns.real_type(*held) if held else float) if dtype is None else dtype
    if kind not in (np.float32, np.float64, float, "float32", "float64"):
        raise InvalidInputError(
            f"dtype = {shown(dtype)} must be np.float32 or np.float64; complex numbers follow."
        )
    wanted = {"f": np.dtype(kind), "c": np.result_type(kind, np.complex64)}
    if all([ns.numbers_of(leaf) == wanted[ns.numbers_of(leaf).kind] for leaf in held]):
        return point
    known = {id(leaf) for leaf in held}
    arrays = [
        ns.converted(leaf, leaf, wanted[ns.numbers_of(leaf).kind]) if id(leaf) in known else np.asarray(leaf)
        for leaf in leaves
    ]
    return rebuilt(point, arrays)


def of_reals(point: Any) -> Any:
    """Return a point with its integer arrays as reals: steps would be rounded to integers.

    Arrays that do not hold numbers are refused. Those of subclasses, which may redefine ``*`` for example, become
    plain ones.
    """
    if ns.is_array(point):
        numbers = ns.numbers_of(point)
        kind = "masked entries" if np.ma.is_masked(point) else str(point.dtype)
        whole = numbers.kind in "biu"
        if kind == "masked entries" or not (whole or numbers.name in ns.TYPES):
            raise InvalidInputError(f"the point holds {kind}; give a plain array of {', '.join(ns.TYPES)}.")
        if isinstance(point, np.ndarray):
            return np.asarray(point, dtype=np.float64 if whole else None)
        if getattr(point, "requires_grad", False):
            # PyTorch would record all steps of a run.
            point = point.detach()
        return ns.converted(point, point, np.float64) if whole else point
    # In points of other classes, integers are intended.
    return Parts([of_reals(part) for part in point]) if isinstance(point, Parts) else point


def coarseness_of(point: Any) -> float:
    """Return how many times coarser than double precision a point is rounded (see `rmopt.namespaces.coarseness`)."""
    return ns.coarseness(*arrays_of(point))


def size_of(point: Any) -> float:
    """Return the Euclidean length of all numbers of a point, or 0 for a class that hides them."""
    square = 0.0
    for part in arrays_of(point):
        square += float(ns.real_dot(part, part)) if part.dtype != object else 0.0
    return square**0.5


def is_finite(point: Any) -> bool:
    """Return whether all numbers of a point are finite."""
    for part in arrays_of(point):
        xp = ns.namespace(part)
        if ns.numbers_of(part).kind in "fc" and not bool(xp.all(xp.isfinite(part))):
            return False
    return True


def packed(state: Any) -> dict[str, Array]:
    """Return the arrays and numbers of a state by their names, such as ``factors.A``, and refuse anything else."""
    names, leaves, _ = _leaves(state)
    arrays = dict(zip(names, map(ns.to_numpy, leaves), strict=True))
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise InvalidInputError(
                f"a checkpoint cannot keep {name} of a state, of type {type(array.flat[0]).__name__}; make its class "
                "a dataclass of arrays and numbers."
            )
    return arrays


def unpacked(arrays: Mapping[str, Array], template: Any) -> Any:
    """Rebuild the state that `packed` took apart, in new memory.

    `template` is any state of the same run: names, types and shapes must be as there, or `InvalidInputError` is
    raised (but integers of a start may have become reals). Arrays that a dataclass names in its class attribute
    ``varying`` may have a last axis of any length.
    """
    names, leaves, vary = _leaves(template)
    if arrays.keys() != set(names):
        odd = sorted(arrays.keys() ^ set(names))[0]
        raise InvalidInputError(f"{odd} is {'missing' if odd in names else 'not part of the state'}")
    for name, leaf, varies in zip(names, map(ns.to_numpy, leaves), vary, strict=True):
        found = arrays[name]
        same = found.ndim == leaf.ndim and found.shape[:-1] == leaf.shape[:-1]
        same = same and (varies or found.shape == leaf.shape)
        if not same or not np.can_cast(leaf.dtype, found.dtype, "safe") or found.dtype.kind not in "biufc":
            raise InvalidInputError(
                f"{name or 'it'} holds {found.dtype} of shape {found.shape}, not {leaf.dtype} of shape {leaf.shape}"
            )
    # The memory order matters: the other order rounds products differently.
    made = [np.array(arrays[name], order="K") for name in names]
    of = [ns.asarray(one, leaf) if ns.is_array(leaf) else one for one, leaf in zip(made, leaves, strict=True)]
    return rebuilt(template, of)


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the parts of dataclasses and named tuples, and None for other classes."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else getattr(kind, "_fields", None)


def _leaves(thing: Any) -> tuple[list[str], list[Any], list[bool]]:
    """Return the names and values of all arrays and numbers, and whether their last axes may vary."""
    names, leaves, vary, waiting = [], [], [], [("", thing, False)]
    while waiting:
        name, part, varies = waiting.pop()
        if (parts := None if type(part) in PLAIN else _parts(part)) is None:
            names.append(name)
            leaves.append(part)
            vary.append(varies)
            continue
        varying, dot = getattr(part, "varying", ()), f"{name}." if name else ""
        for key in reversed(parts):
            waiting.append((f"{dot}{key}", parts[key], key in varying))
    return names, leaves, vary


def _parts(thing: Any) -> dict[Any, Any] | None:
    """Return the parts of a point, state, mapping or sequence by name, and None for an array or a number."""
    if (names := _names(type(thing))) is not None:  # type: ignore[arg-type]
        return dict(zip(names, map(getattr, repeat(thing), names), strict=True))
    if isinstance(thing, Mapping):
        return dict(thing)
    return dict(enumerate(thing)) if isinstance(thing, list | tuple | Parts) else None


def _filled(template: Any, values: Iterator[Any]) -> Any:
    """Return a point or state of the class of `template`, with new arrays and numbers in the order of `_leaves`."""
    made: Any = type(template)
    if (parts := _parts(template)) is None:
        return next(values)
    for key, part in parts.items():
        parts[key] = next(values) if type(part) in PLAIN else _filled(part, values)
    if isinstance(template, Mapping):
        return made(parts)
    if isinstance(template, list | tuple | Parts) and not hasattr(made, "_fields"):
        return made(list(parts.values()))
    return made(*parts.values())
