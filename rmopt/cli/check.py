"""``rmopt check``: hold everything registered against the laws it must obey."""

import re
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from rmopt.cli.failures import told_in_a_sentence
from rmopt.cli.output import OutputFolder
from rmopt.cli.signature import Json, OptionalOut, Quiet, Seed
from rmopt.errors import InvalidInputError
from rmopt.files import write_json

A_CHECK_FAILED = 1
KEYS = ("name", "subject", "passed", "measured", "expected", "detail")


def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="What to check; everything when absent.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Write a picture of each check.")] = False,
    seed: Seed = 0,
    out: OptionalOut = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check the laws of manifolds, retractions and gradients."""
    from rmopt.cli.result import as_json, result_of
    from rmopt.experiments import Outcome

    with told_in_a_sentence():
        folder = OutputFolder(out, "check") if plot or out is not None else None
    with told_in_a_sentence(folder):
        checks = _run_checks(names or [], seed, silent=quiet or json)
        rows = [{key: getattr(one, key) for key in KEYS} for one in checks]
        outcome = Outcome(data="catalogue", parameters={"names": names or []}, rows=rows)
        result = result_of("check", seed, outcome)
        if folder is not None:
            _keep(folder.path, result, [one for one in checks if one.steps is not None] if plot else [])
    if json:
        typer.echo(as_json(result))
    else:
        _show(checks, quiet, folder)
    if not all(one.passed for one in checks):
        raise typer.Exit(A_CHECK_FAILED)


def _run_checks(names: list[str], seed: int, silent: bool) -> list[Any]:
    from rich.console import Console

    from rmopt.checks import run_catalogue

    terminal = Console(stderr=True)
    visible = terminal.is_terminal and not silent
    checks = []
    with terminal.status("checking") if visible else nullcontext() as status:
        for one in run_catalogue(names, seed):
            checks.append(one)
            if status is not None:
                status.update(f"{len(checks)} checked, the last: {one.name}")
    if not checks:
        wanted = ", ".join(names) or "anything"
        raise InvalidInputError(f"no check matches {wanted}; 'rmopt check' runs them all.")
    return checks


def _keep(folder: Path, result: dict[str, Any], to_plot: list[Any]) -> None:
    write_json(folder / "result.json", result)
    digits = len(str(len(to_plot)))
    for number, one in enumerate(to_plot, start=1):
        words = re.sub(r"[^\w]+", "-", f"{one.name} {one.subject}").strip("-")
        one.plot(folder / f"{number:0{digits}}-{words[:80]}.png")


def _show(checks: list[Any], quiet: bool, folder: OutputFolder | None) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    width = max(len(one.name) for one in checks)
    for subject, group in () if quiet else groupby(checks, lambda one: one.subject):
        console.print(subject, style="bold")
        for one in group:
            line = f"  {one.verdict}  {one.name:<{width}}  {one.numbers or '–'}"
            console.print(line, style="" if one.passed else "red")
    failed = [one for one in checks if not one.passed]
    for one in failed:
        numbers = f"{one.numbers}; " if one.numbers else ""
        console.print(f"FAILED {one.name} of {one.subject}: {numbers}{one.detail}", style="red")
    console.print(f"{len(checks) - len(failed)} of {len(checks)} checks passed.")
    if folder is not None and not quiet:
        console.print(f"Written to {folder}: {len(folder.written())} files", soft_wrap=True)
