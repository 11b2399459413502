"""The options that every command shares."""

from pathlib import Path
from typing import Annotated

import typer

LARGEST_SEED = 2**32 - 1


def path(text: str) -> Path:
    """Return the path that an option names; an empty one would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty; give a name, or a dot for the current folder.")
    return Path(text)


Seed = Annotated[int, typer.Option(metavar="N", min=0, max=LARGEST_SEED, help="Seed of every random choice.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        parser=path,
        help="Write into this folder; when absent, into a new one in rmopt-runs.",
    ),
]
OptionalOut = Annotated[
    Path | None, typer.Option(metavar="FOLDER", parser=path, help="Write the result there as well.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only what a script needs.")]
Report = Annotated[
    bool, typer.Option("--report", help="Write report.html as well: table, pictures, parameters.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
