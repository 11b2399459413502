"""``rmopt run NAME`` and ``rmopt fit NAME``: import one function, give it its options, keep what it returns."""

import atexit
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmopt.cli.failures import fail, told_in_a_sentence
from rmopt.cli.output import OutputFolder
from rmopt.cli.plugins import EXPERIMENTS, MODELS, load_experiment, registered
from rmopt.cli.signature import COMMON, as_command
from rmopt.errors import InvalidInputError, StorageError

if TYPE_CHECKING:
    from rmopt.experiments import Outcome, Run

# What the launchers of MPICH and Intel, of Open MPI, and those with PMIx say.
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
# And how many there are, where they say it.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


Help = Annotated[bool, typer.Option("--help", help="Show this message and exit.")]


def run(context: typer.Context, wants_help: Help = False) -> None:
    """Run an experiment; 'rmopt run NAME --help' shows its options."""
    _run(context, wants_help, EXPERIMENTS)


def fit(context: typer.Context, wants_help: Help = False) -> None:
    """Learn from files; 'rmopt fit NAME --help' shows its options."""
    _run(context, wants_help, MODELS)


def _run(context: typer.Context, wants_help: bool, group: str) -> None:
    verb = context.info_name or ""
    if wants_help or not context.args:
        typer.echo(context.get_help())
        names = ", ".join(entry.name for entry in registered(group)) or "none"
        typer.echo(f"\n{group.partition('.')[2].capitalize()}: {names}")
        raise typer.Exit
    name, *options = context.args
    if name.startswith("-"):
        kind = group.partition(".")[2].removesuffix("s")
        fail(f"the {kind}'s name comes before its options: rmopt {verb} NAME {name} ...")
    with told_in_a_sentence():
        experiment = load_experiment(name, group)
        command = as_command(name, experiment, partial(_execute, verb, name, experiment, options))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command()(command)
    single(args=options, prog_name=f"{context.command_path} {name}")


def _execute(
    verb: str, name: str, experiment: Callable[..., Any], words: Sequence[str], **options: Any
) -> None:
    from rmopt.experiments import Outcome, Run

    seed, out, report, quiet, json = (options.pop(common) for common in COMMON)
    if options.get("resume") is True and out is None:
        fail("--resume goes on from a folder; name the one of the run to go on with, by --out FOLDER.")
    call: Any = experiment(**options) if isinstance(experiment, type) else partial(experiment, **options)
    if _rank() > 0:
        # The first process alone shows and keeps the outcome.
        left = "what was saved is in the folder of the first process."
        with tempfile.TemporaryDirectory() as own, told_in_a_sentence(left=left), _one_speaks():
            call(Run(name, seed, Path(own) if out is None else out, quiet=True))
        return
    with told_in_a_sentence(), _one_speaks():
        folder = OutputFolder(out, name)
    this_run = Run(name, seed, folder.path, quiet, json, failures=[])
    with told_in_a_sentence(folder, resumable="resume" in options), _one_speaks():
        # Whatever the experiment prints must not mix with what a script reads.
        with redirect_stdout(sys.stderr) if quiet or json else nullcontext():
            outcome = call(this_run)
        if not isinstance(outcome, Outcome):
            raise InvalidInputError(
                f"experiment {name!r} returned a {type(outcome).__name__}; "
                "it must return an rmopt.experiments.Outcome."
            )
        command = shlex.join(["rmopt", verb, name, *words])
        _keep_and_show(this_run, outcome, folder, command if report else None)


@contextmanager
def _one_speaks() -> Iterator[None]:
    """Let the first of several processes that fail alike say why, and end the others with it."""
    try:
        yield
    except BaseException:
        time.sleep(min(_rank(), 1))
        mpi = sys.modules.get("mpi4py.MPI")
        sizes = (os.environ.get(name, "") for name in SIZES)
        several = next((int(size) for size in sizes if size.isdecimal()), 2) > 1
        if mpi is None and several and any(name in os.environ for name in RANKS):
            # Others may wait for this one to begin with MPI; a launcher ends them where a process ends by a signal.
            atexit.register(signal.raise_signal, signal.SIGTERM)
        elif mpi is not None and mpi.COMM_WORLD.Get_size() > 1:
            atexit.register(mpi.COMM_WORLD.Abort, 1)
        raise


def _rank() -> int:
    """Return the number of this process, from 0, under a launcher of MPI; 0 where there is only one."""
    said = (os.environ.get(name, "") for name in RANKS)
    return int(next(filter(str.isdigit, said), 0))


def _of_another(path: Path, experiment: str) -> bool:
    """Return whether a file is there that is not a result of this experiment."""
    import json

    try:
        return json.loads(path.read_bytes())["experiment"] != experiment
    except FileNotFoundError:
        return False
    except (LookupError, TypeError, ValueError):
        return True


def _keep_and_show(this_run: "Run", outcome: "Outcome", folder: OutputFolder, command: str | None) -> None:
    from rmopt.cli.result import as_json, result_of, write_report
    from rmopt.cli.table import print_rows
    from rmopt.files import set_aside, write_json

    result, path = result_of(this_run.experiment, this_run.seed, outcome), this_run.path("result.json")
    failures = this_run.failures or []
    try:
        if _of_another(path, this_run.experiment):
            this_run.say(f"result.json of another experiment is set aside as {set_aside(path)}.")
        write_json(path, result)
        if command is not None:
            pictures = [this_run.path(name) for name in folder.written() if name.endswith(".png")]
            write_report(this_run.path("report.html"), result, outcome, command, pictures)
    except StorageError as error:
        # What was computed is shown at least.
        failures.append(error)
    if this_run.json:
        typer.echo(as_json(result))
    elif this_run.quiet:
        typer.echo(folder)
    else:
        this_run.say(f"{this_run.experiment} on {outcome.data}, seed {this_run.seed}\n")
        print_rows(this_run.console, result["rows"], outcome.headings)
        if outcome.claims:
            this_run.say(f"\nWhat the paper says of its own data, on {outcome.data}:")
            for claim in outcome.claims:
                this_run.say(f"- {claim}")
        for note in outcome.notes:
            this_run.say(f"\n{note}")
        typer.echo(f"\nWritten to {folder}:")
        for name in folder.written():
            typer.echo(f"  {name}")
    if failures:
        raise failures[0]
