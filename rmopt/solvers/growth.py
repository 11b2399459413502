"""How many columns a rank-incremental solver adds in each round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from rmopt.core.arguments import CheckedValue, bounded, integer
from rmopt.renamed import former_names


class Growth(Protocol):
    """How many columns a round adds at most."""

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
    """

    columns: Annotated[int, bounded(integer, 1)] = 1

    def first(self) -> int:
        """Return the number for the first round."""
        return self.columns

    def after(self, added: int) -> int:
        """Return the number for the next round."""
        return self.columns


__getattr__ = former_names(__name__, Exponential="Doubling", Linear="OneByOne")
