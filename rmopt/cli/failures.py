"""Errors that a user can mend are told in one sentence; errors in the program keep their traceback."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

from rmopt.cli.output import OutputFolder
from rmopt.core.errors import RmoptError

UNUSABLE_INPUT = 2
INTERRUPTED = 130
_DISK_IS_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


def fail(sentence: str, status: int = UNUSABLE_INPUT) -> NoReturn:
    """Print one line on standard error and exit."""
    typer.echo(f"rmopt: {' '.join(sentence.split())}", err=True)
    raise typer.Exit(status)


@contextmanager
def told_in_a_sentence(folder: OutputFolder | None = None) -> Iterator[None]:
    """Turn an error of rmopt, or one of the output folder, into one line and an exit status."""
    try:
        yield
    except RmoptError as error:
        fail(str(error))
    except KeyboardInterrupt:
        kept = folder is not None and folder.written()
        what = f"what was saved is in {folder}" if kept else "nothing was saved"
        fail(f"interrupted; {what}.", INTERRUPTED)
    except OSError as error:
        if folder is None or not _concerns(folder.path, error):
            raise
        fail(f"cannot write into {folder} ({error.strerror}); free some space or choose another folder.")
    finally:
        if folder is not None:
            folder.remove_if_empty()


def _concerns(out: Path, error: OSError) -> bool:
    named = error.filename
    inside = isinstance(named, str | Path) and Path(named).absolute().is_relative_to(out.absolute())
    return inside or error.errno in _DISK_IS_FULL
