"""The experiment ``rmopt run multitask``: features that tasks share (Mishra et al. 2019, section 6.3)."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

from problems import options
from problems.comparison import Comparison, averaged, mean_and_sem
from problems.data import TaskBundle
from problems.methods import Cell, Method, Settings, chosen_methods
from problems.subspace.claims import multitask_claims, shared_features_claims
from problems.subspace.cost import MultitaskFeatures
from problems.subspace.figure import draw_errors, draw_traces
from problems.subspace.multitask_estimator import CENTRES, SCALES, AltMin, MultitaskSubspace, is_constant
from problems.subspace.training import VARIANTS, GossipPlan, gossip
from rmopt.core import DivergedError, InvalidInputError, Parts
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number, numbers, one_of
from rmopt.core.streams import Stream, generator
from rmopt.costs import as_graph
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import Grassmann
from rmopt.solvers import Recorder

USUAL_RANKS = "3,5,7,9"
METHODS: dict[str, Method] = {
    name: Method(f"{name.replace('-', ' ').title()} Gossip", MultitaskSubspace(variant=name))
    for name in VARIANTS
} | {
    "batch": Method("Trust regions (batch)", MultitaskSubspace(solver="batch")),
    "alt-min": Method("Alt-Min (batch)", AltMin()),
}
HEADINGS = {
    "nmse": "NMSE", "sem": "± s.e.m.", "nmse_test": "by test var.", "agents_best": "best agent",
    "agents_worst": "worst", "train_seconds": "train s",
}  # fmt: skip

# Case 6 of the paper.
N_TASKS, N_FEATURES, EXAMPLES, CASE_RANK, NOISE = 1000, 100, (10, 50), 5, 1e-6


def multitask(
    run: Run,
    *,
    data: Annotated[options.Data, TaskBundle] = "case6",
    data_home: options.DataHome = None,
    agents: Annotated[int, Option(help="Number of agents.")] = 6,
    rank: Annotated[str, options.rank_option(f"{USUAL_RANKS}; of case6 {CASE_RANK}")] = "",
    rho: Annotated[str, Option(help="Weight of the agreement: a number, or auto; case6: 1000.")] = "auto",
    graph: Annotated[str, Option(help="path, ring, grid, star, complete or erdos-renyi.")] = "path",
    lam: Annotated[float, Option(help="Weight of the squared coefficients; case6: 0.")] = 0.1,
    trace_lam: Annotated[
        float, Option(help="Weight of the squared trace norm, of Alt-Min; not for case6.")
    ] = 0.1,
    updates: Annotated[float, Option(help="How often each edge is expected to be taken.")] = 200.0,
    step_size: Annotated[float, Option(help="In units of one over an agent's curvature.")] = 1.0,
    decay: Annotated[float, Option(help="The last step size is the first over 1 + decay.")] = 1.0,
    scale: Annotated[str, Option(help="Features: none (as they are) or standard; not for case6.")] = "none",
    centre: Annotated[
        str, Option(help="none, or tasks: subtract each task's means; not for case6.")
    ] = "none",
    seeds: options.Seeds = 3,
    methods: Annotated[
        str, Option(help=f"Any of {', '.join(METHODS)}; case6: gossip only; empty: the usual ones.")
    ] = "",
    method: options.OwnMethods = None,
    n_jobs: options.Jobs = 1,
    resume: options.Resume = False,
) -> Outcome:
    """Learn features that regressions share: gossip between agents beside Alt-Min and the batch optimum.

    Without --data it runs on case6, the paper's synthetic case.

    Examples of each task are divided at random, 80 % for training. The error of a task is its mean squared error on
    the test part over the variance of all its labels; the table also has it over that of the test labels alone.
    """
    options.check_options(locals(), seeds=1)
    as_graph(graph, integer("--agents", agents, 1))
    for option, value in (("--updates", updates), ("--step-size", step_size), ("--trace-lam", trace_lam)):
        number(option, value, above=0)
    for option, value in (("--lam", lam), ("--decay", decay)):
        number(option, value, least=0)
    one_of("--scale", scale, SCALES)
    one_of("--centre", centre, CENTRES)
    weight = options.number_or_auto(rho, "--rho")
    options.whole_numbers(rank or USUAL_RANKS, "--rank")
    with threadpool_limits(1, user_api="blas"):
        if data == "case6":
            if rank not in ("", str(CASE_RANK)):
                raise InvalidInputError(f"--rank {rank}: case6 has rank {CASE_RANK}; leave it out.")
            gossips = {name: METHODS[name] for name in VARIANTS}
            chosen = options.chosen_from(gossips, methods or "stochastic,parallel", "--methods")
            if method:
                raise InvalidInputError(
                    "case6 follows the subspaces of agents; compare a --method of your own with --data parkinsons."
                )
            wanted = 1e3 if weight == "auto" else weight
            plan = GossipPlan(
                wanted, graph=graph, step_size=step_size, decay=decay, n_epochs=updates, init="independent"
            )
            return _shared_features(run, plan, chosen, agents)
        usual = "stochastic,precon-stochastic,batch,alt-min"
        chosen = chosen_methods(METHODS, methods or usual, method, "multitask", ("predict",))
        bundle = options.loaded(run, data, data_home, TaskBundle)
        ranks = options.ranks_within(run.say, rank, USUAL_RANKS, bundle.X.shape[1] - 1)
        n_tasks = int(bundle.task.max()) + 1
        if agents > n_tasks:
            run.say(f"--agents is {n_tasks}, one for each task.")
            agents = n_tasks
        about: Settings = {
            "lam": lam, "n_agents": agents, "rho": weight, "graph": graph, "n_epochs": updates,
            "step_size": step_size, "decay": decay, "scale": scale, "centre": centre, "trace_lam": trace_lam,
        }  # fmt: skip
        comparison = Comparison(run, resume, seeds=seeds, n_jobs=n_jobs, data=bundle.fingerprint(), **about)
        return _table(comparison, bundle, chosen, ranks, about)


def _table(
    comparison: Comparison, bundle: TaskBundle, chosen: dict[str, Method], ranks: list[int], about: Settings
) -> Outcome:
    """Train every method at every rank, with every seed."""
    seeds = len(comparison.seeds)
    comparison.run.say(
        f"{bundle.name} ({bundle.source}): {len(bundle.y):,} examples of {int(bundle.task.max()) + 1} tasks, "
        f"{bundle.X.shape[1]} features, {seeds} random split{'s' * (seeds > 1)}"
    )

    def train(one: Settings) -> Cell:
        kind, test = chosen[one["method"]], bundle.held_out(one["seed"])
        # Of the options, a user's method takes its rank alone.
        ours = about if isinstance(kind.estimator, MultitaskSubspace | AltMin) else {}
        model = kind.made(random_state=one["seed"], rank=one["rank"], **ours)
        begun = perf_counter()
        try:
            model.fit(bundle.X[~test], bundle.y[~test], bundle.task[~test])
        except DivergedError:
            return dict.fromkeys(("nmse", "nmse_test", "agents_best", "agents_worst", "seconds"))
        seconds = perf_counter() - begun
        found = model.predict(bundle.X[test], bundle.task[test])
        predicted = numbers("predict(X, tasks)", found, bundle.y[test].shape)
        own = _by_agents(bundle, test, model) if hasattr(model, "agents_coef_") else []
        return _errors(bundle, test, predicted) | {
            "agents_best": min(own, default=None), "agents_worst": max(own, default=None), "seconds": seconds,
        }  # fmt: skip

    # A method without a rank is a level.
    models = [
        {"method": name, "rank": width, "code": kind.code}
        for width in [*ranks, 0]
        for name, kind in chosen.items()
        if kind.ranked == bool(width)
    ]
    found = comparison.results(models, train, ("method", "rank"))
    curves: dict[str, Any] = {}
    for (name, width), results in found.items():
        point = mean_and_sem(cell["nmse"] for cell in results)
        curves.setdefault(chosen[name].label, []).extend((at, *point) for at in ([width] if width else ranks))
    if len(ranks) > 1:
        comparison.run.draw(
            "errors.png", draw_errors, curves, bundle.name, "rank", "normalised mean squared error (test)",
            size=(6.4, 4.4),
        )  # fmt: skip
    return Outcome(
        data=bundle.name,
        parameters=about | {"seeds": seeds, "ranks": ranks},
        rows=[
            {"method": chosen[name].label, "rank": width or None}
            | averaged(results, nmse="sem", nmse_test=None, agents_best=None, agents_worst=None)
            for (name, width), results in found.items()
        ],
        headings=HEADINGS,
        claims=multitask_claims(found, {name: kind.label for name, kind in chosen.items()}, bundle.name),
    )


def _by_agents(bundle: TaskBundle, test: Array, model: MultitaskSubspace) -> list[float]:
    """Return the error that each agent's own subspace would make on all tasks."""
    X, which = bundle.X[test], bundle.task[test]
    parts = zip(model.agents_coef_, model.agents_intercept_, strict=True)
    predicted = [np.einsum("ij,ij->i", X, coef[which]) + levels[which] for coef, levels in parts]
    return [_errors(bundle, test, by_agent)["nmse"] for by_agent in predicted]


def _errors(bundle: TaskBundle, test: Array, predicted: Array) -> dict[str, float]:
    """Return the mean over tasks of squared error over variance: of all labels of a task, and of its test ones."""
    whole: list[float] = []
    part: list[float] = []
    for task in range(int(bundle.task.max()) + 1):
        rows = bundle.task[test] == task
        labels = bundle.y[test][rows]
        error = float(np.mean((predicted[rows] - labels) ** 2))
        # Where all labels of a task are equal there is nothing to compare with.
        for found, among in ((whole, bundle.y[bundle.task == task]), (part, labels)):
            if not is_constant(among):
                found.append(error / among.var())
    measured = {"nmse": whole, "nmse_test": part}
    return {name: float(np.mean(found)) if found else np.nan for name, found in measured.items()}


def shared_features_tasks(seed: int) -> tuple[list[tuple[Array, Array]], Array]:
    """Return the tasks of Case 6, and the subspace that they share.

    y_t = X_t U* w_t plus noise; the paper prints X_t U* U*ᵀ w_tᵀ, whose shapes do not fit a w_t of five entries.
    """
    rng = generator(seed, Stream.TASKS)
    U = np.linalg.qr(rng.standard_normal((N_FEATURES, CASE_RANK)))[0]
    tasks = []
    for count in rng.integers(EXAMPLES[0], EXAMPLES[1] + 1, size=N_TASKS):
        X = rng.standard_normal((count, N_FEATURES))
        y = X @ (U @ rng.standard_normal(CASE_RANK)) + NOISE * rng.standard_normal(count)
        tasks.append((X, y))
    return tasks, U


def _shared_features(run: Run, plan: GossipPlan, chosen: dict[str, Method], n_agents: int) -> Outcome:
    """Train on Case 6, and follow the agents on their way to the true subspace."""
    tasks, truth = shared_features_tasks(run.seed)
    cost, manifold = MultitaskFeatures(tasks, n_agents), Grassmann(*truth.shape)
    edges = as_graph(plan.graph, n_agents).edges
    run.say(f"case 6: {N_TASKS} tasks with {N_FEATURES} features, {n_agents} agents, rank {CASE_RANK}")

    def off(points: Parts) -> float:
        return max(manifold.dist(point, truth) for point in points)

    def gap(points: Parts) -> float:
        return float(np.mean([manifold.dist(points[i], points[j]) for i, j in edges]))

    at = [round(step) for step in np.geomspace(5, max(6.0, plan.n_epochs * len(edges)), 16)]
    rows: list[dict[str, Any]] = []
    traces = {}
    for variant, label in ((name, method.label) for name, method in chosen.items()):
        recorder = Recorder({"off": off, "gap": gap}, at=at, progress=run.progress, description=label)
        found = gossip(cost, CASE_RANK, replace(plan, variant=variant), run.seed, recorder=recorder)
        traces[label] = [[row["updates"] / n_agents, row["off"], row["gap"]] for row in recorder.rows]
        # The end is measured too.
        done, distance, between = traces[label][-1]
        ends = {"distance": distance, "gap": between, "updates": done, "train_seconds": found.result.seconds}
        rows.append({"method": label} | ends)
    run.draw(
        "traces.png", draw_traces, traces, "case 6", "largest distance to the true subspace", size=(9.0, 4.0)
    )
    return Outcome(
        data="case6",
        parameters={
            "agents": n_agents, "rho": plan.rho, "graph": plan.graph, "updates": plan.n_epochs,
            "step_size": plan.step_size, "decay": plan.decay,
        },
        rows=rows,
        headings={"distance": "distance to U*", "gap": "between neighbours", "train_seconds": "train s"},
        claims=shared_features_claims(traces),
    )  # fmt: skip
