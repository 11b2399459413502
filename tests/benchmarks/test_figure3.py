"""LORETA's figure 3 at a small size, from data that every installation has: two minutes on two cores.

Run with ``pytest -o addopts= -s tests/benchmarks/test_figure3.py``. Parameters are chosen by three folds of the first
training part. With ``--keep`` the picture of the command comes into the docs as well.
"""

import shutil
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from conftest import KEPT

from problems.similarity.experiment import Similarity
from rmopt.experiments import Run

SIZES = {"rank": "5,10,20,40,80", "features": "4000,2000,1000,500,250"}
EQUAL = "contrastive,naive-gd,psd-gd,pa,loreta,loreta-psd,svm"


@pytest.mark.parametrize(("methods", "sizes"), [(EQUAL, SIZES), ("svm", {})], ids=["equal", "whole"])
def test_ranks(measured: Any, methods: str, sizes: dict[str, str], tmp_path: Path, request: Any) -> None:
    """Mean average precision by rank × words on three splits of scipy's documentation."""

    def work() -> list[dict[str, Any]]:
        begun, run, rows = process_time(), Run("similarity", seed=0, out=tmp_path), {}
        found = Similarity(methods=methods, seeds=3, folds=3, triplets=20_000, **sizes)(run)
        for one in found.rows:
            words = one.get("features", "all")
            place = f"{one['rank']} × {words:,}" if one.get("rank") else f"13 × {words}"
            row = rows.setdefault(one["method"], {"method": one["method"], "largest s.e.m.": 0.0})
            row |= {place: one["map"], "largest s.e.m.": max(row["largest s.e.m."], one["map_sem"])}
        print(*found.claims, *found.notes, f"{process_time() - begun:.0f} s of CPU", sep="\n")
        return list(rows.values())

    measured(work)
    if sizes and request.config.getoption("--keep"):
        shutil.copy(tmp_path / Similarity.picture, KEPT.parent / "_static" / "figure3.png")
