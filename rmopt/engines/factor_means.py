"""Means of matrices that stand as lifted factors: of any two, and of those that came from the same factors."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from rmopt.core.ambient import Array
from rmopt.engines.gauged import Gauge, padded, squares
from rmopt.errors import InvalidInputError
from rmopt.kernels.tall import blend, crossed, mix
from rmopt.linalg import symmetric

# Two factors of one side, each with the inverse of its Gram matrix.
Side = tuple[tuple[Array, Array], tuple[Array, Array]]
Pairs = Sequence[tuple[Any, Any]]
# A `map`.
Each = Callable[[Callable[..., Any], Sequence[Any]], Iterable[Any]]


def merged(gauge: Gauge, pairs: Pairs, weights: Sequence[Array], k: int, each: Each = map) -> list[Any]:
    """Return for each pair the factors of the nearest matrix of rank k to its weighted sum, written over both.

    By Gram matrices: six products with tall factors for a pair. A' and B' are sums of what is there, whatever the
    Gram matrices hold; their rounding decides alone how near W' is, to half of the digits where the sum has singular
    values that are close to each other. `each` maps functions over the products.
    """
    sides = [list(zip(gauge.sides(one), gauge.sides(other), strict=True)) for one, other in pairs]
    roots = list(each(partial(_root, k=k), [side for pair in sides for side in pair]))
    shares, cores, tasks = len(sides[0]) if sides else 0, [], []  # type: ignore[var-annotated]
    for at, (pair, weight) in enumerate(zip(pairs, weights, strict=True)):
        sigma, parts = _parts(gauge, pair, weight, roots[shares * at : shares * (at + 1)], k)
        cores.append(squares(sigma)[:2])
        tasks += zip(sides[at], parts, [k] * shares, strict=True)
    mixed = list(each(_mixed, tasks))
    found = []
    for at, core in enumerate(cores):
        talls, inverses = zip(*mixed[shares * at : shares * (at + 1)], strict=True)
        found.append(gauge.kind(*talls, *core, *inverses))
    return found


def blended(pairs: Pairs, weights: Sequence[Array], each: Each = map) -> list[Any]:
    """Return for each pair the weighted sums of its tall factors and of C, written over the first."""
    tasks = [
        (weight[0], part, weight[1], more)
        for (one, other), weight in zip(pairs, weights, strict=True)
        for part, more in zip(one[: len(one) // 2], other[: len(other) // 2], strict=True)
    ]
    list(each(lambda task: blend(*task), tasks))
    return [one for one, _ in pairs]


def completed(gauge: Gauge, factors: Any, k: int, each: Each = map) -> Any:
    """Return factors with the inverses that belong to them, where they are sums of those that came from the same.

    So a weighted sum of factors stands for the nearest matrix of rank k to that of their matrices, but for products
    of two moves: it is their mean through the retraction that adds to factors.
    """
    talls = [tall for tall, _ in gauge.sides(factors)]
    grams = each(lambda tall: symmetric(crossed(tall, tall)), talls)
    try:
        inverses = [padded(np.linalg.inv(square[:k, :k]), square=True) for square in (factors.C, *grams)]
    except np.linalg.LinAlgError as error:
        raise InvalidInputError(
            f"the matrix lost rank {k} where workers met; choose a smaller rank or a smaller step size."
        ) from error
    return gauge.kind(*talls, factors.C, *inverses)


def _parts(
    gauge: Gauge, pair: tuple[Any, Any], weight: Array, roots: Any, k: int
) -> tuple[Array, list[Array]]:
    """Return the singular values of a weighted sum, and by what both tall factors of each side are multiplied."""
    middle = scipy.linalg.block_diag(*(w * one.C[:k, :k] for w, one in zip(weight, pair, strict=True)))
    sigma, *turns = gauge.diagonal(roots[0][0] @ middle @ roots[-1][0].T, k)
    turned = []
    for (_, back), turn in zip(roots, turns, strict=True):
        parts = np.zeros((2, *pair[0].C.shape))
        parts[:, :k, :k] = (back @ turn).reshape(2, k, k)
        turned.append(parts)
    return sigma, turned


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
