"""Data sets by name: how they are registered, loaded, and where their files lie."""

import inspect
import os
from collections.abc import Callable
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from problems.data.bundles import Bundle
from rmopt.core.errors import InvalidInputError, StorageError
from rmopt.core.files import reading

__all__ = ["data_folder", "load"]

B = TypeVar("B", bound=Bundle)


def load(name: str, data_home: Path | str | None = None, kind: type[B] = Bundle) -> B:  # type: ignore[assignment]
    """Load a data set by the name it has in the entry-point group ``rmopt.datasets``.

    A package adds a data set by registering a function ``(data_home) -> Bundle`` in that group.

    Parameters
    ----------
    name : str
        For example ``"digits"``, ``"news20"`` or ``"news20-full"``.
    data_home : path, optional
        Handed to the loader; see `data_folder`.
    kind : type
        What the loader must return: any `Bundle`, unless given.

    Raises
    ------
    InvalidInputError
        When no data set has this name, it is of another kind, or the registered loader is broken.
    StorageError
        When the files can neither be read nor fetched.
    """
    registered = {entry.name: entry for entry in entry_points(group="rmopt.datasets")}
    if name not in registered:
        close = get_close_matches(str(name), registered, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(sorted(registered)) or "none; install rmopt with pip to register its own"
        raise InvalidInputError(f"there is no data set {name!r}; known data sets: {known}.{hint}")
    try:
        read = registered[name].load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"the data set {name!r} is registered as {registered[name].value}, which cannot be imported "
            f"({error}); repair or uninstall the package that registers it."
        ) from error
    bundle = read(data_home)
    if not isinstance(bundle, kind):
        raise InvalidInputError(
            f"the data set {name!r} gave a {type(bundle).__name__}; this needs one whose loader returns a "
            f"{kind.__name__}."
        )
    return bundle


def data_folder(data_home: Path | str | None = None) -> Path:
    """Return the folder of the data files.

    Parameters
    ----------
    data_home : path, optional
        An existing folder. Without it the environment variable RMOPT_DATA_HOME is used, and without that
        the user's cache folder, which need not exist yet.

    Raises
    ------
    InvalidInputError
        When the argument or the variable names something that is not a folder.
    """
    environment = os.environ.get("RMOPT_DATA_HOME")
    for name, given in (("data_home", data_home), ("RMOPT_DATA_HOME", environment or None)):
        if given is not None:
            folder = Path(given).expanduser()
            if not folder.is_dir():
                raise InvalidInputError(f"{name} {str(given)!r} is not an existing folder; create it first.")
            return folder
    import pooch

    return Path(pooch.os_cache("rmopt"))


def loader(
    *files: str, advice: str = "", title: str = "", fetch: Callable[[Path], Any] | None = None
) -> Callable[[Callable[..., B]], Callable[..., B]]:
    """Make a loader, which takes the data folder, of a function that reads a file, or of one that needs none.

    The first of the files that is there is read. Where there is none, `fetch` makes the data from the folder and may
    fail with an OSError, in which `title` names them; without it `advice` says what to do.
    """
    where, missing = "Nothing is read; a folder that is given must exist all the same.", ""
    if files:
        where = f"A folder with ``{'`` or ``'.join(files)}``; see `problems.data.data_folder`."
        none = (
            "damaged, or there is neither a file nor a network connection" if fetch else "missing or damaged"
        )
        missing = f"\nStorageError\n    When the file is {none}."
    elsewhere = "or pass as --data-home (or set RMOPT_DATA_HOME to) a folder that holds"

    def made(read: Callable[..., B]) -> Callable[..., B]:
        def load_it(data_home: Path | str | None = None) -> B:
            if not files:
                if data_home is not None:
                    data_folder(data_home)
                return read()
            folder = data_folder(data_home)
            path = next((folder / file for file in files if (folder / file).is_file()), None)
            if path is not None:
                with reading(path):
                    return read(path)
            if fetch is None:
                them = f"{files[0]} is not" if len(files) == 1 else f"neither {' nor '.join(files)} is"
                raise StorageError(f"{them} in {folder}; {advice}, {elsewhere} it.")
            try:
                return fetch(folder)
            except OSError as error:
                raise StorageError(
                    f"{title} could not be fetched ({error}); connect to the network once, {elsewhere} {files[0]}."
                ) from error

        load_it.__module__, load_it.__name__ = read.__module__, read.__name__
        load_it.__qualname__ = read.__name__
        load_it.__doc__ = f"""{inspect.cleandoc(read.__doc__ or "")}

Parameters
----------
data_home : path, optional
    {where}

Raises
------
InvalidInputError
    When `data_home` is not a folder.{missing}
"""
        return load_it

    return made
