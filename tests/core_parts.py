"""Public parts of rmopt with arguments that work, and arguments and combinations that may not."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pymanopt
import scipy.sparse as sp
from fuzzing import Case

import rmopt
from problems.coembedding import LinkPrediction, MetricRegression, MultilabelCoembedding, TagRanking
from problems.ranking import LabelRanking, WarpRanking
from problems.subspace import DLMaFit, MatrixCompletion, MultitaskFeatures
from rmopt import Problem
from rmopt.core import Cost
from rmopt.core.points import arrays_of
from rmopt.core.transport import Isometric, OfRetraction
from rmopt.costs import (
    LOSSES,
    BilinearSum,
    ConstrainedProblem,
    GossipCost,
    Graph,
    Grid,
    LogDetTriplet,
    Loss,
    OnFactors,
    Pairs,
    Trace,
    TripletSum,
    as_graph,
)
from rmopt.interop import PymanoptSolver, from_pymanopt
from rmopt.manifolds import (
    BoundedRank,
    Euclidean,
    FixedRankEmbedded,
    FixedRankFactors,
    Grassmann,
    Hyperbolic,
    Oblique,
    PolarPSD,
    PositiveDefinite,
    Power,
    Product,
    PSDFactors,
    PSDFixedRank,
    Simplex,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    frechet_mean,
)
from rmopt.retractions import QR, Additive, Componentwise, Exponential, MetricProjection, SecondOrder
from rmopt.solvers import (
    LBFGS,
    SGD,
    SRG,
    Adam,
    AdaptiveCubics,
    AugmentedLagrangian,
    Backtracking,
    BarzilaiBorwein,
    Below,
    Checkpoint,
    Conjugate,
    ConjugateGradient,
    Constant,
    CoordinateDescent,
    Cosine,
    Cyclic,
    Direction,
    ExactLineSearch,
    FractionOfBound,
    FromDraw,
    FromFunction,
    Gossip,
    GradientDescent,
    GradientNorm,
    Hybrid,
    InverseSqrt,
    InverseTime,
    LineSearchSolver,
    ManifoldIdentification,
    Matchings,
    MaxSeconds,
    MaxSteps,
    NotFinite,
    QuasiNewton,
    RankIncremental,
    Recorder,
    ShuffledEpochs,
    SmallChange,
    SmallStep,
    Stagnation,
    SteepestDescent,
    StrongWolfe,
    TrustRegions,
    Uniform,
)

RNG = np.random.default_rng(0)
N, D = 12, 5
X = RNG.standard_normal((N, D))
Z = RNG.standard_normal((N, D))
TARGETS = np.sign(RNG.standard_normal(N))
TRIPLETS = RNG.integers(N, size=(20, 3))
Y = (RNG.random((N, 4)) < 0.4).astype(float)
KNOWN = sp.random_array((D, 9), density=0.8, random_state=np.random.default_rng(0), format="csc")
TASKS = [(RNG.standard_normal((8, D)), RNG.standard_normal(8)) for _ in range(4)]
PATH = as_graph("path", 3)
TAGS = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 2], [0, 1, 1]])

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


class Half(SecondOrder):
    """A stranger's retraction, on a compiled one."""

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        return super().__call__(manifold, point, tangent, 0.5 * t)


@dataclass(frozen=True)
class Part:
    """What is made from keyword arguments that work, and what is then done with it."""

    name: str
    make: Callable[..., Any]
    valid: Mapping[str, Any]
    use: Callable[[Any], Any] = field(default=lambda made: made)


def visit(manifold: Any) -> Any:
    """Return a few points and vectors of a manifold."""
    point = manifold.random_point(np.random.default_rng(0))
    vector = manifold.random_tangent_vector(point, np.random.default_rng(1))
    assert manifold.check_point(point) is None
    return arrays_of(manifold.retraction(point, vector)), manifold.dim


def bilinear() -> Problem:
    return Problem(FixedRankEmbedded(D, D, 2), BilinearSum(X, Z, LOSSES["squared"], TARGETS))


def gossiping() -> Problem:
    cost = GossipCost(MatrixCompletion(KNOWN, 3), PATH, 1.0, Grassmann(D, 2))
    return Problem(Power(Grassmann(D, 2), 3), cost)


def convex() -> Problem:
    return Problem(PSDFixedRank(D, 2), MetricRegression(X.T) + Trace(0.5))


def metric() -> Problem:
    return Problem(PositiveDefinite(D), LogDetTriplet(X, TRIPLETS))


def runs(problem: Callable[[], Problem]) -> Callable[[Any], Any]:
    return lambda solver: arrays_of(solver.run(problem(), random_state=0).point)


def constrained() -> Problem:
    return ConstrainedProblem(Euclidean(3, 2), ByHand(), inequalities=[ByHand()])


def sampled(sampler: Any) -> Any:
    return arrays_of(SGD(0.01, max_iter=30, sampler=sampler).run(bilinear(), random_state=0).point)


def stepped(rule: Any) -> Any:
    return arrays_of(SGD(rule, max_iter=30).run(bilinear(), random_state=0).point)


def descended(rule: Any) -> Any:
    solver = CoordinateDescent(1, step_size=rule)
    return arrays_of(solver.run(metric(), random_state=0).point)


def at_random(manifold: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a use of a cost: its value and gradient at a random point of the manifold made for it."""

    def use(cost: Any) -> Any:
        space = manifold(cost)
        point = space.random_point(np.random.default_rng(0))
        problem = Problem(space, cost)
        return cost.value(point), arrays_of(problem.riemannian_gradient(point))

    return use


def run_arguments(**given: Any) -> Any:
    return SGD(0.01, max_iter=30).run(bilinear(), **given).point


def searched(part: Any) -> Any:
    """Run a direction with backtracking, or a step length with conjugate directions."""
    parts = (part, Backtracking()) if isinstance(part, Direction) else (Conjugate(), part)
    return runs(convex)(LineSearchSolver(*parts, max_iter=10))


def ended(criterion: Any) -> Any:
    result = GradientDescent(max_iter=10).run(convex(), random_state=0, stop=criterion)
    return arrays_of(result.point), result.stopped_by


def carried(transport: Any) -> Any:
    problem = Problem(PositiveDefinite(D).using(transport=transport), LogDetTriplet(X, TRIPLETS, alpha=1.0))
    return arrays_of(LBFGS(max_iter=5).run(problem, random_state=0).point)


def recorded(recorder: Any) -> Any:
    return SGD(0.01, max_iter=30).run(bilinear(), random_state=0, recorder=recorder).history


def saved(checkpoint: Any) -> Any:
    return arrays_of(SGD(0.01, max_iter=30).run(bilinear(), random_state=0, checkpoint=checkpoint).point)


def parts() -> list[Part]:
    """Return the table; paths are in the working folder."""
    squared = LOSSES["squared"]
    descent = {
        "max_iter": 10, "tol": 1e-4, "gradient_norm": None, "retraction": None, "transport": None,
    }  # fmt: skip
    fixed = lambda cost: FixedRankEmbedded(*cost.shape, 2)  # noqa: E731
    cone = lambda cost: PSDFixedRank(cost.shape[0], 2)  # noqa: E731
    return [
        Part("Euclidean", Euclidean, {"n": 3, "m": 2}, visit),
        Part("FixedRankEmbedded", FixedRankEmbedded, {"n": 6, "m": 5, "rank": 2}, visit),
        Part("PSDFixedRank", PSDFixedRank, {"n": 6, "rank": 2}, visit),
        Part("PolarPSD", PolarPSD, {"n": 6, "rank": 2, "weight": 0.5}, visit),
        Part("Grassmann", Grassmann, {"m": 6, "r": 2}, visit),
        Part("PositiveDefinite", PositiveDefinite, {"d": 4}, visit),
        Part("PSDFactors", PSDFactors, {"n": 6, "rank": 2}, visit),
        Part("BoundedRank", BoundedRank, {"n": 6, "m": 5, "rank": 2}, visit),
        Part("FixedRankFactors", FixedRankFactors, {"n": 6, "m": 5, "rank": 2}, visit),
        Part("Sphere", lambda n: Sphere(n), {"n": 4}, visit),
        Part("Oblique", Oblique, {"n": 4, "m": 2}, visit),
        Part("Stiefel", Stiefel, {"n": 4, "p": 2, "k": 1}, visit),
        Part("Hyperbolic", Hyperbolic, {"n": 3, "m": 2}, visit),
        Part("Simplex", Simplex, {"n": 3, "m": 2}, visit),
        Part("SpecialOrthogonal", SpecialOrthogonal, {"n": 3, "k": 2}, visit),
        Part("Power", Power, {"base": Grassmann(5, 2), "n": 3}, visit),
        Part("Product", Product, {"factors": [Grassmann(5, 2), Euclidean(2, 3)]}, visit),
        Part("using", Grassmann(5, 2).using, {"retraction": QR()}, visit),
        Part("Componentwise", Componentwise, {"retractions": [QR(), QR()]}, Power(Grassmann(5, 2), 2).using),
        Part("from_pymanopt", from_pymanopt, {"manifold": pymanopt.manifolds.Sphere(5)}, visit),
        Part("Problem", Problem, {"manifold": Euclidean(3, 2), "cost": ByHand()}, runs_whole),
        Part(
            "frechet_mean",
            frechet_mean,
            {
                "manifold": Grassmann(5, 2),
                "points": [Grassmann(5, 2).random_point(1), Grassmann(5, 2).random_point(2)],
                "weights": None,
                "tol": 1e-9,
                "max_iter": 50,
            },
        ),
        Part("Graph", Graph, {"n": 3, "edges": [[0, 1], [1, 2]], "name": "mine"}),
        Part("as_graph", as_graph, {"graph": "path", "n": 4}),
        Part(
            "AugmentedLagrangian",
            AugmentedLagrangian,
            {
                "inner": LBFGS(max_iter=20),
                "max_iter": 3,
                "tol": 1e-3,
                "max_violation": 1e-3,
                "penalty": 1.0,
                "growth": 5.0,
            },
            runs(constrained),
        ),
        Part(
            "ConstrainedProblem",
            ConstrainedProblem,
            {"manifold": Euclidean(3, 2), "cost": ByHand(), "equalities": [], "inequalities": [ByHand()]},
            lambda problem: arrays_of(AugmentedLagrangian(max_iter=2).run(problem, random_state=0).point),
        ),
        Part(
            "Adam",
            Adam,
            {"betas": (0.9, 0.99), "eps": 1e-8},
            lambda rule: runs(bilinear)(SGD(0.01, rule=rule, max_iter=30)),
        ),
        Part(
            "SRG",
            SRG,
            {"period": 5},
            lambda rule: runs(bilinear)(SGD(0.001, rule=rule, max_iter=30, batch_size=2)),
        ),
        Part(
            "SGD",
            SGD,
            {
                "step_size": 0.01,
                "max_iter": 30,
                "batch_size": None,
                "sampler": None,
                "retraction": None,
                "engine": "auto",
            },
            runs(bilinear),
        ),
        Part(
            "SGD.run",
            run_arguments,
            {
                "initial_point": None,
                "random_state": 0,
                "recorder": None,
                "checkpoint": None,
                "stop": None,
            },
        ),
        Part(
            "CoordinateDescent",
            CoordinateDescent,
            {"n_epochs": 1, "step_size": None, "order": "uniform", "retraction": None, "engine": "auto"},
            runs(metric),
        ),
        Part(
            "Gossip",
            Gossip,
            {"step_size": 0.01, "n_epochs": 5, "order": "stochastic", "preconditioned": False},
            runs(gossiping),
        ),
        Part("DLMaFit", DLMaFit, {"max_iter": 5}),
        Part(
            "ManifoldIdentification",
            ManifoldIdentification,
            {"step_size": 0.01, "inner_step_size": 0.01, "inner_steps": 2, "inner": "gauge", "max_iter": 20},
            runs(bilinear),
        ),
        Part(
            "RankIncremental",
            RankIncremental,
            {
                "columns": 2,
                "factor": 2,
                "inner": TrustRegions(max_iter=20),
                "tol": 1e-4,
                "max_iter": 5,
                "max_rank": None,
                "rescale": True,
            },
            runs(convex),
        ),
        Part(
            "LBFGS",
            LBFGS,
            {"memory": 5, "step_length": None, "max_iter": 20, "tol": 1e-4, "gradient_norm": None},
            runs(convex),
        ),
        Part(
            "TrustRegions",
            TrustRegions,
            {"max_iter": 20, "tol": 1e-4, "gradient_norm": None, "max_inner": 50},
            runs(convex),
        ),
        Part(
            "Hybrid",
            Hybrid,
            {"max_iter": 20, "tol": 1e-4, "gradient_norm": None},
            runs(convex),
        ),
        Part(
            "GradientDescent",
            GradientDescent,
            {"step_length": None, **descent},
            runs(convex),
        ),
        Part(
            "ConjugateGradient",
            ConjugateGradient,
            {"rule": "hestenes-stiefel", "step_length": None, **descent},
            runs(convex),
        ),
        Part(
            "LineSearchSolver",
            LineSearchSolver,
            {"direction": QuasiNewton(3), "step_length": StrongWolfe(), **descent},
            runs(convex),
        ),
        Part("AdaptiveCubics", AdaptiveCubics, {"max_inner": 20, **descent}, runs(convex)),
        Part("SteepestDescent", SteepestDescent, {}, searched),
        Part("Conjugate", Conjugate, {"rule": "hybrid"}, searched),
        Part("QuasiNewton", QuasiNewton, {"memory": 4}, searched),
        Part("Backtracking", Backtracking, {}, searched),
        Part("BarzilaiBorwein", BarzilaiBorwein, {}, searched),
        Part("StrongWolfe", StrongWolfe, {"flatness": 0.5}, searched),
        Part("MaxSteps", MaxSteps, {"steps": 3}, ended),
        Part("MaxSeconds", MaxSeconds, {"seconds": 1.0}, ended),
        Part("GradientNorm", GradientNorm, {"length": 1e-3, "relative": False}, ended),
        Part("Below", Below, {"value": 1.0, "name": "cost"}, ended),
        Part("SmallChange", SmallChange, {"share": 1e-3, "name": "cost"}, ended),
        Part("SmallStep", SmallStep, {"length": 1e-3}, ended),
        Part("Stagnation", Stagnation, {"rows": 3, "name": "cost"}, ended),
        Part("NotFinite", NotFinite, {"name": "cost"}, ended),
        Part(
            "Either",
            lambda second: MaxSteps(3) | second,
            {"second": Below(0.0)},
            ended,
        ),
        Part("Isometric", Isometric, {}, carried),
        Part("OfRetraction", OfRetraction, {}, carried),
        Part(
            "PymanoptSolver",
            PymanoptSolver,
            {"optimizer": "ConjugateGradient"},
            runs(bilinear),
        ),
        Part("Uniform", Uniform, {"terms": N, "batch_size": 1}, sampled),
        Part("Cyclic", Cyclic, {"terms": N}, sampled),
        Part("ShuffledEpochs", ShuffledEpochs, {"terms": N, "batch_size": 1}, sampled),
        Part(
            "FromDraw",
            FromDraw,
            {"function": lambda rng, start, size: rng.integers(N, size=(size, 1)), "batch_size": 1},
            sampled,
        ),
        Part(
            "Matchings",
            Matchings,
            {"graph": PATH},
            lambda order: runs(gossiping)(Gossip(0.01, n_epochs=3, order=order)),
        ),
        Part("Constant", Constant, {"a": 0.01}, stepped),
        Part("InverseSqrt", InverseSqrt, {"a": 0.01}, stepped),
        Part("Cosine", Cosine, {"a": 0.01, "n_steps": 30}, stepped),
        Part("InverseTime", InverseTime, {"a": 0.01, "b": 0.1}, stepped),
        Part("FromFunction", FromFunction, {"function": lambda t: 0.01 + 0.0 * t}, stepped),
        Part("ExactLineSearch", ExactLineSearch, {"limit": 0.9}, descended),
        Part("FractionOfBound", FractionOfBound, {"fraction": 0.5}, descended),
        Part(
            "Recorder",
            Recorder,
            {
                "metrics": {"one": lambda point: 1.0},
                "first": 5,
                "ratio": 2.0,
                "at": None,
                "progress": False,
            },
            recorded,
        ),
        Part(
            "Checkpoint",
            Checkpoint,
            {"path": Path(tempfile.gettempdir()) / "absent" / "c.npz", "every_seconds": 30.0},
            saved_elsewhere,
        ),
        Part(
            "BilinearSum",
            BilinearSum,
            {"left": X, "right": Z, "loss": squared, "targets": TARGETS},
            at_random(fixed),
        ),
        Part(
            "TripletSum",
            TripletSum,
            {"queries": X, "documents": X, "loss": squared, "triplets": TRIPLETS},
            at_random(fixed),
        ),
        Part(
            "LogDetTriplet",
            LogDetTriplet,
            {
                "X": X,
                "triplets": TRIPLETS,
                "loss": LOSSES["hinge"],
                "alpha": 1e-3,
                "beta": 1e-3,
                "kappa": 0.0,
                "sparsity": 0.0,
            },
            at_random(lambda cost: PositiveDefinite(cost.shape[0])),
        ),
        Part(
            "GossipCost",
            GossipCost,
            {"tasks": MatrixCompletion(KNOWN, 3), "graph": PATH, "rho": 1.0, "manifold": Grassmann(D, 2)},
            at_random(lambda cost: Power(Grassmann(D, 2), 3)),
        ),
        Part(
            "OnFactors",
            OnFactors,
            {"cost": BilinearSum(X, Z, squared, TARGETS)},
            at_random(lambda cost: FixedRankFactors(D, D, 2)),
        ),
        Part("Trace", Trace, {"beta": 0.5}),
        Part("Pairs", Pairs, {"left": [0, 1], "right": [1, 2], "n_objects": 4}),
        Part("Grid", Grid, {"rows": range(3), "columns": range(3, 5)}),
        Part(
            "Loss",
            Loss,
            {"name": "mine", "value": lambda z, y: (z - y) ** 2, "slope": lambda z, y: 2 * (z - y)},
        ),
        Part(
            "MatrixCompletion",
            MatrixCompletion,
            {"ratings": KNOWN, "n_agents": 2, "lam": 0.1},
            at_random(lambda cost: Grassmann(D, 2)),
        ),
        Part(
            "MultitaskFeatures",
            MultitaskFeatures,
            {"tasks": TASKS, "n_agents": 2, "lam": 0.1},
            at_random(lambda cost: Grassmann(D, 2)),
        ),
        Part("MultilabelCoembedding", MultilabelCoembedding, {"X": X, "Y": Y}, at_random(cone)),
        Part("TagRanking", TagRanking, {"triples": TAGS, "counts": None}, at_random(cone)),
        Part(
            "LinkPrediction",
            LinkPrediction,
            {"X": X, "pairs": [[0, 1], [1, 2]], "linked": [1, 0]},
            at_random(cone),
        ),
        Part("MetricRegression", MetricRegression, {"X": X.T}, at_random(cone)),
        Part("LabelRanking", LabelRanking, {"X": X, "Y": Y}, at_random(fixed)),
        Part("WarpRanking", WarpRanking, {"X": X, "Y": Y}, at_random(fixed)),
    ]


def runs_whole(problem: Any) -> Any:
    """Run SGD on a problem of a user's cost."""
    return arrays_of(SGD(0.01, max_iter=5).run(problem, random_state=0).point)


def saved_elsewhere(checkpoint: Any) -> Any:
    Checkpoint(Path.cwd() / "c.npz", checkpoint.every_seconds)
    return saved(Checkpoint(Path(str(checkpoint.path)).name or "c.npz", checkpoint.every_seconds))


def argument_cases(part: Part) -> Iterator[Case]:
    """Yield each argument of a part replaced by each strange value."""
    for name, (number, value) in itertools.product(part.valid, enumerate(STRANGE)):

        def run(name: str = name, value: Any = value) -> Any:
            return part.use(part.make(**{**part.valid, name: value}))

        yield Case(f"{part.name}({name}=STRANGE[{number}]) {' '.join(repr(value).split())[:40]}", run)


def combinations(seed: int, count: int) -> Iterator[Case]:
    """Yield random problems, solvers and retractions that strangers put together, right and wrong."""
    from rmopt import retractions

    manifolds: list[Any] = [
        PSDFactors(D, 2), FixedRankFactors(D, D, 2), BoundedRank(D, D, 2),
        Euclidean(D, D), FixedRankEmbedded(D, D, 2), PSDFixedRank(D, 2), PolarPSD(D, 2), Grassmann(D, 2),
        PositiveDefinite(D), Power(Grassmann(D, 2), 3), Product([Grassmann(D, 2), Euclidean(2, 2)]),
        Sphere(D), Oblique(D, 2), Stiefel(D, 2), SpecialOrthogonal(D),
        from_pymanopt(pymanopt.manifolds.Stiefel(D, 2)),
        from_pymanopt(pymanopt.manifolds.SymmetricPositiveDefinite(D)), pymanopt.manifolds.Sphere(D),
    ]  # fmt: skip
    costs: list[Any] = [
        BilinearSum(X, Z, LOSSES["squared"], TARGETS), TripletSum(X, X), LogDetTriplet(X, TRIPLETS), frobenius,
        of_factors, ByHand(), NotANumber(), WrongShape(), MetricRegression(X.T) + Trace(0.5), MetricRegression(X.T),
        GossipCost(MatrixCompletion(KNOWN, 3), PATH, 1.0, Grassmann(D, 2)), MatrixCompletion(KNOWN, 3),
        MultilabelCoembedding(X, Y) + Trace(1.0), LabelRanking(X, Y),
        OnFactors(BilinearSum(X, Z, LOSSES["squared"], TARGETS)), OnFactors(of_factors),
        lambda point: 0.0, None,
    ]  # fmt: skip
    moves: list[Any] = [None, Half(), Additive(), QR(), Exponential(), MetricProjection(), "qr", "nonsense"]
    moves += [
        getattr(retractions, name)()
        for name in ("SecondOrderPD", "SecondOrderPSD", "PolarFactors", "SchurExponential")
    ]
    moves += [Componentwise([QR(), Additive()])]
    solvers: list[Callable[[Any], Any]] = [
        lambda move: SGD(0.01, max_iter=20, retraction=move),
        lambda move: SGD(1e3, max_iter=20, retraction=move),
        lambda move: SGD(0.01, max_iter=20, retraction=move, engine="compiled"),
        lambda move: SGD(0.01, max_iter=20, batch_size=3, retraction=move),
        lambda move: CoordinateDescent(1, retraction=move),
        lambda move: CoordinateDescent(1, step_size=0.1, retraction=move),
        lambda _: Gossip(0.01, n_epochs=3),
        lambda _: RankIncremental(max_iter=3),
        lambda _: RankIncremental(max_iter=3, inner=SGD(0.01, max_iter=5)),
        lambda move: LBFGS(max_iter=20, retraction=move), lambda move: TrustRegions(max_iter=10),
        lambda move: GradientDescent(max_iter=20, retraction=move), lambda _: Hybrid(max_iter=20),
        lambda _: ConjugateGradient("hager-zhang", StrongWolfe(), max_iter=10, transport=Isometric()),
        lambda _: AdaptiveCubics(max_iter=10),
        lambda _: ManifoldIdentification(0.01, inner_step_size=0.01, max_iter=10),
        lambda _: PymanoptSolver("ConjugateGradient", max_iterations=5),
        lambda _: PymanoptSolver("TrustRegions", max_iterations=3),
    ]  # fmt: skip
    draw = random.Random(seed)
    for number in range(count):
        manifold, cost, move = draw.choice(manifolds), draw.choice(costs), draw.choice(moves)
        which = draw.randrange(len(solvers))

        def run(manifold: Any = manifold, cost: Any = cost, move: Any = move, which: int = which) -> Any:
            if cost is frobenius and isinstance(manifold, Product):
                return []  # its one argument: Python itself says so
            solver = solvers[which](move)
            result = solver.run(Problem(manifold, cost), random_state=0)
            flaw = (
                manifold.with_rank(result.point.rank).check_point(result.point)
                if (isinstance(solver, RankIncremental) and result.point.rank)
                else None
                if isinstance(solver, RankIncremental)
                else manifold.check_point(result.point)
            )
            assert flaw is None, flaw
            return arrays_of(result.point)

        name = f"{number}: solver {which}, {move!r}, {manifold!r}, {type(cost).__name__}"
        yield Case(name, run)
