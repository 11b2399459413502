"""The experiment ``rmopt run metric-regression``: how fast factors should grow (Mirzazadeh et al. 2015, section 5).

Beside `experiment`: its methods are solvers, and its data are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems.coembedding.cost import MetricRegression, closed_form
from problems.coembedding.experiment import draw_curves
from problems.comparison import Comparison, Kept, crossed
from problems.methods import Cell, Settings
from problems.options import Resume, check_options, chosen_from, methods_option, whole_numbers
from problems.validation import package
from rmopt.core import Problem
from rmopt.core.ambient import Array
from rmopt.core.arguments import number
from rmopt.costs import ConvexCost, Trace
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, Certificate, Doubling, Growth, OneByOne, RankIncremental, certify

# Rounds, rank, certificate, and why it ended.
Solution = tuple[int, int, Certificate, str]
# From a cost, a relative gap, a time limit and a seed.
Solve = Callable[[ConvexCost, float, float, int], Solution]
# Of each number of samples, and of each method: seconds by number of features.
Curves = dict[str, dict[str, list[tuple[float, float]]]]

LATE = "the time limit"
# Weight of the trace, and the relative certified gap at which a method is done.
BETA, TOL = 0.5, 1e-5
# Relative accuracies near to what each can reach.
CONIC: dict[str, dict[str, Any]] = {"CLARABEL": {}, "SCS": {"eps": 1e-9, "max_iters": 20_000}}
HEADINGS = {"relative_error": "rel. error", "gap": "rel. gap", "train_seconds": "seconds"}


def _rounds(cost: ConvexCost, tol: float, limit: float, seed: int, growth: Growth, **how: Any) -> Solution:
    def late(rows: Sequence[Mapping[str, Any]]) -> str | None:
        return LATE if rows[-1]["seconds"] > limit else None

    problem = Problem(PSDFixedRank(cost.shape[0], 1), cost)
    result: Any = RankIncremental(growth, tol=tol, **how).run(problem, random_state=0, stop=late)
    return result.steps, result.point.rank, result.certificate, result.stopped_by


def _one_shot(cost: ConvexCost, tol: float, limit: float, seed: int) -> Solution:
    """Minimise over all n columns at once, from a random start; it knows no time limit and no certificate."""
    n = cost.shape[0]
    Y = np.random.default_rng([seed, n]).standard_normal((n, n)) / np.sqrt(n)
    result = LBFGS(20, max_iter=20_000, tol=1e-12).run(Problem(PSDFactors(*Y.shape), cost), Y)
    lengths = np.linalg.svd(result.point, compute_uv=False)
    rank = int((lengths > 1e-6 * lengths[0]).sum())
    return result.steps, rank, certify(cost, result.point)[0], result.stopped_by


def conic_metric(loss: MetricRegression, beta: float, solver: str) -> tuple[Array, int]:
    """Return the n × n metric that a conic solver of cvxpy finds, CLARABEL or SCS, and its number of iterations."""
    cp = package("cvxpy", instead=f"take another solver than {solver}")
    W = cp.Variable(loss.shape, PSD=True)
    residual = loss.target - loss.features @ W @ loss.features.T
    problem = cp.Problem(cp.Minimize(cp.sum_squares(residual) + beta * cp.trace(W)))
    problem.solve(solver=solver, **CONIC[solver])
    return np.asarray(W.value), int(problem.solver_stats.num_iters)


def _conic(cost: Any, tol: float, limit: float, seed: int, solver: str) -> Solution:
    loss = cost.parts[0]
    W, iterations = conic_metric(loss, cost.trace_weight, solver)
    values, vectors = np.linalg.eigh(0.5 * (W + W.T))
    kept = values > 1e-6 * values[-1]
    found = certify(cost, vectors[:, kept] * np.sqrt(values[kept]))[0]
    return iterations, int(kept.sum()), found, "solved"


METHODS: dict[str, tuple[str, Solve]] = {
    "exponential": ("exponential", partial(_rounds, growth=Doubling())),
    "linear": ("linear (Zhang et al.)", partial(_rounds, growth=OneByOne())),
    "journee": ("linear (Journée et al.)", partial(_rounds, growth=OneByOne(), rescale=False)),
    "boosting": ("boosting, not local", partial(_rounds, growth=OneByOne(), inner=None)),
    "one-shot": ("all columns at once", _one_shot),
    "clarabel": ("Clarabel", partial(_conic, solver="CLARABEL")),
    "scs": ("SCS", partial(_conic, solver="SCS")),
}


def metric_regression(
    run: Run,
    *,
    sizes: Annotated[str, Option(help="Numbers of features n.")] = "10,20,40",
    samples: Annotated[str, Option(help="Numbers of samples t.")] = "250,1000",
    methods: Annotated[str, methods_option(METHODS)] = "exponential,linear",
    time_limit: Annotated[
        float, Option(help="Seconds after which a method that grows ends with its round.")
    ] = 600.0,
    seeds: Annotated[
        int, Option(min=1, help="Runs of each with samples of their own; the median time counts.")
    ] = 1,
    resume: Resume = False,
) -> Outcome:
    """Compare growing a factor exponentially, linearly and not at all, on a problem with a known minimum.

    The metric W ⪰ 0 is to keep the inner products of t standard normal samples of n features, at a price for its
    trace. The relative error is that to the closed form of the minimum. The default run takes half a minute.
    """
    chosen = chosen_from(METHODS, methods, "--methods")
    numbers, counts = whole_numbers(sizes, "--sizes"), whole_numbers(samples, "--samples")
    number("--time-limit", time_limit, above=0)
    check_options(locals(), seeds=1)
    # Libraries are loaded before the clock starts.
    for _, solve in chosen.values():
        solve(MetricRegression(np.eye(3)) + Trace(BETA), TOL, time_limit, run.seed)

    # Methods of one size stand together.
    samples_of = Kept(lambda n, t, seed: np.random.default_rng([seed, n, t]).standard_normal((n, t)), 1)

    def train(one: Settings) -> Cell:
        samples = samples_of(one["n"], one["t"], one["seed"])
        cost = MetricRegression(samples) + Trace(BETA)
        begun = perf_counter()
        rounds, rank, found, ended = chosen[one["method"]][1](cost, TOL, time_limit, one["seed"])
        seconds = perf_counter() - begun
        return {
            "rounds": rounds, "rank": rank, "gap": found.relative_gap, "late": ended == LATE, "seconds": seconds,
            "relative_error": found.objective / closed_form(samples, BETA)[1] - 1.0,
        }  # fmt: skip

    # Times are told apart only where one model is trained at a time.
    comparison = Comparison(run, resume, seeds=seeds, beta=BETA, tol=TOL, limit=time_limit)
    settings = crossed(t=counts, n=numbers, method=chosen)
    with threadpool_limits(1, user_api="blas"):
        each = [one | {"seed": seed} for seed in comparison.seeds for one in settings]
        cells = comparison.results(each, train, "solutions", lambda one: one["method"])
    results = {
        (one["t"], one["n"], one["method"]): cells[at :: len(settings)] for at, one in enumerate(settings)
    }
    rows: list[Cell] = []
    curves: Curves = {}
    late: set[tuple[str, float]] = set()
    for (t, n, name), cells in results.items():
        worst = {
            key: max(cell[key] for cell in cells)
            for key in ("rank", "rounds", "relative_error", "gap", "late")
        }
        panel, label = f"t = {t:,}", chosen[name][0]
        late |= {(panel, n)} if worst.pop("late") else set()
        seconds = float(np.median([cell["seconds"] for cell in cells]))
        rows.append({"method": label, "t": t, "n": n, **worst, "train_seconds": seconds})
        curves.setdefault(panel, {}).setdefault(label, []).append((n, seconds))
    title = f"β = {BETA:g}" + f", cut off after {time_limit:g} s" * bool(late)
    run.draw(
        "times.png", draw_curves, curves, "n, number of features", "seconds", title, True, size=(9.0, 3.8)
    )
    about = {
        "sizes": numbers,
        "samples": counts,
        "beta": BETA,
        "tol": TOL,
        "time_limit": time_limit,
        "seeds": seeds,
    }
    return Outcome("standard normal", about, rows, HEADINGS, growth_claims(curves, late))


def growth_claims(curves: Curves, late: set[tuple[str, float]]) -> list[Claim]:
    """Return the claims of Figure 2 with the verdict of the times; where a run was cut off, late, they are bounds."""
    fast, slow = METHODS["exponential"][0], METHODS["linear"][0]
    ratios = {
        t: {n: b / a for (n, a), (_, b) in zip(found[fast], found[slow], strict=True)}
        for t, found in curves.items()
        if {fast, slow} <= set(found)
    }
    if not ratios:
        return []
    sizes = list(next(iter(ratios.values())))
    text = {
        t: {n: f"{'over ' * ((t, n) in late)}{found[n]:.1f}" for n in sizes} for t, found in ratios.items()
    }
    # Ratios of runs that were not cut off.
    whole = [[ratio for n, ratio in found.items() if (t, n) not in late] for t, found in ratios.items()]
    grows = all(found[-1] > found[0] for found in whole) if min(map(len, whole)) > 1 else None
    lines = "; ".join(f"{t}: " + ", ".join(f"n = {n:g} {text[t][n]}" for n in sizes) for t in ratios)
    last = max(sizes)
    made = [
        Claim(
            f"exponential growth is faster than linear growth at n = {last:g}",
            all(found[last] > 1.0 for found in ratios.values()),
            ", ".join(f"{t}: {text[t][last]} times" for t in ratios),
        ),
        Claim("the advantage grows with n", grows, f"linear / exponential, {lines}"),
    ]
    finished = [n for n in sizes if not any((t, n) in late for t in ratios)]
    if len(ratios) > 1 and finished:
        n = max(finished)
        rises = bool((np.diff([found[n] for found in ratios.values()]) > 0).all())
        numbers = ", ".join(f"{found[n]:.1f} ({t})" for t, found in ratios.items())
        made.append(
            Claim(f"the advantage grows with t (at n = {n:g}, the largest that all finished)", rises, numbers)
        )
    return made
