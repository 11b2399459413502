"""What ``rmopt data`` says: which data sets there are, what one holds, and which experiments take it."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_type_hints

from problems.data.bundles import Bundle, ClassBundle, MultilabelBundle, Ratings
from problems.data.chunks import SUFFIXES
from problems.data.files import suffix_of
from problems.data.registry import load, own_table
from problems.data.tables import Table, bundle_of, names_in
from rmopt.errors import InvalidInputError

MANY = 50
# So many features the experiment "metric" selects; of measurements below 0 none, and then three matrices of features
# by features are in memory.
SELECTED = 100


def describe(what: str, data_home: Path | None = None) -> dict[str, Any]:
    """Return what a data set, a file or a folder holds, as JSON knows it.

    Parameters
    ----------
    what : str
        As `problems.data.load` takes it.
    data_home : Path, optional
        Of registered data sets.

    Returns
    -------
    dict
        ``name``, ``source``, ``holds``, ``columns``, ``summary``, ``odd``, ``experiments`` (commands by name, fits
        first), and ``problem``: why it cannot be used, or None.
    """
    columns: list[dict[str, Any]] = []
    found: dict[str, Any] = {"holds": None, "summary": {}, "experiments": {}}
    problem = None
    try:
        known = {entry.name for entry in entry_points(group="rmopt.datasets")}
        if what in known:
            bundle: Bundle = load(what, data_home)
        else:
            table, said = own_table(what, {}, known)
            columns = _columns(table)
            found |= {"name": table.name, "source": table.source, "odd": table.notes}
            bundle = _bundle(table, said)
        found |= {
            "name": bundle.name, "source": bundle.source, "holds": bundle.holds, "summary": bundle.summary(),
            "odd": bundle.odd(), "experiments": _takers(bundle, what),
        }  # fmt: skip
    except InvalidInputError as error:
        if not columns:
            raise
        problem = str(error)
    return found | {"columns": columns, "problem": problem}


def _bundle(table: Table, said: dict[str, Any]) -> Bundle:
    """Return what a table holds; where that is not clear, the ratings for which its columns are taken by place."""
    try:
        return bundle_of(table, said, Bundle)
    except InvalidInputError:
        with suppress(InvalidInputError):
            return bundle_of(table, said, Ratings)
        raise


def _columns(table: Table) -> list[dict[str, Any]]:
    """Return the names of columns, what they hold, and how many values are missing; of many columns the first."""
    found = []
    for name in table.frame.columns[:MANY]:
        numbers, missing = table.numbers(name)
        there = table.frame[name][~missing] if numbers is None else numbers[~missing]
        different = len(set(there.tolist()))
        if numbers is not None and not missing.any() and not (there % 1).any():
            # They may be names: 007 and 7 are two; what is noticed then is of those that are.
            different = len(names_in(replace(table, notes=[]), name)[0])
        span = f"{there.min():g} to {there.max():g}" if len(there) and numbers is not None else "numbers"
        holds = "text" if numbers is None else span
        first = str(next(iter(table.frame[name][~missing].tolist()), ""))[:30]
        found.append({
            "name": name, "holds": holds, "different": different, "missing": int(missing.sum()), "first": first
        })  # fmt: skip
    if (more := len(table.frame.columns) - MANY) > 0:
        found.append({"name": f"… {more} more"} | dict.fromkeys(list(found[0])[1:]))
    return found


def _takers(bundle: Any, what: str) -> dict[str, str]:
    """Return the commands that take a bundle, by name: those that fit a model to a file first, then experiments."""
    quoted, found = shlex.quote(what), dict[str, str]()
    constant = isinstance(bundle, Ratings) and bool(bundle.values.min() == bundle.values.max())
    if isinstance(bundle, Ratings):
        found["fit completion"] = f"rmopt fit completion {quoted}{' --model implicit' * constant}"
    elif Path(what).is_dir() or suffix_of(Path(what)) in SUFFIXES:
        fits: dict[type, str] = {ClassBundle: "similarity", MultilabelBundle: "ranking"}
        if name := fits.get(type(bundle)):
            found[f"fit {name}"] = f"rmopt fit {name} {quoted}"
    # An experiment predicts ratings; `odd` says what learns from constant ones.
    entries = () if constant else entry_points(group="rmopt.experiments")
    for entry in sorted(entries, key=lambda entry: entry.name):
        try:
            hints = get_type_hints(entry.load(), include_extras=True)
        except Exception:  # rmopt list says what is wrong with it
            continue
        kinds = getattr(hints.get("data"), "__metadata__", ())
        if any(isinstance(kind, type) and isinstance(bundle, kind) for kind in kinds):
            found[entry.name] = f"rmopt run {entry.name} --data {quoted}"
    wide = "metric" in found and bundle.X.shape[1] > SELECTED and bundle.X.min() < 0
    if wide and 24 * bundle.X.shape[1] ** 2 > memory():
        del found["metric"]
    elif wide:
        found["metric"] += " --features 0"
    return found


def memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**63


def listing(data_home: Path | None = None) -> list[dict[str, str]]:
    """Return the registered data sets: name, source, and whether they are there.

    Parameters
    ----------
    data_home : Path, optional
        Their folder.
    """
    found = []
    for entry in sorted(entry_points(group="rmopt.datasets"), key=lambda entry: entry.name):
        there, origin = "", ""
        try:
            source = getattr(entry.load(), "source", None)
        except Exception as error:
            source, there = None, f"cannot be loaded: {error}"
        if source is not None:
            origin, there = source.origin, "built in"
            if source.files:
                absent = "to be brought" if source.advice else "fetched when first used"
                there = str(source.there(data_home) or absent)
        found.append({"name": entry.name, "source": origin, "there": there})
    return found
