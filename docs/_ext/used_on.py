"""A directive that lists the pages whose code imports a class or function, as sphinx-gallery does for tutorials."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parents[1]
IMPORT = re.compile(r"^(?:>>> )?from ((?:rmopt|problems)[\w.]*) import ([\w, ]+)$", re.MULTILINE)
CALL = re.compile(r"\b(rmopt)\.(\w+)\(")
LINK = re.compile(r"\{py:obj\}`(?:[^`<]*<)?~?((?:rmopt|problems)(?:\.[a-z_]+)*)\.([A-Za-z]\w*)(?:\.\w+)?>?`")


def called(module: str, name: str) -> Any:
    """Return what a name stands for: one object has several, such as `rmopt.Problem` and `rmopt.core.Problem`."""
    return getattr(importlib.import_module(module), name)


@cache
def pages() -> dict[int, list[str]]:
    """Return the pages of quick starts, the course, the guide and how-to section by the identity of what they use."""
    found = defaultdict(list)
    for folder in ("start", "learn", "howto", "guide"):
        for page in sorted((DOCS / folder).glob("*.md")):
            text = page.read_text(encoding="utf-8")
            names = [(module, name) for module, listed in IMPORT.findall(text) for name in listed.split(", ")]
            for module, name in [*names, *CALL.findall(text), *LINK.findall(text)]:
                found[id(called(module, name.split(" as ")[0]))].append(f"/{folder}/{page.stem}")
    return found


class UsedOn(SphinxDirective):
    """``.. used-on:: module name``: nothing where no page uses it."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return a heading and a list of links."""
        listed = dict.fromkeys(pages().get(id(called(*self.arguments)), ()))
        if not listed:
            return []
        text = "\n".join([".. rubric:: Pages that use it", "", *(f"- :doc:`{page}`" for page in listed)])
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("used-on", UsedOn)
    return {"parallel_read_safe": True}
