"""Pages draw: without windows, and with no figure left open for the next page."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    plt.switch_backend("Agg")
    yield
    plt.close("all")
