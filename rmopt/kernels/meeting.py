"""Meetings of workers that learn one matrix: all continue from the mean of their factors, outside Python.

Workers begin with the same factors, W = A C Bᵀ, and each moves its own. The mean is taken factor by factor: to first
order in the moves it is the mean of their matrices. A mean over all would hardly move a row that only some of them
moved, such as that of a rare word, so its move is divided by the root of the share of workers that moved it.
"""

from typing import NamedTuple

import numpy as np

from rmopt.kernels import before_compiling, njit
from rmopt.kernels.matrices import cross, write
from rmopt.kernels.vectors import copy, invert

# Rows whose sums are kept at a time; how often a worker looks for the others before it sleeps; what is added to the
# number of those that have come where one of them failed; a step at which nobody meets.
TILE, LOOKS, FAILED, NEVER = 16, 1000, 2**40, 2**62


class Meeting(NamedTuple):
    """The times when a worker meets the others, and their shared matrices, all of one width."""

    at: np.ndarray  # the steps of a piece of work before which they meet, ascending, and NEVER
    done: np.ndarray  # (1,) how many of these are behind
    place: int  # which of the workers of this process it is
    here: int  # how many there are
    come: np.ndarray  # (1,) how often they came to where they wait for each other
    shares: np.ndarray  # (workers,) for how much each of all processes counts; their sum is 1
    matrices: np.ndarray  # (matrices, 1 + workers) addresses: where they met last, and of each worker
    rows: np.ndarray  # (matrices,)
    grams: np.ndarray  # (matrices, workers, width, width): parts of Gram matrices of the means
    rank: int  # of the points whose factors they are; 0 where nobody needs Gram matrices


def add_at_once(array, number):
    """Add to the first entry of an array atomically, and return its old value."""


def sleep(microseconds):
    """Let others use this core for a while."""


def matrix_at(address, rows, width):
    """Return the matrix of doubles in C order at an address."""


@before_compiling
def _define() -> None:
    from rmopt.kernels.intrinsics import define_meeting

    define_meeting(add_at_once, sleep, matrix_at)


@njit(cache=True, nogil=True)
def due_at(meeting):
    """Return the step before which a worker meets others next."""
    return NEVER if meeting is None else meeting.at[meeting.done[0]]


@njit(cache=True, nogil=True)
def wait(meeting):
    """Wait until all local workers have come, and return False if one of them failed."""
    before, looks = add_at_once(meeting.come, 1), 0
    wanted, found = (before // meeting.here + 1) * meeting.here, before + 1
    while found < wanted:
        looks += 1
        if looks > LOOKS:
            # Longer and longer, by a small share of the time waited.
            sleep(min(looks - LOOKS, 1000))
        found = add_at_once(meeting.come, 0)
    return found < FAILED


@njit(cache=True, nogil=True)
def meet(meeting):
    """Wait for the others and average, each worker some of the rows; return False if one failed."""
    meeting.done[0] += 1
    if not wait(meeting):
        return False
    workers = meeting.shares.shape[0]
    # As many parts as workers in all processes, so that sums are bit-identical in a single one.
    for part in range(meeting.place, workers, meeting.here):
        for number in range(meeting.rows.shape[0]):
            rows = meeting.rows[number]
            mean_of_rows(
                meeting,
                number,
                part * rows // workers,
                (part + 1) * rows // workers,
                meeting.grams[number, part],
            )
    return wait(meeting)


@njit(cache=True, nogil=True)
def mean_of_rows(meeting, number, first, end, gram):
    """Set rows to their mean over the workers, for a tall matrix weighted by those that moved them."""
    shares, rows, width = meeting.shares, meeting.rows[number], gram.shape[0]
    last = matrix_at(meeting.matrices[number, 0], rows, width)
    step, moved = np.empty((TILE, width)), np.empty(TILE)
    for begin in range(first, end, TILE):
        count = min(TILE, end - begin)
        step[:], moved[:] = 0.0, 0.0
        for worker in range(shares.shape[0]):
            own = matrix_at(meeting.matrices[number, 1 + worker], rows, width)
            for r in range(count):
                differ = False
                for c in range(width):
                    change = own[begin + r, c] - last[begin + r, c]
                    differ |= change != 0.0
                    step[r, c] += shares[worker] * change
                moved[r] += shares[worker] if differ else 0.0
        for r in range(count):
            scale = 1.0 / np.sqrt(moved[r]) if rows > width and 0.0 < moved[r] < 1.0 else 1.0
            for c in range(width):
                last[begin + r, c] += scale * step[r, c]
        for worker in range(shares.shape[0]):
            own = matrix_at(meeting.matrices[number, 1 + worker], rows, width)
            for r in range(count):
                if moved[r] > 0.0:
                    copy(last[begin + r], own[begin + r])
    if meeting.rank > 0:
        write(gram, cross(last[first:end], last[first:end]))


@njit(cache=True, nogil=True)
def go_on(meeting, C, C_inverse, inverses, counters):
    """Meet, and update a worker's inverses; return False if one failed or a matrix has no inverse."""
    if not meet(meeting):
        return False
    k = meeting.rank
    fine = _inverted(C, k, C_inverse)
    counters.counts[1] = 0
    for side in range(len(inverses)):
        gram = np.zeros(C.shape)
        for part in range(meeting.shares.shape[0]):
            gram += meeting.grams[side, part]
        counters.size[side] = np.trace(gram)
        fine = _inverted(gram, k, inverses[side]) and fine
    return fine


@njit(cache=True, nogil=True)
def _inverted(matrix, k, inverse):
    """Set the first k rows and columns to the inverse of those of a matrix, or return False if it has none."""
    table = np.empty((k, 2 * k))
    write(table, matrix[:k, :k])
    fine = invert(table, 0.0)
    write(inverse, table[:, k:])
    return fine
