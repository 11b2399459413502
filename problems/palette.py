"""Colours and markers of the pictures."""

from typing import Any

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


def style(number: int) -> dict[str, Any]:
    """Return how the line of the n-th method looks, for ``axes.plot`` and ``axes.errorbar``."""
    return {
        "color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4,
    }  # fmt: skip
