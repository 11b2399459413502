"""What becomes of files when runs are killed, interrupted, started twice, or told nonsense."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmopt.cli.failures import signals_raise
from rmopt.cli.run import OutputFolder
from rmopt.core import StorageError
from rmopt.files import TEMPORARY, lock_folder, write_atomically

# A process that is killed while it writes, or that only holds a folder.
WRITER = """
import sys, time
from rmopt.files import lock_folder, write_atomically
folder = sys.argv[1]
lock = lock_folder(folder)
def write(stream):
    stream.write(b"half"); stream.flush(); print("here", flush=True); time.sleep(60)
write_atomically(folder + "/a.txt", write)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"here\n"
    yield child
    child.kill()
    child.communicate()


def temporaries(folder: Path) -> list[Path]:
    return list(folder.glob(f".*{TEMPORARY}"))


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path, writer: Any) -> None:
    foreign = tmp_path / ".a.txt.12345678"
    foreign.write_text("not ours")
    write_atomically(tmp_path / "a.txt", lambda stream: stream.write(b"whole"))
    writer.kill()
    writer.wait()
    assert len(temporaries(tmp_path)) == 1
    with OutputFolder(tmp_path, "next"):
        pass
    assert temporaries(tmp_path) == []
    assert (foreign.read_text(), (tmp_path / "a.txt").read_text()) == ("not ours", "whole")


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "far" / "a.txt", tmp_path / "a.txt"
    real.parent.mkdir()
    link.symlink_to(real)
    write_atomically(link, lambda stream: stream.write(b"first"))
    real.chmod(0o600)
    write_atomically(link, lambda stream: stream.write(b"second"))
    assert link.is_symlink()
    assert real.read_bytes() == b"second"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_the_mask_of_the_process_is_followed_and_never_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        monkeypatch.setattr("os.umask", lambda mask: pytest.fail("another thread would see it"))
        write_atomically(tmp_path / "a.txt", lambda stream: stream.write(b"text"))
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_a_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path, writer: Any) -> None:
    with pytest.raises(StorageError, match="another run"):
        OutputFolder(tmp_path, "second")
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    with OutputFolder(tmp_path, "second"):
        pass


def test_folders_that_cannot_be_locked_are_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("rmopt.files.fcntl.flock", refuse)
    assert lock_folder(tmp_path) is None
    write_atomically(tmp_path / "a.txt", lambda stream: stream.write(b"whole"))
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(("number", "status", "word"), [(2, 130, "interrupted"), (15, 143, "terminated")])
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_signals_end_in_one_sentence(
    tmp_path: Path, number: int, status: int, word: str, seconds: float
) -> None:
    # The process tells when it begins; from then on nothing but a sentence may be seen.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from rmopt.cli import main; print(flush=True); main(sys.argv[1:])"
    )
    command = ["run", "similarity", "--triplets", "5000000", "--out", str(tmp_path / "out"), "--quiet"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(seconds + 0.05)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said.count("\n")) == (status, 1), said
    assert said.startswith(f"rmopt: {word}")


@pytest.mark.parametrize(("number", "ended"), [(2, KeyboardInterrupt), (15, SystemExit)])
def test_signals_that_a_library_swallows_come_again(number: int, ended: type[BaseException]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    cleaned = []

    def work() -> None:
        with suppress(BaseException):
            signal.raise_signal(number)
        try:
            time.sleep(30)
        finally:
            # What is on its way is left alone.
            time.sleep(1.5)
            cleaned.append(True)

    # What a shell has told to ignore stays ignored.
    own = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(ended), signals_raise():
            work()
    finally:
        signal.signal(number, own)
    assert cleaned
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_handlers_that_could_not_be_set_again_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    known = signal.getsignal
    before = known(signal.SIGTERM)
    for handler in (None, signal.SIG_IGN):
        monkeypatch.setattr(signal, "getsignal", lambda number, handler=handler: handler)
        with signals_raise():
            assert known(signal.SIGTERM) is before
    monkeypatch.undo()
    with signals_raise():
        assert known(signal.SIGTERM) is not before


@pytest.mark.parametrize(
    ("command", "places"),
    [
        (["list"], ["full"]),
        (["list", "--json"], ["closed"]),
        (["--version"], ["full", "closed"]),
        (["run", "--help"], ["full", "closed"]),
    ],
)
def test_output_that_nobody_takes(command: list[str], places: list[str]) -> None:
    started = [sys.executable, "-m", "rmopt.cli", *command]
    if "full" in places and Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(started, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith("rmopt: cannot write (No space left on device)")
        assert done.stderr.count("\n") == 1
    if "closed" in places:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(started, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        assert (done.returncode, done.stderr) == (1, "")
