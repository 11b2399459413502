"""The command ``rmopt``."""

import sys
import warnings
from collections.abc import Sequence

from rmopt.cli.failures import one_line_errors, signals_raise

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line with some arguments, by default those of the process, and exit.

    The status is 0 on success, 1 if a check failed, 2 for unusable input, 130 if interrupted, 143 if terminated.
    """
    with signals_raise(), one_line_errors():
        from rmopt.cli.commands import app

        usual = warnings.formatwarning
        warnings.formatwarning = lambda message, *_, **__: f"rmopt: warning: {message}\n"
        # The shell may have closed one of them, by >&-.
        streams = [stream for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
        for stream in streams:
            stream.reconfigure(errors="replace")
        try:
            app(args=None if argv is None else list(argv), prog_name="rmopt")
        finally:
            warnings.formatwarning = usual
            # Errors of standard output are reported here, and not when Python ends.
            for stream in streams:
                stream.flush()
