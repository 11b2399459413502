"""Data in chunks: what an estimator keeps between them, the readers of files, and runs that are taken up again."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite
from sklearn.datasets import dump_svmlight_file, load_digits, load_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer

from problems.data import kernels, stream
from problems.data.pieces import Format, _parsed
from problems.ranking import LoretaLabelRanker
from problems.ranking.training import epochs, ranking_cost
from problems.similarity import LoretaSimilarity
from rmopt import InvalidInputError
from rmopt.cli import main
from rmopt.core import LowRankPoint, StorageError
from rmopt.solvers.continued import Continued
from rmopt.solvers.scheduled import Schedule
from rmopt.solvers.step_sizes import as_step_size

Chunks = list[tuple[Any, Any]]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def indicators(y: np.ndarray, n_labels: int) -> np.ndarray:
    """Return the class, and whether it is odd, as several labels of a row."""
    found = np.zeros((len(y), n_labels))
    found[np.arange(len(y)), y] = 1.0
    found[:, 0] += y % 2 == 1
    return found


def wide(X: np.ndarray) -> np.ndarray:
    """Return full rows that are long enough for steps in blocks."""
    return np.hstack([X, 1.0 - X, np.cos(X)])


CASES: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]]] = {
    "sparse": (lambda **how: LoretaSimilarity(rank=5, random_state=0, step_size=0.05, **how),
               lambda X, y: (sp.csr_array(X), y)),
    "dense": (lambda **how: LoretaSimilarity(rank=5, random_state=0, step_size=0.005, **how),
              lambda X, y: (wide(X), y)),
    "psd": (lambda **how: LoretaSimilarity(rank=5, random_state=0, step_size=0.05, psd=True, **how),
            lambda X, y: (sp.csr_array(X), y)),
    "warp": (lambda **how: LoretaLabelRanker(rank=4, random_state=0, step_size=0.02, **how),
             lambda X, y: (X, indicators(y, 10))),
    "exact": (lambda **how: LoretaLabelRanker(rank=4, random_state=0, step_size=0.02, sampling="exact", **how),
              lambda X, y: (sp.csr_array(X), sp.csr_array(indicators(y, 10)))),
}  # fmt: skip


def chunks_of(
    name: str, data: tuple[np.ndarray, np.ndarray], sizes: tuple[int, ...] = (40, 70, 33)
) -> Chunks:
    made, ends = CASES[name][1], np.cumsum((0, *sizes))
    return [made(data[0][a:b], data[1][a:b]) for a, b in pairwise(ends.tolist())]


def bits(model: Any) -> list[np.ndarray]:
    return list(vars(model.model_.point).values())


def assert_same_bits(first: Any, second: Any) -> None:
    for one, other in zip(bits(first), bits(second), strict=True):
        np.testing.assert_array_equal(one, other)


def matrix(model: Any) -> np.ndarray:
    point = model.model_.point
    return point.U @ point.S @ point.V.T if isinstance(point, LowRankPoint) else point.Q @ point.S @ point.Q.T


def learned(model: Any, chunks: Chunks, **steps: int) -> Any:
    for X, y in chunks:
        model.partial_fit(X, y, **steps)
    return model


# What an estimator keeps between chunks


@pytest.mark.parametrize("name", CASES)
def test_chunks_follow_the_reference_engine(name: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    make, _ = CASES[name]
    chunks = chunks_of(name, digits)
    steps = {"max_iter": 90} if isinstance(make(), LoretaSimilarity) else {}
    compiled, plain = (learned(make(engine=one), chunks, **steps) for one in ("auto", "reference"))
    assert compiled.n_iter_ == plain.n_iter_ == (270 if steps else 143)
    assert compiled.n_updates_ == plain.n_updates_ > 50
    expected = matrix(plain)
    np.testing.assert_allclose(matrix(compiled), expected, atol=1e-9 * np.linalg.norm(expected))


@pytest.mark.parametrize("name", CASES)
def test_looking_between_chunks_changes_no_bits(name: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    make, _ = CASES[name]
    chunks = chunks_of(name, digits)
    whole, seen = learned(make(), chunks), make()
    for X, y in chunks:
        seen = pickle.loads(pickle.dumps(seen.partial_fit(X, y)))
        seen.score(X, y)
    assert_same_bits(seen, whole)


@pytest.mark.parametrize("name", ["sparse", "dense", "psd"])
def test_the_first_chunk_is_a_fit(name: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    make, data = CASES[name]
    X, y = data(*(part[:200] for part in digits))
    assert_same_bits(make().partial_fit(X, y, max_iter=700), make(max_iter=700).fit(X, y))


@pytest.mark.parametrize("name", CASES)
def test_a_chunk_takes_no_factorisation(
    name: str, digits: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = chunks_of(name, digits)
    model = CASES[name][0]().partial_fit(*first)
    called: list[int] = []
    qr = np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda *a, **how: called.append(1) or qr(*a, **how))
    learned(model, others)
    assert not called
    assert model.model_.point.rank in (4, 5)
    assert called


def test_an_estimator_goes_on_with_another_engine(digits: tuple[np.ndarray, np.ndarray]) -> None:
    chunks = chunks_of("sparse", digits)
    plain = learned(CASES["sparse"][0](), chunks)
    mixed = CASES["sparse"][0]().partial_fit(*chunks[0])
    for engine, chunk in zip(("reference", "compiled"), chunks[1:], strict=True):
        mixed.set_params(engine=engine).partial_fit(*chunk)
    assert (mixed.n_iter_, mixed.n_updates_) == (plain.n_iter_, plain.n_updates_)
    np.testing.assert_allclose(matrix(mixed), matrix(plain), atol=1e-9)


def test_a_chunk_of_another_length_is_passed_once() -> None:
    rng = np.random.default_rng(0)
    cost = ranking_cost(rng.standard_normal((7, 3)), rng.random((7, 4)) < 0.5, "warp")
    work = Schedule(None, epochs(cost), as_step_size(0.1), seed=3, first_step=10, origin=10)  # type: ignore[arg-type]
    terms, etas = work.at(10, 100)
    assert sorted(terms[:, 0].tolist()) == list(range(7))
    assert len(etas) == 7
    # Another chunk has another order, and other draws.
    other = Schedule(None, epochs(cost), as_step_size(0.1), seed=3, first_step=17, origin=17)  # type: ignore[arg-type]
    assert (other.at(17, 100)[0] != terms).any()


def test_labels_that_come_late_begin_at_zero(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    few, rest = y < 6, y >= 6
    first = sp.csr_array(X[few][:150]), indicators(y[few][:150], 6)
    second = sp.csr_array(X[rest][:90]), indicators(y[rest][:90], 10)
    how: dict[str, Any] = {"rank": 4, "random_state": 0, "step_size": 0.02}
    grown = LoretaLabelRanker(**how).partial_fit(*first)
    before = matrix(grown)
    grown.partial_fit(*second)
    assert (grown.n_labels_, grown.decision_function(X[:2]).shape) == (10, (2, 10))
    # The same step by step, in plain Python, from the matrix with rows of zeros.
    plain = LoretaLabelRanker(engine="reference", **how).partial_fit(*first)
    np.testing.assert_allclose(matrix(plain), before, atol=1e-9)
    plain.partial_fit(*second)
    np.testing.assert_allclose(matrix(grown), matrix(plain), atol=1e-9 * np.linalg.norm(matrix(plain)))
    # Labels that no row names and no draw met keep their zeros.
    unmet = LoretaLabelRanker(sampling="exact", **how).partial_fit(*first)
    old = matrix(unmet)
    everything = np.ones((5, 7))
    unmet.partial_fit(X[few][:5], everything)
    np.testing.assert_allclose(matrix(unmet), np.vstack([old, np.zeros((1, 64))]), atol=1e-12)
    with pytest.raises(InvalidInputError, match="Y has 6 labels, and the model was fitted with 10"):
        grown.partial_fit(*first)


def test_a_saved_ranker_takes_new_labels(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = (part[:300] for part in digits)
    LoretaLabelRanker(rank=4, random_state=0).partial_fit(X[y < 8], indicators(y[y < 8], 8)).save(
        tmp_path / "m.npz"
    )
    model = LoretaLabelRanker.load(tmp_path / "m.npz").partial_fit(X, indicators(y, 10))
    assert model.decision_function(X).shape == (300, 10)


def test_predictions_have_as_many_labels_as_all_rows_had() -> None:
    X = np.random.default_rng(0).random((30, 8))
    model = LoretaLabelRanker(rank=2, init="gaussian", random_state=0)
    for count, rows in ((1, 10), (4, 20)):
        model.partial_fit(X[:rows], np.arange(6) < np.full((rows, 1), count))
    assert model.top_k_ == round((10 * 1 + 20 * 4) / 30)


def test_a_chunk_has_no_checkpoint(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="hand the parts to fit_stream"):
        LoretaSimilarity(checkpoint=tmp_path / "run.npz").partial_fit(*digits)


def test_a_damaged_run_is_refused() -> None:
    with pytest.raises(LookupError):
        Continued.unpack(
            {"rank": np.array(2), "steps": np.array(0), "updates": np.array(0), "state.factors.A": np.eye(2)}
        )


# The readers

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
    X, y = _parsed(Path("numbers"), text, 0, Format(n_features=len(words)))
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


def write_folder(
    folder: Path, data: tuple[np.ndarray, np.ndarray], rows: tuple[int, ...] = (300, 410, 120)
) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    ends = np.cumsum((0, *rows)).tolist()
    for number, (a, b) in enumerate(pairwise(ends)):
        dump_svmlight_file(data[0][a:b], data[1][a:b], str(folder / f"{number}.svmlight"))
    return folder


def same(first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    return all(
        (one != other).nnz == 0 if sp.issparse(one) else bool((one == other).all())
        for one, other in zip(first, second, strict=True)
    )


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


FORMATS = ("svmlight", "gz", "npz", "csv", "mtx", "texts", "labels")


def formatted(kind: str, tmp_path: Path, data: tuple[np.ndarray, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    """Write digits in a format; return the folder, and how to read it."""
    folder = tmp_path / kind
    X, y = data
    if kind == "texts":
        for number in range(300):
            path = folder / f"class{y[number]}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(" ".join(f"word{place}" for place in np.flatnonzero(X[number] > 0.9)))
        return folder, {"n_features": 256}
    write_folder(folder, data)
    if kind == "gz":
        for path in folder.iterdir():
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    if kind in ("npz", "csv"):
        binary = tmp_path / "binary"
        stream(folder, n_features=64, batch_size=211).save(binary)
        if kind == "npz":
            return binary, {}
        (tmp_path / "tables").mkdir()
        for path in sorted(binary.iterdir()):
            [(rows, labels)] = stream(path)
            table = np.column_stack([labels, rows.toarray()])
            head = ",".join(["label", *map(str, range(64))])
            np.savetxt(
                tmp_path / "tables" / f"{path.stem}.csv", table, "%.17g", ",", header=head, comments=""
            )
        return tmp_path / "tables", {}
    if kind == "mtx":
        for path in sorted(folder.iterdir()):
            [(rows, labels)] = stream(path, n_features=64)
            mmwrite(path.with_suffix(".mtx"), rows, precision=17, symmetry="general")
            path.with_suffix(".labels").write_text("\n".join(map(str, labels)))
            path.unlink()
        return folder, {}
    if kind == "labels":
        for number, path in enumerate(sorted(folder.iterdir())):
            lines = path.read_text().splitlines()
            path.write_text(
                "".join(f"{number},{line.partition(' ')[0]} {line.partition(' ')[2]}\n" for line in lines)
            )
        return folder, {"n_features": 64, "multilabel": True}
    return folder, {"n_features": 64}


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


def test_texts_are_hashed(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    folder, how = formatted("texts", tmp_path, digits)
    [(X, y)] = stream(folder, random_state=0, **how)
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


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "text": ("1 0:1\n2 1:1\n3 oops\n", {}, r"line 3 of .*a\.svmlight has no index:value where .* 'oops'; repair"),
    "value": ("1 0:1\n2 1:x7\n", {}, r"line 2 of .* has no number behind an index: '1:x7'"),
    "no value": ("1 0:1\n2 1:\n", {}, r"line 2 of .* has no number behind an index"),
    "label": ("1 0:1\ncat 1:1\n", {}, r"line 2 of .* has no number for a label, .*: 'cat'"),
    "wide": ("1 0:1\n2 3:1\n", {}, r"line 2 of .* has a feature beyond n_features = 3: '3:1'; .* zero_based=False"),
    "zero": ("1 1:1\n2 0:1\n", {"zero_based": False}, r"line 2 of .* has a feature 0: '0:1'; .* zero_based=True"),
    "several": ("1 0:1\n1,2 0:1\n", {}, r"line 2 of .* has 2 labels; .* multilabel=True"),
    "names": ("1.5 0:1\n", {"multilabel": True}, r"has the label 1.5; with multilabel=True they are numbers"),
    "infinite": ("1 0:1\n2 0:inf\n", {}, r"holds inf in a row"),
    "empty": ("", {}, r"a\.svmlight is empty; remove it"),
    "comments": ("# nothing\n", {}, r"a\.svmlight holds no rows; remove it"),
    "width": ("1 0:1\n", {"n_features": None}, r"does not say how many features there are; say n_features"),
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


# Runs over streams


def follower(path: Path | None = None, **how: Any) -> LoretaSimilarity:
    return LoretaSimilarity(**{"rank": 5, "random_state": 0, "checkpoint": path, **how})


class _StopError(Exception):
    pass


def broken_off(chunks: Any, number: int) -> Iterator[Any]:
    """Give so many chunks, and fail."""
    for count, chunk in enumerate(chunks):
        if count == number:
            raise _StopError
        yield chunk


@pytest.mark.parametrize("name", CASES)
def test_a_run_over_own_chunks_is_resumed(
    name: str, digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.Checkpoint.due", lambda *_: True)
    chunks = chunks_of(name, digits, (40, 70, 33, 50))
    make, path = CASES[name][0], tmp_path / "run.npz"
    for number in (1, 3):
        with pytest.raises(_StopError):
            make(checkpoint=path).fit_stream(broken_off(chunks, number))
    resumed = make(checkpoint=path).fit_stream(iter(chunks))
    assert_same_bits(resumed, make().fit_stream(chunks))
    assert_same_bits(resumed, learned(make(), chunks))
    # A run that has ended is what it was.
    again = make(checkpoint=path).fit_stream(chunks)
    assert_same_bits(again, resumed)
    assert again.score(*chunks[0]) == resumed.score(*chunks[0])
    with pytest.raises(InvalidInputError, match="chunk 4 is not the one that was learned"):
        make(checkpoint=path).fit_stream([*chunks[:3], chunks[0]])
    with pytest.raises(InvalidInputError, match="the stream has 2 chunks, and 4 were learned"):
        make(checkpoint=path).fit_stream(chunks[:2])
    with pytest.raises(InvalidInputError, match="its step_size is"):
        make(checkpoint=path).set_params(step_size=0.3).fit_stream(chunks)


def test_a_changed_folder_is_not_resumed(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.Checkpoint.due", lambda *_: True)
    folder, path = write_folder(tmp_path / "data", digits), tmp_path / "run.npz"

    def chunks(**how: Any) -> Any:
        return stream(folder, **{"n_features": 64, "batch_size": 100, **how})

    class Cut:
        """A stream that ends by an error, and knows its place."""

        def __init__(self) -> None:
            self.chunks = chunks()

        state = property(lambda self: self.chunks.state)

        def __iter__(self) -> Iterator[Any]:
            return broken_off(self.chunks, 3)

        def seek(self, state: Any) -> None:
            self.chunks.seek(state)

    with pytest.raises(_StopError):
        follower(path).fit_stream(Cut())
    with pytest.raises(InvalidInputError, match="lies among the files of the stream"):
        follower(folder / "run.npz").fit_stream(chunks())
    with pytest.raises(InvalidInputError, match="was read with batch_size = 100, and now it is 50"):
        follower(path).fit_stream(chunks(batch_size=50))
    first = folder / "0.svmlight"
    before = first.read_text()
    first.write_text(before.replace("0:", "1:", 1) + before)
    with pytest.raises(InvalidInputError, match=r"0\.svmlight has changed since the checkpoint; bring"):
        follower(path).fit_stream(chunks())
    first.write_text(before)
    (folder / "9.svmlight").write_text("1 0:1\n")
    with pytest.raises(InvalidInputError, match=r"9\.svmlight is new since the checkpoint"):
        follower(path).fit_stream(chunks())
    (folder / "9.svmlight").unlink()
    assert_same_bits(follower(path).fit_stream(chunks()), follower().fit_stream(chunks()))


def test_strange_chunks_are_refused(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    with pytest.raises(InvalidInputError, match=r"chunk 1 of the stream must be a pair \(X, y\)"):
        follower().fit_stream([X[:20]])
    with pytest.raises(InvalidInputError, match="there are no chunks to learn from"):
        follower().fit_stream(iter([]))
    with pytest.raises(InvalidInputError, match=r"begins with row 21: y has 1 class .* or a shuffle_buffer"):
        follower().fit_stream([(X[:20], y[:20]), (X[y == 3][:20], y[y == 3][:20])])
    with pytest.raises(
        InvalidInputError, match=r"chunk 2 of the stream, which begins with row 21: Input X contains NaN"
    ):
        follower().fit_stream([(X[:20], y[:20]), (X[:20] * np.nan, y[:20])])


def test_a_drawn_seed_is_kept(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.Checkpoint.due", lambda *_: True)
    chunks = chunks_of("sparse", digits)
    with pytest.raises(_StopError):
        follower(tmp_path / "a.npz", random_state=None).fit_stream(broken_off(chunks, 1))
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    first, second = (
        follower(tmp_path / name, random_state=None).fit_stream(chunks) for name in ("a.npz", "b.npz")
    )
    assert_same_bits(first, second)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to save the time of imports.")
def test_a_killed_run_over_files_ends_with_the_same_bits(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.Checkpoint.due", lambda *_: True)
    folder, path = write_folder(tmp_path / "data", digits), tmp_path / "run.npz"

    def run(saved: Path | None) -> LoretaSimilarity:
        chunks = stream(folder, n_features=64, batch_size=50, n_epochs=5, shuffle_buffer=200, random_state=0)
        return follower(saved).fit_stream(chunks)

    whole, moments, kills = run(None), np.random.default_rng(0), 0
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside idle threads
            child = os.fork()
        if child == 0:
            try:
                run(path)
            finally:
                os._exit(0)
        while not path.exists():
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert kills > 0
    assert_same_bits(run(path), whole)


@pytest.fixture
def fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Any, str, str]]:
    """Return `rmopt fit` in this process, which gives its status and what it says."""
    entries = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"][
        "entry-points"
    ]
    models = EntryPoints(EntryPoint(*one, "rmopt.models") for one in entries["rmopt.models"].items())
    monkeypatch.setattr("rmopt.cli.plugins.entry_points", lambda group: models.select(group=group))

    def call(*words: object) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["fit", *map(str, words)])
        return ended.value.code, *capsys.readouterr()

    return call


def test_a_model_is_fitted_from_the_command_line(
    fit: Callable[..., tuple[Any, str, str]], digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    folder, _ = formatted("labels", tmp_path, digits)
    write_folder(tmp_path / "classes", digits)
    cases = {
        "similarity": (tmp_path / "classes", LoretaSimilarity(6, init="gaussian", random_state=3), False),
        "ranking": (folder, LoretaLabelRanker(6, random_state=3), True),
    }
    for name, (files, model, several) in cases.items():
        out = tmp_path / f"out-{name}"
        words = (
            name,
            files,
            "--n-features",
            64,
            "--rank",
            6,
            "--batch-size",
            300,
            "--seed",
            3,
            "--out",
            out,
            "--json",
        )
        status, said, _ = fit(*words)
        assert (status, json.loads(said)["rows"][0]["rows"]) == (0, 830)
        model.fit_stream(stream(files, n_features=64, batch_size=300, multilabel=several))
        assert_same_bits(type(model).load(out / "model.npz"), model)
        status, _, told = fit(*words)
        assert status == 2
        assert "say --resume to go on from it, or choose another --out" in told
        before = (out / "model.npz").read_bytes()
        status, said, _ = fit(*words, "--resume", "--epochs", 2)
        assert (status, json.loads(said)["rows"][0]["rows"]) == (0, 1660)
        assert (out / "model.npz").read_bytes() != before
    assert fit("similarity", tmp_path / "classes", "--out", tmp_path / "new")[0] == 2
    assert "there is no model 'simlarity'; did you mean 'similarity'?" in fit("simlarity", folder)[2]


def test_the_parser_says_where_it_stopped() -> None:
    text = np.frombuffer(b"1 0:1\n2 5:1\n", np.uint8)
    spaces = [np.empty(9), np.empty(9, np.int64), np.empty(9, np.int32), np.empty(9), np.empty(9, np.int64)]
    assert kernels.parse(text, 0, 3, *spaces, np.empty((9, 3), np.int64))[3:] == (kernels.ABOVE, 8)
