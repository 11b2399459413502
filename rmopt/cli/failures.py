"""Errors that a user can mend are told in one sentence; errors in the program keep their traceback."""

import errno
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rmopt.cli.output import OutputFolder

UNUSABLE_INPUT = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
_DISK_IS_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


class Told(SystemExit):
    """The end of the program, after its reason was told."""


def fail(sentence: str, status: int = UNUSABLE_INPUT) -> NoReturn:
    """Print one line on standard error and exit."""
    print(f"rmopt: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
    raise Told(status)


class _Raises:
    """What a signal does: raise, and note that it came, for an exception is lost in a callback of a compiled library.

    The next piece of a run finds the note (`rmopt.solvers.interrupts`).
    """

    came = False

    def __call__(self, number: int, frame: Any) -> NoReturn:
        self.came = True
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let SIGTERM raise in a with block as SIGINT does: SystemExit with the status 143."""
    before: dict[int, Any] = {}
    with suppress(ValueError):  # signals are for the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            # Neither what is ignored, nor what was set from outside of Python and could not be set again.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, _Raises())
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


@contextmanager
def told_in_a_sentence(
    folder: "OutputFolder | None" = None, *, left: str = "nothing was saved.", resumable: bool = False
) -> Iterator[None]:
    """Turn an error of rmopt, a signal, or an error of the output, into one line and an exit status.

    What a signal `left` is said where there are no files in a folder to name; of a run that is `resumable` how to go
    on.
    """
    try:
        yield
    except Told:
        raise
    except KeyboardInterrupt:
        fail(f"interrupted; {_left(folder, resumable) or left}", INTERRUPTED)
    except SystemExit as ended:
        # typer has made the former of an interrupt that came between its parts.
        if ended.code in (INTERRUPTED, TERMINATED):
            told = "interrupted" if ended.code == INTERRUPTED else "terminated"
            fail(f"{told}; {_left(folder, resumable) or left}", ended.code)
        raise
    except Exception as error:
        from rmopt.errors import RmoptError

        if isinstance(error, RmoptError):
            fail(str(error))
        if isinstance(error, OSError):
            _tell_of_output(error, folder)
        raise
    finally:
        if folder is not None:
            folder.close()


def _left(folder: "OutputFolder | None", resumable: bool) -> str:
    kept = folder.written() if folder is not None else []
    more = f" and {len(kept) - 4} more" if len(kept) > 4 else ""
    on = f"; go on with --resume --out {shlex.quote(str(folder))}" if resumable else ""
    return f"what was saved is in {folder}: {', '.join(kept[:4])}{more}{on}." if kept else ""


def _tell_of_output(error: OSError, folder: "OutputFolder | None") -> None:
    """Exit when standard output or the output folder does not take what is written; return otherwise."""
    try:
        if error.filename is None:
            # Whether it was standard output is not said, and what it refused is not always tried again.
            sys.stdout.write("\n")
            sys.stdout.flush()
    except OSError as broken:
        # Python would complain again when it ends, of what is still in its buffer.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if broken.errno == errno.EPIPE:
            raise Told(1) from None  # nobody reads on, which is no failure to tell of
        fail(f"cannot write to standard output ({broken.strerror}); send it elsewhere.")
    named = error.filename
    if folder is not None and (
        error.errno in _DISK_IS_FULL
        or (isinstance(named, str | Path) and Path(named).absolute().is_relative_to(folder.path.absolute()))
    ):
        fail(f"cannot write into {folder} ({error.strerror}); free some space or choose another folder.")
