"""What a function finds outside of itself: compiled functions hold it as it was when they were compiled."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, TypeVar

T = TypeVar("T")

_EMPTY = CellType()
# Functions of installed packages and of Python itself do not change their minds.
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# Of longer lists and dictionaries entries that are bound anew are not looked for.
_LONG = 1000


def found_outside(function: Any) -> list[Any]:
    """Return what a function finds in its closure and its module, and so do functions of the user's that it calls.

    What stands behind a name that is looked up in an object or a module, and in a short list or dictionary, is there
    as well. The order is always the same, so that two calls tell by `same` whether a name was bound anew.
    """
    found: list[Any] = []
    waiting, met, names = [function], set(), dict[str, None]()
    owners: list[Mapping[str, Any]] = []
    while waiting:
        one = waiting.pop()
        if id(one) not in met:
            met.add(id(one))
            if isinstance(one, MethodType):
                waiting += [one.__func__, one.__self__]
            elif isinstance(one, functools.partial):
                waiting += [one.func, *one.args, *one.keywords.values()]
            elif isinstance(one, FunctionType):
                if one is function or not one.__code__.co_filename.startswith(_INSTALLED):
                    looked_up = _names(one.__code__)
                    names.update(dict.fromkeys(looked_up))
                    held = [cell.cell_contents for cell in one.__closure__ or () if cell != _EMPTY]
                    held += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
                    held += [one.__globals__[name] for name in looked_up if name in one.__globals__]
                    found += held
                    waiting += held
            elif isinstance(one, dict | list | tuple):
                if len(one) <= _LONG:
                    found += one.values() if isinstance(one, dict) else one
            elif hasattr(one, "__dict__"):
                # Properties of a class would be computed, and are left out.
                owners += [vars(one), *map(vars, type(one).__mro__)]
        if not waiting:
            attributes = [owner[name] for owner in owners for name in names if name in owner]
            waiting = [one for one in attributes if id(one) not in met]
    return found + attributes


def same(found: list[Any], before: list[Any]) -> bool:
    """Return whether two lists hold the same things."""
    return len(found) == len(before) and all(one is other for one, other in zip(found, before, strict=True))


def remembered(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a function of functions that keeps its results, until a name that one of them uses is bound anew."""
    known: dict[Any, tuple[list[Any], T]] = {}

    @functools.wraps(make)
    def made(function: Any) -> T:
        outside = found_outside(function)
        if function not in known or not same(outside, known[function][0]):
            known[function] = outside, make(function)
        return known[function][1]

    return made


@functools.cache
def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names that code looks up, and the functions within it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return sum(map(_names, inner), code.co_names)
