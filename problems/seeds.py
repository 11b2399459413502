"""Random states in scikit-learn's sense, as integers."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_random_state


def seed_from(random_state: Any) -> int:
    """Return an integer for a random state in scikit-learn's sense."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
