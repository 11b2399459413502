"""A directive for what the benchmarks kept in ``docs/measured``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from again import benchmark
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

MEASURED = Path(__file__).parents[1] / "measured"


def kept(module: str) -> dict[str, Any]:
    """Return what a benchmark module kept."""
    return json.loads((MEASURED / f"{module}.json").read_text(encoding="utf-8"))


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of all parts of a table."""
    return [row for part in table["parts"].values() for row in part["rows"]]


def cell(value: Any) -> str:
    """Return a number with three digits, as readers like it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        small = value != 0.0 and abs(value) < 1e-3
        return f"{value:.0e}" if small else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class Measured(SphinxDirective):
    """``{measured} step_time``: all tables of a benchmark module, with their dates and versions."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        self.env.note_dependency(str(MEASURED / f"{self.arguments[0]}.json"))
        content = kept(self.arguments[0])
        found: list[nodes.Node] = []
        for table in content["tables"].values():
            found += [self._table(table["title"], rows_of(table)), self._origin(table)]
        again = nodes.paragraph(text="Measured again by ", classes=["measured"])
        again += [nodes.literal(text=benchmark(self.arguments[0])), nodes.Text(".")]
        return [*found, again]

    def _table(self, title: str, rows: list[dict[str, Any]]) -> nodes.Node:
        keys = list(dict.fromkeys(key for row in rows for key in row))
        numeric = {key: all(isinstance(row.get(key), int | float | None) for row in rows) for key in keys}
        table, group = nodes.table(), nodes.tgroup(cols=len(keys))
        table += nodes.title(text=title)
        table += group
        group += [nodes.colspec(colwidth=1) for _ in keys]
        head, body = nodes.thead(), nodes.tbody()
        group += [head, body]
        for place, line in ((head, {key: key for key in keys}), *((body, row) for row in rows)):
            entries = nodes.row()
            place += entries
            for key in keys:
                entry = nodes.entry(classes=["text-right"] if numeric[key] else [])
                entry += nodes.paragraph(text=cell(line.get(key)))
                entries += entry
        return table

    def _origin(self, table: dict[str, Any]) -> nodes.Node:
        parts = list(table["parts"].values())
        dates = sorted({part["date"] for part in parts})
        versions = ", ".join(f"{name} {number}" for name, number in parts[-1]["versions"].items())
        commits = dict.fromkeys(part["commit"] for part in parts if part.get("commit"))
        at = f", commit {', '.join(commits)}" if commits else ""
        return nodes.paragraph(
            text=f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}{at}: {versions}.",
            classes=["measured"],
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True}
