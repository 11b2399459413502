"""Randomness: one integer seeds a run, and its named streams are independent."""

import secrets
from enum import IntEnum
from typing import Any

import numpy as np

from rmopt.core.arguments import shown
from rmopt.errors import InvalidInputError


class Stream(IntEnum):
    """The purpose of a generator. The numbers must never change, so that equal seeds give identical results."""

    START = 0
    SCHEDULE = 1
    TRIPLETS = 2
    CURVATURE = 3
    SPECTRUM = 4
    TASKS = 8
    INNER = 9
    # Not 0: a seed padded with zeros is the seed itself, from which users draw their data.
    POINT = 10
    ORDER = 11
    DIRECTIONS = 12
    WITNESS = 13
    SWARM = 14


def seed_of(random_state: Any) -> int:
    """Return the integer that repeats a run, from an integer, a generator (its next number), or None.

    None draws one from the system, independent of any global seed. Anything else raises `InvalidInputError`.
    """
    if random_state is None:
        return secrets.randbits(64)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if whole and random_state >= 0:
        return int(random_state)
    raise InvalidInputError(
        f"random_state = {shown(random_state)} must be a non-negative integer, a numpy Generator or RandomState, or "
        "None."
    )


def generator(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """Return the generator of a stream of a seed. `more` numbers distinguish blocks, agents or rounds."""
    return np.random.default_rng([seed, stream, *more])
