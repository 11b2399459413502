"""Experiments and data sets: found by name, through entry points, and listed by ``rmopt list``."""

import ast
import difflib
import functools
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from rmopt.cli.failures import told_in_a_sentence
from rmopt.cli.output import OutputFolder
from rmopt.cli.signature import Json, OptionalOut, Quiet, first_line
from rmopt.errors import InvalidInputError
from rmopt.files import write_json

EXPERIMENTS = "rmopt.experiments"
# Functions as those of experiments, which learn one model from a stream.
MODELS = "rmopt.models"
DATASETS = "rmopt.datasets"

Entry = dict[str, str | None]


def registered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, sorted by name; nothing is imported."""
    return sorted(entry_points(group=group), key=lambda entry: entry.name)


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that registers an entry point."""
    return entry.dist.name if entry.dist is not None else "an unknown package"


def load_experiment(name: str, group: str = EXPERIMENTS) -> Callable[..., Any]:
    """Import the function that a group has by a name, or say which there are, or why it cannot be imported."""
    entries, kind = registered(group), group.partition(".")[2].removesuffix("s")
    matches = [entry for entry in entries if entry.name == name]
    if not matches:
        raise InvalidInputError(_unknown(kind, name, [entry.name for entry in entries]))
    if len({entry.value for entry in matches}) > 1:
        packages = " and ".join(map(package_of, matches))
        raise InvalidInputError(f"{kind} {name!r} is registered by {packages}; uninstall all but one.")
    entry = matches[0]
    try:
        function = entry.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"{kind} {name!r} of {package_of(entry)} cannot be imported ({error}); "
            "install what it needs, or tell its author."
        ) from error
    if not callable(function):
        raise InvalidInputError(
            f"{kind} {name!r} of {package_of(entry)} is {entry.value}, which is not a function."
        )
    return function


def _unknown(kind: str, name: str, names: list[str]) -> str:
    if not names:
        return f"there is no {kind} {name!r}, nor any other; install a package that has some."
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    question = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"there is no {kind} {name!r}{question} {kind.capitalize()}s: {', '.join(names)}."


def listing(out: OptionalOut = None, quiet: Quiet = False, json: Json = False) -> None:
    """List the experiments and the data sets."""
    content = {
        "experiments": [describe(entry) for entry in registered(EXPERIMENTS)],
        "datasets": [describe(entry) for entry in registered(DATASETS)],
    }
    if out is not None:
        with told_in_a_sentence():
            folder = OutputFolder(out, "list")
        with told_in_a_sentence(folder):
            write_json(folder.path / "list.json", content)
    if json:
        from rmopt.cli.result import as_json

        typer.echo(as_json(content))
    elif quiet:
        for entry in content["experiments"] + content["datasets"]:
            typer.echo(entry["name"])
    else:
        _show(content)


def describe(entry: EntryPoint) -> Entry:
    """Return the name of an entry point, its description, its package, and why it cannot be loaded or None.

    A function that its source describes is not imported, which takes seconds: run, it says what it lacks.
    """
    description, error = "", None
    try:
        description = described_in_source(entry) or first_line(entry.load())
    except Exception as raised:
        error = f"{type(raised).__name__}: {' '.join(str(raised).split())}"
    return {"name": entry.name, "description": description, "package": package_of(entry), "error": error}


def described_in_source(entry: EntryPoint) -> str:
    """Return the first line of the docstring in a function's source; empty where only an import can tell."""
    source = None if entry.module in sys.modules else source_of(entry.module)
    return "" if source is None else _functions(source).get(entry.attr, "")


@functools.cache
def _functions(source: Path) -> dict[str, str]:
    """Return the first lines of the docstrings of a module's functions, by name."""
    return {
        statement.name: (ast.get_docstring(statement) or "").partition("\n")[0]
        for statement in ast.parse(source.read_bytes()).body
        if isinstance(statement, ast.FunctionDef | ast.ClassDef)
    }


def source_of(module: str) -> Path | None:
    """Return the file of a module, found without importing the packages around it; None where there is none."""
    top, *below = module.split(".")
    spec, name = find_spec(top), top
    for part in below:
        name = f"{name}.{part}"
        spec = spec and PathFinder.find_spec(name, spec.submodule_search_locations)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _show(content: dict[str, list[Entry]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for title, entries in (("Experiments", content["experiments"]), ("Data sets", content["datasets"])):
        table.add_row(Text(title, style="bold"))
        for entry in entries:
            broken = entry["error"] is not None
            about = f"cannot be loaded: {entry['error']}" if broken else entry["description"] or ""
            table.add_row(Text(f"  {entry['name']}"), Text(about, "red" if broken else ""))
        if not entries:
            table.add_row(Text("  none"))
    Console(highlight=False).print(table)
