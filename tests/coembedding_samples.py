"""Samples, and marks for real data, of the tests of co-embeddings."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Array = np.ndarray


REAL = Path(os.environ.get("RMOPT_DATA_HOME") or "/nonexistent")


def real(file: str) -> Any:
    return pytest.mark.skipif(
        not (REAL / file).is_file(), reason=f"RMOPT_DATA_HOME does not name a folder with {file}."
    )


def samples(seed: int = 0, n: int = 80, f: int = 6, m: int = 4) -> tuple[Array, Array]:
    """Return samples whose labels depend on their features."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, f))
    return X, (X @ rng.standard_normal((f, m)) + 0.3 * rng.standard_normal((n, m)) > 0.4).astype(int)
