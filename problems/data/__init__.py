"""Data: what a data set is, those of the papers by name, and text prepared as the papers have it."""

from problems.data.bundles import Bundle, ClassBundle, MultilabelBundle, Ratings, TagBundle, TaskBundle
from problems.data.chunks import ChunkStream, stream
from problems.data.files import read_texts
from problems.data.registry import data_folder, load

__all__ = [
    "Bundle", "ChunkStream", "ClassBundle", "MultilabelBundle", "Ratings", "TagBundle", "TaskBundle", "data_folder",
    "load", "read_texts", "stream",
]  # fmt: skip
