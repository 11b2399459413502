"""Files, folders and frames that a user brings: what is read, what is guessed, and what is refused."""

import gzip
import hashlib
import importlib.util
import json
import threading
import unicodedata
import zipfile
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
from problems.data.registry import Source
from problems.data.sets import ml100k
from problems.data.text import informative_unit_rows
from problems.metric.experiment import Metric
from problems.subspace import entries
from rmopt.cli.commands import app
from rmopt.core import InvalidInputError, StorageError

RATINGS = "user,item,rating,time\nann,Alien,5,1\nann,Brazil,2,2\nbob,Alien,3,3\ncy,Casablanca,4,4\n"
WHOLE = [[5.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 4.0]]


def measured(last: str = "label", values: str = "ab") -> str:
    lines = [f"{n},{n * n % 7},{values[n % len(values)]}" for n in range(12)]
    return "\n".join([f"height,width,{last}", *lines]) + "\n"


def put(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return str(path)


def dense(found: Any) -> Any:
    return found.toarray() if sp.issparse(found) else found


class TestRatings:
    @each_row(
        ("name", "content", "said"),
        [
            ("r.csv", RATINGS, {}), ("r.tsv", RATINGS.replace(",", "\t"), {}), ("r.txt", RATINGS, {}),
            ("r.csv", RATINGS.replace(",", ";"), {}), ("r.csv.gz", RATINGS, {}),
            ("r.csv", "\ufeff" + RATINGS, {}), ("r.csv", RATINGS.replace("\n", "\r\n"), {}),
            ("r.csv", RATINGS.replace("\n", "\n\n"), {}),
            ("r.csv", RATINGS.replace("user,item", "User ID,movie_id").replace("rating", "Stars"), {}),
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
        # Nothing is taken by its place.
        with pytest.raises(
            InvalidInputError, match=r"not clear .* who \(text\), item \(text\).*::user=COLUMN"
        ):
            load(path, kind=Ratings)

    def test_matrix_market_and_arrays(self, tmp_path: Path) -> None:
        known = sp.coo_array(([5.0, 2.0, 3.0, 4.0], ([0, 1, 0, 4], [0, 0, 1, 3])), shape=(6, 5))
        mmwrite(tmp_path / "r.mtx", known)
        sp.save_npz(tmp_path / "r.npz", known.tocsr())
        for name in ("r.mtx", "r.npz"):
            found = load(tmp_path / name, kind=Ratings)
            assert (found.table().toarray().tolist(), list(found.row_names)) == (WHOLE, [1, 2, 5])
            assert "rows are taken for items" in found.notes[0]
            turned = load(f"{tmp_path / name}::user=item,item=user", kind=Ratings)
            assert np.array_equal(turned.table().toarray(), np.transpose(WHOLE))
        columns = {"user": [1, 1, 2, 3], "item": [1, 2, 1, 3], "rating": [5, 2, 3, 4]}
        np.savez(tmp_path / "a.npz", **columns)
        for given in (tmp_path / "a.npz", columns, MappingProxyType(columns), pd.DataFrame(columns)):
            assert load(given, kind=Ratings).table().toarray().tolist() == WHOLE

    @each_row(
        "text",
        [
            "real general\n2 2 2\n1 1 5\n3 1 4\n", "real general\n2 2 2\n1 1 5\n", "real general\n2 2 1\n1 1 nan\n",
            "real general\n9 9 2\n1 1\n4 2\n3 6\n", "real symmetric\n3 2 1\n1 1 1\n",
        ],
    )  # fmt: skip
    def test_damaged_matrix_market(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(StorageError, match="damaged"):
            load(put(tmp_path, "r.mtx", f"%%MatrixMarket matrix coordinate {text}"))

    @each_row(
        ("content", "says"),
        [
            ("user,item,rating\n", "no rows"),
            ("1,2,3\n1,3,4\n", "put the names"),
            ("user,item,rating\nann,,4\n", "column item of .* gaps in 1 of 1 rows, the first in row 1"),
            ("user,item,rating\nann,Alien,\nbob,Alien,NA\n", r"gaps, of so many rows: rating \(2\)"),
            ('user,item,rating\na,x,"1,234"\nb,x,"999"\n', "row 1 .1,234"),
            ("user;item;rating\na;x;1.234\nb;x;2,5\n", "row 1 .1.234"),
            ("user,item,rating\nann,Alien,good\n", "column rating of .* holds text"),
            ("user,item,rating\nann,Alien,1_000\n", "column rating of .* holds text"),
            ("user,item,rating\nann,Alien,inf\n", "rating of .* infinite"),
            ("user,user,rating\nann,Alien,4\n", "'user'"),
            ("user,item,rating,seen\nann,Alien,4,1\nann,Alien,5,2\n", "1 rating of an item .* row 1; .*time="),
            ("user,item,rating\nJosé,Alien,4\n".encode("latin-1"), "byte 0xe9.*iconv"),
            ("user,item,stars,score\nann,Alien,4,5\n", "may be the rating: stars, score; give"),
            ("user,item,rating,date\na,x,1,2024-01-01\nb,x,1,31/12/2024\n", "has '31/12/2024' in row 2"),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, tmp_path: Path, content: str | bytes, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(put(tmp_path, "r.csv", content), kind=Ratings)

    @each_row(
        ("said", "says"),
        [
            ({"user": "usr"}, "did you mean 'user'"), ({"colour": "user"}, "colour is not a known option"),
            ({"label": "rating"}, "not clear|holds"), ({"user": "user", "item": "user"}, "several meanings"),

        ],
    )  # fmt: skip
    def test_what_is_said_wrongly(self, tmp_path: Path, said: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidInputError, match=says):
            load(put(tmp_path, "r.csv", RATINGS), kind=Ratings, **said)

    def test_views_are_counted_where_nothing_else_is_told(self, tmp_path: Path) -> None:
        path = put(tmp_path, "v.csv", "user_id,product,when\nann,tea,1\nbob,milk,4\nann,tea,2\nbob,tea,3\n")
        found = load(path, kind=Ratings)
        assert list(found.row_names) == ["milk", "tea"]
        assert found.table().toarray().tolist() == [[0, 1], [2, 1]]
        assert any("how often" in note for note in found.notes)
        put(tmp_path, "v.csv", "user_id,product,liking\nann,tea,1\nbob,milk,4\n")
        with pytest.raises(InvalidInputError, match=r"user and item and rating; or user and item alone"):
            load(path, kind=Ratings)

    def test_commas_are_decimals_where_semicolons_separate(self, tmp_path: Path) -> None:
        text = "user;item;rating\n1,2;a;+3,5\n1,3;a;2\n1,2;b;-1,5e3\n1,3;b;2,5E-1\n"
        bundle = load(put(tmp_path, "a.csv", text), kind=Ratings)
        assert (list(bundle.column_names), bundle.values.tolist()) == (
            ["1,2", "1,3"],
            [3.5, 2.0, -1500.0, 0.25],
        )
        # Beside decimal commas points may be those of thousands.
        text = "x;z;label\n" + 4 * "1.100;3,5;a\n" + 4 * "2.250;1,5;b\n"
        with pytest.raises(InvalidInputError, match=r"column x .* holds text.*1\.100"):
            load(put(tmp_path, "c.csv", text), kind=ClassBundle)
        found = load(put(tmp_path, "d.csv", text.replace(",", ".")), kind=ClassBundle)
        assert found.X[3:5].tolist() == [[1.1, 3.5], [2.25, 1.5]]

    def test_repeated_plays_are_summed_averaged_or_the_last_is_taken(self, tmp_path: Path) -> None:
        path = put(tmp_path, "plays.csv", "user,item,rating\na,x,3\nb,x,1\na,x,5\na,y,2\n")
        with pytest.raises(InvalidInputError, match=r"row 1; .*duplicates=sum, mean or last"):
            load(path, kind=Ratings)
        for how, value in (("sum", 8.0), ("mean", 4.0), ("last", 5.0)):
            found = load(f"{path}::duplicates={how}", kind=Ratings)
            assert found.table().toarray().tolist() == [[value, 1.0], [2.0, 0.0]]
            assert "came again" in found.notes[0]

    def test_zeros_far_from_a_scale_are_told_and_can_be_left_out(self, tmp_path: Path) -> None:
        rows = "".join(f"{n % 3},{n},{score}\n" for n, score in enumerate([0, 7, 0, 10, 0, 8]))
        path = put(tmp_path, "r.csv", f"user,item,rating\n{rows}")
        assert "3 of 6 ratings are 0, and the others 7 to 10; give zeros=missing" in load(path).odd()[0]
        assert load(path, zeros="missing", kind=Ratings).values.tolist() == [7.0, 10.0, 8.0]
        rows = "".join(f"{n % 3},{n},{n % 6}\n" for n in range(12))
        assert not any(
            "zeros" in note for note in load(put(tmp_path, "z.csv", f"user,item,rating\n{rows}")).notes
        )

    def test_files_of_movielens(self, tmp_path: Path) -> None:
        rows = [(1, 7, 5, 100), (1, 8, 3, 101), (2, 7, 4, 102)]
        for name, sign in (("u.data", "\t"), ("ratings.dat", "::"), ("ratings.dat.gz", "::")):
            text = "".join(sign.join(map(str, row)) + "\n" for row in rows)
            found = load(put(tmp_path, name, text), kind=Ratings)
            assert found.table().toarray().tolist() == [[5, 4], [3, 0]]
            assert found.times is not None
        tags = load(put(tmp_path, "tags.dat", "1::2::so, so::9\n3::2::fun::9\n"), kind=TagBundle)
        assert tags.tag_names == ("fun", "so, so")
        with pytest.raises(InvalidInputError, match=r"ends in \.xlsx.*save it as"):
            load(put(tmp_path, "r.xlsx", b"PK"))

    @each_row(
        ("name", "text"),
        [
            ("a.csv", "user::id,item,rating\n1,2,3\n"), ("c.tsv", "user::id\titem\trating\n1\t2\t3\n"),
            ("d.csv", "user::id,item,rating\n1::1,2,3\n"), ("f.csv", "user::item::rating\n1::2,::3\n"),
            ("g.csv", "sep=\t\nuser\titem\trating\n1\t2\t3\n"), ("e.csv", "sep=;\nuser;item;rating\na;x;3,0\n"),
        ],
    )  # fmt: skip
    def test_double_colons_in_a_name_and_signs_that_are_said(
        self, name: str, text: str, tmp_path: Path
    ) -> None:
        found = load(put(tmp_path, name, text), kind=Ratings, user="user" + "::id" * ("::id" in text))
        assert found.values.tolist() == [3.0]

    @each_row("name", ["r.csv", "ratings.dat"])
    def test_rows_that_are_too_short_have_gaps(self, name: str, tmp_path: Path) -> None:
        text = "user,item,rating\n1,2,3\n1,4\n".replace(",", "::" if name == "ratings.dat" else ",")
        with pytest.raises(InvalidInputError, match=r"gaps, of so many rows: rating \(1\)"):
            load(put(tmp_path, name, text))


class TestNames:
    @each_row(
        ("users", "names", "notes"),
        [
            (["2", "10", "2"], ["10", "2"], 0), ([2, 10, 2], [2, 10], 0), ([2.0, 10.0, 2.0], [2, 10], 0),
            (["x", "x ", "y\0"], ["x", "y"], 1), ([2**53, 2**53 + 1, 2**63 - 1], [2**53, 2**53 + 1, 2**63 - 1], 0),
            (np.array([2**63 + 1, 2**63 + 2, 2**63 + 1], dtype=np.uint64), [2**63 + 1, 2**63 + 2], 0),
            ([True, False, True], ["False", "True"], 0), ([0.5, 1.5, 0.5], [0.5, 1.5], 0),
        ],
    )  # fmt: skip
    def test_of_frames_stay_what_they_are(self, users: Any, names: Any, notes: int) -> None:
        bundle = load({"user": users, "item": list("abc"), "rating": [1, 2, 3]}, kind=Ratings)
        assert (list(bundle.column_names), len(bundle.notes)) == (names, notes)

    @each_row(
        ("words", "names"),
        [
            (["7", "8"], [7, 8]),
            (["007", "7"], ["007", "7"]), (["1.0", "1"], ["1", "1.0"]), (["-0", "0"], ["-0", "0"]),
            (["100000000000000000000", "0"], ["0", "100000000000000000000"]),
            (["9223372036854775807", "1"], [1, 2**63 - 1]),
            (["9223372036854775808", "1"], ["1", "9223372036854775808"]),
        ],
    )  # fmt: skip
    def test_of_files_are_numbers_where_they_are_written_so(
        self, tmp_path: Path, words: Any, names: Any
    ) -> None:
        rows = "".join(f"{word},{n}x,1\n" for n, word in enumerate(words))
        bundle = load(put(tmp_path, "r.csv", f"user,item,rating\n{rows}"), kind=Ratings)
        assert list(bundle.column_names) == names

    def test_that_look_like_gaps_are_names(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"size": range(12), "label": ["none", "mild", "severe"] * 4})
        frame.to_csv(tmp_path / "c.csv", index=False)
        np.savez(tmp_path / "c.npz", X=frame[["size"]].to_numpy(float), y=frame["label"].to_numpy(str))
        for data in (frame, tmp_path / "c.npz", tmp_path / "c.csv"):
            assert load(data, kind=ClassBundle).class_names == ("mild", "none", "severe")
        for place in ("NA", "EU"):
            for number in range(4):
                put(tmp_path, f"texts/{place}/{number}.txt", "cat dog " * (number + 1))
        assert load(tmp_path / "texts", kind=ClassBundle).class_names == ("EU", "NA")
        for name in ("Nan", "Na", "Null", "None", "?"):
            columns = {"user": [name, "Ann", name], "item": ["x", "x", "y"], "rating": [1, 2, 3]}
            assert name in load(columns, kind=Ratings).column_names.tolist()  # type: ignore[union-attr]

    @each_row(
        ("first", "second", "name"),
        [("René", unicodedata.normalize("NFD", "René"), "René"), ("bob", "bob\u200b", "bob"),
         ("12a", "１２ａ", "12a"),
         ("ann", "ann ", "ann")],
    )  # fmt: skip
    def test_that_look_alike_are_one_and_a_note_says_so(
        self, first: str, second: str, name: str, tmp_path: Path
    ) -> None:
        path = put(tmp_path, "r.csv", f"user,item,rating\n{first},x,3\n{second},y,4\nzed,x,1\nzed,y,2\n")
        found = load(path, kind=Ratings)
        assert sorted(found.column_names.tolist()) == sorted([name, "zed"])  # type: ignore[union-attr]
        assert "1 name in user became one with another" in found.notes[0]


class TestTimes:
    @each_row(
        "time",
        [
            np.array([2**60 + 2, 2**60 + 1]), np.array([2, 1], dtype="datetime64[ns]"), [12.5, 12.25],
            ["2024-01-01T00:00:00.000000002", "2024-01-01T00:00:00.000000001"], ["01.02.2024", "31.01.2024"],
            ["01.02.2025 10:00", "31.12.2024 11:30"], ["2024-01-01T00:00:00+02:00", "2023-12-31T21:00:00Z"],
            ["1152921504606846978", "1152921504606846977"],
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
        dates = np.array([date for _, date in found], dtype="datetime64[ns]")
        assert (np.diff(dates[np.argsort(ratings.times)]) >= np.timedelta64(0)).all()
        assert load(frame[["user", "item", "rating"]]).times is None

    def test_dates_with_and_without_a_zone_are_not_compared(self) -> None:
        data = {"user": [1, 1], "item": [1, 1], "rating": [1, 2]}
        for first, second in (
            ("2024-01-01T00:00:00+02:00", "2023-12-31 23:00:00"),
            ("2024-01-01T00:00Z", "2024-01-01"),
        ):
            with pytest.raises(InvalidInputError, match="with and without a time zone"):
                load({**data, "time": [first, second]}, kind=Ratings)


GENRES = ["Action|Comedy", "Drama", "Comedy", "Action|Drama", "Comedy|Drama", "Action"]


class TestSamples:
    def test_classes_of_text_equal_those_of_the_array(self, tmp_path: Path) -> None:
        X, y = load_iris(return_X_y=True)
        names = np.array(["setosa", "versicolor", "virginica"])[y]
        lines = [",".join([*map(repr, row.tolist()), name]) for row, name in zip(X, names, strict=True)]
        found = load(put(tmp_path, "iris.csv", "\n".join(["a,b,c,d,species", *lines])), kind=ClassBundle)
        assert np.array_equal(found.X, X)
        assert np.array_equal(found.y, y)
        assert found.feature_names == tuple("abcd")
        assert found.class_names == ("setosa", "versicolor", "virginica")
        assert np.bincount(found.y[found.test]).tolist() == [15, 15, 15]
        for zero_based in (True, False):
            dump_svmlight_file(X, y + 5, str(tmp_path / "iris.svm"), zero_based=zero_based)
            sparse = load(tmp_path / "iris.svm", kind=ClassBundle)
            np.testing.assert_allclose(dense(sparse.X), X)
            assert np.array_equal(sparse.y, y)
        about = {"n_train": 100, "feature_names": list("abcd"), "more": np.ones(3)}
        np.savez(tmp_path / "iris.npz", X=X, y=names, **about)
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
        X, Y = np.arange(1.0, 10.0)[:, None], sp.csr_array(np.array(expected, dtype=float))
        dump_svmlight_file(X, Y, str(tmp_path / "m.libsvm"), multilabel=True)
        found = load(tmp_path / "m.libsvm", kind=MultilabelBundle)
        assert found.Y.toarray().tolist() == expected
        assert "Samples without a label: 3." in found.odd()
        lines = "12345678,12345679 1:2\n12345678,12345678 1:1\n12345679 2:1\n12345678 1:3\n"
        counted = load(put(tmp_path, "a.svm", lines), kind=MultilabelBundle)
        assert counted.label_names == ("12345678", "12345679")
        assert counted.Y.toarray().tolist() == [[1, 1], [1, 0], [0, 1], [1, 0]]

    @each_row(
        ("write", "split"),
        [(str, "|"), (lambda genre: genre.replace("|", ";"), ";"),
         (lambda genre: f'"{genre.replace("|", ", ")}"', ","), (lambda genre: f'"{genre.split("|")}"', ",")],
    )  # fmt: skip
    def test_lists_in_a_cell_are_told_and_split(self, write: Any, split: str, tmp_path: Path) -> None:
        rows = "".join(f"{1990 + n % 7},{n * 3 % 11},{write(GENRES[n % 6])}\n" for n in range(30))
        path = put(tmp_path, "movies.csv", f"year,votes,genres\n{rows}")
        [note] = [note for note in load(path, label="genres").notes if "lists" in note]
        assert "15 of 30 labels" in note
        assert f"label=genres,split={split}" in note
        found = load(f"{path}::label=genres,split={split}", kind=MultilabelBundle)
        assert found.label_names == ("Action", "Comedy", "Drama")
        assert found.Y[:4].toarray().tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 1]]
        plain = put(tmp_path, "plain.csv", "x,label\n1,a|b\n2,c\n3,a|b\n4,c\n")
        assert load(plain, kind=ClassBundle).notes == ()

    @each_row("name", ["train.svm", "train.txt", "train.txt.gz"])
    def test_files_of_extreme_classification(self, name: str, tmp_path: Path) -> None:
        text = "4 6 3\n0,2 0:0.5 3:1.0\n 1:0.7 5:0.2\n1 2:1\n0 4:2\n"
        found = load(put(tmp_path, name, text), kind=MultilabelBundle)
        assert found.X.shape == (4, 6)
        assert found.Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0, 0]]

    def test_tasks_and_tags(self, tmp_path: Path) -> None:
        text = measured(last="task", values="uv").replace("width", "y")
        found = load(put(tmp_path, "t.csv", text), kind=TaskBundle)
        assert found.feature_names == ("height",)
        assert found.y.tolist() == [n * n % 7 for n in range(12)]
        tags = load(put(tmp_path, "g.csv", "userId,movieId,tag\n1,9,fun\n1,9,fun\n2,9,sad\n"), kind=TagBundle)
        assert (tags.tag_names, tags.odd()) == (("fun", "sad"), ["1 tags came twice; one of each was kept."])

    def test_columns_that_say_the_split_and_columns_that_are_left_out(self, tmp_path: Path) -> None:
        lines = [f"{n},name {n},{'ab'[n % 2]},{'test' if n > 6 else 'train'}" for n in range(10)]
        path = put(tmp_path, "c.csv", "\n".join(["size,name,label,split", *lines]))
        with pytest.raises(InvalidInputError, match=r"column name of .* holds text.*drop=COLUMN"):
            load(path)
        found = load(path, kind=ClassBundle, drop="name")
        assert (found.test.tolist(), found.split_said) == ([n > 6 for n in range(10)], True)
        assert found.X.tolist() == [[float(n)] for n in range(10)]
        for kept in (["user", "item"], ["user", "item", "rating"], ["user", "item", "tag"]):
            columns = {name: [1, 2, 3] for name in kept}
            found = load(columns | {"genre": list("xyz")}, drop="genre")
            assert found.fingerprint() == load(columns).fingerprint()

    def test_a_header_with_a_comma_can_be_named(self, tmp_path: Path) -> None:
        rows = "".join(f"{n},{n % 7},{'ab'[n % 2]},{int(n > 5)}\n" for n in range(8))
        path = put(tmp_path, "c.csv", f'"x, in m",y,"kind, of it","held, out"\n{rows}')
        found = load(f"{path}::label=kind, of it,test=held, out", kind=ClassBundle)
        assert (found.feature_names, found.test.sum()) == (("x, in m", "y"), 2)

    def test_an_index_without_a_name_is_no_feature(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"label": ["a", "b"] * 6, "x": np.arange(12.0) ** 2})
        frame.sample(frac=1, random_state=0).to_csv(tmp_path / "a.csv")
        found = load(tmp_path / "a.csv", kind=ClassBundle)
        assert found.feature_names == ("x",)
        assert "left out" in found.odd()[0]
        path = put(
            tmp_path, "d.csv", "\n".join(["size,,label", *(f"{n % 3},{n},{'ab'[n % 2]}" for n in range(9))])
        )
        assert load(path, kind=ClassBundle).feature_names == ("size", "column 2")

    def test_what_is_odd_or_not_used_is_said(self, tmp_path: Path) -> None:
        rows = "".join(f"3,{n},{'ab'[n % 2]}\n" for n in range(12))
        assert load(put(tmp_path, "c.csv", f"constant,x,label\n{rows}3,1,c\n")).odd() == [
            "Features that are constant: 1.", "Classes of one sample, which no split can hold out: 1.",
        ]  # fmt: skip
        words = ["apple", "pear", None, float("nan"), "pear", "pear"]
        columns = {"text": words, "size": range(6), "topic": list("ababab")}
        found = load(columns, kind=ClassBundle)
        assert found.feature_names == ("apple", "pear")
        assert found.odd()[:4] == [
            "Its classes are the column topic; label=COLUMN takes another.",
            "2 texts repeat an earlier one, 1 of these with another label.", "2 texts hold no words.",
            "Not used: size.",
        ]  # fmt: skip

    @each_row(
        ("content", "kind", "says"),
        [
            (measured(values="a"), Bundle, "all samples have one label"),
            (measured(last="what"), Bundle, "not clear what .* height .0., width .0., what .text.; name"),
            (measured().replace("3,2,b", "3,,b"), Bundle, r"gaps, of so many rows: width \(1\)"),
            (measured().replace("3,2,b", "3,-inf,b"), Bundle, "width of .* infinite"),
            ("label\na\nb\n", Bundle, "no columns of features"), (measured(), Ratings, "not clear|holds text"),
            (measured(), MultilabelBundle, "samples of classes, and samples with several labels are needed"),
            ("x,y\n" + "".join(f"{n},{n / 7}\n" for n in range(30)), Bundle, "30 different values in 30.*no classes"),
            ("label,x\n0.5,1\n1.5,2\n0.5,3\n1.5,4\n", ClassBundle, "no classes"),
            ("a,label_p,label_q\n1,0,1\n2,2,0\n", Bundle, "label_p of .* by 1 and 0, not by '2'"),
            ("test,x,label\n3,1,a\n1,2,b\n", Bundle, "held out by 1 and 0"),
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
            ("1 1:3\n1 2:1 1:2\n", "line 2 of .*rise"), ("1,2.5 1:3\n", "no whole number"),
        ],
    )  # fmt: skip
    def test_lines_of_svmlight_that_are_no_rows(self, tmp_path: Path, content: str, says: str) -> None:
        with pytest.raises(InvalidInputError, match=says) as refused:
            load(put(tmp_path, "c.svm", content))
        assert "what" not in str(refused.value)

    def test_words_of_queries(self, tmp_path: Path) -> None:
        found = load(put(tmp_path, "a.svm", "1 qid:3 1:2 2:1\n0 qid:4 1:1 2:3\n" * 3), kind=ClassBundle)
        assert "qid" in found.notes[0]
        assert found.X.toarray().tolist() == [[2, 1], [1, 3]] * 3

    def test_unknown_files_and_names(self, tmp_path: Path) -> None:
        for given, said, says in (
            ("absent.csv", {}, "no data set 'absent.csv', nor a file or folder"), (3, {}, "got int"),
            (put(tmp_path, "a.json", "{}"), {}, r"ends in \.json"),
            ({"a": [1]}, {"header": "no"}, "header is not a known option"),
            ("digits", {"label": "x"}, "'digits' has no columns to name; leave out"),
            ("digits::label=x", {}, "there is no data set 'digits::label=x'"),
        ):  # fmt: skip
            with pytest.raises(InvalidInputError, match=says):
                load(given, **said)
        for name, content in (
            ("c.mtx", b"%%MatrixMarket nonsense\n"), ("c.npz", b"PK\x03\x04"),
            ("d.csv", b"user,item,rating\nann,Alien,4,5\n"), ("e.csv", b'user,item,rating\n1,2,"3\n1,3,4\n'),
        ):  # fmt: skip
            with pytest.raises(StorageError, match="damaged"):
                load(put(tmp_path, name, content))

    def test_no_error_prints_a_text_of_the_user(self, tmp_path: Path) -> None:
        text = "4 patients of Dr Grey"
        rows = "".join(f'"{text}, number {n}",{n},"{text} {n}"\n' for n in range(30))
        path = put(tmp_path, "t.csv", f"words,size,label\n{rows}")
        for said in ({}, {"label": "words"}, {"label": "size+words"}, {"test": "words"}, {"user": "wrods"},
                     {"user": "size", "item": "label", "rating": "words"}):  # fmt: skip
            with pytest.raises((InvalidInputError, StorageError)) as refused:
                load(path, **said)
            assert "Grey" not in str(refused.value)


class TestFrames:
    def test_pandas_polars_and_parquet(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"size": range(8), "kind": pd.Categorical(list("aabbaabb"))})
        found = load(frame, kind=ClassBundle, label="kind")
        assert (found.feature_names, found.class_names) == (("size",), ("a", "b"))
        with pytest.raises(InvalidInputError, match=r"holds text.*2024-01-0"):
            load(frame.assign(when=pd.to_datetime("2024-01-02")), label="kind")
        with pytest.raises(InvalidInputError, match=r"The index is left out; reset_index\(\)"):
            load(frame.set_index("kind"))
        if importlib.util.find_spec("pyarrow") is None:
            (tmp_path / "f.parquet").touch()
            with pytest.raises(InvalidInputError, match="pip install pyarrow"):
                load(str(tmp_path / "f.parquet"))
        pytest.importorskip("pyarrow")
        frame.to_parquet(tmp_path / "f.parquet")
        assert load(tmp_path / "f.parquet", label="kind").X.ravel().tolist() == list(range(8))
        polars = pytest.importorskip("polars")
        found = load(polars.DataFrame({"size": range(8), "label": list("aabbaabb")}), kind=ClassBundle)
        assert (found.X.ravel().tolist(), found.class_names) == (list(range(8)), ("a", "b"))


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
    def test_a_folder_by_classes(self, letters: Path, tmp_path: Path) -> None:
        secret = put(tmp_path, "secret/other/key.txt", "password")
        (letters / "fruit" / "link.txt").symlink_to(secret)
        put(letters, "fruit/.hidden", b"\xff")
        put(letters, "fruit/more/1.txt", "never")
        texts, classes, names = read_texts(letters)
        assert (len(texts), names[0]) == (20, "fruit/0.txt")
        found = load(letters, kind=ClassBundle)
        assert found.class_names == ("fruit", "space")
        assert found.notes == ("Not read: fruit/link.txt, fruit/more/.",)
        assert [found.class_names[n] for n in found.y] == classes
        apples = dense(found.X)[:, found.feature_names.index("apple")]  # type: ignore[union-attr]
        assert apples.tolist() == [text.split().count("apple") for text in texts]
        column = load({"text": texts, "label": classes}, kind=ClassBundle)
        assert np.array_equal(dense(column.X), dense(found.X))

    def test_other_encodings_pictures_and_empty_folders(self, letters: Path, tmp_path: Path) -> None:
        put(letters, "fruit/x.txt", "açaí".encode("latin-1"))
        with pytest.raises(InvalidInputError, match=r"x\.txt is not UTF-8 text .*iconv.*a picture"):
            load(letters)
        with pytest.raises(InvalidInputError, match="is empty"):
            load(put(tmp_path, "none.csv", ""))
        (tmp_path / "bare").mkdir()
        with pytest.raises(InvalidInputError, match="no subfolders with files"):
            load(tmp_path / "bare")
        with pytest.raises(ValueError, match="empty vocabulary"):
            load({"text": ["?", "!"], "label": ["a", "b"]})

    def test_of_a_table_are_those_of_a_folder(self, tmp_path: Path) -> None:
        texts, kinds = ['He said "no, thanks", and left', "three\nfour; five", "NA"], ["a", "b", "a"]
        columns = {"words": texts, "kind": kinds, "ID": range(3), "note": ["x", "y", "x"]}
        pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
        said, rows = list[str](), [f"t.csv, row {n}" for n in (1, 2, 3)]
        for more, names in ("", ["0", "1", "2"]), (",drop=ID", rows), (",name=note", ["x", "y", "x"]):
            found = read_texts(f"{tmp_path / 't.csv'}::text=words,label=kind{more}", said.append)
            assert found == (texts, kinds, names)
        assert said[:2] == [
            "t.csv: Its texts are called by ID; name=COLUMN takes another.",
            "t.csv: Not used: note.",
        ]
        with pytest.raises(InvalidInputError, match="a column of texts and one of labels") as refused:
            read_texts(tmp_path / "t.csv")
        assert "He said" not in str(refused.value)


class TestCommand:
    def says(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["data", *words])
        return done.exit_code, done.output

    def test_a_file(self, tmp_path: Path) -> None:
        status, said = self.says(put(tmp_path, "r.csv", RATINGS))
        assert status == 0
        for line in ("ratings of items by users", "ratings          4", "rmopt run completion --data "):
            assert line in said
        assert said.index("rmopt fit completion") < said.index("rmopt run completion")
        assert "rmopt run similarity" not in said
        status, said = self.says(put(tmp_path, "v.csv", "user,item\n1,7\n1,8\n2,7\n"))
        assert "--model implicit" in said
        assert "rmopt run" not in said
        found = json.loads(self.says(str(tmp_path / "r.csv"), "--json")[1])
        assert found["summary"]["rated share"] == round(4 / 9, 6)
        assert list(found["experiments"]) == ["best", "fit completion", "completion"]
        assert [column["name"] for column in found["columns"]] == ["user", "item", "rating", "time"]

    def test_a_file_that_cannot_be_used_is_shown_all_the_same(self, tmp_path: Path) -> None:
        status, said = self.says(put(tmp_path, "c.csv", "size,name,label\n1,x,a\n,y,b\n"))
        assert status == 2
        assert "It cannot be used: the column name of" in said
        sizes = [line.split() for line in said.splitlines() if line.startswith("size")]
        assert sizes == [["size", "1", "to", "1", "1", "1", "1"]]
        names = describe(put(tmp_path, "d.csv", "size,label\nna,none\n2,none\n3,b\n4,b\n"))["columns"]
        assert [(column["different"], column["missing"]) for column in names] == [(3, 1), (2, 0)]
        status, said = self.says("digit")
        assert (status, "Did you mean 'digits'?" in said) == (2, True)

    def test_best_and_fits_are_offered_first(self, tmp_path: Path) -> None:
        X, y = np.random.default_rng(0).standard_normal((12, 2001)), np.arange(12) % 2
        np.savez(tmp_path / "wide.npz", X=X[:, :150], y=y)
        found = describe(str(tmp_path / "wide.npz"))["experiments"]
        assert list(found)[:2] == ["best", "fit similarity"]
        assert found["metric"].endswith("--features 0")
        # A matrix of all pairs of features would be large.
        np.savez(tmp_path / "wider.npz", X=X, y=y)
        assert "metric" not in describe(str(tmp_path / "wider.npz"))["experiments"]

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

    @pytest.fixture
    def checksums(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr("problems.data.registry.CHECKSUMS", tmp_path / "checksums.txt")
        return tmp_path / "checksums.txt"

    def test_archives_are_fetched_compared_and_unpacked(
        self, tmp_path: Path, server: str, checksums: Path
    ) -> None:
        with zipfile.ZipFile(tmp_path / "public" / "set.zip", "w") as archive:
            archive.writestr("set/data.txt", "1\n2\n")
            archive.writestr("set/other.txt", "no")
        digest = hashlib.sha256((tmp_path / "public" / "set.zip").read_bytes()).hexdigest()

        def read(path: Path) -> Any:
            values = np.loadtxt(path)
            return ClassBundle("set", path.name, values[:, None], np.array([0, 1]), np.array([True, False]))

        address = f"{server}/set.zip"
        checksums.write_text(f"#\nset.zip sha256:{digest}\n")
        load_it = Source(address, ("set.npz", "set/data.txt"), [address])(read)
        home = tmp_path / "home"
        home.mkdir()
        assert load_it(home).X.ravel().tolist() == [1.0, 2.0]
        assert not (home / "set" / "other.txt").exists()
        checksums.write_text(f"#\nset.zip sha256:{'0' * 64}\n")
        (tmp_path / "other").mkdir()
        with pytest.raises(
            StorageError, match=r"could not be fetched .*hash of downloaded file.*--data-home"
        ):
            load_it(tmp_path / "other")
        (tmp_path / "public" / "set.zip").unlink()
        assert load_it(home).source == "data.txt"

    def test_without_network_it_is_said_what_to_bring(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_network(*_: object) -> None:
            raise OSError("no route")

        monkeypatch.setattr("pooch.retrieve", no_network)
        with pytest.raises(StorageError, match=r"no route.*folder with ml100k\.npz or ml-100k/u\.data"):
            ml100k(tmp_path)


def test_measurements_below_zero_are_no_counts() -> None:
    X = np.random.default_rng(0).standard_normal((20, 3))
    table = load({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": ["x", "y"] * 10}, kind=ClassBundle)
    np.testing.assert_allclose(informative_unit_rows(table).X, X / np.linalg.norm(X, axis=1, keepdims=True))
    with pytest.raises(InvalidInputError, match=r"negative features.*drop=FIRST\+SECOND"):
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
    assert "its own split" in " ".join(said)
    assert "--seeds 0 takes its own" in " ".join(said)
    with pytest.raises(InvalidInputError, match=r"--seeds 0: iris.csv has no held-out rows"):
        Metric(data=path.replace("test=", "drop="), seeds=0, methods="euclidean")(loud)
