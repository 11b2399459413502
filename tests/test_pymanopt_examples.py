"""The examples of pymanopt end where pymanopt does, or lower, and where a closed form says."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.pymanopt_examples import EXAMPLES, Example


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_ends_at_the_least_cost(example: Example) -> None:
    arguments = example.data(np.random.default_rng(0), False)
    ours, theirs = (example.value(arguments, run(*arguments)) for run in (example.ours, example.theirs))
    assert ours <= theirs + 1e-6 * abs(theirs)
    if example.least is not None:
        assert ours == pytest.approx(example.least(arguments), rel=1e-6)
