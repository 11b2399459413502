"""Bundles refuse parts that do not belong together, and say what they hold."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from problems.data import ClassBundle, MultilabelBundle, Ratings, TagBundle, TaskBundle
from rmopt import InvalidInputError

X, TEST = np.arange(8.0).reshape(4, 2), np.array([False, False, True, True])
PLACES = np.array([0, 1], dtype=np.int32)


def labels(Y: Any = ((1, 0), (0, 1), (1, 1), (0, 0)), test: Any = TEST) -> MultilabelBundle:
    return MultilabelBundle("mine", "by hand", X, sp.csr_array(np.array(Y)), test)


def ratings(values: Any = (1.0, 2.0), rows: Any = PLACES, **more: Any) -> Ratings:
    return Ratings("mine", "by hand", rows, PLACES, np.array(values), (2, 2), (1.0, 5.0), **more)


def tasks(y: Any = (1.0, 2.0, 3.0, 4.0), task: Any = (0, 0, 1, 1)) -> TaskBundle:
    return TaskBundle("mine", "by hand", X, np.array(y), np.array(task))


@pytest.mark.parametrize("make", [
    lambda: labels([[1], [0], [1], [0]]), lambda: labels([[1, 0], [0, 1]]), lambda: labels([[2, 0]] * 4),
    lambda: labels(test=TEST[:3]), lambda: labels(test=np.ones(4, dtype=bool)),
    lambda: ratings([1.0, np.nan]), lambda: ratings([1.0, 9.0]), lambda: ratings([1.0]),
    lambda: ratings(rows=np.array([0, 7], dtype=np.int32)), lambda: ratings(row_names=np.array(["a", "a"])),
    lambda: tasks([1.0, np.inf, 3.0, 4.0]), lambda: tasks(task=[0, 0, 0, 1]), lambda: tasks(y=[1.0]),
    lambda: TagBundle("mine", "by hand", np.zeros((2, 3), dtype=int), ("a",)),
    lambda: TagBundle("mine", "by hand", np.array([[0, 0, 1]]), ("a", "b")),
    lambda: ClassBundle("mine", "by hand", X, np.zeros(3, dtype=int), TEST),
])  # fmt: skip
def test_parts_that_do_not_belong_together(make: Any) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_what_bundles_hold() -> None:
    assert labels().summary() | {"labels": 2, "labels per sample": 1.0} == labels().summary()
    assert any("label" in sentence for sentence in labels().odd())
    assert tasks().summary()["target"] == "1 to 4"
    assert ratings().summary()["ratings"] == 2
