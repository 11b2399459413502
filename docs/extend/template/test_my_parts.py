"""Tests of the package: properties of the parts, and an answer that is known."""

import numpy as np
from my_parts import SubspaceEmbedding
from my_parts.catalogue import instances

from rmopt.testing import parametrize_with_laws


@parametrize_with_laws(instances())
def test_properties(check):
    check()


def test_the_subspace_is_that_of_the_singular_vectors():
    X = np.random.default_rng(0).standard_normal((50, 8)) * np.arange(1, 9)
    found = SubspaceEmbedding(rank=3).fit(X)
    leading, components = np.linalg.svd(X)[2][:3], found.components_
    np.testing.assert_allclose(components.T @ components, leading.T @ leading, atol=1e-5)
