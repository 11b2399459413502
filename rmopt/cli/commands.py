"""The commands of ``rmopt``: list, run, fit, check, data and serve. What they run is found through entry points."""

from pathlib import Path
from typing import Annotated

import typer

from rmopt.cli.check import check
from rmopt.cli.data import data
from rmopt.cli.failures import told_in_a_sentence
from rmopt.cli.plugins import listing, load_experiment
from rmopt.cli.run import fit, run
from rmopt.cli.signature import path

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


@app.command()
def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            parser=path,
            help="What rmopt fit completion wrote, or SimilarityIndex.save; one that you trust.",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is seen from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = 8000,
) -> None:
    """Search texts, or ask for recommendations, in a browser.

    A page with a form, and /search?q=TEXT&k=10 for programs, until it is interrupted (Ctrl-C).
    """
    with told_in_a_sentence():
        # A function `serve(path, host, port, said)`.
        page = load_experiment("serve", "rmopt.serve")
        page(folder, host, port, lambda address: typer.echo(f"{folder} is at {address} until Ctrl-C."))


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
