"""The examples of pymanopt end where pymanopt does, or lower, and where a closed form says."""

from pathlib import Path

import numpy as np
import pymanopt
import pytest
from benchmarks.pymanopt_examples import (
    EXAMPLES,
    Example,
    Synchronisation,
    along_tree,
    certificate,
    relative_rotations,
)

from rmopt import Problem
from rmopt.manifolds import SpecialOrthogonal
from rmopt.solvers import TrustRegions


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_ends_at_the_least_cost(example: Example) -> None:
    arguments = example.data(np.random.default_rng(0), False)
    ours, theirs = (example.value(arguments, run(*arguments)) for run in (example.ours, example.theirs))
    assert ours <= theirs + 1e-6 * abs(theirs)
    if example.least is not None:
        assert ours == pytest.approx(example.least(arguments), rel=1e-6)


def test_synchronised_rotations_have_a_certificate() -> None:
    quotients = relative_rotations(60, 200, 0.2, np.random.default_rng(0))
    cost, start = Synchronisation(*quotients), along_tree(*quotients)
    result = TrustRegions(tol=1e-8).run(Problem(SpecialOrthogonal(3, 60), cost), start)
    assert result.converged
    assert certificate(cost, result.point) > -1e-10
    # A start has none, and without noise the tree alone is right.
    assert certificate(cost, start) < -1e-3
    exact = relative_rotations(60, 200, 0.0, np.random.default_rng(0))
    assert Synchronisation(*exact).value(along_tree(*exact)) == pytest.approx(-3.0 * 200, rel=1e-12)


@pytest.mark.parametrize("name", [*pymanopt.manifolds.__all__, *pymanopt.optimizers.OPTIMIZERS])
def test_the_docs_name_the_counterpart_of_all_that_pymanopt_has(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "project" / "from_pymanopt.md").read_text(encoding="utf-8")
    assert any(f"`{name}" in line.split("|")[1] for line in page.splitlines() if line.startswith("| "))
