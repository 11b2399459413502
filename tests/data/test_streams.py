"""Data in chunks: what an estimator keeps between them, and runs over streams that are taken up again."""

import json
import os
import pickle
import signal
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
from stream_parts import FORMATS, formatted, write_folder

from problems.data import stream
from problems.loreta import loreta_solver
from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from rmopt import InvalidInputError
from rmopt.cli import main
from rmopt.core import LowRankPoint
from rmopt.solvers.stochastic.continued import Continued

Chunks = list[tuple[Any, Any]]


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
def test_chunks_follow_the_reference_engine(
    name: str, digits: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, _ = CASES[name]
    chunks = chunks_of(name, digits)
    steps = {"max_iter": 90} if isinstance(make(), LoretaSimilarity) else {}
    compiled = learned(make(), chunks, **steps)
    for family in ("similarity", "ranking"):
        solver = partial(loreta_solver, engine="reference")
        monkeypatch.setattr(f"problems.{family}.estimators.loreta_solver", solver)
    plain = learned(make(), chunks, **steps)
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


def test_labels_that_come_late_begin_at_zero(
    digits: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = digits
    few, rest = y < 6, y >= 6
    first = sp.csr_array(X[few][:150]), indicators(y[few][:150], 6)
    second = sp.csr_array(X[rest][:90]), indicators(y[rest][:90], 10)
    how: dict[str, Any] = {"rank": 4, "random_state": 0, "step_size": 0.02}
    grown = LoretaLabelRanker(**how).partial_fit(*first)
    grown.partial_fit(*second)
    assert (grown.n_labels_, grown.decision_function(X[:2]).shape) == (10, (2, 10))
    # Where Ctrl-C ends a chunk with new labels, the model has them.
    cut = LoretaLabelRanker(**how).partial_fit(*first)
    with monkeypatch.context() as patched:
        patched.setattr(Continued, "learn", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cut.partial_fit(*second)
    np.testing.assert_array_equal(matrix(cut.partial_fit(*second)), matrix(grown))
    # Labels that no row names and no draw met keep their zeros.
    unmet = LoretaLabelRanker(sampling="exact", **how).partial_fit(*first)
    old = matrix(unmet)
    everything = np.ones((5, 7))
    unmet.partial_fit(X[few][:5], everything)
    np.testing.assert_allclose(matrix(unmet), np.vstack([old, np.zeros((1, 64))]), atol=1e-12)
    with pytest.raises(InvalidInputError, match="Y has 6 labels, and the model was fitted with 10"):
        grown.partial_fit(*first)


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
    monkeypatch.setattr("rmopt.solvers.save.Saver.due", lambda *_: True)
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
    with pytest.raises(InvalidInputError, match="the first 4 chunks are not those"):
        make(checkpoint=path).fit_stream([*chunks[:3], chunks[0]])
    with pytest.raises(InvalidInputError, match="the stream has 2 chunks, and 4 were learned"):
        make(checkpoint=path).fit_stream(chunks[:2])
    with pytest.raises(InvalidInputError, match="its step_size is"):
        make(checkpoint=path).set_params(step_size=0.3).fit_stream(chunks)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_run_over_files_of_any_kind_is_resumed(
    kind: str, digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.save.Saver.due", lambda *_: True)
    folder, how = formatted(kind, tmp_path, digits)

    def run(saved: Path | None, stop: int | None = None) -> Any:
        model = LoretaLabelRanker if kind == "labels" else LoretaSimilarity
        chunks = stream(folder, batch_size=70, n_epochs=2, random_state=4, **how)
        fitted = model(4, init="gaussian", random_state=0, checkpoint=saved)
        return fitted.fit_stream(chunks if stop is None else broken_off(chunks, stop))

    whole = run(None)
    for stop in (1, 5):
        with pytest.raises(_StopError):
            run(tmp_path / "kept" / "run.npz", stop)
    assert_same_bits(run(tmp_path / "kept" / "run.npz"), whole)


def test_strange_chunks_are_refused(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    with pytest.raises(InvalidInputError, match=r"chunk 1 of the stream must be a pair \(X, y\)"):
        follower().fit_stream([X[:20]])
    with pytest.raises(InvalidInputError, match=r"chunks = 5 must be an iterable of pairs \(X, y\)"):
        follower().fit_stream(5)
    with pytest.raises(InvalidInputError, match="there are no chunks to learn from"):
        follower().fit_stream(iter([]))
    with pytest.raises(InvalidInputError, match=r"begins with row 21: y has 1 class"):
        follower().fit_stream([(X[:20], y[:20]), (X[y == 3][:20], y[y == 3][:20])])
    with pytest.raises(
        InvalidInputError, match=r"chunk 2 of the stream, which begins with row 21: Input X contains NaN"
    ):
        follower().fit_stream([(X[:20], y[:20]), (X[:20] * np.nan, y[:20])])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to save the time of imports.")
def test_a_killed_run_over_files_ends_with_the_same_bits(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.save.Saver.due", lambda *_: True)
    folder, path = write_folder(tmp_path / "data", digits), tmp_path / "run.npz"

    def run(saved: Path | None) -> LoretaSimilarity:
        chunks = stream(folder, n_features=64, batch_size=50, n_epochs=5)
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
    entries = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "entry-points"
    ]
    models = EntryPoints(EntryPoint(*one, "rmopt.models") for one in entries["rmopt.models"].items())
    monkeypatch.setattr("rmopt.cli.registry.entry_points", lambda group: models.select(group=group))

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
        how = "--n-features 64 --rank 6 --batch-size 300 --seed 3 --json --out"
        words = [name, files, *how.split(), out]
        status, said, _ = fit(*words)
        assert (status, json.loads(said)["rows"][0]["rows"]) == (0, 830)
        model.fit_stream(stream(files, n_features=64, batch_size=300, multilabel=several))
        assert_same_bits(type(model).load(out / "model.npz"), model)
        assert type(model).load(out / "model.npz").checkpoint is None
        status, _, told = fit(*words)
        assert status == 2
        assert "add --resume to continue from it, or choose another --out" in told
        before = (out / "model.npz").read_bytes()
        status, said, _ = fit(*words, "--resume", "--epochs", 2)
        assert (status, json.loads(said)["rows"][0]["rows"]) == (0, 1660)
        assert (out / "model.npz").read_bytes() != before
    np.savez(tmp_path / "narrow.npz", X=digits[0][:40, 20:26].copy(), y=digits[1][:40] % 2)
    _, said, _ = fit("similarity", tmp_path / "narrow.npz", "--out", tmp_path / "narrow", "--json")
    assert json.loads(said)["rows"][0]["rank"] == 3
    assert fit("similarity", tmp_path / "classes", "--out", tmp_path / "new")[0] == 2
    assert "there is no 'simlarity'; did you mean 'similarity'?" in fit("simlarity", folder)[2]
