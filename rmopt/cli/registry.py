"""Entry points of packages: found by name, listed without an import, and turned into commands."""

import ast
import difflib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, ParameterInfo

from rmopt.errors import InvalidInputError

EXPERIMENTS, MODELS, DATASETS = "rmopt.experiments", "rmopt.models", "rmopt.datasets"
# The placeholders of values in the help.
PLACEHOLDERS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def path(text: str) -> Path:
    """Return the path of an option, and refuse an empty one, which would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty; give a name, or a dot for the current folder.")
    return Path(text)


def folder(text: str) -> Any:
    """Return an option that names a folder."""
    return typer.Option(metavar="FOLDER", parser=path, help=text)


Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Seed of all random choices.")]
Out = Annotated[Path | None, folder("Output folder; by default a new one in rmopt-runs.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the name of the output folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def as_json(content: Mapping[str, Any]) -> str:
    """Return JSON: numbers of numpy are numbers, paths are text, NaN and infinity are null."""
    text = json.dumps(content, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda name: None), indent=2)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist") or isinstance(value, Path):
        return str(value) if isinstance(value, Path) else value.tolist()
    raise InvalidInputError(f"an outcome holds a {type(value).__name__}; use text, numbers, None, or lists.")


def registered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, sorted by name, without an import."""
    return sorted(entry_points(group=group), key=lambda entry: entry.name)


def load(name: str, group: str) -> Callable[..., Any]:
    """Import an entry point of a group by its name. The error lists the names, or the cause."""
    entries = registered(group)
    for entry in (entry for entry in entries if entry.name == name):
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            raise InvalidInputError(
                f"{name!r}, which is {entry.value}, cannot be imported ({error}); install its requirements, or "
                "report it to its author."
            ) from error
    names = [entry.name for entry in entries]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    question = f"; did you mean {near[0]!r}?" if near else "."
    raise InvalidInputError(f"there is no {name!r}{question} There are: {', '.join(names) or 'none'}.")


def describe(group: str) -> list[dict[str, str]]:
    """Return name, description and package of the entry points of a group.

    Objects described in their source are not imported, which would take seconds.
    """
    found = []
    for entry in registered(group):
        try:
            text = _docstring_in_source(entry) or inspect.getdoc(entry.load()) or ""
        except Exception as error:
            text = f"cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
        package = entry.dist.name if entry.dist is not None else ""
        found.append({"name": entry.name, "description": text.partition("\n")[0], "package": package})
    return found


def table_of(formatter: Any, title: str, group: str, none: str = "") -> None:
    """Add a section to a help text: the entry points of a group, with their descriptions."""
    # The verb of a loader repeats the title.
    rows = [(each["name"], re.sub("^Load (the )?", "", each["description"])) for each in describe(group)]
    with formatter.section(title):
        formatter.write_dl(rows or [("none", none)])


def _docstring_in_source(entry: EntryPoint) -> str | None:
    top, *below = entry.module.split(".")
    spec = find_spec(top)
    if not below or spec is None:
        return None
    source = Path(spec.origin or "").parent.joinpath(*below).with_suffix(".py")
    for node in ast.parse(source.read_bytes()).body if source.is_file() else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == entry.attr:
            return ast.get_docstring(node)
    return None


def _common_options(*, seed: Seed = 0, out: Out = None, quiet: Quiet = False, json: Json = False) -> None:
    """Carry the options of every experiment."""


COMMON = inspect.signature(_common_options).parameters


def as_command(experiment: Callable[..., Any], body: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the help and the options of an experiment, and the common ones, that calls `body`."""
    parameters = [*inspect.signature(experiment).parameters.values()][not inspect.isclass(experiment) :]
    parameters += COMMON.values()
    hints = get_type_hints(_common_options, include_extras=True)
    hints |= get_type_hints(experiment, include_extras=True)
    # The help is the text before the numpydoc sections.
    text = re.split(r"\n\n.*\n-+\n", inspect.getdoc(experiment) or "", maxsplit=1)[0]
    for parameter in parameters:
        kind, *infos, _ = get_args(Annotated[hints[parameter.name], None])
        for info in infos:
            if isinstance(info, ParameterInfo):
                info.metavar = info.metavar or _placeholder(kind)
                info.parser = path if info.metavar in ("PATH", "FOLDER") else info.parser
            if isinstance(info, ArgumentInfo):
                # typer would print its Python type next to it.
                text, info.hidden = f"{text}\n\n{info.metavar}: {info.help}", True

    def command(**options: Any) -> None:
        body(**options)

    parameters = [each.replace(kind=each.KEYWORD_ONLY, annotation=hints[each.name]) for each in parameters]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__doc__, command.__annotations__ = text, {each.name: each.annotation for each in parameters}
    return command


def _placeholder(kind: Any) -> str | None:
    return PLACEHOLDERS.get(kind) or next(filter(None, map(_placeholder, get_args(kind))), None)
