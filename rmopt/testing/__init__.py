"""The laws of `rmopt.checks` for the test suite of your own package: for pytest, and for hypothesis.

`parametrize_with_laws` makes tests of manifolds, retractions, problems, solvers, engines, samplers and step sizes;
`rmopt.testing.strategies` draws points, tangent vectors and problems.
"""

from rmopt.testing.laws import checks_of, parametrize_with_laws

__all__ = ["checks_of", "parametrize_with_laws"]
