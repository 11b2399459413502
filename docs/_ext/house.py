"""Draws the house: floors and their rooms, from the table that the architecture test holds."""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from sphinx.application import Sphinx

import problems

TEST = Path(__file__).parents[2] / "tests" / "test_architecture.py"
SAYS = {
    -1: "what the command line needs before anything is computed",
    0: "arrays in, arrays out; numpy and numba alone",
    1: "the words: manifold, retraction, ambient operator, cost, problem",
    2: "from a point along a tangent vector, back onto the manifold",
    3: "where, and what",
    4: "who does the steps: a reference, and compiled twins of it",
    5: "schedule, step sizes, the loop; and what measures, draws, translates",
    6: "experiments and the command line",
    7: "the papers: costs, baselines, estimators, experiments",
}
WIDTH, HEIGHT, GAP, LEFT = 860, 58, 6, 24
TINTS = ("#e4e0ee", "#d9e6f2", "#cfe3ea", "#cfe8df", "#dceccf", "#f0ecc8", "#f5e0c3", "#f3d3c8", "#ead0dd")


def floors() -> dict[str, int]:
    """Return the table FLOORS of the architecture test."""
    for node in ast.parse(TEST.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "FLOORS":
            return ast.literal_eval(node.value)
    raise LookupError(f"{TEST} holds no FLOORS")


def picture() -> str:
    """Return the house as SVG, the lowest floor at the bottom."""
    by_floor: dict[int, list[str]] = {}
    for room, floor in floors().items():
        by_floor.setdefault(floor, []).append(room.removeprefix("rmopt."))
    top = max(by_floor)
    by_floor[top] = [part.name for part in iter_modules(problems.__path__) if part.ispkg]
    parts = []
    for floor, rooms in by_floor.items():
        y = 10 + (top - floor) * (HEIGHT + GAP)
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="{TINTS[floor + 1]}"/>'
        )
        parts.append(
            f'<text x="{LEFT + 14}" y="{y + 36}" class="floor">{str(floor).replace("-", "−")}</text>'
        )
        x = LEFT + 44
        for room in rooms:
            width = 9 * len(room) + 26
            parts.append(f'<rect x="{x}" y="{y + 7}" width="{width}" height="26" rx="3" class="room"/>')
            parts.append(f'<text x="{x + width / 2}" y="{y + 25}" class="name">{escape(room)}</text>')
            x += width + 8
        parts.append(f'<text x="{LEFT + 44}" y="{y + 50}" class="says">{escape(SAYS[floor])}</text>')
    height = 20 + (top + 2) * (HEIGHT + GAP)
    style = (
        ".floor{font:600 20px sans-serif;fill:#333}.room{fill:#fff;stroke:#55606b}"
        ".name{font:14px monospace;text-anchor:middle;fill:#111}.says{font:italic 13px sans-serif;fill:#333}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * LEFT} {height}" role="img">'
        f"<style>{style}</style>" + "".join(parts) + "</svg>\n"
    )


def draw(app: Sphinx, config: Any) -> None:
    """Write ``house.svg``."""
    path = Path(app.srcdir) / "_generated" / "house.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(picture(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before the pages are read."""
    app.connect("config-inited", draw)
    return {"parallel_read_safe": True}
