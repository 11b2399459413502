"""What a comparison keeps in its folder, as tests look at it."""

from __future__ import annotations

import json
from ast import literal_eval
from pathlib import Path
from typing import Any

import joblib


def cells_in(folder: Path) -> list[dict[str, Any]]:
    """Return settings and result of each cell in the output folder of a run, as they were written."""
    files = sorted(folder.glob("cells/**/output.pkl"), key=lambda file: file.stat().st_mtime_ns)
    found = []
    for file in files:
        settings = json.loads((file.parent / "metadata.json").read_text(encoding="utf-8"))["input_args"][
            "settings"
        ]
        if settings != "{}":
            found.append({"settings": literal_eval(settings), "result": joblib.load(file)})
    return found
