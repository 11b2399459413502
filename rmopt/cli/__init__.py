"""The command ``rmopt``; little is imported before it listens to signals."""

import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

try:
    from rmopt.cli.failures import signals_raise, told_in_a_sentence
except KeyboardInterrupt:
    sys.stderr.write("rmopt: interrupted; nothing was saved.\n")
    raise SystemExit(130) from None

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line with some arguments, those of the process unless given, and exit.

    The status is 0 on success, 1 when a check failed, 2 for unusable input, 130 when interrupted, 143 when
    terminated.
    """
    with signals_raise(), told_in_a_sentence():
        from rmopt.cli.commands import app

        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                # The shell closed it, by >&-: what is written there is for nobody.
                setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
            if hasattr(stream := getattr(sys, name), "reconfigure"):
                stream.reconfigure(errors="replace")
        usual, warnings.formatwarning = warnings.formatwarning, partial(_in_a_line, set())
        try:
            app(args=None if argv is None else list(argv), prog_name="rmopt")
        finally:
            warnings.formatwarning = usual
            # What is wrong with standard output is said here, and not when Python ends.
            sys.stdout.flush()


def _in_a_line(told: set[str], message: Warning | str, *about: Any, **more: Any) -> str:
    """Return a warning without the place in the source that gave it; nothing where it was told before."""
    line = f"rmopt: warning: {message}\n"
    if line in told:
        return ""
    told.add(line)
    return line
