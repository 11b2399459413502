"""Damaged files of every kind: each gives the old result or one sentence, never another result."""

import struct
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tabled import each_row

import problems.data.sets
from problems.data import MultilabelBundle, Ratings, TagBundle, TaskBundle, load
from problems.data.sets import BACKGROUND
from problems.similarity import LoretaSimilarity
from rmopt.core import InvalidInputError, StorageError
from rmopt.files import load_arrays, read_arrays, save_arrays

Make = Callable[[Path], tuple[Path, Callable[[], Any]]]


def orthonormal(n: int, k: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(n).standard_normal((n, k)))[0]


def archive(folder: Path) -> tuple[Path, Callable[[], Any]]:
    path = folder / "checkpoint.npz"
    save_arrays(path, {"U": orthonormal(6, 2), "order": np.arange(9)}, {"step": 4})
    # A caller that names no layout takes any numbers.
    return path, lambda: repr(load_arrays(path)).replace("nan", "a number that is none")


def similarity(folder: Path) -> tuple[Path, Callable[[], Any]]:
    path, X = folder / "similarity.npz", np.random.default_rng(0).standard_normal((12, 6))
    LoretaSimilarity(2, max_iter=9, init="gaussian", random_state=0).fit(X, np.arange(12) % 2).save(path)

    def read() -> Any:
        model = LoretaSimilarity.load(path)
        return model.model_.point, model.n_iter_, model.n_updates_

    return path, read


def counts(n: int, m: int) -> dict[str, np.ndarray]:
    X = sp.csr_array(np.random.default_rng(0).poisson(1.0, (n, m)).astype(np.float32))
    return {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr, "X_shape": np.array(X.shape)}


def data(name: str, file: str, kind: Any, arrays: dict[str, Any]) -> Make:
    def make(folder: Path) -> tuple[Path, Callable[[], Any]]:
        path = folder / file
        np.savez_compressed(path, **arrays)
        return path, lambda: load(name, folder, kind)

    return make


def text(name: str, file: str, kind: Any, content: str) -> Make:
    def make(folder: Path) -> tuple[Path, Callable[[], Any]]:
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return path, lambda: load(name, folder, kind)

    return make


Y = (np.arange(12).reshape(6, 2) % 3 == 0).astype(np.uint8)
TABLE = np.column_stack([np.arange(12) // 4, np.random.default_rng(1).standard_normal((12, 21))])
POSTS = np.indices((16, 16)).reshape(2, -1)
CLASSES = np.array([BACKGROUND, *(f"class {number}" for number in range(50))])
MAKERS: dict[str, Make] = {
    "checkpoint": archive,
    "similarity": similarity,
    "news20": data(
        "news20", "news20_bydate_cai.npz", object,
        counts(6, 5) | {"y": np.array([1, 2, 1, 2, 1, 2], np.uint8), "is_test": np.arange(6) > 3},
    ),
    "caltech101": data(
        "caltech101", "caltech101_bow1000_derived.npz", object,
        counts(510, 4) | {"y": np.arange(510) % 51, "class_names": CLASSES},
    ),
    "mnist": data("mnist", "mnist.npz", object, {
        "X": np.arange(24, dtype=np.uint8).reshape(6, 2, 2), "y": np.arange(6) % 2, "n_train": np.array(4),
    }),
    "emotions": data("emotions", "emotions.npz", MultilabelBundle, {"X": TABLE[:6, :3], "Y": Y, "n_train": 4}),
    "bibtex": data("bibtex", "bibtex.npz", MultilabelBundle, counts(6, 5) | {"Y": Y, "n_train": 4}),
    "ml100k": data("ml100k", "ml100k.npz", Ratings, {
        "user": np.arange(8) // 2, "item": np.arange(8) % 3, "rating": np.arange(8, dtype=np.uint8) % 5 + 1,
    }),
    "u.data": text("ml100k", "ml-100k/u.data", Ratings, "1\t2\t3\t0\n2\t1\t5\t0\n2\t2\t1\t0\n"),
    "parkinsons": data("parkinsons", "parkinsons_telemonitoring.npz", TaskBundle, {"X": TABLE}),
    "ml10m": data("ml10m-tags", "ml10m_tags.npz", TagBundle, {
        "user": POSTS[0], "movie": POSTS[1], "tag": POSTS[0] * 0,
        "tag_names_utf8": np.frombuffer(b"fun\nsad", np.uint8),
    }),
    "tags.dat": text(
        "ml10m-tags", "tags.dat", TagBundle, "".join(f"{u}::{i}::fun::0\n" for u in range(16) for i in range(16)),
    ),
}  # fmt: skip


def bits(value: Any) -> Any:
    """Return what can be compared with ==."""
    if sp.issparse(value):
        return bits(value.toarray())
    if isinstance(value, np.ndarray):
        return value.dtype.kind, value.shape, value.tolist()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bits(item) for item in value]
    return bits(vars(value)) if hasattr(value, "__dict__") else value


def damaged_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, flip or overwrite, as disks and transfers do."""
    at, size = int(rng.integers(len(content))), int(rng.integers(1, 60))
    junk = rng.bytes(size)
    return [
        content[:at],
        content[:at] + bytes([content[at] ^ (1 << int(rng.integers(8)))]) + content[at + 1 :],
        content[:at] + junk + content[at + size :],
        content[:at] + junk + content[at:],
        content[:at] + content[at + size :],
        b"",
    ][rng.choice(6, p=[0.25, 0.3, 0.2, 0.12, 0.12, 0.01])]


def crafted(path: Path, rng: np.random.Generator) -> str:
    """Write another sound archive in the place of one, and say what differs."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    name, other = rng.choice(list(arrays)), rng.choice(list(arrays))
    array = arrays[name]
    first = np.arange(array.size).reshape(array.shape) == 0
    number = rng.choice([-1.0, 10.0**9, 2.0**40, np.nan, np.inf, 0.5])
    kinds: dict[str, Callable[[], Any]] = {
        "missing": lambda: arrays.pop(name),
        "extra": lambda: arrays.update(extra=np.ones(3)),
        "swapped": lambda: arrays.update({name: arrays[other], other: array}),
        "text": lambda: arrays.update({name: array.astype("U8")}),
        "complex": lambda: arrays.update({name: array.astype(complex) + 1j}),
        "swapped bytes": lambda: arrays.update({name: array.astype(array.dtype.newbyteorder(">"))}),
        "half": lambda: arrays.update({name: array[: len(array) // 2] if array.ndim else array[None]}),
        "wider": lambda: arrays.update(
            {name: np.concatenate([array, array], -1) if array.ndim else array[None]}
        ),
        "number": lambda: arrays.update({name: np.where(first, number, array)}),
        "dates": lambda: arrays.update({name: np.zeros(array.shape, "M8[s]")}),
        "empty": lambda: arrays.update({name: array.reshape(-1)[:0]}),
    }
    kind = str(rng.choice(list(kinds)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds[kind]()
        if kind == "number" and array.dtype.kind in "iu" and np.isfinite(number):
            arrays[name] = arrays[name].astype(np.int64)
    np.savez(path, **arrays)
    return kind


def outcome(read: Callable[[], Any], expected: Any, sound: bool) -> str:
    try:
        found = bits(read())
    except StorageError:
        return "StorageError"
    except InvalidInputError:
        return "InvalidInputError"
    assert "nan" not in repr(found), "NaN went unseen"
    if found == expected:
        return "the old result"
    # A file that is whole and holds other sound arrays is another file.
    assert sound, "damage went unseen"
    return "another sound file"


def fuzz(folder: Path, rounds: int, monkeypatch: pytest.MonkeyPatch) -> Counter:
    monkeypatch.setattr(problems.data.sets, "ML10M_CORE", 4)
    rng, found = np.random.default_rng(0), Counter()
    for name, make in MAKERS.items():
        (folder / name).mkdir()
        path, read = make(folder / name)
        content, expected = path.read_bytes(), bits(read())
        for turn in range(rounds):
            path.write_bytes(content)
            npz = path.suffix == ".npz"
            if npz and turn % 2:
                how, sound = crafted(path, rng), True
            else:
                path.write_bytes(damaged_bytes(content, rng))
                # Text has no check sum; what can be read is another file.
                how, sound = "bytes", path.suffix in (".data", ".dat")
            try:
                found[outcome(read, expected, sound)] += 1
            except Exception as error:
                kept = folder / f"seen-{name}"
                kept.write_bytes(path.read_bytes())
                raise AssertionError(f"{name}, {how}, turn {turn}: {type(error).__name__} {error}") from error
    return found


def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fuzz(tmp_path, 12, monkeypatch)
    print(dict(found))
    assert found["StorageError"] > 100


@pytest.mark.slow
def test_many_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fuzz(tmp_path, 200, monkeypatch)
    print(dict(found), found.total())
    assert found.total() >= 3000


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


@each_row("shape", ["(1099511627776,)", "(-1,)", "(2, 3)", "(1e3,)", "(" * 300, "((((1,),),),)"])
def test_headers_that_claim_too_much(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as written:
        written.writestr("x.npy", npy(header) + bytes(8))
    with pytest.raises(StorageError, match=r"a\.npz is damaged"):
        read_arrays(tmp_path / "a.npz")


def test_archives_that_unpack_to_too_much(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(2**24))
    assert path.stat().st_size < 200_000
    with pytest.raises(StorageError, match=r"would unpack to 134,217,8.., and 67,108,864 are allowed"):
        read_arrays(path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(StorageError, match="Object arrays"):
        read_arrays(tmp_path / "a.npz")


def test_formats(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_arrays(path, {"x": np.ones(2)}, {"step": 1})
    assert load_arrays(path)[1] == {"step": 1}
    # Version 0.1 wrote no format.
    np.savez(path, x=np.ones(2), about=np.frombuffer(b'{"step": 1}', np.uint8))
    assert load_arrays(path)[1] == {"step": 1}
    for about, words in (
        (b'{"format": 2}', "install a newer rmopt"), (b"[1]", "no description"), (b"[" * 9999, "damaged"),
        (b"\xff", "damaged"), (b'{"format": "x"}', "format x"),
    ):  # fmt: skip
        np.savez(path, x=np.ones(2), about=np.frombuffer(about, np.uint8))
        with pytest.raises(StorageError, match=words):
            load_arrays(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"V": None}, "it holds U, S, classes_ instead"),
        ({"extra": np.ones(2)}, "extra instead"),
        ({"S": np.eye(1)}, "S has shape"),
        ({"V": orthonormal(7, 3)}, "V has shape"),
        ({"U": orthonormal(6, 2) + 0j}, "U holds complex128"),
        ({"U": np.full((6, 2), np.nan)}, "NaN"),
        ({"U": 2 * orthonormal(6, 2)}, "U is not orthonormal"),
    ],
)
def test_models_are_what_they_say(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path, _ = similarity(tmp_path)
    arrays, about = load_arrays(path)
    arrays |= {"U": orthonormal(6, 2), "S": np.eye(2), "V": orthonormal(6, 2)} | change
    save_arrays(path, {name: array for name, array in arrays.items() if array is not None}, about)
    with pytest.raises(StorageError, match=words):
        LoretaSimilarity.load(path)
