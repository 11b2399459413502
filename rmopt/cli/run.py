"""``rmopt run NAME`` and ``rmopt fit NAME``: import one function, pass its options, and store its result."""

import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout, suppress
from datetime import datetime
from functools import partial
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from rmopt.cli.failures import fail, one_line_errors
from rmopt.cli.registry import COMMON, EXPERIMENTS, MODELS, as_command, as_json, load, registered, table_of
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import TEMPORARY, lock_folder, set_aside, write_json

if TYPE_CHECKING:
    from rmopt.experiments import Outcome, Run

ENTRIES: dict[Any, str] = {"run": EXPERIMENTS, "fit": MODELS}


class Registered(typer.core.TyperGroup):
    """The experiments of ``rmopt run``, or the models of ``rmopt fit``, each imported on its call."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [entry.name for entry in registered(ENTRIES[self.name])]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(command_of(cmd_name, load(cmd_name, ENTRIES[self.name])))
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        title = ENTRIES[self.name].partition(".")[2].capitalize()
        table_of(formatter, title, ENTRIES[self.name], "Install a package that has some.")


class OutputFolder:
    """A context with an output folder, for None a new one in ``rmopt-runs`` with the run's name and the time.

    A folder that cannot be made or written, or that another run uses, raises a `StorageError`.
    """

    def __init__(self, out: Path | None, name: str) -> None:
        # To a millisecond, so that it is a new one.
        self.path = out or Path("rmopt-runs", f"{name}-{datetime.now():%Y%m%d-%H%M%S-%f}"[:-3])
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self._lock: int | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path) as trial:
                self._begun = os.fstat(trial.fileno()).st_mtime_ns
            self._lock = lock_folder(self.path)
        except OSError as error:
            self.__exit__()
            busy = isinstance(error, BlockingIOError)
            why = "another run does, which must end first" if busy else error.strerror or error
            raise StorageError(
                f"--out: cannot write into {self.path} ({why}); choose another folder."
            ) from error
        for abandoned in self.path.glob(f".*{TEMPORARY}"):
            abandoned.unlink()  # of a process that was killed: nobody else writes here

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()  # empty folders

    def written(self) -> list[str]:
        """Return the names of its files and folders that are new or have changed since the start."""
        visible = (entry for entry in self.path.iterdir() if not entry.name.startswith("."))
        return sorted(entry.name for entry in visible if entry.lstat().st_mtime_ns >= self._begun)


def command_of(name: str, experiment: Callable[..., Any]) -> Callable[..., None]:
    """Return the command that calls an experiment, and stores and shows its result."""
    return as_command(experiment, partial(_execute, name, experiment))


def _execute(name: str, experiment: Callable[..., Any], **options: Any) -> None:
    from rmopt.experiments import Outcome, Run

    seed, out, quiet, json = (options.pop(option) for option in COMMON)
    if options.get("resume") and out is None:
        fail("--resume continues the run in a folder; name the folder by --out FOLDER.")
    called: Any = experiment(**options) if isclass(experiment) else partial(experiment, **options)
    with OutputFolder(out, name) as folder, one_line_errors(partial(_left, folder, "resume" in options)):
        run = Run(name, seed, folder.path, quiet, json, failures=[])
        # Text printed by the experiment must not mix with the output for scripts.
        with redirect_stdout(sys.stderr) if quiet or json else nullcontext():
            outcome = called(run)
        if not isinstance(outcome, Outcome):
            raise InvalidInputError(f"{name!r} returned a {type(outcome).__name__}, and not an Outcome.")
        keep_and_show(run, outcome, folder)


def _left(folder: OutputFolder, resumable: bool) -> str:
    """Return a message on the results of an interrupted run, and how to resume it if possible."""
    kept, resume = folder.written(), f"; continue with --resume --out {shlex.quote(str(folder.path))}"
    files = f"saved in {folder.path}: {', '.join(kept)}{resume if resumable else ''}"
    return files if kept else "nothing was saved"


def keep_and_show(run: "Run", outcome: "Outcome", folder: OutputFolder) -> None:
    """Print the table and the claims of a run, write ``result.json``, and list the files."""
    from rmopt.cli.result import print_rows, result_of

    result, path = result_of(run.experiment, run.seed, outcome), run.path("result.json")
    if run.json:
        typer.echo(as_json(result))
    run.say(f"{run.experiment} on {outcome.data}, seed {run.seed}\n")
    print_rows(run.console, result["rows"], outcome.headings)
    of = " of the paper" * any("(not in the paper)" not in one.claim for one in outcome.claims)
    claims = [f"\nClaims{of}, tested on {outcome.data}:", *map(str, outcome.claims)]
    for text in ["\n- ".join(claims)] * bool(outcome.claims) + outcome.notes:
        run.say(text)
    if path.exists() and f'"experiment": "{run.experiment}"' not in path.read_text("utf-8", "replace"):
        run.say(f"\nresult.json of another experiment is set aside as {set_aside(path)}.")
    write_json(path, result)
    run.say("\n  ".join([f"\nWritten to {folder.path}:", *folder.written()]))
    if run.quiet and not run.json:
        typer.echo(folder.path)
    for failure in run.failures or []:
        raise failure
