"""The command ``rmopt``: list, run and check. Experiments and data sets are found through entry points."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rmopt.cli.check import check
from rmopt.cli.listing import listing
from rmopt.cli.run import run

__all__ = ["main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("list")(listing)
app.command(
    "run",
    add_help_option=False,
    options_metavar="NAME [OPTIONS]",
    context_settings={
        "allow_extra_args": True,
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
    },
)(run)
app.command("check")(check)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rmopt {version('rmopt')}")
        raise typer.Exit


@app.callback()
def _rmopt(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Riemannian optimisation: run experiments, list them, check the laws of manifolds and retractions."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the program's name; those of the process when absent.

    Raises
    ------
    SystemExit
        Always: status 0 on success, 1 when a check failed, 2 for unusable input, 130 when interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(args=None if argv is None else list(argv), prog_name="rmopt")
