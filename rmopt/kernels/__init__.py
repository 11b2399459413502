"""Compiled loops: arrays in, arrays out. Nothing here knows the rest of rmopt."""

from numba import config

from rmopt.errors import InvalidInputError

if config.DISABLE_JIT:
    raise InvalidInputError(
        "NUMBA_DISABLE_JIT is set, and rmopt's loops exist only compiled; unset it, and step through your own cost "
        'with engine="reference".'
    )
