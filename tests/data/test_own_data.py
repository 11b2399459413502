"""Files, folders and frames that a user brings: what is read, what is guessed, and what is refused."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimator_parts import dated_ratings
from scipy.io import mmwrite
from sklearn.datasets import dump_svmlight_file, load_iris
from tabled import each_row
from typer.testing import CliRunner

from problems.coembedding.baselines import unit_scaling
from problems.data import (
    Bundle,
    ClassBundle,
    MultilabelBundle,
    Ratings,
    TagBundle,
    TaskBundle,
    load,
    read_texts,
)
from problems.data.describe import describe
from problems.data.registry import Source, loader
from problems.data.sets import ml100k
from problems.data.text import informative_unit_rows
from problems.metric.experiment import Metric
from problems.subspace import BiasedALS, TimeSplit, entries
from rmopt.cli.commands import app
from rmopt.core import InvalidInputError, StorageError

RATINGS = "user,item,rating,time\nann,Alien,5,1\nann,Brazil,2,2\nbob,Alien,3,3\ncy,Casablanca,4,4\n"
WHOLE = [[5.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 4.0]]


def measured(rows: int = 12, last: str = "label", values: str = "ab") -> str:
    lines = [f"{n},{n * n % 7},{values[n % len(values)]}" for n in range(rows)]
    return "\n".join([f"height,width,{last}", *lines]) + "\n"


def put(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def dense(found: Any) -> Any:
    return found.toarray() if sp.issparse(found) else found


class TestRatings:
    @each_row(
        ("name", "content", "said"),
        [
            ("r.csv", RATINGS, {}), ("r.tsv", RATINGS.replace(",", "\t"), {}),
            ("r.csv", RATINGS.replace(",", ";"), {}),
            ("r.csv", "\ufeff" + RATINGS, {}), ("r.csv", RATINGS.replace("\n", "\r\n"), {}),
            ("r.csv", RATINGS.replace("\n", "\n\n"), {}),
            ("r.csv", RATINGS.replace("user,item", "User ID,movie_id").replace("rating", "Stars"), {}),
            ("r.csv", RATINGS.partition("\n")[2], {"header": "no", "user": "1", "item": "2", "rating": "3"}),
            ("r.csv", RATINGS.replace("user", "a").replace("item", "b"), {"user": "a", "item": "b"}),
            ("r.csv", RATINGS + "ann,Alien,5,9\n", {}), ("r.csv", RATINGS + "ann,Alien,1,0\n", {}),
        ],
    )  # fmt: skip
    def test_of_text(self, tmp_path: Path, name: str, content: str, said: dict[str, str]) -> None:
        found = load(put(tmp_path, name, content), kind=Ratings, **said)
        assert found.table().toarray().tolist() == WHOLE
        assert list(found.row_names) == ["Alien", "Brazil", "Casablanca"]
        assert list(found.column_names) == ["ann", "bob", "cy"]
        assert found.limits == (2.0, 5.0)

    def test_what_columns_mean_can_follow_the_file(self, tmp_path: Path) -> None:
        path = put(tmp_path, "r.csv", RATINGS.replace("user", "who").replace("rating", "how"))
        found = load(f"{path}::user=who,rating=how", kind=Ratings)
        assert (found.table().toarray().tolist(), found.notes) == (WHOLE, ())
        for words in ("user", "user=who,user=item"):
            with pytest.raises(InvalidInputError, match="must be such as user=COLUMN, each once"):
                load(f"{path}::{words}")

    def test_three_columns_are_taken_in_order_where_ratings_are_needed(self, tmp_path: Path) -> None:
        path = put(tmp_path, "r.csv", RATINGS.replace("user,item,rating,time", "a,b,c,d"))
        found = load(path, kind=Ratings)
        assert found.table().toarray().tolist() == WHOLE
        assert "taken for user, item, rating, time, in this order: a, b, c, d" in found.notes[0]
        with pytest.raises(
            InvalidInputError, match=r"not clear .* a \(text\), b \(text\), c \(5\).*::user=COLUMN"
        ):
            load(path)
        # Measurements are no names, and names may speak against the place.
        for text in (
            "a,b,c\n0.5,1,2\n0.7,3,4\n",
            "movieId,viewer,note\n1,2,3\n",
            "rating,u,i\n1,2,3\n",
            "u,time,i\n1,2,3\n",
        ):
            with pytest.raises(InvalidInputError, match="not clear"):
                load(put(tmp_path, "m.csv", text), kind=Ratings)

    def test_matrix_market_keeps_its_numbers(self, tmp_path: Path) -> None:
        known = sp.coo_array(([5.0, 2.0, 3.0, 4.0], ([0, 1, 0, 4], [0, 0, 1, 3])), shape=(6, 5))
        mmwrite(tmp_path / "r.mtx", known)
        found = load(tmp_path / "r.mtx", kind=Ratings)
        assert (found.table().toarray().tolist(), list(found.row_names)) == (WHOLE, [1, 2, 5])
        half = np.tril([[0.0, 0, 0], [2, 0, 0], [3, 4, 0]])
        for whole, symmetry in ((half + half.T, "symmetric"), (half - half.T, "skew-symmetric")):
            mmwrite(tmp_path / "half.mtx", sp.coo_array(whole), symmetry=symmetry)
            assert np.array_equal(load(tmp_path / "half.mtx", kind=Ratings).table().toarray(), whole)
        mmwrite(tmp_path / "ones.mtx", sp.coo_array(np.eye(3)), field="pattern")
        assert np.array_equal(load(tmp_path / "ones.mtx", kind=Ratings).table().toarray(), np.eye(3))

    @each_row(
        "text",
        [
            *(f"real general\n2 2 2\n{entries}" for entries in (
                "1 1 5\n2 2 3\n3 1 4\n", "1 1 5\n", "1 1 5\n3 1 4\n", "0 1 5\n2 1 4\n", "1 1 5\n1.5 1 4\n",
                "1 1 5\n1 2 nan\n"
            )),
            "pattern general\n9 9 3\n1 1 4\n2 1 3\n", "real general\n9 9 2\n1 1\n4 2\n3 6\n",
            "real symmetric\n3 2 1\n1 1 1\n",
            "complex general\n1 1 1\n1 1 1 1\n",
        ],
    )  # fmt: skip
    def test_damaged_matrix_market(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(StorageError, match="damaged"):
            load(put(tmp_path, "r.mtx", f"%%MatrixMarket matrix coordinate {text}"))

    def test_arrays_and_mappings(self, tmp_path: Path) -> None:
        columns = {"user": [1, 1, 2, 3], "item": [1, 2, 1, 3], "rating": [5, 2, 3, 4]}
        np.savez(tmp_path / "r.npz", **columns)
        for given in (tmp_path / "r.npz", columns, MappingProxyType(columns), pd.DataFrame(columns)):
            assert load(given, kind=Ratings).table().toarray().tolist() == WHOLE

    @each_row(
        ("content", "says"),
        [
            ("", "is empty"), ("\n\n", "is empty"), ("user,item,rating\n", "no rows"),
            ("1,2,3\n1,3,4\n", "header=no"),
            ("ann,Alien,5\nbob,Alien,3\n", "header=no"), ('user,item,rating\n1,2,"3\n1,3,4\n2,3,5\n', "quotes"),
            ("user,item,rating\nann,Alien,4,5\n", "line 2, saw 4.*decimal comma"),
            ("user,item,rating\nann,,4\n", "column item of .* gaps in 1 of 1 rows, the first in row 1"),
            ("user,item,rating\nann,Alien,\nbob,Alien,NA\n", r"gaps, of so many rows: rating \(2\)"),
            ('user,item,rating\na,x,"1,234"\nb,x,"999"\n', "row 1 .1,234"),
            ("user;item;rating\na;x;1.234\nb;x;2,5\n", "row 2 .2,5"),
            ("user,item,rating\nann,Alien,good\n", "column rating of .* holds text"),
            ("user,item,rating\nann,Alien,inf\n", "rating of .* infinite"),
            ("user,user,rating\nann,Alien,4\n", "'user'"),
            ("user,item,rating,seen\nann,Alien,4,1\nann,Alien,5,2\n", "1 rating of an item .* row 1; .*time="),
            ("user,item,rating\nJosé,Alien,4\n".encode("latin-1"), "byte 0xe9.*encoding=latin-1"),
            ("user,item,stars,score\nann,Alien,4,5\n", "may be the rating: stars, score; say"),
            (b"\x00\x01\x02", "not clear|not text|header and no rows"),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, tmp_path: Path, content: str | bytes, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(put(tmp_path, "r.csv", content), kind=Ratings)

    @each_row(
        ("said", "says"),
        [
            ({"user": "usr"}, "did you mean 'user'"), ({"colour": "user"}, "colour is nothing"),
            ({"encoding": "klingon"}, "unknown encoding"), ({"encoding": "utf-16"}, "not utf-16 text"),
            ({"header": "maybe"}, "yes or no"), ({"label": "rating"}, "not clear|holds"),
            ({"user": "user", "item": "user"}, "several things"),
        ],
    )  # fmt: skip
    def test_what_is_said_wrongly(self, tmp_path: Path, said: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(put(tmp_path, "r.csv", RATINGS), kind=Ratings, **said)

    def test_what_is_odd_is_said(self, tmp_path: Path) -> None:
        found = load(put(tmp_path, "r.csv", "user;item;rating;title\na;x;1,5;A\na;y;1,5;B\na;x;1,5;A\n"))
        for word in ("semicolons", "decimal commas", "Not used: title", "all with the same value",
        "All entries are 1.5",
                     "fewer than two entries"):  # fmt: skip
            assert any(word in note for note in found.odd())
        # Which of equal ratings is the newest need not be known.
        again = "user,item,rating,date\na,x,1,1/2/24\na,x,1,2/2/24\nb,y,3,2/2/24\n"
        assert load(put(tmp_path, "d.csv", again), kind=Ratings).times is None

    def test_views_are_counted_where_nothing_else_is_told(self, tmp_path: Path) -> None:
        path = put(tmp_path, "v.csv", "user_id,product,when\nann,tea,1\nbob,milk,4\nann,tea,2\nbob,tea,3\n")
        found = load(path, kind=Ratings)
        assert (list(found.row_names), found.table().toarray().tolist()) == (
            ["milk", "tea"],
            [[0, 1], [2, 1]],
        )
        assert any("how often" in note for note in found.notes)
        # A third column may be a rating by another name.
        put(tmp_path, "v.csv", "user_id,product,liking\nann,tea,1\nbob,milk,4\n")
        assert load(path, kind=Ratings).values.tolist() == [1.0, 4.0]
        with pytest.raises(InvalidInputError, match=r"user and item and rating; or user and item alone"):
            load(path, kind=Ratings, user="user_id", item="product")

    def test_commas_are_decimals_where_they_are_numbers_and_no_thousands(self, tmp_path: Path) -> None:
        bundle = load(put(tmp_path, "a.csv", "user;item;rating\n1,2;a;3,5\n1,3;a;2\n"), kind=Ratings)
        assert (list(bundle.column_names), bundle.values.tolist()) == (["1,2", "1,3"], [3.5, 2.0])
        with pytest.raises(InvalidInputError, match="1,234"):
            load(put(tmp_path, "b.tsv", "user\titem\trating\n1\t2\t1,234\n"), kind=Ratings)
        # Beside decimal commas points may be those of thousands, unless one number shows that they are not.
        text = "x;z;label\n1.100;3,5;a\n2.250;1,5;b\n"
        with pytest.raises(InvalidInputError, match=r"column x .* holds 1\.100, which beside decimal commas"):
            load(put(tmp_path, "c.csv", text), kind=ClassBundle)
        shown = load(put(tmp_path, "d.csv", text + "0.25;1,5;b\n" * 4), kind=ClassBundle)
        assert shown.X[:3, 0].tolist() == [1.1, 2.25, 0.25]


class TestNames:
    @each_row(
        ("users", "names", "notes"),
        [
            (["2", "10", "2"], ["10", "2"], 0), ([2, 10, 2], [2, 10], 0), ([2.0, 10.0, 2.0], [2, 10], 0),
            ([2, 10.0, 2], [2, 10], 0), (np.array([1, 1.0, True], dtype=object), ["1", "1.0", "True"], 0),
            (["x", "x ", "y\0"], ["x", "y"], 1), ([2**53, 2**53 + 1, 2**63 - 1], [2**53, 2**53 + 1, 2**63 - 1], 0),
            (np.array([2**63 + 1, 2**63 + 2, 2**63 + 1], dtype=np.uint64), [2**63 + 1, 2**63 + 2], 0),
            ([True, False, True], ["False", "True"], 0), ([0.5, 1.5, 0.5], [0.5, 1.5], 0),
        ],
    )  # fmt: skip
    def test_of_frames_stay_what_they_are_or_a_note_says_so(self, users: Any, names: Any, notes: int) -> None:
        bundle = load({"user": users, "item": list("abc"), "rating": [1, 2, 3]}, kind=Ratings)
        assert list(bundle.column_names) == names
        assert len(bundle.notes) == notes

    @each_row(
        ("words", "names", "notes"),
        [
            (["7", "8"], [7, 8], 0), (["007", "7"], ["007", "7"], 0), (["7.0", "8.0"], [7, 8], 1),
            (["1.0", "1"], [1], 2),
            (["100000000000000000000", "0"], ["0", "100000000000000000000"], 0), (["-0", "0"], ["-0", "0"], 0),
            (["9223372036854775807", "1"], [1, 2**63 - 1], 0),
        ],
    )  # fmt: skip
    def test_of_files_are_numbers_where_they_are_written_so(
        self, tmp_path: Path, words: Any, names: Any, notes: int
    ) -> None:
        text = "user,item,rating\n" + "".join(f"{word},{n}x,1\n" for n, word in enumerate(words))
        bundle = load(put(tmp_path, "r.csv", text), kind=Ratings)
        assert list(bundle.column_names) == names
        assert len(bundle.notes) == notes
        assert describe(str(tmp_path / "r.csv"))["columns"][0]["different"] == len(names)

    def test_are_kept_by_a_model(self, tmp_path: Path) -> None:
        large = np.array([2**63 + 1, 2**63 + 2, 2**63 + 1], dtype=np.uint64)
        model = BiasedALS(1, random_state=0).fit(
            load({"user": large, "item": list("abb"), "rating": [1, 2, 3]})
        )
        model.save(tmp_path / "m.npz")
        again = BiasedALS.load(tmp_path / "m.npz")
        assert again.recommend(2**63 + 2, 1) == model.recommend(2**63 + 2, 1)


class TestTimes:
    @each_row(
        "time",
        [
            np.array([2**60 + 2, 2**60 + 1]), np.array([2, 1], dtype="datetime64[ns]"), [12.5, 12.25],
            ["2024-01-01T00:00:00.000000002", "2024-01-01T00:00:00.000000001"], ["01.02.2024", "31.01.2024"],
            ["2024-01-01T09:00+00:00", "2024-01-01T10:00+05:00"], ["1152921504606846978", "1152921504606846977"],
            pd.to_datetime(["2024-01-02", "2024-01-01"]).tz_localize("UTC"),
        ],
    )  # fmt: skip
    def test_the_newest_rating_is_the_newest_to_the_last_digit(self, time: Any) -> None:
        bundle = load({"user": [1, 1], "item": [1, 1], "rating": [1, 2], "time": time}, kind=Ratings)
        assert bundle.values.tolist() == [1.0]

    def test_a_bundle_has_pairs_values_and_times_in_one_order(self) -> None:
        frame = dated_ratings()
        ratings = load(pd.concat([frame.assign(date=np.datetime64("2023-01-01")), frame]))
        pairs, values = entries(ratings)
        told = {(row.item, row.user): (row.rating, row.date) for row in frame.itertuples()}
        found = [told[ratings.row_names[i], ratings.column_names[u]] for i, u in pairs]
        assert values.tolist() == [rating for rating, _ in found]
        dates = np.array([date for _, date in found])
        for train, test in TimeSplit(3).split(pairs, groups=ratings.times):
            assert dates[train].max() < dates[test].min()
        assert load(frame[["user", "item", "rating"]]).times is None

    def test_dates_that_cannot_be_read_are_told_with_their_row(self) -> None:
        frame = dated_ratings().astype({"date": str})
        frame.loc[3, "date"] = "31/12/2024"
        assert load(frame).times is None
        assert "has '31/12/2024' in row 4" in load(frame).odd()[0]
        with pytest.raises(InvalidInputError, match="has '31/12/2024' in row 4"):
            load(pd.concat([frame, frame.assign(rating=frame["rating"] + 1)]))
        frame.loc[3, "date"] = None
        assert "has none in row 4" in load(frame).odd()[0]


class TestSamples:
    def test_classes_of_text_equal_those_of_the_array(self, tmp_path: Path) -> None:
        X, y = load_iris(return_X_y=True)
        names = np.array(["setosa", "versicolor", "virginica"])[y]
        lines = [",".join([*map(repr, row.tolist()), name]) for row, name in zip(X, names, strict=True)]
        found = load(put(tmp_path, "iris.csv", "\n".join(["a,b,c,d,species", *lines])), kind=ClassBundle)
        assert np.array_equal(found.X, X)
        assert np.array_equal(found.y, y)
        assert (found.feature_names, found.class_names) == (
            tuple("abcd"),
            ("setosa", "versicolor", "virginica"),
        )
        assert np.bincount(found.y[found.test]).tolist() == [15, 15, 15]
        dump_svmlight_file(X, y + 5, str(tmp_path / "iris.svm"))
        sparse = load(tmp_path / "iris.svm", kind=ClassBundle)
        np.testing.assert_allclose(dense(sparse.X), X)
        assert np.array_equal(sparse.y, y)
        np.savez(
            tmp_path / "iris.npz", X=X, y=names, n_train=100, feature_names=list("abcd"), more=np.ones(3)
        )
        bundle = load(tmp_path / "iris.npz", kind=ClassBundle)
        assert (np.array_equal(bundle.y, y), bundle.test.sum()) == (True, 50)
        assert "more (3,)" in bundle.notes[0]

    def test_several_labels(self, tmp_path: Path) -> None:
        rows = [[n, n % 2, n % 3 == 0] for n in range(9)]
        text = "size,topic_a,topic_b\n" + "".join(f"{n},{int(a)},{int(b)}\n" for n, a, b in rows)
        expected = [[a, b] for _, a, b in rows]
        path = put(tmp_path, "m.csv", text)
        for said in ("topic_*", "topic_a+topic_b", ["topic_a", "topic_b"]):
            found = load(path, label=said, kind=MultilabelBundle)
            assert (found.Y.toarray().tolist(), found.label_names) == (expected, ("topic_a", "topic_b"))
        guessed = load(put(tmp_path, "g.csv", text.replace("topic", "label")), kind=MultilabelBundle)
        assert guessed.Y.toarray().tolist() == expected
        dump_svmlight_file(
            np.arange(1.0, 10.0)[:, None], sp.csr_array(np.array(expected, dtype=float)), str(tmp_path / "m.libsvm"),
            multilabel=True,
        )  # fmt: skip
        found = load(tmp_path / "m.libsvm", kind=MultilabelBundle)
        assert found.Y.toarray().tolist() == expected
        assert "3 samples have no label." in found.odd()
        rows = "12345678,12345679 1:2\n12345678,12345678 1:1\n12345679 2:1\n12345678 1:3\n"
        counted = load(put(tmp_path, "a.svm", rows), kind=MultilabelBundle)
        assert counted.label_names == ("12345678", "12345679")
        assert counted.Y.toarray().tolist() == [[1, 1], [1, 0], [0, 1], [1, 0]]

    def test_a_label_that_is_said_goes_before_indicators(self, tmp_path: Path) -> None:
        X, y = np.arange(24.0).reshape(8, 3), np.arange(8) % 2
        np.savez(tmp_path / "a.npz", X=X, Y=np.eye(2)[y], y=y)
        assert isinstance(load(tmp_path / "a.npz"), MultilabelBundle)
        said = load(tmp_path / "a.npz", label="y", kind=ClassBundle)
        assert said.notes == ("Not used: Y.",)
        np.savez(tmp_path / "t.npz", X=X, Y=np.eye(2)[y], task=y)
        assert isinstance(load(tmp_path / "t.npz"), MultilabelBundle)
        np.savez(tmp_path / "c.npz", X=X, y=y, class_names=["p", "q", "r"])
        assert "class_names is not used" in load(tmp_path / "c.npz").notes[0]

    def test_features_of_svmlight_that_count_from_1_are_told(self, tmp_path: Path) -> None:
        for first in (0, 1):
            lines = "".join(f"{n % 2} {first}:1 {first + 1}:2\n" for n in range(8))
            found = load(put(tmp_path, f"{first}.svm", lines), kind=ClassBundle)
            assert dense(found.X).tolist() == [[1.0, 2.0]] * 8
            assert any("count from 1" in note for note in found.notes) == (first == 1)

    def test_tasks_and_tags(self, tmp_path: Path) -> None:
        text = measured(last="task", values="uv").replace("width", "y")
        found = load(put(tmp_path, "t.csv", text), kind=TaskBundle)
        assert (found.task_names, found.feature_names) == (("u", "v"), ("height",))
        assert found.y.tolist() == [n * n % 7 for n in range(12)]
        tags = load(put(tmp_path, "g.csv", "userId,movieId,tag\n1,9,fun\n1,9,fun\n2,9,sad\n"), kind=TagBundle)
        assert (tags.tag_names, tags.odd()) == (("fun", "sad"), ["1 tags came twice; one of each was kept."])

    def test_columns_that_say_the_split_and_columns_that_are_left_out(self, tmp_path: Path) -> None:
        lines = [f"{n},name {n},{'ab'[n % 2]},{'test' if n > 6 else 'train'}" for n in range(10)]
        path = put(tmp_path, "c.csv", "\n".join(["size,name,label,split", *lines]))
        with pytest.raises(InvalidInputError, match=r"column name of .* holds text.*drop=COLUMN"):
            load(path)
        for said in ({"drop": "name"}, {"features": "size"}):
            found = load(path, kind=ClassBundle, **said)
            assert (found.test.tolist(), found.split_said) == ([n > 6 for n in range(10)], True)
            assert found.X.tolist() == [[float(n)] for n in range(10)]
        text = "size,split,label\n" + "".join(f"{n},{n},{'ab'[n % 2]}\n" for n in range(4))
        with pytest.raises(InvalidInputError, match="held out by 1 and 0"):
            load(put(tmp_path, "s.csv", text))

    @each_row(
        "kept", [["user", "item"], ["user", "item", "rating"], ["user", "item", "tag"], ["a", "b", "c"]]
    )
    def test_columns_of_ratings_views_and_tags_are_left_out_too(self, kept: list[str]) -> None:
        columns = {name: [1, 2, 3] for name in kept}
        kind: Any = TagBundle if "tag" in kept else Ratings
        found = load(columns | {"genre": list("xyz")}, drop="genre", kind=kind)
        assert found.fingerprint() == load(columns, kind=kind).fingerprint()
        assert not any("genre" in note for note in found.notes)

    def test_an_index_without_a_name_is_no_feature(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"label": ["a", "b"] * 6, "x": np.arange(12.0) ** 2}).sample(
            frac=1, random_state=0
        )
        frame.to_csv(tmp_path / "a.csv")
        found = load(tmp_path / "a.csv", kind=ClassBundle)
        assert found.feature_names == ("x",)
        assert "numbers the rows" in found.odd()[0]
        lines = [f"{n % 3},{n * n},{'ab'[n % 2]}" for n in range(10)]
        path = put(tmp_path, "d.csv", "\n".join(["size,,label", *lines]))
        assert load(path, kind=ClassBundle).feature_names == ("size", "column 2")

    def test_names_that_may_be_those_of_measurements(self, tmp_path: Path) -> None:
        columns = {
            "body": [1.5, 2, 3, 4],
            "test": [3, 1, 2, 0],
            "0": range(4),
            "1": range(4),
            "label": list("abab"),
        }
        assert load(columns, kind=ClassBundle).feature_names == ("body", "test", "0", "1")
        text = "0,1,label\n" + "".join(f"{n},{n * n},{'ab'[n % 2]}\n" for n in range(4))
        assert load(put(tmp_path, "c.csv", text), kind=ClassBundle).feature_names == ("0", "1")

    def test_what_is_odd_is_said(self, tmp_path: Path) -> None:
        rows = "".join(f"3,{n},{'ab'[n % 2]}\n" for n in range(12))
        assert load(put(tmp_path, "c.csv", f"constant,x,label\n{rows}3,1,c\n")).odd() == [
            "1 feature is constant: constant.", "1 class is of one sample, which no split can hold out: c.",
        ]  # fmt: skip

    def test_what_is_not_used_is_said_and_not_chosen_from(self) -> None:
        columns = {"text": ["apple", "pear", None, float("nan")], "size": range(4), "label": list("abab")}
        found = load(columns, kind=ClassBundle)
        assert found.feature_names == ("apple", "pear")
        assert found.odd()[:2] == ["2 texts hold no words.", "Not used: size."]
        with pytest.raises(InvalidInputError, match="leave features= out"):
            load(columns, features="size")

    def test_names_follow_the_columns_that_are_chosen(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.integers(0, 5, (40, 3)).astype(float)
        y = (X[:, 1] > 2).astype(np.int64)
        X[:, 1], X[:, 2] = y, np.where(rng.random(40) < 0.8, y, 1 - y)
        for table in (X, sp.csr_array(X)):
            if sp.issparse(table):
                table.indices, table.indptr = (one.astype(np.int32) for one in (table.indices, table.indptr))
            names = ("noise", "most", "some")
            bundle = ClassBundle("x", "y", table, y, np.arange(40) % 4 == 0, feature_names=names)
            assert informative_unit_rows(bundle, 2).feature_names == ("most", "some")
            with pytest.raises(InvalidInputError, match="3 features and 2 names of them"):
                replace(bundle, feature_names=names[:2])

    @each_row(
        ("content", "kind", "says"),
        [
            (measured(values="a"), Bundle, "all samples have one label"),
            (measured(last="what"), Bundle, "not clear what .* height .0., width .0., what .text.; say"),
            (measured().replace("3,2,b", "3,,b"), Bundle, r"gaps, of so many rows: width \(1\)"),
            (measured().replace("3,2,b", "3,-inf,b"), Bundle, "width of .* infinite"),
            ("label\na\nb\n", Bundle, "no columns of features"), (measured(), Ratings, "not clear|holds text"),
            (measured(), MultilabelBundle, "samples of classes, and samples with several labels are needed"),
            ("x,y\n" + "".join(f"{n},{n / 7}\n" for n in range(30)), Bundle, "30 different values in 30.*no classes"),
            ("label,x\n0.5,1\n1.5,2\n0.5,3\n1.5,4\n", ClassBundle, "no classes"),
            ("a,label_p,label_q\n1,0,1\n2,2,0\n", Bundle, "label_p of .* by 1 and 0, not by '2'"),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, tmp_path: Path, content: str, kind: Any, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(put(tmp_path, "c.csv", content), kind=kind)

    @each_row(
        ("content", "says"),
        [
            ("# nothing\n", "no rows"), ("what is this\n", "line 1 of"), ("inf 1:2\n1 1:3\n", "line 1 of"),
            ("1 1:3\nnan 1:2\n", "line 2 of"), ("1 1:3\n1 1:1 1:2\n", "line 2 of .*rise"),
            ("1 1:3\n1 2:1 1:2\n", "line 2 of .*rise"), ("1,2.5 1:3\n", "not a whole number"),
        ],
    )  # fmt: skip
    def test_lines_of_svmlight_that_are_no_rows(self, tmp_path: Path, content: str, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says) as refused:
            load(put(tmp_path, "c.svm", content))
        assert "what" not in str(refused.value)

    @each_row(
        ("changed", "says"),
        [
            ({"X": [[np.nan], [1.0]]}, "tables of finite numbers"), ({"X": [1.0, 2.0]}, r"X has shape \(2,\)"),
            ({"Y": [["a"], ["b"]]}, "Y holds <U1"), ({"n_train": 1.5}, "n_train of"), ({"n_train": 0}, "n_train of"),
            ({"n_train": [1, 2]}, "n_train of"), ({"Y": np.eye(4)}, "X of .* has 2 rows, and Y 4"),
            ({"Y": [[1, -1], [-1, 1]], "n_train": 1}, "ones and zeros"),
        ],
    )  # fmt: skip
    def test_arrays_of_another_kind_are_no_damage(
        self, tmp_path_factory: Any, changed: Any, says: str
    ) -> None:
        file = tmp_path_factory.mktemp("arrays") / "a.npz"
        np.savez(file, **({"X": [[1.0], [2.0]], "y": [0, 1]} | changed))
        with pytest.raises(InvalidInputError, match=says):
            load(file)

    def test_unknown_files_and_names(self, tmp_path: Path) -> None:
        for name in ("absent.csv", str(tmp_path / "absent")):
            with pytest.raises(InvalidInputError, match=f"no data set '{name}', nor a file or folder"):
                load(name)
        for given, says in (
            (put(tmp_path, "a.json", "{}"), r"suffix \.json"),
            (3, "got int"),
            ("a" * 5000, "no name of a file"),
        ):
            with pytest.raises(InvalidInputError, match=says):
                load(given)
        with pytest.raises(InvalidInputError, match="header is nothing"):
            load({"a": [1]}, header="no")
        np.savez(tmp_path / "a.npz", X=np.eye(2))
        with pytest.raises(InvalidInputError, match="no header that could be said"):
            load(tmp_path / "a.npz", header="no")
        for name, said in (("digits", {"label": "x"}), ("digits::label=x", {})):
            with pytest.raises(InvalidInputError, match="'digits' has no columns to name; leave out"):
                load(name, **said)
        for name, content in (("c.mtx", b"%%MatrixMarket nonsense\n"), ("c.npz", b"PK\x03\x04")):
            with pytest.raises(StorageError, match="damaged"):
                load(put(tmp_path, name, content))


class TestFrames:
    @each_row(
        ("changed", "says"),
        [
            ({"size": [1, 2, 3]}, r"different lengths: size \(3\), label \(4\)"),
            ({"size": [[1], [2, 3], [4], [5]]}, "'size' of the frame cannot be read as an array"),
            ({"size": np.array([[1], None, [4], [5]], dtype=object)}, "lists"),
            ({"size": np.eye(4)}, "one-dimensional"),
            ({"size": np.arange(4).astype("datetime64[ns]")}, "size of .* holds text.*1970-01-01"),
            ({"size": [1, None, 2, 3]}, r"gaps, of so many rows: size \(1\)"),
        ],
    )  # fmt: skip
    def test_columns_that_are_none(self, changed: dict[str, Any], says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(MappingProxyType({"size": range(4), "label": list("abab")} | changed), kind=ClassBundle)

    def test_pandas_and_parquet(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"size": range(8), "kind": pd.Categorical(list("aabbaabb"))})
        found = load(frame, kind=ClassBundle, label="kind")
        assert (found.feature_names, found.class_names) == (("size",), ("a", "b"))
        with pytest.raises(InvalidInputError, match=r"holds text.*2024-01-0"):
            load(frame.assign(when=pd.to_datetime("2024-01-02")), label="kind")
        with pytest.raises(InvalidInputError, match=r"The index \(kind\) is left out; reset_index\(\)"):
            load(frame.set_index("kind"))
        pytest.importorskip("pyarrow")
        frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "f.parquet")
        stored = load(tmp_path / "f.parquet", kind=ClassBundle, label="kind")
        assert (sorted(stored.X.ravel()), stored.feature_names) == (list(range(8)), ("size",))

    def test_polars(self) -> None:
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({"size": range(8), "label": list("aabbaabb")})
        for given in (frame, frame.lazy()):
            found = load(given, kind=ClassBundle)
            assert (found.X.ravel().tolist(), found.class_names) == (list(range(8)), ("a", "b"))

    def test_parquet_without_pyarrow_is_a_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(InvalidInputError, match="pip install pyarrow"):
            load(put(tmp_path, "f.parquet", b""))


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """Twenty texts of two classes, in each of which most words are its own."""
    rng = np.random.default_rng(0)
    for name, own in {"fruit": ["apple", "pear", "plum"], "space": ["rocket", "orbit", "moon"]}.items():
        for number in range(10):
            text = " ".join([*rng.choice(own, 6), *rng.choice(["the", "a", "of"], 4)])
            put(tmp_path / "letters", f"{name}/{number}.txt", text)
    return tmp_path / "letters"


class TestTexts:
    def test_a_folder_by_classes(self, letters: Path) -> None:
        put(letters, "fruit/.hidden", b"\xff")
        put(letters, "fruit/more/1.txt", "never")
        texts, classes, names = read_texts(letters)
        assert (len(texts), names[0]) == (20, "fruit/0.txt")
        found = load(letters, kind=ClassBundle)
        assert (found.class_names, found.notes) == (("fruit", "space"), ("Not read: fruit/more/.",))
        assert [found.class_names[n] for n in found.y] == classes  # type: ignore[index]
        assert found.sample_names == tuple(names)
        apples = dense(found.X)[:, found.feature_names.index("apple")]  # type: ignore[union-attr]
        assert apples.tolist() == [text.split().count("apple") for text in texts]
        column = load({"text": texts, "label": classes}, kind=ClassBundle)
        assert np.array_equal(dense(column.X), dense(found.X))

    def test_other_encodings_pictures_and_empty_folders(self, letters: Path, tmp_path: Path) -> None:
        put(letters, "fruit/x.txt", "açaí".encode("latin-1"))
        with pytest.raises(InvalidInputError, match=r"x\.txt is not utf-8 text .*encoding=latin-1"):
            load(letters)
        assert "açaí" in load(f"{letters}::encoding=latin-1", kind=ClassBundle).feature_names  # type: ignore[operator]
        put(letters, "fruit/x.txt", b"\x89PNG\r\n\x1a\n\x00\x00")
        with pytest.raises(InvalidInputError, match="no text, such as a picture"):
            load(letters)
        (tmp_path / "bare").mkdir()
        with pytest.raises(InvalidInputError, match="no subfolders with files"):
            load(tmp_path / "bare")
        with pytest.raises(InvalidInputError, match="no words"):
            load({"text": ["1", "2"], "label": ["a", "b"]} | {"text": ["?", "!"]})


class TestCommand:
    def says(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["data", *words])
        return done.exit_code, done.output

    def test_a_file(self, tmp_path: Path) -> None:
        status, said = self.says(put(tmp_path, "r.csv", RATINGS))
        assert status == 0
        for line in (
            "ratings: known entries of a matrix",
            "entries          4",
            "rmopt run completion --data ",
        ):
            assert line in said
        assert said.index("rmopt fit completion") < said.index("rmopt run completion")
        assert "rmopt run similarity" not in said
        status, said = self.says(put(tmp_path, "v.csv", "user,item\n1,7\n1,8\n2,7\n"))
        assert "--model implicit" in said
        assert "rmopt run" not in said
        found = json.loads(self.says(str(tmp_path / "r.csv"), "--json")[1])
        assert found["summary"]["density"] == round(4 / 9, 6)
        assert list(found["experiments"]) == ["fit completion", "completion"]
        assert [column["name"] for column in found["columns"]] == ["user", "item", "rating", "time"]

    def test_ratings_by_place_are_ratings(self, tmp_path: Path) -> None:
        status, said = self.says(put(tmp_path, "r.csv", "who,film,stars\n1,7,4.5\n1,8,2.0\n2,7,3.0\n"))
        assert status == 0
        assert "taken for user, item, rating, in this order: who, film, stars" in said

    def test_a_file_that_cannot_be_used_is_shown_all_the_same(self, tmp_path: Path) -> None:
        status, said = self.says(put(tmp_path, "c.csv", "size,name,label\n1,x,a\n,y,b\n"))
        assert status == 2
        assert "It cannot be used: the column name of" in said
        sizes = [line.split() for line in said.splitlines() if line.startswith("size")]
        assert sizes == [["size", "1", "to", "1", "1", "1", "1"]]
        status, said = self.says("digit")
        assert (status, "Did you mean 'digits'?" in said) == (2, True)

    @each_row(
        ("name", "experiments"),
        [
            ("digits", ["metric", "similarity"]),
            ("digits-labels", ["coembedding", "ranking"]),
            ("toy-tags", ["tagging"]),
        ],
    )
    def test_registered_sets_and_their_experiments(self, name: str, experiments: list[str]) -> None:
        assert list(json.loads(self.says(name, "--json")[1])["experiments"]) == experiments

    def test_the_list_says_what_is_there(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "scene.npz", X=np.ones(2))
        _, said = self.says("--json", "--data-home", str(tmp_path))
        there = {entry["name"]: entry["there"] for entry in json.loads(said)["datasets"]}
        assert [there[name] for name in ("scene", "ml1m", "parkinsons", "digits")] == [
            str(tmp_path / "scene.npz"), "fetched when first used", "to be brought", "built in",
        ]  # fmt: skip
        assert "scikit-learn" in self.says()[1]


class TestDownloads:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Any:
        (tmp_path / "public").mkdir()
        handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "public")
        handler.log_message = lambda *_: None  # type: ignore[attr-defined]
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()

    def test_archives_are_fetched_compared_and_unpacked(self, tmp_path: Path, server: str) -> None:
        with zipfile.ZipFile(tmp_path / "public" / "set.zip", "w") as archive:
            archive.writestr("set/data.txt", "1\n2\n")
            archive.writestr("set/other.txt", "no")
        digest = hashlib.sha256((tmp_path / "public" / "set.zip").read_bytes()).hexdigest()

        def read(path: Path) -> Any:
            values = np.loadtxt(path)
            return ClassBundle("set", path.name, values[:, None], np.array([0, 1]), np.array([True, False]))

        address = f"{server}/set.zip"
        load_it = loader(Source(("set.npz", "set/data.txt"), address, ((address, f"sha256:{digest}"),)))(read)
        home = tmp_path / "home"
        home.mkdir()
        assert load_it(home).X.ravel().tolist() == [1.0, 2.0]
        assert not (home / "set" / "other.txt").exists()
        (tmp_path / "public" / "set.zip").unlink()
        assert load_it(home).source == "data.txt"

    def test_what_is_fetched_must_have_its_checksum(self, tmp_path: Path, server: str) -> None:
        put(tmp_path, "public/u.txt", "1\n")
        source = Source(("u.txt",), server, ((f"{server}/u.txt", "sha256:" + "0" * 64),))
        with pytest.raises(
            StorageError, match=r"could not be fetched .*hash of downloaded file.*--data-home"
        ):
            loader(source)(lambda path: None)(tmp_path)  # type: ignore[arg-type,return-value]
        assert not (tmp_path / "u.txt").exists()

    def test_without_network_it_is_said_what_to_bring(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_network(*_: object) -> None:
            raise OSError("no route")

        monkeypatch.setattr("pooch.retrieve", no_network)
        with pytest.raises(StorageError, match=r"no route.*holds ml100k\.npz or ml-100k/u\.data"):
            ml100k(tmp_path)


def test_measurements_below_zero_are_no_counts() -> None:
    X = np.random.default_rng(0).standard_normal((20, 3))
    table = load({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": ["x", "y"] * 10}, kind=ClassBundle)
    np.testing.assert_allclose(informative_unit_rows(table).X, X / np.linalg.norm(X, axis=1, keepdims=True))
    with pytest.raises(
        InvalidInputError, match=r"negative features.*cannot choose 2.*features=FIRST\+SECOND"
    ):
        informative_unit_rows(table, 2)
    with pytest.raises(InvalidInputError, match="n_features = 9 must be"):
        informative_unit_rows(table, 9)


def test_sparse_measurements_are_scaled_as_dense_ones_and_not_weighted(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((20, 3))
    dump_svmlight_file(X, np.arange(20) % 2, str(tmp_path / "x.svm"))
    table = load(tmp_path / "x.svm", kind=ClassBundle)
    assert table.odd()[0].startswith("Its sparse table holds no counts")
    unit = informative_unit_rows(table).X
    np.testing.assert_allclose(unit.toarray(), X / np.linalg.norm(X, axis=1, keepdims=True))
    Y, test = sp.csr_array(np.eye(2)[np.arange(20) % 2]), np.arange(20) > 14
    labelled = MultilabelBundle("x", "x", sp.csr_array(X), Y, test)
    whole = X / np.abs(X[~test]).max(axis=0)
    np.testing.assert_allclose(labelled.scaled(unit_rows=False).X.toarray(), whole)
    whole = X / np.abs(X).max(axis=0)
    expected = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    np.testing.assert_allclose(unit_scaling(labelled.X).fit_transform(labelled.X).toarray(), expected)


def test_a_split_that_is_said_is_taken_or_told_of(tmp_path: Path, run: Any) -> None:
    data, target = load_iris(return_X_y=True)
    held = np.arange(150) % 5 == 0
    frame = pd.DataFrame(data, columns=list("abcd")).assign(kind=target, held=held.astype(int))
    frame.to_csv(tmp_path / "iris.csv", index=False)
    path = f"{tmp_path / 'iris.csv'}::label=kind,test=held"
    assert np.array_equal(load(path, kind=ClassBundle).test, held)
    said: list[str] = []
    loud = type("Run", (type(run),), {"say": lambda self, text: said.append(text)})(**vars(run))
    for seeds in (0, 1):
        Metric(data=path, seeds=seeds, methods="euclidean")(loud)
    assert "120 training, 30 test rows" in " ".join(said)
    assert "its own split" in " ".join(said)
    assert "--seeds 0 takes its own" in " ".join(said)
    with pytest.raises(InvalidInputError, match=r"--seeds 0: iris.csv does not say which rows are held out"):
        Metric(data=path.replace("test=", "drop="), seeds=0, methods="euclidean")(loud)
