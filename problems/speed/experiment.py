"""The experiment ``rmopt run sparse-speed``: seconds per step against the number of features."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from problems.cells import whole_numbers
from problems.speed.figure import draw_speed
from rmopt.core import InvalidInputError
from rmopt.core.arguments import integer
from rmopt.experiments import Claim, Outcome, Run

Option = typer.Option

# Algorithm 4 is left out where a step would take about this long or longer, in seconds.
TOO_SLOW = 0.05
# Below this everything lies in the caches.
FIRST_LARGE = 10_000


def sparse_speed(
    run: Run,
    *,
    sizes: Annotated[
        str, Option(help="Numbers of features, with commas between.")
    ] = "1000,10000,100000,1000000",
    rank: Annotated[int, Option(help="The rank.")] = 10,
    nonzeros: Annotated[int, Option(help="Non-zeros in each example.")] = 100,
    steps: Annotated[int, Option(help="Steps in a timed run.")] = 20_000,
    repeats: Annotated[int, Option(help="Timed runs; their median counts.")] = 5,
) -> Outcome:
    """Time the steps of LORETA-1 for growing numbers of features and as many non-zeros.

    Every step is an update. The floor is a plain loop that only reads and updates the rows that a step must touch.
    The paper's Algorithm 4 runs compiled, on dense vectors, while its steps take less than 50 ms (Shalit et al.
    2012 ask in section 5 for an algorithm whose time does not grow with the number of features).
    """
    chosen = whole_numbers(sizes, "--sizes", 2)
    for option, count in (("--nonzeros", nonzeros), ("--rank", rank)):
        integer(option, count, 1, chosen[0])  # both at most the smallest size
    for option, count in (("--steps", steps), ("--repeats", repeats)):
        integer(option, count, 1)
    # Two factors, a copy of both while they are made, and those of the floor.
    need = 8 * 6 * chosen[-1] * (rank + 4)
    free = _free_bytes()
    if free is not None and need > free:
        raise InvalidInputError(
            f"--sizes {sizes}: {chosen[-1]:,} features at rank {rank} need about {need / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free; take smaller sizes."
        )
    from problems.speed.timing import StepTimes

    run.say(f"rank {rank}, {nonzeros} non-zeros; up to {need / 2**30:.1f} GiB for {chosen[-1]:,} features")
    rows: list[dict[str, Any]] = []
    paper: float | None = 0.0
    with run.ticks("sizes", len(chosen)) as tick:
        for n in chosen:
            times = StepTimes(n, rank, nonzeros, steps, repeats)
            if paper is not None:
                small = paper * n / max(rows[-1]["features"], 1) if rows else 0.0
                paper = times.algorithm_4() if small < TOO_SLOW else None
            for method, psd in (("LORETA-1", False), ("LORETA-1-PSD", True)):
                ours, (plain, unrolled) = times.engine(psd), times.floor(psd)
                rows.append(_row(method, n, ours, plain, unrolled, paper))
            if paper is not None:
                rows.append({"method": "Algorithm 4", "features": n, "microseconds_per_step": 1e6 * paper})
            tick()
    run.draw("speed.png", draw_speed, rows, size=(6.4, 4.4))
    return Outcome(
        data="random rows",
        parameters={"sizes": chosen, "rank": rank, "nonzeros": nonzeros, "steps": steps, "repeats": repeats},
        rows=rows,
        headings={
            "microseconds_per_step": "µs a step", "floor_microseconds": "floor µs", "over_floor": "/ floor",
            "over_unrolled_floor": "/ unrolled", "paper_over_this": "paper / this",
        },
        claims=[_growth(rows, method) for method in ("LORETA-1", "LORETA-1-PSD")],
    )  # fmt: skip


def _row(
    method: str, n: int, ours: float, plain: float, unrolled: float, paper: float | None
) -> dict[str, Any]:
    return {
        "method": method,
        "features": n,
        "microseconds_per_step": 1e6 * ours,
        "floor_microseconds": 1e6 * plain,
        "over_floor": ours / plain,
        "over_unrolled_floor": ours / unrolled,
        "paper_over_this": None if paper is None or method != "LORETA-1" else paper / ours,
    }


def _growth(rows: list[dict[str, Any]], method: str) -> Claim:
    claim = (
        f"(wanted) the time of a {method} step grows at most 1.3 times as fast as the touching of its rows"
    )
    found = [row for row in rows if row["method"] == method and row["features"] >= FIRST_LARGE]
    if len(found) < 2:
        return Claim(claim, None, f"needs two sizes of at least {FIRST_LARGE:,}")
    ours, floor = (found[-1][key] / found[0][key] for key in ("microseconds_per_step", "floor_microseconds"))
    span = f"from {found[0]['features']:,} to {found[-1]['features']:,} features"
    return Claim(claim, ours <= 1.3 * floor, f"{span}: {ours:.2f} times, the touching {floor:.2f}")


def _free_bytes() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
