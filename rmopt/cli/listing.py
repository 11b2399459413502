"""``rmopt list``: the experiments and data sets that the installed packages register."""

from importlib.metadata import EntryPoint
from typing import Any

import typer

from rmopt.cli.failures import told_in_a_sentence
from rmopt.cli.output import OutputFolder
from rmopt.cli.plugins import DATASETS, EXPERIMENTS, package_of, registered
from rmopt.cli.signature import Json, OptionalOut, Quiet, first_line

Entry = dict[str, str | None]


def listing(out: OptionalOut = None, quiet: Quiet = False, json: Json = False) -> None:
    """List the experiments and the data sets."""
    content = {
        "experiments": [describe(entry) for entry in registered(EXPERIMENTS)],
        "datasets": [describe(entry) for entry in registered(DATASETS)],
    }
    if out is not None:
        _write(out, content)
    if json:
        from rmopt.cli.result import as_json

        typer.echo(as_json(content))
    elif quiet:
        for entry in content["experiments"] + content["datasets"]:
            typer.echo(entry["name"])
    else:
        _show(content)


def describe(entry: EntryPoint) -> Entry:
    """Import what an entry point names and return its name, description, package, and error or None."""
    description, error = "", None
    try:
        description = first_line(entry.load())
    except Exception as raised:
        error = f"{type(raised).__name__}: {' '.join(str(raised).split())}"
    return {"name": entry.name, "description": description, "package": package_of(entry), "error": error}


def _write(out: Any, content: dict[str, list[Entry]]) -> None:
    from rmopt.core.files import write_json

    with told_in_a_sentence():
        folder = OutputFolder(out, "list")
    with told_in_a_sentence(folder):
        write_json(folder.path / "list.json", content)


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
