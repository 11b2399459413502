"""The readers of streams: formats, chunks, names, and files that are refused."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from stream_parts import same, write_folder
from tabled import each_row

from problems.data import ClassBundle, load, stream
from problems.serving.index import SimilarityIndex
from problems.similarity import LoretaSimilarity
from problems.streaming import Similarity
from rmopt import InvalidInputError, StorageError
from rmopt.experiments import Run


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def labels_of(folder: Path, **how: Any) -> list[Any]:
    return [one for _, labels in stream(folder, **how) for one in labels.tolist()]


@each_row(
    ("files", "how", "why"),
    [
        # Tables
        ({"a__csv": "label,age,pay\na,30,5\n", "b__csv": "label,pay,age\na,5,30\n"}, {}, "make them equal"),
        ({"a__csv": "label,text,message\na,b,c\n"}, {}, "several columns that may be the text"),
        ({"a__csv": "x,x,label\n0,5,a\n"}, {}, "two columns called 'x'"),
        ({"a__csv": "x,test,label\n0,1,a\n"}, {}, "leave out the column test"),
        ({"a__csv": "label\na\n"}, {}, "no columns of features"),
        ({"a__csv": "x,z\na,1\n"}, {}, "one column of labels"),
        ({"a__csv": "label,x\na,1\n,2\n"}, {}, "label of .* has gaps"),
        ({"a__csv": "label,x\na,1\n\nb,inf\n"}, {}, "infinite"),
        ({"a__csv": "label,a\n1,2\n"}, {"multilabel": True}, "columns label_… of 0 and 1"),
        # Rows of svmlight
        ({"a__svm": "1 0:1\n2 1:1\n3 oops\n"}, {}, "line 3 of"),
        ({"a__svm": "1 0:1\ncat 1:1\n"}, {}, "line 2 of"),
        ({"a__svm": "1 0:1\nnan 1:1\n"}, {}, "line 2 of"),
        ({"a__svm": "1 0:1\n2 0:inf\n"}, {}, "line 2 of"),
        ({"a__svm": "1 0:1\n2 3:1\n"}, {}, r"line 2 of .* below 3; .*\(--one-based\)"),
        ({"a__svm": "1 1:1 0:1\n"}, {}, "line 1 of .* rise"),
        ({"a__svm": "1 1:1\n2 0:1\n"}, {"zero_based": False}, "line 2 of .* rise"),
        ({"a__svm": "1 4294967296:1\n"}, {"n_features": 2**31 - 1}, "line 1 of"),
        ({"a__svm": "1 0:1\n"}, {"n_features": 2**33}, "n_features = 8589934592"),
        ({"a__svm": "1 0:1\n1,2 0:1\n"}, {}, r"rmopt fit ranking \(multilabel=True\)"),
        ({"a__svm": "1.5 0:1\n"}, {"multilabel": True}, "no whole number"),
        ({"a__svm": "999999999999 0:1\n"}, {"multilabel": True}, "no whole number"),
        ({"a__svm": "1 0:1\n"}, {"n_features": None}, r"give n_features \(--n-features\)"),
        ({"a__csv": "y,x\n1,2\n"}, {"zero_based": False}, "no .svmlight file to count from 1"),
        ({"a__csv": "y,x\n1,2\n"}, {"n_features": 2}, "other features than n_features"),
    ],
)  # fmt: skip
def test_a_stream_refuses_files_with_their_names_and_lines(
    tmp_path_factory: Any, files: dict[str, str], how: dict[str, Any], why: str
) -> None:
    folder = written(tmp_path_factory.mktemp("s"), **files)
    how = ({"n_features": 3} if "a__svm" in files else {}) | how
    with pytest.raises(InvalidInputError, match=why):
        list(stream(folder, **how))


def test_folders_that_are_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere does not exist"):
        stream(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="holds no file that ends in"):
        stream(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with pytest.raises(StorageError, match=r"a\.npz is damaged"):
        list(stream(tmp_path))
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=np.arange(3))
    np.savez(tmp_path / "b.npz", X=np.eye(4), y=np.arange(4))
    with pytest.raises(InvalidInputError, match=r"b\.npz has other features"):
        list(stream(tmp_path))


def test_labels_of_a_stream_stay_as_they_are_written(tmp_path: Path) -> None:
    words = ["007", "7", "90071992547409931234", "90071992547409931235", 'say "a"', "a,b"]
    lines = [f'"{word.replace(chr(34), 2 * chr(34))}",{number}' for number, word in enumerate(2 * words)]
    folder = written(tmp_path, a__csv="\ufefflabel,x\n" + "\n".join(lines))
    assert labels_of(folder) == 2 * words
    assert set(load(folder / "a.csv", kind=ClassBundle).class_names or ()) == set(words)
    written(folder, a__csv="label,x\n1,0\n2.0,0\n", b__csv="label,x\nb,0\n1,0\n")
    assert labels_of(folder) == ["1", "2.0", "b", "1"]


def test_labels_of_arrays_do_not_become_floats(tmp_path: Path) -> None:
    def put(*labels: Any) -> Path:
        for number, y in enumerate(labels):
            np.savez(tmp_path / f"{number}.npz", X=np.ones((len(y), 2)), y=y)
        return tmp_path

    small = np.array([1, 2])
    assert labels_of(put(small, small)) == [1, 2, 1, 2]
    for other in (np.array([1.5, 2.0]), small.astype(np.uint64), np.array(["a", "b"])):
        with pytest.raises(InvalidInputError, match="make them equal"):
            labels_of(put(small, other))


def test_points_of_thousands_are_not_decimal_where_other_rows_have_commas(tmp_path: Path) -> None:
    path = written(tmp_path, a__csv="label;x\n" + 7 * "a;1.234\n" + 5 * "b;1,5\n") / "a.csv"
    for read in (load, labels_of):
        with pytest.raises(InvalidInputError, match="column x of"):
            read(path)


@pytest.mark.parametrize("place", ["t.csv.gz", "T.CSV", "folder/t.csv", "folder/class"])
def test_an_index_is_written_of_texts_wherever_they_lie(place: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "data" / place, (tmp_path / "data" / place).parent
    folder.mkdir(parents=True)
    texts = [f"{'apples pears' if n % 2 else 'stars moons'} word{n % 5}" for n in range(40)]
    text = "label,text\n" + "".join(f"{'ab'[n % 2]},{one}\n" for n, one in enumerate(texts))
    path.write_bytes(gzip.compress(text.encode()) if place.endswith("gz") else text.encode())
    if place == "folder/class":
        path.unlink()
        for n, one in enumerate(texts):
            (path.with_name("ab"[n % 2])).mkdir(exist_ok=True)
            (path.with_name("ab"[n % 2]) / f"{n}.txt").write_text(one)
    files = folder if "/" in place else path
    run = Run("similarity", seed=0, out=tmp_path / "out")
    Similarity(files=files, rank=2, n_features=64)(run)
    assert sorted(SimilarityIndex.load(tmp_path / "out").texts) == sorted(texts)


def test_roles_of_columns_are_given_as_elsewhere(tmp_path: Path) -> None:
    path = written(tmp_path, t__csv="id,words,body,kind\n" + 3 * 'x,"a b\nc",1,p\nx,404,2,q\n') / "t.csv"
    for how in "label=kind", "text=words":
        with pytest.raises(InvalidInputError, match=r"::text=COLUMN,label=|labels \(label=COLUMN\)"):
            labels_of(f"{path}::{how}")
    Similarity(files=Path(f"{path}::text=words,label=kind,drop=id"), rank=1, n_features=8)(
        Run("similarity", seed=0, out=tmp_path)
    )
    assert list(SimilarityIndex.load(tmp_path).names) == [f"t.csv, row {n}" for n in range(1, 7)]
    # A body may be a measurement, and a text a number.
    [(X, _)] = stream(f"{path}::label=kind,drop=id+words")
    assert X.tolist() == 3 * [[1], [2]]
    path.write_text("body,category\na b,p\n404,q\n5,q\n")
    assert {X.shape[1] for X, _ in stream(path, batch_size=1, n_features=8)} == {8}


def test_columns_of_labels_are_several_labels(tmp_path: Path) -> None:
    folder = written(tmp_path, a__csv="label_p,x,label_q\n1,2,0\n0,3,1\n1,4,1\n")
    [(X, Y)] = stream(folder, multilabel=True)
    assert (X.tolist(), Y.toarray().tolist()) == ([[2], [3], [4]], [[1, 0], [0, 1], [1, 1]])


X = np.random.default_rng(0).standard_normal((40, 6))
y = np.arange(40) % 3


@pytest.mark.parametrize("suffix", [".svmlight", ".svmlight.gz"])
def test_lines_are_read_as_scikit_learn_reads_them(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    X = sp.csr_array(sp.random_array((200, 50), density=0.2, random_state=rng).toarray())
    path, plain = tmp_path / f"rows{suffix}", tmp_path / "plain"
    dump_svmlight_file(X, rng.integers(-1, 3, 200), str(plain), comment="a comment", zero_based=False)
    text = plain.read_bytes().replace(b" 3:", b"\t3:").replace(b"\n2 ", b"\r\n\n2 qid:7 ")
    whole = text[:-1] + b" # the end"
    path.write_bytes(gzip.compress(whole) if suffix.endswith("gz") else whole)
    plain.write_bytes(text)
    expected, labels = load_svmlight_file(str(plain), n_features=50, zero_based=False)
    parts = list(stream(path, n_features=50, zero_based=False, batch_size=7))
    found, y = sp.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])
    assert (found != expected).nnz == 0
    np.testing.assert_array_equal(y, labels)


def test_chunks_hold_all_rows_in_their_order(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", digits)
    chunks = stream(folder, n_features=64, batch_size=200, n_epochs=2)
    found = list(chunks)
    assert [X.shape[0] for X, _ in found] == 2 * [200, 100, 200, 210, 120]
    np.testing.assert_array_equal(sp.vstack([X for X, _ in found[:5]]).toarray(), digits[0][:830])
    np.testing.assert_array_equal(np.concatenate([y for _, y in found[5:]]), digits[1][:830])
    assert chunks.n_rows == 1660
    # Behind the end it begins anew.
    assert all(map(same, list(chunks), found))


def test_a_model_of_files_goes_by_the_names_of_their_columns(tmp_path: Path) -> None:
    rows = "".join(f"{n % 5},{n % 3},{n % 2}\n" for n in range(12))
    for name, columns in (("a", "size,mass"), ("b", "mass,size")):
        (tmp_path / f"{name}.csv").write_text(f"{columns},label\n{rows}")
    model = LoretaSimilarity(1, init="gaussian", random_state=0, checkpoint=tmp_path / "kept" / "run.npz")
    for epochs in (1, 2, 2):
        model.fit_stream(stream(tmp_path / "a.csv", n_epochs=epochs))
        assert model.feature_names_in_.tolist() == ["size", "mass"]
    model.set_params(checkpoint=None).save(tmp_path / "model.npz")
    for one in (model.fit_stream(stream(tmp_path / "a.csv")), LoretaSimilarity.load(tmp_path / "model.npz")):
        with pytest.raises(ValueError, match="feature names should match"):
            one.transform(pd.DataFrame({"mass": [1.0], "size": [2.0]}))


def test_files_with_other_labels_are_refused(tmp_path: Path) -> None:
    for name, labels in (("0", "abc"), ("1", "acb")):
        np.savez(tmp_path / f"{name}.npz", X=X[:12], Y=np.eye(3)[y[:12]], label_names=list(labels))
    for size in (5, 100):
        with pytest.raises(InvalidInputError, match="make them equal"):
            list(stream(tmp_path, multilabel=True, batch_size=size))


def test_labels_grow_with_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "rows.svmlight"
    path.write_text("0,1 0:1\n1 1:1\n 2:1\n0 0:2 # none\n3,1 1:1\n5 2:1\n")
    chunks = list(stream(path, n_features=3, multilabel=True, batch_size=2))
    assert [Y.shape[1] for _, Y in chunks] == [2, 2, 6]
    assert [Y.toarray().sum(axis=1).tolist() for _, Y in chunks] == [[2, 1], [0, 1], [2, 1]]
