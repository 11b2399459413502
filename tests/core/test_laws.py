"""The laws of `rmopt.checks` over the whole catalogue; and the checks themselves: wrong things fail."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from tabled import each_row

import rmopt.checks
from rmopt.checks import check_engine, check_manifold, checks_of
from rmopt.checks.catalogue import Instance, fixed_rank_instances, instances
from rmopt.core import BlockCost
from rmopt.engines import BilinearEngine
from rmopt.engines.bilinear import BatchEngine, SymmetricBilinearEngine
from rmopt.engines.choose import choose_coordinate_engine, choose_engine
from rmopt.engines.log_det import LogDetEngine
from rmopt.manifolds import Grassmann, Sphere, Stiefel
from rmopt.retractions import (
    FIXED_RANK_RETRACTIONS,
    GRASSMANN_RETRACTIONS,
    POSITIVE_DEFINITE_RETRACTIONS,
    PSD_RETRACTIONS,
    PolarFactors,
)
from rmopt.retractions.arrays import FRAME_RETRACTIONS, SPHERE_RETRACTIONS


@pytest.mark.parametrize("instance", instances(), ids=lambda one: one.name)
def test_laws(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half of them move blocks, more than an inverse has pending; `rmopt check` and the slow tests take 200.
    steps = 70 if "positive-definite" in instance.name else 40
    monkeypatch.setattr(rmopt.checks, "check_engine", partial(check_engine, steps=steps))
    checks = checks_of(instance, seed=1)
    assert len(checks) >= 10
    failed = [str(check) for check in checks if not check]
    assert not failed, "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_geometry_in_twenty_seeds(dtype: Any, capsys: pytest.CaptureFixture[str]) -> None:
    count, failed = 0, []
    for instance in instances():
        part = Instance(instance.name, instance.manifold, instance.retractions, point=instance.point)
        for seed in range(20):
            checks = checks_of(part, seed, dtype)
            count += len(checks)
            failed += [f"{instance.name}, seed {seed}: {check}" for check in checks if not check]
    with capsys.disabled():
        print(f"\n{np.dtype(dtype)}: {count} checks, {len(failed)} failed")
    assert not failed, "\n".join(failed)


def test_the_catalogue_has_no_case_only_at_a_degenerate_value() -> None:
    sizes = [(*one.manifold.shape, one.manifold.rank) for one in fixed_rank_instances()]  # type: ignore[attr-defined]
    assert any(n > m for n, m, _ in sizes)
    assert any(n < m for n, m, _ in sizes)
    assert any(1 < k < min(n, m) for n, m, k in sizes)
    for one in fixed_rank_instances():
        for problem in one.problems.values():
            empty = np.diff(problem.cost.left.indptr) == 0  # type: ignore[attr-defined]
            assert empty.any()


def test_the_catalogue_has_every_retraction_and_every_bilinear_engine() -> None:
    used = {type(retraction) for one in instances() for retraction in one.retractions}
    assert used >= {
        type(r)
        for r in (
            *FIXED_RANK_RETRACTIONS.values(),
            *PSD_RETRACTIONS.values(),
            *POSITIVE_DEFINITE_RETRACTIONS.values(),
            *GRASSMANN_RETRACTIONS.values(),
            *SPHERE_RETRACTIONS.values(),
            *FRAME_RETRACTIONS.values(),
            PolarFactors(),
        )
    }
    engines = {
        type(
            choose_coordinate_engine(problem, retraction, "compiled")
            if isinstance(problem.cost, BlockCost)
            else choose_engine(problem, retraction, "compiled", one.batch_size)
        )
        for one in instances()
        for problem in one.problems.values()
        for retraction in one.compiled
    }
    assert engines >= {BatchEngine, BilinearEngine, LogDetEngine, SymmetricBilinearEngine}


@pytest.mark.parametrize("seed", range(2))
def test_a_point_and_a_vector_of_one_seed_are_a_pair(seed: int) -> None:
    for one in instances():
        manifold = one.manifold
        point = manifold.random_point(np.random.default_rng(seed))
        vector = manifold.random_tangent_vector(point, np.random.default_rng(seed))
        assert abs(manifold.norm(point, vector) - 1.0) < 1e-10
        off = manifold.norm(point, vector - manifold.to_tangent_space(point, vector))
        assert off < 1e-10, f"{one.name}: {off}"


@each_row("manifold", [Stiefel(2, 1), Grassmann(2, 1), Stiefel(2, 2), Sphere(2)])
def test_no_false_alarm_where_there_is_one_dimension(manifold: Any) -> None:
    failed = [check for seed in range(4) for check in check_manifold(manifold, seed) if not check]
    assert not failed
