"""Labelled sets of images."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from problems.arrays import read_table
from problems.datasets import Bundle, loader
from rmopt.core.files import Layout, read_arrays

__all__ = ["caltech101", "mnist"]

CALTECH_FILE, MNIST_FILE = "caltech101_bow1000_derived.npz", "mnist.npz"
CALTECH_CLASSES, CALTECH_IMAGES = 50, 65
BACKGROUND = "BACKGROUND_Google"
_LABELS: Layout = {"y": (int, ("n",)), "class_names": (str, ("classes",))}


@loader(CALTECH_FILE, advice="there is no public source to fetch it from; make it")
def caltech101(path: Path) -> Bundle:
    """Load 3219 images of Caltech-101 as counts of 1000 visual words: 50 classes, at most 65 images each.

    The classes are the largest without the background, the images the first of each, as Atzmon et al. (2015)
    have 50 classes with 65 images of Caltech-256. Every fifth image is held out.
    """
    X, (y, names) = read_table(path, "X"), read_arrays(path, _LABELS).values()
    if len(y) != X.shape[0] or not 0 <= y.min() <= y.max() < len(names):
        raise ValueError(f"y must have {X.shape[0]} labels from 0 to {len(names) - 1}")
    counts = np.bincount(y, minlength=len(names))
    counts[names.tolist().index(BACKGROUND)] = 0
    largest = np.argsort(-counts, kind="stable")[:CALTECH_CLASSES]
    members = [np.flatnonzero(y == label)[:CALTECH_IMAGES] for label in largest]
    labels = np.repeat(np.arange(CALTECH_CLASSES), [len(rows) for rows in members])
    test = np.concatenate([np.arange(len(rows)) % 5 == 4 for rows in members])
    return Bundle("caltech101", CALTECH_FILE, csr_array(X[np.concatenate(members)]), labels, test)


def _fetch_mnist(folder: Path) -> Bundle:
    from sklearn.datasets import fetch_openml

    X, y = fetch_openml(
        "mnist_784", version=1, as_frame=False, return_X_y=True, data_home=folder, parser="liac-arff"
    )
    return _digits("OpenML", X, y, 60_000)


@loader(MNIST_FILE, title="MNIST", fetch=_fetch_mnist)
def mnist(path: Path) -> Bundle:
    """Load the 70000 handwritten digits of MNIST: 784 pixel values in [0, 1], 10000 images held out.

    Read from ``mnist.npz`` in the data folder, else fetched by scikit-learn from OpenML.
    """
    X, y, n_train = read_arrays(path, {"X": (float, None), "y": (int, ("n",)), "n_train": (int, ())}).values()
    return _digits(MNIST_FILE, X.reshape(len(y), -1), y, int(n_train))


def _digits(source: str, X: Any, y: Any, n_train: int) -> Bundle:
    return Bundle(
        "mnist", source, X.astype(np.float64) / 255.0, y.astype(np.int64), np.arange(len(y)) >= n_train
    )
