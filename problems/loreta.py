"""LORETA-1 (Shalit et al. 2012): the common part of document similarity and label ranking."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from problems.following import checkpoint_of, follow
from problems.saving import Saved, layout_of, point_of
from problems.threads import threads_of
from problems.validation import Estimator, Supervised, begin, file_path, seedable, step_rule, thread_count
from rmopt.core import InvalidInputError, LowRankPoint, Problem, PSDPoint, Retraction
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, instance, integer, named, optional
from rmopt.files import Layout
from rmopt.retractions import FIXED_RANK_RETRACTIONS, PSD_RETRACTIONS
from rmopt.solvers import SGD, Parallel, Recorder, Sampler, ScheduledSolver
from rmopt.solvers.stochastic.continued import Continued, with_zero_rows

# The factor of step sizes for each worker, and its bound (docs/measured/scaling.md).
LONGER, MOST = 0.8, 6.0


def loreta_solver(
    step_size: Any,
    max_iter: int,
    sampler: Sampler,
    *,
    retraction: str | Retraction = "second-order",
    engine: str = "auto",
    psd: bool = False,
) -> SGD:
    """Return the solver of LORETA-1 or LORETA-1-PSD, with one term per step."""
    known = PSD_RETRACTIONS if psd else FIXED_RANK_RETRACTIONS
    chosen = named("retraction", retraction, known, Retraction)
    return SGD(step_size, max_iter=max_iter, sampler=sampler, retraction=chosen, engine=engine)


def with_workers(solver: ScheduledSolver, n_jobs: int | None, **meetings: Any) -> ScheduledSolver:
    """Return a solver with this many threads: local steps with occasional means."""
    workers = threads_of(n_jobs)
    if workers == 1:
        return solver
    factor = max(1.0, min(LONGER * workers, MOST))
    return Parallel(solver, workers, step_factor=factor, **meetings)


@dataclass(frozen=True)
class LowRankModel:
    """A learned matrix W of low rank.

    Attributes
    ----------
    point : LowRankPoint or PSDPoint
    """

    point: Any

    @cached_property
    def factors(self) -> tuple[Array, Array]:
        """A and B with W = A Bᵀ and AᵀA = BᵀB."""
        return self.point.balanced_factors()


@dataclass(kw_only=True, eq=False, repr=False)
class Loreta(Saved, Supervised, Estimator):
    """An estimator that learns a matrix of fixed rank by LORETA-1 and, when fitted, has the `model_`."""

    step_size: Annotated[Any, optional(step_rule)] = None
    retraction: Annotated[Any, bounded(named, FIXED_RANK_RETRACTIONS, Retraction)] = "second-order"
    checkpoint: Annotated[Path | str | None, file_path] = None
    random_state: Annotated[Any, seedable] = None
    n_jobs: Annotated[int | None, optional(thread_count)] = None
    verbose: Annotated[bool, flag] = False

    # The meaning of the matrix rows.
    _rows: ClassVar[str] = "features"
    _numbers: ClassVar = {**Saved._numbers, "n_iter_": integer, "n_updates_": integer}

    def __getattr__(self, name: str) -> Any:
        # After `partial_fit` the model is computed on request, which takes longer than to learn a chunk.
        if name != "model_" or "_continued" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.model_ = LowRankModel(self._continued.point())
        return self.model_

    @classmethod
    def _layout(cls, arrays: Any) -> Layout:
        return layout_of(arrays, cls._rows)

    def _stored(self) -> dict[str, Any]:
        return dict(vars(self.model_.point))

    def _restore(self, arrays: dict[str, Any]) -> None:
        point = point_of({name: arrays.pop(name) for name in self._layout(arrays)})
        super()._restore(arrays)
        self.model_ = LowRankModel(point)

    def start_at(self, point: Any, n_iter: int = 0) -> Self:
        """Take a point as the learned state, from which `partial_fit` continues.

        Parameters
        ----------
        point : LowRankPoint or PSDPoint
            For example from a server, of the estimator's rank, and a PSDPoint if it learns with `psd`.
        n_iter : int
            Number of earlier steps, on which random draws and decreasing step sizes depend.

        Raises
        ------
        InvalidInputError
            For a point that does not fit or is not finite.
        """
        kind = PSDPoint if getattr(self, "psd", False) else LowRankPoint
        point = instance("point", point, kind, f"a {kind.__name__}")
        if self.rank not in (None, point.rank):
            raise InvalidInputError(f"the point has rank {point.rank}, and the estimator rank = {self.rank}.")
        if not all(np.isfinite(part).all() for part in vars(point).values()):
            raise InvalidInputError("the point holds NaN or infinity.")
        for name in ("_continued", *self._optional):
            self.__dict__.pop(name, None)
        self.model_, self.n_features_in_ = LowRankModel(point), point.shape[1]
        self.n_iter_ = self.n_updates_ = integer("n_iter", n_iter)
        return self

    def _has_learned(self) -> bool:
        return bool({"model_", "_continued"} & set(vars(self)))

    def _begin_part(self) -> int:
        """Check the parameters for a part of the data, and return the seed."""
        if self.checkpoint is not None:
            raise InvalidInputError(
                "checkpoint is for fit and fit_stream, which have all of their data; for partial_fit leave it out, "
                "or pass the parts to fit_stream."
            )
        return begin(self)

    def _follow(self, chunks: Any, **how: Any) -> Self:
        """Learn the chunks of a stream."""
        seed = begin(self)
        for name in ("model_", "_continued", *self._numbers, *self._optional):
            self.__dict__.pop(name, None)
        follow(self, chunks, partial(self._learn_part, **how), seed, **how)
        return self

    def _stand_at(self, run: Continued) -> None:
        """Take a run over chunks as the learned state."""
        self.__dict__.pop("model_", None)
        self._continued, self.n_iter_, self.n_updates_ = run, run.n_iter, run.n_updates

    def _known_rank(self) -> int:
        return int(self._continued.rank if "_continued" in vars(self) else self.model_.point.rank)

    def _learn_chunk(
        self, solver: ScheduledSolver, problem: Problem, start: Callable[[], Any], seed: int, more: int = 0
    ) -> None:
        """Learn a chunk of data, with `more` rows, from the learned state or else from a start."""
        run = vars(self).get("_continued")
        if run is not None:
            run = run.grown(more) if more else run
        elif self._has_learned():
            point = with_zero_rows(self.model_.point, more) if more else self.model_.point
            run = Continued.begun(solver, problem, lambda: point, seed, self.n_iter_, self.n_updates_)
        else:
            run = Continued.begun(solver, problem, start, seed)
        try:
            run.learn(solver, problem, seed)
        finally:
            self._stand_at(run)

    def _run(
        self, solver: ScheduledSolver, problem: Problem, start: Callable[[], Any], seed: int, **data: Any
    ) -> None:
        """Learn from a start, and store the end. A checkpoint belongs to the data."""
        result = solver.run(
            problem,
            start(),
            random_state=seed,
            recorder=Recorder(progress=self.verbose),
            checkpoint=checkpoint_of(self, **data),
        )
        self.n_iter_, self.n_updates_ = result.steps, result.updates
        self.model_ = LowRankModel(result.point)
        self.__dict__.pop("_continued", None)
