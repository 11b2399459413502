"""What an object is, as a string: equal in another process where its data and its code are equal, and only there."""

import builtins
import copyreg
import functools
import hashlib
import random
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.errors import InvalidInputError

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})
# What there is to see of things that pickle does not take apart.
_MADE_OF: dict[type, tuple[str, ...]] = {
    types.ModuleType: ("__name__",),
    types.CodeType: (
        "co_code", "co_names", "co_varnames", "co_argcount", "co_kwonlyargcount", "co_freevars", "co_cellvars",
        "co_exceptiontable", "co_consts",
    ),
    types.MethodType: ("__func__", "__self__"),
    types.BuiltinFunctionType: ("__qualname__", "__self__"),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),
    staticmethod: ("__wrapped__",),
    classmethod: ("__wrapped__",),
}  # fmt: skip
# What Python itself keeps in a class: names, texts, annotations.
_PYTHONS = frozenset(
    f"__{word}__"
    for word in (
        "module", "qualname", "doc", "dict", "weakref", "slots", "annotations", "dataclass_fields",
        "dataclass_params", "match_args", "abstractmethods", "parameters", "orig_bases", "firstlineno",
        "static_attributes", "annotate", "slotnames", "annotations_cache", "annotate_func", "protocol_attrs",
    )
)  # fmt: skip
# Texts, what a wrapper wraps, and where a vectorizer of scikit-learn has its stop words in the memory of a process.
_PASSING = ("__doc__", "__wrapped__", "_stop_words_id")
_RANDOM = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
# The packages of this distribution, which in an editable install lie among the user's files; and the libraries of
# automatic differentiation, which may lie anywhere.
_BY_NAME = ("rmopt", "problems", "autograd", "jax", "torch")
_PYTHON = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})


def fingerprint(thing: Any, name: str = "it") -> str:
    """Return a short digest of data, settings and code; `name` is what the caller calls them.

    Looks at arrays and sparse matrices, at the attributes of objects, and at the code of functions and classes with
    what they refer to; functions and classes of installed packages count by their names. Caches are no part of an
    object: values of a `functools.cached_property`, and what the class leaves out in ``__getstate__``. A class that
    cannot be looked into says itself what it is, by a method ``fingerprint()`` that returns a string. What has a
    state that cannot be seen, as an open file or a generator has, is refused, and the message says where it is.
    """
    return _Walk(name).digest(thing).hex()[:24]


def fingerprints(thing: Any, name: str, apart: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the fingerprints of an object's class and of its attributes but those in `apart`, by name."""
    state = thing.__getstate__() if _own_word(thing) is None and not isinstance(thing, type) else None
    if not isinstance(state, dict):
        return {name: fingerprint(thing, name)}
    kind = type(thing)
    found = {name: f"{kind.__name__} {fingerprint(kind, name)}"}
    for key, value in _lasting(thing, state):
        if key not in apart:
            found[f"{name}.{key}"] = spelled(value, f"{name}.{key}")
    return found


def spelled(thing: Any, name: str = "it") -> str:
    """Return a short number or word as it is written, and the fingerprint of anything else."""
    short = type(thing) in _PLAIN and len(repr(thing)) <= 40
    return repr(thing) if short else fingerprint(thing, name)


class _Walk:
    """One look at everything that can be reached from an object."""

    def __init__(self, name: str) -> None:
        self.path = [name]
        # Objects are kept, so that no other gets their number while the walk lasts.
        self.known: dict[int, tuple[Any, bytes]] = {}
        self.open: dict[int, int] = {}

    def digest(self, thing: Any, label: str = "") -> bytes:
        """Return the digest of an object; what leads back to one that is being looked at counts by its depth."""
        number = id(thing)
        if number in self.open:
            return b"back to %d" % self.open[number]
        if number not in self.known:
            self.open[number] = len(self.open)
            self.path.append(label)
            total = hashlib.sha256()
            for part in self._parts(thing):
                data = str(part).encode() if isinstance(part, str | int | tuple) else part
                total.update(b"%d:" % len(data))
                total.update(data)
            self.path.pop()
            del self.open[number]
            self.known[number] = thing, total.digest()
        return self.known[number][1]

    def _parts(self, thing: Any) -> Iterator[Any]:
        """Yield what an object is made of: words, bytes, and digests of its parts."""
        kind = type(thing)
        if kind in _PLAIN:
            yield from (kind.__name__, repr(thing))
        elif isinstance(thing, type):
            yield from self._class(thing)
        elif isinstance(thing, types.FunctionType):
            yield from self._function(thing)
        elif hasattr(thing, "_dispatcher") and hasattr(thing, "_frozen"):
            # Of `numba.vectorize`: pickle sees it with what was compiled so far.
            yield from (self.digest(thing._dispatcher), *(thing.types if thing._frozen else ()))
        elif hasattr(thing, "py_func") and hasattr(thing, "targetoptions"):
            options = sorted(thing.targetoptions.items(), key=str)
            yield from ("compiled", self.digest(thing.py_func), self.digest(options))
            # Where signatures were given, arguments become what these say.
            if not getattr(thing, "_can_compile", True):
                yield from sorted(map(str, thing.overloads))
        elif isinstance(thing, types.CellType):
            yield "empty" if thing == types.CellType() else self.digest(thing.cell_contents)
        elif kind is types.ModuleType and not is_installed(thing.__name__):
            # The user's own: its text, for what it does is what a run depends on.
            file = Path(getattr(thing, "__file__", None) or "")
            yield from ("module", file.read_bytes() if file.is_file() else thing.__name__)
        elif isinstance(thing, tuple(_MADE_OF)):
            names = next(names for made, names in _MADE_OF.items() if isinstance(thing, made))
            yield from (kind.__name__, *(self.digest(getattr(thing, name)) for name in names))
        elif isinstance(thing, _RANDOM):
            raise self._refused(thing, "is a source of random numbers, and no file keeps how far it is")
        elif (said := _own_word(thing)) is not None:
            if not isinstance(said, str):
                raise self._refused(thing, f"returned {said!r} as its fingerprint, which must be a string")
            yield from (self.digest(kind), said)
        elif isinstance(thing, np.ndarray):
            kind = np.ndarray if kind is np.memmap else kind
            yield from ("array", self.digest(kind), repr(thing.dtype), thing.shape)
            # Arrays of one's own have attributes; masked ones keep their mask there.
            yield from (self.digest(np.ma.getmaskarray(thing)) if np.ma.isMaskedArray(thing) else "all",)
            if kind is not np.ndarray and not np.ma.isMaskedArray(thing):
                yield self.digest(getattr(thing, "__dict__", None))
            if thing.dtype.hasobject:
                yield self.digest(thing.tolist())
            else:
                yield np.ascontiguousarray(thing).reshape(-1).view(np.uint8)
        elif isinstance(thing, np.generic):
            yield from ("number", thing.dtype.str, thing.tobytes())
        elif sp.issparse(thing):
            # Storage sorts itself in place when it is used.
            rows = thing.tocsr() if thing.ndim == 2 else thing.reshape(1, -1).tocsr()
            rows = rows if rows.has_sorted_indices else rows.sorted_indices()
            yield from (kind.__name__, rows.shape, *map(self.digest, (rows.data, rows.indices, rows.indptr)))
        elif kind in (list, tuple):
            yield kind.__name__
            yield from (self.digest(part, f"[{place}]") for place, part in enumerate(thing))
        elif kind in (dict, types.MappingProxyType):
            yield kind.__name__
            for key, value in thing.items():
                yield from (self.digest(key), self.digest(value, f"[{key!r}]"))
        elif isinstance(thing, set | frozenset):
            yield from (self.digest(kind), *sorted(map(self.digest, thing)))
        else:
            yield from self._object(thing)

    def _object(self, thing: Any) -> Iterator[Any]:
        """Yield class and state, as pickle and copy see them."""
        reduce = copyreg.dispatch_table.get(type(thing))
        try:
            found = reduce(thing) if reduce is not None else thing.__reduce_ex__(2)
        except (TypeError, AttributeError, ValueError, NotImplementedError):
            raise self._refused(thing, "has a state that cannot be looked into") from None
        if isinstance(found, str):
            if not any(vars(module).get(found) is thing for module in list(sys.modules.values())):
                raise self._refused(thing, "has a state that cannot be looked into")
            if is_installed(type(thing).__module__):
                yield found
                return
        if isinstance(found, str) or getattr(found[0], "by_name", False):
            # Pickle writes the name alone; what goes by it counts.
            found = type(thing), (), thing.__getstate__()
        make, arguments, *rest = found
        yield from (self.digest(make), self.digest(arguments))
        state, *contents = rest or [None]
        for part in state if type(state) is tuple and len(state) == 2 else (state,):
            if type(part) is dict:
                for key, value in _lasting(thing, part):
                    yield from (str(key), self.digest(value, f".{key}"))
            else:
                yield self.digest(part)
        for part in contents[:2]:
            yield self.digest(None if part is None else list(part))

    def _class(self, made: type) -> Iterator[Any]:
        if is_installed(made.__module__) and "<locals>" not in made.__qualname__:
            yield from ("class", made.__module__, made.__qualname__)
            return
        yield from ("class", made.__name__, *map(self.digest, made.__bases__))
        for key, value in sorted(vars(made).items()):
            is_slot = isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
            is_beside = key == "_abc_impl" or key in _PYTHONS or (key == "__hash__" and value is None)
            if not is_slot and not is_beside:
                yield from (key, self.digest(value, f".{key}"))

    def _function(self, function: types.FunctionType) -> Iterator[Any]:
        """Yield code, defaults, what is enclosed, and the globals that the code names."""
        code, module = function.__code__, function.__module__
        installed = is_installed(module)
        if installed:
            yield from (module, function.__qualname__)
            if "<locals>" not in function.__qualname__:
                return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            yield from (name, self.digest(cell, f" ({name})"))
        yield from (self.digest(function.__defaults__), self.digest(function.__kwdefaults__))
        for key, value in _lasting(function, vars(function)):
            yield from (key, self.digest(value, f".{key}"))
        if installed:
            return
        documented = bool(code.co_consts) and code.co_consts[0] == function.__doc__
        yield self.digest(
            code.replace(co_consts=(None, *code.co_consts[1:])) if documented else code, " (code)"
        )
        names = sorted(set(names_in(code)))
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                yield from (name, self.digest(value, f" ({name})"))
                if isinstance(value, types.ModuleType) and not is_installed(value.__name__):
                    for part in (part for part in names if part in vars(value)):
                        yield from (part, self.digest(vars(value)[part], f" ({name}.{part})"))
            elif not hasattr(builtins, name):
                # Perhaps a module that the function itself imports.
                imported = sys.modules.get(name)
                yield name if imported is None else self.digest(imported, f" ({name})")

    def _refused(self, thing: Any, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"a checkpoint cannot tell this run from others: {''.join(self.path)}, of type {type(thing).__name__}, "
            f"{why}; leave it out, or give the class that holds it a method fingerprint() that returns a string of "
            "all that matters."
        )


def _own_word(thing: Any) -> Any:
    said = None if isinstance(thing, type) else getattr(type(thing), "fingerprint", None)
    return said(thing) if callable(said) else None


def _lasting(owner: Any, state: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the attributes of an object, sorted, without texts and what `functools.cached_property` keeps."""
    found = {
        key: value
        for key, value in state.items()
        if key not in _PASSING
        and not isinstance(getattr(type(owner), str(key), None), functools.cached_property)
    }
    return sorted(found.items(), key=lambda item: str(item[0]))


@functools.cache
def names_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that code looks up, and the functions within it."""
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return sum(map(names_in, inner), code.co_names)


@functools.cache
def is_installed(module: str | None) -> bool:
    """Return whether a module is of Python, of an installed package or of this one, and not of the user."""
    if module is None or module == "__main__":
        return False
    if module.partition(".")[0] in _BY_NAME:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in sys.builtin_module_names or module in sys.stdlib_module_names
    path = Path(file).resolve()
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts) or any(
        folder in _PYTHON or f"\n{path.relative_to(folder).as_posix()}," in _records(folder)
        for folder in path.parents
    )


@functools.cache
def _records(folder: Path) -> str:
    """Return what an installer, ``pip install --target`` say, wrote of the files that it put into a folder."""
    return "".join("\n" + file.read_text("utf-8") for file in folder.glob("*.dist-info/RECORD"))
