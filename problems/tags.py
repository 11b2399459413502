"""Tags that users gave to items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from problems.datasets import DataSet, loader
from rmopt.core.files import read_arrays

__all__ = ["TagBundle", "ml10m_tags", "numbered", "post_core", "toy_tags"]

ML10M_FILE, ML10M_TEXT = "ml10m_tags.npz", "tags.dat"
# The level of the post core that is nearest in size to the data of the ECML/PKDD challenge 2009.
ML10M_CORE = 15

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class TagBundle(DataSet):
    """Triples (user, item, tag). A post is a user and an item with all its tags.

    Attributes
    ----------
    name, source : str
        The registered name, and what was read.
    triples : int array, shape (N, 3)
        Numbers of user, item and tag, each from 0 without holes; no triple twice.
    tag_names : tuple of str

    Raises
    ------
    InvalidInputError
        When the parts are not as described.
    """

    _what = "tags"
    triples: NDArray[np.int64]
    tag_names: tuple[str, ...]

    def _flaw(self) -> str | None:
        triples = self.triples
        if triples.ndim != 2 or triples.shape[1:] != (3,) or not len(triples):
            return f"triples must be a table with 3 columns and at least one row, got shape {triples.shape}"
        if any(len(np.unique(column)) != column.max() + 1 or column.min() < 0 for column in triples.T):
            return "users, items and tags must be numbered from 0 without holes"
        if len(np.unique(triples, axis=0)) != len(triples):
            return "a triple occurs twice"
        if len(self.tag_names) != triples[:, 2].max() + 1:
            return f"there are {triples[:, 2].max() + 1} tags and {len(self.tag_names)} names"
        return None

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of users, items and tags."""
        users, items, tags = (self.triples.max(axis=0) + 1).tolist()
        return users, items, tags

    def posts(self) -> Array:
        """Return the number of the post of each triple."""
        return np.unique(self.triples[:, :2], axis=0, return_inverse=True)[1].ravel()

    def held_out(self, seed: int) -> NDArray[np.bool_]:
        """Return which triples are held out: one random post of each user who has two posts or more."""
        rng, posts = np.random.default_rng(seed), self.posts()
        chosen = []
        for user in range(self.counts[0]):
            own = np.unique(posts[self.triples[:, 0] == user])
            if len(own) > 1:
                chosen.append(rng.choice(own))
        return np.isin(posts, chosen)


def post_core(triples: Array, level: int) -> Array:
    """Return the largest part in which every user, item and tag occurs in at least `level` posts.

    Parameters
    ----------
    triples : array, shape (N, 3)
    level : int
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


@loader(
    ML10M_FILE,
    ML10M_TEXT,
    advice="put the latter there from https://files.grouplens.org/datasets/movielens/ml-10m.zip",
)
def ml10m_tags(path: Path) -> TagBundle:
    """Load the tags of MovieLens-10M in lower case, and of them the post core at level 15: 107 users, 162 movies."""
    users, movies, texts = _stored_columns(path) if path.name == ML10M_FILE else _text_columns(path)
    known, tags = np.unique([text.strip().lower() for text in texts], return_inverse=True)
    core = post_core(np.column_stack([users, movies, tags]).astype(np.int64), ML10M_CORE)
    if not len(core):
        raise ValueError(f"it has no post core at level {ML10M_CORE}")
    triples, names = numbered(core)
    return TagBundle("ml10m-tags", path.name, triples, tuple(str(known[tag]) for tag in names[2]))


def _stored_columns(path: Path) -> tuple[Array, Array, Array]:
    columns = {name: (int, ("n",)) for name in ("user", "movie", "tag")}
    stored = read_arrays(path, {**columns, "tag_names_utf8": (str, (None,))})
    if stored["tag"].min(initial=0) < 0:
        raise ValueError("it has negative numbers of tags")
    return stored["user"], stored["movie"], stored["tag_names_utf8"][stored["tag"]]


def _text_columns(path: Path) -> tuple[Array, Array, list[str]]:
    rows = [line.split("::") for line in path.read_text(encoding="utf-8").splitlines() if line]
    users, movies = (np.array([int(row[column]) for row in rows]) for column in (0, 1))
    return users, movies, [row[2] for row in rows]


@loader()
def toy_tags() -> TagBundle:
    """Make tags of 40 users and 60 items: each has a place in the plane, and tags come from the nearest of 50."""
    rng = np.random.default_rng(0)
    users, items, tags = (rng.standard_normal((count, 2)) for count in (40, 60, 50))
    triples: list[Any] = []
    for user, item in np.argwhere(rng.random((40, 60)) < 0.2):
        distances = ((users[user] - tags) ** 2).sum(axis=1) + ((items[item] - tags) ** 2).sum(axis=1)
        noisy = distances + 0.5 * rng.gumbel(size=len(tags))
        triples += [(user, item, tag) for tag in np.argsort(noisy)[: rng.integers(2, 5)]]
    made, names = numbered(np.array(triples))
    return TagBundle("toy-tags", "made up", made, tuple(f"tag {tag}" for tag in names[2]))
