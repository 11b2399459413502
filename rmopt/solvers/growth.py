"""How many columns a rank-incremental solver adds in each round."""

from dataclasses import dataclass
from typing import Annotated, Protocol

from rmopt.core.arguments import CheckedValue, bounded, integer


class Growth(Protocol):
    """How many columns a round adds at most.

    See Also
    --------
    Doubling : the default.

    Examples
    --------
    >>> from rmopt.solvers import RankIncremental
    >>> class AtOnce:
    ...     def first(self):
    ...         return 10
    ...
    ...     def after(self, added):
    ...         return 10
    >>> solver = RankIncremental(AtOnce())
    >>> solver.growth.first(), solver.growth.after(10)
    (10, 10)
    """

    def first(self) -> int:
        """Return the number for the first round."""

    def after(self, added: int) -> int:
        """Return the number for the next round, when the last one added so many."""


@dataclass(frozen=True)
class Doubling(CheckedValue):
    """Twice as many as the round before: 1, 2, 4, … (Mirzazadeh et al. 2015, Algorithm 1).

    Parameters
    ----------
    columns : int
        In the first round.
    factor : int
        From round to round.

    See Also
    --------
    OneByOne : fewer columns, and more rounds.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> from rmopt.solvers import Doubling
    >>> growth = Doubling()
    >>> growth.first(), growth.after(1), growth.after(4)
    (1, 2, 8)
    """

    columns: Annotated[int, bounded(integer, 1)] = 1
    factor: Annotated[int, bounded(integer, 2)] = 2

    def first(self) -> int:
        """Return the number for the first round."""
        return self.columns

    def after(self, added: int) -> int:
        """Return the number for the next round, when the last one added so many."""
        return self.factor * max(added, 1)


@dataclass(frozen=True)
class OneByOne(CheckedValue):
    """Always as many: one by default (Journée et al. 2010; Zhang et al. 2012).

    Parameters
    ----------
    columns : int

    See Also
    --------
    Doubling : fewer rounds.

    References
    ----------
    Journée, Bach, Absil and Sepulchre, Low-rank optimization on the cone of positive semidefinite matrices, SIAM
    J. Optim. 20 (2010), https://doi.org/10.1137/080731359. Zhang, Yu and Schuurmans, Accelerated training for
    matrix-norm regularization: a boosting approach, NIPS (2012).

    Examples
    --------
    >>> from rmopt.solvers import OneByOne
    >>> growth = OneByOne()
    >>> growth.first(), growth.after(1)
    (1, 1)
    """

    columns: Annotated[int, bounded(integer, 1)] = 1

    def first(self) -> int:
        """Return the number for the first round."""
        return self.columns

    def after(self, added: int) -> int:
        """Return the number for the next round."""
        return self.columns
