"""Directives for tables that benchmarks kept in ``docs/measured`` and for claims, and a role for single numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from again import HERE, benchmark, kept, rows_of, values
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

# Reproduced, in part, not reproduced, not tested.
MARKS = tuple("✓~✗–")


def cell(value: Any) -> str:
    """Return a number with three digits, as readers like it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        small = value != 0.0 and abs(value) < 1e-3
        return f"{value:.0e}" if small else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class Number(SphinxRole):
    """``{measured}`step_time; test_psd_steps; a step, µs` ``: a number, or the range of several (`again.values`)."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the number."""
        self.env.note_dependency(str(HERE / f"{self.text.partition(';')[0]}.json"))
        found = values(self.text)
        ends = dict.fromkeys(map(cell, (min(found), max(found))))
        return [nodes.Text(" to ".join(ends))], []


class Measured(SphinxDirective):
    """``{measured} step_time test_psd_steps``: tables of a benchmark module, all unless named, with their origin."""

    required_arguments = 1
    optional_arguments = 9

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        name, *wanted = self.arguments
        self.env.note_dependency(str(HERE / f"{name}.json"))
        tables = kept(name)["tables"]
        found: list[nodes.Node] = []
        for table in (tables[test] for test in wanted or tables):
            found += [self._table(table["title"], rows_of(table)), self._origin(table)]
        if not (HERE.parents[1] / "tests" / "benchmarks" / f"test_{name}.py").exists():
            text = "Measured with version 0.2; no benchmark does it again."
            return [*found, nodes.paragraph(text=text, classes=["measured"])]
        again = nodes.paragraph(text="Measured again by ", classes=["measured"])
        again += [nodes.literal(text=benchmark(name)), nodes.Text(".")]
        return [*found, again]

    def _table(self, title: str, rows: list[dict[str, Any]]) -> nodes.Node:
        # Lists are curves, for figures.
        keys = dict.fromkeys(key for row in rows for key in row if not isinstance(row[key], list))
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


def claims() -> list[tuple[str, str, str, str]]:
    """Return paper, mark, claim and finding of each row of claims in ``docs/measured/index.md``."""
    paper, found = "", []
    for line in (HERE / "index.md").read_text(encoding="utf-8").splitlines():
        paper = line.removeprefix("## ") if line.startswith("## ") else paper
        cells = [cell.strip() for cell in line.strip("|").split(" |")]
        if cells[-1] in MARKS:
            found.append((paper, cells[-1], cells[0], cells[-2]))
    return found


class Claims(SphinxDirective):
    """``{claims}``: how many claims of each paper have which mark; ``{claims} ✗``: those with this mark."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        self.env.note_dependency(str(HERE / "index.md"))
        if self.arguments:
            rows = [[one[0], *one[2:]] for one in claims() if one[1] == self.arguments[0]]
            head = ["paper", "claim", "finding"]
        else:
            counts = Counter(one[:2] for one in claims())
            papers = dict.fromkeys(paper for paper, _ in counts)
            rows = [[paper, *(str(counts[paper, mark]) for mark in MARKS)] for paper in papers]
            rows.append(["**all**", *(str(sum(counts[paper, mark] for paper in papers)) for mark in MARKS)])
            head = ["paper", *MARKS]
        lines = [head, ["---"] * len(head), *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all."""
    app.add_directive("claims", Claims)
    app.add_directive("measured", Measured)
    app.add_role("measured", Number())
    return {"parallel_read_safe": True}
