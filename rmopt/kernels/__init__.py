"""The decorator of all loops: numba compiles a loop, and is itself imported, when the loop is first wanted.

Importing numba takes 0.3 s, which many programs that import rmopt, and its command line, need not spend.
"""

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from rmopt.errors import InvalidInputError

_lock = threading.RLock()
# What is to be called before a loop is compiled.
_waiting: list[Callable[[], None]] = []


def before_compiling(define: Callable[[], None]) -> Callable[[], None]:
    """Decorate what is to be called before the first loop is compiled."""
    _waiting.append(define)
    return define


class Compiled:
    """A function that is handed to `numba.njit` when it is first called, or named in a loop that is compiled.

    After that it is what numba made of it in all but its class, for Python and for numba.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name != "_dispatcher":
            return getattr(self._dispatcher, name)
        # Once, and an attribute like others from then on; two of them would be compiled twice.
        with _lock:
            if name not in vars(self):
                made = _jit(self._options)(self._function)
                made.compiled, vars(self)[name] = self, made
            return vars(self)[name]

    @property
    def _numba_type_(self) -> Any:
        """What numba asks an object for whose class it does not know."""
        from numba import typeof

        return typeof(self._dispatcher)

    def __reduce__(self) -> Any:
        return _itself, (self._dispatcher,)


def _itself(dispatcher: Any) -> Any:
    """Return the function that a dispatcher was made of, in its own process; in others it is the function."""
    return getattr(dispatcher, "compiled", dispatcher)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that `numba.njit` is with these options."""
    return lambda function: Compiled(function, options)


def thread_count() -> int:
    """Return how many threads compiled loops may use: `numba.set_num_threads`, else all cores."""
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
