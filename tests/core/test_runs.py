"""What an experiment is given: pictures that are whole or absent, progress for terminals alone."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rmopt.experiments import Run


def plot_line(figure: Any, values: list[float]) -> None:
    figure.subplots().plot(values)


def fail_to_plot(figure: Any) -> None:
    raise ZeroDivisionError


def test_picture_is_a_png_file(tmp_path: Path) -> None:
    run = Run("fake", seed=0, out=tmp_path / "new", quiet=True)
    path = run.draw("curve.png", plot_line, [1.0, 2.0, 3.0], size=(2, 1))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in run.out.iterdir()] == ["curve.png"]


def test_picture_is_not_written_after_an_error(tmp_path: Path) -> None:
    run = Run("fake", seed=0, out=tmp_path)
    with pytest.raises(ZeroDivisionError):
        run.draw("curve.png", fail_to_plot)
    assert list(tmp_path.iterdir()) == []


def test_a_picture_without_space_does_not_cost_the_table(
    rmopt_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    said = rmopt_run(
        "metric", "--data", "digits", "--methods", "euclidean", "--seeds", "1",
        "--out", str(tmp_path / "out"), code=2,
    )  # fmt: skip
    assert "euclidean" in said.stdout.lower()
    assert "cannot write" in said.stderr
    assert "precision.png" in said.stderr
    assert (tmp_path / "out" / "result.json").exists()
