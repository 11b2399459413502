"""The commands of ``rmopt``: best, fit, serve, data, run, list, check. Entry points name the code that they run."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rmopt.cli.failures import one_line_errors
from rmopt.cli.registry import DATASETS, EXPERIMENTS, Json, Seed, as_json, describe, folder, load, table_of
from rmopt.cli.run import Registered, command_of
from rmopt.errors import InvalidInputError

Served = Annotated[Path, typer.Argument(metavar="PATH", hidden=True)]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen at; 0.0.0.0 for all.")]
Port = Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 for any free one.")]
Version = Annotated[bool, typer.Option("--version", help="Print the version.")]

_DATA = "ratings, texts or a table, as for rmopt data."
File = Annotated[str, typer.Argument(metavar="FILE", hidden=True, help=_DATA)]
Title = Annotated[Path | None, typer.Option("--names", metavar="FILE", help="Items' ids, and their titles.")]
Minutes = Annotated[float, typer.Option(metavar="X", min=0.01, help="Minutes for tuning and measuring.")]
DataHome = Annotated[Path | None, folder("Folder of the data sets; by default RMOPT_DATA_HOME.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", hidden=True)]


class Commands(TyperGroup):
    """The commands in the order in which people need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["best", "fit", "serve", "data", "run", "list", "check"]

    def invoke(self, ctx: Any) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _rmopt(context: typer.Context, version_wanted: Version = False) -> None:
    """Learn from your files, recommend and search in a browser, and compare methods of Riemannian optimisation.

    'rmopt COMMAND --help' describes a command, 'rmopt run NAME --help' an experiment.
    """
    if version_wanted:
        typer.echo(f"rmopt {version('rmopt')}")
    else:
        _help_alone(context)


def _help_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _add_registered(name: str, about: str) -> None:
    app.add_typer(
        typer.Typer(rich_markup_mode=None), cls=Registered, name=name, help=about, callback=_help_alone,
        invoke_without_command=True, options_metavar="NAME [OPTIONS]", subcommand_metavar="",
    )  # fmt: skip


_add_registered("run", "Compare methods, on an experiment's data or on yours.")
_add_registered("fit", "Learn a model from your files: ratings, texts, labels.")


def _best(run: Any, file: File, minutes: Minutes = 5, data_home: DataHome = None, names: Title = None) -> Any:
    """Find the best tool for your file, of this library or not.

    Models of this library and simple rivals are tuned in the same way and measured on held-out parts, with standard
    errors. The winner learns from all data and is saved.
    """
    return load("best", "rmopt.best")(run, file, minutes, data_home, names)


app.command("best")(command_of("best", _best))


@app.command()
def serve(where: Served, host: Host = "127.0.0.1", port: Port = 8000) -> None:
    """Show recommendations, or search texts, in a browser.

    PATH: a folder from rmopt best, rmopt fit or SimilarityIndex.save. Only open folders that you trust.

    Programs can use the address /search?q=TEXT&k=10, see docs/howto/serve.md. Ctrl-C ends the command.
    """
    load("serve", "rmopt.serve")(where, host, port, typer.echo)


@app.command()
def data(file: File = "", data_home: DataHome = None, json: Json = False) -> None:
    """Inspect a data file, or list the data sets.

    FILE: a file, a folder of texts or the name of a data set. The output has its content, its oddities and the
    commands that take it. If names of columns are not clear, add their meaning:
    ratings.csv::user=uid,item=movie,rating=stars.
    """
    found = load("describe", "rmopt.data")(file, data_home)
    if json:
        typer.echo(as_json(found))
    else:
        from rmopt.cli.result import print_description

        print_description(found)
    raise typer.Exit(2 * bool(found.get("problem")))


@app.command()
def check(names: Names = None, seed: Seed = 0, json: Json = False) -> None:
    """Test every part for the properties that it must have.

    NAME: a part of the names of manifolds, retractions or solvers; by default everything.
    """
    from rmopt.checks import run_catalogue

    checks: list[Any] = []
    for check in run_catalogue(names or [], seed):
        checks.append(check)
        if not json:
            line = f"passed  {check.name} of {check.subject}: {check.numbers}" if check else str(check)
            typer.secho(line, fg=None if check else "red")
    if not checks:
        raise InvalidInputError(f"no check matches {', '.join(names or [])}; 'rmopt check' runs them all.")
    found = {"seed": seed, "rows": [vars(check) for check in checks]}
    typer.echo(as_json(found) if json else f"{sum(map(bool, checks))} of {len(checks)} checks passed.")
    raise typer.Exit(not all(checks))


@app.command("list")
def listing(context: typer.Context, json: Json = False) -> None:
    """List the experiments and the data sets."""
    if json:
        typer.echo(as_json({"experiments": describe(EXPERIMENTS), "datasets": describe(DATASETS)}))
        return
    formatter = context.make_formatter()
    table_of(formatter, "Experiments", EXPERIMENTS)
    table_of(formatter, "Data sets", DATASETS)
    typer.echo(formatter.getvalue().rstrip())
