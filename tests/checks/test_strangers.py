"""Strangers' parts under every engine: nothing is replaced by what its parent does, and what is wrong is refused."""

import re
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import strangers
from tabled import each_row

from problems.ranking.baselines import MatrixPerceptron
from rmopt import Problem, autograd_cost
from rmopt.checks import check_manifold, check_retraction
from rmopt.core import Cost, InvalidInputError, MissingCapabilityError
from rmopt.core.cost import WholeCost
from rmopt.costs import BilinearSum, GossipCost, Graph, Loss, squared
from rmopt.engines import ReferenceEngine
from rmopt.engines.choose import TWINS
from rmopt.engines.coordinate import CoordinateReference
from rmopt.errors import RmoptError
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, Product, Simplex
from rmopt.retractions import MetricProjectionPSD
from rmopt.solvers import (
    LBFGS,
    SGD,
    ConjugateGradient,
    CoordinateDescent,
    Gossip,
    ManifoldIdentification,
    ShuffledEpochs,
    Uniform,
)

COMPOSITIONS = strangers.compositions()
ROLES = ("retraction", "cost", "loss", "manifold")

# Overrides that change where a run ends; a test that no override can fail would tell nothing.
TELLING = {
    "bilinear": {
        "retraction.__call__", "cost.term_gradient", "cost.vectors", "cost.resolve", "loss.slopes",
        "manifold.projection", "manifold.euclidean_to_riemannian_gradient",
    },
    "triplets": {
        "retraction.__call__", "cost.term_gradient", "cost.vectors", "cost.resolve", "loss.slopes",
        "manifold.projection", "manifold.euclidean_to_riemannian_gradient",
    },
    "ranking": {
        "retraction.__call__", "cost.term_gradient", "cost.label_gradient",
        "manifold.projection", "manifold.euclidean_to_riemannian_gradient",
    },
    "warp": {
        "retraction.__call__", "cost.term_gradient", "cost.violation",
        "manifold.projection", "manifold.euclidean_to_riemannian_gradient",
    },
    "log-det": {
        "retraction.__call__", "cost.block_gradient", "cost.proximal_step", "loss.slopes",
    },
}  # fmt: skip
TELLING |= dict.fromkeys(("batch", "psd", "remembers"), TELLING["bilinear"])


def close(found: Any, expected: Any, about: str = "") -> None:
    """Hold one array to another: their difference relative to the largest number is at most 1e-10."""
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0.0, atol=1e-10, err_msg=about)


def part_of(composition: strangers.Composition, role: str) -> Any:
    return composition.cost.loss if role == "loss" else getattr(composition, role)


def roles_of(composition: strangers.Composition) -> list[str]:
    return [role for role in ROLES if role != "loss" or hasattr(composition.cost, "loss")]


def ended(composition: strangers.Composition, engine: str) -> Any:
    """Return the end of a run, or the sentence that it ends with."""
    try:
        return composition.end(engine)
    except RmoptError as error:
        return str(error)


def test_the_compositions_have_every_compiled_engine() -> None:
    found = set()
    for name, one in COMPOSITIONS.items():
        solver = one.solver(0.05, engine="compiled", retraction=one.retraction, **dict(one.options))
        found.add(type(solver.engine(Problem(one.manifold, one.cost))))
        close(one.end("compiled"), one.end("reference"), name)
    assert found == {*TWINS[ReferenceEngine], *TWINS[CoordinateReference]}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_an_override_is_never_replaced_by_what_its_parent_does(name: str) -> None:
    composition = COMPOSITIONS[name]
    usual, telling = composition.end("auto"), set()
    for role in roles_of(composition):
        part = part_of(composition, role)
        for method in strangers.methods_of(part):
            strange = composition.swapped(role, strangers.overridden(part, method))
            auto, reference = ended(strange, "auto"), ended(strange, "reference")
            if isinstance(reference, str):
                assert auto == reference
                continue
            close(auto, reference, f"{role}.{method}")
            if np.abs(auto - usual).max() > 1e-6 * np.abs(usual).max():
                telling.add(f"{role}.{method}")
    assert telling >= TELLING[name]


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compiled_names_the_subclass(name: str) -> None:
    composition = COMPOSITIONS[name]
    for role in roles_of(composition):
        part = part_of(composition, role)
        wanted = type(part).__name__
        strange = composition.swapped(role, strangers.subclassed(part))
        assert ended(strange, "compiled") == (
            f"engine = 'compiled' is not available: Own{wanted} is a subclass of {wanted}; compiled steps are for "
            f"{wanted} itself; use engine = 'auto'."
        )
        close(ended(strange, "auto"), composition.end("compiled"))


def test_a_method_that_was_put_on_an_object_counts_as_well() -> None:
    composition = COMPOSITIONS["bilinear"]
    strange = composition.swapped("cost", strangers.patched(composition.cost, "term_gradient"))
    np.testing.assert_array_equal(strange.end("auto"), strange.end("reference"))
    assert np.abs(strange.end("auto") - composition.end("auto")).max() > 1e-3
    assert "has its own `term_gradient`" in ended(strange, "compiled")


def test_codes_of_other_retractions_are_not_taken_for_ones_own() -> None:
    coded = type("Coded", (MetricProjectionPSD,), {"kernel": 0})()
    strange = COMPOSITIONS["psd"].swapped("retraction", coded)
    plain = COMPOSITIONS["psd"].swapped("retraction", MetricProjectionPSD())
    np.testing.assert_array_equal(strange.end("auto"), plain.end("reference"))


@pytest.mark.parametrize("loss", [strangers.tempered, strangers.tempered_hinge], ids=str)
@pytest.mark.parametrize("name", ["bilinear", "log-det"])
def test_methods_of_losses_are_called(name: str, loss: Loss) -> None:
    strange = COMPOSITIONS[name].swapped("loss", loss)
    plain = COMPOSITIONS[name].swapped("loss", Loss(loss.name, loss.value, loss.slope, loss.curvature))
    np.testing.assert_array_equal(strange.end("auto"), strange.end("reference"))
    assert np.abs(strange.end("auto") - plain.end("reference")).max() > 1e-4


@each_row("name", strangers.WRONG_LOSSES)
def test_functions_that_are_no_loss(name: str) -> None:
    slope, sentence = strangers.WRONG_LOSSES[name]
    strange = COMPOSITIONS["bilinear"].swapped("loss", Loss(name, lambda z, y: z, slope))
    for engine in ("auto", "reference"):
        with pytest.raises(InvalidInputError, match=sentence):
            strange.end(engine)


TARGET = np.linspace(-1.0, 1.0, 63).reshape(9, 7)


@pytest.mark.parametrize(
    "cost",
    [strangers.Residual(TARGET), strangers.Whole(TARGET), strangers.by_autograd(TARGET, factors=True)],
    ids=lambda cost: type(cost).__name__,
)
def test_sgd_takes_any_cost(cost: Cost) -> None:
    manifold = FixedRankEmbedded(9, 7, 3)
    batch = 9 if isinstance(cost, strangers.Residual) else 1
    solver = SGD(0.1, max_iter=100, sampler=ShuffledEpochs(batch, batch))
    start = manifold.random_point(np.random.default_rng(0))
    end = solver.run(Problem(manifold, cost), start, random_state=0).point
    expected = SGD(0.1, max_iter=100).run(Problem(manifold, WholeCost(cost)), start).point
    close(manifold.to_dense(end), manifold.to_dense(expected))
    assert cost.value(end) < 0.1 * cost.value(start)


@pytest.mark.parametrize("manifold", strangers.pymanopt_manifolds(), ids=str)
def test_manifolds_of_pymanopt_run(manifold: Any) -> None:
    start = manifold.random_point(np.random.default_rng(0))
    target = manifold.random_point(np.random.default_rng(1))
    costs = strangers.Whole(target), strangers.by_autograd(target, factors=False)
    ends = [SGD(0.05, max_iter=50).run(Problem(manifold, cost), start).point for cost in costs]
    close(*ends)
    assert costs[0].value(ends[0]) < costs[0].value(start)


@pytest.mark.parametrize("seed", range(4))
def test_projections_are_orthogonal_in_the_metric_or_in_the_ambient_space(seed: int) -> None:
    def failed(manifold: Any) -> list[str]:
        return [one.name for one in check_manifold(manifold, seed) if not one]

    right = strangers.GeneralizedStiefel(7, 2, seed)
    assert failed(right) == failed(Product([right] * 2)) == failed(Product([Simplex(3), right])) == []
    assert all(check_retraction(right.default_retraction, right, seed))
    for wrong in (strangers.ObliqueByMetric(7, 2, seed), strangers.SelfProjecting(7, 2, seed)):
        assert failed(wrong) == ["orthogonality"]


def test_solvers_take_projections_that_are_orthogonal_in_the_metric() -> None:
    manifold, A = strangers.GeneralizedStiefel(7, 1), np.diag(np.arange(7.0))
    problem = Problem(manifold, autograd_cost(lambda X: 0.5 * (X * (A @ X)).sum()))
    least = scipy.linalg.eigh(A, manifold.B, eigvals_only=True)[0]
    for solver in (ConjugateGradient(tol=1e-8), LBFGS(tol=1e-8)):
        found = solver.run(problem, random_state=0).point
        assert problem.value(found) == pytest.approx(0.5 * least, abs=1e-10)


def test_samplers_and_step_sizes_of_ones_own_are_followed() -> None:
    composition = COMPOSITIONS["bilinear"]
    for options in (
        *({"sampler": sampler} for sampler in strangers.SAMPLERS.values()),
        *({"step_size": rule} for rule in strangers.STEP_SIZES.values()),
    ):
        ends = []
        for engine in ("compiled", "reference"):
            solver = SGD(**{"step_size": 0.05, "max_iter": 25, "engine": engine} | options)
            result = solver.run(Problem(composition.manifold, composition.cost), random_state=3)
            ends.append(composition.manifold.to_dense(result.point))
        close(*ends)


# What is wrong is refused, by every engine with the same sentence


@each_row("name", strangers.WRONG_SCHEDULES)
def test_schedules_of_what_is_not_there(name: str) -> None:
    function, sentence = strangers.WRONG_SCHEDULES[name]
    composition = COMPOSITIONS["bilinear"]
    problem = Problem(composition.manifold, composition.cost)
    sampler, said = strangers.Wild(function), set()
    for solver in (
        SGD(0.05, max_iter=20, sampler=sampler, engine="compiled"),
        SGD(0.05, max_iter=20, sampler=sampler, engine="reference"),
    ):
        with pytest.raises(InvalidInputError, match=sentence) as caught:
            solver.run(problem, random_state=0)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize("value", [-7, 10**6])
def test_schedules_of_other_solvers(value: int) -> None:
    def draw(width: int) -> Any:
        return strangers.Wild(lambda size: np.full((size, width), value))

    metric, ranking, triplets = (COMPOSITIONS[name] for name in ("log-det", "ranking", "triplets"))
    rounds = draw(3)
    rounds.batch_size = 3
    for solver, problem, count in (
        (CoordinateDescent(order=draw(1), engine="compiled"), metric, "blocks from {0} to {0}, and there are 7"),
        (CoordinateDescent(order=draw(1), engine="reference"), metric, "blocks from {0} to {0}, and there are 7"),
        (SGD(0.1, sampler=draw(1), engine="compiled"), ranking, "terms from {0} to {0}, and there are 30"),
        (SGD(0.1, sampler=draw(3), engine="compiled"), triplets, "terms from {0} to {0}, and there are 40"),
        (SGD(0.1, sampler=draw(3), engine="reference"), triplets, "terms from {0} to {0}, and there are 40"),
        (Gossip(0.1, order=draw(1)), gossip_problem(), "edges from {0} to {0}, and there are 3"),
        (
            ManifoldIdentification(0.1, inner_step_size=0.1, inner_steps=2, sampler=rounds),
            COMPOSITIONS["bilinear"],
            "terms from {0} to {0}, and there are 40",
        ),
        (
            MatrixPerceptron(0.1, max_iter=5, sampler=draw(1)),
            Problem(Euclidean(7, 9), ranking.cost),
            "terms from {0} to {0}, and there are 30",
        ),
    ):  # fmt: skip
        problem = problem if isinstance(problem, Problem) else Problem(problem.manifold, problem.cost)
        sentence = re.escape(f"the schedule names {count.format(value)}; they count from 0.")
        with pytest.raises(InvalidInputError, match=sentence):
            solver.run(problem, random_state=0)


@each_row("name", strangers.WRONG_STEP_SIZES)
def test_step_sizes_that_are_none(name: str) -> None:
    function, sentence = strangers.WRONG_STEP_SIZES[name]
    composition = COMPOSITIONS["bilinear"]
    for rule in (function, strangers.Loose(function)):
        with pytest.raises(InvalidInputError, match=sentence):
            SGD(rule, max_iter=20).run(Problem(composition.manifold, composition.cost))


def test_a_batch_size_does_not_contradict_the_sampler() -> None:
    assert SGD(0.1, sampler=Uniform(10, 4)).batch_size == 4
    assert "batch_size=4" in repr(SGD(0.1, sampler=Uniform(10, 4)))
    assert "batch_size=1" in repr(SGD(0.1))
    for given in (1, 5):
        with pytest.raises(InvalidInputError, match=f"batch_size = {given} contradicts the sampler's 4"):
            SGD(0.1, batch_size=given, sampler=Uniform(10, 4))


# Coordinate descent on a manifold of one's own


@pytest.mark.parametrize("order", ["cyclic", "shuffled"])
@pytest.mark.parametrize("step_size", [0.5, None])
def test_coordinate_descent_runs_on_blocks_of_ones_own(order: str, step_size: float | None) -> None:
    manifold = strangers.Spheres(5, 3)
    target = manifold.random_point(1)
    solver = CoordinateDescent(40, step_size=step_size, order=order, tol=1e-8)
    result = solver.run(Problem(manifold, strangers.Whole(target)), random_state=0)
    assert "residual" in result.stopped_by
    np.testing.assert_allclose(result.point, target, atol=1e-6)
    engine = solver.engine(Problem(manifold, strangers.Whole(target)))
    schedule, etas = np.arange(20)[:, None] % 5, np.full(20, 0.5)
    start = manifold.random_point(2)
    whole = engine.dump(engine.advance(engine.load(start), schedule, etas))
    part = engine.advance(engine.load(start), schedule[:8], etas[:8])
    np.testing.assert_array_equal(whole, engine.dump(engine.advance(part, schedule[8:], etas[8:])))
    assert manifold.check_point(whole) is None


def test_a_line_search_says_what_it_needs() -> None:
    manifold = strangers.Spheres(5, 3, strangers.Unhurried())
    problem = Problem(manifold, strangers.Whole(manifold.random_point(1)))
    with pytest.raises(MissingCapabilityError, match="no `velocity`, which a line search needs"):
        CoordinateDescent(1).run(problem)
    assert CoordinateDescent(4, step_size=0.5).run(problem, random_state=0).updates > 0
    with pytest.raises(MissingCapabilityError, match=r"Manifolds with blocks: PositiveDefinite\."):
        CoordinateDescent(1).run(Problem(Grassmann(5, 2), strangers.Whole(np.eye(5, 2))))


# Solvers without a reference engine


def gossip_problem() -> Problem:
    tasks = strangers.Agents(np.random.default_rng(0).standard_normal((4, 6, 6)))
    cost = GossipCost(tasks, Graph.path(4), 1.0, Grassmann(6, 2))
    return Problem(Product([Grassmann(6, 2)] * 4), cost)


def test_gossip_does_what_its_cost_says() -> None:
    """Also where the logarithm is a stranger's: `Gossip` moves agents as `SGD` moves the product."""
    usual = gossip_problem()
    start, ends = usual.manifold.random_point(np.random.default_rng(0)), []
    for manifold in (Grassmann(6, 2), strangers.overridden(Grassmann(6, 2), "log")):
        cost = GossipCost(usual.cost.tasks, Graph.path(4), 1.0, manifold)  # type: ignore[attr-defined]
        problem = Problem(Product([manifold] * 4), cost)
        found = [
            one.run(problem, start, random_state=0)
            for one in (Gossip(0.1, max_iter=30), SGD(0.1, max_iter=30))
        ]
        close(*(np.stack(list(result.point)) for result in found))
        ends.append(np.stack(list(found[0].point)))
    assert np.abs(ends[0] - ends[1]).max() > 1e-3


@pytest.mark.parametrize("role", ["cost", "manifold"])
def test_subclasses_are_left_to_solvers_that_call_them(role: str) -> None:
    gossip, bilinear, ranking = gossip_problem(), COMPOSITIONS["bilinear"], COMPOSITIONS["ranking"]
    cases: list[tuple[Any, Any]] = [
        (Gossip(0.1), gossip),
        (ManifoldIdentification(0.1, inner_step_size=0.1), Problem(bilinear.manifold, bilinear.cost)),
    ]
    if role == "cost":
        sampler = Uniform(30)
        cases.append(
            (MatrixPerceptron(0.1, max_iter=5, sampler=sampler), Problem(Euclidean(7, 9), ranking.cost))
        )
    for solver, problem in cases:
        parts = {"manifold": problem.manifold, "cost": problem.cost}
        parts[role] = strangers.subclassed(parts[role])
        solver.engine(problem)
        with pytest.raises(RmoptError, match=r"subclass|Own"):
            solver.run(Problem(**parts), random_state=0)


def pairs() -> BilinearSum:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((40, 9)), rng.standard_normal((40, 7))
    return BilinearSum(left, right, squared, rng.standard_normal(40))
