"""Arrays from files, with one sentence for everything that can be wrong with them."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.core.errors import StorageError


def read_npz(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the arrays of these names from an ``.npz`` file.

    Raises
    ------
    StorageError
        When the file is damaged or lacks one of them.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return {name: stored[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise StorageError(f"{path} is damaged ({error}); replace or remove it.") from error


def read_text_table(path: Path, separator: str, **options: Any) -> Any:
    """Return a table of numbers from a text file.

    Raises
    ------
    StorageError
        When the file is damaged.
    """
    try:
        # numpy takes separators of one character.
        with path.open() as stream:
            lines = (line.replace(separator, ",") for line in stream)
            return np.loadtxt(lines, delimiter=",", ndmin=2, **options)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error}); replace or remove it.") from error
