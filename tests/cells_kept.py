"""What a comparison keeps in its folder, as tests look at it."""

import json
from ast import literal_eval
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib


def cells_in(folder: Path) -> list[dict[str, Any]]:
    """Return settings and result of each cell in the output folder of a run, as they were written."""
    found = []
    # The metadata are written last.
    for file in sorted(folder.glob("cells/**/metadata.json"), key=lambda file: file.stat().st_mtime_ns):
        with suppress(json.JSONDecodeError):  # while it is written
            about = json.loads(file.read_text(encoding="utf-8"))["input_args"]
            if about["settings"] != "{}":
                settings = literal_eval(about["settings"])
                found.append({"settings": settings, "result": joblib.load(file.with_name("output.pkl"))})
    return found
