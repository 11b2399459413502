"""``rmopt data``: what a file of one's own holds, and which data sets there are; a plug-in reads them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rmopt.cli.failures import UNUSABLE_INPUT, one_line_errors
from rmopt.cli.registry import Json, load, path

# Functions `describe(what, data_home)` and `listing(data_home)`.
GROUP = "rmopt.data"


def data(
    what: Annotated[str, typer.Argument(metavar="FILE", hidden=True)] = "",
    data_home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", parser=path, help="Folder that holds the data sets.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what a file of your own holds, or list data sets.

    FILE: a file, a folder of texts or the name of a data set, which is shown with what is odd in it and with the
    commands that take it; what its columns mean may follow: ratings.csv::user=uid,item=movie,rating=stars.
    """
    with one_line_errors():
        found = (
            load("describe", GROUP)(what, data_home)
            if what
            else {"datasets": load("listing", GROUP)(data_home)}
        )
        if json:
            from rmopt.cli.result import as_json

            typer.echo(as_json(found))
        elif what:
            _show(found)
        else:
            keys = "name", "there", "source"
            _print(([entry[key] for key in keys] for entry in found["datasets"]), *keys)
    if found.get("problem"):
        raise typer.Exit(UNUSABLE_INPUT)


def _show(found: dict[str, Any]) -> None:
    typer.echo(f"{found['source']}: {found['holds'] or 'cannot be used yet'}\n")
    if found["columns"]:
        keys = list(found["columns"][0])
        _print(([_text(column[key]) for key in keys] for column in found["columns"]), *keys)
        typer.echo()
    _print([name, _text(value)] for name, value in found["summary"].items())
    for sentence in found["odd"]:
        typer.echo(f"- {sentence}")
    if found["problem"]:
        typer.echo(f"\nIt cannot be used: {found['problem']}")
    elif found["experiments"]:
        typer.echo("\nCommands that take it:")
        for command in found["experiments"].values():
            typer.echo(f"  {command}")
    else:
        typer.echo("\nNo command takes it.")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _print(rows: Iterable[list[str]], *headings: str) -> None:
    """Print columns side by side, as wide as they are."""
    lines = [*([list(headings)] if headings else []), *rows]
    if lines:
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            typer.echo("  ".join(map(str.ljust, line, widths)).rstrip())
