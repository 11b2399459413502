"""Pictures from subspaces: what is known of a photograph, and how it is completed."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.ratings import Ratings
from problems.subspace.methods import Trained
from problems.subspace.shares import shares_of
from rmopt.engines import OneProcess


def frames(bundle: Ratings, hidden: Any) -> tuple[Any, Any]:
    """Return the picture, and the picture with its hidden pixels in white."""
    table = np.zeros(bundle.shape)
    table[bundle.rows, bundle.columns] = bundle.values
    known = np.ones(bundle.shape)
    known[bundle.rows[~hidden], bundle.columns[~hidden]] = table[
        bundle.rows[~hidden], bundle.columns[~hidden]
    ]
    return _coloured(table), _coloured(known)


def painted(trained: Trained, bundle: Ratings, hidden: Any, lam: float, n_agents: int) -> Any:
    """Return the picture with its hidden pixels completed."""
    shares = shares_of(bundle, hidden, n_agents, lam, OneProcess(), trained.mean.shape[1])
    W = np.concatenate([shares.tasks.weights(trained.mean, agent) for agent in shares.tasks.here])
    table = np.clip(trained.mean @ W.T + shares.mean, *bundle.limits)
    known = ~hidden
    table[bundle.rows[known], bundle.columns[known]] = bundle.values[known]
    return _coloured(table)


def _coloured(table: Any) -> Any:
    return np.stack(np.split(table, 3, axis=1), axis=-1)
