"""What some tasks took at commits of the past, timed by asv (airspeed velocity) with the dependencies of today."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE, RESULTS = Path(__file__).parent / "history", Path(__file__).parents[2] / ".benchmarks/asv/results"
COMMITS = ("23f71fa", "79b91fd", "e6ec871", "4d9acf1")  # from version 0.1.0 on


@pytest.mark.skipif(not shutil.which("asv"), reason="asv is not installed: pip install asv virtualenv")
def test_history(measured: Any) -> None:
    """Seconds of the processor at commits of the past, the medians of five."""

    def timed(commit: str) -> dict[str, Any]:
        words = ["git", "show", "-s", "--format=%H %ad", "--date=format:%d %B, %H:%M", commit]
        name, _, date = subprocess.check_output(words, cwd=HERE, text=True).strip().partition(" ")
        subprocess.run(["asv", "run", "--skip-existing-successful", f"{name}^!"], cwd=HERE, check=True)
        found = json.loads(next(RESULTS.glob(f"*/{name[:8]}-*.json")).read_text("utf-8"))["results"]
        seconds, (tasks,) = found["tasks.Tasks.time_task"][:2]
        return {"commit": commit, "of": date} | dict(
            zip((task.strip("'") for task in tasks), seconds, strict=True)
        )

    subprocess.run(["asv", "machine", "--yes"], cwd=HERE, check=True)
    rows = measured(lambda: [timed(commit) for commit in COMMITS])
    assert all(all(row.values()) for row in rows)
