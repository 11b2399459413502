"""Stochastic solvers beside SGD: by the papers' formulas, by closed forms, and their laws on manifolds."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from descent_parts import Variance
from tabled import each_row

from rmopt import DivergedError, InvalidInputError, MissingCapabilityError, Problem
from rmopt.core import FiniteSum, Parts
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.points import packed, unpacked
from rmopt.costs import LOSSES, BilinearSum, TripletSum
from rmopt.engines.reference import Look
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann, Product, PSDFactors, PSDFixedRank, Sphere
from rmopt.retractions import MetricProjectionPSD
from rmopt.solvers import SGD, SRG, SVRG, AdaGrad, Adam, Cosine, Momentum, StepRule
from rmopt.testing import parametrize_with_laws

Array = np.ndarray


class LeastSquares(FiniteSum):
    """½ Σ (aᵢᵀx − bᵢ)²."""

    def __init__(self, rows: int = 40, width: int = 4) -> None:
        rng = np.random.default_rng(0)
        self.A, self.b = rng.standard_normal((rows, width)), rng.standard_normal((rows, 1))

    n_terms = property(lambda self: len(self.A))

    def value(self, point: Array) -> float:
        return 0.5 * float(np.sum((self.A @ point - self.b) ** 2))

    def term_gradient(self, point: Array, terms: Array) -> Array:
        A = self.A[terms]
        return A.T @ (A @ point - self.b[terms])


class PCA(Variance):
    def __init__(self, rows: int = 200, width: int = 6) -> None:
        numbers = np.random.default_rng(1).standard_normal((rows, width))
        super().__init__(numbers * np.geomspace(2.0, 0.3, width))


class Pair(FiniteSum):
    """Both of them, on a product."""

    def __init__(self) -> None:
        self.one, self.other = PCA(40), LeastSquares(40)

    n_terms = 40

    def value(self, point: Parts) -> float:
        return self.one.value(point[0]) + self.other.value(point[1])

    def term_gradient(self, point: Parts, terms: Array) -> list[Array]:
        return [
            cost.term_gradient(part, terms) for cost, part in zip((self.one, self.other), point, strict=True)
        ]


def bilinear() -> BilinearSum:
    rng = np.random.default_rng(2)
    rows, columns = rng.standard_normal((60, 6)), rng.standard_normal((60, 5))
    truth = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 5))
    return BilinearSum(rows, columns, LOSSES["squared"], np.einsum("ij,jk,ik->i", rows, truth, columns))


FLAT = Problem(Euclidean(4, 1), LeastSquares())
SUBSPACE = Problem(Grassmann(6, 2), PCA())
PLACES = [
    FLAT, SUBSPACE, Problem(Sphere(6), PCA()), Problem(FixedRankEmbedded(6, 5, 2), bilinear()),
    Problem(Product([Grassmann(6, 2), Euclidean(4, 1)]), Pair()),
]  # fmt: skip
SOLVERS = [
    SGD(1e-3, rule=Momentum(0.9), max_iter=60),
    SGD(1e-3, rule=SVRG(), max_iter=60), SGD(1e-3, rule=SRG(), max_iter=60, batch_size=3),
    SGD(1e-2, rule=Adam(), max_iter=60),
]  # fmt: skip


@parametrize_with_laws([(solver, place) for solver in SOLVERS for place in PLACES], seeds=[0])
def test_laws_of_solvers(check: Any) -> None:
    check()


def moments(gradient: Array, step: int, kept: list[Array], first: float, second: float, eps: float) -> Array:
    """Return the direction of Kingma and Ba (2015), Algorithm 1."""
    kept[0] = first * kept[0] + (1.0 - first) * gradient
    kept[1] = second * kept[1] + (1.0 - second) * gradient**2
    return kept[0] / (1.0 - first**step) / (np.sqrt(kept[1] / (1.0 - second**step)) + eps)


def heavy(gradient: Array, step: int, kept: list[Array]) -> Array:
    kept[0] = 0.7 * kept[0] + gradient
    return kept[0]


def adaptive(gradient: Array, step: int, kept: list[Array]) -> Array:
    kept[0] = kept[0] + gradient**2
    return gradient / np.sqrt(1e-10 + kept[0])


@pytest.mark.parametrize(
    ("rule", "direction"),
    [
        (Momentum(0.7), heavy), (AdaGrad(eps=1e-10), adaptive),
        (Adam(betas=(0.8, 0.9), eps=1e-3), partial(moments, first=0.8, second=0.9, eps=1e-3)),
    ],
    ids=["momentum", "adagrad", "adam"],
)  # fmt: skip
def test_in_flat_space_they_are_those_of_the_papers(rule: Any, direction: Any) -> None:
    cost, schedule = FLAT.cost, np.random.default_rng(3).integers(40, size=(50, 1))
    engine, x = SGD(0.05, rule=rule).engine(FLAT), np.ones((4, 1))
    found = engine.dump(engine.advance(engine.load(x), schedule, np.full(50, 0.05)))
    kept = [np.zeros_like(x), np.zeros_like(x)]
    for step, terms in enumerate(schedule, 1):
        x = x - 0.05 * direction(cost.term_gradient(x, terms), step, kept)
    np.testing.assert_allclose(found, x, rtol=1e-12)


def test_factors_of_products_have_step_sizes_of_their_own() -> None:
    class Scaled(Pair):
        def term_gradient(self, point: Parts, terms: Array) -> list[Array]:
            one, other = super().term_gradient(point, terms)
            return [1e4 * one, 1e-4 * other]

    manifold = PLACES[-1].manifold
    schedule, etas, start = (
        np.arange(20)[:, None],
        np.full(20, 0.01),
        manifold.random_point(np.random.default_rng(4)),
    )
    ends = []
    for cost in (Pair(), Scaled()):
        engine = SGD(0.01, rule=Adam(eps=1e-300)).engine(Problem(manifold, cost))
        ends.append(engine.dump(engine.advance(engine.load(start), schedule, etas)))
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [SVRG(), SRG()])
@pytest.mark.parametrize("place", [FLAT, SUBSPACE], ids=["flat", "subspace"])
def test_reduced_variance_leads_to_the_minimum_with_constant_steps(rule: Any, place: Problem) -> None:
    length = {"FLAT": 0.02, "SUBSPACE": 0.01}["FLAT" if place is FLAT else "SUBSPACE"]
    n_steps = 4000 if place is FLAT else 8000
    found = SGD(length, rule=rule, max_iter=n_steps).run(place, random_state=0).point
    plain = SGD(length, max_iter=n_steps, engine="reference").run(place, random_state=0).point
    gradients = [place.manifold.norm(x, place.riemannian_gradient(x)) for x in (found, plain)]
    assert gradients[0] < 1e-8
    assert gradients[1] > 1e-2


def test_reduced_variance_is_unbiased_and_exact_at_a_known_point() -> None:
    problem, x = SUBSPACE, SUBSPACE.manifold.random_point(np.random.default_rng(5))
    rule, look = SVRG(), Look(problem.manifold, problem.cost)
    assert (rule.steps_between(problem.cost, 4), rule.share(problem.cost, 4)) == (50, 0.02)
    first, memory = rule.direction(look, x, np.arange(4), rule.begin(look, x), 0)
    np.testing.assert_allclose(first, 0.02 * problem.riemannian_gradient(x), rtol=1e-13)
    # At the point itself no choice of terms matters.
    again, _ = rule.direction(look, x, np.arange(4, 8), memory, 1)
    np.testing.assert_allclose(again, first, rtol=1e-10, atol=1e-13)
    y = problem.manifold.retraction(
        x, problem.manifold.random_tangent_vector(x, np.random.default_rng(6)) * 0.1
    )
    whole = sum(rule.direction(look, y, np.arange(i, i + 4), memory, 1)[0] for i in range(0, 200, 4))
    np.testing.assert_allclose(whole, problem.riemannian_gradient(y), rtol=1e-9, atol=1e-11)


def repeated(manifold: Any, batch: bool) -> Problem:
    """Return a problem on sparse rows, some of them equal and some zero; of triplets where it is not of pairs."""
    rng = np.random.default_rng(8)
    left, right = (
        sp.random_array((80, width), density=0.3, random_state=rng).toarray() for width in manifold.shape
    )
    left[40:], right[60:] = left[:40], right[:20]
    left[7], right[9] = 0.0, 0.0
    if batch:
        triplets = rng.integers(80, size=(80, 3))
        cost: Any = TripletSum(sp.csr_array(left), sp.csr_array(right), LOSSES["logistic"], triplets)
    else:
        cost = BilinearSum(left, right, LOSSES["squared"], rng.standard_normal(80))
    return Problem(manifold, cost)


COMPILED: list[dict[str, Any]] = [
    {"step_size": 0.05, "rule": Momentum(0.9)}, {"step_size": 0.01, "rule": Adam()},
    {"step_size": 0.05, "rule": AdaGrad(), "batch_size": 2}, {"step_size": 0.01, "rule": Adam(), "batch_size": 2},
]  # fmt: skip


@each_row(
    "manifold",
    [
        FixedRankEmbedded(60, 50, 3), FixedRankEmbedded(6, 30, 2), FixedRankEmbedded(6, 5, 5),
        PSDFixedRank(50, 3), PSDFixedRank(6, 2),
    ],
)  # fmt: skip
def test_compiled_steps_that_remember_follow_the_reference(manifold: Any) -> None:
    symmetric = isinstance(manifold, PSDFixedRank)
    for given in [*COMPILED, {"step_size": 0.01, "batch_size": 2}] if symmetric else COMPILED:
        own = manifold.default_retraction
        options = {**given, "retraction": own} if symmetric else given
        problem = repeated(manifold, "batch_size" in options)
        reference, compiled = (
            SGD(engine=name, **options).engine(problem) for name in ("reference", "compiled")
        )
        start, rng = problem.manifold.random_point(np.random.default_rng(9)), np.random.default_rng(10)
        cost: Any = problem.cost
        rows = rng.integers(80, size=(80, options.get("batch_size", 1)))
        schedule = rows if not isinstance(cost, TripletSum) else cost.triplets[rows].reshape(80, -1)
        etas = np.full(80, options["step_size"])
        wanted = reference.advance(reference.load(start), schedule, etas)
        found = compiled.advance(compiled.load(start), schedule, etas)
        assert (found.steps, found.updates) == (wanted.steps, wanted.updates)
        dense = problem.manifold.to_dense
        point = compiled.dump(found)
        np.testing.assert_allclose(dense(point), dense(reference.dump(wanted)), rtol=1e-9, atol=1e-11)
        assert problem.manifold.check_point(point) is None
        # In parts, kept between them, to the last bit.
        state = compiled.advance(compiled.load(start), schedule[:30], etas[:30])
        state = unpacked(packed(state), compiled.load(start))
        again = compiled.dump(compiled.advance(state, schedule[30:], etas[30:]))
        np.testing.assert_array_equal(dense(again), dense(point))
        there = [engine.moved(state, start) for engine, state in ((compiled, found), (reference, wanted))]
        ends = [
            engine.dump(engine.advance(state, schedule[:9], etas[:9]))
            for engine, state in zip((compiled, reference), there, strict=True)
        ]
        np.testing.assert_allclose(dense(ends[0]), dense(ends[1]), rtol=1e-9, atol=1e-11)


def test_compiled_steps_from_a_point_of_single_precision_are_of_double_precision() -> None:
    start = PLACES[3].manifold.random_point(np.random.default_rng(0))
    single = LowRankPoint(*(part.astype(np.float32) for part in (start.U, start.S, start.V)))
    ends = [
        SGD(1e-3, rule=Momentum(0.9), max_iter=50, engine=engine).run(PLACES[3], single, random_state=0).point
        for engine in ("reference", "compiled")
    ]
    np.testing.assert_allclose(*map(PLACES[3].manifold.to_dense, ends), rtol=1e-10)


def test_steps_that_are_too_long_are_named() -> None:
    for engine in ("reference", "compiled"):
        with pytest.raises(DivergedError, match="diverged at step"):
            SGD(1e3, rule=Momentum(), engine=engine).run(PLACES[3], random_state=0)


def test_a_rule_of_ones_own() -> None:
    class Halved(StepRule):
        def direction(self, look: Any, point: Any, terms: Array, memory: Any, step: int) -> tuple[Any, Any]:
            return look.gradient(point, terms) * 0.5, memory

    own, plain = (
        SGD(step, rule=rule, max_iter=50, engine="reference").run(SUBSPACE, random_state=0).point
        for step, rule in ((0.02, Halved()), (0.01, None))
    )
    np.testing.assert_allclose(own, plain, rtol=1e-9, atol=1e-12)
    with pytest.raises(MissingCapabilityError, match="Halved"):
        SGD(0.1, rule=Halved(), engine="compiled").run(PLACES[3], random_state=0)


def test_cosine() -> None:
    etas = Cosine(2.0, 100)(np.arange(190))
    np.testing.assert_allclose([etas[0], etas[50], etas[100], etas[189]], [2.0, 1.0, 0.0, 0.0], atol=1e-15)
    assert (np.diff(etas[:101]) < 0).all()


def test_what_is_missing_is_named() -> None:
    for solver, problem, says in (
        (SGD(0.1, engine="compiled"), PLACES[0], "LeastSquares"),
        (SGD(0.1, rule=SVRG(), engine="compiled"), PLACES[3], "SVRG"),
        (
            SGD(0.1, rule=Adam(), engine="compiled", retraction=MetricProjectionPSD()),
            repeated(PSDFixedRank(6, 2), False),
            "MetricProjectionPSD",
        ),
        (
            SGD(0.1, rule=Adam(), engine="compiled"),
            Problem(PLACES[3].manifold.using(transport="isometric"), bilinear()),
            "Isometric",
        ),
    ):
        with pytest.raises(MissingCapabilityError, match=says):
            solver.run(problem, random_state=0)

    class Stream(PCA):
        n_terms = None

    stream = lambda rng, start, size: rng.integers(200, size=(size, 1))  # noqa: E731
    with pytest.raises(MissingCapabilityError, match=r"SVRG.* stream of terms"):
        SGD(0.1, rule=SVRG(), sampler=stream).run(Problem(Grassmann(6, 2), Stream()), random_state=0)


def test_quotients_have_no_entries() -> None:
    """Adam's path on factors of a matrix does not depend on the factor that stands for it."""
    target = np.diag([3.0, 2.0, 1.0, 0.5])

    class Fit(FiniteSum):
        n_terms = 1

        def value(self, point: Array) -> float:
            return 0.25 * float(np.sum((point @ point.T - target) ** 2))

        def term_gradient(self, point: Array, terms: Array) -> Array:
            return (point @ point.T - target) @ point

    rng = np.random.default_rng(8)
    Y, turn = rng.standard_normal((4, 2)), np.linalg.qr(rng.standard_normal((2, 2)))[0]
    engine = SGD(0.05, rule=Adam()).engine(Problem(PSDFactors(4, 2), Fit()))
    schedule, etas = np.zeros((30, 1), dtype=int), np.full(30, 0.05)
    one, other = (engine.dump(engine.advance(engine.load(start), schedule, etas)) for start in (Y, Y @ turn))
    np.testing.assert_allclose(one @ one.T, other @ other.T, rtol=1e-9, atol=1e-12)


class Writing(FiniteSum):
    """½ Σ ‖x − cᵢ‖², which writes where it must not."""

    n_terms = 30

    def __init__(self, where: str) -> None:
        self.where, self.centres = where, np.random.default_rng(0).standard_normal((30, 3))

    def value(self, point: Any) -> float:
        return 0.5 * float(np.sum((point - self.centres) ** 2))

    def gradient(self, point: Any) -> Any:
        return np.sum(point - self.centres, axis=0)

    def term_gradient(self, point: Any, terms: Any) -> Any:
        found = np.sum(point - self.centres[terms], axis=0)
        if self.where == "terms":
            terms[:] = 0
        else:
            point[:1] *= -1.0
        return found


@pytest.mark.parametrize("solver", [SGD(0.1, rule=rule, max_iter=50) for rule in (None, SVRG(), Adam())])
def test_what_writes_into_terms_or_points_is_refused(solver: Any) -> None:
    with pytest.raises(ValueError, match="read-only"):
        solver.run(Problem(Euclidean(3), Writing("terms")), random_state=0)
    with pytest.raises(InvalidInputError, match="its term_gradient work on a copy"):
        solver.run(Problem(Euclidean(3), Writing("point")), random_state=0)
