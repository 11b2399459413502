"""The meaning of a table's columns, given or guessed from their names, and the resulting bundle."""

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
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import MultiLabelBinarizer

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
from rmopt.core.ambient import Array, dense
from rmopt.core.matrices import as_rows
from rmopt.errors import InvalidInputError

Roles = dict[str, list[str]]

# Names of columns, without case and punctuation, by their meaning.
KNOWN = {
    "user": "user userid uid username customer customerid member memberid reader viewer",
    "item": "item itemid iid movie movieid film filmid product productid book bookid isbn song songid track trackid "
    "artist artistid asin",
    "rating": "rating ratings stars score bookrating overall",
    "time": "time timestamp unixtime date datetime ratedat when",
    "tag": "tag tags tagname keyword",
    "task": "task taskid tasks",
    "label": "label labels class classes target y category species topic",
    "text": "text texts document message tweet body content",
    "test": "test istest split subset",
    # Of items in --names, and of texts.
    "name": "title titles name names movietitle filmtitle booktitle songtitle itemname productname",
}
MEANT = {word: role for role, words in KNOWN.items() for word in words.split()}
# The options in addition to columns.
DUPLICATES = {"sum": "their sum was taken", "mean": "their mean was taken", "last": "the last was kept"}
OPTIONS = ("duplicates", "zeros", "split")
MISSING = ("", "na", "n/a", "<na>", "nan", "nat", "null", "none", "?")
YES, NO = ("1", "1.0", "true", "yes", "test"), ("0", "0.0", "false", "no", "train", "training")
# Invisible characters in a name, and the wide forms of letters and signs.
UNSEEN: dict[int, int | None] = dict.fromkeys(map(ord, "\0\u00ad\u200b\u2060\ufeff"))
UNSEEN |= {0x3000: 32} | {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
TEST_FRACTION, SPLIT_SEED = 0.3, 0


@dataclass
class Table:
    """A table as read, before its columns have a meaning.

    Attributes
    ----------
    name, source : str
        The name of the file, and its path.
    frame : DataFrame
        Columns of numbers, or of text, empty for missing values.
    X, Y : array or csr_array, optional
        All features, or all labels, if the format has them in one piece.
    names : dict of str
        ``feature_names`` and ``label_names``.
    notes : list of str
        Remarks.
    typed : bool
        Whether columns have types, so that text is never a number.
    commas : bool
        Whether numbers in text have decimal commas.
    options : dict of str
        The given options of `OPTIONS`.
    """

    name: str
    source: str
    frame: pd.DataFrame
    X: Any = None
    Y: Any = None
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    typed: bool = False
    commas: bool = False
    options: dict[str, str] = field(default_factory=dict)

    def numbers(self, name: str) -> tuple[Array, Array]:
        """Return a column as float64, with NaN for entries that are not numbers, and the missing ones."""
        column = self.frame[name]
        if column.dtype != object:
            return column.to_numpy(np.float64), column.isna().to_numpy()
        missing = column.str.strip().str.lower().isin(MISSING).to_numpy()
        # With decimal commas a point may separate thousands.
        words = column.str.translate(str.maketrans(",.", ".,")) if self.commas else column
        return pd.to_numeric(words, errors="coerce").to_numpy(np.float64), missing

    def holds_text(self, name: str) -> bool:
        """Return whether a column holds text, and not only numbers."""
        numbers, missing = self.numbers(name)
        return bool((np.isnan(numbers) & ~missing).any() or (self.typed and self.frame[name].dtype == object))

    def wrong(self, name: str, why: str, places: Any) -> InvalidInputError:
        """Return the error of a column, with ROW replaced by the number, from 1, of the first of some places."""
        row = f"in row {self.frame.index[np.argmax(places)] + 1}"
        return InvalidInputError(f"the column {name} of {self.source} {why.replace('ROW', row)}.")

    def listed(self) -> str:
        """Return the first names of columns, with their first values if these are numbers."""
        shown = [f"{name} ({example(column.iloc[0])})" for name, column in self.frame.iloc[:, :12].items()]
        return ", ".join([*shown, "…"][: len(self.frame.columns)]) or "it has none"


def first_of(names: Sequence[Any]) -> str:
    """Return the first few names, separated by commas."""
    return f"{', '.join(map(str, names[:6]))}{', …' * (len(names) > 6)}"


def example(value: Any) -> str:
    """Return a value for an error, which prints numbers and dates but no text of a user."""
    return text if re.fullmatch(r"[-+.]?\d[-+.,:/\dTZe ]{0,30}", text := str(value).strip()) else "text"


@dataclass(frozen=True)
class Kind:
    """A kind of data: its possible bundles, its required and optional columns, and its constructor.

    With `alone` there must be no other columns, which might be the required ones under other names.
    """

    bundles: tuple[type[Bundle], ...]
    needs: tuple[str, ...]
    may: tuple[str, ...]
    make: Callable[[Table, Roles], Bundle]
    alone: bool = False


def bundle_of(table: Table, said: Mapping[str, str | Sequence[str]], kind: type[Any]) -> Any:
    """Return the bundle of a table, of the required kind.

    Parameters
    ----------
    table : Table
    said : mapping
        Columns by their meaning, and `OPTIONS`.
    kind : type of Bundle

    Raises
    ------
    InvalidInputError
        If the meaning of columns is not clear, or the data cannot be used.
    """
    known = {"drop"} | {role for one in KINDS for role in one.needs + one.may}
    if foreign := set(said) - known - set(OPTIONS):
        sayable = ", ".join([*sorted(known), *OPTIONS])
        strange = f"{', '.join(sorted(foreign))} is not a known option"
        raise InvalidInputError(f"{strange}; for {table.source} give {sayable}.")
    if not len(table.frame) or 0 in np.shape(table.X):
        raise InvalidInputError(f"{table.source} holds no rows, or no features; bring other data.")
    table, given = parted(table, {role: said[role] for role in said if role in known})
    table.options = {name: str(said[name]) for name in OPTIONS if name in said}
    wanted = [one for one in KINDS if any(issubclass(bundle, kind) for bundle in one.bundles)]
    for one in wanted:
        roles = roles_of(table, one, given)
        if roles is None or (one.alone and set(table.frame).difference(*roles.values())):
            continue
        bundle = one.make(table, roles)
        if isinstance(bundle, kind):
            return bundle
        cure = "several labels are label=first+second, label=topic_*, or label=COLUMN,split=SEPARATOR"
        raise InvalidInputError(f"{table.source} holds {bundle.holds}, and {kind.holds} are needed; {cure}.")
    needs = "; or ".join(" and ".join(one.needs) + " alone" * one.alone for one in wanted)
    texts = any(MEANT.get(plain(name)) == "text" and table.holds_text(name) for name in table.frame)
    likely = next((one for one in wanted if texts and "text" in one.may), wanted[0])
    command = f"{table.name}::{','.join(f'{role}=COLUMN' for role in likely.needs)}"
    means = f"what the columns of {table.source} mean: {table.listed()}; name {needs}"
    raise InvalidInputError(f"it is not clear {means}, as in {command}. {' '.join(table.notes)}".rstrip())


def parted(table: Table, said: Mapping[str, str | Sequence[str]]) -> tuple[Table, Roles]:
    """Return a table without the columns to drop, and the given columns of each role."""
    given = {role: chosen(table, role, names) for role, names in said.items()}
    every = [name for names in given.values() for name in names]
    if len(set(every)) < len(every):
        raise InvalidInputError(f"a column of {table.source} has several meanings; give one.")
    return replace(table, frame=table.frame.drop(columns=given.pop("drop", []))), given


def chosen(table: Table, role: str, names: str | Sequence[str]) -> list[str]:
    """Return the given columns: one, several with + between, or all with the prefix of a name with *."""
    columns = list(table.frame)
    if isinstance(names, str):
        names = [names] if names in columns else names.split("+")
    found: list[str] = []
    for name in map(str, names):
        some = [one for one in columns if one == name or (name[-1:] == "*" and one.startswith(name[:-1]))]
        if not some:
            near = "".join(f"; did you mean {one!r}?" for one in get_close_matches(name, columns, n=1))
            has = f"{table.source} has no such column, but {table.listed()}"
            raise InvalidInputError(f"{role}={name}: {has}{near or '.'}")
        found += some
    return found


def roles_of(table: Table, kind: Kind, given: Roles) -> Roles | None:
    """Return the columns of each role, given or guessed, or None if a kind needs others."""
    roles = dict(given)
    if not set(given) <= {*kind.needs, *kind.may}:
        return None
    for role in (*kind.needs, *kind.may):
        if role in roles or (role == "label" and table.Y is not None and TaskBundle not in kind.bundles):
            continue
        free = [name for name in table.frame if not any(name in names for names in roles.values())]
        found = [name for name in free if MEANT.get(plain(name)) == role]
        # A measurement, such as the weight of a body, is no text.
        found = [name for name in found if role != "text" or table.holds_text(name)]
        if role == "name":
            found += [name for name in free if plain(name) == "id"]
            found = [name for name in found if "text" in roles and table.frame[name].is_unique][:1]
            table.notes += [f"Its texts are called by {name}; name=COLUMN takes another." for name in found]
        if len(found) > 1:
            many = f"{table.source} has several columns that may be the {role}: {', '.join(found)}"
            raise InvalidInputError(f"{many}; give {role}={found[0]}, or another.")
        if role == "label" and not found and TaskBundle not in kind.bundles:
            found = [name for name in free if name.lower().startswith("label_")]
        if role == "label" and kind.make is samples and len(found) == 1 and plain(found[0]) != role:
            table.notes.append(f"Its classes are the column {found[0]}; label=COLUMN takes another.")
        if found:
            roles[role] = found
        elif role in kind.needs:
            return None
    return roles


def plain(name: str) -> str:
    """Return a column name without case and punctuation, as in `KNOWN`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def numbers_in(table: Table, names: Sequence[str], remedy: str) -> Array:
    """Return columns as a table of numbers, and refuse those with text or gaps."""
    columns = {name: table.numbers(name) for name in names}
    for name, (numbers, missing) in columns.items():
        if (text := np.isnan(numbers) & ~missing).any():
            shown = example(table.frame[name].iloc[int(np.argmax(text))])
            raise table.wrong(name, f"holds text, as ROW ({shown}); {remedy}", text)
        if np.isinf(numbers).any():
            raise table.wrong(name, "holds infinite values ROW; repair it", np.isinf(numbers))
    gaps = [f"{name} ({missing.sum():,})" for name, (_, missing) in columns.items() if missing.any()]
    if gaps:
        raise InvalidInputError(f"{table.source} has gaps, of so many rows: {first_of(gaps)}; fill them.")
    return np.column_stack([numbers for numbers, _ in columns.values()])


def seen(word: str) -> str:
    """Return a name as it looks: without invisible characters, and in one form of its letters."""
    return unicodedata.normalize("NFC", word.translate(UNSEEN)).strip()


def names_in(table: Table, name: str) -> tuple[Array, Array]:
    """Return the different names in a column, sorted, and the number of each row's name.

    Names are integers if all of them are. Invisible differences do not distinguish names.
    """
    column = table.frame[name]
    codes, values = pd.factorize(column)
    found: Array = np.asarray(values)
    if column.dtype == object:
        found = np.array([seen(word) for word in found.tolist()] or [""])
        codes[(found == "")[codes]] = -1
        with suppress(ValueError, OverflowError):
            # Names are numbers if all are written so, and fit.
            if not table.typed and ((whole := found.astype(np.int64)).astype(str) == found).all():
                found = whole
    elif found.dtype.kind == "b":
        found = found.astype(str)
    elif (found % 1 == 0).all() and np.abs(found).max(initial=0) < 2.0**63:
        found = found.astype(np.int64)
    if (gaps := codes < 0).any():
        many = f"has gaps in {gaps.sum():,} of {len(codes):,} rows, the first ROW; leave these out"
        raise table.wrong(name, many, gaps)
    known, numbered = np.unique(found, return_inverse=True)
    if merged := len(found) - len(known):
        alike = "they differed only in outer spaces or invisible characters"
        table.notes.append(f"{merged:,} name{'s' * (merged > 1)} in {name} became one with another: {alike}.")
    return known, numbered[codes]


def ratings(table: Table, roles: Roles) -> Ratings:
    """Return ratings, or counts of a user's items; repeated ones by the newest, or by `duplicates`."""
    if "rating" not in roles:
        table.notes.append("No ratings: the values are how often a user has an item, for --model implicit.")
        table = replace(table, frame=table.frame.assign(rating=1.0), options={"duplicates": "sum"})
        roles = {"user": roles["user"], "item": roles["item"], "rating": ["rating"]}
    [rating] = roles["rating"]
    values = numbers_in(table, [rating], "name a column of numbers, as rating=COLUMN")[:, 0]
    zero, rest = values == 0.0, np.unique(values[values != 0.0])
    if table.options.get("zeros") and rest.size:
        table, values = replace(table, frame=table.frame[~zero]), values[~zero]
        table.notes.append(f"{zero.sum():,} ratings of 0 were left out.")
    elif zero.any() and rest.size and rest[0] > np.diff(rest).max(initial=0.0):
        many = f"{zero.sum():,} of {len(zero):,} ratings are 0, and the others {rest[0]:g} to {rest[-1]:g}"
        table.notes.append(f"{many}; give zeros=missing if 0 means no rating.")
    (users, columns), (items, rows) = (names_in(table, roles[role][0]) for role in ("user", "item"))
    note_unused(table, roles)
    times = times_in(table, roles["time"][0]) if "time" in roles else None
    cells = pd.DataFrame({"cell": rows.astype(np.int64) * len(users) + columns, "value": values})
    if again := int(cells["cell"].duplicated().sum()):
        how = table.options.get("duplicates", "")
        groups = cells.groupby("cell")["value"]
        twice = groups.transform("nunique") > 1
        if how not in DUPLICATES and (how or (times is None and twice.any())):
            many = f"has {again:,} rating{'s' * (again > 1)} of an item by a user who has one, as ROW"
            cure = "leave one of each, or give duplicates=sum, mean or last, or time=COLUMN for the newest"
            raise table.wrong(rating, f"{many}; {cure}", twice)
        same = "all with the same value" if times is None else "the newest was kept"
        table.notes.append(f"{again:,} came again for a user and an item: {DUPLICATES.get(how, same)}.")
        if how in ("sum", "mean"):
            values = groups.transform(how).to_numpy()
        order = np.arange(len(values)) if times is None else np.argsort(times, kind="stable")
        # The last, or the newest, of each cell.
        kept = np.sort(order[~cells["cell"].iloc[order].duplicated(keep="last")])
        rows, columns, values = rows[kept], columns[kept], values[kept]
        times = None if times is None else times[kept]
    return Ratings(
        table.name, table.source, rows.astype(np.int32), columns.astype(np.int32), values,
        (len(items), len(users)), (float(values.min()), float(values.max())), times=times,
        row_names=items, column_names=users, notes=tuple(table.notes),
    )  # fmt: skip


def note_unused(table: Table, roles: Roles) -> None:
    """Note the unused columns."""
    unused = [name for name in table.frame if not any(name in names for names in roles.values())]
    if unused := unused + ["Y"] * (table.Y is not None and "label" in roles):
        table.notes.append(f"Not used: {first_of(unused)}.")


def note_repeats(table: Table, roles: Roles) -> None:
    """Note the texts that repeat another one."""
    texts = table.frame[roles["text"] + roles.get("label", [])]
    texts = texts[texts.iloc[:, 0].fillna("").str.strip() != ""]
    if again := int(texts.iloc[:, 0].duplicated().sum()):
        others = again - int(texts.duplicated().sum())
        table.notes.append(f"{again:,} texts repeat an earlier one, {others:,} of these with another label.")


def times_in(table: Table, name: str) -> Array:
    """Return the ranks in time of a column of numbers or dates: 0, 1, 2 …, equal for simultaneous ones."""
    values: Any = table.frame[name]
    if values.dtype == object:
        values = pd.to_numeric(values, errors="coerce")
        if values.isna().any():
            words = table.frame[name].str.replace(r"^(\d\d?)\.(\d\d?)\.(\d{4})", r"\3-\2-\1", regex=True)
            values = pd.to_datetime(words, format="ISO8601", errors="coerce", utc=True)
            if words.str.contains(r"[zZ]$|[tT ].*[-+]").nunique() > 1:
                raise InvalidInputError(f"{name} has dates with and without a time zone; use one form.")
    if (odd := values.isna().to_numpy()).any():
        shown = example(table.frame[name].iloc[int(np.argmax(odd))])
        must = "must hold times: numbers, or dates such as 2024-12-31, 2024-12-31 09:30 or 31.12.2024"
        raise table.wrong(name, f"{must}, and has {shown!r} ROW", odd)
    return np.unique(values, return_inverse=True)[1].ravel()


def tags(table: Table, roles: Roles) -> TagBundle:
    """Return tags, each of a user for an item once."""
    names, numbers = zip(*(names_in(table, roles[role][0]) for role in ("user", "item", "tag")), strict=True)
    triples = np.column_stack(numbers).astype(np.int64)
    kept = np.unique(triples, axis=0)
    if len(kept) < len(triples):
        table.notes.append(f"{len(triples) - len(kept):,} tags came twice; one of each was kept.")
    return TagBundle(table.name, table.source, kept, tuple(map(str, names[-1])), notes=tuple(table.notes))


def count_terms(table: Table, texts: list[str]) -> None:
    """Make the terms of texts the features, as counts, since weights belong to a training part."""
    counter = CountVectorizer(dtype=np.float64)
    table.X = csr_array(counter.fit_transform(texts))
    table.names["feature_names"] = tuple(counter.get_feature_names_out().tolist())
    if empty := int((np.diff(table.X.indptr) == 0).sum()):
        table.notes.append(f"{empty:,} text{'s hold' if empty > 1 else ' holds'} no words.")


def features_of(table: Table, roles: Roles) -> tuple[Any, tuple[str, ...] | None]:
    """Return the features and their names: a whole table, the terms of texts, or all other columns."""
    if "text" in roles and table.X is None:
        note_repeats(table, roles)
        count_terms(table, table.frame[roles["text"][0]].tolist())
    if (X := table.X) is not None:
        note_unused(table, roles)
        if issparse(X) and not holds_counts(X):
            table.notes.append("Its sparse table holds no counts of words: it is scaled, not weighted.")
        return as_rows(X, "X") if issparse(X) else np.ascontiguousarray(X), table.names.get("feature_names")
    others = {name for names in roles.values() for name in names}
    features = [name for name in table.frame if name not in others]
    if not features:
        raise InvalidInputError(f"{table.source} has no columns of features, only {table.listed()}.")
    cure = f"or, if it is the text, name it: {table.name}::text=COLUMN,label=COLUMN"
    X = numbers_in(table, features, f"turn it into numbers, or leave it out by drop=COLUMN, {cure}")
    return np.ascontiguousarray(X), tuple(features)


def samples(table: Table, roles: Roles) -> Bundle:
    """Return samples with classes, or with several labels, in columns or in a column of lists."""
    X, names = features_of(table, roles)
    labels, groups = roles.get("label", []), np.zeros(len(table.frame), np.int64)
    several = len(labels) != 1 or "split" in table.options
    about: dict[str, Any] = {"feature_names": names, "split_said": "test" in roles}
    if several:
        y, about["label_names"] = indicators_of(table, roles)
    else:
        known, groups = names_in(table, labels[0])
        check_classes(table, labels[0], known, groups)
        y = groups.astype(np.int64)
        about["class_names"] = tuple(map(str, known))
    test = stratified(groups, TEST_FRACTION, SPLIT_SEED)
    if "test" in roles:
        test = flags(table, roles["test"][0], "what is held out by 1 and 0, or test and train")
    bundle: Callable[..., Bundle] = MultilabelBundle if several else ClassBundle
    return bundle(table.name, table.source, X, y, test, notes=tuple(table.notes), **about)


def indicators_of(table: Table, roles: Roles) -> tuple[csr_array, tuple[str, ...] | None]:
    """Return the labels of each row, and their names, from a table, from columns, or from a column of lists."""
    Y, labels, columns = table.Y, table.names.get("label_names"), roles.get("label", [])
    if len(columns) == 1:
        indicators = MultiLabelBinarizer(sparse_output=True)
        lists = (parts(word, table.options["split"]) for word in table.frame[columns[0]])
        Y = indicators.fit_transform(lists)
        labels = tuple(indicators.classes_)
    elif columns:
        Y = np.column_stack([flags(table, name, "a label by 1 and 0") for name in columns])
        labels = tuple(columns)
    Y = as_rows(Y, "Y")
    Y.eliminate_zeros()
    return Y, labels


def check_classes(table: Table, name: str, known: Array, y: Array) -> None:
    """Refuse labels that are measurements or texts, and note those that look like lists."""
    numbers = pd.to_numeric(pd.Series(known), errors="coerce")
    if (numbers % 1 > 0).any() or (len(known) > 20 and 2 * len(known) > len(y)):
        many = f"{len(known):,} different values in {len(y):,} rows: no classes"
        raise InvalidInputError(f"{name} of {table.source} has {many}; name the column, as label=COLUMN.")
    for sign in "|;,":
        words = [parts(str(word), sign) for word in known.tolist()]
        lists = np.array([len(labels) > 1 for labels in words])
        if lists.any() and sum(map(len, words)) > len({label for labels in words for label in labels}):
            many = f"{lists[y].sum():,} of {len(y):,} labels in {name} hold {sign} as lists do; each list is a class"
            table.notes.append(f"{many}; give label={name},split={sign} for several labels.")


def parts(word: str, sign: str) -> list[str]:
    """Return the labels in a list such as a|b or ['a', 'b']."""
    return [label for part in word.strip("[](){} ").split(sign) if (label := seen(part).strip("'\""))]


def flags(table: Table, name: str, must: str) -> Array:
    """Return the rows with yes in a column, and refuse other words than yes and no."""
    words = table.frame[name].astype(str).str.strip().str.lower()
    if (strange := ~words.isin(YES + NO)).any():
        raise table.wrong(name, f"marks {must}, not by {example(words[strange].iloc[0])!r}", strange)
    return words.isin(YES).to_numpy()


def tasks(table: Table, roles: Roles) -> TaskBundle:
    """Return related regressions."""
    task = names_in(table, roles["task"][0])[1].astype(np.int64)
    y = numbers_in(table, roles["label"], "name the column of the target, as label=COLUMN")[:, 0]
    X, names = features_of(table, roles)
    return TaskBundle(
        table.name, table.source, dense(X), y, task, feature_names=names, notes=tuple(table.notes)
    )


# The first kind for which a table has all columns is used.
KINDS = (
    Kind((Ratings,), ("user", "item", "rating"), ("time",), ratings),
    Kind((TagBundle,), ("user", "item", "tag"), (), tags),
    Kind((Ratings,), ("user", "item"), ("time",), ratings, alone=True),
    Kind((TaskBundle,), ("task", "label"), (), tasks),
    Kind((ClassBundle, MultilabelBundle), ("label",), ("test", "text", "name"), samples),
)
