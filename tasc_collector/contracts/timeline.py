"""When everything of one call happened: ``tasc-trace-timeline-v1``, beside the trace envelope.

All offsets are integer nanoseconds on one monotonic clock whose origin is the moment the call was queued. A null mark
was not reached or not observed; it is never zero by default.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Count, Digest, Nanoseconds, Slug

EventKind = Literal["answer", "reasoning", "tool"]


class TimelineMarks(Model):
    """Offsets from the queued instant, in the order in which they must occur."""

    begun_ns: Nanoseconds | None
    """The call left the queue: its turn had come."""
    resolved_ns: Nanoseconds | None
    connected_ns: Nanoseconds | None
    secured_ns: Nanoseconds | None
    leased_ns: Nanoseconds | None
    request_started_ns: Nanoseconds | None
    request_written_ns: Nanoseconds | None
    headers_ns: Nanoseconds | None
    first_byte_ns: Nanoseconds | None
    first_token_ns: Nanoseconds | None
    first_visible_token_ns: Nanoseconds | None
    last_token_ns: Nanoseconds | None
    last_byte_ns: Nanoseconds | None


class TimelineEvents(Model):
    """One entry per event that carried output, as parallel lists (columnar, because there are many)."""

    offset_ns: tuple[Nanoseconds, ...]
    tokens: tuple[Count | None, ...]
    """Tokens in the event where the dialect tells, else null."""
    kind: tuple[EventKind, ...]
    uncertainty_ns: tuple[Nanoseconds | None, ...]
    """Width of the interval that holds the arrival: 0 where a read held one event, null without kernel time."""

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len({len(self.offset_ns), len(self.tokens), len(self.kind), len(self.uncertainty_ns)}) != 1:
            raise ValueError("offsetNs, tokens, kind and uncertaintyNs have one entry per event")
        return self


class TraceTimeline(Record):
    """The token timeline of one attempt, content-free."""

    domain: ClassVar[str] = "tasc/trace-timeline/v1"

    version: Literal["tasc-trace-timeline-v1"] = "tasc-trace-timeline-v1"
    trace_id: Slug
    trace_digest: Digest
    attempt_id: Slug
    framing: Literal["json", "sse", "ndjson"]
    marks: TimelineMarks
    events: TimelineEvents
    events_dropped: Count
    """Events beyond the bound; zero in all but hostile streams."""
    arrival_uncertainty_ns: Nanoseconds | None
    """Of the first token."""
    collector_lag_ns: Nanoseconds | None
    """Largest (read minus arrival) of the call; null where the system gives no kernel time."""
    timing_flagged: bool
    """True where the first token's uncertainty exceeds 3 ms or, without kernel time, the lag does."""
    request_bytes: Count
    response_bytes: Count
    reads: Count
    peer: Slug | None
    """Keyed identity of the peer's address (which replica answered), never the address."""
    cached_input_tokens: Count | None
    reasoning_tokens: Count | None
