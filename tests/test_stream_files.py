"""The readers of streams: formats, pieces, places, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabled import each_row

from problems.data import ClassBundle, load, stream
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


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


@each_row(
    ("files", "why"),
    [
        (
            {"a__csv": "label,age,pay\na,30,5\n", "b__csv": "label,pay,age\na,5,30\n"},
            "names its features otherwise",
        ),
        ({"a__csv": "label,x\n1,1\n", "b__csv": "label,x\nc,1\n"}, "labels that are text"),
        ({"a__csv": ",x,label\n0,5,a\n1,6,b\n"}, "a column without a name"),
        ({"a__csv": "x,x,label\n0,5,a\n"}, "two columns called 'x'"),
        ({"a__csv": "x,test,label\n0,1,a\n"}, "may say what is held out"),
        ({"a__csv": "label\na\n"}, "no columns of features"),
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
        ({"X_indices": np.array([2**32, 1, 0])}, "X"),
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
