"""What the columns of a table mean, said or guessed from their names, and the bundle that follows."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, issparse

from problems.data.bundles import (
    Bundle,
    ClassBundle,
    MultilabelBundle,
    Ratings,
    TagBundle,
    TaskBundle,
    first_of,
    holds_counts,
    stratified,
)  # fmt: skip
from rmopt.core.ambient import Array
from rmopt.core.matrices import sound
from rmopt.errors import InvalidInputError

Roles = dict[str, list[str]]

# Names of columns, without case and signs, by what they mean.
KNOWN = {
    "user": "user userid uid username customer customerid member memberid reader",
    "item": "item itemid iid movie movieid film filmid product productid book bookid isbn song songid track trackid "
    "artist artistid asin",
    "rating": "rating ratings stars score bookrating overall",
    "time": "time timestamp unixtime date datetime ratedat when",
    "tag": "tag tags tagname keyword",
    "task": "task taskid tasks",
    "label": "label labels class classes target y category species topic",
    "text": "text texts body document message content",
    "test": "test istest split subset",
}
MEANT = {word: role for role, words in KNOWN.items() for word in words.split()}
ALIASES = {"labels": "label", "target": "label"}
LABEL_PREFIXES = ("label_", "label:", "labels_", "class_", "target_", "y_", "tag_", "tag:")
SPLITS = {"comma": ",", "semicolon": ";", "bar": "|", "space": " "}
OPTIONS: dict[str, Callable[[str], bool]] = {
    "duplicates": ("sum", "mean", "last").__contains__, "zeros": "missing".__eq__, "split": bool,
}  # fmt: skip
MISSING = {"", "na", "n/a", "<na>", "nan", "nat", "null", "none", "?"}
YES, NO = {"1", "1.0", "true", "yes", "test"}, {"0", "0.0", "false", "no", "train", "training"}
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
WHOLE = re.compile(r"(0|-?[1-9]\d{0,18})(\.0*)?")
# What cannot be seen in a name, and the wide forms of letters and signs.
UNSEEN: dict[int, int | None] = dict.fromkeys(map(ord, "\0\u00ad\u200b\u2060\ufeff"))
UNSEEN |= {0x3000: 32} | {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
DATES = ("ISO8601", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")
ZONE = re.compile(r".*([zZ]|[tT ].*[-+]\d\d(:?\d\d)?)")
TEST_FRACTION, SPLIT_SEED = 0.3, 0


@dataclass
class Table:
    """What was read, before it is known what it means.

    Attributes
    ----------
    name, source : str
        The name of the file, and its path.
    frame : DataFrame
        Columns of numbers, or of text: str, and None where there is nothing.
    X, Y : array or csr_array, optional
        All features, or all labels, where the format has them in one piece.
    names : dict of str
        ``feature_names``, ``label_names``, ``class_names``, ``sample_names``.
    notes : list of str
        What was noticed.
    typed : bool
        Columns have types, so that text is no number; in a file of text it may be.
    semicolons : bool
        They separate columns, so that commas are decimal.
    options : dict of str
        Those of `OPTIONS` that were said.
    """

    name: str
    source: str
    frame: pd.DataFrame
    X: Any = None
    Y: Any = None
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    typed: bool = False
    semicolons: bool = False
    options: dict[str, str] = field(default_factory=dict)

    def words(self, name: str) -> list[str]:
        """Return a column as text without spaces at the ends, empty where there is nothing."""
        return ["" if word is None else str(word).strip() for word in self.frame[name].tolist()]

    def numbers(self, name: str) -> tuple[Array | None, Array]:
        """Return a column as float64, NaN where it is missing, or None where it is text; and where it is missing."""
        column = self.frame[name]
        if column.dtype != object:
            values = column.to_numpy(np.float64)
            return values, np.isnan(values)
        words = self.words(name)
        missing = np.array([word.lower() in MISSING for word in words], dtype=bool)
        if self.commas(words):
            words = [word.replace(",", ".") for word in words]
        # Python takes 1_000 for a number; in data it is a name.
        if "_" not in "".join(words):
            with suppress(ValueError):
                return np.array(np.where(missing, "nan", words), dtype=np.float64), missing
        return None, missing

    def commas(self, words: Sequence[str]) -> bool:
        """Return whether words have decimal commas, and not 1,234, which may be a thousand, nor points beside."""
        commas = [word for word in words if "," in word]
        decimal = (
            commas and all(map(DECIMAL_COMMA.fullmatch, commas)) and not any("." in word for word in words)
        )
        return bool(decimal) and (self.semicolons or not all(map(THOUSANDS.fullmatch, commas)))

    def wrong(self, name: str, why: str, places: Any = None) -> InvalidInputError:
        """Return what is wrong with a column; with the number in the file, from 1, of the first row of a mask."""
        row = "" if places is None else f" in row {self.frame.index[np.argmax(places)] + 1}"
        return InvalidInputError(f"the column {name} of {self.source} {why.replace(' ROW', row)}.")

    def listed(self) -> str:
        """Return the names of columns with their first values, if these are numbers; of many the first."""
        shown = [f"{name} ({example(column.iloc[0])})" for name, column in self.frame.iloc[:, :12].items()]
        more = len(self.frame.columns) - 12
        return ", ".join(shown) + (f", … {more} more" if more > 0 else "") or "it has none"


def example(value: Any) -> str:
    """Return a value for an error, which prints numbers and dates, and no text of a user's."""
    return found if re.fullmatch(r"[-+.]?\d[-+.,:/\dTZe ]{0,30}", found := str(value).strip()) else "text"


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


def bundle_of(table: Table, said: Mapping[str, str | Sequence[str]], kind: type[Any]) -> Any:
    """Return the bundle that a table makes, of the kind that is wanted.

    Parameters
    ----------
    table : Table
    said : mapping
        Columns by what they mean, and `OPTIONS`.
    kind : type of Bundle

    Raises
    ------
    InvalidInputError
        When it is not clear which columns mean what, or the data cannot be used.
    """
    roles = {ALIASES.get(role, role): columns for role, columns in said.items()}
    options = {name: str(roles.pop(name)) for name in OPTIONS if name in roles}
    known = {"drop"} | {role for one in KINDS for role in one.needs + one.may}
    wrong = sorted(set(roles) - known)
    wrong += [f"{name}={value}" for name, value in options.items() if not OPTIONS[name](value)]
    if wrong:
        raise InvalidInputError(
            f"{', '.join(wrong)} is nothing that can be said of {table.source}; say which columns are "
            f"{', '.join(sorted(known))}, or duplicates=sum, mean or last, zeros=missing, split=SEPARATOR; of files "
            "of text also header or encoding."
        )
    if not len(table.frame) or 0 in np.shape(table.X):
        raise InvalidInputError(f"{table.source} holds no rows, or no features; bring other data.")
    given = {role: _chosen(table, role, names) for role, names in roles.items()}
    every = [name for names in given.values() for name in names]
    if twice := [name for name in every if every.count(name) > 1]:
        raise table.wrong(twice[0], "is said to mean several things; say one")
    table = replace(table, frame=table.frame.drop(columns=given.pop("drop", [])), options=options)
    wanted = [one for one in KINDS if any(issubclass(bundle, kind) for bundle in one.bundles)]
    able = [one for one in wanted if set(given) <= {*one.needs, *one.may}]
    for one in able:
        found = roles_of(table, one, given)
        if found is None or (one.alone and set(table.frame).difference(*found.values())):
            continue
        bundle = one.make(table, found)
        if isinstance(bundle, kind):
            return bundle
        raise InvalidInputError(
            f"{table.source} holds {bundle.holds}, and {kind.holds} are needed; say several labels as "
            "label=first+second, as label=topic_*, or as label=COLUMN,split=SEPARATOR."
        )
    if kind is Ratings and not given and (places := _by_place(table)):
        return ratings(table, places)
    needs = "; or ".join(" and ".join(one.needs) + " alone" * one.alone for one in able or wanted)
    command = f"{table.name}::{','.join(f'{role}=COLUMN' for role in (able or wanted)[0].needs)}."
    raise InvalidInputError(
        f"it is not clear what the columns of {table.source} mean: {table.listed()}; say which is {needs}, as in "
        f"{' '.join([command, *table.notes])}"
    )


def texts_and_classes(table: Table, said: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the texts of a table and their classes, from columns that are said or guessed."""
    named = {ALIASES.get(role, role): names for role, names in said.items()}
    roles = (
        roles_of(table, KINDS[-1], {role: _chosen(table, role, names) for role, names in named.items()}) or {}
    )
    if not {"text", "label"} <= set(roles):
        raise InvalidInputError(
            f"{table.source} must have a column of texts and one of labels, and has {table.listed()}; say which, as "
            f"{table.name}::text=COLUMN,label=COLUMN."
        )
    known, numbers = names_in(table, roles["label"][0])
    return table.words(roles["text"][0]), known[numbers].astype(str).tolist()


def _by_place(table: Table) -> Roles | None:
    """Return the roles of three or four columns by their places, where their names do not speak against it."""
    columns = list(table.frame)
    roles = dict(zip(("user", "item", "rating", "time"), ([name] for name in columns), strict=False))
    elsewhere = any(MEANT.get(plain(name), role) != role for role, [name] in roles.items())
    if len(columns) not in (3, 4) or elsewhere:
        return None
    found = [table.numbers(name)[0] for name in columns[:2]]
    if any(values is not None and (values != np.round(values)).any() for values in found):
        return None  # measurements are no names
    table.notes.append(f"Its columns were taken for {', '.join(roles)}, in this order: {', '.join(columns)}.")
    return roles


def _chosen(table: Table, role: str, names: str | Sequence[str]) -> list[str]:
    """Return the columns that are said: one, several with + between, or all that begin as a name with a *."""
    columns = list(table.frame)
    if isinstance(names, str):
        names = [names] if names in columns else names.split("+")
    elif not isinstance(names, Sequence):
        names = [names]  # a frame may call its columns by numbers
    found: list[str] = []
    for name in map(str, names):
        if name in columns:
            found.append(name)
        elif name.endswith("*") and (some := [one for one in columns if one.startswith(name[:-1])]):
            found += some
        else:
            near = get_close_matches(name, columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InvalidInputError(
                f"{role}={name}: {table.source} has no such column, but {table.listed()}{hint}"
            )
    return found


def roles_of(table: Table, kind: Kind, given: Roles) -> Roles | None:
    """Return the columns of each role, said or guessed; None where one that is needed is not found."""
    roles, unclear = dict(given), ""
    taken = {name for names in given.values() for name in names}
    for role in (*kind.needs, *kind.may):
        if role in roles or (role == "label" and table.Y is not None and TaskBundle not in kind.bundles):
            continue
        free = [name for name in table.frame if name not in taken]
        found = [name for name in free if MEANT.get(plain(name)) == role]
        # A column that is called test, or body, may be one of measurements.
        if role == "test":
            found = [
                name
                for name in found
                if plain(name) != role or {*map(str.lower, table.words(name))} <= YES | NO
            ]
        found = [name for name in found if role != "text" or table.numbers(name)[0] is None]
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


def plain(name: str) -> str:
    """Return a name of a column without case and signs, as `KNOWN` has it."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def numbers_in(table: Table, names: Sequence[str], remedy: str) -> Array:
    """Return columns as a table of finite numbers, or say which hold text, are incomplete or are too large."""
    found = {name: table.numbers(name) for name in names}
    texts = {name: table.words(name) for name in names if table.frame[name].dtype == object}
    commas = [name for name, words in texts.items() if table.commas(words)]
    if commas:
        table.notes.append(f"The numbers of {first_of(commas)} have decimal commas.")
    for name, words in texts.items():
        dotted = [word for word in words if "." in word] if commas and name not in commas else []
        if dotted and all(THOUSANDS.fullmatch(word.replace(".", ",")) for word in dotted):
            why = f"holds {dotted[0]}, which beside decimal commas may be a thousand; write it without the point"
            raise table.wrong(name, why)
    for name, (numbers, missing) in found.items():
        if numbers is None:
            strange = pd.to_numeric(pd.Series(texts[name]), errors="coerce").isna() & ~missing
            shown = example(texts[name][int(np.argmax(strange))])
            raise table.wrong(name, f"holds text, as ROW ({shown}); {remedy}", strange)
    gaps = [f"{name} ({missing.sum():,})" for name, (_, missing) in found.items() if missing.any()]
    if gaps:
        raise InvalidInputError(
            f"{table.source} has gaps, of so many rows: {first_of(gaps)}; fill or drop them."
        )
    values = np.column_stack([numbers for numbers, _ in found.values() if numbers is not None])
    for name, column in zip(names, values.T, strict=True):
        if not np.isfinite(column).all():
            raise table.wrong(name, "holds infinite values ROW; repair it", ~np.isfinite(column))
    return values


def whole_or_text(words: Sequence[str]) -> Array:
    """Return names as int64 where all are written as whole numbers and fit, else as the text that they are."""
    if words and all(map(WHOLE.fullmatch, words)):
        numbers = [int(word.partition(".")[0]) for word in words]
        # Beyond int64 numpy makes floats of them, which merge.
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return np.array(numbers, dtype=np.int64)
    return np.array(words or [""])


def names_in(table: Table, name: str) -> tuple[Array, Array]:
    """Return the different names in a column, sorted, and the number of each row's name.

    Whole numbers are numbers, where all names are written so. What cannot be seen does not tell names apart.
    """
    column = table.frame[name]
    codes, values = pd.factorize(column)
    text = column.dtype == object
    found: Array = np.asarray(values)
    if text:
        words = [unicodedata.normalize("NFC", word.translate(UNSEEN)).strip() for word in found.tolist()]
        codes[np.isin(codes, [number for number, word in enumerate(words) if not word])] = -1
        found = np.array(words or [""]) if table.typed else whole_or_text(words)
        if found.dtype.kind == "i" and any("." in word for word in words):
            table.notes.append(f"Names in {name} with .0 were taken for whole numbers.")
        if looks := [word for word in words if word and word.lower() in MISSING]:
            are = "is a name" if len(looks) == 1 else "are names"
            table.notes.append(f"{first_of(looks)} in {name} {are}; leave out rows where nothing is known.")
    elif found.dtype.kind == "f":
        if ((found == np.round(found)) & (np.abs(found) < 2.0**63)).all():
            found = found.astype(np.int64)
    elif found.dtype.kind in "bi":
        found = found.astype(str if found.dtype.kind == "b" else np.int64)
    if (gaps := codes < 0).any():
        raise table.wrong(
            name, f"has gaps in {gaps.sum():,} of {len(codes):,} rows, the first ROW; leave these out", gaps
        )
    known, numbered = np.unique(found, return_inverse=True)
    if merged := len(found) - len(known):
        table.notes.append(
            f"{merged:,} name{'s' * (merged > 1)} in {name} became one with another: only .0, spaces at the ends or "
            "signs that cannot be seen tell them apart."
        )
    return known, numbered[codes]


def ratings(table: Table, roles: Roles) -> Ratings:
    """Return ratings; of several for one user and item the newest, the only value, or what `duplicates` says."""
    [values] = numbers_in(table, roles["rating"], "say which column holds numbers, as rating=COLUMN").T
    zero, rest = values == 0.0, np.unique(values[values != 0.0])
    if table.options.get("zeros") == "missing":
        if not rest.size:
            raise table.wrong(roles["rating"][0], "holds zeros alone; leave zeros=missing out")
        table, values = replace(table, frame=table.frame[~zero]), values[~zero]
        table.notes.append(f"{zero.sum():,} ratings of 0 were left out.")
    elif (
        zero.any() and rest.size and rest[0] > (0.0 if zero.mean() > 0.3 else np.diff(rest).max(initial=0.0))
    ):
        table.notes.append(
            f"{zero.sum():,} of {len(zero):,} ratings are 0, and the others are {rest[0]:g} to {rest[-1]:g}; say "
            "zeros=missing where 0 means that there is no rating."
        )
    (users, columns), (items, rows) = (names_in(table, roles[role][0]) for role in ("user", "item"))
    _note_unused(table, roles)
    times, flaw = None, None
    if "time" in roles:
        try:
            times = times_in(table, roles["time"][0])
        except InvalidInputError as error:
            flaw = error
            table.notes.append(f"It has no times: {error}")
    cell = rows.astype(np.int64) * len(users) + columns
    entries = pd.DataFrame({"cell": cell, "value": values, "at": np.arange(len(cell))})
    # By time, so that the last of each cell is the newest.
    cells = (entries if times is None else entries.iloc[np.argsort(times, kind="stable")]).groupby("cell")
    if again := len(cell) - cells.ngroups:
        how = table.options.get("duplicates", "")
        twice = cells["value"].transform("nunique").sort_index() > 1
        if not how and times is None and twice.any():
            timely = ", or time=COLUMN for the newest" * (len(table.frame.columns) > 3)
            raise flaw or table.wrong(
                roles["rating"][0],
                f"has {again:,} rating{'s' * (again > 1)} of an item by a user who rated it already with another "
                f"value, as ROW; leave one of each, or say duplicates=sum, mean or last{timely}",
                twice,
            )
        same = (
            "all with the same value"
            if times is None
            else "the newest was kept, of equally new ones the last"
        )
        told = {"sum": "their sum was taken", "mean": "their mean was taken", "last": "the last was kept"}
        many = f"{again:,} rating{'s' * (again > 1)} came again for a user and an item"
        table.notes.append(f"{many}: {told.get(how, same)}.")
        kept = cells.agg({"value": how or "last", "at": "last"}).sort_values("at")
        values, at = kept["value"].to_numpy(), kept["at"].to_numpy()
        rows, columns, times = rows[at], columns[at], None if times is None else times[at]
    return _entries(table, rows, columns, values, items, users, times=times)


def views(table: Table, roles: Roles) -> Ratings:
    """Return how often each user has each item."""
    (users, columns), (items, rows) = (names_in(table, roles[role][0]) for role in ("user", "item"))
    cells, counts = np.unique(rows.astype(np.int64) * len(users) + columns, return_counts=True)
    table.notes.append("No ratings: the values are how often a user has an item, for --model implicit.")
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
    unused = [name for name in table.frame if not any(name in names for names in roles.values())]
    if unused := unused + ["Y"] * (table.Y is not None and "label" in roles):
        table.notes.append(f"Not used: {first_of(unused)}.")


def times_in(table: Table, name: str) -> Array:
    """Return the places in time of a column of numbers or dates: 0, 1, 2 …, equal ones at the same time."""
    column, words = table.frame[name], table.words(name)
    numbers, missing = table.numbers(name)
    must = "must hold times: numbers, or dates such as 2024-12-31, 2024-12-31 09:30 or 31.12.2024, and"
    if missing.any():
        raise table.wrong(name, f"{must} has none ROW", missing)
    if column.dtype != object:
        return np.unique(column, return_inverse=True)[1].ravel()
    values: Any = numbers
    if numbers is None:
        dates = [pd.to_datetime(pd.Series(words), format=one, errors="coerce", utc=True) for one in DATES]
        values = min(dates, key=lambda one: int(one.isna().sum()))
        if (odd := values.isna()).any():
            raise table.wrong(name, f"{must} has {example(words[int(np.argmax(odd))])!r} ROW", odd)
        if len({ZONE.fullmatch(word) is None for word in words}) > 1:
            raise table.wrong(
                name, "mixes dates with a zone and without; write all with or all without a zone"
            )
    elif all(re.fullmatch(r"[+-]?\d+(\.0*)?", word) for word in words):
        values = np.array(
            [int(word.partition(".")[0]) for word in words], object
        )  # which may have more digits than floats
    return np.unique(values, return_inverse=True)[1].ravel()


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


def count_terms(table: Table, texts: list[str]) -> None:
    """Make the terms of texts the features; they are only counted, since weights belong to a training part."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(dtype=np.float64)
    try:
        table.X = csr_array(counter.fit_transform(texts))
    except ValueError:
        raise InvalidInputError(f"the texts of {table.source} hold no words; bring others.") from None
    table.names["feature_names"] = tuple(counter.get_feature_names_out().tolist())
    if empty := int((np.diff(table.X.indptr) == 0).sum()):
        table.notes.append(f"{empty:,} text{'s hold' if empty > 1 else ' holds'} no words.")


def features_of(table: Table, roles: Roles) -> tuple[Any, tuple[str, ...] | None]:
    """Return the features and their names: a whole table, the terms of texts, or all other columns."""
    if "text" in roles:
        count_terms(table, table.words(roles["text"][0]))
    if table.X is not None:
        if "features" in roles:
            raise InvalidInputError(f"{table.source} has its features in one table; leave features= out.")
        _note_unused(table, roles)
        if not issparse(table.X):
            return np.ascontiguousarray(table.X, dtype=np.float64), table.names.get("feature_names")
        X = csr_array(sound("X", table.X), dtype=np.float64)
        X.sum_duplicates()
        if not holds_counts(X):
            table.notes.append("Its sparse table holds no counts of words: it is scaled, not weighted.")
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X, table.names.get("feature_names")
    others = {name for role, names in roles.items() if role != "features" for name in names}
    chosen = roles.get("features") or [name for name in table.frame if name not in others]
    if not chosen:
        raise InvalidInputError(f"{table.source} has no columns of features, only {table.listed()}.")
    X = numbers_in(table, chosen, "turn it into numbers, or leave it out by drop=COLUMN")
    return np.ascontiguousarray(X), tuple(chosen)


def samples(table: Table, roles: Roles) -> Bundle:
    """Return samples of classes, or with several labels: columns of them, or a column that holds lists."""
    X, names = features_of(table, roles)
    columns = roles.get("label", [])
    about: dict[str, Any] = {"feature_names": names, "split_said": "test" in roles}
    if len(columns) != 1 or "split" in table.options:
        Y, labels = indicators_of(table, roles)
        test, notes = _held_out(table, roles, np.zeros(len(table.frame), np.int64)), tuple(table.notes)
        return MultilabelBundle(
            table.name, table.source, X, Y, test, label_names=labels, notes=notes, **about
        )
    known, y = names_in(table, columns[0])
    _check_classes(table, columns[0], known, y)
    classes = table.names.get("class_names")
    if classes is not None and not np.array_equal(known, np.arange(len(classes))):
        table.notes.append(f"class_names is not used: the labels are {first_of(known.tolist())}.")
        classes = None
    return ClassBundle(
        table.name, table.source, X, y.astype(np.int64), _held_out(table, roles, y),
        class_names=tuple(map(str, known)) if classes is None else classes,
        sample_names=table.names.get("sample_names"), notes=tuple(table.notes), **about,
    )  # fmt: skip


def indicators_of(table: Table, roles: Roles) -> tuple[csr_array, tuple[str, ...] | None]:
    """Return which labels each row has, and their names, from a table, columns of them, or a column of lists."""
    Y, labels, columns = table.Y, table.names.get("label_names"), roles.get("label", [])
    if len(columns) == 1:
        Y, labels = _split(table, columns[0])
    elif columns:
        Y = np.column_stack([_flags(table, name, "a label by 1 and 0") for name in columns])
        labels = tuple(columns)
    Y = csr_array(Y, dtype=np.float64)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    return Y, labels


def _held_out(table: Table, roles: Roles, groups: Array) -> Array:
    """Return the split that a column says, or the same fraction of each group at random."""
    if "test" not in roles:
        return stratified(groups, TEST_FRACTION, SPLIT_SEED)
    return _flags(table, roles["test"][0], "what is held out by 1 and 0, or test and train")


def _check_classes(table: Table, name: str, known: Array, y: Array) -> None:
    """Refuse labels that are measurements or texts, and note those that look like lists."""
    measured = known.dtype.kind == "f"
    if known.dtype.kind == "U":
        with suppress(ValueError):
            measured = not (known.astype(float) % 1 == 0).all()
    if measured or (len(known) > 20 and 2 * len(known) > len(y)):
        why = (
            f"has {len(known):,} different values in {len(y):,} rows: no classes; say which column holds them"
        )
        raise table.wrong(name, f"{why}, as label=COLUMN")
    for spoken, sign in (("bar", "|"), ("semicolon", ";"), ("comma", ",")):
        words = [_parts(str(word), sign) for word in known.tolist()]
        lists = np.array([len(parts) > 1 for parts in words])
        if lists.any() and sum(map(len, words)) > len({part for parts in words for part in parts}):
            table.notes.append(
                f"{lists[y].sum():,} of {len(y):,} labels in {name} hold {sign} as lists do, and each list is a "
                f"class; say labels={name},split={spoken} to take them for several labels."
            )


def _parts(word: str, sign: str) -> list[str]:
    """Return the labels in a list such as a|b or ['a', 'b']."""
    return [found for part in word.strip("[](){} ").split(sign) if (found := part.strip(" '\""))]


def _split(table: Table, name: str) -> tuple[Any, tuple[str, ...]]:
    """Return the indicators of the labels in a column of lists, and their names."""
    from sklearn.preprocessing import MultiLabelBinarizer

    sign = SPLITS.get(table.options["split"], table.options["split"])
    indicators = MultiLabelBinarizer(sparse_output=True)
    words = (unicodedata.normalize("NFC", word.translate(UNSEEN)) for word in table.words(name))
    return indicators.fit_transform([_parts(word, sign) for word in words]), tuple(indicators.classes_)


def _flags(table: Table, name: str, must: str) -> Array:
    """Return where a column says yes; other words than yes and no are refused."""
    words = [word.lower() for word in table.words(name)]
    strange = next((word for word in words if word not in YES | NO), None)
    if strange is not None:
        raise table.wrong(name, f"marks {must}, not by {example(strange)!r}")
    return np.array([word in YES for word in words])


def tasks(table: Table, roles: Roles) -> TaskBundle:
    """Return related regressions."""
    known, task = names_in(table, roles["task"][0])
    [y] = numbers_in(table, roles["label"], "say which column holds the target, as label=COLUMN").T
    X, names = features_of(table, roles)
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
