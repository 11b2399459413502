"""Labelled sets of images."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from problems.arrays import read_npz
from problems.datasets import Bundle, data_folder
from rmopt.core.errors import StorageError

__all__ = ["caltech101", "mnist"]

CALTECH_FILE, MNIST_FILE = "caltech101_bow1000_derived.npz", "mnist.npz"
CALTECH_CLASSES, CALTECH_IMAGES = 50, 65
BACKGROUND = "BACKGROUND_Google"


def caltech101(data_home: Path | str | None = None) -> Bundle:
    """Load 3219 images of Caltech-101 as counts of 1000 visual words: 50 classes, at most 65 images each.

    The classes are the largest without the background, the images the first of each, as Atzmon et al. (2015)
    have 50 classes with 65 images of Caltech-256. Every fifth image is held out.

    Parameters
    ----------
    data_home : path, optional
        See `problems.datasets.data_folder`; it must hold ``caltech101_bow1000_derived.npz``.

    Raises
    ------
    InvalidInputError
        When `data_home` is not a folder.
    StorageError
        When the file is missing or damaged.
    """
    arrays = _arrays(
        CALTECH_FILE, data_home, ("X_data", "X_indices", "X_indptr", "X_shape", "y", "class_names")
    )
    parts = (arrays["X_data"].astype(np.float64), arrays["X_indices"], arrays["X_indptr"])
    X, y = csr_array(parts, shape=tuple(arrays["X_shape"])), arrays["y"].astype(np.int64)
    X.sum_duplicates()
    counts = np.bincount(y)
    counts[_names(arrays["class_names"]).index(BACKGROUND)] = 0
    largest = np.argsort(-counts, kind="stable")[:CALTECH_CLASSES]
    members = [np.flatnonzero(y == label)[:CALTECH_IMAGES] for label in largest]
    labels = np.repeat(np.arange(CALTECH_CLASSES), [len(rows) for rows in members])
    test = np.concatenate([np.arange(len(rows)) % 5 == 4 for rows in members])
    return Bundle("caltech101", CALTECH_FILE, csr_array(X[np.concatenate(members)]), labels, test)


def mnist(data_home: Path | str | None = None) -> Bundle:
    """Load the 70000 handwritten digits of MNIST: 784 pixel values in [0, 1], 10000 images held out.

    Read from ``mnist.npz`` in the data folder, else fetched by scikit-learn from OpenML.

    Parameters
    ----------
    data_home : path, optional
        See `problems.datasets.data_folder`.

    Raises
    ------
    InvalidInputError
        When `data_home` is not a folder.
    StorageError
        When the file is damaged, or there is neither a file nor a network connection.
    """
    if (data_folder(data_home) / MNIST_FILE).is_file():
        arrays = _arrays(MNIST_FILE, data_home, ("X", "y", "n_train"))
        X, y, n_train = arrays["X"].reshape(len(arrays["X"]), -1), arrays["y"], int(arrays["n_train"])
        source = MNIST_FILE
    else:
        X, y = _fetch_mnist(data_home)
        source, n_train = "OpenML", 60_000
    return Bundle(
        "mnist", source, X.astype(np.float64) / 255.0, y.astype(np.int64), np.arange(len(y)) >= n_train
    )


def _fetch_mnist(data_home: Path | str | None) -> tuple[Any, Any]:
    from sklearn.datasets import fetch_openml

    folder = data_folder(data_home)
    try:
        return fetch_openml(
            "mnist_784", version=1, as_frame=False, return_X_y=True, data_home=folder, parser="liac-arff"
        )
    except OSError as error:
        raise StorageError(
            f"MNIST could not be fetched ({error}); connect to the network once, or pass as --data-home "
            f"(or set RMOPT_DATA_HOME to) a folder that holds {MNIST_FILE}."
        ) from error


def _arrays(file: str, data_home: Path | str | None, names: tuple[str, ...]) -> dict[str, Any]:
    path = data_folder(data_home) / file
    if not path.is_file():
        raise StorageError(
            f"{path} does not exist, and there is no public source to fetch it from; pass as --data-home (or set "
            f"RMOPT_DATA_HOME to) a folder that holds {file}."
        )
    return read_npz(path, names)


def _names(stored: Any) -> list[str]:
    """Return names that are stored as text, or as the bytes of lines."""
    return bytes(stored).decode().split("\n") if stored.dtype == np.uint8 else [str(name) for name in stored]
