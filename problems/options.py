"""The options that experiments share, each declared once, and the parsing of lists."""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from typer import Option

from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer, number
from rmopt.experiments import Run

T = TypeVar("T")

# An experiment adds its kind of bundle: ``data: Annotated[Data, ClassBundle] = "digits"``.
Data = Annotated[str, Option(metavar="NAME|FILE", help="A data set, or a file or folder, as for rmopt data.")]
DataHome = Annotated[
    Path | None, Option(metavar="FOLDER", help="Folder of the data sets; by default RMOPT_DATA_HOME.")
]
_OWN = "Adds your own method, also as FILE.py:ESTIMATOR; may be repeated."
OwnMethods = Annotated[list[str] | None, Option("--method", metavar="MODULE:ESTIMATOR", help=_OWN)]
_REPETITIONS = "Repetitions, each with its own random split and random choices, seeded from --seed on"
_PUBLISHED = "0 takes the data set's own split once, published or given by test=COLUMN"
Seeds = Annotated[int, Option("--seeds", "--splits", min=1, help=f"{_REPETITIONS}.")]
SeedsOrPublished = Annotated[int, Option("--seeds", "--splits", min=0, help=f"{_REPETITIONS}; {_PUBLISHED}.")]
Selection = Literal["none", "first", "each"]
Select = Annotated[
    Selection, Option(help="Choose parameters by cross-validation: never, on the first split, or on each.")
]
Folds = Annotated[int, Option(min=2, help="Folds of the cross-validation.")]
_JOBS = "Models trained at a time, -1 for all cores. Cross-validation always uses all cores."
Jobs = Annotated[int, Option("--n-jobs", min=-1, help=_JOBS)]
Resume = Annotated[bool, Option("--resume", help="Continue from the results in the --out folder.")]


def methods_option(names: Iterable[str]) -> Any:
    """Return the option ``--methods`` of an experiment."""
    return Option(help=f"Any of {', '.join(names)}, separated by commas.")


def rank_option(usual: str) -> Any:
    """Return the option ``--rank`` of an experiment, by default empty or None (see `ranks_within`)."""
    about = f"Rank, or several separated by commas; by default {usual}, or less if the data allow no more."
    return Option("--rank", "--ranks", help=about)


def ranks_within(say: Callable[[str], object], given: str | None, usual: str, most: int) -> list[int]:
    """Return the given ranks, or the usual ones, reduced to the largest possible one."""
    ranks = whole_numbers(given or usual, "--rank")
    if ranks[-1] <= most or most < 1:
        return ranks
    if given:
        raise InvalidInputError(f"--rank {ranks[-1]} is too large for these data; choose 1 to {most}.")
    ranks = sorted({min(rank, most) for rank in ranks})
    say(f"--rank is {','.join(map(str, ranks))}: these data have no rank above {most}.")
    return ranks


def loaded(run: Run, data: str, data_home: Path | None, kind: Any, **said: str) -> Any:
    """Return the data of an option, read with the columns `said`, and print the notes on them."""
    # The import for reading takes longer than a list of the experiments.
    from problems.data import load

    bundle = load(data, data_home, kind, **said)
    for note in bundle.notes:
        run.say(f"{bundle.name}: {note}")
    return bundle


def own_split(say: Callable[[str], object], data: str, bundle: Any, seeds: int) -> tuple[bool, int]:
    """Return whether the data set's own split is used (--seeds 0), and the number of repetitions.

    Prints a message if given held-out rows are ignored for random splits.
    """
    said = getattr(bundle, "split_said", False)
    if not seeds and not said and data not in entry_points(group="rmopt.datasets").names:
        raise InvalidInputError(
            f"--seeds 0: {bundle.name} has no held-out rows; give test=COLUMN, or take --seeds 1."
        )
    if seeds and said:
        say(f"The rows that {bundle.name} holds out are not used; --seeds 0 takes its own split.")
    return seeds == 0, max(1, seeds)


def whole_numbers(text: str, option: str, least: int = 1) -> list[int]:
    """Return the integers of a comma-separated list, ascending and without repetitions, or refuse the option."""
    wanted = f"integers of at least {least}, with commas between"
    return sorted(set(_listed(text, option, lambda part: integer(option, int(part), least), wanted)))


def positive_numbers(text: str, option: str) -> list[float]:
    """Return the finite positive numbers of a comma-separated list, in its order, or refuse the option."""
    wanted = "positive numbers with commas between"
    return _listed(text, option, lambda part: number(option, float(part), above=0), wanted)


def _listed(text: str, option: str, parse: Callable[[str], T], wanted: str) -> list[T]:
    try:
        found = [parse(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found:
        raise InvalidInputError(f"{option} {text!r} must be {wanted}.")
    return found


def chosen_from(table: Mapping[str, T], names: str, option: str) -> dict[str, T]:
    """Return the entries of a table that a comma-separated list names, in its order, or refuse the option."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in table]
    if unknown or not chosen:
        flaw = f": {', '.join(unknown)} is not known" if unknown else " names none"
        raise InvalidInputError(f"{option} {names!r}{flaw}; choose from {', '.join(table)}.")
    return {name: table[name] for name in chosen}
