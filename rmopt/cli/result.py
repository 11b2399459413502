"""What a run leaves: ``result.json``, one object of one shape for all, and ``report.html``, one page to read."""

import base64
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rmopt.cli.table import cells_of
from rmopt.errors import InvalidInputError
from rmopt.experiments import Outcome
from rmopt.files import write_atomically

PACKAGES = ("rmopt", "numpy", "scipy", "numba", "scikit-learn")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
th, td { padding: .25rem .8rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top }
th.number, td.number { text-align: right } thead th { border-bottom: 2px solid #222 }
img { max-width: 100%; height: auto } figure { margin: 1rem 0 } figcaption { color: #666; font-size: .9rem }
.command { background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto; white-space: pre-wrap }
li.yes::marker { content: "✓  " } li.no::marker { content: "✗  " } li.open::marker { content: "–  " }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } thead th { border-color: #ddd } th, td { border-color: #444 }
  .command { background: #262626 } img { background: #fff } figcaption { color: #aaa }
}
"""


def result_of(experiment: str, seed: int, outcome: Outcome) -> dict[str, Any]:
    """Return the object that ``result.json`` holds; what JSON cannot hold is refused."""
    result = {
        "experiment": experiment,
        "data": outcome.data,
        "parameters": plain(outcome.parameters, "parameters"),
        "seed": seed,
        "versions": versions(),
        "rows": [
            {key: plain(value, f"rows[{number}][{key!r}]") for key, value in row.items()}
            for number, row in enumerate(outcome.rows)
        ],
    }
    if outcome.claims:
        result["claims"] = [asdict(claim) for claim in outcome.claims]
    if outcome.notes:
        result["notes"] = outcome.notes
    return result


def versions() -> dict[str, str | None]:
    """Return the versions that a result depends on; None for a package that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def plain(value: Any, name: str) -> Any:
    """Return a value as JSON knows it: numpy numbers as numbers, paths as text, NaN and inf as None.

    What has no such form is an `InvalidInputError`, which calls it by the name.
    """
    if isinstance(value, Enum):
        return plain(value.value, name)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), name)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(item, name) for item in value]
    raise InvalidInputError(
        f"the outcome's {name} is a {type(value).__name__}; use text, numbers, None, or lists of them."
    )


def as_json(content: Mapping[str, Any]) -> str:
    """Return the text that ``--json`` prints."""
    return json.dumps(content, indent=2, allow_nan=False)


def write_report(
    path: Path, result: Mapping[str, Any], outcome: Outcome, command: str, pictures: Iterable[Path]
) -> None:
    """Write a run as one HTML page that needs no other file, atomically.

    `result` is what ``result.json`` holds, `outcome` gives headings and claims, `command` repeats the run, and
    `pictures` are PNG files to embed.
    """
    title = f"{result['experiment']} on {result['data']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<pre class="command">{escape(command)}</pre>',
        _rows(result["rows"], outcome.headings),
        _claims(outcome),
        *(_picture(picture) for picture in pictures),
        _pairs("Parameters", {**result["parameters"], "seed": result["seed"]}),
        _pairs("Versions", result["versions"]),
    ]
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, parts))
        + "\n</body>\n</html>\n"
    )
    write_atomically(path, lambda stream: stream.write(page.encode()))


def _rows(rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> str:
    columns = cells_of(rows, headings)
    if not columns:
        return ""
    kinds = [' class="number"' if column.numeric else "" for column in columns]

    def line(tag: str, cells: Iterable[str]) -> str:
        filled = zip(kinds, map(escape, cells), strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in filled)}</tr>"

    head = line("th", (column.heading for column in columns))
    body = "\n".join(line("td", cells) for cells in zip(*(column.cells for column in columns), strict=True))
    return f'<div class="wide"><table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _claims(outcome: Outcome) -> str:
    if not outcome.claims:
        return ""
    marks = {True: "yes", False: "no", None: "open"}
    items = "\n".join(
        f'<li class="{marks[claim.reproduced]}">{escape(str(claim))}</li>' for claim in outcome.claims
    )
    return f"<h2>The paper says, and these numbers</h2>\n<ul>\n{items}\n</ul>"


def _picture(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    name = escape(path.name)
    return (
        f'<figure><img alt="{name}" src="data:image/png;base64,{content}">'
        f"<figcaption>{name}</figcaption></figure>"
    )


def _pairs(heading: str, pairs: Mapping[str, Any]) -> str:
    lines = "\n".join(
        f"<tr><th>{escape(str(key))}</th><td>{escape(_text(value))}</td></tr>" for key, value in pairs.items()
    )
    return f"<h2>{heading}</h2>\n<table>\n{lines}\n</table>"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "–"
    return str(value) if value not in (None, "") else "–"
