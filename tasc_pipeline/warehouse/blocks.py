"""A report as a list of blocks, and the two ways to write it down: one HTML file and one Markdown text.

Both are complete in themselves: no script, no request, charts inside. Every text is escaped here and nowhere else.
"""

from __future__ import annotations

import base64
import html
import re
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


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure at a glance: what it is, its value, its interval and bound, and its verdict in a word."""

    name: str
    value: str
    detail: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Tiles:
    """Figures side by side; a table in Markdown."""

    items: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Two groups of blocks side by side; one after the other in Markdown and on a narrow screen."""

    left: tuple[Block, ...]
    right: tuple[Block, ...]


Block: TypeAlias = Heading | Statement | Paragraph | Grid | Charts | Bullets | Tiles | Columns

OPEN = "◆"
"""Of a verdict that says neither yes nor no."""
SYMBOLS = {
    "passed": "●",
    "failed": "✖",
    "no-worse": "●",
    "worse": "✖",
    "undecided": OPEN,
    "PASS": "●",
    "NOMINATED": "●",
    "NO_CANDIDATE": "✖",
    "HOLD": "✖",
    "INSUFFICIENT_EVIDENCE": OPEN,
    "STALE": OPEN,
}

_CSS = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--line:#d0d7de;--page:#ffffff;--panel:#f6f8fa;
--good:#1a7f5a;--bad:#c0341d;--open:#6e7781}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--page:#0d1117;--panel:#151b23;
--good:#3fb68b;--bad:#f0705a;--open:#9198a1}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:28px 24px;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:22px;margin:0 0 2px}h2{font-size:16px;margin:26px 0 8px}p{margin:6px 0}.soft{color:var(--soft)}
.good{--tone:var(--good)}.bad{--tone:var(--bad)}.open{--tone:var(--open)}
.statement{border:1px solid var(--line);border-left:8px solid var(--tone);background:var(--panel);padding:14px 18px;
margin:14px 0;border-radius:6px;font-size:17px}
.statement b{display:block;font-size:22px;color:var(--tone);margin-bottom:2px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:14px 0}
.tile{border:1px solid var(--line);border-top:4px solid var(--tone);border-radius:6px;padding:9px 12px}
.tile span{display:block;font-size:13px;color:var(--soft)}.tile .value{font-size:18px;white-space:nowrap;color:var(--ink);font-weight:600;
font-variant-numeric:tabular-nums}.tile .mark{color:var(--tone);font-weight:600}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0;white-space:nowrap}th:last-child,td:last-child{padding-right:0}
th{font-weight:600;color:var(--soft)}.charts{display:flex;flex-wrap:wrap;gap:18px}
.columns{display:grid;grid-template-columns:minmax(min-content,6fr) minmax(0,5fr);gap:20px;align-items:start}
@media(max-width:800px){.columns{grid-template-columns:minmax(0,1fr)}}
figure{margin:0;max-width:100%}figure svg{max-width:100%;height:auto;display:block}
figcaption{color:var(--soft);font-size:13px}ul{margin:6px 0;padding-left:20px}li{overflow-wrap:anywhere}
@media print{body{max-width:none;padding:0}h2{break-after:avoid}figure,.tile,tr{break-inside:avoid}}
"""
_WIDTH = re.compile(r'<svg[^>]* width="([0-9.]+)px"')
_TONES = {"●": "good", "✖": "bad", "◆": "open"}


def marked(verdict: str) -> str:
    """A verdict with its symbol, so that a column of them is read at a glance and without colour."""
    return f"{SYMBOLS.get(verdict, OPEN)} {verdict}"


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
            return f'<p class="statement {_tone(verdict)}"><b>{_esc(marked(verdict))}</b>{_esc(sentence)}</p>'
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
        case Tiles(items):
            return '<div class="tiles">' + "".join(_tile(item) for item in items) + "</div>"
        case Columns(left, right):
            sides = ("<div>" + "\n".join(_html(block) for block in side) + "</div>" for side in (left, right))
            return '<div class="columns">' + "".join(sides) + "</div>"


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile {_tone(tile.verdict)}"><span>{_esc(tile.name)}</span>'
        f'<span class="value">{_esc(tile.value)}</span><span>{_esc(tile.detail)}</span>'
        f'<span class="mark">{_esc(marked(tile.verdict))}</span></div>'
    )


def _tone(verdict: str) -> str:
    return _TONES[SYMBOLS.get(verdict, OPEN)]


def _figure(chart: Chart) -> str:
    picture = (chart.wide or chart.svg).replace("<svg", f'<svg role="img" aria-label="{_esc(chart.caption)}"', 1)
    drawn = _WIDTH.search(picture)
    # a caption never makes a figure wider than its picture, or two of them would not stand side by side
    limit = f' style="max-width:min({drawn[1]}px,100%)"' if drawn else ""
    return f"<figure{limit}>{picture}<figcaption>{_esc(chart.caption)}</figcaption></figure>"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"## {_md(text)}"
        case Statement(verdict, sentence):
            return f"**{_md(marked(verdict))}** {_md(sentence)}"
        case Paragraph(text):
            return _md(text)
        case Grid(names, rows):
            lines = [names, tuple("---" if not place else "---:" for place in range(len(names)))]
            return "\n".join("| " + " | ".join(cells) + " |" for cells in (*_cells(lines[:1]), lines[1], *_cells(rows)))
        case Charts(items):
            return "\n\n".join(f"![{_md(item.caption)}]({_address(item.svg)})" for item in items)
        case Bullets(items):
            return "\n".join(f"- {_md(item)}" for item in items)
        case Tiles(items):
            rows = tuple((tile.name, tile.value, tile.detail, marked(tile.verdict)) for tile in items)
            return _markdown(Grid(("figure", "champion → candidate", "ratio or difference", "verdict"), rows))
        case Columns(left, right):
            return "\n\n".join(_markdown(each) for each in (*left, *right))


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
