"""What a function finds outside of itself: compiled functions hold it as it was when they were compiled."""

import copyreg
import functools
import sys
import sysconfig
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_EMPTY = CellType()
# Of longer lists and dictionaries entries that are bound anew are not looked for, nor for writes into arrays of more
# bytes, or of more together in one list or dictionary: a look is taken at every call.
_LONG, _LARGE = 1000, 2**16
# So many lists and dictionaries within one are looked into.
_FEW = 100
# As many functions are remembered, the last ones: what they hold would never be freed.
_REMEMBERED = 100
# The packages of this distribution, which in an editable install lie among the user's files; and the libraries of
# automatic differentiation, which may lie anywhere.
_OWN = ("rmopt", "problems", "autograd", "jax", "torch")
_PYTHON = Path(sysconfig.get_path("stdlib")).resolve()
# What is looked up under no name: calls, indices and operators.
_UNNAMED = "call getitem iter len neg add radd sub rsub mul rmul truediv pow matmul rmatmul".split()  # noqa: SIM905


def found_outside(function: Any) -> list[Any]:
    """Return what a function finds in its closure and its module, and so do functions of the user's that it calls.

    What stands behind a name that is looked up in an object or a module, and in a short list or dictionary, is there
    as well, and the code of functions, and the contents of small arrays. The order is always the same, so that two
    calls tell by `same` whether a name was bound anew, or an array was written to. Functions that numba has compiled
    count as what they were made of.
    """
    found: list[Any] = []
    waiting, met, names = [function], set(), dict.fromkeys(f"__{word}__" for word in _UNNAMED)
    owners: list[Mapping[str, Any]] = []
    while waiting:
        one = waiting.pop()
        if id(one) not in met:
            met.add(id(one))
            if isinstance(one, MethodType):
                waiting += [one.__func__, one.__self__]
            elif isinstance(one, functools.partial):
                waiting += [one.func, *one.args, *one.keywords.values()]
            elif isinstance(one, staticmethod | classmethod | property):
                waiting.append(one.fget if isinstance(one, property) else one.__func__)
            elif is_dispatcher(one):
                found.append(one)
                waiting.append(one.py_func)
            elif isinstance(one, FunctionType):
                # Functions of installed packages and of Python itself do not change their minds.
                if one is function or not is_installed(one.__globals__.get("__name__")):
                    found.append(one.__code__)
                    looked_up = names_in(one.__code__)
                    names.update(dict.fromkeys(looked_up))
                    held = [cell.cell_contents for cell in one.__closure__ or () if cell != _EMPTY]
                    held += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
                    held += [one.__globals__[name] for name in looked_up if name in one.__globals__]
                    found += held
                    waiting += held
            elif isinstance(one, np.ndarray):
                if one.nbytes <= _LARGE and not one.dtype.hasobject:
                    found.append(zlib.crc32(one.tobytes()))
            elif isinstance(one, dict | list | tuple):
                if len(one) <= _LONG:
                    entries = list(one.values()) if isinstance(one, dict) else one
                    found += entries
                    if len(entries) <= _FEW:
                        # Arrays, also those of other libraries, hold no names.
                        waiting += [
                            entry for entry in entries if _is_open(entry) and not hasattr(entry, "__array__")
                        ]
                    arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
                    if sum(entry.nbytes for entry in arrays) <= _LARGE:
                        waiting += arrays
            elif _is_open(one):
                slots = copyreg._slotnames(type(one))  # type: ignore[attr-defined]
                owners += [getattr(one, "__dict__", {}), {name: getattr(one, name, None) for name in slots}]
                owners += map(vars, type(one).__mro__)
        if not waiting:
            attributes = [owner[name] for owner in owners for name in names if name in owner]
            waiting = [one for one in attributes if id(one) not in met]
    return found + attributes


def is_dispatcher(thing: Any) -> bool:
    """Return whether a thing is a function that numba compiles."""
    return hasattr(thing, "py_func") and hasattr(thing, "overloads")


def same(found: list[Any], before: list[Any]) -> bool:
    """Return whether two lists hold the same things, and the same whole numbers: what arrays hold is one."""
    return len(found) == len(before) and all(
        one is other or (type(one) is type(other) is int and one == other)
        for one, other in zip(found, before, strict=True)
    )


def remembered(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a function of functions that keeps its results, until what one of them finds outside has changed.

    Functions that numba has compiled before hold what they found then; they are compiled again.
    """
    known: dict[Any, tuple[list[Any], T]] = {}
    lock = threading.RLock()

    @functools.wraps(make)
    def made(function: Any) -> T:
        outside = found_outside(function)
        with lock:
            if function not in known or not same(outside, known[function][0]):
                known[function] = outside, make(function)
                for oldest in list(known)[:-_REMEMBERED]:
                    del known[oldest]
            return known[function][1]

    return made


@functools.cache
def names_in(code: CodeType) -> tuple[str, ...]:
    """Return the names that code looks up, and the functions within it."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return sum(map(names_in, inner), code.co_names)


@functools.cache
def is_installed(module: str | None) -> bool:
    """Return whether a module is of Python, of an installed package or of this one, and not of the user."""
    if module is None or module == "__main__":
        return False
    if module.partition(".")[0] in _OWN:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in sys.builtin_module_names or module in sys.stdlib_module_names
    path = Path(file).resolve()
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts) or path.is_relative_to(_PYTHON)


def _is_open(thing: Any) -> bool:
    """Return whether a thing holds others under names or places."""
    return isinstance(thing, dict | list | tuple) or hasattr(thing, "__dict__") or hasattr(thing, "__slots__")
