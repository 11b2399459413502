"""Habits of prose that make pages hard to read are counted: a bound may fall, and never rises."""

from __future__ import annotations

import re
from pathlib import Path

from tabled import each_row

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
# Code, formulas, roles, addresses, and rows of tables are no prose.
NO_PROSE = r"```.*?```|\$\$.*?\$\$|\$[^$]*\$|(\{[a-z:]+\})?`[^`]*`|\]\([^)]*\)|<[^>]*>|^\|.*?$"
# What is counted, and how often it may stand in 10,000 words.
HABITS = {
    r";": 15,
    r"\b[Ww]here\b": 8,
    r"(^|[.,:] )[Ww]hat (is|was|has|makes|one)\b": 1,
    r"\b(anew|afresh|in place of)\b": 1,
    r"\b[Pp]ages? (says?|asks?|wants?|knows?|tells?)\b": 1,
}


def prose() -> str:
    """Return the text of all pages without code, formulas and tables."""
    pages = (path.read_text(encoding="utf-8") for path in PAGES if "_build" not in path.parts)
    return "\n".join(re.sub(NO_PROSE, "x", page, flags=re.DOTALL | re.MULTILINE) for page in pages)


@each_row(("habit", "bound"), HABITS.items())
def test_a_habit_of_prose_stays_rare(habit: str, bound: int) -> None:
    text = prose()
    found = len(re.findall(habit, text, flags=re.MULTILINE))
    assert 1e4 * found / len(re.findall(r"[A-Za-z]+", text)) <= bound
