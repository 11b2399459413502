"""Triples (user, item, tag): their core, and their numbers."""

import numpy as np

from rmopt.core.ambient import Array

__all__ = ["numbered", "post_core"]


def post_core(triples: Array, level: int) -> Array:
    """Return the largest part in which every user, item and tag occurs in at least `level` posts.

    Parameters
    ----------
    triples : array, shape (N, 3)
    level : int

    References
    ----------
    Jäschke, Marinho, Hotho, Schmidt-Thieme and Stumme, Tag recommendations in social bookmarking systems, AI
    Communications 21 (2008), https://doi.org/10.3233/AIC-2008-0438.
    """
    triples = np.unique(triples, axis=0)
    while len(triples):
        posts = np.unique(triples[:, :2], axis=0)
        keep = np.ones(len(triples), dtype=bool)
        # A tag occurs once in a post, a user or an item once with each post.
        for column, table in ((0, posts), (1, posts), (2, triples)):
            names, counts = np.unique(table[:, column], return_counts=True)
            keep &= np.isin(triples[:, column], names[counts >= level])
        if keep.all():
            break
        triples = triples[keep]
    return triples


def numbered(triples: Array) -> tuple[Array, list[Array]]:
    """Return the triples with users, items and tags numbered from 0, and what the numbers stand for.

    Parameters
    ----------
    triples : array, shape (n, 3)
        Users, items, tags.

    Returns
    -------
    int array, shape (n, 3)
    list of array
        The sorted users, items and tags.
    """
    columns, names = [], []
    for column in np.asarray(triples).T:
        known, numbers = np.unique(column, return_inverse=True)
        columns.append(numbers.ravel())
        names.append(known)
    return np.column_stack(columns).astype(np.int64), names
