"""The decorator of all loops: numba compiles a loop, and is itself imported, at the loop's first use.

Importing numba takes 0.3 s, which many programs that import rmopt, and its command line, need not spend.
"""

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from rmopt.errors import InvalidInputError

_lock = threading.RLock()
# Functions to call before the first compilation.
_waiting: list[Callable[[], None]] = []


def before_compiling(define: Callable[[], None]) -> Callable[[], None]:
    """Register a function to be called before the first loop is compiled."""
    _waiting.append(define)
    return define


class Compiled:
    """A function passed to `numba.njit` at its first call, or at its first use in a compiled loop.

    After that it behaves like numba's dispatcher, for Python and for numba.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name != "_dispatcher":
            return getattr(self._dispatcher, name)
        # Created once, since two of them would be compiled twice.
        with _lock:
            if name not in vars(self):
                made = _jit(self._options)(self._function)
                made.compiled, vars(self)[name] = self, made
            return vars(self)[name]

    @property
    def _numba_type_(self) -> Any:
        """The type for numba, which does not know the class."""
        from numba import typeof

        return typeof(self._dispatcher)

    def __reduce__(self) -> Any:
        return _itself, (self._dispatcher,)


def _itself(dispatcher: Any) -> Any:
    """Return the function of a dispatcher, in its own process. In others it is the function itself."""
    return getattr(dispatcher, "compiled", dispatcher)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `numba.njit` with these options."""
    return lambda function: Compiled(function, options)


def thread_count() -> int:
    """Return the number of threads for compiled loops: `numba.set_num_threads`, else all cores."""
    from numba import get_num_threads

    return int(get_num_threads())


def _jit(options: dict[str, Any]) -> Any:
    from numba import config, njit

    while _waiting:
        _waiting.pop()()
    if config.DISABLE_JIT:
        raise InvalidInputError(
            "NUMBA_DISABLE_JIT is set, and rmopt's loops exist only compiled; unset it, and step through your own "
            'cost with engine="reference".'
        )
    return njit(**options)
