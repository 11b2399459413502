"""The options that every command shares."""

from pathlib import Path
from typing import Annotated

import typer

LARGEST_SEED = 2**32 - 1

Seed = Annotated[int, typer.Option(metavar="N", min=0, max=LARGEST_SEED, help="Seed of every random choice.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write into this folder; when absent, into a new one in rmopt-runs."),
]
OptionalOut = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the result there as well.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only what a script needs.")]
Report = Annotated[
    bool, typer.Option("--report", help="Write report.html as well: table, pictures, parameters.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
