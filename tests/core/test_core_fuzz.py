"""Nobody gets a raw error, a silent NaN or an endless run from the core, whatever parts are put together."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import pytest
import scipy.sparse as sp
from fuzzing import Case, tried
from tabled import each_row

import rmopt
from problems import coembedding, ranking, subspace
from rmopt import Problem, costs, manifolds, retractions, solvers
from rmopt.core import Cost
from rmopt.core.points import arrays_of
from rmopt.core.transport import Isometric
from rmopt.interop import PymanoptSolver, from_pymanopt

RNG = np.random.default_rng(0)
N, D = 12, 5
X, Z = RNG.standard_normal((2, N, D))
TARGETS = np.sign(RNG.standard_normal(N))
TRIPLETS = RNG.integers(N, size=(20, 3))
Y = (RNG.random((N, 4)) < 0.4).astype(float)
KNOWN = sp.random_array((D, 9), density=0.8, random_state=np.random.default_rng(0), format="csc")
TASKS = [(RNG.standard_normal((8, D)), RNG.standard_normal(8)) for _ in range(4)]
PATH = costs.as_graph("path", 3)
TAGS = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 2], [0, 1, 1]])
SQUARED = costs.LOSSES["squared"]
SUBSPACES, FACTORED = manifolds.Grassmann(D, 2), manifolds.FixedRankFactors(D, D, 2)
MATRICES, CONE, METRICS = (
    manifolds.FixedRankEmbedded(D, D, 2),
    manifolds.PSDFixedRank(D, 2),
    manifolds.PositiveDefinite(D),
)
LINEAR = costs.BilinearSum(X, Z, SQUARED, TARGETS)
COMPLETION = subspace.MatrixCompletion(KNOWN, 3)
GOSSIP = costs.GossipCost(COMPLETION, PATH, 1.0, SUBSPACES)

STRANGE: tuple[Any, ...] = (
    None, "x", "", b"x", True, -1, 0, 1, 2.5, -0.5, float("nan"), float("inf"), -float("inf"), 1e308, 10**30, 3j,
    (), [1, 2], {}, object(), int, np.int64(2), np.float32(0.5), np.array([1, 2]), np.array(np.nan), lambda *_: None,
    lambda *_: np.nan, X, X * np.nan, X[:3], X.astype(complex), X.astype(object), sp.csr_array(X),
)  # fmt: skip


@rmopt.autograd_cost
def frobenius(W: Any) -> Any:
    return anp.sum(W**2)


@rmopt.autograd_cost
def of_factors(A: Any, B: Any) -> Any:
    return anp.sum((A @ B.T - 1.0) ** 2)


def their_value(point: Any) -> float:
    return float(np.sum((point - 1.0) ** 2))


def their_gradient(point: Any) -> Any:
    return 2.0 * (point - 1.0)


class ByHand(Cost):
    """A stranger's cost: ‖W − C‖², by hand, for arrays."""

    def value(self, point: Any) -> float:
        return their_value(point)

    def gradient(self, point: Any) -> Any:
        return their_gradient(point)


class NotANumber(ByHand):
    def value(self, point: Any) -> float:
        return float("nan")


class WrongShape(ByHand):
    def gradient(self, point: Any) -> Any:
        return np.ones((2, 2))


class Half(retractions.SecondOrder):
    """A stranger's retraction, on a compiled one."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return super().__call__(manifold, point, tangent, 0.5 * t)


def visit(manifold: Any) -> Any:
    """Return a few points and vectors of a manifold."""
    point = manifold.random_point(np.random.default_rng(0))
    vector = manifold.random_tangent_vector(point, np.random.default_rng(1))
    assert manifold.check_point(point) is None
    return arrays_of(manifold.retraction(point, vector)), manifold.dim


def at(kind: Callable[..., Any], *sizes: int) -> Callable[[Any], Any]:
    """Return a use of a cost: its value and gradient at a random point of a manifold of the cost's shape."""

    def use(cost: Any) -> Any:
        manifold = kind(
            *cost.shape[: 1 if kind in (manifolds.PSDFixedRank, manifolds.PositiveDefinite) else 2], *sizes
        )
        point = manifold.random_point(np.random.default_rng(0))
        return cost.value(point), arrays_of(Problem(manifold, cost).riemannian_gradient(point))

    return use


def on(problem: Problem, **given: Any) -> Callable[[Any], Any]:
    """Return a use of a solver: a run."""
    return lambda solver: arrays_of(solver.run(problem, random_state=0, **given).point)


BILINEAR, GOSSIPING = Problem(MATRICES, LINEAR), Problem(manifolds.Product([SUBSPACES] * 3), GOSSIP)
CONVEX = Problem(CONE, coembedding.MetricRegression(X.T) + costs.Trace(0.5))
METRIC = Problem(METRICS, costs.LogDetTriplet(X, TRIPLETS, alpha=1.0))


def stepped(step_size: Any = 0.01, **given: Any) -> Any:
    return on(BILINEAR)(solvers.SGD(step_size, max_iter=30, **given))


def watched(**given: Any) -> Any:
    return on(BILINEAR, **given)(solvers.SGD(0.01, max_iter=30))


def solved(problem: Any) -> Any:
    return on(problem)(solvers.SGD(0.01, max_iter=5))


def ended(stop: Any) -> Any:
    return on(CONVEX, stop=stop)(solvers.GradientDescent(max_iter=10))


Part = tuple[Callable[..., Any], Callable[[Any], Any], dict[str, Any]]


def part(make: Callable[..., Any], use: Callable[[Any], Any] = lambda made: made, /, **valid: Any) -> Part:
    """Return what makes a part of arguments, what is then done with it, and arguments that work."""
    return make, use, valid


def table() -> list[Part]:
    """Return the public parts of the core, those that read an argument in a way that no other does."""
    m, s, c = manifolds, solvers, costs
    descent: dict[str, Any] = {"max_iter": 10, "tol": 1e-4, "gradient_norm": None}
    moves = descent | {"retraction": None, "transport": None}
    frames = [SUBSPACES.random_point(seed) for seed in (1, 2)]
    constrained = c.ConstrainedProblem(m.Euclidean(3, 2), ByHand(), inequalities=[ByHand()])
    return [
        part(m.Euclidean, visit, n=3, m=2),
        part(m.FixedRankEmbedded, visit, n=6, m=5, rank=2),
        part(m.PolarPSD, visit, n=6, rank=2, weight=0.5),
        part(m.PositiveDefinite, visit, d=4),
        part(m.BoundedRank, visit, n=6, m=5, rank=2),
        part(m.Stiefel, visit, n=4, p=2, k=1),
        part(m.Hyperbolic, visit, n=3, m=2),
        part(m.Power, visit, base=SUBSPACES, k=3),
        part(m.Product, visit, factors=[SUBSPACES, m.Euclidean(2, 3)]),
        part(SUBSPACES.using, visit, retraction=retractions.QR(), transport=Isometric()),
        part(retractions.Componentwise, m.Product([SUBSPACES] * 2).using, retractions=2 * [retractions.QR()]),
        part(from_pymanopt, visit, manifold=pymanopt.manifolds.Sphere(5)),
        part(m.frechet_mean, manifold=SUBSPACES, points=frames, weights=None, tol=1e-9, max_iter=50),
        part(Problem, solved, manifold=m.Euclidean(3, 2), cost=ByHand()),
        part(
            c.ConstrainedProblem, lambda problem: on(problem)(s.AugmentedLagrangian(max_iter=2)),
            manifold=m.Euclidean(3, 2), cost=ByHand(), equalities=[], inequalities=[ByHand()],
        ),
        # Solvers
        part(
            s.AugmentedLagrangian, on(constrained), inner=s.LBFGS(max_iter=20), max_iter=3, tol=1e-3,
            max_violation=1e-3, penalty=1.0, growth=5.0,
        ),
        part(stepped, step_size=0.01, batch_size=2, sampler=None, retraction=None, engine="auto"),
        part(watched, initial_point=None, recorder=None, checkpoint=None, stop=None),
        part(s.CoordinateDescent, on(METRIC), n_epochs=1, step_size=None, order="uniform", engine="auto"),
        part(s.Gossip, on(GOSSIPING), step_size=0.01, n_epochs=5, order="stochastic", preconditioned=False),
        part(subspace.DLMaFit, max_iter=5),
        part(
            s.ManifoldIdentification, on(BILINEAR), step_size=0.01, inner_step_size=0.01, inner_steps=2,
            inner="gauge", max_iter=20,
        ),
        part(
            s.RankIncremental, on(CONVEX), columns=2, factor=2, inner=s.TrustRegions(max_iter=20), tol=1e-4,
            max_iter=5, max_rank=None, rescale=True,
        ),
        part(s.LBFGS, on(CONVEX), memory=5, step_length=None, **descent),
        part(s.TrustRegions, on(CONVEX), max_inner=50, **descent),
        part(s.AdaptiveCubics, on(CONVEX), max_inner=20, **moves),
        part(s.Hybrid, on(CONVEX), **descent),
        part(s.ConjugateGradient, on(CONVEX), rule="hestenes-stiefel", step_length=None, **moves),
        part(s.LineSearchSolver, on(CONVEX), direction=s.QuasiNewton(3), step_length=s.StrongWolfe(0.5), **moves),
        part(PymanoptSolver, on(BILINEAR), optimizer="ConjugateGradient"),
        # What solvers are made of
        part(s.QuasiNewton, memory=4),
        part(s.StrongWolfe, flatness=0.5),
        part(s.Adam, lambda rule: stepped(rule=rule), betas=(0.9, 0.99), eps=1e-8),
        part(s.SRG, lambda rule: stepped(0.001, rule=rule, batch_size=2), period=5),
        part(s.GradientNorm, ended, length=1e-3, relative=False),
        part(s.SmallChange, ended, share=1e-3, name="cost"),
        part(s.Stagnation, ended, rows=3, name="cost"),
        part(s.MaxSeconds, ended, seconds=1.0),
        part(lambda second: s.MaxSteps(3) | second, ended, second=s.Below(0.0)),
        part(s.Uniform, lambda sampler: stepped(sampler=sampler), terms=N, batch_size=1),
        part(
            s.FromDraw, lambda sampler: stepped(sampler=sampler), batch_size=1,
            function=lambda rng, start, size: rng.integers(N, size=(size, 1)),
        ),
        part(s.Matchings, lambda order: on(GOSSIPING)(s.Gossip(0.01, n_epochs=3, order=order)), graph=PATH),
        part(s.Cosine, stepped, a=0.01, n_steps=30),
        part(s.InverseTime, stepped, a=0.01, b=0.1),
        part(s.FromFunction, stepped, function=lambda t: 0.01 + 0.0 * t),
        part(s.FractionOfBound, lambda rule: on(METRIC)(s.CoordinateDescent(1, step_size=rule)), fraction=0.5),
        part(
            s.Recorder, lambda recorder: watched(recorder=recorder), metrics={"one": lambda point: 1.0}, first=5,
            ratio=2.0, at=None, progress=False,
        ),
        part(s.Checkpoint, lambda checkpoint: watched(checkpoint=checkpoint), path="c.npz", every_seconds=30.0),
        # Costs
        part(c.Graph, n=3, edges=[[0, 1], [1, 2]]),
        part(c.as_graph, graph="path", n=4),
        part(c.BilinearSum, at(m.FixedRankEmbedded, 2), left=X, right=Z, loss=SQUARED, targets=TARGETS),
        part(c.TripletSum, at(m.FixedRankEmbedded, 2), queries=X, documents=X, loss=SQUARED, triplets=TRIPLETS),
        part(
            c.LogDetTriplet, at(m.PositiveDefinite), X=X, triplets=TRIPLETS, loss=c.LOSSES["hinge"], alpha=1e-3,
            beta=1e-3, kappa=0.0, sparsity=0.0,
        ),
        part(c.GossipCost, tasks=COMPLETION, graph=PATH, rho=1.0, manifold=SUBSPACES),
        part(c.OnFactors, cost=LINEAR),
        part(c.Trace, beta=0.5),
        part(c.Pairs, left=[0, 1], right=[1, 2], n_objects=4),
        part(c.Grid, rows=range(3), columns=range(3, 5)),
        part(c.Loss, name="mine", value=lambda z, y: (z - y) ** 2, slope=lambda z, y: 2 * (z - y)),
        part(subspace.MatrixCompletion, ratings=KNOWN, n_agents=2, lam=0.1),
        part(subspace.MultitaskFeatures, tasks=TASKS, n_agents=2, lam=0.1),
        part(coembedding.MultilabelCoembedding, at(m.PSDFixedRank, 2), X=X, Y=Y),
        part(coembedding.LargeMarginNeighbors, at(m.PSDFixedRank, 2), X=X, triplets=TRIPLETS, smoothing=0.1),
        part(coembedding.TagRanking, at(m.PSDFixedRank, 2), triples=TAGS, counts=None),
        part(coembedding.LinkPrediction, at(m.PSDFixedRank, 2), X=X, pairs=[[0, 1], [1, 2]], linked=[1, 0]),
        part(coembedding.MetricRegression, at(m.PSDFixedRank, 2), X=X.T),
        part(ranking.LabelRanking, at(m.FixedRankEmbedded, 2), X=X, Y=Y),
        part(ranking.WarpRanking, at(m.FixedRankEmbedded, 2), X=X, Y=Y),
    ]  # fmt: skip


PARTS = {getattr(make, "__name__", repr(make)): (make, use, valid) for make, use, valid in table()}


def argument_cases(name: str) -> list[Case]:
    """Return each argument of a part replaced by each strange value."""
    make, use, valid = PARTS[name]
    return [
        Case(
            f"{name}({key}=STRANGE[{number}]) {' '.join(repr(value).split())[:40]}",
            lambda key=key, value=value: use(make(**{**valid, key: value})),
        )
        for key in valid
        for number, value in enumerate(STRANGE)
    ]


def combinations(seed: int, count: int) -> Iterator[Case]:
    """Yield random problems, solvers and retractions that strangers put together, right and wrong."""
    m, s, c, r = manifolds, solvers, costs, retractions
    places: list[Any] = [
        m.PSDFactors(D, 2), FACTORED, m.BoundedRank(D, D, 2), m.Euclidean(D, D), MATRICES, CONE, m.PolarPSD(D, 2),
        SUBSPACES, METRICS, m.Power(SUBSPACES, 3), m.Product([SUBSPACES, m.Euclidean(2, 2)]), m.Sphere(D),
        m.Oblique(D, 2), m.Stiefel(D, 2), m.SpecialOrthogonal(D), from_pymanopt(pymanopt.manifolds.Stiefel(D, 2)),
        from_pymanopt(pymanopt.manifolds.SymmetricPositiveDefinite(D)), pymanopt.manifolds.Sphere(D),
    ]  # fmt: skip
    terms: list[Any] = [
        LINEAR, c.TripletSum(X, X), c.LogDetTriplet(X, TRIPLETS), frobenius, of_factors, ByHand(), NotANumber(),
        WrongShape(), coembedding.MetricRegression(X.T) + c.Trace(0.5), coembedding.MetricRegression(X.T), GOSSIP,
        COMPLETION, coembedding.MultilabelCoembedding(X, Y) + c.Trace(1.0), ranking.LabelRanking(X, Y),
        c.OnFactors(LINEAR), c.OnFactors(of_factors), lambda point: 0.0, None,
    ]  # fmt: skip
    moves: list[Any] = [
        None, Half(), r.Additive(), r.QR(), r.Exponential(), r.MetricProjection(), "qr", "nonsense",
        r.SecondOrderPD(), r.SecondOrderPSD(), r.PolarFactors(), r.SchurExponential(),
        r.Componentwise([r.QR(), r.Additive()]),
    ]  # fmt: skip
    ways: list[Callable[[Any], Any]] = [
        lambda move: s.SGD(0.01, max_iter=20, retraction=move),
        lambda move: s.SGD(1e3, max_iter=20, retraction=move),
        lambda move: s.SGD(0.01, max_iter=20, retraction=move, engine="compiled"),
        lambda move: s.SGD(0.01, max_iter=20, batch_size=3, retraction=move),
        lambda move: s.CoordinateDescent(1, retraction=move),
        lambda move: s.CoordinateDescent(1, step_size=0.1, retraction=move),
        lambda _: s.Gossip(0.01, n_epochs=3), lambda _: s.RankIncremental(max_iter=3),
        lambda _: s.RankIncremental(max_iter=3, inner=s.SGD(0.01, max_iter=5)),
        lambda move: s.LBFGS(max_iter=20, retraction=move), lambda move: s.TrustRegions(max_iter=10),
        lambda move: s.GradientDescent(max_iter=20, retraction=move), lambda _: s.Hybrid(max_iter=20),
        lambda _: s.ConjugateGradient("hager-zhang", s.StrongWolfe(), max_iter=10, transport=Isometric()),
        lambda _: s.AdaptiveCubics(max_iter=10),
        lambda _: s.ManifoldIdentification(0.01, inner_step_size=0.01, max_iter=10),
        lambda _: PymanoptSolver("ConjugateGradient", max_iterations=5),
        lambda _: PymanoptSolver("TrustRegions", max_iterations=3),
    ]  # fmt: skip
    draw = random.Random(seed)
    for number in range(count):
        place, cost, move, which = (*map(draw.choice, (places, terms, moves)), draw.randrange(len(ways)))

        def run(place: Any = place, cost: Any = cost, move: Any = move, which: int = which) -> Any:
            if cost is frobenius and isinstance(place, m.Product):
                return []  # its one argument: Python itself says so
            solver = ways[which](move)
            point = solver.run(Problem(place, cost), random_state=0).point
            if isinstance(solver, s.RankIncremental):
                place = place.with_rank(point.rank) if point.rank else None
            flaw = place.check_point(point) if place else None
            assert flaw is None, flaw
            return arrays_of(point)

        yield Case(f"{number}: solver {which}, {move!r}, {place!r}, {type(cost).__name__}", run)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some arguments name files."""
    monkeypatch.chdir(tmp_path)


@each_row("name", PARTS)
def test_arguments_that_work_do(name: str) -> None:
    make, use, valid = PARTS[name]
    use(make(**valid))


def test_a_few_strange_arguments_and_combinations() -> None:
    cases = list(combinations(0, 150))
    for name in PARTS:
        cases += random.Random(name).sample(argument_cases(name), 5)
    _, bad = tried(cases)
    assert not bad, "\n".join(bad)


@pytest.mark.slow
def test_all_strange_arguments_and_many_combinations(capsys: pytest.CaptureFixture[str]) -> None:
    whole: Counter[str] = Counter()
    complaints = []
    # What is compiled is compiled here: the compiler takes longer than a case may.
    for make, use, valid in PARTS.values():
        use(make(**valid))
    for name, cases in [
        *((name, argument_cases(name)) for name in PARTS),
        ("combinations", list(combinations(1, 4000))),
    ]:
        counts, bad = tried(cases)
        whole += counts
        complaints += bad
        with capsys.disabled():
            print(f"\n{name}: {counts.total()} cases: {dict(counts.most_common())}", flush=True)
    with capsys.disabled():
        print(f"\nall: {whole.total()} cases: {dict(whole.most_common())}")
    assert not complaints, "\n".join(complaints)
