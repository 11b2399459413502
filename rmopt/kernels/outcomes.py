"""Why a compiled loop ends, and what it counts."""

from typing import NamedTuple

import numpy as np

# All terms are used; the gauge should be looked at; the next step is ill-conditioned in this gauge;
# the score of the next step is not finite.
FINISHED, PROBE_DUE, STEP_REFUSED, NOT_FINITE = range(4)


class Counters(NamedTuple):
    """Running totals of a state.

    `counts` (int64): updates, steps since the last probe. `size` (float64): traces of the Gram matrices
    of the factors.
    """

    counts: np.ndarray
    size: np.ndarray
