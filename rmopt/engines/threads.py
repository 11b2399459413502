"""BLAS threads: one, where the pools of numpy and scipy would fight over the cores."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _pools() -> ThreadpoolController:
    # Importing both here makes sure that their pools are found; looking for them takes milliseconds.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread."""
    return _pools().limit(limits=1, user_api="blas")
