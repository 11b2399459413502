"""Errors that a user can correct become one line, and errors in the program keep their traceback."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import EDQUOT, ENOSPC
from typing import Any, NoReturn

ENDS = {128 + signal.SIGINT: "interrupted", 128 + signal.SIGTERM: "terminated"}


class Explained(SystemExit):
    """The end of the program, after its reason was printed."""


def fail(sentence: str, status: int = 2) -> NoReturn:
    """Print one line on standard error and exit."""
    print(f"rmopt: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
    raise Explained(status)


def _raises(number: int, frame: Any) -> NoReturn:
    """Raise like a signal, and again a second later if a library has swallowed it."""
    ended = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)

    def look(*_: Any) -> None:
        # The exception on its way out is the one being handled, or in its context.
        seen = sys.exception()
        while seen is not None and seen is not ended:
            seen = seen.__context__
        if seen is None:
            raise ended

    # Exceptions in callbacks, such as importlib's and LLVM's, are printed and lost.
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    raise ended


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let SIGTERM raise in a with block as SIGINT does: SystemExit with the status 143."""
    with ExitStack() as stack:
        main = threading.current_thread() is threading.main_thread()
        if main and hasattr(signal, "setitimer"):
            stack.callback(signal.signal, signal.SIGALRM, signal.getsignal(signal.SIGALRM) or signal.SIG_DFL)
            stack.callback(signal.setitimer, signal.ITIMER_REAL, 0.0)
        for number in (signal.SIGINT, signal.SIGTERM):
            # Neither ignored signals, nor handlers from outside Python, which could not be restored.
            if main and signal.getsignal(number) not in (signal.SIG_IGN, None):
                stack.callback(signal.signal, number, signal.signal(number, _raises))
        yield


@contextmanager
def one_line_errors(left: Callable[[], str] = str) -> Iterator[None]:
    """Turn an error of rmopt, a signal, or an error of the output, into one line and an exit status.

    `left` describes the results of an interrupted command.
    """
    try:
        yield
    except Explained:
        raise
    except (KeyboardInterrupt, SystemExit) as ended:
        # typer has made a SystemExit of an interrupt that came between its parts.
        status = 130 if isinstance(ended, KeyboardInterrupt) else ended.code
        if status not in ENDS:
            raise
        fail("; ".join(filter(None, (ENDS[status], left()))) + ".", status)
    except Exception as error:
        from rmopt.errors import RmoptError

        if isinstance(error, RmoptError):
            fail(str(error))
        if isinstance(error, OSError) and error.filename is None and error.errno in (ENOSPC, EDQUOT):
            fail(f"cannot write ({error.strerror}); free some space, or write elsewhere.")
        raise
