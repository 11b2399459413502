"""Multitask features: the corrected cost, the estimator, Alt-Min, the data of patients."""

from pathlib import Path

import numpy as np
import pytest
from real_data import REAL, real
from sklearn.exceptions import ConvergenceWarning

from problems.data import TaskBundle
from problems.data.sets import parkinsons
from problems.subspace import MultitaskFeatures, MultitaskSubspace, alt_min
from problems.subspace.experiment import alike, errors, shared_features
from problems.subspace.multitask_estimator import PooledRidge
from rmopt.core import InvalidInputError
from rmopt.manifolds import Grassmann


def test_multitask_is_equation_14_and_not_15() -> None:
    rng = np.random.default_rng(4)
    tasks = [(rng.standard_normal((d, 8)), rng.standard_normal(d)) for d in (5, 9, 4)]
    U, lam = np.linalg.qr(rng.standard_normal((8, 3)))[0], 0.4
    cost, total, fits = MultitaskFeatures(tasks, 2, lam), 0.0, 0.0
    W = np.concatenate([cost.weights(U, agent) for agent in range(2)])
    for (X, y), w in zip(tasks, W, strict=True):
        V = np.vstack([X @ U, np.sqrt(2 * lam) * np.eye(3)])
        np.testing.assert_allclose(
            w, np.linalg.lstsq(V, np.append(y, np.zeros(3)), rcond=None)[0], atol=1e-12
        )
        fit = 0.5 * np.sum((X @ U @ w - y) ** 2)
        total, fits = total + fit + lam * np.sum(w**2), fits + fit
    np.testing.assert_allclose(cost.value(U), total, rtol=1e-13)
    assert abs(fits - total) > 1e-2
    # The printed gradient belongs to equation 14: it does not match the slope of the fits alone.
    xi = Grassmann(8, 3).random_tangent_vector(U, rng)

    def fit_at(basis: np.ndarray) -> float:
        return sum(
            0.5 * np.sum((X @ basis @ w - y) ** 2)
            for (X, y), w in zip(tasks, np.concatenate([cost.weights(basis, i) for i in (0, 1)]), strict=True)
        )

    manifold, printed = Grassmann(8, 3), np.vdot(np.asarray(cost.gradient(U) @ np.eye(3)), xi)
    slopes = [
        (f(manifold.exp(U, 1e-5 * xi)) - f(manifold.exp(U, -1e-5 * xi))) / 2e-5 for f in (cost.value, fit_at)
    ]
    np.testing.assert_allclose(printed, slopes[0], atol=1e-8)
    assert abs(printed - slopes[1]) > 1e-3


def test_errors_of_tasks_with_one_test_row_have_no_variance_of_their_own() -> None:
    X, y = np.eye(4), np.array([0.0, 4.0, 1.0, 1.0])
    bundle = TaskBundle("pairs", "by hand", X, y, np.array([0, 0, 1, 1]))
    found = errors(bundle, np.array([True, False, True, False]), np.array([2.0, 1.0]))
    assert found["nmse"] == 1.0
    assert np.isnan(found["nmse_test"])


def test_multitask_estimator_finds_the_shared_features() -> None:
    rng = np.random.default_rng(2)
    X, tasks = (
        2.0 + rng.standard_normal((400, 8)) * np.geomspace(1, 100, 8),
        np.repeat(list("abcdefghij"), 40),
    )
    coef = rng.standard_normal((10, 2)) @ rng.standard_normal((2, 8)) / np.geomspace(1, 100, 8)
    levels = rng.standard_normal(10)
    which = np.repeat(np.arange(10), 40)
    y = np.einsum("ij,ij->i", X, coef[which]) + levels[which]
    shuffled = rng.permutation(400)
    X, tasks, y = X[shuffled], tasks[shuffled], y[shuffled]
    for options in ({"solver": "batch"}, {"n_agents": 3}, {"n_agents": 3, "variant": "precon-parallel"}):
        model = MultitaskSubspace(2, lam=1e-6, random_state=0, **options).fit(X, y, tasks=tasks)
        assert model.score(X, y, tasks=tasks) > 0.999
        if options == {"solver": "batch"}:
            np.testing.assert_allclose(model.coef_, coef, atol=1e-4)
            np.testing.assert_allclose(model.intercept_, levels, atol=1e-2)
    with pytest.raises(InvalidInputError, match="divide them"):
        MultitaskSubspace(2).fit(X, y * 1e-100, tasks=tasks)
    few = np.isin(tasks, list("abc"))
    fewer = MultitaskSubspace(2, random_state=0).fit(X[few], y[few], tasks=tasks[few])
    assert len(fewer.agents_) == 3
    with pytest.raises(InvalidInputError, match="1 agents"):
        fewer.fit(X, y, tasks=np.zeros(len(y)))
    with pytest.warns(ConvergenceWarning, match="1 steps.*raise max_iter") as told:
        fewer.set_params(solver="batch", max_iter=1).fit(X, y, tasks=tasks)
    assert told[0].filename == __file__
    assert "agents_" not in vars(fewer)
    with pytest.raises(InvalidInputError, match=r"task .*'z'.* was not seen"):
        model.predict(X[:1], ["z"])
    with pytest.raises(InvalidInputError, match="one task for each of 400"):
        model.fit(X, y, tasks=tasks[:5])
    for options in ({"rank": 8}, {"solver": "newton"}, {"scale": "log"}, {"centre": "all"}):
        with pytest.raises(InvalidInputError):
            MultitaskSubspace(**options).fit(X, y, tasks=tasks)
    with pytest.raises(InvalidInputError, match="rank = 8 must be below the number of features, 1"):
        MultitaskSubspace(8).fit(X[:, :1], y, tasks=tasks)


def test_alt_min_descends_to_the_convex_optimum() -> None:
    rng = np.random.default_rng(3)
    tasks = [(rng.standard_normal((d, 6)), rng.standard_normal(d)) for d in (9, 12, 7, 10)]
    A, history = alt_min(tasks, 0.3, tol=1e-14, max_iter=5000)
    assert (np.diff(history) <= 1e-12).all()

    def objective(a: np.ndarray) -> float:
        table = a.reshape(6, 4)
        fit = sum(0.5 * np.sum((X @ column - y) ** 2) for (X, y), column in zip(tasks, table.T, strict=True))
        return float(fit + 0.3 * np.linalg.norm(table, "nuc") ** 2)

    # Smoothing costs a little.

    np.testing.assert_allclose(objective(A.ravel()), history[-1], rtol=1e-4)
    for _ in range(50):
        step = rng.standard_normal(24) * 10.0 ** rng.uniform(-4, 0)
        assert objective(A.ravel() + step) >= history[-1] * (1.0 - 1e-4)
    flawed: list[tuple[list[tuple[np.ndarray, np.ndarray]], float, int, str]] = [
        (tasks, 0.0, 5, "must be a positive number"),
        (tasks, 0.3, 0, "max_iter = 0 must be a positive integer"),
        ([], 0.3, 5, "there must be tasks"),
        ([(tasks[0][0], np.full(9, np.nan))], 0.3, 5, "NaN or infinity"),
    ]
    for some, lam, steps, why in flawed:
        with pytest.raises(InvalidInputError, match=why):
            alt_min(some, lam, max_iter=steps)


def test_parkinsons_as_uci_publishes_it(tmp_path: Path) -> None:
    rows = [[subject, 60, 1, 0.5, 20.0, 30.0 + subject, *range(16)] for subject in (3, 3, 8, 8)]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "parkinsons_updrs.data").write_text(
        ",".join(f"x{place}" for place in range(22)) + "\n" + text + "\n"
    )
    bundle = parkinsons(tmp_path)
    assert bundle.X.shape == (4, 19)
    assert bundle.task.tolist() == [0, 0, 1, 1]
    assert bundle.y.tolist() == [33.0, 33.0, 38.0, 38.0]
    test = bundle.held_out(0)
    assert [int(test[bundle.task == t].sum()) for t in (0, 1)] == [1, 1]


@real("parkinsons_telemonitoring.npz")
def test_gossip_on_parkinsons_is_near_alt_min_and_the_batch_optimum() -> None:
    bundle = parkinsons(REAL)
    hidden = bundle.held_out(0)
    part = bundle.X[~hidden], bundle.y[~hidden], bundle.task[~hidden]
    scores = [
        MultitaskSubspace(5, scale="none", centre="none", random_state=0, **options)
        .fit(*part)
        .score(bundle.X[hidden], bundle.y[hidden], bundle.task[hidden])
        for options in ({}, {"solver": "batch"})
    ]
    assert 1.0 - scores[0] < 0.37
    assert abs(scores[0] - scores[1]) < 0.01


def test_defaults_are_not_behind_pooled_ridges_and_find_no_shared_vector_where_there_is_none() -> None:
    for bundle, shared in ((alike(), True), (shared_features(), False)):
        gaps = []
        for seed in range(3):
            out = bundle.held_out(seed)
            found = []
            for model in (
                MultitaskSubspace(solver="batch", random_state=0),
                PooledRidge(),
                PooledRidge(True),
            ):
                model.fit(bundle.X[~out], bundle.y[~out], tasks=bundle.task[~out])
                found.append(errors(bundle, out, model.predict(bundle.X[out], bundle.task[out]))["nmse"])
            gaps.append(np.subtract(found[1:], found[0]))
        assert (np.mean(gaps, axis=0) > 0.01).all()
        # The shared part of the last task's coefficients is far from 0, or hardly there.
        assert (np.linalg.norm(model.coef_.mean(axis=0)) > 2.0) == shared
