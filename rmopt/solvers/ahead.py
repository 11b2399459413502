"""Blocks of terms that a thread draws before they are asked for."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future

from rmopt.core.ambient import Array

# Blocks that are drawn ahead at most, and numbers in all of them, and in one: more would fill memory for little.
MOST, NUMBERS, LARGE = 4, 2**20, 2**22


class Ahead:
    """Draws ahead of a run: no more blocks than the run has taken so far, for it may end at any step.

    What fails is told where it is asked for.
    """

    def __init__(self) -> None:
        self._coming: dict[int, Future[Array]] = {}
        self._count, self._process = 0, os.getpid()

    def taken(self, draw: Callable[[int], Array], block: int, end: int) -> list[Array]:
        """Return a block, and those after it that were drawn by now; more, before `end`, are drawn from now on."""
        if self._process != os.getpid():
            # A fork has no thread that would draw.
            self._coming, self._process = {}, os.getpid()
        coming = self._coming.pop(block, None)
        found = [draw(block) if coming is None else coming.result()]
        while (follows := self._coming.get(block + len(found))) is not None and _fits(follows, found[0]):
            found.append(self._coming.pop(block + len(found)).result())
        self._count += len(found)
        following, size = block + len(found), max(1, found[0].size)
        if all(coming.done() for coming in self._coming.values()):
            most = min(MOST, self._count, NUMBERS // size or int(size <= LARGE))
            blocks = range(following, min(following + most, end))
            self._coming = {one: self._coming.get(one) or Future() for one in blocks}
            if self._coming:
                # It may be drawing when the program ends.
                threading.Thread(target=_draw, args=(draw, self._coming.copy()), daemon=True).start()
        return found


def _fits(coming: "Future[Array]", found: Array) -> bool:
    """Return whether a block is there, and as wide as another."""
    if not coming.done() or coming.exception() is not None:
        return False
    there = coming.result()
    return (there.shape[1:], there.dtype) == (found.shape[1:], found.dtype)


def _draw(draw: Callable[[int], Array], blocks: "dict[int, Future[Array]]") -> None:
    for block, coming in blocks.items():
        if not coming.done():
            try:
                coming.set_result(draw(block))
            except BaseException as error:
                coming.set_exception(error)
