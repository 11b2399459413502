"""The commands of ``rmopt``: list, run, fit, check, data and serve. What they run is found through entry points."""

from typing import Annotated

import typer

from rmopt.cli.check import check
from rmopt.cli.data import data
from rmopt.cli.plugins import listing
from rmopt.cli.run import fit, run
from rmopt.cli.serve import serve

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command("list")(listing)
for command in (run, fit):
    app.command(
        add_help_option=False,
        options_metavar="NAME [OPTIONS]",
        context_settings={
            "allow_extra_args": True,
            "allow_interspersed_args": False,
            "ignore_unknown_options": True,
        },
    )(command)
app.command("check")(check)
app.command("data")(data)
app.command("serve")(serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rmopt {version('rmopt')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _rmopt(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Riemannian optimisation: run experiments, list them, check the laws of manifolds and retractions."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
