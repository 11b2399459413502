"""Files, folders and frames that a user brings: what is read, what is guessed, and what is refused."""

from __future__ import annotations

import csv
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
from problems.similarity import LoretaSimilarity
from problems.subspace import RTRMC, BiasedALS, TimeSplit, entries
from rmopt.cli.commands import app
from rmopt.core import InvalidInputError, StorageError

RATINGS = "user,item,rating,time\nann,Alien,5,1\nann,Brazil,2,2\nbob,Alien,3,3\ncy,Casablanca,4,4\n"
WHOLE = [[5.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 4.0]]


def measured(rows: int = 12, last: str = "label", values: str = "ab") -> str:
    lines = [f"{n},{n * n % 7},{values[n % len(values)]}" for n in range(rows)]
    return "\n".join([f"height,width,{last}", *lines]) + "\n"


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def dense(found: Any) -> Any:
    return found.toarray() if sp.issparse(found) else found


def test_names_are_counted_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\n007,a,3\n7,a,4\n007,b,3\n7,b,1\n8,a,2\n8,b,5\n")
    assert [row["different"] for row in describe(str(path))["columns"]] == [3, 2, 5]


class TestRatings:
    @each_row(
        ("name", "content", "said"),
        [
            ("r.csv", RATINGS, {}),
            ("r.tsv", RATINGS.replace(",", "\t"), {}),
            ("r.csv", RATINGS.replace(",", ";"), {}),
            ("r.csv", "\ufeff" + RATINGS, {}),
            ("r.csv", RATINGS.replace("\n", "\r\n"), {}),
            ("r.csv", RATINGS.replace("\n", "\n\n"), {}),
            ("r.csv", RATINGS.replace("user,item", "User ID,movie_id").replace("rating", "Stars"), {}),
            ("r.csv", RATINGS.partition("\n")[2], {"header": "no", "user": "1", "item": "2", "rating": "3"}),
            ("r.csv", RATINGS.replace("user", "a").replace("item", "b"), {"user": "a", "item": "b"}),
            ("r.csv", RATINGS + "ann,Alien,5,9\n", {}),
            ("r.csv", RATINGS + "ann,Alien,1,0\n", {}),
        ],
    )
    def test_of_text(self, tmp_path: Path, name: str, content: str, said: dict[str, str]) -> None:
        found = load(written(tmp_path, name, content), kind=Ratings, **said)
        assert found.table().toarray().tolist() == WHOLE
        assert found.row_names is not None
        assert found.row_names.tolist() == ["Alien", "Brazil", "Casablanca"]
        assert found.column_names is not None
        assert found.column_names.tolist() == ["ann", "bob", "cy"]
        assert found.limits == (2.0, 5.0)

    def test_what_columns_mean_can_follow_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, "r.csv", RATINGS.replace("user", "who").replace("rating", "how"))
        found = load(f"{path}::user=who,rating=how", kind=Ratings)
        assert found.table().toarray().tolist() == WHOLE
        assert found.notes == ()

    def test_three_columns_are_taken_in_order_where_ratings_are_needed(self, tmp_path: Path) -> None:
        path = written(tmp_path, "r.csv", RATINGS.replace("user,item,rating,time", "a,b,c,d"))
        assert load(path, kind=Ratings).table().toarray().tolist() == WHOLE
        assert (
            "taken for user, item, rating, time, in this order: a, b, c, d"
            in load(path, kind=Ratings).notes[0]
        )
        with pytest.raises(
            InvalidInputError,
            match=r"not clear .* a \(text\), b \(text\), c \(5\).*::user=COLUMN,item=COLUMN",
        ):
            load(path)
        # Measurements are no names.
        with pytest.raises(InvalidInputError, match="not clear"):
            load(written(tmp_path, "m.csv", "a,b,c\n0.5,1,2\n0.7,3,4\n"), kind=Ratings)

    def test_ids_are_numbers_only_where_they_are_spelled_so(self, tmp_path: Path) -> None:
        found = load(written(tmp_path, "r.csv", "user,item,rating\n7,007,1\n8,7,2\n"), kind=Ratings)
        assert found.column_names is not None
        assert found.row_names is not None
        assert found.column_names.tolist() == [7, 8]
        assert found.row_names.tolist() == ["007", "7"]

    def test_long_ids_and_times_keep_all_their_digits(self, tmp_path: Path) -> None:
        ids, stars = [2**53, 2**53 + 1, 2**63 - 1], [1.0, 2.0, 3.0]
        for kind in (np.int64, np.uint64):
            columns = {"user": np.array(ids, dtype=kind), "item": [7, 7, 7], "rating": stars}
            assert load(columns, kind=Ratings).column_names.tolist() == ids
        zones = ["2024-01-01T10:00+05:00", "2024-01-01T09:00+00:00"]
        found = load({"user": [1, 1], "item": [1, 1], "rating": [5, 2], "time": zones}, kind=Ratings)
        assert found.values.tolist() == [2.0]

    def test_matrix_market_keeps_its_numbers(self, tmp_path: Path) -> None:
        known = sp.coo_array(([5.0, 2.0, 3.0, 4.0], ([0, 1, 0, 4], [0, 0, 1, 3])), shape=(6, 5))
        mmwrite(tmp_path / "r.mtx", known)
        found = load(tmp_path / "r.mtx", kind=Ratings)
        assert found.table().toarray().tolist() == WHOLE
        assert found.row_names is not None
        assert found.row_names.tolist() == [1, 2, 5]
        mmwrite(tmp_path / "whole.mtx", np.eye(3))
        with pytest.raises(StorageError, match="does not begin with %%MatrixMarket matrix coordinate"):
            load(tmp_path / "whole.mtx")
        half = np.tril([[0.0, 0, 0], [2, 0, 0], [3, 4, 0]])
        for whole, symmetry in ((half + half.T, "symmetric"), (half - half.T, "skew-symmetric")):
            mmwrite(tmp_path / "half.mtx", sp.coo_array(whole), symmetry=symmetry)
            assert np.array_equal(load(tmp_path / "half.mtx", kind=Ratings).table().toarray(), whole)
        mmwrite(tmp_path / "ones.mtx", sp.coo_array(np.eye(3)), field="pattern")
        assert np.array_equal(load(tmp_path / "ones.mtx", kind=Ratings).table().toarray(), np.eye(3))

    @each_row(
        "entries",
        ["1 1 5\n2 2 3\n3 1 4\n", "1 1 5\n", "1 1 5\n3 1 4\n", "0 1 5\n2 1 4\n", "1 1 5\n1.5 1 4\n"],
    )
    def test_damaged_matrix_market(self, tmp_path: Path, entries: str) -> None:
        head = "%%MatrixMarket matrix coordinate real general\n% by hand\n2 2 2\n"
        with pytest.raises(StorageError, match="must hold 2 entries within 2 rows and 2 columns"):
            load(written(tmp_path, "r.mtx", head + entries))
        with pytest.raises(InvalidInputError, match="duplicates=sum"):
            load(written(tmp_path, "r.mtx", head + "1 1 5\n1 1 4\n"))

    def test_arrays_and_mappings(self, tmp_path: Path) -> None:
        columns = {"user": [1, 1, 2, 3], "item": [1, 2, 1, 3], "rating": [5, 2, 3, 4]}
        np.savez(tmp_path / "r.npz", **columns)
        for given in (tmp_path / "r.npz", columns):
            assert load(given, kind=Ratings).table().toarray().tolist() == WHOLE

    @each_row(
        ("content", "says"),
        [
            ("", "r.csv is empty"),
            ("\n\n", "is empty"),
            ("user,item,rating\n", "has a header and no rows"),
            ("1,2,3\n1,3,4\n", "holds numbers, .*header=no"),
            (
                "ann,Alien,5\nbob,Alien,3\n",
                "header=no",
            ),
            (
                'user,item,rating\n1,2,"3\n1,3,4\n2,3,5\n',
                "quotes",
            ),
            (
                "user,item,rating\nann,Alien,4,5\n",
                "line 2, saw 4.*decimal comma",
            ),
            ("user,item,rating\nann,,4\n", "column item of .* gaps in 1 of 1 rows, the first in row 1"),
            ("user,item,rating\nann,Alien,\nbob,Alien,NA\n", r"gaps, of so many rows: rating \(2\)"),
            ('user,item,rating\na,x,"1,234"\nb,x,"999"\n', "row 1 .1,234"),
            ("user;item;rating\na;x;1.234\nb;x;2,5\n", "row 2 .2,5"),
            ("user,item,rating\nann,Alien,good\n", "column rating of .* holds text"),
            ("user,item,rating\nann,Alien,inf\n", "rating of .* infinite"),
            (
                "user,item,rating,seen\nann,Alien,4,1\nann,Alien,5,2\n",
                "1 rating of an item .* row 1; .*time=",
            ),
            ("user,user,rating\nann,Alien,4\n", "two columns called 'user'"),
            (
                "user,item,rating\nJosé,Alien,4\n".encode("latin-1"),
                "not utf-8 text .byte 0xe9.*encoding=latin-1",
            ),
            (
                "user,item,stars,score\nann,Alien,4,5\n",
                "several columns that may be the rating: stars, score; say",
            ),
            (b"\x00\x01\x02", "not clear|not text|header and no rows"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, content: str | bytes, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(written(tmp_path, "r.csv", content), kind=Ratings)

    @each_row(
        ("said", "says"),
        [
            ({"user": "usr"}, r"user=usr: .* no such column, but user .*did you mean 'user'"),
            ({"colour": "user"}, "colour is nothing that a column can be said to mean"),
            ({"encoding": "klingon"}, "unknown encoding: klingon"),
            ({"encoding": "utf-16"}, "r.csv is not utf-16 text.*; save it as UTF-8"),
            ({"header": "maybe"}, "header = 'maybe' must be yes or no"),
            ({"label": "rating"}, "not clear|holds"),
            ({"user": "user", "item": "user"}, "column user of .* is said to mean several things"),
        ],
    )
    def test_what_is_said_wrongly(self, tmp_path: Path, said: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(written(tmp_path, "r.csv", RATINGS), kind=Ratings, **said)

    def test_the_limit_of_fields_is_that_of_others_again(self, tmp_path: Path) -> None:
        before = csv.field_size_limit()
        load(written(tmp_path, "r.csv", RATINGS))
        assert csv.field_size_limit() == before

    def test_words_behind_a_file_are_checked(self, tmp_path: Path) -> None:
        path = written(tmp_path, "r.csv", RATINGS)
        for words in ("user", "user=user,user=item"):
            with pytest.raises(InvalidInputError, match="must be such as user=COLUMN, each once"):
                load(f"{path}::{words}")
        with pytest.raises(InvalidInputError, match="has no header that could be said"):
            load(tmp_path, header="no", label="x") if not (tmp_path / "x.npz").touch() else None

    def test_what_is_odd_is_said(self, tmp_path: Path) -> None:
        found = load(written(tmp_path, "r.csv", "user;item;rating;title\na;x;1,5;A\na;y;1,5;B\na;x;1,5;A\n"))
        assert found.odd() == [
            "Its columns are separated by semicolons.",
            "The numbers of rating have decimal commas.",
            "Not used: title.",
            "1 rating came again for a user and an item: all with the same value.",
            "All entries are 1.5: no ratings to predict. ImplicitALS (rmopt fit completion --model implicit) "
            "learns who has what.",
            "2 of 2 rows have fewer than two entries.",
        ]
        # Which of equal ratings is the newest need not be known.
        again = "user,item,rating,date\na,x,1,1/2/24\na,x,1,2/2/24\nb,y,3,2/2/24\n"
        dated = load(written(tmp_path, "d.csv", again), kind=Ratings)
        assert dated.times is None
        assert "all with the same value" in dated.notes[1]


class TestSamples:
    def test_classes_of_text_equal_those_of_the_array(self, tmp_path: Path) -> None:
        X, y = load_iris(return_X_y=True)
        names = np.array(["setosa", "versicolor", "virginica"])[y]
        lines = [",".join([*map(repr, row.tolist()), name]) for row, name in zip(X, names, strict=True)]
        found = load(written(tmp_path, "iris.csv", "\n".join(["a,b,c,d,species", *lines])), kind=ClassBundle)
        assert np.array_equal(found.X, X)
        assert np.array_equal(found.y, y)
        assert found.feature_names == ("a", "b", "c", "d")
        assert found.class_names == ("setosa", "versicolor", "virginica")
        assert np.bincount(found.y[found.test]).tolist() == [15, 15, 15]
        dump_svmlight_file(X, y + 5, str(tmp_path / "iris.svm"))
        sparse = load(tmp_path / "iris.svm", kind=ClassBundle)
        np.testing.assert_allclose(dense(sparse.X), X)
        assert np.array_equal(sparse.y, y)
        np.savez(tmp_path / "iris.npz", X=X, y=names, n_train=100, feature_names=list("abcd"))
        assert np.array_equal(load(tmp_path / "iris.npz").y, y)
        assert load(tmp_path / "iris.npz").test.sum() == 50
        for n_train in (0, 150, [1, 2]):
            np.savez(tmp_path / "iris.npz", X=X, y=names, n_train=n_train)
            with pytest.raises(
                InvalidInputError, match=r"n_train of .* must be a whole number from 1 to 149"
            ):
                load(tmp_path / "iris.npz")

    def test_several_labels(self, tmp_path: Path) -> None:
        rows = [[n, n % 2, n % 3 == 0] for n in range(9)]
        text = "size,topic_a,topic_b\n" + "".join(f"{n},{int(a)},{int(b)}\n" for n, a, b in rows)
        expected = [[a, b] for _, a, b in rows]
        path = written(tmp_path, "m.csv", text)
        for said in ("topic_*", "topic_a+topic_b", ["topic_a", "topic_b"]):
            found = load(path, label=said)
            assert isinstance(found, MultilabelBundle)
            assert found.Y.toarray().tolist() == expected
            assert found.label_names == ("topic_a", "topic_b")
        assert (
            load(written(tmp_path, "g.csv", text.replace("topic", "label"))).Y.toarray().tolist() == expected
        )
        Y = sp.csr_array(np.array(expected, dtype=float))
        X = np.arange(1.0, 10.0)[:, None]
        dump_svmlight_file(X, Y, str(tmp_path / "m.libsvm"), multilabel=True)
        found = load(tmp_path / "m.libsvm")
        assert found.Y.toarray().tolist() == expected
        assert "3 samples have no label." in found.odd()

    def test_a_label_that_is_said_goes_before_indicators(self, tmp_path: Path) -> None:
        X, y = np.arange(24.0).reshape(8, 3), np.arange(8) % 2
        np.savez(tmp_path / "a.npz", X=X, Y=np.eye(2)[y], y=y)
        assert isinstance(load(tmp_path / "a.npz"), MultilabelBundle)
        said = load(tmp_path / "a.npz", label="y")
        assert isinstance(said, ClassBundle)
        assert said.notes == ("Not used: Y.",)
        np.savez(tmp_path / "t.npz", X=X, Y=np.eye(2)[y], task=y)
        assert isinstance(load(tmp_path / "t.npz"), MultilabelBundle)

    def test_features_of_svmlight_that_count_from_1_are_told(self, tmp_path: Path) -> None:
        for first, notes in ((0, 0), (1, 1)):
            path = written(
                tmp_path, f"{first}.svm", "".join(f"{n % 2} {first}:1 {first + 1}:2\n" for n in range(8))
            )
            found = load(path)
            assert dense(found.X).tolist() == [[1.0, 2.0]] * 8
            assert len([note for note in found.notes if "count from 1" in note]) == notes

    def test_tasks_and_tags(self, tmp_path: Path) -> None:
        found = load(written(tmp_path, "t.csv", measured(last="task", values="uv").replace("width", "y")))
        assert isinstance(found, TaskBundle)
        assert found.task_names == ("u", "v")
        assert found.feature_names == ("height",)
        assert found.y.tolist() == [n * n % 7 for n in range(12)]
        found = load(written(tmp_path, "g.csv", "userId,movieId,tag\n1,9,fun\n1,9,fun\n2,9,sad\n"))
        assert isinstance(found, TagBundle)
        assert found.tag_names == ("fun", "sad")
        assert found.odd() == ["1 tags came twice; one of each was kept."]

    def test_columns_that_say_the_split_and_columns_that_are_left_out(self, tmp_path: Path) -> None:
        lines = [f"{n},name {n},{'ab'[n % 2]},{'test' if n > 6 else 'train'}" for n in range(10)]
        path = written(tmp_path, "c.csv", "\n".join(["size,name,label,split", *lines]))
        with pytest.raises(InvalidInputError, match=r"column name of .* holds text.*drop=COLUMN"):
            load(path)
        for said in ({"drop": "name"}, {"features": "size"}):
            found = load(path, kind=ClassBundle, **said)
            assert found.test.tolist() == [n > 6 for n in range(10)]
            assert found.X.tolist() == [[float(n)] for n in range(10)]

    @each_row(
        "kept", [["user", "item"], ["user", "item", "rating"], ["user", "item", "tag"], ["a", "b", "c"]]
    )
    def test_columns_of_ratings_views_and_tags_are_left_out_too(self, kept: list[str]) -> None:
        columns = {name: [1, 2, 3] for name in kept}
        found = load(
            columns | {"genre": list("xyz")}, drop="genre", kind=TagBundle if "tag" in kept else Ratings
        )
        assert found.fingerprint() == load(columns, kind=type(found)).fingerprint()
        assert not any("genre" in note for note in found.notes)

    def test_an_index_without_a_name_is_no_feature(self, tmp_path: Path) -> None:
        lines = [f"{n},{n * n % 7},{'ab'[n % 2]}" for n in range(10)]
        found = load(written(tmp_path, "c.csv", "\n".join([",size,label", *lines])), kind=ClassBundle)
        assert found.feature_names == ("size",)
        assert "numbers the rows" in found.odd()[0]
        lines = [f"{n % 3},{n * n},{'ab'[n % 2]}" for n in range(10)]
        found = load(written(tmp_path, "d.csv", "\n".join(["size,,label", *lines])), kind=ClassBundle)
        assert found.feature_names == ("size", "column 2")

    def test_what_is_odd_is_said(self, tmp_path: Path) -> None:
        text = measured().replace("height", "constant") + "3,1,c\n"
        text = "\n".join(
            [text.splitlines()[0], *("3," + line.partition(",")[2] for line in text.splitlines()[1:])]
        )
        assert load(written(tmp_path, "c.csv", text)).odd() == [
            "1 feature is constant: constant.",
            "1 class is of one sample, which no split can hold out: c.",
        ]

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
        assert load(written(tmp_path, "c.csv", text), kind=ClassBundle).feature_names == ("0", "1")
        with pytest.raises(
            InvalidInputError, match=r"split of .* says which rows are held out by .*, not by '2'"
        ):
            load(written(tmp_path, "s.csv", text.replace("0,1,", "size,split,").replace("2,4", "2,2")))

    def test_what_is_not_used_is_said_and_not_chosen_from(self, tmp_path: Path) -> None:
        columns = {"text": ["apple", "pear", None, float("nan")], "size": range(4), "label": list("abab")}
        found = load(columns, kind=ClassBundle)
        assert found.feature_names == ("apple", "pear")
        assert found.odd()[:2] == ["2 texts hold no words.", "Not used: size."]
        with pytest.raises(InvalidInputError, match="are one table already; leave features= out"):
            load(columns, features="size")

    def test_names_follow_the_columns_that_are_chosen(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.integers(0, 5, (40, 3)).astype(float)
        names = ("noise", "most", "some")
        y = (X[:, 1] > 2).astype(np.int64)
        X[:, 2] = np.where(rng.random(40) < 0.8, y, 1 - y)
        X[:, 1] = y
        for table in (X, sp.csr_array(X)):
            if sp.issparse(table):
                table.indices, table.indptr = (one.astype(np.int32) for one in (table.indices, table.indptr))
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
            ("label\na\nb\n", Bundle, "no columns of features"),
            (
                measured(),
                MultilabelBundle,
                r"holds samples of classes, and samples with several labels are needed",
            ),
            (measured(), Ratings, "not clear|holds text"),
            ("5.1,3.5,setosa\n" * 4, Bundle, "first line of .*header=no"),
            (measured(60).replace("label", "width2").replace("width,", "label,"), Bundle, "holds text"),
            (
                "x,y\n" + "".join(f"{n},{n / 7}\n" for n in range(30)),
                Bundle,
                "30 different values in 30 rows.*no classes",
            ),
            (
                "a,label_p,label_q\n1,0,1\n2,2,0\n",
                Bundle,
                "label_q|label_p of .* marks a label by 1 and 0, not by '2'",
            ),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, content: str, kind: Any, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(written(tmp_path, "c.csv", content), kind=kind)

    @each_row(
        ("name", "content", "says"),
        [
            ("c.mtx", b"%%MatrixMarket nonsense\n", "damaged"), ("c.npz", b"PK\x03\x04", "damaged"),
            ("c.parquet", b"PAR1", "damaged"),
        ],
    )  # fmt: skip
    def test_damaged_files(self, tmp_path: Path, name: str, content: bytes, says: str) -> None:
        if name == "c.parquet":
            pytest.importorskip("pyarrow")
        with pytest.raises(StorageError, match=says):
            load(written(tmp_path, name, content))

    @each_row(
        ("content", "says"),
        [
            ("# nothing\n", "no rows"), ("what is this\n", "line 1 of"), ("inf 1:2\n1 1:3\n", "line 1 of"),
            ("1 1:3\nnan 1:2\n", "line 2 of"), ("1 1:3\n1 1:1 1:2\n", "line 2 of .*rise"),
            ("1 1:3\n1 2:1 1:2\n", "line 2 of .*rise"),
        ],
    )  # fmt: skip
    def test_lines_of_svmlight_that_are_no_rows(self, tmp_path: Path, content: str, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says) as refused:
            load(written(tmp_path, "c.svm", content))
        assert "what" not in str(refused.value)

    @each_row(
        ("changed", "says"),
        [
            ({"X": [[np.nan], [1.0]]}, "X holds NaN or infinity.*; X and Y must be tables of finite numbers"),
            ({"X": [1.0, 2.0]}, r"X has shape \(2,\)"),
            ({"Y": [["a"], ["b"]]}, "Y holds <U1 numbers or text"),
            ({"n_train": 1.5}, "n_train of .* must be a whole number"),
        ],
    )
    def test_arrays_of_another_kind_are_no_damage(
        self, tmp_path_factory: Any, changed: dict[str, Any], says: str
    ) -> None:
        file = tmp_path_factory.mktemp("arrays") / "a.npz"
        np.savez(file, **({"X": [[1.0], [2.0]], "y": [0, 1]} | changed))
        with pytest.raises(InvalidInputError, match=says):
            load(file)

    def test_unknown_files_and_names(self, tmp_path: Path) -> None:
        for name in ("absent.csv", str(tmp_path / "absent")):
            with pytest.raises(
                InvalidInputError, match=f"no data set '{name}', nor a file or folder of that name"
            ):
                load(name)
        with pytest.raises(InvalidInputError, match=r"suffix \.json, which is none of \.csv"):
            load(written(tmp_path, "a.json", "{}"))
        with pytest.raises(InvalidInputError, match="a name, a path, a frame or a dict of columns, got int"):
            load(3)
        with pytest.raises(InvalidInputError, match="is no name of a file"):
            load("a" * 5000)
        with pytest.raises(InvalidInputError, match=r"header is nothing .*; of files of text also header"):
            load({"a": [1]}, header="no")
        for name, said in (("digits", {"label": "x"}), ("digits::label=x", {})):
            with pytest.raises(InvalidInputError, match="'digits' has no columns to name; leave out"):
                load(name, **said)


class TestFrames:
    @each_row(
        ("changed", "says"),
        [
            ({"size": [1, 2, 3]}, r"different lengths: size \(3\), label \(4\)"),
            ({"size": [[1], [2, 3], [4], [5]]}, "'size' of the frame cannot be read as an array"),
            (
                {"size": np.arange(4).astype("datetime64[ns]")},
                "size of .* holds text.*1970-01-01",
            ),
        ],
    )
    def test_columns_that_are_none(self, changed: dict[str, Any], says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(MappingProxyType({"size": range(4), "label": list("abab")} | changed), kind=ClassBundle)

    @each_row("values", [[[1, -1], [-1, 1]], [[1, 0.5], [0, 1]]])
    def test_labels_are_ones_and_zeros(self, tmp_path: Path, values: Any) -> None:
        np.savez(tmp_path / "m.npz", X=np.eye(4), Y=np.array([*values, *values]), n_train=[2])
        with pytest.raises(
            InvalidInputError, match=r"Y must hold ones and zeros, and (-1|0.5) is among them"
        ):
            load(tmp_path / "m.npz")

    def test_pandas_and_parquet(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"size": range(8), "kind": pandas.Categorical(list("aabbaabb"))})
        found = load(frame, kind=ClassBundle, label="kind")
        assert found.feature_names == ("size",)
        assert found.class_names == ("a", "b")
        gaps = frame.assign(size=[1, None, *range(6)])
        with pytest.raises(InvalidInputError, match=r"gaps, of so many rows: size \(1\)"):
            load(gaps, label="kind")
        with pytest.raises(InvalidInputError, match=r"holds text.*2024-01-0"):
            load(frame.assign(when=pandas.to_datetime("2024-01-02")), label="kind")
        with pytest.raises(InvalidInputError, match=r"The index \(kind\) is left out; reset_index\(\)"):
            load(frame.set_index("kind"))
        pytest.importorskip("pyarrow")
        frame.to_parquet(tmp_path / "f.parquet")
        stored = load(tmp_path / "f.parquet", kind=ClassBundle, label="kind")
        assert np.array_equal(stored.X, found.X)
        assert stored.feature_names == found.feature_names

    def test_polars(self) -> None:
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({"size": range(8), "label": list("aabbaabb")})
        found = load(frame, kind=ClassBundle)
        assert found.X.ravel().tolist() == list(range(8))
        assert found.class_names == ("a", "b")

    def test_parquet_without_pyarrow_is_a_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(InvalidInputError, match="pip install pyarrow"):
            load(written(tmp_path, "f.parquet", b""))


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """Twenty texts of two classes, in each of which most words are its own."""
    rng = np.random.default_rng(0)
    words = {"fruit": ["apple", "pear", "plum"], "space": ["rocket", "orbit", "moon"]}
    for name, own in words.items():
        for number in range(10):
            text = " ".join([*rng.choice(own, 6), *rng.choice(["the", "a", "of"], 4)])
            written(tmp_path / "letters", f"{name}/{number}.txt", text)
    return tmp_path / "letters"


class TestTexts:
    def test_a_folder_by_classes(self, letters: Path) -> None:
        written(letters, "fruit/.hidden", b"\xff")
        written(letters, "fruit/more/1.txt", "never")
        texts, classes, names = read_texts(letters)
        assert len(texts) == 20
        assert names[0] == "fruit/0.txt"
        found = load(letters, kind=ClassBundle)
        assert found.class_names == ("fruit", "space")
        assert found.notes == ("Not read: fruit/more/.",)
        assert [found.class_names[n] for n in found.y] == classes
        assert found.sample_names == tuple(names)
        assert found.feature_names is not None
        apples = found.X.toarray()[:, found.feature_names.index("apple")]
        assert apples.tolist() == [text.split().count("apple") for text in texts]

    def test_similar_documents(self, letters: Path) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline

        texts, classes, _ = read_texts(letters)
        model = make_pipeline(TfidfVectorizer(), LoretaSimilarity(rank=2, max_iter=2000, random_state=0))
        model.fit(texts, classes)
        terms, similarity = model[:-1], model[-1]
        scores = similarity.similarity(terms.transform(["moon of the orbit"]), terms.transform(texts))[0]
        assert {classes[n] for n in np.argsort(-scores)[:5]} == {"space"}

    def test_a_column_of_texts(self, letters: Path, tmp_path: Path) -> None:
        texts, classes, _ = read_texts(letters)
        found = load({"text": texts, "label": classes}, kind=ClassBundle)
        assert np.array_equal(found.X.toarray(), load(letters).X.toarray())

    def test_other_encodings_and_empty_folders(self, letters: Path, tmp_path: Path) -> None:
        written(letters, "fruit/x.txt", "açaí".encode("latin-1"))
        with pytest.raises(InvalidInputError, match=r"x\.txt is not utf-8 text .*encoding=latin-1"):
            load(letters)
        assert "açaí" in load(f"{letters}::encoding=latin-1").feature_names
        (tmp_path / "bare").mkdir()
        with pytest.raises(InvalidInputError, match="no subfolders with files"):
            load(tmp_path / "bare")
        with pytest.raises(InvalidInputError, match=r"no data set .*none"):
            read_texts(tmp_path / "none")


def test_recommendations_have_names_and_leave_out_what_is_known() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 40))
    known = rng.random((30, 40)) < 0.6
    films, people = [f"film {n}" for n in range(30)], [f"user {n}" for n in range(40)]
    items, users = np.nonzero(known)
    ratings = load(
        {
            "user": [people[n] for n in users],
            "item": [films[n] for n in items],
            "rating": truth[known],
        },
        kind=Ratings,
    )
    model = RTRMC(3, lam=0.0, max_iter=60, random_state=0).fit(ratings)
    best = sorted(np.flatnonzero(~known[:, 7]), key=lambda n: -truth[n, 7])
    found = model.recommend("user 7", 4)
    assert [name for name, _ in found] == [films[n] for n in best[:4]]
    np.testing.assert_allclose([value for _, value in found], truth[best[:4], 7], atol=1e-3)
    assert len(model.recommend("user 7", 100)) == len(best)
    plain = RTRMC(3, lam=0.0, max_iter=60, random_state=0).fit(sp.csc_array(truth * known))
    assert [name for name, _ in plain.recommend(7, 4)] == best[:4]
    for user in ("nobody", 3):
        with pytest.raises(InvalidInputError, match=f"column {user!r} was not seen by fit"):
            model.recommend(user)


class TestCommand:
    def says(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["data", *words])
        return done.exit_code, done.output

    def test_a_file(self, tmp_path: Path) -> None:
        status, said = self.says(written(tmp_path, "r.csv", RATINGS))
        assert status == 0
        for line in (
            "ratings: known entries of a matrix",
            "entries          4",
            "rmopt run completion --data ",
        ):
            assert line in said
        assert "rmopt run similarity" not in said
        status, said = self.says(written(tmp_path, "f.csv", "user,item,rating\n1,7,4.0\n1,8,2.0\n2,7,3.0\n"))
        assert "written with .0" not in said
        status, said = self.says(written(tmp_path, "v.csv", "user,item\n1,7\n1,8\n2,7\n"))
        assert "--model implicit" in said
        assert "rmopt run" not in said
        status, said = self.says(str(tmp_path / "r.csv"), "--json")
        found = json.loads(said)
        assert found["summary"]["density"] == round(4 / 9, 6)
        assert list(found["experiments"]) == ["fit completion", "completion"]
        assert [column["name"] for column in found["columns"]] == ["user", "item", "rating", "time"]

    def test_ratings_by_place_are_ratings(self, tmp_path: Path) -> None:
        status, said = self.says(written(tmp_path, "r.csv", "who,film,stars\n1,7,4.5\n1,8,2.0\n2,7,3.0\n"))
        assert status == 0
        assert "taken for user, item, rating, in this order: who, film, stars" in said
        assert "rmopt run completion --data " in said

    def test_a_file_that_cannot_be_used_is_shown_all_the_same(self, tmp_path: Path) -> None:
        status, said = self.says(written(tmp_path, "c.csv", "size,name,label\n1,x,a\n,y,b\n"))
        assert status == 2
        assert "It cannot be used: the column name of" in said
        assert [line.split() for line in said.splitlines() if line.startswith("size")] == [
            ["size", "1", "to", "1", "1", "1", "1"]
        ]

    def test_a_name_that_is_nearly_one(self) -> None:
        status, said = self.says("digit")
        assert status == 2
        assert "Did you mean 'digits'?" in said

    @each_row(
        ("name", "experiments"),
        [
            ("digits", ["metric", "similarity"]),
            ("digits-labels", ["coembedding", "ranking"]),
            ("toy-tags", ["tagging"]),
        ],
    )
    def test_registered_sets_and_their_experiments(self, name: str, experiments: list[str]) -> None:
        status, said = self.says(name, "--json")
        assert status == 0
        assert list(json.loads(said)["experiments"]) == experiments

    def test_the_list_says_what_is_there(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "scene.npz", X=np.ones(2))
        status, said = self.says("--json", "--data-home", str(tmp_path))
        assert status == 0
        there = {entry["name"]: entry for entry in json.loads(said)["datasets"]}
        assert there["scene"]["there"] == str(tmp_path / "scene.npz")
        assert there["ml1m"] == {
            "name": "ml1m", "there": "fetched when first used",
            "source": "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        }  # fmt: skip
        assert there["parkinsons"]["there"] == "to be brought"
        assert there["digits"]["there"] == "built in"
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
        written(tmp_path, "public/u.txt", "1\n")
        source = Source(("u.txt",), server, ((f"{server}/u.txt", "sha256:" + "0" * 64),))
        load_it = loader(source)(lambda path: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(
            StorageError, match=r"could not be fetched .*hash of downloaded file.*--data-home"
        ):
            load_it(tmp_path)
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


def test_views_are_counted_where_nothing_else_is_told(tmp_path: Path) -> None:
    views = tmp_path / "views.csv"
    views.write_text("user_id,product,when\nann,tea,1\nbob,milk,4\nann,tea,2\nbob,tea,3\n")
    found = load(views, kind=Ratings)
    assert list(found.row_names) == ["milk", "tea"]
    assert found.table().toarray().tolist() == [[0, 1], [2, 1]]
    assert any("how often" in note for note in found.notes)
    # A third column may be a rating by another name.
    views.write_text("user_id,product,liking\nann,tea,1\nbob,milk,4\n")
    assert load(views, kind=Ratings).values.tolist() == [1.0, 4.0]
    with pytest.raises(InvalidInputError, match=r"user and item and rating; or user and item alone"):
        load(views, kind=Ratings, user="user_id", item="product")


def test_a_bundle_has_pairs_values_and_times_in_one_order() -> None:
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


def test_dates_that_cannot_be_read_are_told_with_their_row() -> None:
    frame = dated_ratings().astype({"date": str})
    frame.loc[3, "date"] = "31/12/2024"
    assert load(frame).times is None
    assert "row 4 has '31/12/2024'" in load(frame).odd()[0]
    with pytest.raises(InvalidInputError, match=r"dates such as 2024-12-31.* row 4 has '31/12/2024'"):
        load(pd.concat([frame, frame.assign(rating=frame["rating"] + 1)]))


def test_a_picture_among_texts_is_said_to_be_no_text(tmp_path: Path) -> None:
    for name, content in (
        ("a/1.txt", b"one"),
        ("b/2.txt", b"two"),
        ("b/p.png", b"\x89PNG\r\n\x1a\n\x00\x00"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InvalidInputError, match=r"p.png is not utf-8 text .* it is no text, such as a picture"
    ):
        load(tmp_path)


def test_a_split_that_is_said_is_taken_or_told_of(tmp_path: Path, run: Any, capsys: Any) -> None:
    data, target = load_iris(return_X_y=True)
    held = np.arange(150) % 5 == 0
    frame = pd.DataFrame(data, columns=list("abcd")).assign(kind=target, held=held.astype(int))
    frame.to_csv(tmp_path / "iris.csv", index=False)
    bundle = load(tmp_path / "iris.csv", kind=ClassBundle, label="kind", test="held")
    assert bundle.split_said
    assert np.array_equal(bundle.test, held)
    said: list[str] = []
    loud = type("Run", (type(run),), {"say": lambda self, text: said.append(text)})(**vars(run))
    path = f"{tmp_path / 'iris.csv'}::label=kind,test=held"
    Metric(data=path, seeds=0, methods="euclidean")(loud)
    assert "120 training, 30 test rows, its own split" in " ".join(said)
    said.clear()
    Metric(data=path, seeds=1, methods="euclidean")(loud)
    assert "--seeds 0 takes its own" in " ".join(said)
    with pytest.raises(InvalidInputError, match=r"--seeds 0: iris.csv does not say which rows are held out"):
        Metric(data=path.replace("test=", "drop="), seeds=0, methods="euclidean")(loud)
    said.clear()
    Metric(data=path, rows=151, features=9, seeds=1, methods="euclidean")(loud)
    assert said[:2] == ["--rows is 150: iris.csv has no more.", "--features is 4: iris.csv has no more."]


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


@each_row("head", ["movieId,viewer,note", "rating,u,i", "u,timestamp,i"])
def test_three_columns_are_not_taken_by_place_against_their_names(tmp_path_factory: Any, head: str) -> None:
    folder = put(tmp_path_factory.mktemp("t"), a__csv=f"{head}\n1,2,3\n1,3,4\n")
    with pytest.raises(InvalidInputError, match="not clear what the columns"):
        load(folder / "a.csv", kind=Ratings)


HUGE = 2**63


def test_ids_keep_all_of_their_digits(tmp_path: Path) -> None:
    large = np.array([HUGE + 1, HUGE + 2, HUGE + 1], dtype=np.uint64)
    bundle = load({"user": large, "item": ["a", "b", "b"], "rating": [1, 2, 3]}, kind=Ratings)
    model = BiasedALS(1, random_state=0).fit(bundle)
    model.save(tmp_path / "m.npz")
    again = BiasedALS.load(tmp_path / "m.npz")
    assert again.column_names_.tolist() == [HUGE + 1, HUGE + 2]
    assert again.recommend(HUGE + 2, 1) == model.recommend(HUGE + 2, 1)
    more = model.fold_in([[0, 2]], [3.0], names=[7])
    assert more.column_names_.tolist() == [HUGE + 1, HUGE + 2, 7]
    with pytest.raises(InvalidInputError, match="names must be numbers"):
        model.fold_in([[0, 2]], [3.0], names=["7"])
    words = ["100000000000000000000", "200000000000000000000", "-0", "0"]
    put(tmp_path, a__csv="user,item,rating\n" + "\n".join(f"{word},a,1" for word in words))
    assert sorted(load(tmp_path / "a.csv", kind=Ratings).column_names.tolist()) == sorted(words)  # type: ignore[union-attr]


@each_row(
    ("users", "names", "notes"),
    [
        (["2", "10", "2"], ["10", "2"], ()),
        ([2, 10, 2], [2, 10], ()),
        ([2.0, 10.0, 2.0], [2, 10], ()),
        ([2, 10.0, 2], [2, 10], ()),
        (np.array([1, 1.0, True], dtype=object), ["1", "1.0", "True"], ()),
        (["x", "x ", "y\0"], ["x", "y"], ("1 name in user became one with another",)),
    ],
)
def test_names_in_a_frame_stay_what_they_are_or_a_note_says_so(users: Any, names: Any, notes: Any) -> None:
    bundle = load({"user": users, "item": list("abc"), "rating": [1, 2, 3]}, kind=Ratings)
    assert bundle.column_names is not None
    assert bundle.column_names.tolist() == names
    assert len(bundle.notes) == len(notes)
    assert all(note.startswith(start) for note, start in zip(bundle.notes, notes, strict=True))
    with pytest.raises(InvalidInputError, match=f"not seen by fit; give names such as {names[0]!r}"):
        BiasedALS(0).fit(bundle).recommend(2 if isinstance(names[0], str) else "2")


def test_whole_numbers_in_text_may_end_in_a_point_and_zero(tmp_path: Path) -> None:
    file = written(tmp_path, "r.csv", "user,item,rating\n7.0,1.0,1\n8.0,1,2\n")
    bundle = load(file, kind=Ratings)
    assert bundle.column_names is not None
    assert bundle.row_names is not None
    assert (bundle.column_names.tolist(), bundle.row_names.tolist()) == ([7, 8], [1])
    user, item, merged = bundle.notes
    assert user == "Names in user are written with .0, and were taken for whole numbers."
    assert item == user.replace("user", "item")
    assert merged.startswith("1 name in item became one with another")


def test_commas_are_decimals_where_they_are_numbers_and_no_thousands(tmp_path: Path) -> None:
    put(tmp_path, a__csv="user;item;rating\n1,2;a;3,5\n1,3;a;2\n", b__tsv="user\titem\trating\n1\t2\t1,234\n")
    bundle = load(tmp_path / "a.csv", kind=Ratings)
    assert bundle.column_names is not None
    assert bundle.column_names.tolist() == ["1,2", "1,3"]
    assert bundle.values.tolist() == [3.5, 2.0]
    assert "The numbers of rating have decimal commas." in bundle.odd()
    with pytest.raises(InvalidInputError, match="1,234"):
        load(tmp_path / "b.tsv", kind=Ratings)
    # Beside decimal commas points may be those of thousands, unless one number shows that they are not.
    text = "x;z;label\n1.100;3,5;a\n2.250;1,5;b\n"
    put(tmp_path, c__csv=text, d__csv=text + "0.25;1,5;b\n" * 4)
    with pytest.raises(InvalidInputError, match=r"column x .* holds 1\.100, which beside decimal commas"):
        load(tmp_path / "c.csv", kind=ClassBundle)
    assert load(tmp_path / "d.csv", kind=ClassBundle).X[:3, 0].tolist() == [1.1, 2.25, 0.25]


@each_row(
    "time",
    [
        np.array([2**60 + 2, 2**60 + 1]),
        np.array([2, 1], dtype="datetime64[ns]"),
        ["2024-01-01T00:00:00.000000002", "2024-01-01T00:00:00.000000001"],
        [12.5, 12.25],
    ],
)
def test_the_newest_rating_is_the_newest_to_the_last_digit(time: Any) -> None:
    bundle = load({"user": [1, 1], "item": [1, 1], "rating": [1, 2], "time": time}, kind=Ratings)
    assert bundle.values.tolist() == [1.0]


def test_numbers_of_rows_and_measurements_are_no_features_and_no_classes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": ["a", "b"] * 6, "x": np.arange(12.0) ** 2}).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "a.csv")
    assert load(tmp_path / "a.csv", kind=ClassBundle).feature_names == ("x",)
    put(tmp_path, b__csv="label,x\n0.5,1\n1.5,2\n0.5,3\n1.5,4\n")
    with pytest.raises(InvalidInputError, match="no classes"):
        load(tmp_path / "b.csv", kind=ClassBundle)
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet files.")
    frame.to_parquet(tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet", kind=ClassBundle).feature_names == ("x",)


def test_labels_of_svmlight_are_told_apart_and_counted_once(tmp_path: Path) -> None:
    rows = "12345678,12345679 1:2\n12345678,12345678 1:1\n12345679 2:1\n12345678 1:3\n"
    bundle: Any = load(put(tmp_path, a__svmlight=rows) / "a.svmlight")
    assert bundle.label_names == ("12345678", "12345679")
    assert bundle.Y.toarray().tolist() == [[1, 1], [1, 0], [0, 1], [1, 0]]


@each_row(
    "text",
    [
        "pattern general\n9 9 3\n1 1 4\n2 1 3\n",
        "real general\n9 9 2\n1 1\n4 2\n3 6\n",
        "real symmetric\n3 2 1\n1 1 1\n",
    ],
)
def test_entries_of_another_width_are_refused(tmp_path_factory: Any, text: str) -> None:
    folder = put(tmp_path_factory.mktemp("m"), a__mtx=f"%%MatrixMarket matrix coordinate {text}")
    with pytest.raises(StorageError, match=r"must be . finite numbers|as many rows as columns"):
        load(folder / "a.mtx")
