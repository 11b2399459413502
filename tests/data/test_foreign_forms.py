"""Forms of files that others write: each is read, with a note on what was taken for what, or named in a sentence."""

from __future__ import annotations

import gzip
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

from problems.data import ClassBundle, MultilabelBundle, Ratings, TagBundle, load, read_texts
from problems.data import files as readers
from problems.data.describe import describe
from rmopt.cli import main
from rmopt.core import InvalidInputError, StorageError


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


GENRES = ["Action|Comedy", "Drama", "Comedy", "Action|Drama", "Comedy|Drama", "Action"]


@pytest.mark.parametrize(
    ("written", "split"),
    [(str, "bar"), (lambda genre: genre.replace("|", ";"), ";"),
     (lambda genre: f'"{genre.replace("|", ", ")}"', "comma"), (lambda genre: f'"{genre.split("|")}"', "comma")],
)  # fmt: skip
def test_lists_in_a_cell_are_told_and_split(written: Any, split: str, tmp_path: Path) -> None:
    rows = "".join(f"{1990 + n % 7},{n * 3 % 11},{written(GENRES[n % 6])}\n" for n in range(30))
    path = put(tmp_path, "movies.csv", f"year,votes,genres\n{rows}")
    [note] = [note for note in load(path, label="genres").notes if "lists" in note]
    assert "15 of 30 labels" in note
    assert "labels=genres,split=" in note
    found = load(f"{path}::labels=genres,split={split}", kind=MultilabelBundle)
    assert found.label_names == ("Action", "Comedy", "Drama")
    assert found.Y[:6].toarray().tolist() == [
        [1, 1, 0],
        [0, 0, 1],
        [0, 1, 0],
        [1, 0, 1],
        [0, 1, 1],
        [1, 0, 0],
    ]
    plain = put(tmp_path, "plain.csv", "x,label\n1,a|b\n2,c\n3,a|b\n4,c\n")
    assert load(plain, kind=ClassBundle).notes == ()


def test_names_that_look_like_gaps_are_names(tmp_path: Path) -> None:
    kinds = ["none", "mild", "severe"]
    frame = pd.DataFrame({"size": range(12), "label": [kinds[n % 3] for n in range(12)]})
    frame.to_csv(tmp_path / "c.csv", index=False)
    np.savez(tmp_path / "c.npz", X=frame[["size"]].to_numpy(float), y=frame["label"].to_numpy(str))
    for data in (
        frame,
        {name: frame[name].tolist() for name in frame},
        tmp_path / "c.npz",
        tmp_path / "c.csv",
    ):
        assert load(data, kind=ClassBundle).class_names == ("mild", "none", "severe")
    assert any("none in label is a name" in note for note in load(tmp_path / "c.csv").notes)
    for place in ("NA", "EU"):
        for number in range(4):
            put(tmp_path, f"texts/{place}/{number}.txt", "cat dog " * (number + 1))
    assert load(tmp_path / "texts", kind=ClassBundle).class_names == ("EU", "NA")
    for name in ("Nan", "Na", "Null", "None", "?"):
        columns = {"user": [name, "Ann", name], "item": ["x", "x", "y"], "rating": [1, 2, 3]}
        assert name in load(columns, kind=Ratings).column_names.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [("René", unicodedata.normalize("NFD", "René"), "René"), ("bob", "bob\u200b", "bob"), ("12a", "１２ａ", "12a"),
     ("ann", "ann ", "ann")],
)  # fmt: skip
def test_names_that_look_alike_are_one_and_a_note_says_so(
    first: str, second: str, name: str, tmp_path: Path
) -> None:
    path = put(tmp_path, "r.csv", f"user,item,rating\n{first},x,3\n{second},y,4\nzed,x,1\nzed,y,2\n")
    found = load(path, kind=Ratings)
    assert found.column_names is not None
    assert sorted(found.column_names.tolist()) == sorted([name, "zed"])
    assert "1 name in user became one with another" in found.notes[0]


def test_the_line_in_which_excel_says_the_separator(tmp_path: Path) -> None:
    path = put(tmp_path, "r.csv", "sep=;\nuser;item;rating\na;x;3,5\na;y;4\nb;x;1\n")
    assert load(path, kind=Ratings).values.tolist() == [3.5, 4.0, 1.0]


@pytest.mark.parametrize("name", ["train.svm", "train.txt", "train.txt.gz"])
def test_files_of_extreme_classification(name: str, tmp_path: Path) -> None:
    text = b"4 6 3\n0,2 0:0.5 3:1.0\n 1:0.7 5:0.2\n1 2:1\n0 4:2\n"
    found = load(
        put(tmp_path, name, gzip.compress(text) if name.endswith("gz") else text), kind=MultilabelBundle
    )
    assert (found.X.shape, found.Y.toarray().tolist()) == (
        (4, 6),
        [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0, 0]],
    )


def test_files_of_movielens_and_compressed_ones(tmp_path: Path) -> None:
    rows = [(1, 7, 5, 100), (1, 8, 3, 101), (2, 7, 4, 102)]
    for name, sign in (("u.data", "\t"), ("ratings.dat", "::"), ("ratings.dat.gz", "::")):
        text = "".join(sign.join(map(str, row)) + "\n" for row in rows).encode()
        found = load(put(tmp_path, name, gzip.compress(text) if name.endswith("gz") else text), kind=Ratings)
        assert found.table().toarray().tolist() == [[5, 4], [3, 0]]
        assert found.times is not None
    assert load(put(tmp_path, "tags.dat", "1::2::so, so::9\n3::2::fun::9\n"), kind=TagBundle).tag_names == (
        "fun",
        "so, so",
    )
    text = "user,item,rating\na,x,1\nb,y,2\n"
    for name in ("r.txt", "r.csv.gz", "r.dat"):
        put(tmp_path, name, gzip.compress(text.encode()) if name.endswith("gz") else text)
        assert load(tmp_path / name, kind=Ratings).shape == (2, 2)
    with pytest.raises(InvalidInputError, match=r"suffix \.xlsx.*save it as"):
        load(put(tmp_path, "r.xlsx", b"PK"))


def test_the_orientation_of_a_matrix_is_told_and_can_be_turned(tmp_path: Path) -> None:
    known = sp.coo_array(np.where(np.random.default_rng(0).random((9, 5)) < 0.6, 3, 0) + np.eye(9, 5))
    mmwrite(tmp_path / "r.mtx", known)
    sp.save_npz(tmp_path / "r.npz", known.tocsr())
    for name in ("r.mtx", "r.npz"):
        found = load(tmp_path / name, kind=Ratings)
        assert found.shape == (9, 5)
        assert "rows are taken for items" in found.notes[0]
        turned = load(f"{tmp_path / name}::user=item,item=user", kind=Ratings)
        assert np.array_equal(turned.table().toarray(), known.toarray().T)


def test_repeated_plays_are_summed_averaged_or_the_last_is_taken(tmp_path: Path) -> None:
    path = put(tmp_path, "plays.csv", "user,item,rating\na,x,3\nb,x,1\na,x,5\na,y,2\n")
    with pytest.raises(InvalidInputError, match=r"row 1; .*duplicates=sum, mean or last"):
        load(path, kind=Ratings)
    for how, value in (("sum", 8.0), ("mean", 4.0), ("last", 5.0)):
        found = load(f"{path}::duplicates={how}", kind=Ratings)
        assert found.table().toarray().tolist() == [[value, 1.0], [2.0, 0.0]]
        assert "came again" in found.notes[0]
    with pytest.raises(InvalidInputError, match="duplicates=most is nothing"):
        load(f"{path}::duplicates=most", kind=Ratings)


def test_zeros_far_from_a_scale_are_told_and_left_out_where_they_are_no_ratings(tmp_path: Path) -> None:
    scores = [0, 7, 0, 10, 0, 8]
    path = put(
        tmp_path, "r.csv", "user,item,rating\n" + "".join(f"{n % 3},{n},{s}\n" for n, s in enumerate(scores))
    )
    assert "3 of 6 ratings are 0, and the others are 7 to 10; say zeros=missing" in load(path).odd()[0]
    assert load(path, zeros="missing", kind=Ratings).values.tolist() == [7.0, 10.0, 8.0]
    zeros = put(
        tmp_path, "z.csv", "user,item,rating\n" + "".join(f"{n % 3},{n},{n % 6}\n" for n in range(12))
    )
    assert not any("zeros" in note for note in load(zeros).notes)


def test_a_header_with_a_comma_can_be_named(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 7},{'ab'[n % 2]},{int(n > 5)}\n" for n in range(8))
    path = put(tmp_path, "c.csv", f'"x, in m",y,"kind, of it","held, out"\n{rows}')
    found = load(f"{path}::label=kind, of it,test=held, out", kind=ClassBundle)
    assert (found.feature_names, found.test.sum()) == (("x, in m", "y"), 2)


def test_dates_with_points_are_dates() -> None:
    dates = ["31.12.2024", "01.02.2025", "02.01.2025"]
    for times in (dates, [f"{date} 10:00" for date in dates]):
        found = load({"user": [1, 1, 1], "item": [1, 1, 2], "rating": [1, 2, 3], "time": times}, kind=Ratings)
        assert found.values.tolist() == [2.0, 3.0]


def test_a_line_that_no_memory_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST", 1000)
    path = put(tmp_path, "a.svmlight.gz", gzip.compress(b"1 " + b"1:1 " * 10**6))
    with pytest.raises(InvalidInputError, match="a line of more than 1,000 bytes"):
        load(path)


def test_words_of_queries_are_told(tmp_path: Path) -> None:
    found = load(put(tmp_path, "a.svm", "1 qid:3 1:2 2:1\n0 qid:4 1:1 2:3\n" * 3), kind=ClassBundle)
    assert "qid" in found.notes[0]
    assert found.X.toarray().tolist() == [[2, 1], [1, 3]] * 3


def test_links_out_of_a_folder_of_texts_are_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path, "secret/other/key.txt", "password")
    put(tmp_path, "texts/a/1.txt", "apple"), put(tmp_path, "texts/b/1.txt", "banana")
    (tmp_path / "texts" / "a" / "link.txt").symlink_to(secret)
    (tmp_path / "texts" / "c").symlink_to(secret.parent)
    (tmp_path / "texts" / "b" / "2.txt").symlink_to(tmp_path / "texts" / "a" / "1.txt")
    found = load(tmp_path / "texts", kind=ClassBundle)
    assert found.sample_names == ("a/1.txt", "b/1.txt", "b/2.txt")
    assert "Not read: a/link.txt, c/key.txt" in found.notes[0]


def test_no_error_prints_a_text_of_the_user(tmp_path: Path) -> None:
    text = "4 patients of Dr Grey"
    rows = "".join(f'"{text}, number {n}",{n},"{text} {n}"\n' for n in range(30))
    path = put(tmp_path, "t.csv", f"words,size,label\n{rows}")
    for said in ({}, {"label": "words"}, {"label": "size+words"}, {"test": "words"}, {"user": "wrods"},
                 {"user": "size", "item": "size"}, {"user": "size", "item": "label", "rating": "words"}):  # fmt: skip
        with pytest.raises((InvalidInputError, StorageError)) as refused:
            load(path, **said)
        assert "Grey" not in str(refused.value)


def test_texts_with_quotes_and_commas(tmp_path: Path) -> None:
    texts = ['He said "no, thanks", and left', "plain words", "a, b; c\nand a second line", "last one"]
    frame = pd.DataFrame({"text": texts * 2, "label": list("abab") * 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    found, expected = load(tmp_path / "t.csv", kind=ClassBundle), load(frame, kind=ClassBundle)
    assert found.feature_names == expected.feature_names
    assert np.array_equal(found.X.toarray(), expected.X.toarray())


def test_texts_of_a_table_are_those_of_a_folder(tmp_path: Path) -> None:
    texts, kinds = ['one, "two"', "three\nfour", "NA"], ["a", "b", "a"]
    pd.DataFrame({"body": texts, "kind": kinds, "n": range(3)}).to_csv(tmp_path / "t.csv", index=False)
    assert read_texts(f"{tmp_path / 't.csv'}::label=kind") == (texts, kinds, ["1", "2", "3"])
    with pytest.raises(InvalidInputError, match="a column of texts and one of labels") as refused:
        read_texts(tmp_path / "t.csv")
    assert "two" not in str(refused.value)


def test_fits_are_offered_first_and_nothing_that_no_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "user,item,rating\na,x,3\nb,x,1\nb,y,2\n"
    assert list(describe(str(put(tmp_path, "r.csv", rows)))["experiments"]) == [
        "fit completion",
        "completion",
    ]
    X, y = np.random.default_rng(0).standard_normal((12, 150)), np.arange(12) % 2
    np.savez(tmp_path / "wide.npz", X=X, y=y)
    found = describe(str(tmp_path / "wide.npz"))["experiments"]
    assert next(iter(found)) == "fit similarity"
    assert found["metric"].endswith("--features 0")
    monkeypatch.setattr("problems.data.describe.memory", lambda: 10**5)
    assert "metric" not in describe(str(tmp_path / "wide.npz"))["experiments"]


def test_plays_are_summed_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"u{n % 9},i{n * n % 7},{1 + n % 4}\n" for n in range(90))
    path = put(tmp_path, "plays.csv", f"user,item,rating\n{rows}")
    words = [
        "fit",
        "completion",
        str(path),
        "--model",
        "implicit",
        "--rank",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    for more, status in (([], 2), (["--duplicates", "sum"], 0)):
        with pytest.raises(SystemExit) as ended:
            main([*words, *more])
        assert ended.value.code == status
    assert "their sum was taken" in capsys.readouterr().out


def test_ratings_that_are_zeros_alone_are_not_left_without_any(tmp_path: Path) -> None:
    path = put(tmp_path, "r.csv", "user,item,rating\na,x,0\nb,y,0\n")
    with pytest.raises(InvalidInputError, match="zeros alone"):
        load(path, zeros="missing")


@pytest.mark.parametrize(
    "ids", [(2**63 - 1, 2**63, 1), (2**63 + 1, 2**63, -(2**63)), (-(2**63) - 1, -(2**63), 5)]
)
def test_whole_numbers_beyond_64_bits_stay_apart(ids: tuple[int, ...], tmp_path: Path) -> None:
    names = sorted(map(str, ids))
    path = put(
        tmp_path, "r.csv", "user,item,rating\n" + "".join(f"{one},{n},{n}\n" for n, one in enumerate(ids))
    )
    found = load(path, kind=Ratings)
    assert (list(found.column_names), found.shape) == (names, (3, 3))  # type: ignore[arg-type]
    viewed = load(put(tmp_path, "v.csv", "user,item\n" + "".join(f"{one},7\n" for one in ids)), kind=Ratings)
    assert list(viewed.column_names) == names  # type: ignore[arg-type]
    labels = put(tmp_path, "c.csv", "label,x\n" + "".join(f"{one},{n}\n" for n, one in enumerate(ids * 3)))
    assert load(labels, kind=ClassBundle).class_names == tuple(names)


@pytest.mark.parametrize(
    ("text", "width", "line", "saw"),
    [("label,text\na,hello\nb\na,more\nb,yes\n", 2, 3, 1), ("user,item,rating,time\n1,2,3,9\n\n2,3,4", 4, 4, 3),
     ("label;x;\"a;b\"\na;1;\"2\n2\"\nb;;\na;1\n", 3, 4, 2), ("a::b::c\n1::2::\n1::2\n", 3, 3, 2)],
)  # fmt: skip
def test_rows_that_are_too_short_are_refused(
    text: str, width: int, line: int, saw: int, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=rf"Expected {width} fields in line {line}, saw {saw}"):
        load(put(tmp_path, "t.csv", text))
    assert len(load(put(tmp_path, "e.csv", "x,label,more\n1,a,\n \n2,b,z\n3,a,\n4,b,\n"), drop="more").y) == 4


def test_dates_with_and_without_a_zone_are_not_compared() -> None:
    data = {"user": [1, 1], "item": [1, 1], "rating": [1, 2]}
    for first, second in (
        ("2024-01-01T00:00:00+02:00", "2023-12-31 23:00:00"),
        ("2024-01-01T00:00Z", "2024-01-01"),
    ):
        with pytest.raises(InvalidInputError, match="all with or all without a zone"):
            load({**data, "time": [first, second]}, kind=Ratings)
    times = ["2024-01-01T00:00:00+02:00", "2023-12-31T23:00:00Z"]
    assert load({**data, "time": times}, kind=Ratings).values.tolist() == [2.0]
    exact = ["9007199254740993", "9007199254740992.0"]
    assert load({**data, "time": exact}, kind=Ratings).values.tolist() == [1.0]


def test_names_that_types_alone_tell_apart_are_one_and_a_note_says_so() -> None:
    columns = {"label": [1, "1", 2, "2", "3"], "x": list(range(5))}
    for data in (columns, pd.DataFrame(columns)):
        assert (
            "2 values in the column 'label' of the frame became one" in load(data, kind=ClassBundle).notes[0]
        )
    gaps = {"user": ["nan", "x", "y"], "item": [1, 2, 3], "rating": [1, 2, 3], "more": ["nan", np.nan, "z"]}
    assert not any("became one" in note for note in load(gaps, kind=Ratings).notes)


def test_a_file_of_extreme_classification_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="2 rows, and its first line says 5"):
        load(put(tmp_path, "a.svm", "5 3 4\n0 1:1\n1,2 1:1\n"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "user::id,item,rating\n1,2,3\n"), ("b.csv", "my::user::id,item,rating\n1,2,3\n"),
     ("c.tsv", "user::id\titem\trating\n1\t2\t3\n"), ("d.csv", "user::id,item,rating\n1::1,2,3\n"),
     ("e.csv", "user,item,rating\n1::2::3::4,2,3\n"), ("f.csv", "user::item::rating\n1::2,::3\n"),
     ("g.csv", "sep=\t\nuser\titem\trating\n1\t2\t3\n")],
)  # fmt: skip
def test_double_colons_in_a_name_and_tabs_that_are_said(name: str, text: str, tmp_path: Path) -> None:
    user = text.split("user")[0].split("\n")[-1] + "user" + "::id" * ("::id" in text)
    found = load(put(tmp_path, name, text), kind=Ratings, user=user)
    assert found.values.tolist() == [3.0]


def test_decimal_commas_with_signs_and_exponents(tmp_path: Path) -> None:
    path = put(tmp_path, "r.csv", "user;item;rating\na;x;+4,5\na;y;-1,5e3\nb;x;2\nb;y;2,5E-1\n")
    assert load(path, kind=Ratings).values.tolist() == [4.5, -1500.0, 2.0, 0.25]
    with pytest.raises(InvalidInputError, match="text"):
        load(put(tmp_path, "t.csv", 'user,item,rating\na,x,"+4,500"\nb,y,"1,250"\n'), kind=Ratings)


def test_two_columns_of_a_frame_with_one_name_are_named() -> None:
    with pytest.raises(InvalidInputError, match="the frame has two columns called 'x'; rename one"):
        load(pd.DataFrame([[1, 2, "a"], [2, 3, "b"]], columns=["x", "x", "label"]))
