"""The papers' sizes, on generated data: one pass of label ranking over ImageNet's shape.

Run with ``pytest -o addopts= -s tests/benchmarks/test_papers_sizes.py``; each part takes some minutes, and the larger
ranking 4 GB of disk, in the folder that RMOPT_BLOCKS names or one that pytest makes. Parameters are chosen by other
rows than those that measure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import vstack

from problems.data.generated import SETS
from problems.ranking import LoretaLabelRanker, mean_average_precision

# Of the square of the length of a row; rows on which it is chosen, at most; test rows.
STEPS, FEW, TEST = (0.1, 0.3, 1.0, 3.0, 10.0), 100_000, 20_000

# What a process of its own runs, so that its peak of memory is that of one way alone.
ALONE = """
import json, sys, time
from itertools import islice
from pathlib import Path
from problems.data import stream
from problems.ranking import LoretaLabelRanker

folder, rank, sampling, step, rows, out = sys.argv[1:]
model = LoretaLabelRanker(int(rank), sampling=sampling, step_size=float(step), random_state=0)
chunks = list(islice(stream(folder, multilabel=True), 1))
LoretaLabelRanker(2, sampling=sampling, random_state=0).fit(chunks[0][0][:50], chunks[0][1][:50])
del chunks
used, begun = time.process_time(), time.perf_counter()
model.fit_stream(islice(stream(folder, multilabel=True), int(rows) // 5_000))
seconds = time.process_time() - used, time.perf_counter() - begun
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1e6
model.save(out)
print(json.dumps([*seconds, peak]))
"""


@pytest.mark.parametrize("rows", [50_000, 908_210])
def test_label_ranking(measured: Any, rows: int, tmp_path: Path) -> None:
    """LORETA-1, rank 100, one pass over generated rows of ImageNet's shape: 1,000 features, 1,660 labels."""
    measured(label_ranking, rows, tmp_path)


def label_ranking(rows: int, tmp_path: Path) -> list[dict[str, Any]]:
    made: Any = SETS["generated-imagenet"]
    made = replace(made, rows=rows, test=0)
    folder = Path(os.environ.get("RMOPT_BLOCKS", tmp_path)) / str(rows)
    if not folder.exists():
        made.write(folder)
    begin = rows // made.per_block + 2
    size = float(np.mean(np.sum(made.block(1)["X"] ** 2, axis=1)))
    parts = [
        [made.block(number) for number in range(first, first + TEST // made.per_block)]
        for first in (begin, begin + 100)
    ]

    def learned(sampling: str, step: float, rows: int, part: list[Any]) -> tuple[list[float], float]:
        words = [str(folder), "100", sampling, str(step / size), str(rows), str(tmp_path / "model.npz")]
        said = subprocess.run([sys.executable, "-c", ALONE, *words], check=True, capture_output=True).stdout
        model = LoretaLabelRanker.load(tmp_path / "model.npz")
        found = [mean_average_precision(model.decision_function(one["X"]), one["Y"]) for one in part]
        return json.loads(said), float(np.mean(found))

    scores, labels = (
        np.concatenate([one["truth"] for one in parts[1]]),
        vstack([one["Y"] for one in parts[1]]),
    )
    about = {"rows, generated": rows, "blocks, GB": sum(one.stat().st_size for one in folder.iterdir()) / 1e9}
    own = {"mAP": None, "own mAP": mean_average_precision(scores.astype(float), labels)}
    table = []
    for sampling in ("warp", "exact"):
        step = max(STEPS, key=lambda step: learned(sampling, step, min(rows, FEW), parts[0])[1])
        (used, clock, peak), found = learned(sampling, step, rows + made.per_block, parts[1])
        how = {"loss": sampling, "step": step, "one core, s": used, "clock, s": clock, "peak, GB": peak}
        table.append(about | how | own | {"mAP": found})
    return table
