"""A directive that runs the code of a page, and shows the figure that it drew last."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from cycler import cycler
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from problems.palette import COLOURS

STYLE = {"svg.hashsalt": "rmopt", "axes.prop_cycle": cycler(color=COLOURS), "savefig.bbox": "tight"}


def use_palette(gallery: dict[str, Any], script: str) -> None:
    """Give the figures of tutorials the colours of all others."""
    matplotlib.rcParams["axes.prop_cycle"] = STYLE["axes.prop_cycle"]


def run(example: doctest.Example, names: dict[str, Any], page: str) -> None:
    """Run one example of a page, and do without what it prints: the tests compare that."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(compile(example.source, page, "single"), names)
        except Exception:
            if example.exc_msg is None:
                raise


class Drawn(SphinxDirective):
    """``{drawn} name``: the last figure of the page's code above; its content is the caption."""

    required_arguments = 1
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        (name,) = self.arguments
        page = self.env.docname
        text = Path(self.env.doc2path(page)).read_text(encoding="utf-8")
        above = re.split(rf"\{{drawn\}} {name}$", text, flags=re.MULTILINE)[0]
        examples = doctest.DocTestParser().get_examples(above)
        names, done = self.env.temp_data.setdefault("drawn", ({"__name__": "__main__"}, []))
        matplotlib.use("Agg")
        with matplotlib.rc_context(STYLE):
            for example in examples[len(done) :]:
                run(example, names, page)
            done[:] = examples
            path = Path(self.env.srcdir) / "_generated" / f"{page.replace('/', '-')}-{name}.svg"
            path.parent.mkdir(exist_ok=True)
            plt.gcf().savefig(path, metadata={"Date": None})
            plt.close("all")
        image = nodes.image(uri=f"/_generated/{path.name}", alt=self.options["alt"])
        figure = nodes.figure("", image)
        if self.content:
            words, _ = self.state.inline_text(" ".join(self.content), self.lineno)
            figure += nodes.caption("", "", *words)
        return [figure]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("drawn", Drawn)
    return {"parallel_read_safe": True}
