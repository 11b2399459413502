"""The options that commands share, and an experiment's signature with them in the place of the run."""

import copy
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from rmopt.errors import InvalidInputError

LARGEST_SEED = 2**32 - 1


def path(text: str) -> Path:
    """Return the path that an option names; an empty one would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty; give a name, or a dot for the current folder.")
    return Path(text)


Seed = Annotated[int, typer.Option(metavar="N", min=0, max=LARGEST_SEED, help="Seed of every random choice.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        parser=path,
        help="Write into this folder; when absent, into a new one in rmopt-runs.",
    ),
]
OptionalOut = Annotated[
    Path | None, typer.Option(metavar="FOLDER", parser=path, help="Write the result there as well.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only what a script needs.")]
Report = Annotated[
    bool, typer.Option("--report", help="Write report.html as well: table, pictures, parameters.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _common_options(
    *, seed: Seed = 0, out: Out = None, report: Report = False, quiet: Quiet = False, json: Json = False
) -> None:
    """Carry the signature that every experiment receives."""


COMMON = inspect.signature(_common_options).parameters


def as_command(name: str, experiment: Callable[..., Any], body: Callable[..., None]) -> Callable[..., None]:
    """Give `body`, which receives options by keyword, the signature and the help of an experiment.

    The common options come after its own. A signature that cannot become a command line is an `InvalidInputError`.
    """
    own = [*inspect.signature(experiment).parameters.values()]
    first = own.pop(0) if own and not isinstance(experiment, type) else None
    if isinstance(experiment, type):
        pass  # the fields of a class are all options
    elif first is None or first.kind in (*_VARIADIC, inspect.Parameter.KEYWORD_ONLY):
        raise InvalidInputError(f"experiment {name!r} must take the run as its first parameter.")
    try:
        hints = get_type_hints(experiment, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInputError(f"the annotations of experiment {name!r} cannot be read: {error}.") from error
    parameters = []
    for parameter in own:
        if parameter.kind in _VARIADIC:
            raise InvalidInputError(f"experiment {name!r} takes {parameter}; give each option a name.")
        if parameter.name in COMMON:
            raise InvalidInputError(
                f"experiment {name!r} declares the common option {parameter.name!r}; "
                f"take it from the run instead: run.{parameter.name}."
            )
        annotation = _checked(hints.get(parameter.name, parameter.annotation))
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation))
    parameters += COMMON.values()

    def command(**options: Any) -> None:
        body(**options)

    command.__annotations__ = {
        one.name: one.annotation for one in parameters if one.annotation is not one.empty
    }
    command.__doc__ = help_text(experiment)
    vars(command)["__signature__"] = inspect.Signature(parameters)
    return command


def _checked(annotation: Any) -> Any:
    """Let an option that is a path refuse an empty one."""
    options = [part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, OptionInfo)]
    if not options or options[0].parser or Path not in (kind := annotation.__origin__, *get_args(kind)):
        return annotation
    option = copy.copy(options[0])
    option.parser, option.metavar = path, option.metavar or "<path>"
    return Annotated[kind, option]


def help_text(described: object) -> str:
    """Return the part of a docstring that comes before its numpydoc sections."""
    before, *_ = re.split(
        r"^.*\S.*\n *-+ *$", inspect.getdoc(described) or "", maxsplit=1, flags=re.MULTILINE
    )
    return before.strip()


def first_line(described: object) -> str:
    """Return the first line of a docstring, or an empty text."""
    return help_text(described).partition("\n")[0]
