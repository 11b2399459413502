"""Does once what extensions of Sphinx do again for each page: pages are the same without it, and come later."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader
from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish
from sphinx_gallery import directives


def setup(app: Sphinx) -> dict[str, Any]:
    """Keep the template of docstrings, the stems of words, and the list of what tutorials use."""
    templates = FileSystemLoader(Path(docscrape_sphinx.__file__).parent / "templates")
    kept = SandboxedEnvironment(loader=templates)
    # A new environment compiles its template again.
    docscrape_sphinx.SandboxedEnvironment = lambda loader: kept
    SearchEnglish.stem = cache(SearchEnglish.stem)
    directives._read_json = cache(directives._read_json)
    return {"parallel_read_safe": True}
