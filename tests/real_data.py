"""Marks for tests that need the published data: those in the folder RMOPT_DATA_HOME."""

import os
from pathlib import Path
from typing import Any

import pytest

REAL = Path(os.environ.get("RMOPT_DATA_HOME") or "/nonexistent")


def real(*files: str) -> Any:
    return pytest.mark.skipif(
        not all((REAL / file).is_file() for file in files),
        reason=f"RMOPT_DATA_HOME does not name a folder with {', '.join(files)}.",
    )
