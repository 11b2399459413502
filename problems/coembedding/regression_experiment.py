"""The experiment ``rmopt run metric-regression``: how fast factors should grow (Mirzazadeh et al. 2015, §5)."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from problems.cells import Cells, chosen_from, whole_numbers
from problems.coembedding.conic import conic_metric
from problems.coembedding.figure import draw_curves
from problems.coembedding.regression import MetricRegression, closed_form
from rmopt.core import Problem
from rmopt.core.arguments import integer, number
from rmopt.costs import SumOfCosts, Trace
from rmopt.engines import certify
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, Exponential, Linear, RankIncremental

Array = np.ndarray
Option = typer.Option
Solution = dict[str, Any]


def _rounds(make: Callable[[float], RankIncremental]) -> Callable[[SumOfCosts, float, float, int], Solution]:
    def solve(cost: SumOfCosts, tol: float, limit: float, seed: int) -> Solution:
        def late(rows: list[dict[str, Any]]) -> str | None:
            return LATE if rows[-1]["seconds"] > limit else None

        problem = Problem(PSDFixedRank(cost.shape[0], 1), cost)
        result = make(tol).run(problem, random_state=0, stop=late)
        found = result.certificate  # type: ignore[attr-defined]
        return {
            "rounds": result.steps, "rank": result.point.rank, "objective": found.objective,
            "gap": found.relative_gap, "ended": result.stopped_by,
        }  # fmt: skip

    return solve


def _one_shot(cost: SumOfCosts, tol: float, limit: float, seed: int) -> Solution:
    """Minimise over all n columns at once, from a random start; it knows no time limit and no certificate."""
    n = cost.shape[0]
    Y = np.random.default_rng([seed, n]).standard_normal((n, n)) / np.sqrt(n)
    solver = LBFGS(20, max_iterations=20_000, tol=1e-12)
    result = solver.run(Problem(PSDFactors(*Y.shape), cost), Y)
    Y, iterations, reason = result.point, result.steps, result.stopped_by
    found, _, _ = certify(cost, Y)
    lengths = np.linalg.svd(Y, compute_uv=False)
    return {
        "rounds": iterations, "rank": int((lengths > 1e-6 * lengths[0]).sum()), "objective": found.objective,
        "gap": found.relative_gap, "ended": reason,
    }  # fmt: skip


def _conic(solver: str) -> Callable[[SumOfCosts, float, float, int], Solution]:
    def solve(cost: SumOfCosts, tol: float, limit: float, seed: int) -> Solution:
        loss = cost.parts[0]
        assert isinstance(loss, MetricRegression)
        W, iterations = conic_metric(loss, cost.trace_weight, solver)
        values, vectors = np.linalg.eigh(0.5 * (W + W.T))
        kept = values > 1e-6 * values[-1]
        found, _, _ = certify(cost, vectors[:, kept] * np.sqrt(values[kept]))
        return {
            "rounds": iterations, "rank": int(kept.sum()), "objective": found.objective, "gap": found.relative_gap,
            "ended": "solved",
        }  # fmt: skip

    return solve


METHODS: dict[str, tuple[str, Callable[[SumOfCosts, float, float, int], Solution]]] = {
    "exponential": ("exponential", _rounds(lambda tol: RankIncremental(Exponential(), tol=tol))),
    "linear": ("linear (Zhang et al.)", _rounds(lambda tol: RankIncremental(Linear(), tol=tol))),
    "journee": (
        "linear (Journée et al.)",
        _rounds(lambda tol: RankIncremental(Linear(), tol=tol, rescale=False)),
    ),
    "boosting": (
        "boosting, not local",
        _rounds(lambda tol: RankIncremental(Linear(), tol=tol, inner=None)),
    ),
    "one-shot": ("all columns at once", _one_shot),
    "clarabel": ("Clarabel", _conic("CLARABEL")),
    "scs": ("SCS", _conic("SCS")),
}
LATE = "the time limit"
HEADINGS = {"relative_error": "rel. error", "gap": "rel. gap", "train_seconds": "seconds"}


def metric_regression(
    run: Run,
    *,
    sizes: Annotated[str, Option(help="Numbers of features n.")] = "10,50,100,200",
    samples: Annotated[str, Option(help="Numbers of samples t.")] = "250,1000,2000",
    beta: Annotated[float, Option(help="Weight of the trace.")] = 0.5,
    methods: Annotated[str, Option(help=f"Any of {', '.join(METHODS)}.")] = "exponential,linear",
    tol: Annotated[float, Option(help="Relative certified gap at which a method is done.")] = 1e-5,
    time_limit: Annotated[
        float, Option(help="Seconds after which a method that grows ends with its round.")
    ] = 600.0,
    repeats: Annotated[int, Option(help="Runs of each, of which the median time counts.")] = 1,
    resume: Annotated[bool, Option("--resume", help="Go on from the results in the --out folder.")] = False,
) -> Outcome:
    """Compare growing a factor exponentially, linearly and not at all, on a problem with a known minimum.

    The metric W ⪰ 0 is to keep the inner products of t standard normal samples of n features, at a price for its
    trace. The relative error is that to the closed form of the minimum.
    """
    chosen = chosen_from(METHODS, methods, "--methods")
    numbers, counts = whole_numbers(sizes, "--sizes"), whole_numbers(samples, "--samples")
    for option, value in (("--beta", beta), ("--tol", tol), ("--time-limit", time_limit)):
        number(option, value, above=0)
    integer("--repeats", repeats, 1)
    # Libraries are loaded before the clock starts.
    small = MetricRegression(np.eye(3)) + Trace(beta)
    for _, solve in chosen.values():
        solve(small, tol, time_limit, run.seed)
    cells = Cells(run.path("cells.jsonl"), resume)
    rows: list[dict[str, Any]] = []
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    cut_off: set[tuple[str, float]] = set()
    with (
        run.ticks("solutions", len(chosen) * len(numbers) * len(counts)) as tick,
        threadpool_limits(1, user_api="blas"),
    ):
        for t in counts:
            for n in numbers:
                X = np.random.default_rng([run.seed, n, t]).standard_normal((n, t))
                cost, minimum = MetricRegression(X) + Trace(beta), closed_form(X, beta)[1]
                for name, (label, solve) in chosen.items():

                    def compute(
                        cost: SumOfCosts = cost, solve: Callable[..., Solution] = solve
                    ) -> dict[str, Any]:
                        seconds = []
                        for _ in range(repeats):
                            begun = perf_counter()
                            found = solve(cost, tol, time_limit, run.seed)
                            seconds.append(perf_counter() - begun)
                        return found | {"seconds": float(np.median(seconds))}

                    about = {
                        "method": name, "n": n, "t": t, "beta": beta, "tol": tol, "limit": time_limit,
                        "repeats": repeats, "seed": run.seed,
                    }  # fmt: skip
                    cell = cells.get(about, compute)
                    rows.append(
                        {
                            "method": label, "t": t, "n": n, "rank": cell["rank"], "rounds": cell["rounds"],
                            "relative_error": cell["objective"] / minimum - 1.0, "gap": cell["gap"],
                            "train_seconds": cell["seconds"],
                        }
                    )  # fmt: skip
                    curves.setdefault(f"t = {t:,}", {}).setdefault(label, []).append((n, cell["seconds"]))
                    if cell["ended"] == LATE:
                        cut_off.add((f"t = {t:,}", n))
                    tick()
    title = f"β = {beta:g}" + f", cut off after {time_limit:g} s" * bool(cut_off)
    run.draw(
        "times.png", draw_curves, curves, "n, number of features", "seconds", title, True, size=(9.0, 3.8)
    )
    return Outcome(
        data="standard normal",
        parameters={
            "sizes": numbers, "samples": counts, "beta": beta, "tol": tol, "time_limit": time_limit,
            "repeats": repeats,
        },
        rows=rows,
        headings=HEADINGS,
        claims=_claims(curves, cut_off),
    )  # fmt: skip


def _claims(
    curves: dict[str, dict[str, list[tuple[float, float]]]], cut_off: set[tuple[str, float]]
) -> list[Claim]:
    """Return the claims of Figure 2 with the verdict of the times; where a run was cut off they are bounds."""
    fast, slow = METHODS["exponential"][0], METHODS["linear"][0]
    ratios = {
        t: {n: b / a for (n, a), (_, b) in zip(found[fast], found[slow], strict=True)}
        for t, found in curves.items()
        if {fast, slow} <= set(found)
    }
    if not ratios:
        return []
    largest = max(next(iter(ratios.values())))
    at_largest = {t: found[largest] for t, found in ratios.items()}
    text = "; ".join(
        f"{t}: " + ", ".join(f"n = {n:g} {_text(t, n, ratio, cut_off)}" for n, ratio in found.items())
        for t, found in ratios.items()
    )
    # Ratios of runs that were not cut off.
    grows_with_n = [
        [ratio for n, ratio in found.items() if (t, n) not in cut_off] for t, found in ratios.items()
    ]
    made = [
        Claim(
            f"exponential growth is faster than linear growth at n = {largest:g}",
            all(ratio > 1.0 for ratio in at_largest.values()),
            ", ".join(f"{t}: {_text(t, largest, ratio, cut_off)} times" for t, ratio in at_largest.items()),
        ),
        Claim(
            "the advantage grows with n",
            all(found[-1] > found[0] for found in grows_with_n) if min(map(len, grows_with_n)) > 1 else None,
            f"linear / exponential, {text}",
        ),
    ]
    whole = [n for n in next(iter(ratios.values())) if not any((t, n) in cut_off for t in ratios)]
    if len(ratios) > 1 and whole:
        n = max(whole)
        order = [found[n] for found in ratios.values()]
        made.append(
            Claim(
                f"the advantage grows with t (at n = {n:g}, the largest that all finished)",
                bool((np.diff(order) > 0).all()),
                ", ".join(f"{ratio:.1f} ({t})" for t, ratio in zip(ratios, order, strict=True)),
            )
        )
    return made


def _text(t: str, n: float, ratio: float, cut_off: set[tuple[str, float]]) -> str:
    return f"{'over ' * ((t, n) in cut_off)}{ratio:.1f}"
