"""``rmopt check``: test everything registered for the properties that it must have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rmopt.cli.failures import one_line_errors
from rmopt.cli.registry import Json, Quiet, Seed, path
from rmopt.errors import InvalidInputError

KEYS = ("name", "subject", "passed", "measured", "expected", "detail")
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", hidden=True)]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", parser=path, help="Write a picture of each slope into this folder."),
]


@one_line_errors()
def check(
    names: Names = None, plot: Plot = None, seed: Seed = 0, quiet: Quiet = False, json: Json = False
) -> None:
    """Test every part for the properties that it must have.

    NAME: manifolds, retractions, solvers whose name holds it; by default everything.
    """
    from rmopt.checks import run_catalogue

    checks: list[Any] = []
    for check in run_catalogue(names or [], seed):
        if not (quiet or json):
            if not checks or checks[-1].subject != check.subject:
                typer.secho(check.subject, bold=True)
            typer.echo(f"  {check.verdict}  {check.name}: {check.numbers or '–'}")
        checks.append(check)
        if plot is not None and check.steps is not None:
            check.plot(plot / f"{len(checks):03} {check.name} {check.subject}.png".replace("/", " "))
    failed = [check for check in checks if not check.passed]
    if not checks:
        raise InvalidInputError(f"no check matches {', '.join(names or [])}; 'rmopt check' runs them all.")
    if json:
        from rmopt.cli.result import as_json

        typer.echo(
            as_json({"seed": seed, "rows": [{key: getattr(check, key) for key in KEYS} for check in checks]})
        )
    else:
        for check in failed:
            reasons = "; ".join(filter(None, (check.numbers, check.detail)))
            typer.secho(f"FAILED {check.name} of {check.subject}: {reasons}", fg="red")
        typer.echo(f"{len(checks) - len(failed)} of {len(checks)} checks passed.")
    raise typer.Exit(bool(failed))
