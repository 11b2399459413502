"""Which row, and which random draws, a step looks at."""

import numpy as np

from rmopt.solvers import ShuffledEpochs

Array = np.ndarray


class WarpEpochs(ShuffledEpochs):
    """Every row once per epoch in a new random order, each with a seed for the draws of `WarpRanking`.

    Parameters
    ----------
    terms : int
        Number of rows.
    """

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        """Return one epoch of pairs (row, draw), shape (size, 2)."""
        rows = super().draw(rng, start, size)
        return np.column_stack([rows, rng.integers(2**62, size=size)])
