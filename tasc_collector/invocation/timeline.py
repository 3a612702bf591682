"""When everything of one call happened, relative to the moment it was queued. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pydantic.alias_generators import to_camel

from tasc_collector.contracts.timeline import TimelineMarks
from tasc_collector.limits import TIMING_FLAG_NS
from tasc_collector.runtimes.profile import Framing
from tasc_collector.runtimes.result import Answer, OutputKind, TokenEvent
from tasc_collector.transport.result import ExchangeResult

TRACE_FIELDS = ("version", "traceId", "traceDigest", "attemptId")
"""What a draft lacks: they exist only when the trace's envelope does."""
_MARKS = tuple((to_camel(name), name) for name in TimelineMarks.model_fields)
"""Names of the marks in JSON and here."""
_COLUMNS = tuple(itemgetter(TokenEvent._fields.index(name)) for name in ("at_ns", "tokens", "kind", "uncertainty_ns"))


@dataclass(frozen=True, slots=True)
class CallTimeline:
    """The timeline of one call: offsets in integer nanoseconds from ``queued_ns``, None where not reached.

    Args:
        queued_ns: the origin, absolute on the monotonic clock of this process.
        begun_ns: the call left the queue.
        resolved_ns: an address was pinned.
        connected_ns: TCP was connected.
        secured_ns: TLS was up.
        leased_ns: the lease was durable.
        request_started_ns: right before the first application byte.
        request_written_ns: the last application byte was handed over.
        headers_ns: arrival of the answer's head.
        first_byte_ns: arrival of the first body byte.
        last_byte_ns: arrival of the last byte of the answer.
        ended_ns: the call was over.
        framing: how the answer was framed.
        events: events with output.
        events_dropped: events beyond the bound.
        arrival_uncertainty_ns: of the first token, the hand-over of the first byte included.
        collector_lag_ns: largest (read minus arrival); None without kernel times.
        timing_flagged: the first token is known less exactly than 3 ms, or not at all.
        request_bytes: application bytes of the request.
        response_bytes: application bytes of the answer.
        reads: reads that brought something.
        peer: keyed identity of the peer's address.
        cached_input_tokens: prompt tokens from a cache, as the provider reported.
        reasoning_tokens: reasoning tokens, as the provider reported.
    """

    queued_ns: int
    begun_ns: int | None
    resolved_ns: int | None
    connected_ns: int | None
    secured_ns: int | None
    leased_ns: int | None
    request_started_ns: int | None
    request_written_ns: int | None
    headers_ns: int | None
    first_byte_ns: int | None
    last_byte_ns: int | None
    ended_ns: int | None
    framing: Framing
    events: tuple[TokenEvent, ...]
    events_dropped: int
    arrival_uncertainty_ns: int | None
    collector_lag_ns: int | None
    timing_flagged: bool
    request_bytes: int
    response_bytes: int
    reads: int
    peer: str | None
    cached_input_tokens: int | None
    reasoning_tokens: int | None

    @property
    def first_token_ns(self) -> int | None:
        """Arrival of the first event with output, whatever its kind."""
        return self.events[0].at_ns if self.events else None

    @property
    def first_visible_token_ns(self) -> int | None:
        """Arrival of the first event that carried answer or tool output, not reasoning."""
        return next((event.at_ns for event in self.events if event.kind is not OutputKind.REASONING), None)

    @property
    def last_token_ns(self) -> int | None:
        """Arrival of the last event with output."""
        return self.events[-1].at_ns if self.events else None

    @property
    def queue_ns(self) -> int | None:
        """Time spent waiting for a turn; never part of a runtime's latency."""
        return self.begun_ns

    @property
    def ttft_ns(self) -> int | None:
        """TTFT: first application byte written to first token."""
        return _between(self.request_started_ns, self.first_token_ns)

    @property
    def e2e_ns(self) -> int | None:
        """E2E: first application byte written to the last byte of the answer."""
        return _between(self.request_started_ns, self.last_byte_ns)

    def draft(self) -> dict[str, Any]:  # Any: a JSON object
        """The ``tasc-trace-timeline-v1`` of this call as JSON, without what only its trace knows (``TRACE_FIELDS``).

        It is written straight from the events, a column at a time: making the record first would cost more than all
        other bookkeeping of a long answer.
        """
        at_ns, tokens, kind, uncertainty_ns = (list(map(column, self.events)) for column in _COLUMNS)
        return {
            "framing": self.framing.value,
            "marks": {name: getattr(self, field) for name, field in _MARKS},
            "events": {"offsetNs": at_ns, "tokens": tokens, "kind": [*map(str, kind)], "uncertaintyNs": uncertainty_ns},
            "eventsDropped": self.events_dropped,
            "arrivalUncertaintyNs": self.arrival_uncertainty_ns,
            "collectorLagNs": self.collector_lag_ns,
            "timingFlagged": self.timing_flagged,
            "requestBytes": self.request_bytes,
            "responseBytes": self.response_bytes,
            "reads": self.reads,
            "peer": self.peer,
            "cachedInputTokens": self.cached_input_tokens,
            "reasoningTokens": self.reasoning_tokens,
        }


def timeline_of(result: ExchangeResult, answer: Answer | None, *, framing: Framing, peer: str | None) -> CallTimeline:
    """The timeline of a finished call.

    Args:
        result: what the exchange came to; its marks are absolute.
        answer: what was read; its events are already relative to the queued moment.
        framing: framing that was asked for.
        peer: keyed identity of the peer.
    """
    marks = result.marks
    origin = marks.queued or 0

    def offset(mark: int | None) -> int | None:
        return None if mark is None else max(mark - origin, 0)

    events = answer.events if answer is not None else ()
    usage = answer.usage if answer is not None else None
    uncertainty = _first_token_uncertainty(events, result)
    return CallTimeline(
        origin,
        offset(marks.begun),
        offset(marks.resolved),
        offset(marks.connected),
        offset(marks.secured),
        offset(marks.leased),
        offset(marks.request_started),
        offset(marks.request_written),
        offset(marks.headers),
        offset(marks.first_byte),
        offset(marks.last_byte),
        offset(marks.ended),
        framing,
        events,
        answer.events_dropped if answer is not None else 0,
        uncertainty,
        result.lag_max_ns,
        _flagged(events, uncertainty, result),
        result.request_bytes,
        result.response_bytes,
        result.reads,
        peer,
        usage.cached if usage is not None else None,
        usage.reasoning if usage is not None else None,
    )


def _first_token_uncertainty(events: tuple[TokenEvent, ...], result: ExchangeResult) -> int | None:
    if not events or events[0].uncertainty_ns is None:
        return None
    return events[0].uncertainty_ns + result.start_uncertainty_ns


def _flagged(events: tuple[TokenEvent, ...], uncertainty_ns: int | None, result: ExchangeResult) -> bool:
    """True where the first token is not known to 3 ms.

    It is known by kernel time; without one by the lag of its read; with neither, or where the wall clock was set during
    the call, it is not known.
    """
    if not events:
        return False
    bound = events[0].lag_ns if uncertainty_ns is None else uncertainty_ns
    return bound is None or bound > TIMING_FLAG_NS or result.clock_set


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(end - start, 0)
