"""Links between objects of two kinds."""

import numpy as np
import pytest
import scipy.sparse as sp

from problems.coembedding import LinkPrediction, LinkPredictor
from problems.coembedding.cost import smooth_hinge
from rmopt.core import InvalidInputError


def test_link_losses_by_hand() -> None:
    X = np.eye(3)
    cost = LinkPrediction(X, [[0, 1], [0, 2]], [1, 0])
    Q = np.array([[0.0], [0.5], [1.5], [2.0]])
    # Thresholds 4, 2.25, 0.25; distances 0.25 and 2.25.
    link = np.logaddexp(smooth_hinge(np.array(0.25 - 4.0))[0], smooth_hinge(np.array(0.25 - 2.25))[0])
    other = smooth_hinge(np.array(0.5 * (4.0 + 0.25) - 2.25))[0]
    np.testing.assert_allclose(cost.at(Q).value, link + other, rtol=1e-13)
    # The convex loss of a pair without a link is no smaller than that of the smaller threshold.
    assert other >= smooth_hinge(np.array(0.25 - 2.25))[0]


def test_links_are_predicted_where_features_tell() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    near = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.6
    links = near & ~np.eye(60, dtype=bool)
    model = LinkPredictor(0.3, random_state=0).fit(X, sp.csr_array(links))
    pairs = np.column_stack(np.triu_indices(60, 1))
    scores, linked = model.decision_function(X, pairs), near[tuple(pairs.T)]
    assert model.score(X, linked, pairs) > 0.9
    np.testing.assert_array_equal(model.predict(X, pairs), scores > 0)
    np.testing.assert_allclose(scores, model.decision_function(X, pairs[:, ::-1]), atol=1e-12)
    weights = np.sum(model.components_**2, axis=0)
    assert set(np.argsort(-weights)[:2]) == {0, 1}
    same = LinkPredictor(0.3, tol=1e-6).fit(X, (pairs, linked))
    assert same.is_global_
    with pytest.raises(InvalidInputError, match="rows of X"):
        model.predict(X[:5], pairs)


def test_stored_zeros_are_no_links_and_negative_numbers_are_refused() -> None:
    graph = sp.csr_array(([1.0, 1, 0, 0], ([0, 1, 2, 3], [1, 0, 3, 2])), shape=(4, 4))
    pairs, linked = LinkPredictor(random_state=0)._drawn(graph, 4)
    assert pairs[linked].tolist() == [[0, 1]]
    for signed in (graph.toarray() - 1, graph * np.nan, -graph):
        with pytest.raises(InvalidInputError, match="table of"):
            LinkPredictor().fit(np.eye(4), signed)
