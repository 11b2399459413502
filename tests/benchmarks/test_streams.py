"""Streams: what a chunk costs, how fast files are read, and learning from files beside learning from memory.

Run with ``pytest -o addopts= -s tests/benchmarks/test_streams.py``. Rows have 100 non-zeros among 10⁶ features, and
unit length; half of the features of a row belong to its class.

`test_killed_and_resumed` learns from RMOPT_STREAM_ROWS rows (10⁶ unless set) in files of 12 MB for each 10⁴, at most
RMOPT_STREAM_FILES of them (1,000), passed over as often as it takes. 10⁸ rows take 12 GB of disk and 70 minutes.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from problems.data import stream
from problems.similarity import LoretaSimilarity

N_FEATURES, N_CLASSES, STORED = 10**6, 100, 100
CHUNK, CHUNKS = 10_000, 4

# What a process of its own runs, so that its peak of memory is that of one way alone.
ALONE = """
import json, sys, time
from pathlib import Path
from problems.data import stream
from problems.similarity import LoretaSimilarity

def peak():
    # Not ru_maxrss, which also knows of the process before.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])

folder, rank, checkpoint = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = LoretaSimilarity(rank, step_size=0.1, random_state=0, checkpoint=checkpoint)
chunks = stream(folder, batch_size=10_000)
began = time.process_time()
model.fit_stream(chunks, steps_per_row=1)
seconds, learning = time.process_time() - began, peak()
model.save(checkpoint + ".model.npz")
print(json.dumps([chunks.n_rows, seconds, learning, peak()]))
"""


def rows_of(number: int, count: int = CHUNK) -> tuple[sp.csr_array, np.ndarray]:
    """Return rows and their classes."""
    rng = np.random.default_rng([5, number])
    y = rng.integers(N_CLASSES, size=count)
    own = (y[:, None] * 10_000 + rng.integers(10_000, size=(count, STORED // 2))) % N_FEATURES
    anywhere = rng.integers(N_FEATURES, size=(count, STORED // 2))
    indices = np.concatenate([own, anywhere], axis=1).astype(np.int32)
    data = rng.random((count, STORED))
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    starts = np.arange(0, count * STORED + 1, STORED, dtype=np.int32)
    X = sp.csr_array((data.ravel(), indices.ravel(), starts), shape=(count, N_FEATURES))
    X.sum_duplicates()
    return X, y


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the same rows as text and as arrays."""
    root = tmp_path_factory.mktemp("streams")
    for name in ("svmlight", "npz"):
        (root / name).mkdir()
    for number in range(CHUNKS):
        X, y = rows_of(number)
        dump_svmlight_file(X, y, str(root / "svmlight" / f"{number}.svmlight"))
        parts = {f"X_{part}": getattr(X, part) for part in ("data", "indices", "indptr", "shape")}
        np.savez(root / "npz" / f"{number}.npz", y=y, **parts)
    return {name: root / name for name in ("svmlight", "npz")}


@pytest.mark.parametrize("k", [10, 30])
def test_a_chunk(measured: Any, k: int) -> None:
    """A chunk of 10,000 rows, one step a row: as partial_fit has it, and by way of the point, as fit has it."""

    def work() -> list[dict[str, Any]]:
        chunks = [rows_of(number) for number in range(4)]
        kept = LoretaSimilarity(k, step_size=0.1, random_state=0)
        again = LoretaSimilarity(k, step_size=0.1, random_state=0)

        def by_the_point(chunk: Any) -> None:
            again.start_at(again.model_.point, again.n_iter_).partial_fit(*chunk, max_iter=CHUNK)

        for model in (kept, again):
            model.partial_fit(*chunks[0], max_iter=CHUNK)
        seconds: dict[str, list[float]] = {"kept": [], "again": []}
        for chunk in chunks[1:]:
            for name, learn in (
                ("kept", lambda one: kept.partial_fit(*one, max_iter=CHUNK)), ("again", by_the_point)
            ):  # fmt: skip
                begun = time.process_time()
                learn(chunk)
                seconds[name].append(time.process_time() - begun)
        ours, theirs = (float(np.median(one)) for one in seconds.values())
        return [{"rank": k, "partial_fit, s": ours, "by the point, s": theirs, "ratio": theirs / ours}]

    measured(work)


def test_parsers(measured: Any, folders: dict[str, Path]) -> None:
    """Reading alone, microseconds of one core for a row of 100 non-zeros."""

    def work() -> list[dict[str, Any]]:
        def cpu(read: Any) -> float:
            begun = time.process_time()
            read()
            return (time.process_time() - begun) / (CHUNK * CHUNKS) * 1e6

        def by_scikit_learn() -> None:
            for path in sorted(folders["svmlight"].iterdir()):
                load_svmlight_file(str(path), n_features=N_FEATURES)

        def by(name: str, n_features: int | None = None) -> float:
            def read() -> None:
                for _ in stream(folders[name], n_features=n_features, batch_size=CHUNK):
                    pass

            return float(np.median([cpu(read) for _ in range(3)]))

        theirs = float(np.median([cpu(by_scikit_learn) for _ in range(3)]))
        ours, binary = by("svmlight", N_FEATURES), by("npz")
        size = sum(path.stat().st_size for path in folders["svmlight"].iterdir()) / (CHUNK * CHUNKS)
        return [
            {"reader": "load_svmlight_file of scikit-learn", "µs a row": theirs, "MB/s": size / theirs, "ratio": 1.0},
            {"reader": "stream, .svmlight", "µs a row": ours, "MB/s": size / ours, "ratio": theirs / ours},
            {"reader": "stream, .npz", "µs a row": binary, "MB/s": None, "ratio": theirs / binary},
        ]  # fmt: skip

    measured(work)


@pytest.mark.parametrize("per_row", [1, 10])
def test_learning_from_files(measured: Any, folders: dict[str, Path], per_row: int) -> None:
    """The same steps from memory and from files, rank 10: time of a row, and the share of the speed in memory."""

    def work() -> list[dict[str, Any]]:
        held = list(stream(folders["npz"], batch_size=CHUNK))
        sources: dict[str, Any] = {
            "memory": lambda: held,
            ".npz": lambda: stream(folders["npz"], batch_size=CHUNK),
            ".svmlight": lambda: stream(folders["svmlight"], n_features=N_FEATURES, batch_size=CHUNK),
        }
        wall: dict[str, list[float]] = {name: [] for name in sources}
        cpu: dict[str, list[float]] = {name: [] for name in sources}
        for turn in range(4):
            for name, chunks in sources.items():
                model = LoretaSimilarity(10, step_size=0.1, random_state=0)
                begun, used = time.perf_counter(), time.process_time()
                model.fit_stream(chunks(), steps_per_row=per_row)
                # The first turn compiles, and fills the caches of the disk.
                if turn:
                    wall[name].append((time.perf_counter() - begun) / (CHUNK * CHUNKS) * 1e6)
                    cpu[name].append((time.process_time() - used) / (CHUNK * CHUNKS) * 1e6)
        times = {name: (float(np.median(wall[name])), float(np.median(cpu[name]))) for name in sources}
        rows = []
        for name, (waited, used) in times.items():
            shares = {
                "of memory": times["memory"][0] / waited,
                "of memory, one core": times["memory"][1] / used,
            }
            rows.append(
                {"steps a row": per_row, "from": name, "wall, µs": waited, "one core, µs": used, **shares}
            )
        return rows

    measured(work)


@pytest.mark.parametrize("k", [5, 10])
def test_memory(measured: Any, folders: dict[str, Path], k: int, tmp_path: Path) -> None:
    """Peak memory of a process that learns from .npz with a checkpoint, all of Python included."""

    def work() -> list[dict[str, Any]]:
        command = [sys.executable, "-c", ALONE, str(folders["npz"]), str(k), str(tmp_path / "run.npz")]
        said = subprocess.run(command, check=True, capture_output=True, env=os.environ).stdout
        rows, seconds, learning, saving = json.loads(said)
        about = {"rank": k, "rows": rows, "one core, µs a row": 1e6 * seconds / rows}
        factors = 16e-9 * N_FEATURES * -(-k // 4) * 4
        peaks = {"learning, GB": learning / 1e6, "with the model written, GB": saving / 1e6}
        return [about | {"factors, GB": factors} | peaks]

    measured(work)


def test_killed_and_resumed(measured: Any, tmp_path: Path) -> None:
    """``rmopt fit similarity`` of a folder, rank 10, a step a row: whole, and killed by -9 at ten random moments."""
    measured(killed_and_resumed, tmp_path)


def killed_and_resumed(root: Path) -> list[dict[str, Any]]:
    rows = int(os.environ.get("RMOPT_STREAM_ROWS", 10**6))
    files = min(rows // CHUNK, int(os.environ.get("RMOPT_STREAM_FILES", 1_000)))
    folder, epochs = root / "npz", rows // (files * CHUNK)
    folder.mkdir()
    for number in range(files):
        X, y = rows_of(number)
        named = {f"X_{part}": getattr(X, part) for part in ("data", "indices", "indptr", "shape")}
        np.savez(folder / f"{number:04d}.npz", y=y, **named)
    options = ["--rank", "10", "--step-size", "0.1", "--steps-per-row", "1", "--quiet"]

    def fit(out: str, *more: str, until: float = float("inf")) -> tuple[float, float, float, bool]:
        """Return the seconds by the clock and of processors, the peak in GB, and whether it came to its end."""
        given = ["fit", "similarity", folder, *options, "--epochs", str(epochs), "--out", root / out, *more]
        begun, before, peak = time.perf_counter(), children(), 0.0
        process = subprocess.Popen([sys.executable, "-m", "rmopt.cli", *map(str, given)])
        while process.poll() is None:
            peak = max(peak, peak_of(process.pid))
            time.sleep(0.1)
            if time.perf_counter() - begun > until:
                process.kill()
                process.wait()
        seconds = time.perf_counter() - begun
        assert process.returncode in (0, -9), process.returncode
        return seconds, children() - before, peak, process.returncode == 0

    held = min(rows, 10**6)
    model, chunks = (
        LoretaSimilarity(10, step_size=0.1, random_state=0),
        [rows_of(n) for n in range(held // CHUNK)],
    )
    model.fit_stream(chunks[:1], steps_per_row=1)
    begun, used = time.perf_counter(), time.process_time()
    model.fit_stream(chunks, steps_per_row=1)
    inside = time.perf_counter() - begun, time.process_time() - used
    del chunks
    table = [
        {"run": "in memory", "rows": held, "clock, µs a row": 1e6 * inside[0] / held, "of memory": 1.0,
         "one core, µs a row": 1e6 * inside[1] / held}
    ]  # fmt: skip
    clock, cpu, peak, done = fit("whole")
    assert done
    table.append(
        {"run": "whole", "rows": rows, "clock, µs a row": 1e6 * clock / rows,
         "of memory": inside[0] / held * rows / clock,
         "one core, µs a row": 1e6 * cpu / rows, "peak, GB": peak}
    )  # fmt: skip
    print(table, flush=True)
    moments, kills, done, top = random.Random(0), 0, False, 0.0
    while not done:
        # Nobody resumes what had no time to begin.
        again = ("--resume",) if (root / "killed").exists() else ()
        until = moments.uniform(0.02, 0.15) * clock if kills < 10 else float("inf")
        *_, peak, done = fit("killed", *again, until=until)
        top, kills = max(top, peak), kills + (not done)
    one, other = (np.load(root / out / "model.npz") for out in ("whole", "killed"))
    same = sorted(one.files) == sorted(other.files) and all(
        one[n].tobytes() == other[n].tobytes() for n in one.files
    )
    table.append({"run": f"killed {kills} times", "rows": rows, "peak, GB": top, "same bits": str(same)})
    return table


def children() -> float:
    """Return the seconds of processors that ended processes used."""
    found = os.times()
    return found.children_user + found.children_system


def peak_of(process: int) -> float:
    """Return the most memory that a process has had, in GB."""
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8")
    except OSError:
        return 0.0
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e6 if "VmHWM:" in status else 0.0
