"""Products with tall matrices in pieces, against numpy."""

import numpy as np

from rmopt.kernels.memory import on_lines
from rmopt.kernels.tall import ROWS, crossed, mix


def test_products_of_all_heights() -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, ROWS - 1, ROWS, ROWS + 1, 5 * ROWS + 3):
        for k in (4, 12, 36):
            A, B = on_lines((n, k)), on_lines((n, k))
            A[:], B[:] = rng.standard_normal((2, n, k))
            first, second = rng.standard_normal((2, k, k))
            np.testing.assert_allclose(crossed(A, B), A.T @ B, rtol=0, atol=1e-12)
            expected = A @ first + B @ second
            gram = mix(A, first, B, second)
            np.testing.assert_allclose(A, expected, rtol=0, atol=1e-12)
            assert np.array_equal(A, B)
            np.testing.assert_allclose(gram, expected.T @ expected, rtol=1e-12, atol=1e-10)
