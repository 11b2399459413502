"""What a newcomer met: each way that led astray, and beside it what must stay."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from problems.similarity import LoretaSimilarity

X = np.random.default_rng(0).standard_normal((60, 12))
y = np.arange(60) % 3


@pytest.mark.parametrize("psd", [False, True])
def test_a_start_that_no_row_touches_is_told(psd: bool) -> None:
    hashed: Any = np.hstack([np.zeros((60, 5)), X])
    model = LoretaSimilarity(6, psd=psd, max_iter=200, random_state=0)
    with pytest.warns(UserWarning, match="^5 of the 6 directions .* give init = 'gaussian'") as told:
        model.fit(hashed, y)
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="^5 of the 6 directions") as told:
        model.fit_stream([(hashed[:30], y[:30]), (hashed[30:], y[30:])])
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(hashed[:, 3:], y)
        model.set_params(init="gaussian").fit(hashed, y)
