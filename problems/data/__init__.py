"""Data sets: their form, those of the papers by name, and text prepared as in the papers."""

from problems.data.bundles import Bundle, ClassBundle, MultilabelBundle, Ratings, TagBundle, TaskBundle
from problems.data.chunks import stream
from problems.data.registry import data_folder, load, read_texts

__all__ = [
    "Bundle", "ClassBundle", "MultilabelBundle", "Ratings", "TagBundle", "TaskBundle", "data_folder", "load",
    "read_texts", "stream",
]  # fmt: skip
