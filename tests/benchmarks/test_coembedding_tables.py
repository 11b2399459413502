"""Tables 2 to 4 of the paper on co-embedding, on generated sets of the sizes of those that cannot be had.

Run with ``pytest -o addopts= -s tests/benchmarks/test_coembedding_tables.py``. A run goes on from the results in the
folder that RMOPT_CELLS names, if any. Yeast takes 40 s of one core a split, the others two minutes.
"""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse
from test_defaults import compared, written

from problems.coembedding.experiment import Coembedding
from problems.data.generated import SETS

# Table 1: rows, and labels, the most frequent ones.
SIZES = {"generated-yeast": (2_417, 14), "generated-mediamill": (3_000, 30), "generated-corel5k": (4_609, 30)}
SPLITS = {"generated-yeast": 10, "generated-mediamill": 10, "generated-corel5k": 10}


class Timed(Coembedding):
    """The experiment, with the CPU time of choosing and training."""

    def measured(self, one: dict[str, Any]) -> dict[str, Any]:
        used = time.process_time()
        return super().measured(one) | {"one core, s": time.process_time() - used}


@pytest.mark.parametrize("name", SPLITS)
def test_tables_2_to_4(measured: Any, tmp_path: Path, name: str) -> None:
    """Hamming score, micro-F1 and macro-F1, in percent, on random splits with 1,000 training rows."""
    measured(tables, Path(os.environ.get("RMOPT_CELLS", tmp_path)) / name, name)


def tables(folder: Path, name: str) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    experiment = Timed(
        data=generated(folder, name), seeds=SPLITS[name],
        betas="0.5,1,2,5,10,20,50", folds=3, resume=True,
        methods="ila,br-svm,br-lr,clr-svm,clr-lr,cc-svm,cc-lr",
    )  # fmt: skip
    measures = dict.fromkeys(("hamming", "micro_f1", "macro_f1", "one core, s"), 1.0)
    table = compared(experiment, folder, "ila", **measures)
    for row in table:
        row.pop("one core, s, ours above", None)
        row |= {"data": name, "splits": SPLITS[name]}
    return table


def generated(folder: Path, name: str) -> str:
    """Write a generated set with its most frequent labels."""
    rows, labels = SIZES[name]
    bundle: Any = replace(SETS[name], rows=rows).bundle()
    Y = bundle.Y.toarray()
    often = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:labels])
    if issparse(bundle.X):
        return written(folder / f"{name}.npz", bundle.X, Y[:, often])
    np.savez(folder / f"{name}.npz", X=bundle.X, Y=Y[:, often])
    return str(folder / f"{name}.npz")
