"""Latencies of one call from its timeline. The only place where they are made, so that SQL, charts and verdict agree.

Definitions (all in milliseconds, all from the first application byte written):

- TTFT: to the first token of any kind (reasoning counts, an empty first chunk does not).
- ITL: gaps between token events; the percentiles of a call interpolate linearly, as DuckDB's ``quantile_cont`` does.
- TPOT: ``(last - first token) / (tokens - 1)``; null below two tokens.
- E2E: to the last response byte.
- queue, connect, TLS: before the first byte, never part of any of the above.

A mark that was not observed makes what needs it null.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.contracts.timeline import TimelineMarks

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of one call in milliseconds, null where a mark is missing."""

    ttft_ms: float | None
    itl_p50_ms: float | None
    itl_p95_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    queue_ms: float | None
    connect_ms: float | None
    tls_ms: float | None


def latencies(marks: TimelineMarks, event_offsets_ns: Sequence[int], output_tokens: int | None) -> Latencies:
    """Latencies of one call.

    Args:
        marks: offsets from the queued instant, in nanoseconds.
        event_offsets_ns: offsets of the token events from the queued instant, ascending.
        output_tokens: as the provider reports them; without them there is no TPOT.
    """
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(event_offsets_ns))
    decoding = between_ms(marks.first_token_ns, marks.last_token_ns)
    return Latencies(
        ttft_ms=between_ms(marks.request_started_ns, marks.first_token_ns),
        itl_p50_ms=_ms(quantile(gaps, 0.50)),
        itl_p95_ms=_ms(quantile(gaps, 0.95)),
        tpot_ms=None
        if decoding is None or output_tokens is None or output_tokens < 2
        else decoding / (output_tokens - 1),
        e2e_ms=between_ms(marks.request_started_ns, marks.last_byte_ns),
        queue_ms=None if marks.begun_ns is None else marks.begun_ns / NS_PER_MS,
        connect_ms=between_ms(marks.resolved_ns, marks.connected_ns),
        tls_ms=between_ms(marks.connected_ns, marks.secured_ns),
    )


def between_ms(start_ns: int | None, end_ns: int | None) -> float | None:
    """Milliseconds from one mark to another, null where either is."""
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / NS_PER_MS


def quantile(ordered: Sequence[int], share: float) -> float | None:
    """Linearly interpolated quantile of ascending values (type 7, as ``quantile_cont``); null of nothing."""
    if not ordered:
        return None
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
