"""Habits of prose that make pages hard to read are counted: a bound may fall, and never rises."""

import ast
import re
from pathlib import Path

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
# The same of docstrings.
IN_DOCSTRINGS = {
    r";": 11,
    r"\b[Ww]here\b": 2,
    r"\b[Ww]hat (is|was|has|makes|one)\b": 0.5,
    r"\b(anew|in place of)\b": 0,
}


def docstrings() -> str:
    """Return the docstrings of both packages without examples and literals."""
    files = (path for top in ("rmopt", "problems") for path in (ROOT / top).rglob("*.py"))
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    found = (
        ast.get_docstring(node) or ""
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    )
    return re.sub(r"^\s*(>>>|\.\.\.).*$|``.*?``|`[^`]*`", "x", "\n".join(found), flags=re.MULTILINE)


def prose() -> str:
    """Return the text of all pages without code, formulas and tables."""
    pages = (path.read_text(encoding="utf-8") for path in PAGES if "_build" not in path.parts)
    return "\n".join(re.sub(NO_PROSE, "x", page, flags=re.DOTALL | re.MULTILINE) for page in pages)


def test_habits_of_prose_stay_rare() -> None:
    for text, habits in ((prose(), HABITS), (docstrings(), IN_DOCSTRINGS)):
        words = len(re.findall(r"[A-Za-z]+", text))
        found = {habit: 1e4 * len(re.findall(habit, text, flags=re.MULTILINE)) / words for habit in habits}
        assert {habit: rate for habit, rate in found.items() if rate > habits[habit]} == {}
