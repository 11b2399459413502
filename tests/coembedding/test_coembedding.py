"""Co-embeddings: losses against plain sums, estimators, baselines, tags, links and data."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from coembedding_samples import Array, samples
from real_data import REAL, real
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from problems.coembedding import (
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    LinkPredictor,
    MultilabelCoembedding,
    OneVsRestCoembedding,
    TagRecommender,
)
from problems.coembedding.cost import smooth_hinge
from problems.coembedding.estimators import minimise
from problems.coembedding.experiment import measures
from problems.data.sets import digits_labels, emotions, scene
from rmopt import Problem
from rmopt.costs import Trace
from rmopt.manifolds import PSDFactors
from rmopt.solvers import LBFGS, RankIncremental


def printed_hinge(z: float) -> float:
    """The smooth hinge with the range that the paper prints."""
    return (2 + z) ** 2 / 4 if 0 <= z <= 2 else max(1 + z, 0.0)


def test_the_smooth_hinge_is_smooth_and_the_printed_one_jumps() -> None:
    z = np.linspace(-4, 4, 8001)
    values, slopes, _ = smooth_hinge(z)
    np.testing.assert_allclose(np.diff(values) / np.diff(z), 0.5 * (slopes[1:] + slopes[:-1]), atol=1e-3)
    assert np.abs(np.diff(slopes)).max() <= 0.5 * (z[1] - z[0]) * (1 + 1e-9)
    assert values[0] == 0.0
    np.testing.assert_allclose(values[-1], 5.0)
    assert printed_hinge(2.0) - printed_hinge(2.0 + 1e-9) > 0.9
    assert abs(smooth_hinge(np.array(2.0))[0] - smooth_hinge(np.array(2.0 + 1e-9))[0]) < 1e-8


def plain_multilabel(X: Array, Y: Array, Q: Array) -> float:
    """Equation 13 as it stands, sample by sample."""
    f, m = X.shape[1], Y.shape[1]
    U, V, u0 = Q[:f], Q[f : f + m], Q[f + m]
    total = 0.0
    for x, labels in zip(X, Y, strict=True):
        u = x @ U
        t = np.sum((u - u0) ** 2)
        d = ((u - V) ** 2).sum(axis=1)
        for sign, side in ((1.0, labels == 1), (-1.0, labels == 0)):
            if side.any():
                total += np.log(np.exp(smooth_hinge(sign * (d[side] - t))[0]).sum())
    return total


@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
def test_equation_13_as_it_stands(size: float) -> None:
    X, Y = samples()
    Y[0], Y[1] = 0, 1
    Q = size * np.random.default_rng(1).standard_normal((6 + 4 + 1, 3))
    for rows in (X, sp.csr_array(X)):
        cost = MultilabelCoembedding(rows, sp.csr_array(Y))
        np.testing.assert_allclose(cost.at(Q).value, plain_multilabel(X, Y, Q), rtol=1e-12)
        assert cost.at(Q).value >= cost.lower_bound


PLAIN = {
    "squared_hinge": lambda margin: 0.5 * np.maximum(1.0 - margin, 0.0) ** 2,
    "logistic": lambda margin: np.log1p(np.exp(-margin)),
}


def plain_one_vs_rest(X: Array, Y: Array, Q: Array, loss: str) -> float:
    """Every label by itself, rare ones with larger weights."""
    U, total, most = X @ Q[: X.shape[1]], 0.0, 1 + Y.sum(axis=0).max()
    for applies, v in zip(Y.T, Q[X.shape[1] : -1], strict=True):
        scores = ((U - Q[-1]) ** 2).sum(axis=1) - ((U - v) ** 2).sum(axis=1)
        weight = np.sqrt(most / (1 + applies.sum()))
        total += weight * PLAIN[loss](np.where(applies == 1, scores, -scores)).sum()
    return float(total)


@pytest.mark.parametrize("loss", PLAIN)
def test_every_label_by_itself_has_the_minimum_that_scipy_finds(loss: str) -> None:
    X, Y = samples(n=40)
    Y[:, 1] &= Y[:, 0]
    beta, shape = 0.5, (X.shape[1] + Y.shape[1] + 1, 5)

    def objective(flat: Array) -> float:
        return plain_one_vs_rest(X, Y, flat.reshape(shape), loss) + beta * float(flat @ flat)

    ours = minimise(OneVsRestCoembedding(sp.csr_array(X), Y, loss), beta, RankIncremental(tol=1e-9))
    assert ours.is_global
    assert ours.point.rank < shape[1]
    Q = np.zeros(shape)
    Q[:, : ours.point.rank] = ours.point.factor()
    np.testing.assert_allclose(ours.certificate.objective, objective(Q.ravel()), rtol=1e-12)
    start = np.random.default_rng(0).standard_normal(shape).ravel()
    theirs = scipy.optimize.minimize(objective, start, method="L-BFGS-B", options={"maxfun": 10**6})
    np.testing.assert_allclose(ours.certificate.objective, theirs.fun, rtol=1e-6)


@pytest.mark.parametrize("loss", PLAIN)
def test_the_classifiers_pass_their_loss_on(loss: str) -> None:
    X, Y = samples(n=150)
    model = CoembeddingClassifier(1.0, loss=loss).fit(X, Y)
    cost = OneVsRestCoembedding(X, Y, loss)
    factor = np.vstack([model.components_.T, model.label_embedding_, model.threshold_embedding_])
    np.testing.assert_allclose(model.objective_, cost.value(factor) + (factor**2).sum(), rtol=1e-12)
    assert model.is_global_
    chosen = CoembeddingClassifierCV(
        [1.0], loss=loss, cv=2, scoring=lambda model, *_: float(model.loss == loss)
    ).fit(X, Y)
    assert chosen.scores_.all()
    np.testing.assert_allclose(chosen.objective_, model.objective_, rtol=1e-3)
    assert clone(chosen).loss == loss


def test_soft_maxima_do_not_overflow() -> None:
    X, Y = samples()
    cost = MultilabelCoembedding(X, Y)
    local = cost.at(1e3 * np.random.default_rng(1).standard_normal((11, 2)))
    assert np.isfinite(local.value)
    assert np.isfinite(local.factor_gradient()).all()


# scikit-learn itself casts infinite labels to integers.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_the_classifier_keeps_scikit_learns_contract() -> None:
    checks = check_estimator(CoembeddingClassifier(beta=1.0), on_fail=None, on_skip=None)
    failed = {one["check_name"]: str(one["exception"]) for one in checks if one["status"] == "failed"}
    assert not failed


def test_scores_are_thresholds_minus_distances() -> None:
    X, Y = samples()
    model = CoembeddingClassifier(beta=0.5).fit(X, Y)
    U, V, u0 = model.transform(X), model.label_embedding_, model.threshold_embedding_
    t, d = ((U - u0) ** 2).sum(axis=1), ((U[:, None] - V) ** 2).sum(axis=2)
    np.testing.assert_allclose(model.decision_function(X), t[:, None] - d, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), (t[:, None] > d).astype(int))
    assert U.shape == (80, model.rank_)
    assert V.shape == (4, model.rank_)
    assert model.is_global_
    assert model.gap_ <= 1e-4 * model.objective_
    assert (model.predict(X) == Y).mean() > 0.9
    sparse = CoembeddingClassifier(beta=0.5).fit(sp.csr_array(X), sp.csr_array(Y))
    np.testing.assert_allclose(sparse.decision_function(X), model.decision_function(X), atol=1e-2)


def test_classes_may_have_names() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipe = make_pipeline(StandardScaler(), CoembeddingClassifier(beta=0.5)).fit(X, names)
    assert (pipe.predict(X) == names).mean() > 0.9
    two = CoembeddingClassifier(beta=0.5).fit(X[:100], names[:100])
    assert two.decision_function(X[:100]).shape == (100,)
    assert (two.predict(X[:100]) == names[:100]).mean() > 0.98


def test_a_limit_of_the_rank_silences_no_warning_but_its_own() -> None:
    X, Y = samples(n=150)
    for limit in (None, 11, 1000):
        with pytest.warns(ConvergenceWarning, match="was not reached"):
            assert CoembeddingClassifier(0.1, tol=1e-15, max_rank=limit).fit(X, Y).rank_ < 11
    assert CoembeddingClassifier(0.1, tol=1e-15, max_rank=1).fit(X, Y).rank_ == 1


def test_a_larger_weight_gives_a_smaller_rank() -> None:
    X, Y = samples(n=150)
    models = [CoembeddingClassifier(beta, tol=1e-6).fit(X, Y) for beta in (0.1, 1.0, 10.0)]
    ranks = [model.rank_ for model in models]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] > 1
    with pytest.warns(UserWarning, match="is so large that the model is empty"):
        assert not CoembeddingClassifier(1e4).fit(X, Y).predict(X).any()


def test_cross_validation_of_the_weight() -> None:
    """Each score is that of a model with the weight alone, to what a rough path is off."""
    X, Y = samples(n=150)
    betas, folds = (0.1, 3.0, 1e4), list(KFold(3, shuffle=True, random_state=0).split(X))
    model = CoembeddingClassifierCV(betas, cv=folds).fit(X, Y)
    assert model.beta_ == betas[int(model.scores_.mean(axis=1).argmax())] < 1e4
    again = CoembeddingClassifier(model.beta_).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for beta, scores in zip(betas[:2], model.scores_, strict=False):
        cold = [CoembeddingClassifier(beta).fit(X[fit], Y[fit]).predict(X[held]) for fit, held in folds]
        alone = [f1_score(Y[held], one, average="micro") for one, (_, held) in zip(cold, folds, strict=True)]
        np.testing.assert_allclose(scores, alone, atol=0.03)
    assert clone(model).get_params()["scoring"] == "f1_micro"


def test_local_optima_contract_to_the_global_minimum() -> None:
    """Figure 3 on digits: the spread vanishes at d*, and the excess falls with d."""
    bundle = digits_labels().scaled()
    rows = np.flatnonzero(bundle.train)[:60]
    loss = MultilabelCoembedding(bundle.X[rows], bundle.Y[rows])
    best = minimise(loss, 0.3, RankIncremental(tol=1e-7))
    rank, minimum, found = best.point.rank, best.certificate.objective, {}
    for columns in (1, 2, rank):
        local = Problem(PSDFactors(loss.shape[0], columns), loss + Trace(0.3))
        solver = LBFGS(20, max_iter=5000, tol=1e-5)
        found[columns] = np.array([solver.run(local, random_state=seed).cost for seed in range(8)])
    assert np.ptp(found[1]) > 1e-3 * minimum
    assert found[1].min() > found[2].min() > minimum * (1 + 1e-3)
    np.testing.assert_allclose(found[rank], minimum, rtol=1e-5)


@real("emotions.npz")
def test_emotions_reach_the_papers_f1() -> None:
    scores = []
    for split in range(5):
        bundle = emotions(REAL).with_training_rows(395, split).scaled()
        Y = bundle.Y.toarray().astype(int)
        model = CoembeddingClassifier(beta=5.0).fit(bundle.X[bundle.train], Y[bundle.train])
        assert model.is_global_
        scores.append(list(measures(Y[bundle.test], model.predict(bundle.X[bundle.test])).values()))
    hamming, micro, macro = np.mean(scores, axis=0)
    assert hamming > 78.2
    assert micro > 65.9
    assert macro > 64.4


@real("scene.npz")
def test_scene_reaches_the_papers_row() -> None:
    bundle = scene(REAL).with_training_rows(1000, 0).scaled()
    Y = bundle.Y.toarray().astype(int)
    model = CoembeddingClassifier(beta=5.0).fit(bundle.X[bundle.train], Y[bundle.train])
    hamming, micro, macro = measures(Y[bundle.test], model.predict(bundle.X[bundle.test])).values()
    assert hamming > 88.0
    assert micro > 65.9
    assert macro > 66.8


def test_digits_by_pipeline() -> None:
    X, y = load_digits(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), Normalizer(), CoembeddingClassifier(beta=2.0))
    assert pipe.fit(X[:600], y[:600]).score(X[1200:], y[1200:]) > 0.85


@pytest.mark.slow
@real("emotions.npz")
def test_interior_point_on_emotions() -> None:
    oracles = pytest.importorskip("convex_oracles", reason="needs cvxpy, which the extra [test] brings.")
    bundle = emotions(REAL).scaled()
    rows = np.flatnonzero(bundle.train)[:60]
    X, Y = bundle.X[rows], bundle.Y[rows].toarray() > 0
    for beta in (1.0, 5.0):
        ours = minimise(MultilabelCoembedding(X, Y), beta, RankIncremental(tol=1e-7)).certificate
        theirs = oracles.multilabel(X, Y, beta, tol_gap_rel=1e-9, tol_gap_abs=1e-7, tol_feas=1e-9)
        assert abs(ours.objective - theirs) <= 1e-6 * theirs


def test_a_weight_that_leaves_nothing_is_told() -> None:
    X = np.random.default_rng(0).standard_normal((20, 4))
    Y, posts, tags = X[:, :2] > 0, [["ann", "a"], ["bob", "b"]], ["red", "blue"]
    for words, fit in (
        ("beta = 1000", lambda: CoembeddingClassifier(beta=1000).fit(X, Y)),
        ("tol = 1", lambda: CoembeddingClassifier(tol=1.0).fit(X, Y)),
        ("beta = 1000", lambda: make_pipeline(CoembeddingClassifierCV([1000.0], cv=2)).fit(X, Y)),
        ("beta = 50", lambda: TagRecommender(beta=50).fit(posts, tags)),
        ("beta = 1000", lambda: LinkPredictor(beta=1000).fit(X, X @ X.T > 0)),
    ):
        with pytest.warns(
            UserWarning, match=rf"^{words} is so large that the model is empty \(rank 0\)"
        ) as told:
            fit()
        assert told[0].filename == __file__
    assert CoembeddingClassifier(beta=1e-3, tol=0.1).fit(X, Y).rank_ > 0
    assert TagRecommender(beta=0.1).fit(posts, tags).rank_ > 0
