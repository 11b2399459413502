"""Every tutorial runs to its asserts."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[1] / "tutorials").glob("*.py"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert any(line.startswith("# %%") for line in lines)
    assert lines[-1].startswith("assert ")
    runpy.run_path(str(path), run_name="__main__")
