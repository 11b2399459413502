"""A directive that lists every error message of a package, read from its source."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ERRORS = ("InvalidInputError", "MissingCapabilityError", "DivergedError", "StorageError")


def text_of(node: ast.expr) -> str | None:
    """Return a message as its reader sees it, with … where values stand; None where it is no literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "…"
            for part in node.values
            if hasattr(part, "value")
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [text_of(side) for side in (node.left, node.right)]
        return None if None in parts else "".join(map(str, parts))
    return None


def messages(package: str) -> dict[str, list[str]]:
    """Return the messages of a package by the class of the error."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    found: dict[str, set[str]] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ERRORS
                and node.args
            ):
                text = text_of(node.args[0])
                if text and len(text.replace("…", "").split()) > 3:
                    found.setdefault(node.func.id, set()).add(text)
    return {name: sorted(found[name], key=str.casefold) for name in ERRORS if name in found}


class ErrorMessages(SphinxDirective):
    """``{error-messages} rmopt.solvers``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a list of messages for each class of error."""
        found: list[nodes.Node] = []
        for name, texts in messages(self.arguments[0]).items():
            items = nodes.bullet_list(classes=["messages"])
            for text in texts:
                item = nodes.list_item()
                item += nodes.paragraph(text=text)
                items += item
            found += [nodes.rubric(text=name), items]
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("error-messages", ErrorMessages)
    return {"parallel_read_safe": True}
