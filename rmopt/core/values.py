"""Objects that are values: two of the same class and parameters are equal."""

import hashlib
import re
import sys
from typing import Any

import numpy as np

from rmopt.namespaces import is_array, to_numpy

# A longer text is represented by its beginning and a digest of the whole.
LONG = 300


class Value:
    """Compares its class and its attributes, and shows them."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, others = vars(self), vars(other)
        return mine.keys() == others.keys() and all(_same(mine[name], others[name]) for name in mine)

    def __hash__(self) -> int:
        # Attributes such as arrays may have no hash.
        return hash((type(self), *sorted(vars(self))))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inside})"


def written(thing: Any) -> str:
    """Return an object as text that is the same in every process: arrays by a digest, no addresses."""
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return f"{thing.dtype} array {thing.shape} {_digest(np.ascontiguousarray(thing))}"
    if isinstance(thing, list | tuple) and any(isinstance(part, np.ndarray) for part in thing):
        return f"[{', '.join(map(written, thing))}]"
    # Whole arrays with all digits.
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(thing).split()))
    return text if len(text) <= LONG else f"{text[:LONG]}… {_digest(text.encode())}"


def _digest(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _same(a: Any, b: Any) -> bool:
    if a is b or not (is_array(a) or is_array(b)):
        return a is b or bool(a == b)
    return bool(np.array_equal(*(to_numpy(one) if is_array(one) else one for one in (a, b))))
