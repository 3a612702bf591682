"""A report as a list of blocks, and the two ways to write it down: one HTML file and one Markdown text.

Both are complete in themselves: no script, no request, charts inside. Every text is escaped here and nowhere else.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Heading:
    """A section's title."""

    text: str


@dataclass(frozen=True, slots=True)
class Statement:
    """The result in one sentence, with a word and a symbol that do not need colour."""

    verdict: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first column is text, the others are aligned right."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with what it shows in words. ``wide`` is drawn for the HTML page where it differs."""

    svg: str
    caption: str
    wide: str | None = None


@dataclass(frozen=True, slots=True)
class Charts:
    """Pictures side by side."""

    items: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


Block: TypeAlias = Heading | Statement | Paragraph | Grid | Charts | Bullets

SYMBOLS = {
    "no-worse": "●",
    "worse": "✖",
    "undecided": "◆",
    "PASS": "●",
    "HOLD": "✖",
    "INSUFFICIENT_EVIDENCE": "◆",
    "STALE": "◆",
}

_CSS = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--line:#d0d7de;--page:#ffffff;--panel:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--page:#0d1117;--panel:#151b23}}
body{margin:0 auto;max-width:1120px;padding:28px 24px;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:20px;margin:0 0 2px}h2{font-size:16px;margin:30px 0 8px}p{margin:6px 0}.soft{color:var(--soft)}
.statement{border:1px solid var(--line);border-left:6px solid var(--ink);background:var(--panel);padding:12px 16px;
margin:14px 0;border-radius:6px;font-size:17px}.statement b{margin-right:10px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left}
th{font-weight:600;color:var(--soft)}.charts{display:flex;flex-wrap:wrap;gap:18px}
figure{margin:0;max-width:100%}figure svg{max-width:100%;height:auto}
figcaption{color:var(--soft);font-size:13px;max-width:340px}
.wide figcaption{max-width:none}ul{margin:6px 0;padding-left:20px}
"""


def to_html(title: str, subtitle: str, blocks: Sequence[Block]) -> str:
    """One page that opens anywhere, light or dark."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{_esc(title)}</title><style>{_CSS}</style></head><body>\n"
        f'<h1>{_esc(title)}</h1><p class="soft">{_esc(subtitle)}</p>\n{body}\n</body></html>\n'
    )


def to_markdown(title: str, subtitle: str, blocks: Sequence[Block]) -> str:
    """The same for Dagster's metadata and for mail; charts are data addresses."""
    return "\n\n".join([f"# {_md(title)}", _md(subtitle), *(_markdown(block) for block in blocks)]) + "\n"


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{_esc(text)}</h2>"
        case Statement(verdict, sentence):
            symbol = SYMBOLS.get(verdict, "◆")
            return f'<p class="statement"><b>{symbol} {_esc(verdict)}</b>{_esc(sentence)}</p>'
        case Paragraph(text):
            return f"<p>{_esc(text)}</p>"
        case Grid(names, rows):
            head = "".join(f"<th>{_esc(name)}</th>" for name in names)
            lines = "".join("<tr>" + "".join(f"<td>{_esc(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        case Charts(items):
            return '<div class="charts">' + "".join(_figure(item) for item in items) + "</div>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_esc(item)}</li>" for item in items) + "</ul>"


def _figure(chart: Chart) -> str:
    picture = (chart.wide or chart.svg).replace("<svg", f'<svg role="img" aria-label="{_esc(chart.caption)}"', 1)
    kind = ' class="wide"' if chart.wide else ""
    return f"<figure{kind}>{picture}<figcaption>{_esc(chart.caption)}</figcaption></figure>"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"## {_md(text)}"
        case Statement(verdict, sentence):
            return f"**{SYMBOLS.get(verdict, '◆')} {_md(verdict)}** {_md(sentence)}"
        case Paragraph(text):
            return _md(text)
        case Grid(names, rows):
            lines = [names, tuple("---" if not place else "---:" for place in range(len(names)))]
            return "\n".join("| " + " | ".join(cells) + " |" for cells in (*_cells(lines[:1]), lines[1], *_cells(rows)))
        case Charts(items):
            return "\n\n".join(f"![{_md(item.caption)}]({_address(item.svg)})" for item in items)
        case Bullets(items):
            return "\n".join(f"- {_md(item)}" for item in items)


def _cells(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(_md(cell).replace("|", "\\|") for cell in row) for row in rows]


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def _esc(text: str) -> str:
    return html.escape(text, quote=True)


def _md(text: str) -> str:
    escaped = html.escape(text, quote=False).replace("\\", "\\\\")
    for sign in "`*_[]":
        escaped = escaped.replace(sign, "\\" + sign)
    return escaped.replace("\n", " ")
