"""What rounding and long steps do to compiled loops and to line searches."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from problems.metric import CometMetric, LegoMetric
from problems.triplets import ClassTriplets
from rmopt import Problem
from rmopt.costs import LOSSES, BilinearSum, LogDetTriplet, hinge
from rmopt.engines.bilinear import SymmetricBilinearEngine
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.kernels.steps import FINISHED, STEP_REFUSED
from rmopt.manifolds import PositiveDefinite, PSDFixedRank
from rmopt.retractions import SecondOrderPSD
from rmopt.solvers import SGD, CoordinateDescent, ExactLineSearch


def unit_rows(rng: np.random.Generator) -> np.ndarray:
    rows = rng.standard_normal((500, 20))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def similarities() -> Problem:
    rng = np.random.default_rng(0)
    left, right, targets = unit_rows(rng), unit_rows(rng), rng.choice([-1.0, 1.0], 500)
    return Problem(PSDFixedRank(20, 4), BilinearSum(left, right, hinge, targets))


@pytest.mark.parametrize("step_size", [1.0, 1e2, 1e3, 1e4])
def test_the_compiled_loop_does_steps_of_any_size(
    similarities: Problem, step_size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long step from a start of size one is refused; the many after it move W little, whatever their size."""
    refused: list[int] = []
    by_reference = GaugedEngine._step_by_reference

    def watched(self: GaugedEngine, state: GaugedState, *step: Any) -> GaugedState:
        refused.append(state.steps)
        return by_reference(self, state, *step)

    monkeypatch.setattr(GaugedEngine, "_step_by_reference", watched)
    found = SGD(step_size, max_iter=300).run(similarities, random_state=0)
    assert found.updates > 150
    assert len(refused) <= 2
    reference = SGD(step_size, max_iter=300, engine="reference").run(similarities, random_state=0)
    # In units of the matrix itself, in which a small eigenvalue counts as much as a large one.
    values, vectors = np.linalg.eigh(reference.point.S)
    basis = reference.point.Q @ vectors / np.sqrt(values)
    moved = basis.T @ found.point.Q
    # The retraction squares the step, and with it the rounding of what it meets.
    np.testing.assert_allclose(moved @ found.point.S @ moved.T, np.eye(4), atol=1e-12 + 1e-15 * step_size**2)


def test_a_start_that_a_step_flattens_ends_with_what_happened(similarities: Problem) -> None:
    with pytest.raises(DivergedError, match=r"at step 0 .the matrix lost rank 4: .* smaller step size"):
        SGD(1e6, max_iter=300).run(similarities, random_state=0)


class Reluctant(SymmetricBilinearEngine):
    """Refuses all steps."""

    def loop(self, state: Any, terms: Any, position: int, *limits: Any) -> tuple[int, int]:
        return position, FINISHED if position == len(terms.left) else STEP_REFUSED


def test_a_loop_that_refuses_most_steps_says_so(similarities: Problem) -> None:
    engine = Reluctant(similarities.manifold, similarities.cost, SecondOrderPSD())  # type: ignore[arg-type]
    schedule = np.arange(50)[:, None]
    start = similarities.manifold.random_point(np.random.default_rng(0))
    with pytest.warns(RuntimeWarning, match=r"^50 of 50 steps .* \(try a tenth\)\.$"):
        engine.advance(engine.load(start), schedule, np.full(50, 0.1))
    engine.advance(engine.load(start), schedule[:20], np.full(20, 0.1))


@pytest.mark.parametrize(("loss", "seed"), [("hinge", 2), ("squared_hinge", 0)])
def test_the_affine_exponential_ends_short_of_singular_matrices(loss: str, seed: int) -> None:
    X, y = load_iris(return_X_y=True)
    metric = CometMetric(3, loss=loss, retraction="affine-exponential", n_triplets=200, random_state=seed)
    assert np.linalg.eigvalsh(metric.fit(1e3 * X, y).mahalanobis_)[0] > 0.0


@pytest.mark.parametrize("scale", [1e-160, 1e100, 1e160])
def test_numbers_out_of_range_end_with_one_sentence_or_a_metric(scale: float) -> None:
    X, y = load_iris(return_X_y=True)
    for kind in (CometMetric, partial(CometMetric, compare="distance"), LegoMetric):
        said = "out of reach of defaults in their units; scale X"
        with pytest.raises(InvalidInputError, match=said), np.errstate(all="ignore"):
            kind().fit(scale * X, y)
    metric = CometMetric(
        1, beta=1e-5, loss="squared_hinge", compare="similarity", n_triplets=50, random_state=0
    )
    if scale < 1.0:
        assert np.isfinite(metric.fit(scale * X, y).mahalanobis_).all()
    else:
        with pytest.raises(DivergedError, match="rows that are not scaled"):
            metric.fit(scale * X, y)


def apart(loss: str, limit: float, steps: int, off: float = 1e-12) -> float:
    """Return how far two runs of COMET are apart whose starts differ by `off`, all relative to ‖W‖."""
    X, y = load_digits(return_X_y=True)
    triplets = ClassTriplets(y[:300]).draw(np.random.default_rng(0), 0, 6000)
    cost = LogDetTriplet(X[:300] / 16.0, triplets, LOSSES[loss], alpha=0.6, beta=0.06)
    problem, start = Problem(PositiveDefinite(64), cost), cost.best_multiple_of_identity()
    change = np.random.default_rng(5).standard_normal(start.shape)
    change = (change + change.T) * (off * np.linalg.norm(start) / np.linalg.norm(change + change.T))
    solver = CoordinateDescent(max_iter=steps, step_size=ExactLineSearch(limit), order="cyclic")
    one, other = (solver.run(problem, W, random_state=0).point for W in (start, start + change))
    return float(np.linalg.norm(one - other) / np.linalg.norm(one))


def test_exact_searches_spread_rounding_and_short_ones_do_not() -> None:
    """The numbers of docs/measured/metric.md: a property of the iteration, not of its arithmetic."""
    assert apart("logistic", 0.99, 8 * 64) > 1e5 * apart("logistic", 0.1, 8 * 64)
