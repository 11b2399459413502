"""``report.html``: one page with the table, the pictures, the parameters and the versions of a run."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmopt.cli.table import cells_of
from rmopt.core.files import write_atomically

if TYPE_CHECKING:
    from rmopt.experiments import Outcome

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
