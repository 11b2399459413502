"""Fitted models as ONNX files, which run without this library and without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from problems.serving.index import Searchable
from problems.validation import package
from rmopt.core import LowRankPoint
from rmopt.core.arguments import shown
from rmopt.errors import InvalidInputError
from rmopt.files import write_atomically

Array = np.ndarray
# What an ONNX runtime of that age knows.
OPSET, IR_VERSION = 18, 8


def to_onnx(model: Any, path: Path | str) -> None:
    """Write a fitted similarity or ranking of labels as an ONNX file, in double precision.

    The input is ``X``, of shape (n_samples, n_features), dense. A similarity gives ``queries`` and ``documents``, the
    embeddings whose inner products are similarities; a ranking gives ``scores``, and ``probabilities`` where it has
    them. What comes before a model in a pipeline, such as tf-idf, is not in the file.

    Parameters
    ----------
    model : estimator
        `LoretaSimilarity`, `ContrastiveSimilarity` or another `Searchable`; `LowRankLogisticRegression` or
        `LoretaLabelRanker`.
    path : path
        The file is whole, or as it was before.

    Raises
    ------
    NotFittedError
        Before `fit`.
    InvalidInputError
        For another estimator, or where the package onnx is missing (``pip install rmopt[onnx]``).

    See Also
    --------
    SimilarityIndex.save : documents and all, for this library.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from problems.ranking import LowRankLogisticRegression
    >>> from problems.serving import to_onnx
    >>> model = LowRankLogisticRegression(2, n_epochs=1).fit(
    ...     [[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels.onnx")
    ...     to_onnx(model, path)  # doctest: +SKIP
    ...     path.exists()  # doctest: +SKIP
    True
    """
    check_is_fitted(model)
    chains = _chains(model)
    onnx = package("onnx", instead="use the matrices themselves")
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    nodes, constants, values = [], [], []
    columns = model.n_features_in_
    for output, (held, steps) in chains.items():
        for number, (operation, array) in enumerate(steps, start=1):
            name = output if number == len(steps) else f"{output}_{number}"
            inputs = [held]
            if array is not None:
                inputs.append(f"{name}_by")
                constants.append(onnx.numpy_helper.from_array(np.array(array, dtype=float), inputs[1]))
                columns = array.shape[-1]
            nodes.append(helper.make_node(operation, inputs, [name]))
            held = name
        values.append(helper.make_tensor_value_info(output, double, ["n_samples", columns]))
    X = helper.make_tensor_value_info("X", double, ["n_samples", model.n_features_in_])
    graph = helper.make_graph(nodes, type(model).__name__, [X], values, constants)
    opset = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(graph, producer_name="rmopt", ir_version=IR_VERSION, opset_imports=opset)
    onnx.checker.check_model(made)
    write_atomically(path, lambda stream: stream.write(made.SerializeToString()))


def _chains(model: Any) -> dict[str, tuple[str, list[tuple[str, Array | None]]]]:
    """Return for each output where it begins, and operations with what they take beside it."""
    if isinstance(model, Searchable):
        queries, documents, unit = model._maps()
        last: list[tuple[str, Array | None]] = [("LpNormalization", None)] * unit
        return {
            "queries": ("X", [("MatMul", queries), *last]),
            "documents": ("X", [("MatMul", documents), *last]),
        }
    if hasattr(model, "label_components_"):
        to_scores = [
            ("MatMul", model.components_),
            ("MatMul", model.label_components_.T),
            ("Add", model.intercept_),
        ]
        return {"scores": ("X", to_scores), "probabilities": ("scores", [("Sigmoid", None)])}
    if hasattr(model, "decision_function") and isinstance(
        getattr(getattr(model, "model_", None), "point", None), LowRankPoint
    ):
        B, A = model.model_.point.balanced_factors()
        return {"scores": ("X", [("MatMul", A), ("MatMul", B.T)])}
    raise InvalidInputError(
        f"{shown(model)} cannot be written as ONNX; take a similarity or a ranking of labels, or of other models the "
        "matrices that docs/howto/save.md lists."
    )
