"""What the columns of a table mean, said or guessed from their names, and the bundle that follows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from problems.data.bundles import (
    Bundle,
    ClassBundle,
    MultilabelBundle,
    Ratings,
    TagBundle,
    TaskBundle,
    holds_counts,
    stratified,
)
from problems.data.formats import THOUSANDS, Table, count_terms, distinct, parsed
from rmopt.core.ambient import Array
from rmopt.core.matrices import sound
from rmopt.errors import InvalidInputError

Said = Mapping[str, str | Sequence[str]]
Roles = dict[str, list[str]]

# Names of columns, without case and signs, by what they mean.
KNOWN = {
    "user": ("user", "userid", "uid", "username", "customer", "customerid", "member", "memberid", "reader"),
    "item": (
        "item", "itemid", "iid", "movie", "movieid", "film", "filmid", "product", "productid", "book", "bookid",
        "isbn", "song", "songid", "track", "trackid", "artist", "artistid", "asin",
    ),
    "rating": ("rating", "ratings", "stars", "score", "bookrating", "overall"),
    "time": ("time", "timestamp", "unixtime", "date", "datetime", "ratedat", "when"),
    "tag": ("tag", "tags", "tagname", "keyword"),
    "task": ("task", "taskid", "tasks"),
    "label": ("label", "labels", "class", "classes", "target", "y", "category", "species", "topic"),
    "text": ("text", "texts", "body", "document", "message", "content"),
    "test": ("test", "istest", "split", "subset"),
}  # fmt: skip
LABEL_PREFIXES = ("label_", "label:", "labels_", "class_", "target_", "y_", "tag_", "tag:")
YES, NO = {"1", "1.0", "true", "yes", "test"}, {"0", "0.0", "false", "no", "train", "training"}
TEST_FRACTION, SPLIT_SEED = 0.3, 0


@dataclass(frozen=True)
class Kind:
    """A kind of data: the bundles that it may give, the columns that it needs and may have, and who makes it.

    With `alone` there are no other columns: one of them may hold what is needed by another name.
    """

    bundles: tuple[type[Bundle], ...]
    needs: tuple[str, ...]
    may: tuple[str, ...]
    make: Callable[[Table, Roles], Bundle]
    alone: bool = False


def bundle_of(table: Table, said: Said, kind: type[Any]) -> Any:
    """Return the bundle that a table makes, of the kind that is wanted.

    Raises
    ------
    InvalidInputError
        When it is not clear which columns mean what, or the data cannot be used.
    """
    known = {"drop"} | {role for one in KINDS for role in one.needs + one.may}
    unknown = set(said) - known
    if unknown:
        raise InvalidInputError(
            f"{', '.join(sorted(unknown))} is nothing that a column can be said to mean; say "
            f"{', '.join(sorted(known))}; of files of text also header or encoding."
        )
    if any(not len(column) for column in table.columns.values()) or 0 in np.shape(table.X):
        raise InvalidInputError(f"{table.source} holds no rows, or no features.")
    lengths = {name: len(column) for name, column in table.columns.items()}
    lengths |= {name: one.shape[0] for name, one in (("X", table.X), ("Y", table.Y)) if one is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} ({length:,})" for name, length in list(lengths.items())[:12])
        raise InvalidInputError(f"{table.source} has columns of different lengths: {listed}.")
    given = {role: _chosen(table, role, names) for role, names in said.items()}
    every = sorted(name for names in given.values() for name in names)
    twice = next((name for name, after in pairwise(every) if name == after), None)
    if twice is not None:
        raise InvalidInputError(
            f"the column {twice} of {table.source} is said to mean several things; say one."
        )
    dropped = given.pop("drop", [])
    table = replace(table, columns={name: one for name, one in table.columns.items() if name not in dropped})
    wanted = [one for one in KINDS if any(issubclass(bundle, kind) for bundle in one.bundles)]
    able = [one for one in wanted if set(given) <= {*one.needs, *one.may}]
    for one in able:
        roles = _roles(table, one, given)
        others = set(table.columns).difference(*roles.values()) if roles is not None else set()
        if roles is not None and not (one.alone and others):
            found = one.make(table, roles)
            if isinstance(found, kind):
                return found
            raise InvalidInputError(
                f"{table.source} holds {found.holds}, and {kind.holds} are needed; several labels are said as "
                "label=first+second or, by what their names begin with, as label=topic_*."
            )
    # Three columns of ratings need no names.
    if Ratings in {bundle for one in able for bundle in one.bundles} and kind is Ratings and not given:
        first = list(table.columns)
        names = [parsed(table.columns[name])[0] for name in first[:2]]
        places = ("user", "item", "rating", "time")
        roles = dict(zip(places, ([name] for name in first), strict=False))
        meant = {word: role for role, words in KNOWN.items() for word in words}
        elsewhere = any(meant.get(_plain(name), role) != role for role, [name] in roles.items())
        whole = all(one is None or (one == np.round(one)).all() for one in names)
        if len(first) in (3, 4) and whole and not elsewhere:
            table.notes.append(
                f"Its columns were taken for {', '.join(roles)}, in this order: {', '.join(first)}."
            )
            return ratings(table, roles)
    wanted = able or wanted
    needs = "; or ".join(" and ".join(one.needs) + " alone" * one.alone for one in wanted)
    example = f"{table.name}::{','.join(f'{role}=COLUMN' for role in wanted[0].needs)}."
    raise InvalidInputError(
        f"it is not clear what the columns of {table.source} mean: {_listed(table.columns)}; say which is {needs}, "
        f"as in {' '.join([example, *table.notes])}"
    )


def _listed(names: Mapping[str, Any]) -> str:
    """Return the names of columns with their first values; of many the first."""
    shown = [f"{name} ({str(column[0])[:20]})" for name, column in list(names.items())[:12]]
    return ", ".join(shown) + (f", … {len(names) - 12} more" if len(names) > 12 else "") or "it has none"


def _chosen(table: Table, role: str, names: str | Sequence[str]) -> list[str]:
    """Return the columns that are said: one, several with + between, or all that begin as a name with a *."""
    if isinstance(names, str):
        names = [names] if names in table.columns else names.split("+")
    elif not isinstance(names, Sequence):
        names = [names]  # a frame may call its columns by numbers
    found: list[str] = []
    for name in map(str, names):
        if name in table.columns:
            found.append(name)
        elif name.endswith("*") and (some := [one for one in table.columns if one.startswith(name[:-1])]):
            found += some
        else:
            near = get_close_matches(name, table.columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InvalidInputError(
                f"{role}={name}: {table.source} has no such column, but {_listed(table.columns)}{hint}"
            )
    return found


def _roles(table: Table, kind: Kind, given: Roles) -> Roles | None:
    """Return the columns of each role, said or guessed; None where one that is needed is not found."""
    roles, unclear = dict(given), ""
    taken = {name for names in given.values() for name in names}
    for role in (*kind.needs, *kind.may):
        if role in roles or (role == "label" and table.Y is not None and TaskBundle not in kind.bundles):
            continue
        free = {name: _plain(name) for name in table.columns if name not in taken}
        found = [name for name, plain in free.items() if plain in KNOWN.get(role, ())]
        # A column that is called test, or body, may be one of measurements.
        found = [name for name in found if free[name] != "test" or _says_yes_or_no(table, name)]
        found = [name for name in found if role != "text" or parsed(table.columns[name])[0] is None]
        if len(found) > 1:
            unclear = (
                f"{table.source} has several columns that may be the {role}: {', '.join(found)}; say "
                f"{role}={found[0]}, or another."
            )
        if role == "label" and not found and kind.bundles != (TaskBundle,):
            several = ([name for name in free if name.lower().startswith(one)] for one in LABEL_PREFIXES)
            found = next((names for names in several if len(names) > 1), [])
        if found:
            roles[role] = found
            taken |= set(found)
        elif role in kind.needs:
            return None
    if unclear:
        raise InvalidInputError(unclear)
    return roles


def _plain(name: str) -> str:
    """Return a name of a column without case and signs, as `KNOWN` has it."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _says_yes_or_no(table: Table, name: str) -> bool:
    return {str(one).strip().lower() for one in table.columns[name].tolist()} <= YES | NO


def _numbers(table: Table, names: Sequence[str], remedy: str) -> Array:
    """Return columns as a table of finite numbers, or say which hold text, are incomplete or are too large."""
    commas = [name for name in names if name in table.decimals]
    if commas:
        table.notes.append(
            f"The numbers of {', '.join(commas[:6])}{', …' * (len(commas) > 6)} have decimal commas."
        )
    found = {name: parsed(table.decimals.get(name, table.columns[name])) for name in names}
    for name in (name for name in names if table.decimals and name not in commas):
        dotted = [str(word).strip() for word in table.columns[name].tolist() if "." in str(word)]
        if dotted and all(THOUSANDS.fullmatch(word.replace(".", ",")) for word in dotted):
            raise InvalidInputError(
                f"the column {name} of {table.source} holds {dotted[0]}, which beside decimal commas may be a "
                "thousand or more; write it without the point, or as a decimal comma."
            )
    text = [name for name, (numbers, _) in found.items() if numbers is None]
    if text:
        column = table.columns[text[0]]
        example = next(
            (one for one in column.tolist() if parsed(np.array([one], dtype=object))[0] is None), ""
        )
        more = f", and so {'do' if len(text) > 2 else 'does'} {', '.join(text[1:6])}" if len(text) > 1 else ""
        raise InvalidInputError(
            f"the column {text[0]} of {table.source} holds text, for example {str(example)[:30]!r}{more}; {remedy}."
        )
    gaps = {name: int(missing.sum()) for name, (_, missing) in found.items() if missing.any()}
    if gaps:
        listed = ", ".join(f"{name} ({count:,})" for name, count in list(gaps.items())[:6])
        raise InvalidInputError(
            f"{table.source} has gaps, of so many rows: {listed}{', …' * (len(gaps) > 6)}; fill them, or leave out "
            "these rows or columns."
        )
    values = np.column_stack([numbers for numbers, _ in found.values() if numbers is not None])
    infinite = [name for name, whole in zip(names, np.isfinite(values).all(axis=0), strict=True) if not whole]
    if infinite:
        raise InvalidInputError(
            f"the column {infinite[0]} of {table.source} holds infinite values; repair it."
        )
    return values


def names_in(table: Table, name: str) -> tuple[Array, Array]:
    """Return the different names in a column, sorted, whole numbers as such, and the number of each row's name."""
    column, rows = distinct(table.columns[name])
    numbers, missing = parsed(column)
    if missing.any():
        gaps = np.flatnonzero(missing[rows])
        raise InvalidInputError(
            f"the column {name} of {table.source} has gaps in {len(gaps):,} of {len(rows):,} rows, the first in row "
            f"{gaps[0] + 1}; leave out these rows."
        )
    if numbers is not None and not np.isfinite(numbers).all():
        raise InvalidInputError(f"the column {name} of {table.source} holds infinite values; repair it.")
    words = column.tolist()
    text = table.typed and any(isinstance(word, str) for word in words)
    if column.dtype.kind in "iu":
        # Not by way of floats, which know 53 bits of a number.
        values: Array = column if column.dtype.kind == "u" else column.astype(np.int64)
    elif numbers is not None and not text and _as_written(words, numbers):
        values = numbers.astype(np.int64)
        if any(isinstance(word, str) and word.strip().endswith(".0") for word in words):
            table.notes.append(f"Names in {name} are written with .0, and were taken for whole numbers.")
    elif numbers is not None and column.dtype.kind == "f":
        values = numbers
    else:
        values = np.array([str(word).strip() for word in words])
    known, numbered = np.unique(values, return_inverse=True)
    if merged := len(column) - len(known):
        table.notes.append(
            f"{merged:,} name{'s' * (merged > 1)} in {name} became one with another, from which type, .0, spaces or "
            "zero bytes at the ends alone tell them apart."
        )
    return known, numbered[rows]


def _as_written(words: list[Any], numbers: Array) -> bool:
    """Return whether numbers are whole, and written as such: names such as 007 stay as they are.

    Beside gaps pandas writes 7.0, which is 7.
    """
    if not np.all(np.abs(numbers) < 2.0**63):
        return False
    floats = [isinstance(word, float) and word.is_integer() for word in words]
    found = [str(int(word) if whole else word).strip() for word, whole in zip(words, floats, strict=True)]
    wholes = [str(int(number)) for number in numbers.tolist()]
    return all(word in (whole, f"{whole}.0") for word, whole in zip(found, wholes, strict=True))


def ratings(table: Table, roles: Roles) -> Ratings:
    """Return ratings; of several for one user and item the newest, or the only value."""
    (users, columns), (items, rows) = (names_in(table, roles[role][0]) for role in ("user", "item"))
    values = _numbers(
        table, roles["rating"], "say which column holds the ratings as numbers, as rating=COLUMN"
    )[:, 0]
    _note_unused(table, roles)
    cell = rows.astype(np.int64) * len(users) + columns
    order, times, flaw = np.arange(len(cell)), None, None
    again = len(cell) - len(np.unique(cell))
    if "time" in roles:
        try:
            times = _times(table, roles["time"][0])
        except InvalidInputError as error:
            flaw = error
            table.notes.append(f"It has no times: {error}")
    if again:
        # Sorted by time, so that the last of each pair is the newest.
        order = order if times is None else np.argsort(times, kind="stable")
        _, last = np.unique(cell[order][::-1], return_index=True)
        kept = order[::-1][last]
        differ = np.flatnonzero(values != values[kept][np.searchsorted(cell[kept], cell)])
        if len(differ) and times is None:
            n = differ[0]
            raise flaw or InvalidInputError(
                f"{table.source} has {again:,} rating{'s' * (again > 1)} of an item by a user who rated it already, "
                f"for example user {users[columns[n]]} and item {items[rows[n]]} with other values; leave one of "
                f"each{', or say time=COLUMN, and the newest is taken' * (len(table.columns) > 3)}."
            )
        newest = "the newest of each was kept, and of equally new ones that further down"
        how = "all with the same value" if times is None else newest
        table.notes.append(f"{again:,} rating{'s' * (again > 1)} came again for a user and an item: {how}.")
        kept = np.sort(kept)
        rows, columns, values = rows[kept], columns[kept], values[kept]
        times = None if times is None else times[kept]
    return _entries(table, rows, columns, values, items, users, times=times)


def views(table: Table, roles: Roles) -> Ratings:
    """Return how often each user has each item."""
    (users, columns), (items, rows) = (names_in(table, roles[role][0]) for role in ("user", "item"))
    cells, counts = np.unique(rows.astype(np.int64) * len(users) + columns, return_counts=True)
    table.notes.append(
        "No ratings: the values are how often a user has an item. ImplicitALS learns from such."
    )
    rows, columns = np.divmod(cells, len(users))
    return _entries(table, rows, columns, counts.astype(float), items, users)


def _entries(
    table: Table, rows: Array, columns: Array, values: Array, items: Array, users: Array, **more: Any
) -> Ratings:
    return Ratings(
        table.name, table.source, rows.astype(np.int32), columns.astype(np.int32), values,
        (len(items), len(users)), (float(values.min()), float(values.max())),
        row_names=items, column_names=users, notes=tuple(table.notes), **more,
    )  # fmt: skip


def _note_unused(table: Table, roles: Roles) -> None:
    used = {name for names in roles.values() for name in names}
    unused = [name for name in table.columns if name not in used]
    unused += ["Y"] * (table.Y is not None and "label" in roles)
    if unused:
        table.notes.append(f"Not used: {', '.join(unused[:6])}{', …' * (len(unused) > 6)}.")


def _times(table: Table, name: str) -> Array:
    """Return what sorts by time: numbers, or dates by their order."""
    column = table.decimals.get(name, table.columns[name])
    must = (
        f"the column {name} of {table.source} must hold times: numbers, or dates such as 2024-12-31 or "
        "2024-12-31 09:30"
    )
    numbers, missing = parsed(column)
    if missing.any():
        raise InvalidInputError(f"{must}; row {int(np.argmax(missing)) + 1} has none.")
    if numbers is not None and (np.abs(numbers) < 2.0**53).all():
        return np.unique(numbers, return_inverse=True)[1].ravel()
    words = [str(one).strip() for one in column.tolist()]
    times: list[Any]
    if numbers is not None:
        # Of more digits than floats have, whole numbers keep all.
        whole = all(re.fullmatch(r"[+-]?\d+", word) for word in words)
        times = list(map(int, words)) if whole else numbers.tolist()
    else:
        times = [_date(word, row, must) for row, word in enumerate(words, 1)]
    try:
        order = {time: number for number, time in enumerate(sorted(set(times)))}
    except TypeError:
        raise InvalidInputError(f"{must}, all with or all without a zone.") from None
    return np.array([order[time] for time in times])


def _date(word: str, row: int, must: str) -> tuple[datetime, str]:
    """Return a date, and the digits that are finer than its microseconds."""
    finer = (re.search(r"[.,]\d{6}(\d+)", word) or ["", ""])[1].ljust(3, "0")
    try:
        return datetime.fromisoformat(word), finer
    except ValueError:
        raise InvalidInputError(f"{must}; row {row} has {word!r}.") from None


def tags(table: Table, roles: Roles) -> TagBundle:
    """Return tags, each of a user for an item once."""
    names, numbers = zip(*(names_in(table, roles[role][0]) for role in ("user", "item", "tag")), strict=True)
    triples = np.column_stack(numbers).astype(np.int64)
    kept = np.unique(triples, axis=0)
    if len(kept) < len(triples):
        table.notes.append(f"{len(triples) - len(kept):,} tags came twice; one of each was kept.")
    return TagBundle(
        table.name, table.source, kept, tuple(map(str, names[2])), user_names=names[0], item_names=names[1],
        notes=tuple(table.notes),
    )  # fmt: skip


def _features(table: Table, roles: Roles) -> tuple[Any, tuple[str, ...] | None]:
    """Return the features and their names: a whole table, the terms of texts, or all other columns."""
    if "text" in roles:
        column = table.columns[roles["text"][0]]
        gaps = parsed(column)[1]
        count_terms(table, ["" if gap else str(one) for one, gap in zip(column.tolist(), gaps, strict=True)])
    if table.X is not None:
        if "features" in roles:
            raise InvalidInputError(
                f"the features of {table.source} are one table already; leave features= out."
            )
        _note_unused(table, roles)
        if not issparse(table.X):
            return np.ascontiguousarray(table.X, dtype=np.float64), table.names.get("feature_names")
        X = csr_array(sound("X", table.X), dtype=np.float64)
        X.sum_duplicates()
        if not holds_counts(X):
            table.notes.append(
                "Its sparse table holds no counts, which are whole and not negative: it is scaled, not weighted."
            )
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X, table.names.get("feature_names")
    others = {name for role, names in roles.items() if role != "features" for name in names}
    chosen = roles.get("features") or [name for name in table.columns if name not in others]
    if not chosen:
        raise InvalidInputError(f"{table.source} has no columns of features, only {_listed(table.columns)}.")
    X = _numbers(table, chosen, "turn it into numbers, or leave it out by drop=COLUMN")
    return np.ascontiguousarray(X), tuple(chosen)


def _held_out(table: Table, roles: Roles, groups: Array) -> Array:
    """Return the split that a column says, or the same fraction of each group at random."""
    if "test" not in roles:
        return stratified(groups, TEST_FRACTION, SPLIT_SEED)
    return _flags(table, roles["test"][0], "says which rows are held out by 1 and 0, or test and train")


def samples(table: Table, roles: Roles) -> Bundle:
    """Return samples of classes, or with several labels where there are several columns of them."""
    X, names = _features(table, roles)
    about: dict[str, Any] = {"feature_names": names, "split_said": "test" in roles}
    if "label" not in roles or len(roles["label"]) > 1:
        Y, labels = table.Y, table.names.get("label_names")
        if "label" in roles:
            labels = tuple(roles["label"])
            Y = np.column_stack([_flags(table, name, "marks a label by 1 and 0") for name in labels])
        Y = csr_array(Y, dtype=np.float64)
        Y.sum_duplicates()
        Y.eliminate_zeros()
        test = _held_out(table, roles, np.zeros(X.shape[0], dtype=np.int64))
        return MultilabelBundle(
            table.name, table.source, X, Y, test, label_names=labels, notes=tuple(table.notes), **about
        )  # fmt: skip
    known, y = names_in(table, roles["label"][0])
    numbers = parsed(known)[0]
    measured = numbers is not None and not (numbers == np.round(numbers)).all()
    if measured or (len(known) > 20 and 2 * len(known) > len(y)):
        raise InvalidInputError(
            f"the column {roles['label'][0]} of {table.source} has {len(known):,} different values in {len(y):,} "
            f"rows, such as {known[0]} and {known[-1]}: no classes; say which column holds them, as label=COLUMN."
        )
    names_of_classes = table.names.get("class_names")
    if names_of_classes is not None and not np.array_equal(known, np.arange(len(names_of_classes))):
        table.notes.append(
            f"class_names is not used: it names {len(names_of_classes)} classes, numbered from 0, and the labels are "
            f"{', '.join(map(str, known[:6]))}{', …' * (len(known) > 6)}."
        )
        names_of_classes = None
    if names_of_classes is None:
        names_of_classes = tuple(map(str, known))
    return ClassBundle(
        table.name, table.source, X, y.astype(np.int64), _held_out(table, roles, y),
        class_names=names_of_classes, sample_names=table.names.get("sample_names"), notes=tuple(table.notes),
        **about,
    )  # fmt: skip


def _flags(table: Table, name: str, must: str) -> Array:
    """Return where a column says yes; other words than yes and no are refused."""
    words = [str(one).strip().lower() for one in table.columns[name].tolist()]
    strange = next((word for word in words if word not in YES | NO), None)
    if strange is not None:
        raise InvalidInputError(f"the column {name} of {table.source} {must}, not by {strange!r}.")
    return np.array([word in YES for word in words])


def tasks(table: Table, roles: Roles) -> TaskBundle:
    """Return related regressions."""
    known, task = names_in(table, roles["task"][0])
    y = _numbers(table, roles["label"], "say which column holds the target, as label=COLUMN")[:, 0]
    X, names = _features(table, roles)
    return TaskBundle(
        table.name, table.source, X.toarray() if issparse(X) else X, y, task.astype(np.int64), feature_names=names,
        task_names=tuple(map(str, known)), notes=tuple(table.notes),
    )  # fmt: skip


# The first that a table has all columns for is taken.
KINDS = (
    Kind((Ratings,), ("user", "item", "rating"), ("time",), ratings),
    Kind((TagBundle,), ("user", "item", "tag"), (), tags),
    Kind((Ratings,), ("user", "item"), ("time",), views, alone=True),
    Kind((TaskBundle,), ("task", "label"), ("features",), tasks),
    Kind((ClassBundle, MultilabelBundle), ("label",), ("test", "text", "features"), samples),
)
