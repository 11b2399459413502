"""Documents that every installation has: the documentation of scipy's functions and classes, by subpackage."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from problems.data.bundles import ClassBundle, MultilabelBundle, stratified
from problems.data.registry import Source, loader

__all__ = ["Document", "scipy_docs", "scipy_documents", "scipy_parameters"]

# A subpackage with fewer documents, and a document with fewer words, are left out.
FEWEST, SHORTEST = 30, 50
# A name of a parameter that fewer functions have is no label.
RAREST = 10
# From the heading of the parameters to the next one.
HEADING = re.compile(r"^Parameters\n-+\n.*?(?=^\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
# Not scipy's own words: code that others wrote, and an interface that repeats another.
LEFT_OUT = ("_lib", "fftpack", "_external")
TEST_FRACTION, SPLIT_SEED = 0.35, 0


@dataclass(frozen=True)
class Document:
    """The documentation of a function or a class.

    Attributes
    ----------
    name : str
        For example ``scipy.signal.butter``.
    subpackage : str
    text : str
    parameters : tuple of str
        The names of a function's parameters.
    """

    name: str
    subpackage: str
    text: str
    parameters: tuple[str, ...] = ()


def scipy_documents() -> list[Document]:
    """Return the docstrings of scipy's public functions and classes that have 50 words or more, each once.

    They are read from the source files, so that nothing is imported.
    """
    found: dict[str, Document] = {}
    for one in _docstrings():
        found.setdefault(one.text, one)
    counts = Counter(one.subpackage for one in found.values())
    return [one for one in found.values() if counts[one.subpackage] >= FEWEST]


@cache
def _docstrings() -> tuple[Document, ...]:
    """Return every docstring that is long enough; to parse all of scipy takes seconds, once."""
    found = []
    package = importlib.util.find_spec("scipy")
    (root,) = map(Path, (package and package.submodule_search_locations) or ())
    for file in sorted(root.rglob("*.py")):
        subpackage, *inner = file.relative_to(root).parts
        if not inner or subpackage in LEFT_OUT or "tests" in inner:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = ast.get_docstring(node) or ""
                if len(text.split()) >= SHORTEST:
                    name = f"scipy.{subpackage}.{node.name}"
                    found.append(Document(name, subpackage, text, _parameters(node)))
    return tuple(found)


def _parameters(node: ast.FunctionDef | ast.ClassDef) -> tuple[str, ...]:
    if isinstance(node, ast.ClassDef):
        return ()
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return tuple(one.arg for one in given if one.arg not in ("self", "cls"))


def _word_counts(texts: list[str]) -> csr_array:
    """Count words of two letters or more in at least two texts, without English stop words."""
    from sklearn.feature_extraction.text import CountVectorizer

    counts = CountVectorizer(stop_words="english", min_df=2, token_pattern="[a-zA-Z]{2,}")
    X = csr_array(counts.fit_transform(texts), dtype=np.float64)
    X.sum_duplicates()
    X.indices, X.indptr = (part.astype(np.int32) for part in (X.indices, X.indptr))
    return X


@loader(Source(origin="scipy"))
def scipy_docs() -> ClassBundle:
    """Load the words of scipy's documentation: about 1600 functions and classes of 13 subpackages, 6000 terms.

    What they are depends on the version of scipy that is installed. The held-out 35 % of every subpackage are drawn
    once with a fixed seed.
    """
    documents = scipy_documents()
    _, y = np.unique([one.subpackage for one in documents], return_inverse=True)
    X, test = _word_counts([one.text for one in documents]), stratified(y, TEST_FRACTION, SPLIT_SEED)
    return ClassBundle("scipy-docs", f"scipy {version('scipy')}", X, y.astype(np.int64), test)


@loader(Source(origin="scipy"))
def scipy_parameters() -> MultilabelBundle:
    """Load what scipy's functions do, and as labels how their parameters are called: about 1200 functions, 100 names.

    The description of the parameters is left out. Names of fewer than ten functions are, too.
    """
    documents = {HEADING.sub("", one.text): one for one in scipy_documents() if one.parameters}
    counts = Counter(name for one in documents.values() for name in one.parameters)
    names = [name for name, count in counts.most_common() if count >= RAREST]
    Y = np.array([[float(name in one.parameters) for name in names] for one in documents.values()])
    kept, texts = np.flatnonzero(Y.any(axis=1)), list(documents)
    X = _word_counts([texts[number] for number in kept])
    test = np.random.default_rng(SPLIT_SEED).random(len(kept)) < TEST_FRACTION
    return MultilabelBundle(
        "scipy-parameters", f"scipy {version('scipy')}", X, csr_array(Y[kept]), test, label_names=tuple(names)
    )
