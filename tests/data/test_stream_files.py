"""The readers of streams: formats, pieces, places, and files that are refused."""

from __future__ import annotations

import gzip
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer
from stream_parts import FORMATS, formatted, same, write_folder
from tabled import each_row

from problems.data import ClassBundle, kernels, load, stream
from problems.data.pieces import Format, parsed_lines
from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from rmopt import InvalidInputError, StorageError


@pytest.mark.parametrize("label", ["nan", "-inf", "1e400", "1_0", "9007199254740993"])
def test_labels_of_svmlight_are_numbers_that_can_be_told_apart(label: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.svmlight"
    file.write_text(f"# two rows\n9007199254740994 0:1\n{label} 0:1\n")
    with pytest.raises(InvalidInputError, match=f"line 3 of .* has no number for a label, or .*: '{label}'"):
        list(stream(file, n_features=2))
    file.write_text("9007199254740994 0:1\n-3 0:9007199254740993\n")
    [(_, labels)] = stream(file, n_features=2)
    assert labels.tolist() == [9007199254740994, -3]


@each_row(
    "arrays, flaw",
    [
        ({"y": np.zeros((4, 1))}, r"y of .*npz has shape \(4, 1\), and must have 1 side"),
        ({"y": np.array([*"abab"], dtype=object)}, r"y of .*npz holds object; write .*astype\(str\)"),
        ({"y": np.zeros(3)}, "X of .*npz has 4 rows, and the labels 3"),
        ({}, ".*npz has no y; write it"),
    ],
)
def test_a_sound_file_of_another_form_is_not_called_damaged(arrays: Any, flaw: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.eye(4), **arrays)
    with pytest.raises(InvalidInputError, match=f"^{flaw}"):
        list(stream(tmp_path / "rows.npz"))


def test_a_stream_of_csv_has_the_features_that_were_said(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    assert next(iter(stream(tmp_path, n_features=1)))[0].shape == (2, 1)
    with pytest.raises(InvalidInputError, match="has 1 features, and n_features = 7"):
        list(stream(tmp_path, n_features=7))
    with pytest.raises(InvalidInputError, match=r"\(--one-based\) is for svmlight files, and .* has none"):
        stream(tmp_path, zero_based=False)


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


@each_row(
    ("files", "why"),
    [
        (
            {"a__csv": "label,age,pay\na,30,5\n", "b__csv": "label,pay,age\na,5,30\n"},
            "names its columns otherwise",
        ),
        ({"a__csv": "label,x\n1,1\n", "b__csv": "label,x\nc,1\n"}, "labels that are text"),
        ({"a__csv": ",x,label\n0,5,a\n1,6,b\n"}, "a column without a name"),
        ({"a__csv": "x,x,label\n0,5,a\n"}, "two columns called 'x'"),
        ({"a__csv": "x,test,label\n0,1,a\n"}, "may say what is held out"),
        ({"a__csv": "label\na\n"}, "no columns of features"),
        ({"a__csv": "label;x\na;1\n"}, "separated by commas"),
        ({"a__csv": "label,x\na,1\nnan,2\n"}, "line 3 .* has no label"),
        ({"a__csv": "label,x\na,1\n\nb,inf\n"}, "line 4 .* holds NaN or infinity"),
        ({"a__csv": "label,x\na,1_000\n"}, "a number such as 1_000"),
        ({"a__csv": 'label,x\n"a,1\n'}, "line 2 .* not text in columns"),
    ],
)
def test_a_stream_refuses_tables_that_would_be_others(
    tmp_path_factory: Any, files: dict[str, str], why: str
) -> None:
    folder = written(tmp_path_factory.mktemp("s"), **files)
    with pytest.raises(InvalidInputError, match=why):
        list(stream(folder))


def labels_of(folder: Path, **how: Any) -> list[Any]:
    return [one for _, labels in stream(folder, **how) for one in labels.tolist()]


def test_labels_of_a_stream_stay_as_they_are_written(tmp_path: Path) -> None:
    words = ["007", "7", "9007199254740993", "9007199254740992", 'say "a"', "a,b"]
    lines = [f'"{word.replace(chr(34), 2 * chr(34))}",{number}' for number, word in enumerate(2 * words)]
    folder = written(tmp_path, a__csv="\ufefflabel,x\n" + "\n".join(lines))
    assert labels_of(folder) == 2 * words
    table = load(folder / "a.csv", kind=ClassBundle)
    assert set(table.class_names or ()) == set(words)
    written(folder, a__csv="label,x\n" + "\n".join(f"{n % 2 + 1},{n}" for n in range(5)))
    assert labels_of(folder) == [1, 2, 1, 2, 1]
    written(folder, a__csv="label,x\n1,0\n2.0,0\n", b__csv="label,x\n1.0,0\n2.,0\n")
    assert labels_of(folder) == [1, 2, 1, 2]
    written(folder, a__csv="label,x\n1,0\nb,0\n", b__csv="label,x\n1.0,0\n1.5,0\n")
    assert labels_of(folder) == ["1", "b", "1", "1.5"]


def test_what_a_stream_does_not_read_is_told(tmp_path: Path) -> None:
    folder = written(tmp_path, a__csv="label,x\na,1\nb,2\n", b__tsv="label\tx\na\t1\n")
    (folder / "sub").mkdir()
    with pytest.warns(UserWarning, match=r"not read from .*: b.tsv, sub/"):
        assert labels_of(folder) == ["a", "b"]


X = np.random.default_rng(0).standard_normal((40, 6))
y = np.arange(40) % 3


@each_row(
    ("change", "why"),
    [
        ({"X_indices": np.array([2**32, 1, 0])}, r"X of .*\.npz is a damaged csr matrix"),
        ({"X_indices": np.array([0.5, 1, 0])}, "X_indices must be whole numbers"),
        ({"X_data": np.array([np.nan, 1, 1])}, "row 1 of X"),
        ({"classes": np.array([5, 5, 5])}, "several arrays that may be the labels: classes, y"),
        ({"y": np.ones((3, 1))}, "must have 1 side"),
    ],
)
def test_arrays_of_a_stream_are_checked_before_they_are_cast(
    tmp_path_factory: Any, change: dict[str, Any], why: str
) -> None:
    sound = {
        "X_data": np.ones(3), "X_indices": np.arange(3), "X_indptr": np.arange(4), "X_shape": np.array([3, 3]),
        "y": np.array([0, 1, 1]),
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("n")
    np.savez(folder / "a.npz", **sound)
    assert labels_of(folder) == [0, 1, 1]
    np.savez(folder / "a.npz", **{**sound, **change})
    with pytest.raises((InvalidInputError, StorageError), match=why):
        list(stream(folder))


NUMBERS = [
    "1", "-1", "+3.5", ".5", "5.", "0", "-0.0", "1e5", "1E-7", "1e+22", "1e23", "123456789012345678901", "00012.5",
    "0.1234567890123456789", "9007199254740993", "4.9e-324", "1e-400", "0.30000000000000004", "9.999999999999999e22",
    "1e0005", "2.2250738585072011e-308",
]  # fmt: skip


def test_every_number_is_read_as_python_reads_it() -> None:
    rng = np.random.default_rng(0)
    # Those with 16 to 18 digits are divided in two numbers; halves of the last bit are exact ties, or near them.
    long = [f"{a:.17g}"[:19] for a in rng.random(2000)] + [f"{a:.16f}" for a in rng.uniform(0.8, 30, 2000)]
    ties = [f"{(2**53 + 2 * one + 1) / 10:.1f}" for one in rng.integers(2**40, size=50).tolist()]
    ties += [f"0.{2**53 + one}" for one in range(50)] + [
        f"{2**53 + 1 + 2 * one}.{tail}" for one in range(9) for tail in "05"
    ]
    spread = map(repr, (rng.standard_normal(300) * 10.0 ** rng.integers(-30, 30, 300)).tolist())
    words = [*NUMBERS, *long, *ties, *spread]
    # Labels that would lose digits are refused.
    labels = ["0" if word.isdigit() and int(word) != float(word) else word for word in words]
    pairs = zip(labels, words, strict=True)
    text = "".join(f"{label} {place}:{word}\n" for place, (label, word) in enumerate(pairs)).encode()
    X, y, _ = parsed_lines(Path("numbers"), text, 0, Format(n_features=len(words)))
    np.testing.assert_array_equal(y, [float(label) for label in labels])
    np.testing.assert_array_equal(X.diagonal(), [float(word) for word in words])


@pytest.mark.parametrize("suffix", [".svmlight", ".svmlight.gz"])
def test_lines_are_read_as_scikit_learn_reads_them(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    X = sp.csr_array(sp.random_array((200, 50), density=0.2, random_state=rng).toarray())
    path = tmp_path / f"rows{suffix}"
    plain = tmp_path / "plain"
    dump_svmlight_file(X, rng.integers(-1, 3, 200), str(plain), comment="a comment", zero_based=False)
    text = plain.read_bytes().replace(b" 3:", b"\t3:").replace(b"\n2 ", b"\r\n\n2 qid:7 ")
    whole = text[:-1] + b" # the end"
    path.write_bytes(gzip.compress(whole) if suffix.endswith("gz") else whole)
    (tmp_path / "checked").write_bytes(text)
    expected, labels = load_svmlight_file(str(tmp_path / "checked"), n_features=50, zero_based=False)
    # Pieces end within lines.
    monkeypatch.setattr("problems.data.pieces.PIECE", 100)
    [(found, y)] = stream(path, n_features=50, zero_based=False)
    assert (found != expected).nnz == 0
    np.testing.assert_array_equal(y, labels)


def test_chunks_hold_all_rows_in_their_order(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", digits)
    chunks = stream(folder, n_features=64, batch_size=200, n_epochs=2)
    found = list(chunks)
    assert [X.shape[0] for X, _ in found] == 2 * [200, 200, 200, 230]
    np.testing.assert_array_equal(sp.vstack([X for X, _ in found[:4]]).toarray(), digits[0][:830])
    np.testing.assert_array_equal(np.concatenate([y for _, y in found[4:]]), digits[1][:830])
    assert (chunks.n_rows, chunks.share) == (1660, 1.0)
    # Behind the end it begins anew.
    assert all(map(same, list(chunks), found))


def test_rows_are_shuffled_within_a_buffer(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", digits)
    first, again, other = (
        list(stream(folder, n_features=64, batch_size=100, shuffle_buffer=400, random_state=seed))
        for seed in (0, 0, 1)
    )
    assert all(map(same, first, again))
    assert not all(map(same, first, other))
    rows = {tuple(row) for row in digits[0][:830].tolist()}
    assert {tuple(row) for X, _ in other for row in X.toarray().tolist()} == rows
    assert not same(first[0], first[1])


@pytest.mark.parametrize(
    ("encoding", "sentence"),
    [
        ("utf-8", r"1\.txt is not utf-8 text .byte 0xfc.*encoding=latin-1"),
        ("utf-9", "unknown encoding: utf-9; give"),
    ],
)
def test_texts_in_another_encoding_are_refused_in_a_sentence(
    encoding: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "colours").mkdir()
    (tmp_path / "colours" / "1.txt").write_bytes("grün".encode("latin-1"))
    with pytest.raises(InvalidInputError, match=sentence):
        list(stream(tmp_path, n_features=8, encoding=encoding))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("buffer", [0, 150])
def test_a_stream_is_taken_up_at_any_place(
    kind: str,
    buffer: int,
    tmp_path: Path,
    digits: tuple[np.ndarray, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, how = formatted(kind, tmp_path, digits)
    for name, size in {"PIECE": 3000, "ROWS": 17, "TEXTS": 13}.items():
        monkeypatch.setattr(f"problems.data.pieces.{name}", size)
    how |= {"batch_size": 50, "n_epochs": 2, "shuffle_buffer": buffer}
    whole = list(stream(folder, random_state=4, **how))
    assert len(whole) == (12 if kind == "texts" else 34)
    for number in (0, 1, 3, 11, len(whole)):
        cut = stream(folder, random_state=4, **how)
        given = iter(cut)
        for _ in range(number):
            next(given)
        state = cut.state
        given.close()  # type: ignore[attr-defined]
        resumed = stream(folder, **how)
        resumed.seek(state)
        rest = list(resumed)
        assert len(rest) == len(whole) - number
        assert all(map(same, rest, whole[number:]))


def test_npz_and_csv_hold_what_was_written(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    for kind in ("npz", "csv", "mtx"):
        folder, how = formatted(kind, tmp_path / kind, digits)
        [(X, y)] = stream(folder, **how)
        np.testing.assert_array_equal(X.toarray() if sp.issparse(X) else X, digits[0][:830])
        np.testing.assert_array_equal(y, digits[1][:830])


def test_a_model_of_files_goes_by_the_names_of_their_columns(tmp_path: Path) -> None:
    rows = "".join(f"{n % 5},{n % 3},{n % 2}\n" for n in range(12))
    for name, columns in (("a", "size,mass"), ("b", "mass,size")):
        (tmp_path / f"{name}.csv").write_text(f"{columns},label\n{rows}")
    model = LoretaSimilarity(1, init="gaussian", random_state=0, checkpoint=tmp_path / "kept" / "run.npz")
    for epochs in (1, 2, 2):
        model.fit_stream(stream(tmp_path / "a.csv", n_epochs=epochs))
        assert model.feature_names_in_.tolist() == ["size", "mass"]
    model.set_params(checkpoint=None, warm_start=True).save(tmp_path / "model.npz")
    for one in (model.fit_stream(stream(tmp_path / "a.csv")), LoretaSimilarity.load(tmp_path / "model.npz")):
        with pytest.raises(ValueError, match="feature names should match"):
            one.transform(pd.DataFrame({"mass": [1.0], "size": [2.0]}))
        with pytest.raises(InvalidInputError, match=r"X has the columns \['mass', 'size'\], and fit saw"):
            one.fit_stream(stream(tmp_path / "b.csv"))


def test_a_ranker_of_files_goes_by_the_names_of_their_labels(tmp_path: Path) -> None:
    def put(name: str, labels: str) -> None:
        np.savez(tmp_path / name, X=X[:12], Y=np.eye(3)[y[:12]], label_names=list(labels))

    put("0.npz", "abc")
    put("1.npz", "abc")
    stream(tmp_path, multilabel=True, batch_size=5).save(tmp_path / "parts" / "again")
    for path in (tmp_path, tmp_path / "parts" / "again"):
        model = LoretaLabelRanker(2, random_state=0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "not read from")
            model.fit_stream(stream(path, multilabel=True, batch_size=5))
        assert model.label_names_in_.tolist() == ["a", "b", "c"]
    for labels, flaw in (
        ("acb", "names its columns otherwise .*: c where they have b"),
        ("ab", "must be 3, a name"),
    ):
        put("1.npz", labels)
        for size in (5, 100):
            with pytest.warns(UserWarning, match="not read"), pytest.raises(InvalidInputError, match=flaw):
                list(stream(tmp_path, multilabel=True, batch_size=size))


def test_save_writes_one_pass_with_the_names_of_features(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,size,mass\n1,2,3\n0,4,5\n1,6,7\n")
    chunks = stream(tmp_path / "a.csv", n_epochs=3, batch_size=2)
    chunks.save(tmp_path / "binary")
    again = stream(tmp_path / "binary")
    [(X, y)] = again
    assert (X.tolist(), y.tolist()) == ([[2, 3], [4, 5], [6, 7]], [1, 0, 1])
    assert again.feature_names == ("size", "mass")


def test_texts_are_hashed(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    folder, how = formatted("texts", tmp_path, digits)
    [(X, y)] = stream(folder, random_state=0, **how)
    assert next(iter(stream(folder)))[0].shape[1] == 2**18
    texts = {path.read_text(): path.parent.name for path in folder.glob("*/*")}
    expected = HashingVectorizer(n_features=256).transform(list(texts))
    assert set(y) == set(texts.values())
    assert X.shape == (300, 256)
    assert X.sum() == pytest.approx(expected.sum(), rel=0.1)


def test_labels_grow_with_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "rows.svmlight"
    path.write_text("0,1 0:1\n1 1:1\n 2:1\n0 0:2 # none\n3,1 1:1\n5 2:1\n")
    chunks = list(stream(path, n_features=3, multilabel=True, batch_size=2))
    assert [Y.shape[1] for _, Y in chunks] == [2, 2, 6]
    assert [Y.toarray().sum(axis=1).tolist() for _, Y in chunks] == [[2, 1], [0, 1], [2, 1]]


def test_the_reader_does_not_run_away(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", digits)
    chunks = stream(folder, n_features=64, batch_size=20, read_ahead=2)
    pieces, seen = chunks._buffers, []
    chunks._buffers = lambda place: (seen.append(1) or one for one in pieces(place))  # type: ignore[method-assign]
    given = iter(chunks)
    next(given)
    time.sleep(0.3)
    # The one that is used, two that wait, and one that waits to wait.
    assert len(seen) <= 4
    given.close()  # type: ignore[attr-defined]


def wide(X: np.ndarray) -> np.ndarray:
    """Return full rows that are long enough for steps in blocks."""
    return np.hstack([X, 1.0 - X, np.cos(X)])


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "text": ("1 0:1\n2 1:1\n3 oops\n", {}, r"line 3 of .*a\.svmlight has no index:value where .* 'oops'; repair"),
    "value": ("1 0:1\n2 1:x7\n", {}, r"line 2 of .* has no number behind an index: '1:x7'"),
    "no value": ("1 0:1\n2 1:\n", {}, r"line 2 of .* has no number behind an index"),
    "label": ("1 0:1\ncat 1:1\n", {}, r"line 2 of .* has no number for a label, .*: 'cat'"),
    "wide": ("1 0:1\n2 3:1\n", {}, r"line 2 of .* a feature beyond n_features = 3: '3:1'; .*=False \(--one-based\)"),
    "too wide": ("1 4294967296:1\n", {"n_features": 2**31 - 1}, "n_features = 2147483647: .* repair or remove"),
    "too many": ("1 4294967296:1\n", {"n_features": 2**33}, "n_features = 8589934592 must be .* at most 2147483647"),
    "zero": ("1 1:1\n2 0:1\n", {"zero_based": False}, r"line 2 of .* has a feature 0: '0:1'; .*=True \(no --one-b"),
    "several": ("1 0:1\n1,2 0:1\n", {}, r"line 2 of .* has 2 labels; .* multilabel=True \(rmopt fit r"),
    "names": ("1.5 0:1\n", {"multilabel": True}, r"has the label 1.5; with multilabel=True they are numbers"),
    "large": ("999999999999 0:1\n", {"multilabel": True}, r"has the label 999999999999; .* from 0 to 2147483646"),
    "infinite": ("1 0:1\n2 0:inf\n", {}, r"holds inf in a row"),
    "empty": ("", {}, r"a\.svmlight is empty; remove it"),
    "comments": ("# nothing\n", {}, r"a\.svmlight holds no rows; remove it"),
    "width": ("1 0:1\n", {"n_features": None}, r"does not say how many features there are; say n_features \(--n-f"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    text, how, message = WRONG[name]
    (tmp_path / "a.svmlight").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        list(stream(tmp_path, **{"n_features": 3, **how}))


def test_other_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere does not exist"):
        stream(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="has neither files that end in"):
        stream(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with pytest.raises(StorageError, match=r"a\.npz is damaged"):
        list(stream(tmp_path))
    np.savez(tmp_path / "a.npz", X=np.eye(3))
    with pytest.raises(InvalidInputError, match="has no y"):
        list(stream(tmp_path))
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=np.arange(3))
    np.savez(tmp_path / "b.npz", X=np.eye(4), y=np.arange(4))
    with pytest.raises(
        InvalidInputError, match=r"b\.npz holds dense rows of 4 features, and files before it"
    ):
        list(stream(tmp_path))
    parts = {"X_data": np.ones(2), "X_indices": [9, 9], "X_indptr": [0, 1, 2], "X_shape": [2, 3]}
    np.savez(tmp_path / "b.npz", y=np.arange(2), **parts)
    with pytest.raises(InvalidInputError, match="its indices run from 9 to 9"):
        list(stream(tmp_path / "b.npz"))
    (tmp_path / "c.csv").write_text("label,a\n1,2\n1,2,3\n")
    with pytest.raises(InvalidInputError, match=r"line 3 of .*c\.csv has 3 fields"):
        list(stream(tmp_path / "c.csv"))
    with pytest.raises(InvalidInputError, match=r"unknown encoding: klingon; give one that Python knows"):
        list(stream(tmp_path / "c.csv", encoding="klingon"))
    (tmp_path / "c.csv").write_bytes("label,größe\n1,2\n".encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"c\.csv is not utf-8 text .* encoding=latin-1"):
        list(stream(tmp_path / "c.csv"))
    assert len(list(stream(tmp_path / "c.csv", encoding="latin-1"))) == 1
    (tmp_path / "c.csv").write_bytes("label,x\n1,2\n".encode("utf-16"))
    with pytest.raises(InvalidInputError, match=r"c\.csv is not utf-16 text .*; save it as UTF-8"):
        list(stream(tmp_path / "c.csv", encoding="utf-16"))
    for how in ({"encoding": 5}, {"vectorizer": 5}, {"path": None}):
        with pytest.raises(InvalidInputError, match=f"{next(iter(how))} = .* must "):
            stream(**{"path": tmp_path / "c.csv", **how})


MTX = (
    "%%MatrixMarket matrix coordinate real general\n% by hand\n3 4 4\n1 4 2.5\n\n3 1 1\n3 1 0.5\n3 2 -1e-3\n"
)


@pytest.mark.parametrize(
    ("before", "after", "labels", "sentence"),
    [
        ("3 2 -1e-3", "1 2 -1e-3", "a\nb\nc", r"not sorted by rows: one of row 1 comes late.*csr_array"),
        ("3 2 -1e-3", "3 5 1", "a\nb\nc", "the entry 3 5 1 of .* is not within its 3 rows and 4 columns"),
        ("3 2 -1e-3", "3 nan 1", "a\nb\nc", "the entry 3 nan 1 of .* is not within"),
        ("3 2 -1e-3", "3 2 inf", "a\nb\nc", "holds inf; remove or impute"),
        ("3 2 -1e-3", "3 2", "a\nb\nc", r"a\.mtx is damaged"),
        ("3 2 -1e-3\n", "", "a\nb\nc", "has 3 entries, and says that they are 4"),
        ("general", "symmetric", "a\nb\nc", "end that line with general"),
        ("", "", "a\n\nc", r"a\.labels has no label for row 2"),
        ("", "", "a\nb\n", r"a\.labels has no label for row 3"),
        ("", "", "a\nb\nc\nd", "has more lines than .* rows, 3"),
        ("", "", None, r"have no labels; write them into .*a\.labels"),
    ],
)
def test_rows_of_mtx_files(
    before: str, after: str, labels: str | None, sentence: str, tmp_path: Path
) -> None:
    path, beside = tmp_path / "a.mtx", tmp_path / "a.labels"
    path.write_text(MTX)
    beside.write_text("1,2\n\n0")
    [(X, Y)] = stream(path, multilabel=True)
    np.testing.assert_array_equal(X.toarray(), [[0, 0, 0, 2.5], [0] * 4, [1.5, -1e-3, 0, 0]])
    np.testing.assert_array_equal(Y.toarray(), [[0, 1, 1], [0, 0, 0], [1, 0, 0]])
    path.write_text(MTX.replace(before, after))
    beside.unlink()
    if labels is not None:
        beside.write_text(labels)
    with pytest.raises((InvalidInputError, StorageError), match=sentence):
        list(stream(path))


def test_the_parser_says_where_it_stopped() -> None:
    text = np.frombuffer(b"1 0:1\n2 5:1\n", np.uint8)
    spaces = [np.empty(9), np.empty(9, np.int64), np.empty(9, np.int32), np.empty(9), np.empty(9, np.int64)]
    assert kernels.parse(text, 0, 3, *spaces, np.empty((9, 3), np.int64))[2:] == (kernels.ABOVE, 8)
