"""Half sweeps, Gibbs sampling and alternating least squares against plain numpy, closed forms and enumeration."""

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimator_parts import dated_ratings
from scipy.optimize import approx_fprime
from tabled import each_row

from problems.data import load
from problems.subspace import (
    RCGMC,
    RTRMC,
    BayesianCompletion,
    BiasedALS,
    GossipMatrixCompletion,
    ImplicitALS,
    ScaledSGDCompletion,
    entries,
)
from problems.subspace.als import Side
from problems.subspace.bayesian import FactorPrior, GibbsSampler, Links, Sample, regressed, rescaled
from problems.subspace.cost import KnownEntries, known_entries
from rmopt.core import InvalidInputError

Array = np.ndarray


def ratings(m: int = 30, n: int = 40, share: float = 0.5, noise: float = 0.3) -> KnownEntries:
    rng = np.random.default_rng(0)
    known = rng.random((m, n)) < share
    known[4], known[:, 7] = False, False
    values = 3.0 + rng.standard_normal((m, 1)) + rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    values += noise * rng.standard_normal((m, n))
    return known_entries(sp.csc_array((values[known], np.nonzero(known)), shape=(m, n)))


def plainly_regressed(
    known: Array, table: Array, features: Array, prior: FactorPrior, alpha: float, noise: Array
) -> Any:
    """Return draws, means and squared residuals of the columns of a dense table, one after the other."""
    found = []
    for j in range(table.shape[1]):
        rows = np.flatnonzero(known[:, j])
        Z = np.column_stack([np.ones(len(rows)), features[rows, 1:]])
        y = table[rows, j] - features[rows, 0]
        A = prior.precision + alpha * Z.T @ Z
        expected = prior.mean + (prior.shift[j % len(prior.shift)] if np.ndim(prior.shift) else 0.0)
        mean = np.linalg.solve(A, prior.precision @ expected + alpha * Z.T @ y)
        x = mean + np.linalg.solve(np.linalg.cholesky(A).T, noise[j])
        gaps, fits = y - Z @ x, Z[:, 1:] @ x[1:]
        found.append((x, mean, [gaps @ gaps, gaps @ fits, fits @ fits]))
    return [np.array(part) for part in zip(*found, strict=True)]


def prior_of(factors: Array, rng: np.random.Generator, others: Array | None = None) -> FactorPrior:
    """Draw from the normal-Wishart posterior as Salakhutdinov and Mnih print it, with ν₀ = d, β₀ = 2 and W₀ = I.

    `others` are rows of the same precision and of mean 0.
    """
    n, d = factors.shape
    others = np.zeros((0, d)) if others is None else others
    mean, S = factors.mean(axis=0), np.cov(factors.T, bias=True)
    W = np.linalg.inv(np.eye(d) + n * S + others.T @ others + 2.0 * n / (2.0 + n) * np.outer(mean, mean))
    freedom = d + n + len(others)
    T = np.tril(rng.standard_normal((d, d)), -1) + np.diag(np.sqrt(rng.chisquare(freedom - np.arange(d))))
    # W⁻¹ = C Cᵀ, so that a root of W is C⁻ᵀ.
    root = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(W))).T @ T
    precision = root @ root.T
    away = np.linalg.solve(np.linalg.cholesky((2.0 + n) * precision).T, rng.standard_normal(d))
    return FactorPrior(n * mean / (2.0 + n) + away, precision)


def resized(
    link: list[Any],
    factors: Array,
    prior: FactorPrior,
    squares: Array,
    alpha: float,
    rng: np.random.Generator,
) -> Any:
    """Draw the size of factors, which moves with prior and links; return the squared residuals at the end."""
    d, (square, along, length) = factors.shape[1], squares.sum(axis=0)
    s = rng.normal(1.0 + along / length, (alpha * length) ** -0.5) if d > 1 else 1.0
    if d == 1 or np.log(rng.random()) > -(d * (d - 1) + 1) * np.log(abs(s)) - sum(
        prior.precision[k, k] * (1.0 / s**2 - 1.0) / 2.0 for k in range(1, d)
    ):
        return factors, prior, square
    D = np.diag([1.0, *[s] * (d - 1)])
    link[0] = link[0] @ D
    inverse = np.linalg.inv(D)
    prior = FactorPrior(prior.mean @ D, inverse @ prior.precision @ inverse, prior.shift @ D)
    return factors @ D, prior, square + 2.0 * (1.0 - s) * along + (1.0 - s) ** 2 * length


def linked(
    F: Array, link: list[Any], factors: Array, prior: FactorPrior, rng: np.random.Generator
) -> FactorPrior:
    """Draw B and λ of a table of features F, one feature after the other, and then the prior of X − F B."""
    B, strength = link
    noise = np.zeros_like(B)
    if len(B):
        noise = np.linalg.solve(np.linalg.cholesky(prior.precision).T, rng.standard_normal(B.shape).T).T
    for f in range(len(B)):
        rest = factors - prior.mean - F @ B + np.outer(F[:, f], B[f])
        weight = F[:, f] @ F[:, f] + strength
        B[f] = F[:, f] @ rest / weight + noise[f] / np.sqrt(weight)
    if len(B):
        square = np.trace(B @ prior.precision @ B.T)
        link[1] = rng.gamma(1.0 + B.size / 2.0) / (1.0 + square / 2.0)
    shift = F @ B
    return prior_of(factors - shift, rng, np.sqrt(link[1]) * B)._replace(
        shift=np.concatenate([shift, np.zeros_like(shift[:1])])
    )


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("implicit", [False, True])
def test_the_sampler_is_the_plain_one_for_the_same_random_numbers(rank: int, implicit: bool) -> None:
    entries_ = ratings()
    known, table = np.zeros((31, 41), bool), np.zeros((31, 41))
    known[:30, :40] = sp.csc_array((np.ones(entries_.nnz), entries_.indices, entries_.indptr)).toarray() > 0
    table[:30, :40] = entries_.toarray()
    flags = known[:30, :40] * float(implicit)
    of_rows, of_columns = (
        side[:, : implicit * side.shape[1]] / np.sqrt(np.maximum(side.sum(axis=1, keepdims=True), 1.0))
        for side in (flags, flags.T)
    )
    sampler = GibbsSampler(entries_, rank, np.random.default_rng(1), implicit)
    rng, d, alpha = np.random.default_rng(1), rank + 1, 1.0
    columns = 0.1 * rng.standard_normal((41, d))
    columns[:, 0] = 0.0
    row_prior = column_prior = FactorPrior(np.zeros(d), 5.0 * np.eye(d), np.zeros((1, d)))
    row_link, column_link = ([np.zeros((F.shape[1], d)), 1.0] for F in (of_rows, of_columns))
    for _ in range(6):
        found = sampler.sweep()
        rows, _, squares = plainly_regressed(
            known.T, table.T, columns, row_prior, alpha, rng.standard_normal((31, d))
        )
        rows, row_prior, _ = resized(row_link, rows, row_prior, squares, alpha, rng)
        row_prior = linked(of_rows, row_link, rows[:-1], row_prior, rng)
        columns, means, squares = plainly_regressed(
            known, table, rows, column_prior, alpha, rng.standard_normal((41, d))
        )
        expected = Sample(
            rows, columns, means, alpha, column_prior.mean, column_prior.precision, column_link[0].copy()
        )
        columns, column_prior, square = resized(column_link, columns, column_prior, squares, alpha, rng)
        column_prior = linked(of_columns, column_link, columns[:-1], column_prior, rng)
        alpha = rng.gamma(1.0 + known.sum() / 2.0) / (1.0 + square / 2.0)
        for name in Sample._fields:
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-9, err_msg=name
            )
    assert sampler.alpha == pytest.approx(alpha, rel=1e-8)


def test_moments_are_those_of_the_exact_posterior() -> None:
    """One column and three rows: the rows are integrated in closed form, the column on a grid."""
    y, alpha = np.array([0.7, -0.4, 1.1]), 2.0
    of_rows = FactorPrior(np.array([0.1, 0.6]), np.array([[2.0, 0.5], [0.5, 1.5]]))
    of_columns = FactorPrior(np.array([-0.2, 0.9]), np.array([[3.0, -0.6], [-0.6, 1.0]]))
    c, w = np.meshgrid(np.linspace(-4.0, 4.0, 401), np.linspace(-6.0, 7.0, 521), indexing="ij")
    apart = np.stack([c, w], axis=-1) - of_columns.mean
    logs = -0.5 * np.einsum("...a,ab,...b->...", apart, of_columns.precision, apart)
    Z = np.stack([np.ones_like(w), w], axis=-1)
    covariance = np.linalg.inv(of_rows.precision)
    spread = np.einsum("...a,ab,...b->...", Z, covariance, Z)
    level = c + Z @ of_rows.mean
    for value in y:
        logs -= 0.5 * (np.log(spread + 1.0 / alpha) + (value - level) ** 2 / (spread + 1.0 / alpha))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    # The first entry without its noise, given the column.
    shrunk = spread / (spread + 1.0 / alpha)
    centre, variance = level + shrunk * (y[0] - level), shrunk / alpha
    mean = np.sum(weights * centre)
    expected = [
        mean,
        np.sum(weights * (variance + centre**2)) - mean**2,
        np.sum(weights * c),
        np.sum(weights * w),
    ]

    table = known_entries(sp.csc_array(y[:, None]))
    by_columns, by_rows = Side(table, y), Side(sp.csr_array(table), y)
    rng, columns, samples, smooth = np.random.default_rng(0), np.zeros((1, 2)), [], []
    for _ in range(20_000):
        rows = regressed(by_rows, columns, of_rows, alpha, rng).drawn
        columns, means, _ = regressed(by_columns, rows, of_columns, alpha, rng)
        samples.append([rows[0, 0] + columns[0, 0] + rows[0, 1] * columns[0, 1], *columns[0]])
        smooth.append(rows[0, 0] + means[0, 0] + rows[0, 1] * means[0, 1])
    found, smoothed = np.array(samples), np.array(smooth)
    np.testing.assert_allclose([*found.mean(axis=0)], [mean, *expected[2:]], atol=0.03)
    assert found[:, 0].var() == pytest.approx(expected[1], rel=0.05)
    # The mean given the rows has the same mean, and varies less.
    assert smoothed.mean() == pytest.approx(mean, abs=0.015)
    assert smoothed.var() < 0.7 * found[:, 0].var()


def test_a_chain_that_draws_its_data_too_keeps_the_prior() -> None:
    """Geweke 2004: the precisions then have the prior's moments, whatever the order and the scales of the steps."""
    rng, m, n, d = np.random.default_rng(0), 2, 2, 2
    known = known_entries(sp.csc_array(np.ones((m, n))))
    sampler = GibbsSampler(known, d - 1, rng)
    sampler.row_links, sampler.column_links = (Links(np.array([[1.0], [-0.5]]), d) for _ in range(2))
    noise, precisions, strengths, squares = [], [], [], []
    for _ in range(12_000):
        sample = sampler.sweep()
        U, W, link = sampler.rows[:-1], sampler.columns[:-1], sampler.column_links
        y = U[:, :1] + W[:, 0] + U[:, 1:] @ W[:, 1:].T + rng.standard_normal((m, n)) / np.sqrt(sampler.alpha)
        sampler.by_rows.known[2][:], sampler.by_columns.known[2][:] = y.ravel(), y.T.ravel()
        noise.append(sampler.alpha)
        precisions.append(sample.column_prior_precisions_)
        strengths.append(link.strength)
        squares.append(
            link.strength * np.trace(link.weights @ sampler.column_prior.precision @ link.weights.T)
        )
    # Gamma(1, 1); Wishart(I, 2): mean 2 I, variances 4 on the diagonal, 2 beside it; Gamma(1, 1); and given λ and Λ
    # the weights of a feature have a χ² distribution with 2 degrees of freedom.
    eye = np.eye(2)
    for values, mean, variance in (
        (noise, 1.0, 1.0), (precisions, 2.0 * eye, 2.0 + 2.0 * eye), (strengths, 1.0, 1.0), (squares, 2.0, 4.0),
    ):  # fmt: skip
        for found, wanted in ((np.array(values), mean), ((np.array(values) - mean) ** 2, variance)):
            # The chain mixes slowly: pieces of it tell how far its means may be off.
            pieces = found.reshape(20, -1, *found.shape[1:]).mean(axis=1)
            off = np.abs(pieces.mean(axis=0) - wanted)
            np.testing.assert_array_less(off, 4.0 * pieces.std(axis=0, ddof=1) / 20**0.5)


def test_a_size_that_is_drawn_leaves_the_prior_as_it_is() -> None:
    """States by the prior, each with its residuals, have its moments after the move too: no chain is needed."""
    rng, d, alpha, moved = np.random.default_rng(0), 3, 2.0, []
    F, found = np.array([[1.0], [-0.5], [0.3]]), []
    for _ in range(3000):
        G = rng.standard_normal((d, d))
        root, link = np.linalg.inv(G), Links(F, d)
        link.weights = rng.standard_normal((1, d)) @ root.T
        prior = FactorPrior(root @ rng.standard_normal(d) / 2**0.5, G.T @ G, F @ link.weights)
        X = prior.mean + prior.shift + rng.standard_normal((3, d)) @ root.T
        fits = X[:, 1:] @ rng.standard_normal((d - 1, 4))
        e = rng.standard_normal(fits.shape) / alpha**0.5
        squares = np.array([(e * e).sum(axis=1), (e * fits).sum(axis=1), (fits * fits).sum(axis=1)]).T

        def moments(X: Array, prior: FactorPrior, link: Links) -> list[float]:
            precision, rest = prior.precision, X - prior.mean - prior.shift
            sizes = rest[:, 1] @ rest[:, 1], link.weights[0, 1] ** 2
            return [precision[1, 1], precision[0, 1] ** 2, *np.log([precision[2, 2], *sizes])]

        before = moments(X, prior, link)
        Y, new, square = rescaled(X, prior, link, squares, alpha, rng)
        moved.append(Y is not X)
        found.append([*np.subtract(moments(Y, new, link), before), square - squares[:, 0].sum()])
    assert np.mean(moved) > 0.7
    changes = np.array(found)
    np.testing.assert_array_less(
        np.abs(changes.mean(axis=0)), 4.0 * changes.std(axis=0) / len(changes) ** 0.5
    )


@each_row("model", [BiasedALS(3, random_state=0), BayesianCompletion(3, random_state=0, n_samples=5)])
def test_bits_do_not_depend_on_the_number_of_threads(model: Any) -> None:
    table, pairs = ratings(), np.argwhere(np.ones((30, 40)))
    default = numba.get_num_threads()
    found = [model.fit(table).predict(pairs)]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("problems.threads.WORTH_THREADS", 0)
            for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
                numba.set_num_threads(threads)
                found.append(model.fit(table).predict(pairs))
    finally:
        numba.set_num_threads(default)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@each_row("power", [0.0, 0.5, 1.0])
def test_als_ends_where_the_cost_is_flat(power: float) -> None:
    table = ratings(12, 14)
    how = {"lam": 0.1, "lam_effects": 0.7, "count_power": power, "max_iter": 2000, "tol": 0.0}
    model = BiasedALS(2, random_state=0, **how).fit(table)
    rows, columns = table.tocoo().coords
    values = (table.data - table.data.mean()) / table.data.std()
    counts = [np.bincount(rows, minlength=12), np.bincount(columns, minlength=14)]
    usual = min(50.0, *(n[side].mean() for n, side in zip(counts, (rows, columns), strict=True)))
    weights = [(np.maximum(n, 1.0) + usual) ** power for n in counts]
    unit = table.data.std()
    U = np.column_stack([model.row_effects_ / unit, model.components_])
    W = np.column_stack([model.column_effects_, model.weights_]) / unit

    def cost(x: Array) -> float:
        U, W = x[:36].reshape(12, 3), x[36:].reshape(14, 3)
        gaps = U[rows, 0] + W[columns, 0] + np.sum(U[rows, 1:] * W[columns, 1:], axis=1) - values
        squares = zip((U, W), weights, strict=True)
        return float(
            gaps @ gaps
            + sum(0.7 * x[:, 0] @ x[:, 0] + 0.1 * n @ np.sum(x[:, 1:] ** 2, axis=1) for x, n in squares)
        )

    end = np.concatenate([U.ravel(), W.ravel()])
    assert model.cost_ == pytest.approx(cost(end), rel=1e-12)
    assert np.abs(approx_fprime(end, cost, 1e-7)).max() < 1e-4
    with pytest.raises(AssertionError):
        assert np.abs(approx_fprime(1.01 * end, cost, 1e-7)).max() < 1e-4


def test_sweeps_do_not_end_while_factors_still_grow() -> None:
    """Near 0, where they start, the cost hardly falls: two of these ended at 5,710."""
    rng = np.random.default_rng(0)
    M = np.outer(rng.standard_normal(300), rng.standard_normal(200))
    known = sp.csc_array(np.where(rng.random(M.shape) < 0.1, M, 0.0))
    for seed in range(3):
        assert BiasedALS(1, lam=2.3, random_state=seed).fit(known).cost_ < 5600.0
    blocks = np.kron(np.eye(4), np.ones((25, 20))) * (rng.random((100, 80)) < 0.5)
    for seed in range(3):
        assert ImplicitALS(1, lam=9.0, random_state=seed).fit(sp.csc_array(blocks)).cost_ < 3120.0


def test_each_sweep_of_als_lowers_the_cost_until_they_stop() -> None:
    costs = [BiasedALS(3, max_iter=k, tol=0.0, random_state=0).fit(ratings()).cost_ for k in range(1, 12)]
    assert np.all(np.diff(costs) < 0.0)
    model = BiasedALS(3, max_iter=500, tol=1e-3, random_state=0).fit(ratings())
    assert 3 < model.n_iter_ < 100


def test_standard_deviations_cover_what_was_held_out() -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal((60, 1)) + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 80))
    noisy, known = 4.0 + 5.0 * (truth + 0.4 * rng.standard_normal(truth.shape)), rng.random(truth.shape) < 0.3
    model = BayesianCompletion(3, random_state=0).fit(
        sp.csc_array((noisy[known], np.nonzero(known)), shape=known.shape)
    )
    found, std = model.predict(np.argwhere(~known), return_std=True)
    gaps = np.abs(found - noisy[~known])
    assert np.mean(gaps < 1.96 * std) == pytest.approx(0.95, abs=0.02)
    assert np.mean(gaps < 0.6745 * std) == pytest.approx(0.5, abs=0.04)
    # Of what is known the noise is left, and entries with larger deviations are further away.
    assert 0.9 * 2.0 < std.min() < 1.4 * 2.0
    far = std > np.median(std)
    assert np.mean(gaps[far]) > 1.1 * np.mean(gaps[~far])
    np.testing.assert_array_equal(found, model.predict(np.argwhere(~known)))


MODELS = [
    RTRMC(2, lam=0.01, random_state=0),
    RCGMC(2, lam=0.01, random_state=0),
    GossipMatrixCompletion(2, lam=0.01, n_agents=2, n_epochs=5, random_state=0),
    BiasedALS(2, random_state=0),
    BayesianCompletion(2, random_state=0),
]


@each_row("model", [*MODELS, ScaledSGDCompletion(2, random_state=0)])
def test_a_new_column_is_predicted_as_one_with_the_same_entries(model: Any) -> None:
    table = ratings()
    model.fit(table)
    pairs, values = entries(table)
    mine = pairs[:, 1] == 3
    best = model.recommend_to_new(dict(zip(pairs[mine, 0].tolist(), values[mine], strict=True)), 30)
    there = dict(model.recommend(3, 30))
    assert {row for row, _ in best} == set(there)
    gaps = [there[row] - score for row, score in best]
    # Steps on single entries end near the regression.
    assert np.abs(gaps).max() < (0.5 if isinstance(model, ScaledSGDCompletion) else 1e-4)


def test_names_are_asked_for_where_fit_got_them() -> None:
    bundle = load(dated_ratings())
    model = BiasedALS(2, limits=(1.0, 5.0), random_state=0).fit(bundle)
    assert bundle.row_names is not None
    assert bundle.column_names is not None
    pairs = [
        (bundle.row_names[i], bundle.column_names[u])
        for i, u in zip(bundle.rows, bundle.columns, strict=True)
    ]
    plain = BiasedALS(2, limits=(1.0, 5.0), random_state=0).fit(bundle.table())
    expected = plain.predict(bundle.rows, bundle.columns)
    for given in (pairs, np.array(pairs), pd.DataFrame(pairs)):
        np.testing.assert_array_equal(model.predict(given), expected)
    assert model.predict("i3", ["u1", "u2"]).shape == (2,)
    for error in (model.rmse(pairs, bundle.values), model.rmse(bundle)):
        assert error == pytest.approx(plain.rmse(bundle))
    for wrong in ([(0, 1)], [("i3", "u77")], [("u1", "i3")], [("i3", None)]):
        with pytest.raises(InvalidInputError, match="was not seen by fit; give names such as"):
            model.predict(wrong)
    with pytest.raises(InvalidInputError, match="rows and columns must be equally many"):
        model.predict(["i3", "i4"], ["u1", "u2", "u3"])
    model.set_params(handle_unknown="mean")
    with pytest.warns(UserWarning, match="1 of 2 pairs"):
        assert model.predict([("i3", "u77"), pairs[0]])[1] == expected[0]


@each_row("kind", [BiasedALS, BayesianCompletion])
def test_whole_numbers_are_names_too(kind: Any) -> None:
    table = {"item": [7, 7, 3, 9, 3, 9], "user": [5, 6, 6, 6, 4, 4], "rating": [1.0, 2.0, 3.0, 4.0, 5.0, 2.0]}
    bundle = load(table)
    model = kind(1, random_state=0).fit(bundle)
    plain = kind(1, random_state=0, limits=bundle.limits).fit(bundle.table())
    assert np.array_equal(model.predict([3, 9], 5), plain.predict([0, 2], 1))
    assert np.array_equal(model.predict([[3, 5], [9, 5]]), plain.predict([[0, 1], [2, 1]]))
    # In a request numbers are text; 03 is another name.
    assert np.array_equal(model.predict(["3", "9"], "5"), model.predict([3, 9], 5))
    with pytest.raises(InvalidInputError, match="row '03' was not seen by fit; give names such as '3'"):
        model.predict(["03", "9"], 5)
    with pytest.raises(InvalidInputError, match="column 1 was not seen by fit"):
        model.predict([3, 9], 1)


def test_frames_lead_to_bundles() -> None:
    frame = dated_ratings()
    assert len(entries(sp.dok_array(np.eye(3)))[1]) == 3
    for given in (frame, frame.to_dict("list")):
        with pytest.raises(InvalidInputError, match=r"problems\.data\.load\(ratings\) makes a bundle"):
            BiasedALS(1).fit(given)


@each_row("model", MODELS)
def test_what_fit_did_not_see_gets_the_mean_with_a_warning(model: Any) -> None:
    table = ratings()
    with pytest.raises(InvalidInputError, match="column 40 was not seen by fit"):
        model.fit(table).predict([0, 1], [3, 40])
    model.set_params(handle_unknown="mean").fit(table)
    with pytest.warns(UserWarning, match="2 of 3 pairs have a row or a column"):
        found = model.predict([0, 30, 0], [3, 99, 41])
    # As a row and a column that have a number and no entry.
    np.testing.assert_allclose(found, model.predict([0, 4, 0], [3, 7, 7]), atol=0.35)
    assert found[0] == model.predict(0, 3)[0]
    model.set_params(handle_unknown="error")


@each_row("model", [ScaledSGDCompletion(2), GossipMatrixCompletion(2, n_epochs=2)])
def test_what_has_no_entry_does_not_depend_on_the_start(model: Any) -> None:
    """`ratings` has no entry in row 4 and column 7; what is known of the other one is its mean, by entries."""
    model.set_params(handle_unknown="mean", random_state=0)
    fitted = model.fit(ratings())
    with pytest.warns(UserWarning, match="fit did not see"):
        unseen = fitted.predict(30, range(40)), fitted.predict(range(30), 40)
    np.testing.assert_allclose(fitted.predict(4, range(40)), unseen[0], rtol=1e-12)
    np.testing.assert_allclose(fitted.predict(range(30), 7), unseen[1], rtol=1e-12)
    counts = np.diff(sp.csr_array(ratings()).indptr)
    means = [np.average(fitted.predict(range(30), column), weights=counts) for column in (0, 1)]
    expected = means if isinstance(model, ScaledSGDCompletion) else fitted.mean_
    np.testing.assert_allclose(fitted.predict(4, range(2)), expected, rtol=1e-12)


def test_the_start_may_be_the_end() -> None:
    """Four rows of ten have entries, and the rank is four: the first gradient is rounding."""
    table = sp.csc_array((np.arange(1.0, 13.0), (np.arange(12) % 4, np.arange(12))), shape=(10, 14))
    model = RCGMC(4, random_state=0).fit(table)
    assert model.rmse(table) < 1e-12
    np.testing.assert_allclose(model.predict(range(4, 10), 0), model.mean_)


def test_bayesian_deviations_are_larger_where_nothing_is_known() -> None:
    model = BayesianCompletion(2, random_state=0, handle_unknown="mean").fit(ratings())
    with pytest.warns(UserWarning, match="1 of 2 pairs"):
        _, std = model.predict([0, 0], [3, 40], return_std=True)
    assert std[1] > 1.5 * std[0]


def test_bayesian_predictions_of_what_fit_did_not_see_are_means_of_entries(tmp_path: Path) -> None:
    """Half of the rows have many high entries, the others a few low ones; row 4 and column 7 have none."""
    rng = np.random.default_rng(0)
    low = np.arange(40) % 2 == 1
    known = rng.random((40, 60)) < np.where(low, 0.1, 0.8)[:, None]
    known[4], known[:, 7] = False, False
    values = np.where(low, 1.0, 4.0)[:, None] + 0.3 * rng.standard_normal(known.shape)
    table = sp.csc_array((values[known], np.nonzero(known)), shape=known.shape)
    model = BayesianCompletion(2, n_samples=200, handle_unknown="mean", random_state=0).fit(table)
    with pytest.warns(UserWarning, match="fit did not see"):
        unseen = model.predict(40, range(60))
    # The mean over rows is 2.5, which a row that was seen without an entry is predicted by.
    assert table.data.mean() > 3.5
    assert unseen.mean() == pytest.approx(table.data.mean(), abs=0.3)
    assert model.predict(4, range(60)).mean() == pytest.approx(2.5, abs=0.3)
    model.save(tmp_path / "model.npz")
    for one in (model, BayesianCompletion.load(tmp_path / "model.npz")):
        with pytest.raises(InvalidInputError, match="the model knows nothing of 4 but its mean"):
            one.similar(4)


def test_a_penalty_that_is_too_small_is_named() -> None:
    with pytest.raises(InvalidInputError, match="no unique solution at rank 9"):
        BiasedALS(9, lam=1e-300, random_state=0).fit(ratings(share=0.1))


def test_which_entries_are_known_informs_where_it_does() -> None:
    """Everybody rates what he likes: then what he rated tells what he likes."""
    rng = np.random.default_rng(0)
    taste, film = rng.standard_normal((150, 2)), rng.standard_normal((200, 2))
    liking = taste @ film.T
    known = rng.random(liking.shape) < 1.0 / (1.0 + np.exp(4.0 - 3.0 * liking))
    noisy = 3.0 + liking + 1.5 * rng.standard_normal(liking.shape)
    shown = known & (rng.random(known.shape) < 0.8)
    table = sp.csc_array((noisy[shown], np.nonzero(shown)), shape=known.shape)
    pairs = np.argwhere(known & ~shown)
    truth = 3.0 + liking[tuple(pairs.T)]
    plain, informed = (
        BayesianCompletion(2, n_samples=60, implicit=implicit, random_state=0).fit(table)
        for implicit in (False, True)
    )
    errors = [np.sqrt(np.mean((model.predict(pairs) - truth) ** 2)) for model in (plain, informed)]
    assert errors[1] < 0.95 * errors[0]
    # The entries of a column that fit saw, as those of one that came later.
    column = np.flatnonzero(shown[:, 3])
    later = dict(informed.recommend_to_new(dict(zip(column.tolist(), noisy[column, 3], strict=True)), 150))
    found = [informed.predict(row, 3)[0] for row in later]
    assert np.corrcoef([*later.values()], found)[0, 1] > 0.97


def test_recommendations_are_in_the_order_of_scores_beyond_the_limits() -> None:
    rng = np.random.default_rng(0)
    truth = 4.0 + 3.0 * rng.standard_normal((30, 1)) @ rng.standard_normal((1, 40))
    rows, columns = np.nonzero(rng.random(truth.shape) < 0.5)
    ratings = sp.csc_array((truth[rows, columns], (rows, columns)), shape=truth.shape)
    free = BiasedALS(rank=2, random_state=0).fit(ratings)
    clipped = BiasedALS(rank=2, random_state=0).fit(ratings).set_params(limits=(1.0, 5.0))
    for column in range(40):
        best = free.recommend(column, 10)
        assert [row for row, _ in clipped.recommend(column, 10)] == [row for row, _ in best]
        assert [value for _, value in clipped.recommend(column, 10)] == [
            min(5.0, max(1.0, v)) for _, v in best
        ]


def test_predictions_and_entries_are_within_limits(tmp_path: Path) -> None:
    bundle = load(dated_ratings())
    model = BiasedALS(4, lam=1e-6, limits=bundle.limits, random_state=0).fit(bundle)
    pairs = np.argwhere(np.ones(bundle.shape))
    free = BiasedALS(4, lam=1e-6, random_state=0).fit(bundle.table())
    assert free.predict(pairs).max() > 5.0
    named = [(bundle.row_names[i], bundle.column_names[u]) for i, u in pairs]
    model.save(tmp_path / "model.npz")
    for one in (model, BiasedALS.load(tmp_path / "model.npz")):
        np.testing.assert_array_equal(one.predict(named), np.clip(free.predict(pairs), 1.0, 5.0))
        assert dict(one.recommend_to_new(["i3"])).keys() == dict(one.recommend_to_new({"i3": 5.0})).keys()
        for call in (
            lambda: one.recommend_to_new({"i3": 10.0}),  # noqa: B023
            lambda: BiasedALS(2, limits=(1.0, 4.0)).fit(bundle),
            lambda: free.recommend_to_new([3]),
        ):
            with pytest.raises(InvalidInputError, match="limits"):
                call()
    assert ImplicitALS(2, random_state=0).fit(bundle).recommend_to_new({"i3": 10.0})


def test_held_out_bundles_are_scored_by_their_names() -> None:
    frame = dated_ratings()
    first, last = sorted(frame["user"])[0], sorted(frame["user"])[-1]
    # As many users as fit saw, and not the same ones.
    model = BiasedALS(2, random_state=0).fit(load(frame[frame["user"] != first]))
    others = frame[frame["user"] != last]
    with pytest.raises(InvalidInputError, match=f"column '{first}' was not seen"):
        model.rmse(load(others))
    seen = others[others["user"] != first]
    gaps = model.predict(seen[["item", "user"]]) - seen["rating"]
    assert model.rmse(load(seen)) == pytest.approx(np.sqrt(np.mean(gaps**2)))
    model.set_params(handle_unknown="mean")
    with pytest.warns(UserWarning, match="fit did not see"):
        gaps, found = model.predict(others[["item", "user"]]) - others["rating"], model.rmse(load(others))
    assert found == pytest.approx(np.sqrt(np.mean(gaps**2)))
    # Names may be the numbers from 0, of which the held-out part has some, or others.
    table = {"item": [0, 0, 1, 1, 2, 2], "user": [0, 1, 1, 2, 0, 2], "rating": [1.0, 2.0, 3.0, 4.0, 5.0, 2.0]}
    model, part = BiasedALS(1, random_state=0).fit(load(table)), {name: table[name][3:] for name in table}
    gaps = model.predict(part["item"], part["user"]) - part["rating"]
    assert model.rmse(load(part)) == pytest.approx(np.sqrt(np.mean(gaps**2)))
    with pytest.raises(InvalidInputError, match="column 9 was not seen"):
        model.rmse(load({**table, "user": [0, 1, 1, 9, 0, 9]}))
