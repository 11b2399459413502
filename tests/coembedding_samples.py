"""Samples of the tests of co-embeddings."""

import numpy as np

Array = np.ndarray


def samples(seed: int = 0, n: int = 80, f: int = 6, m: int = 4) -> tuple[Array, Array]:
    """Return samples whose labels depend on their features."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, f))
    return X, (X @ rng.standard_normal((f, m)) + 0.3 * rng.standard_normal((n, m)) > 0.4).astype(int)
