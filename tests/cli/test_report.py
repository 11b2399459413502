"""The HTML report: whole, escaped, and honest about claims."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rmopt.cli.result import result_of, write_report
from rmopt.experiments import Claim, Outcome

VOID = {"meta", "img"}


class Balanced(HTMLParser):
    """Collects text and tells which tags do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def written(folder: Path, outcome: Outcome, pictures: list[Path]) -> tuple[str, list[str]]:
    path = folder / "report.html"
    write_report(path, result_of("fake", 3, outcome), outcome, "rmopt run fake --seed 3", pictures)
    page = path.read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return page, parser.texts


def test_whatever_the_numbers_are(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"method": "a <b>", "map": 0.5, "train_seconds": 1.25},
        {"method": "c", "map": None},
    ]
    claims = [Claim("x < y", True, "1 < 2"), Claim("z", False, "3"), Claim("w", None, "too few rows")]
    parameters = {"steps": [1, 2], "none": None, "inner": {"a": 1}, "nothing": []}
    page, texts = written(tmp_path, Outcome("some & data", parameters, rows, claims=claims), [])
    for expected in ("fake on some & data", "a <b>", "mAP", "train s", "0.5000", "–", "1, 2", "a: 1", "3"):
        assert expected in texts
    assert "holds: x < y (1 < 2)" in texts
    assert "does NOT hold: z (3)" in texts
    assert "undecided: w (too few rows)" in texts
    assert [page.count(f'<li class="{mark}">') for mark in ("yes", "no", "open")] == [1, 1, 1]


def test_pictures_are_inside(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG")
    page, texts = written(tmp_path, Outcome("data", {}, [{"method": "a"}]), [picture])
    assert 'src="data:image/png;base64,iVBORw=="' in page
    assert "a.png" in texts


def test_no_rows_no_table(tmp_path: Path) -> None:
    page, _ = written(tmp_path, Outcome("data", {}, []), [])
    assert "<thead>" not in page


def test_an_older_report_outlives_a_failed_one(tmp_path: Path) -> None:
    written(tmp_path, Outcome("data", {}, []), [])
    before = (tmp_path / "report.html").read_bytes()
    with pytest.raises(FileNotFoundError):
        written(tmp_path, Outcome("data", {}, []), [tmp_path / "absent.png"])
    assert (tmp_path / "report.html").read_bytes() == before
