"""Experiments and data sets are found by name, through entry points; only the chosen one is imported."""

import difflib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rmopt.core.errors import InvalidInputError

EXPERIMENTS = "rmopt.experiments"
DATASETS = "rmopt.datasets"


def registered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, sorted by name; nothing is imported."""
    return sorted(entry_points(group=group), key=lambda entry: entry.name)


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that registers an entry point."""
    return entry.dist.name if entry.dist is not None else "an unknown package"


def load_experiment(name: str) -> Callable[..., Any]:
    """Import the experiment of a name, or say which there are, or why it cannot be imported."""
    entries = registered(EXPERIMENTS)
    matches = [entry for entry in entries if entry.name == name]
    if not matches:
        raise InvalidInputError(_unknown(name, [entry.name for entry in entries]))
    if len({entry.value for entry in matches}) > 1:
        packages = " and ".join(map(package_of, matches))
        raise InvalidInputError(f"experiment {name!r} is registered by {packages}; uninstall all but one.")
    entry = matches[0]
    try:
        function = entry.load()
    except ImportError as error:
        raise InvalidInputError(
            f"experiment {name!r} of {package_of(entry)} cannot be imported ({error}); "
            "install what it needs, or tell its author."
        ) from error
    if not callable(function):
        raise InvalidInputError(
            f"experiment {name!r} of {package_of(entry)} is {entry.value}, which is not a function."
        )
    return function


def _unknown(name: str, names: list[str]) -> str:
    if not names:
        return f"there is no experiment {name!r}, nor any other; install a package that has some."
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    question = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"there is no experiment {name!r}{question} Experiments: {', '.join(names)}."
