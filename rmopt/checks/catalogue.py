"""The catalogue of instances for `rmopt check` and the tests of laws.

A package adds its own by an entry point of the group ``rmopt.instances``, a function that returns a list of
`Instance`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import manifolds, retractions
from rmopt.core.low_rank import LowRankPoint, PSDPoint
from rmopt.core.manifold import FixedRankManifold, Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.costs import LOSSES, BilinearSum, EntrySum, LogDetTriplet, TripletSum
from rmopt.linalg import symmetric
from rmopt.manifolds.symmetric_positive_definite import METRICS

__all__ = ["Instance", "instances"]

PointMaker = Callable[[np.random.Generator], Any]


@dataclass(frozen=True)
class Instance:
    """A manifold with its retractions and problems.

    Attributes
    ----------
    name : str
    manifold : Manifold
    retractions : list of Retraction
    problems : mapping
        From names to problems on the manifold.
    point : callable, optional
        Makes the point for the checks from a generator. Defaults to a random point.
    compiled : list of Retraction
        Those with a compiled engine for every problem.
    batch_size : int
        Terms per step for checks of compiled engines.
    """

    name: str
    manifold: Manifold
    retractions: list[Retraction]
    problems: dict[str, Problem] = field(default_factory=dict)
    point: PointMaker | None = None
    compiled: list[Retraction] = field(default_factory=list)
    batch_size: int = 1


def instances() -> list[Instance]:
    """Return all registered instances: rmopt's own and those of other packages."""
    found = [*fixed_rank_instances(), *psd_instances(), *positive_definite_instances()]
    found += [*array_instances(), *product_instances(), *tensor_instances()]
    for entry in entry_points(group="rmopt.instances"):
        found.extend(entry.load()())
    return found


def fixed_rank_instances() -> list[Instance]:
    """Return instances of `FixedRankEmbedded`: wide, tall and square, tied and uneven singular values."""
    every, made = list(retractions.FIXED_RANK_RETRACTIONS.values()), []
    compiled = [retraction for retraction in every if retraction.kernel is not None]
    for n, m, k in ((9, 7, 3), (8, 12, 1), (6, 6, 6), (15, 4, 4), (30, 25, 5)):
        manifold = manifolds.FixedRankEmbedded(n, m, k)
        name, problems = f"fixed-rank-{n}x{m}-{k}", _all_problems(manifold)
        made.append(Instance(name, manifold, every, problems, compiled=compiled))
    first, problem = every[:1], {"batch": _triplet_problem(manifold, "logistic")}
    made.append(Instance("fixed-rank-batches", manifold, first, problem, compiled=first, batch_size=4))
    spread = manifolds.FixedRankEmbedded(11, 8, 4)
    values = {"tied": [1.0] * 4, "spread": [9.0, 1.0, 0.5, 0.2], "steep": [1.0, 0.1, 0.01, 1e-3]}
    for name, sigma in values.items():
        problems = {loss: _bilinear_problem(spread, loss) for loss in LOSSES if name == "steep"}
        point = partial(with_spectrum, spread, sigma)
        made.append(Instance(f"fixed-rank-{name}", spread, every, problems, point))
    return [*made, _unnamed(manifolds.FixedRankEmbedded(7, 5, 2, field="complex"))]


def psd_instances() -> list[Instance]:
    """Return instances of `PSDFixedRank` and `PolarPSD`: tied, uneven and steep eigenvalues, full rank."""
    every, made = list(retractions.PSD_RETRACTIONS.values()), []
    compiled: list[Retraction] = [retractions.SecondOrderPSD()]
    for n, k in ((9, 3), (12, 1), (30, 6)):
        manifold = manifolds.PSDFixedRank(n, k)
        made.append(Instance(f"psd-{n}-{k}", manifold, every, _all_problems(manifold), compiled=compiled))
    # Losses drive matrices of full rank to the boundary of the cone: no runs here, only laws.
    made.append(Instance("psd-5-5", manifolds.PSDFixedRank(5, 5), every))
    embedded, polar = manifolds.PSDFixedRank(10, 3), manifolds.PolarPSD(10, 3, weight=0.3)
    logistic = {"logistic": _bilinear_problem(polar, "logistic")}
    for name, values in (("tied", [1.0] * 3), ("spread", [9.0, 1.0, 0.2]), ("steep", [1.0, 0.03, 0.001])):
        point = partial(with_spectrum, embedded, values)
        made.append(Instance(f"psd-{name}", embedded, every, point=point))
        made.append(Instance(f"polar-{name}", polar, [retractions.PolarFactors()], logistic, point))
    whole = manifolds.PolarPSD(6, 2, field="complex")
    made.append(Instance("polar-complex", whole, [whole.default_retraction]))
    return [*made, _unnamed(manifolds.PSDFixedRank(6, 2, field="complex"))]


def positive_definite_instances() -> list[Instance]:
    """Return instances of positive definite matrices: one and many features, batches, every metric, uneven values."""
    every, made = list(retractions.POSITIVE_DEFINITE_RETRACTIONS.values()), []
    compiled = [retraction for retraction in every if retraction.kernel is not None]
    cases: dict[tuple[int, float], dict[str, dict[str, Any]]] = {
        (7, 0.2): {"squared_hinge": {}, "logistic": {"kappa": 0.2, "score": "distance"}},
        (6, 1.0): {"hinge": {"sparsity": 0.1}, "squared": {"score": "distance"}},
        (1, 1.0): {"logistic": {}},
    }
    for (d, share), costs in cases.items():
        cone = manifolds.PositiveDefinite(d)
        problems = {loss: _log_det_problem(cone, share, loss, **weights) for loss, weights in costs.items()}
        made.append(Instance(f"positive-definite-{d}", cone, every, problems, compiled=compiled))

    def steep(rng: np.random.Generator) -> np.ndarray:
        return with_spectrum(manifolds.PositiveDefinite(8), np.geomspace(1.0, 1e-3, 8), rng)

    def beyond(rng: np.random.Generator) -> np.ndarray:
        # Singular matrices are at a distance of some roots of the least eigenvalue.
        return 10.0 * steep(rng) + 0.1 * np.eye(8)

    whole = manifolds.SymmetricPositiveDefinite
    made.append(Instance("positive-definite-spread", manifolds.PositiveDefinite(8), every, point=steep))
    made += [_unnamed(manifolds.SpecialPositiveDefinite(d, k)) for d, k in ((2, 1), (4, 2))]
    for metric in METRICS:
        made += [_unnamed(whole(d, k, metric)) for d, k in ((1, 1), (4, 1), (3, 4))]
        made.append(_unnamed(whole(3, 2, metric, field="complex")))
        eight, point = whole(8, metric=metric), beyond if metric == "bures-wasserstein" else steep
        made.append(Instance(f"{metric}-spread", eight, list(eight.retractions.values()), point=point))
    return made


def array_instances() -> list[Instance]:
    """Return instances of manifolds of arrays: small, square, of one column, and batches."""
    sizes: dict[Callable[..., Manifold], list[tuple[int, ...]]] = {
        manifolds.Euclidean: [(4, 3)],
        manifolds.Positive: [(5, 2), (3,)],
        manifolds.Symmetric: [(3,)],
        manifolds.SkewSymmetric: [(4,)],
        manifolds.DoublyStochastic: [(2,), (5,)],
        manifolds.SymmetricDoublyStochastic: [(4,)],
        manifolds.Sphere: [(2,), (9,), (4, 3), (2, 3, 2)],
        manifolds.Oblique: [(5, 4), (2, 3), (4, 1)],
        manifolds.Elliptope: [(9, 3), (4, 4), (5, 2)],
        manifolds.SpecialOrthogonal: [(2, 1), (3, 1), (3, 4), (5, 1), (4, 3)],
        # Subspaces below and above half the dimension.
        manifolds.Grassmann: [(9, 3), (12, 1), (8, 6)],
        manifolds.Hyperbolic: [(1,), (4,), (3, 5)],
        manifolds.Simplex: [(2,), (5,), (4, 3)],
        manifolds.Stiefel: [(9, 3, 1), (5, 4, 1), (3, 3, 1), (6, 1, 1), (5, 2, 3)],
        partial(manifolds.Stiefel, metric="canonical"): [(9, 3), (5, 4), (3, 3), (6, 1), (5, 2, 3)],
        partial(manifolds.Stiefel, field="complex"): [(5, 2)],
        partial(manifolds.Stiefel, metric="canonical", field="complex"): [(4, 3, 2)],
        manifolds.Unitary: [(1,), (3,), (2, 3)],
    }
    made = [kind(*size) for kind, several in sizes.items() for size in several]
    made += [manifolds.Sphere(4, field="complex"), manifolds.Oblique(1, 3, field="complex")]
    made.append(manifolds.Grassmann(5, 2, field="complex"))
    mass = sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(7, 7)) / 6.0
    for kind in (manifolds.GeneralizedStiefel, manifolds.GeneralizedGrassmann):
        made += [kind(mass, 3), kind(mass.toarray(), 2), kind(mass.toarray(), 2, field="complex")]
    return list(map(_unnamed, made))


def _unnamed(manifold: Manifold) -> Instance:
    """Return an instance with all retractions, named after the manifold: stiefel-9-3 for Stiefel(9, 3)."""
    name = "-".join(re.findall(r"\w+", re.sub(r"\w+=", "", repr(manifold).lower())))
    return Instance(name, manifold, [*manifold.retractions.values()] or [manifold.default_retraction])


def product_instances() -> list[Instance]:
    """Return products: of curved and flat factors, nested, and with factors of different shapes and kinds."""
    cone, flat, lines = manifolds.PositiveDefinite(3), manifolds.Euclidean(2, 3), manifolds.Grassmann(6, 2)
    power, agents = manifolds.Power(lines, 3), manifolds.Product([lines] * 3)
    turns = manifolds.SpecialOrthogonal(3, 4)
    mixed = manifolds.Product([cone, manifolds.Power(flat, 2), manifolds.FixedRankEmbedded(5, 4, 2)])
    arrays = manifolds.Product([turns, manifolds.Sphere(5), manifolds.Power(manifolds.Oblique(3, 2), 2)])
    nested = manifolds.Product([manifolds.Grassmann(7, 2), manifolds.Product([cone, agents]), flat])
    return [
        Instance("power-grassmann", power, [*power.retractions.values()]),
        Instance("product-mixed", mixed, [mixed.default_retraction]),
        Instance("product-arrays", arrays, [arrays.default_retraction, arrays.fitting("exponential")]),
        Instance("product-nested", nested, [nested.default_retraction]),
    ]


def tensor_instances() -> list[Instance]:
    """Return instances of tensors of low rank: of two to four axes, and of a full rank along one."""
    made = []
    for kind, shape, ranks in (
        (manifolds.FixedMultilinearRank, (6, 5, 4), (3, 2, 2)),
        (manifolds.FixedMultilinearRank, (5, 4), (2, 2)),
        (manifolds.FixedMultilinearRank, (3, 2, 3, 4), (2, 2, 1, 2)),
        (manifolds.TensorTrain, (6, 5, 4), (3, 2)),
        (manifolds.TensorTrain, (3, 2, 3, 2), (2, 4, 2)),
    ):
        manifold, rng = kind(shape, ranks), np.random.default_rng(0)
        places = rng.integers(shape, size=(50, len(shape)))
        targets = np.where(rng.random(50) < 0.5, -1.0, 1.0)
        losses = {
            loss: Problem(manifold, EntrySum(shape, places, targets, LOSSES[loss]))
            for loss in ("squared", "logistic")
        }
        name = f"{kind.__name__.lower()}-{'x'.join(map(str, shape))}"
        made.append(Instance(name, manifold, [*manifold.retractions.values()], losses))
    return made


def _all_problems(manifold: FixedRankManifold) -> dict[str, Problem]:
    pairs = {loss: _bilinear_problem(manifold, loss) for loss in LOSSES}
    return pairs | {f"triplets-{loss}": _triplet_problem(manifold, loss) for loss in LOSSES}


def with_spectrum(manifold: Manifold, values: Any, rng: np.random.Generator) -> Any:
    """Return a random point whose core is not diagonal and has these singular values or eigenvalues."""
    point = manifold.random_point(rng)
    left, right = (np.linalg.qr(rng.standard_normal((len(values),) * 2))[0] for _ in range(2))
    if isinstance(point, LowRankPoint):
        return LowRankPoint(point.U, (left * values) @ right.T, point.V)
    core = symmetric((left * values) @ left.T)
    return PSDPoint(point.Q, core) if isinstance(point, PSDPoint) else core


def _log_det_problem(
    manifold: manifolds.PositiveDefinite, share: float, loss: str, **weights: Any
) -> Problem:
    d = manifold.shape[0]
    rng = np.random.default_rng([d, 5])
    rows = _rows(20, d, rng, share).toarray()
    # A feature that never occurs.
    rows[:, d // 2] *= float(d == 1)
    triplets = rng.integers(20, size=(60, 3))
    return Problem(manifold, LogDetTriplet(rows, triplets, LOSSES[loss], alpha=3.0, beta=1.0, **weights))


def _rows(count: int, width: int, rng: np.random.Generator, share: float = 0.4) -> sp.csr_array:
    """Return rows of length about 1 with this share of nonzero numbers and two empty rows."""
    rows = rng.standard_normal((count, width)) * (rng.random((count, width)) < share)
    rows[[3, count // 2]] = 0.0
    return sp.csr_array(rows / np.sqrt(share * width))


def _bilinear_problem(manifold: FixedRankManifold, loss: str) -> Problem:
    n, m = manifold.shape
    rng = np.random.default_rng([n, m])
    targets = np.where(rng.random(40) < 0.5, -1.0, 1.0)
    left, right = _rows(40, n, rng), _rows(40, m, rng)
    return Problem(manifold, BilinearSum(left, right, LOSSES[loss], targets))


def _triplet_problem(manifold: FixedRankManifold, loss: str) -> Problem:
    n, m = manifold.shape
    rng = np.random.default_rng([n, m])
    triplets = np.column_stack([rng.integers(size, size=60) for size in (20, 25, 25)])
    return Problem(manifold, TripletSum(_rows(20, n, rng), _rows(25, m, rng), LOSSES[loss], triplets))
