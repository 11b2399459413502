"""Documents in every installation: the documentation of scipy's functions and classes, by subpackage."""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from problems.data.bundles import ClassBundle, MultilabelBundle, stratified
from problems.data.registry import Source
from rmopt.core.matrices import as_rows

__all__ = ["Document", "scipy_docs", "scipy_documents", "scipy_parameters"]

# Subpackages with fewer documents, and documents with fewer words, are left out.
FEWEST, SHORTEST = 30, 50
# A parameter name of fewer functions is not a label.
RAREST = 10
# From the heading of the parameters to the next one.
HEADING = re.compile(r"^Parameters\n-+\n.*?(?=^\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
# Not scipy's own text: third-party code, and an interface that repeats another.
LEFT_OUT = ("_lib", "fftpack", "_external", "tests")
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


@cache
def scipy_documents() -> tuple[Document, ...]:
    """Return the docstrings of scipy's public functions and classes that have 50 words or more, each once.

    They are read from the source files, which takes seconds the first time.
    """
    found, root = dict[str, Document](), Path(scipy.__file__).parent
    for file in sorted(root.rglob("*.py")):
        subpackage, *inner = file.relative_to(root).parts
        if not inner or {subpackage, *inner} & {*LEFT_OUT}:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            text, parameters = ast.get_docstring(node) or "", list[ast.arg]()
            if isinstance(node, ast.FunctionDef):
                parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = tuple(one.arg for one in parameters if one.arg not in ("self", "cls"))
            if len(text.split()) >= SHORTEST:
                found.setdefault(text, Document(f"scipy.{subpackage}.{node.name}", subpackage, text, names))
    counts = Counter(document.subpackage for document in found.values())
    return tuple(document for document in found.values() if counts[document.subpackage] >= FEWEST)


def _word_counts(texts: list[str]) -> csr_array:
    """Count words of two letters or more in at least two texts, without English stop words."""
    counts = CountVectorizer(stop_words="english", min_df=2, token_pattern="[a-zA-Z]{2,}")
    return as_rows(counts.fit_transform(texts), "the counts")


@Source("scipy")
def scipy_docs() -> ClassBundle:
    """Load the words of scipy's documentation: about 1600 functions and classes of 13 subpackages, 6000 terms.

    They depend on the installed version of scipy. The held-out 35 % of every subpackage are drawn with a fixed seed.
    """
    documents = scipy_documents()
    _, y = np.unique([document.subpackage for document in documents], return_inverse=True)
    X = _word_counts([document.text for document in documents])
    test = stratified(y, TEST_FRACTION, SPLIT_SEED)
    return ClassBundle("scipy-docs", f"scipy {scipy.__version__}", X, y.astype(np.int64), test)


@Source("scipy")
def scipy_parameters() -> MultilabelBundle:
    """Load descriptions of about 1200 scipy functions, with the names of their parameters as 100 labels.

    The descriptions of parameters are left out, and names of fewer than ten functions.
    """
    documents = {HEADING.sub("", one.text): one for one in scipy_documents() if one.parameters}
    counts = Counter(name for one in documents.values() for name in one.parameters)
    names = [name for name, count in counts.most_common() if count >= RAREST]
    Y = np.array([[float(name in one.parameters) for name in names] for one in documents.values()])
    kept, texts = np.flatnonzero(Y.any(axis=1)), list(documents)
    X = _word_counts([texts[number] for number in kept])
    test = np.random.default_rng(SPLIT_SEED).random(len(kept)) < TEST_FRACTION
    source, labels = f"scipy {scipy.__version__}", tuple(names)
    return MultilabelBundle("scipy-parameters", source, X, csr_array(Y[kept]), test, label_names=labels)
