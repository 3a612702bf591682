"""Both token timelines of a pair, event by event, as a person reads them in a terminal."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.sql import shown

BAR_WIDTH = 16
"""Characters of the longest gap."""
SHOWN_EVENTS = 60
"""Events that are shown unless all are asked for."""


@dataclass(frozen=True, slots=True)
class Event:
    """One token event: milliseconds since the first byte was written and since the event before."""

    offset_ms: float | None
    gap_ms: float | None
    tokens: int | None
    kind: str


@dataclass(frozen=True, slots=True)
class Side:
    """One execution of the pair: what became of it, its figures by name, and its token events."""

    profile_id: str
    outcome: str
    figures: tuple[tuple[str, float | int | str | None], ...]
    events: tuple[Event, ...]


FIGURES = (
    "queue_ms",
    "connect_ms",
    "tls_ms",
    "ttft_ms",
    "itl_p50_ms",
    "itl_p95_ms",
    "tpot_ms",
    "e2e_ms",
    "input_tokens",
    "input_tokens_cached",
    "output_tokens",
    "finish_reason",
    "collector_lag_ms",
)
"""Columns of ``traces`` that head each side."""

_SIDES = f"""
SELECT profile_id, coalesce(fault_reason, failure_category, status, state), {", ".join(FIGURES)}
FROM traces WHERE window_key = $key AND case_id = $case AND replicate = $replicate
ORDER BY role DESC, profile_id
"""  # noqa: S608 - names of our own columns
_EVENTS = """
SELECT profile_id, offset_ns / 1e6, gap_ns / 1e6, tokens, kind
FROM token_events WHERE window_key = $key AND case_id = $case AND replicate = $replicate
ORDER BY role DESC, profile_id, event_index
"""


def load_pair(
    session: duckdb.DuckDBPyConnection, window_key: str, case_id: str, *, replicate: int = 0
) -> tuple[Side, ...]:
    """Champion first, then every candidate of one case and replicate.

    Raises:
        InputError: the window has no such case or replicate; names some that it has.
    """
    where = {"key": window_key, "case": case_id, "replicate": replicate}
    rows = session.execute(_SIDES, where).fetchall()
    if not rows:
        raise _unknown(session, window_key, case_id, replicate)
    events: dict[str, list[Event]] = {}
    for profile, offset_ms, gap_ms, tokens, kind in session.execute(_EVENTS, where).fetchall():
        events.setdefault(profile, []).append(Event(offset_ms, gap_ms, tokens, kind))
    return tuple(
        Side(row[0], row[1], tuple(zip(FIGURES, row[2:], strict=True)), tuple(events.get(row[0], ()))) for row in rows
    )


def render_pair(sides: tuple[Side, ...], *, limit: int | None = SHOWN_EVENTS) -> RenderableType:
    """A table of figures and one of events, the sides next to each other."""
    figures = Table(show_edge=False, pad_edge=False)
    figures.add_column("")
    for side in sides:
        figures.add_column(Text(side.profile_id), justify="right")
    figures.add_row("outcome", *(side.outcome for side in sides))
    for place, name in enumerate(FIGURES):
        figures.add_row(name, *(shown(side.figures[place][1]) for side in sides))
    longest = max((event.gap_ms or 0.0 for side in sides for event in side.events), default=0.0)
    most = max((len(side.events) for side in sides), default=0)
    events = Table(show_edge=False, pad_edge=False)
    events.add_column("event", justify="right")
    for side in sides:
        events.add_column(Text(f"{side.profile_id}: at ms"), justify="right")
        events.add_column("gap ms", justify="right")
        events.add_column("", min_width=BAR_WIDTH)
    rows = most if limit is None else min(most, limit)
    for index in range(rows):
        cells = [cell for side in sides for cell in _cells(side, index, longest)]
        events.add_row(str(index), *cells)
    parts: list[RenderableType] = [figures, Text("")]
    parts.append(events if most else Text("no token events were recorded"))
    if rows < most:
        parts.append(Text(f"{most - rows} more events: tasc show ... --all"))
    return Group(*parts)


def _cells(side: Side, index: int, longest: float) -> tuple[str, str, str]:
    if index >= len(side.events):
        return "", "", ""
    event = side.events[index]
    bar = "" if event.gap_ms is None or not longest else "█" * max(1, round(BAR_WIDTH * event.gap_ms / longest))
    mark = "" if event.kind == "answer" else f" {event.kind}"
    return _milliseconds(event.offset_ms), _milliseconds(event.gap_ms), bar + mark


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _unknown(session: duckdb.DuckDBPyConnection, window_key: str, case_id: str, replicate: int) -> InputError:
    known = session.execute(
        "SELECT DISTINCT case_id FROM traces WHERE window_key = $key ORDER BY 1 LIMIT 3", {"key": window_key}
    ).fetchall()
    if not known:
        keys = session.execute("SELECT DISTINCT window_key FROM traces ORDER BY 1 DESC LIMIT 3").fetchall()
        return InputError(
            "nothing is published for this window",
            field=window_key,
            way_out=f"choose one of {_names(keys)}" if keys else "collect a window first: tasc demo",
        )
    return InputError(
        f"the window has no replicate {replicate} of this case",
        where=window_key,
        field=case_id,
        way_out=f"choose a case such as {_names(known)}",
    )


def _names(rows: list[tuple[str]]) -> str:
    return ", ".join(row[0] for row in rows)
