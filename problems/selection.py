"""The choice of one parameter by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmopt.core import DivergedError, InvalidInputError
from rmopt.engines.threads import one_blas_thread

Array = np.ndarray

Score = Callable[[float, Array, Array], float | Sequence[float]]


@dataclass(frozen=True)
class Selection:
    """What cross-validation found.

    Attributes
    ----------
    best : float
        The value with the highest mean score; the smallest of several.
    values : array, shape (V,)
        The values that were tried, ascending.
    scores : array, shape (V, F)
        Scores by value and fold; minus infinity where the training diverged.
    alternative : int
        Which of the scores of one training these are; the one with the best mean.
    """

    best: float
    values: Array
    scores: Array
    alternative: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """Return value, mean and standard error of the mean for each value; None where a fold diverged."""
        spread = self.scores.shape[1] ** 0.5
        return [
            {
                "value": float(value),
                "mean": float(scores.mean()) if np.isfinite(scores).all() else None,
                "sem": float(scores.std(ddof=1) / spread) if np.isfinite(scores).all() else None,
            }
            for value, scores in zip(self.values, self.scores, strict=True)
        ]


def select(
    values: Iterable[float],
    folds: Sequence[tuple[Array, Array]],
    score: Score,
    *,
    n_jobs: int | None = -1,
    tick: Callable[[], None] = lambda: None,
) -> Selection:
    """Choose the value with the highest mean score over the folds.

    Parameters
    ----------
    values : iterable of float
        The grid.
    folds : sequence of (train, test) arrays
        Row numbers, for example ``list(StratifiedKFold(5).split(X, y))``.
    score : callable
        ``score(value, train, test)`` trains on some rows and measures on others; higher is better. It may return
        several numbers, always as many: ways to use what was trained, among which is chosen too. A
        `DivergedError` counts as minus infinity. Runs in threads, so its hot loops should be compiled without the
        interpreter lock.
    n_jobs : int or None
        Number of threads, as in scikit-learn; −1: one for each processor.
    tick : callable
        Called after each training, for a progress bar.

    Raises
    ------
    InvalidInputError
        For an empty grid, fewer than two folds, or when every value diverged.
    """
    from joblib import Parallel, delayed

    grid = np.unique(np.asarray(list(values), dtype=float))
    if grid.size == 0 or not np.isfinite(grid).all():
        raise InvalidInputError(
            f"the grid of values must be finite numbers, at least one; got {grid.tolist()}."
        )
    if len(folds) < 2:
        raise InvalidInputError(f"cross-validation needs at least 2 folds, got {len(folds)}.")

    def one(value: float, train: Array, test: Array) -> Array:
        try:
            found = np.atleast_1d(np.asarray(score(value, train, test), dtype=float))
        except DivergedError:
            found = np.array([-np.inf])
        tick()
        return np.where(np.isfinite(found), found, -np.inf)

    tasks = (delayed(one)(value, train, test) for value in grid.tolist() for train, test in folds)
    # The threads are many enough; those of BLAS would only be in their way.
    with one_blas_thread():
        found = Parallel(n_jobs=n_jobs, prefer="threads")(tasks)
    ways = max(map(len, found))
    scores = np.array([np.broadcast_to(part, ways) for part in found]).reshape(grid.size, len(folds), ways)
    alternative = int(np.argmax(scores.mean(axis=1).max(axis=0)))
    scores = scores[:, :, alternative]
    means = scores.mean(axis=1)
    if not np.isfinite(means).any():
        raise InvalidInputError(
            f"training diverged for every value of the grid {grid.tolist()}; try smaller values, or scale the rows."
        )
    return Selection(float(grid[int(np.argmax(means))]), grid, scores, alternative)
