"""The experiment ``rmopt run metric-regression``: how fast factors should grow (Mirzazadeh et al. 2015, section 5).

Beside `experiment`: its methods are solvers, and its data are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems.coembedding.cost import MetricRegression, closed_form
from problems.comparison import Comparison, crossed
from problems.methods import Cell, Settings
from problems.options import Resume, Seeds, chosen_from, methods_option, whole_numbers
from problems.palette import Panel, draw_panels
from rmopt.core import Problem
from rmopt.costs import ConvexCost, Trace
from rmopt.experiments import Claim, Outcome, Run
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, Certificate, RankIncremental, certify

# Rounds, rank and certificate.
Solution = tuple[int, int, Certificate]
# Of each number of samples, and of each method: seconds by number of features.
Curves = dict[int, dict[str, dict[int, float]]]

# Weight of the trace, and the relative certified gap at which a method is done.
BETA, TOL = 0.5, 1e-5


def _rounds(cost: ConvexCost, seed: int, **how: Any) -> Solution:
    problem = Problem(PSDFixedRank(cost.shape[0], 1), cost)
    result: Any = RankIncremental(columns=1, tol=TOL, **how).run(problem, random_state=0)
    return result.steps, result.point.rank, result.certificate


def _one_shot(cost: ConvexCost, seed: int) -> Solution:
    """Minimise over all n columns at once, from a random start."""
    n = cost.shape[0]
    Y = np.random.default_rng([seed, n]).standard_normal((n, n)) / np.sqrt(n)
    result = LBFGS(20, max_iter=20_000, tol=1e-12).run(Problem(PSDFactors(*Y.shape), cost), Y)
    lengths = np.linalg.svd(result.point, compute_uv=False)
    return result.steps, int((lengths > 1e-6 * lengths[0]).sum()), certify(cost, result.point)[0]


METHODS: dict[str, tuple[str, Callable[[ConvexCost, int], Solution]]] = {
    "exponential": ("exponential", _rounds),
    "linear": ("linear (Zhang et al.)", partial(_rounds, factor=1)),
    "journee": ("linear (Journée et al.)", partial(_rounds, factor=1, rescale=False)),
    "boosting": ("boosting, not local", partial(_rounds, factor=1, inner=None)),
    "one-shot": ("all columns at once", _one_shot),
}


def metric_regression(
    run: Run,
    *,
    sizes: Annotated[str, Option(help="Numbers of features n.")] = "10,20,40",
    samples: Annotated[str, Option(help="Numbers of samples t.")] = "250,1000",
    methods: Annotated[str, methods_option(METHODS)] = "exponential,linear",
    seeds: Seeds = 1,
    resume: Resume = False,
) -> Outcome:
    """Compare growing a factor exponentially, linearly and not at all, on a problem with a known minimum.

    The metric W ⪰ 0 is to keep the inner products of t standard normal samples of n features, at a price for its
    trace. The relative error is that to the closed form of the minimum; times are medians over the seeds. The default
    run takes half a minute.
    """
    chosen = chosen_from(METHODS, methods, "--methods")
    numbers, counts = whole_numbers(sizes, "--sizes"), whole_numbers(samples, "--samples")
    # Libraries are loaded before the clock starts.
    for _, solve in chosen.values():
        solve(MetricRegression(np.eye(3)) + Trace(BETA), run.seed)

    def train(one: Settings) -> Cell:
        X = np.random.default_rng([one["seed"], one["n"], one["t"]]).standard_normal((one["n"], one["t"]))
        cost, begun = MetricRegression(X) + Trace(BETA), perf_counter()
        rounds, rank, certificate = chosen[one["method"]][1](cost, one["seed"])
        seconds = perf_counter() - begun
        error = certificate.objective / closed_form(X, BETA)[1] - 1.0
        found = {"rank": rank, "rounds": rounds, "relative_error": error, "gap": certificate.relative_gap}
        return found | {"seconds": seconds}

    # Times are told apart only where one model is trained at a time.
    comparison = Comparison(run, resume, seeds=seeds, beta=BETA, tol=TOL)
    settings = crossed(t=counts, n=numbers, method=chosen)
    each = [one | {"seed": seed} for seed in comparison.seeds for one in settings]
    with threadpool_limits(1, user_api="blas"):
        results = comparison.results(each, train, "solutions", lambda one: f"{one['method']}, n = {one['n']}")
    rows: list[Cell] = []
    curves: Curves = {t: {} for t in counts}
    for at, one in enumerate(settings):
        cells, label = results[at :: len(settings)], chosen[one["method"]][0]
        worst = {key: max(cell[key] for cell in cells) for key in ("rank", "rounds", "relative_error", "gap")}
        seconds = float(np.median([cell["seconds"] for cell in cells]))
        rows.append({"method": label, "t": one["t"], "n": one["n"], **worst, "train_seconds": seconds})
        curves[one["t"]].setdefault(label, {})[one["n"]] = seconds
    panels = [
        Panel(f"n, number of features, of t = {t:,} samples", "seconds",
              {label: list(times.items()) for label, times in lines.items()}, "xy")
        for t, lines in curves.items()
    ]  # fmt: skip
    run.draw("times.png", draw_panels, panels, f"β = {BETA:g}", size=(9.0, 3.8))
    about = {"sizes": numbers, "samples": counts, "beta": BETA, "tol": TOL, "seeds": seeds}
    headings = {"relative_error": "rel. error", "gap": "rel. gap", "train_seconds": "seconds"}
    return Outcome("standard normal", about, rows, headings, growth_claims(curves))


def growth_claims(curves: Curves) -> list[Claim]:
    """Return the claims of Figure 2 with the verdict of the times."""
    fast, slow = METHODS["exponential"][0], METHODS["linear"][0]
    made = []
    for t, lines in curves.items():
        if {fast, slow} <= set(lines):
            ratios = {n: lines[slow][n] / seconds for n, seconds in lines[fast].items()}
            numbers = ", ".join(f"n = {n} {ratio:.1f}" for n, ratio in ratios.items())
            first, last = ratios[min(ratios)], ratios[max(ratios)]
            made += [
                Claim(f"t = {t:,}: exponential growth is faster than linear growth", last > 1.0, numbers),
                Claim(
                    f"t = {t:,}: the advantage grows with n",
                    last > first if len(ratios) > 1 else None,
                    numbers,
                ),
            ]
    return made
