"""Where workers that learn one matrix meet: all go on from the mean of their factors, and none comes back to Python.

Workers begin with the same factors, W = A C Bᵀ, and each moves its own. The mean is taken factor by factor: to first
order in how far they went it is the mean of their matrices. A mean over all would hardly move a row that only some of
them moved, such as that of a rare word: how far it goes is divided by the root of the share that moved it.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import before_compiling, njit
from rmopt.kernels.vectors import add_outer, invert

# Rows whose sums are kept at a time; how often a worker looks for the others before it sleeps; what is added to
# the number of those that have come where one of them failed.
TILE, LOOKS, FAILED = 16, 1000, 2**40
# No worker meets others at this step.
NEVER = 2**62


class Meeting(NamedTuple):
    """When one of some workers meets the others, and what they share.

    Of `talls` and `core` (1 + workers, rows, columns) each worker has a part, and the first part is where they met
    last. Workers of other processes count, too: their parts are copies.
    """

    at: np.ndarray  # the steps of a piece of work before which they meet, ascending, and NEVER
    done: np.ndarray  # (1,) how many of these are behind
    place: int  # which of the workers here this one is
    here: int  # their number
    shares: np.ndarray  # (workers,) for how much each counts; their sum is 1
    talls: tuple[np.ndarray, ...]
    core: np.ndarray
    grams: tuple[np.ndarray, ...]  # (workers, columns, columns): parts of the Gram matrix of each tall factor
    rank: int
    come: np.ndarray  # (1,) how often workers came to a place where they wait for each other


def add_at_once(array, number):
    """Add to the first entry of an array, which others may do meanwhile; return what it was."""


def sleep(microseconds):
    """Let others use this core for a while."""


@before_compiling
def _define() -> None:
    from rmopt.kernels.intrinsics import define_waiting

    define_waiting(add_at_once, sleep)


@njit(cache=True, nogil=True)
def due_at(meeting):
    """Return the step before which a worker meets others next."""
    return NEVER if meeting is None else meeting.at[meeting.done[0]]


@njit(cache=True, nogil=True)
def wait(come, here):
    """Wait until all workers have come; False where one of them failed."""
    before, looks = add_at_once(come, 1), 0
    wanted, found = (before // here + 1) * here, before + 1
    while found < wanted:
        looks += 1
        if looks > LOOKS:
            # Longer and longer, a small share of what was waited.
            sleep(min(looks - LOOKS, 1000))
        found = add_at_once(come, 0)
    return found < FAILED


@njit(cache=True, nogil=True)
def mean_of_rows(stack, shares, by_row, first, last, out, spread):
    """Set rows of `out` to the means of those of the workers; with `spread` those of all workers, too."""
    width = stack.shape[2]
    total, moved = np.empty((TILE, width)), np.empty(TILE)
    for begin in range(first, last, TILE):
        rows = min(TILE, last - begin)
        total[:], moved[:] = 0.0, 0.0
        for worker in range(shares.shape[0]):
            share = shares[worker]
            for r in range(rows):
                old, new, differ = stack[0, begin + r], stack[1 + worker, begin + r], False
                for c in range(width):
                    step = new[c] - old[c]
                    differ |= step != 0.0
                    total[r, c] += share * step
                moved[r] += share if differ else 0.0
        for r in range(rows):
            scale = 1.0 / np.sqrt(moved[r]) if by_row and 0.0 < moved[r] < 1.0 else 1.0
            for c in range(width):
                out[begin + r, c] = stack[0, begin + r, c] + scale * total[r, c]
        if spread:
            for worker in range(shares.shape[0]):
                for r in range(rows):
                    if moved[r] > 0.0:
                        stack[1 + worker, begin + r] = out[begin + r]


@njit(cache=True, nogil=True)
def meet(meeting):
    """Wait for the others and bring all to their mean, each worker some of the rows; False where one failed."""
    meeting.done[0] += 1
    if not wait(meeting.come, meeting.here):
        return False
    shares, core, workers = meeting.shares, meeting.core, meeting.shares.shape[0]
    # As many parts as there are workers in all processes: sums over them have the same bits in one.
    for part in range(meeting.place, workers, meeting.here):
        for side in range(len(meeting.talls)):
            tall, gram = meeting.talls[side], meeting.grams[side][part]
            first, last = part * tall.shape[1] // workers, (part + 1) * tall.shape[1] // workers
            mean_of_rows(tall, shares, True, first, last, tall[0], True)
            gram[:] = 0.0
            for r in range(first, last):
                add_outer(gram, 1.0, tall[0, r], tall[0, r])
        first, last = part * core.shape[1] // workers, (part + 1) * core.shape[1] // workers
        mean_of_rows(core, shares, False, first, last, core[0], True)
    return wait(meeting.come, meeting.here)


@njit(cache=True, nogil=True)
def go_on(meeting, core_inverse, inverses, counters):
    """Meet, and renew what a worker keeps beside its factors; False where one failed or a matrix has no inverse."""
    if not meet(meeting):
        return False
    k = meeting.rank
    table = np.empty((k, 2 * k))
    table[:, :k] = meeting.core[0, :k, :k]
    fine = invert(table, 0.0)
    core_inverse[:k, :k] = table[:, k:]
    counters.counts[1] = 0
    for side in range(len(inverses)):
        table[:, :k] = 0.0
        for part in range(meeting.shares.shape[0]):
            table[:, :k] += meeting.grams[side][part, :k, :k]
        counters.size[side] = np.trace(table[:, :k])
        fine = invert(table, 0.0) and fine
        inverses[side][:k, :k] = 0.5 * (table[:, k:] + table[:, k:].T)
    return fine
