"""The content of ``rmopt data``: the list of data sets, the content of one, and the commands that take it."""

import shlex
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_type_hints

from problems.data.bundles import Bundle, ClassBundle, MultilabelBundle, Ratings
from problems.data.chunks import SUFFIXES
from problems.data.files import suffix_of
from problems.data.registry import load, own_table
from problems.data.tables import Table, bundle_of
from rmopt.errors import InvalidInputError

# The largest number of described columns; features selected by the experiment "metric", none for negative
# measurements; and the most features whose square it can hold.
MANY, SELECTED, MOST = 50, 100, 2_000


def describe(what: str, data_home: Path | None = None) -> dict[str, Any]:
    """Return the content of a data set, a file or a folder, for JSON.

    Parameters
    ----------
    what : str
        An argument of `problems.data.load`, or empty for all registered data sets.
    data_home : Path, optional
        The folder of registered data sets.

    Returns
    -------
    dict
        ``name``, ``source``, ``holds``, ``columns``, ``summary``, ``odd``, ``experiments`` (commands by name, best
        and fits first), and ``problem``: why it cannot be used, or None. Or ``datasets``, as from `listing`.
    """
    if not what:
        return {"datasets": listing(data_home)}
    found: dict[str, Any] = {"holds": None, "columns": [], "summary": {}, "experiments": {}, "problem": None}
    known = entry_points(group="rmopt.datasets").names
    if what in known:
        return found | _of_bundle(load(what, data_home), what)
    table, said = own_table(what, {}, known)
    found |= {"name": table.name, "source": table.source, "columns": _columns(table), "odd": table.notes}
    try:
        return found | _of_bundle(bundle_of(table, said, Bundle), what)
    except InvalidInputError as error:
        return found | {"problem": str(error)}


def _of_bundle(bundle: Bundle, what: str) -> dict[str, Any]:
    return {
        "name": bundle.name, "source": bundle.source, "holds": bundle.holds, "summary": bundle.summary(),
        "odd": bundle.odd(), "experiments": _takers(bundle, what),
    }  # fmt: skip


def _columns(table: Table) -> list[dict[str, Any]]:
    """Return the names of the first columns, their content, and the numbers of missing values."""
    found = []
    for name, column in table.frame.iloc[:, :MANY].items():
        numbers, missing = table.numbers(str(name))
        known = numbers[~missing]
        span = f"{known.min():g} to {known.max():g}" if len(known) else "nothing"
        if text := (known != known).any():
            # Among names, NA and none are names.
            missing = (column.str.strip() == "").to_numpy()
        there = column[~missing]
        found.append({
            "name": name, "holds": "text" if text else span, "different": there.nunique(),
            "missing": int(missing.sum()), "first_value": str(next(iter(there), ""))[:30],
        })  # fmt: skip
    if (more := len(table.frame.columns) - MANY) > 0:
        found.append({"name": f"… {more} more"} | dict.fromkeys(list(found[0])[1:]))
    return found


def _takers(bundle: Any, what: str) -> dict[str, str]:
    """Return the commands that take a bundle, by name: first those that fit a model to a file, then experiments."""
    quoted, found = shlex.quote(what), dict[str, str]()
    if isinstance(bundle, Ratings | ClassBundle | MultilabelBundle):
        found["best"] = f"rmopt best {quoted}"
    constant = isinstance(bundle, Ratings) and bool(bundle.values.min() == bundle.values.max())
    fits: dict[type, str] = {ClassBundle: "similarity", MultilabelBundle: "ranking"}
    if isinstance(bundle, Ratings):
        found["fit completion"] = f"rmopt fit completion {quoted}{' --model implicit' * constant}"
    elif type(bundle) in fits and (
        (place := Path(what.partition("::")[0])).is_dir() or suffix_of(place) in SUFFIXES
    ):
        found[f"fit {fits[type(bundle)]}"] = f"rmopt fit {fits[type(bundle)]} {quoted}"
    # An experiment predicts ratings; `odd` names the methods for constant ones.
    entries = () if constant else entry_points(group="rmopt.experiments")
    for entry in sorted(entries, key=lambda entry: entry.name):
        try:
            hints = get_type_hints(entry.load(), include_extras=True)
        except Exception:  # rmopt list reports its error
            continue
        kinds = getattr(hints.get("data"), "__metadata__", ())
        if any(isinstance(kind, type) and isinstance(bundle, kind) for kind in kinds):
            found[entry.name] = f"rmopt run {entry.name} --data {quoted}"
    if "metric" in found and bundle.X.shape[1] > SELECTED and bundle.X.min() < 0:
        found["metric"] += " --features 0"
        if bundle.X.shape[1] > MOST:
            del found["metric"]
    return found


def listing(data_home: Path | None = None) -> list[dict[str, str]]:
    """Return the registered data sets: name, source, and location.

    Parameters
    ----------
    data_home : Path, optional
        Their folder.
    """
    found = []
    for entry in sorted(entry_points(group="rmopt.datasets"), key=lambda entry: entry.name):
        origin, there = "", ""
        try:
            source = getattr(entry.load(), "source", None)
        except Exception as error:
            source, there = None, f"cannot be loaded: {error}"
        if source is not None:
            origin, there = source.origin, "built in"
            if source.files:
                absent = "fetched when first used" if source.fetch or source.downloads else "to be brought"
                there = str(source.there(data_home) or absent)
        found.append({"name": entry.name, "source": origin, "there": there})
    return found
