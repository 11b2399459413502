"""The memory and time of a co-embedding with 20,000 sparse features: nothing of size p × p exists.

Run with ``pytest -o addopts= -s tests/benchmarks/test_coembedding_memory.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

SCRIPT = """
import json, resource, time
import numpy as np, scipy.sparse as sp
from problems.coembedding import CoembeddingClassifier
rng = np.random.default_rng(0)
n, f, m = 10_000, 20_000, 50
topics = rng.integers(m, size=n)
words = rng.integers(f, size=(m, 200))
rows = np.repeat(np.arange(n), 60)
own = words[np.repeat(topics, 60), rng.integers(200, size=60 * n)]
columns = np.where(rng.random(60 * n) < 0.5, own, rng.integers(f, size=60 * n))
X = sp.csr_array((np.ones(60 * n), (rows, columns)), shape=(n, f))
X = X.multiply(1.0 / np.sqrt(X.multiply(X).sum(axis=1))[:, None]).tocsr()
Y = np.zeros((n, m), dtype=int)
Y[np.arange(n), topics] = 1
Y[np.arange(n), rng.integers(m, size=n)] = 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
begun = time.process_time()
model = CoembeddingClassifier(beta=5.0, tol=1e-4).fit(X, Y)
seconds = time.process_time() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
hits = (model.decision_function(X).argmax(axis=1)[:, None] == np.column_stack([topics, Y.argmax(axis=1)])).any(axis=1)
print(json.dumps({
    "p": f + m + 1, "CPU seconds": seconds, "rank": model.rank_, "relative gap": model.gap_ / model.objective_,
    "first label right, %": 100 * float(hits.mean()), "peak, MB": peak, "before, MB": before,
    "p × p, MB": (f + m + 1) ** 2 * 8 / 2**20,
}))
assert peak < 2048
assert model.rank_ > 1
"""


def test_memory_of_twenty_thousand_features(measured: Any) -> None:
    """20,000 sparse features, 10,000 rows, 50 labels, to a relative gap of 1e-4."""
    measured(in_a_process_of_its_own)


def in_a_process_of_its_own() -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(done.stdout)]
