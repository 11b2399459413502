"""The synthetic cases of the paper (Mishra et al. 2019, section 6.2)."""

from __future__ import annotations

from dataclasses import dataclass

from rmopt.core import InvalidInputError


@dataclass(frozen=True)
class Case:
    """A random matrix to complete, and what is compared on it.

    Attributes
    ----------
    m, n : int
        At full size.
    rhos : tuple of float
    methods : tuple of str
    condition : float
    about : str
        What the case shows.
    """

    m: int
    n: int
    rhos: tuple[float, ...]
    methods: tuple[str, ...]
    about: str
    condition: float = 1.0

    def size(self, scale: float) -> tuple[int, int]:
        """Return the numbers of rows and columns at a scale."""
        if not 0.0 < scale <= 1.0:
            raise InvalidInputError(f"--scale {scale:g} must be above 0 and at most 1.")
        return max(20, round(self.m * scale)), max(20, round(self.n * scale))


RANK, OVERSAMPLING = 5, 6.0

CASES = {
    1: Case(10_000, 100_000, (1e3, 1e10), ("stochastic",), "the weight ρ"),
    2: Case(10_000, 100_000, (1e3,), ("stochastic", "parallel"), "stochastic or parallel"),
    3: Case(
        5_000,
        50_000,
        (1e3,),
        ("stochastic", "precon-stochastic"),
        "a matrix of condition 500",
        condition=500.0,
    ),
    4: Case(500, 12_000, (1e3,), ("stochastic", "d-lmafit", "euclidean"), "D-LMaFit and the Euclidean rival"),
}
