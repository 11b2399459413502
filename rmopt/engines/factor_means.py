"""Means of matrices that stand as lifted factors: of any, and of those that came from the same factors."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg

from rmopt.core.ambient import Array
from rmopt.engines.gauged import Gauge, padded, squares
from rmopt.errors import InvalidInputError
from rmopt.kernels.tall import blend, crossed, mix
from rmopt.linalg import symmetric

# Rows of tall factors whose Gram matrices are summed apart: the sum is the same however many threads there are.
PIECE = 1024

# Two factors of one side, each with the inverse of its Gram matrix.
Side = tuple[tuple[Array, Array], tuple[Array, Array]]
Pairs = Sequence[tuple[Any, Any]]
# A `map`; and what sends arrays, and fills others with those that come.
Each = Callable[[Callable[..., Any], Sequence[Any]], Iterable[Any]]
Swap = Callable[[Sequence[Array], Sequence[Array]], None]


def merged(gauge: Gauge, pairs: Pairs, weights: Sequence[Array], k: int, each: Each = map) -> list[Any]:
    """Return for each pair the factors of the nearest matrix of rank k to its weighted sum, written over both.

    By Gram matrices: six products with tall factors for a pair. A' and B' are sums of what is there, whatever the
    Gram matrices hold; their rounding decides alone how near W' is, to half of the digits where the sum has singular
    values that are close to each other. `each` maps functions over the products.
    """
    sides = [list(zip(gauge.sides(one), gauge.sides(other), strict=True)) for one, other in pairs]
    found = list(each(partial(_root, k=k), [side for pair in sides for side in pair]))
    shares, cores, tasks = len(sides[0]), [], []  # type: ignore[var-annotated]
    for at, (pair, weight) in enumerate(zip(pairs, weights, strict=True)):
        roots = found[shares * at : shares * (at + 1)]
        sigma, parts = _parts(gauge, [one.C for one in pair], weight, roots, k)
        cores.append(sigma)
        tasks += zip(sides[at], parts, [k] * shares, strict=True)
    made = list(each(_mixed, tasks))
    return [_with(gauge, made[shares * at : shares * (at + 1)], sigma) for at, sigma in enumerate(cores)]


def merged_by_two(gauge: Gauge, own: Any, place: int, weight: Array, k: int, swap: Swap) -> Any:
    """Return what `merged` does of a pair, one of which is here and the other with a partner that does the same.

    Each does one of two sides. `place` says which of the pair is here, and which side is done; `swap` sends arrays to
    the partner, and fills others with those that come.
    """
    mine, theirs = (gauge.sides(own)[number] for number in (place, 1 - place))
    other = [np.empty(part.shape) for part in (*mine, own.C)]
    swap([*theirs, own.C], other)
    side, cores = (mine, (other[0], other[1])), (own.C, other[2])
    if place:
        side, cores = side[::-1], cores[::-1]
    root = _root(side, k)
    back = np.empty(root[0].shape), np.empty(root[1].shape)
    swap(root, back)
    sigma, parts = _parts(gauge, cores, weight, (back, root) if place else (root, back), k)
    _, inverse = _mixed((side, parts[place], k))
    # In the memory of what was here.
    made, given = (mine[0], inverse), (theirs[0], np.empty(theirs[1].shape))
    swap(made, given)
    return _with(gauge, (given, made) if place else (made, given), sigma)


def blended(pairs: Pairs, weights: Sequence[Array], each: Each) -> list[Any]:
    """Return for each pair weighted sums of its factors, written over the first: a part of what `averaged` does."""
    tasks = [
        (weight[0], part, weight[1], more)
        for (one, other), weight in zip(pairs, weights, strict=True)
        # The tall factors, and C.
        for part, more in zip(one[: len(one) // 2], other[: len(other) // 2], strict=True)
    ]
    list(each(lambda task: blend(*task), tasks))
    return [one for one, _ in pairs]


def blended_by_two(own: Any, place: int, weight: Array, swap: Swap) -> Any:
    """Return what `blended` does of a pair, one of which is here and the other with a partner: each sums one side."""
    mine, theirs, C = own[place], own[1 - place], own.C
    other = [np.empty(part.shape) for part in (mine, C)]
    swap([theirs, C], other)
    for part, more in zip((mine, C), other, strict=True):
        # A sum of two is the same in either order.
        blend(weight[place], part, weight[1 - place], more)
    swap([mine], [theirs])
    return own


def averaged(
    gauge: Gauge,
    many: Sequence[Any],
    tree: Sequence[tuple[int, int, Array]],
    k: int,
    crew: Any,
    outer_step: float,
    before: Sequence[Any],
) -> tuple[list[Any], Array]:
    """Return for each of many, and of those before, the weighted sum of their factors, and sizes of the tall ones.

    All came by steps from the same factors. So the sum stands for the nearest matrix of rank k to the weighted sum of
    the matrices, but for products of two of these moves: it is their mean through the retraction that adds to
    factors. It is written over all of them.

    Parameters
    ----------
    gauge : Gauge
    many : sequence of factors
    tree : sequence of (int, int, array)
        Which two are summed over the first of them, with which weights; the last one over `many[0]`.
    k : int
        The rank.
    crew : Crew
        Threads among which rows are dealt.
    outer_step : float
    before : sequence of factors
        Empty, or from where the outer step leads to the sum and beyond; where it leads is written over it, too.
    """
    count, weights = len(gauge.sides(many[0])), (outer_step, 1.0 - outer_step)

    def total(parts: list[Array], last: list[Array]) -> Array:
        for low, high, (one, other) in tree:
            blend(one, parts[low], other, parts[high])
        for part in last:
            blend(weights[0], parts[0], weights[1], part)
        return parts[0]

    def share(pieces: list[tuple[int, slice]]) -> list[Array]:
        grams = []
        for side, rows in pieces:
            parts, last = ([one[side][rows] for one in some] for some in (many, before))
            found = total(parts, last)
            for part in (*parts[1:], *last):
                np.copyto(part, found)
            grams.append(crossed(found, found))
        return grams

    heights = [len(tall) for tall in many[0][:count]]
    pieces = [
        (side, slice(first, first + PIECE))
        for side in range(count)
        for first in range(0, heights[side], PIECE)
    ]
    cuts = pairwise(np.linspace(0, len(pieces), crew.count + 1).astype(int).tolist())
    grams = [
        gram for found in crew.each(share, [pieces[first:last] for first, last in cuts]) for gram in found
    ]
    sums = [np.zeros_like(one) for one in many[0][-count:]]
    for (side, _), gram in zip(pieces, grams, strict=True):
        sums[side] += gram
    C = total([one.C.copy() for one in many], [one.C for one in before])
    small = [C, *(_inverse(one, k) for one in (C, *map(symmetric, sums)))]
    sizes = np.array([np.trace(one) for one in sums])
    return [gauge.kind(*one[:count], *small) for one in (*many, *before)], sizes


def _parts(gauge: Gauge, cores: Any, weight: Array, roots: Any, k: int) -> tuple[Array, list[Array]]:
    """Return the singular values of a weighted sum, and by what both tall factors of each side are multiplied."""
    middle = scipy.linalg.block_diag(*(w * C[:k, :k] for w, C in zip(weight, cores, strict=True)))
    sigma, *turns = gauge.diagonal(roots[0][0] @ middle @ roots[-1][0].T, k)
    made = []
    for (_, back), turn in zip(roots, turns, strict=True):
        parts = np.zeros((2, *cores[0].shape))
        parts[:, :k, :k] = (back @ turn).reshape(2, k, k)
        made.append(parts)
    return sigma, made


def _with(gauge: Gauge, made: Sequence[tuple[Array, Array]], sigma: Array) -> Any:
    talls, inverses = zip(*made, strict=True)
    return gauge.kind(*talls, *squares(sigma)[:2], *inverses)


def _inverse(matrix: Array, k: int) -> Array:
    try:
        return padded(np.linalg.inv(matrix[:k, :k]), square=True)
    except np.linalg.LinAlgError as error:
        raise InvalidInputError(
            f"the matrix lost rank {k} where workers met; choose a smaller rank or a smaller step size."
        ) from error


def _root(side: Side, k: int) -> tuple[Array, Array]:
    """Return F with FᵀF the Gram matrix of the tall factors of a side, [first, second], and its inverse."""
    (first, one), (second, other) = side
    cross = crossed(first, second)[:k, :k]
    gram = np.block([[np.linalg.inv(one[:k, :k]), cross], [cross.T, np.linalg.inv(other[:k, :k])]])
    values, vectors = np.linalg.eigh(symmetric(gram))
    # Where the two are alike, only rounding is left of the least values; F and its inverse still belong together.
    root = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
    return np.ascontiguousarray(root[:, None] * vectors.T), np.ascontiguousarray(vectors / root)


def _mixed(task: tuple[Side, Array, int]) -> tuple[Array, Array]:
    """Return a new tall factor, in the memory of both that it is made of, and the inverse of its Gram matrix."""
    ((one, _), (other, _)), (first, second), k = task
    gram = mix(one, first, other, second)
    return one, padded(np.linalg.inv(symmetric(gram[:k, :k])), square=True)
