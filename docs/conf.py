"""How Sphinx builds these pages: ``sphinx-build -W docs docs/_build/html``."""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes

import rmopt

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE / "measured")]
# Pages are trees of millions of objects, and looking for unused ones as often as usual takes a fifth of the time.
gc.set_threshold(50_000, 10, 100)

project = "rmopt"
author = "the rmopt developers"
project_copyright = author
release = version = rmopt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
    # Formulas need no other site.
    "sphinx-mathjax-offline",
    "drawn",
    "error_messages",
    "growth",
    "house",
    "measured",
    "once",
    "used_on",
]
exclude_patterns = ["_build", "extend/template"]
templates_path = ["_templates"]
# A word in single backticks is code, and a link where the code has a page.
default_role = "py:obj"
nitpicky = False

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "unsrtalpha"

autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_use_type_comments = False
# Docstrings of torch's optimisers are shown where torch is not.
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "tutorials")],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),
    "reset_modules": ("matplotlib", "drawn.use_palette"),
    "abort_on_example_error": True,
    # The index of the tutorials groups them itself.
    "copyfile_regex": r"index\.rst",
    "show_memory": False,
    "backreferences_dir": "api/backreferences",
    "doc_module": ("rmopt", "problems"),
    "min_reported_time": 1e9,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "rmopt"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["rmopt.css"]
html_show_sourcelink = False
html_search_scorer = str(HERE / "_ext" / "scorer.js")
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 9,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}

# Addresses of papers behind a gate for machines.
linkcheck_ignore = [r"https://doi\.org/.*"]
linkcheck_timeout = 20


def skip_inherited(app: Any, what: str, name: str, member: Any, *_: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator: its own docs tell of it."""
    theirs = str(getattr(member, "__module__", "")).startswith("sklearn")
    return True if theirs or (name.startswith("set_") and name.endswith("_request")) else None


def pack_template(app: Any, config: Any) -> None:
    """Write the template of a package as one file to download."""
    with tempfile.TemporaryDirectory() as folder:
        packed = shutil.copytree(
            HERE / "extend" / "template",
            Path(folder) / "my-parts",
            ignore=shutil.ignore_patterns("__pycache__", ".*"),
        )
        target = HERE / "_generated" / "my-parts"
        target.parent.mkdir(exist_ok=True)
        shutil.make_archive(str(target), "zip", packed.parent)


def read_shows_last(app: Any, env: Any, names: list[str]) -> None:
    """Read pages that show pictures of others after those that draw them."""
    names.sort(key=("index", "learn/lecturers").__contains__)


def end_code_with_its_last_line(app: Any, doctree: Any) -> None:
    """Drop the empty line that ends an example for doctest."""
    for block in doctree.findall(nodes.literal_block):
        if block.rawsource == block.astext():
            block.rawsource = block.rawsource.rstrip()
            block[:] = [nodes.Text(block.rawsource)]


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("config-inited", pack_template)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("doctree-read", end_code_with_its_last_line)
    app.connect("env-before-read-docs", read_shows_last)
