"""Reading one answer: bytes and arrival times in, one verdict and a token timeline out.

Order of use: ``head`` (if status and headers are known), ``feed`` for each chunk, ``finish`` once.

Rules:

1. Bad bytes never raise. The first thing that decides the answer does so for good; later bytes are only counted.
2. What is read depends on the bytes, not on how they were cut into chunks.
3. ``finish(clean_end=False)`` never gives ``completed``, whatever was read: the transport must have ended as its own
   framing says.
4. The time of an event is the arrival of the chunk that completed it. Where one read held several events, all but the
   last may have come at any time since the read before, and that span is their uncertainty; without kernel times it
   is unknown.
5. Text goes to ``text_sink`` and is kept only on request.
6. Once a stream is steady, a few small reads are put by with their times and read together, which costs less; what is
   asked of the reader counts them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tasc_collector.canonical import JsonValue
from tasc_collector.errors import InputError, LimitExceeded, WireError
from tasc_collector.limits import ANSWER_MAX_EVENTS
from tasc_collector.runtimes.dialects import READERS
from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.media import media_type_matches
from tasc_collector.runtimes.profile import Framing, Route, RuntimeProfile
from tasc_collector.runtimes.result import Answer, Arrival
from tasc_collector.runtimes.state import AnswerState
from tasc_collector.runtimes.steady import SteadyStream
from tasc_collector.runtimes.verdict import OUTCOME_OF, AnswerReason, Outcome, Verdict
from tasc_collector.wire.json import EVENT_JSON, RESPONSE_JSON, JsonDecoder, JsonLimits, parse_json
from tasc_collector.wire.ndjson import NdjsonDecoder, NdjsonLimits
from tasc_collector.wire.sse import SseDecoder, SseLimits

_DONE = "[DONE]"
_PUT_BY_READS = 32
_PUT_BY_BYTES = 4_096
"""Reads that are put by at most, and the size from which one is not."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Bounds of one answer.

    Args:
        body_json: a whole JSON body.
        frame_json: JSON of one frame.
        sse: an event stream.
        ndjson: a stream of lines.
        max_events: events of the timeline; more are counted, not kept.
    """

    body_json: JsonLimits = RESPONSE_JSON
    frame_json: JsonLimits = EVENT_JSON
    sse: SseLimits = field(default_factory=SseLimits)
    ndjson: NdjsonLimits = field(default_factory=NdjsonLimits)
    max_events: int = ANSWER_MAX_EVENTS


DEFAULT_LIMITS = AnswerLimits()


class AnswerReader:
    """Reads one answer of one route.

    Args:
        profile: the endpoint's profile.
        route: the route that was called.
        framing: the framing that was asked for.
        requested_model: the model id that was asked for; None for a captured answer whose request is not known.
        limits: bounds.
        flags: flags to use instead of the profile's.
        expected_choices: choices that were asked for; None takes as many as come.
        max_tokens: the limit that the request set; only used to suspect a cut where no reason can be told.
        text_sink: takes the answer's UTF-8 bytes as they come, reasoning excluded.
        keep_text: also keep the text in ``Answer.text``.
        opened_at_ns: offset before which no byte of the body can have arrived.

    Raises:
        InputError: the profile has no such route or framing.
    """

    def __init__(
        self,
        profile: RuntimeProfile,
        route: Route,
        framing: Framing,
        requested_model: str | None,
        limits: AnswerLimits = DEFAULT_LIMITS,
        *,
        flags: DialectFlags | None = None,
        expected_choices: int | None = 1,
        max_tokens: int | None = None,
        text_sink: Callable[[bytes], None] | None = None,
        keep_text: bool = False,
        opened_at_ns: int = 0,
    ) -> None:
        invocation = profile.routes.get(route)
        if invocation is None or framing not in invocation.paths:
            raise InputError(
                "this build has no such route and framing",
                field=f"{route}/{framing}",
                way_out="choose one of " + ", ".join(f"{r}/{f}" for r, i in profile.routes.items() for f in i.framings),
            )
        flags = flags or invocation.flags
        self._state = AnswerState(
            requested_model, profile.build, flags, limits.max_events, text_sink=text_sink, keep_text=keep_text
        )
        self._reader = READERS[invocation.protocol](
            self._state, flags, expected_choices=expected_choices, max_tokens=max_tokens
        )
        self._limits, self._framing = limits, framing
        self._feed = {Framing.JSON: self._feed_json, Framing.SSE: self._feed_sse, Framing.NDJSON: self._feed_ndjson}[
            framing
        ]
        self._sse, self._ndjson = SseDecoder(limits.sse), NdjsonDecoder(limits.ndjson, limits.frame_json)
        self._steady = SteadyStream(self._sse, self._reader, limits.frame_json)
        self._body = JsonDecoder(limits.body_json)
        self._put_by: list[tuple[bytes, Arrival]] = []
        self._bytes, self._frames = 0, 0
        self._before_ns = opened_at_ns
        self._decided: Verdict | None = None
        self._finished = False

    @property
    def output_events(self) -> int:
        """Events of the timeline so far."""
        self._catch_up()
        return len(self._state.events)

    @property
    def decided(self) -> bool:
        """True once nothing that follows can change the outcome but a worse end of the transport."""
        self._catch_up()
        return self._decided is not None

    def head(self, *, status: int, content_type: str | None) -> None:
        """Take status and media type; a failure status or a foreign media type decides the answer.

        Args:
            status: HTTP status.
            content_type: value of the header, or None.
        """
        self._catch_up()
        if not 200 <= status < 300:
            self._decide(Verdict(AnswerReason.HTTP_STATUS))
        elif not media_type_matches(content_type, self._framing):
            self._decide(Verdict(AnswerReason.CONTENT_TYPE_MISMATCH))

    def feed(self, chunk: bytes, arrival: Arrival) -> None:
        """Take one chunk of the body.

        Args:
            chunk: its bytes; an empty one is ignored.
            arrival: when it arrived.
        """
        self._put_by.append((chunk, arrival))
        if not self._steady.begun or len(self._put_by) >= _PUT_BY_READS or len(chunk) > _PUT_BY_BYTES:
            self._catch_up()

    def _catch_up(self) -> None:
        """Read what was put by."""
        reads, self._put_by = self._put_by, []
        if len(reads) < 2 or not self._read_alike(reads):
            for chunk, arrival in reads:
                self._read(chunk, arrival)

    def _read_alike(self, reads: list[tuple[bytes, Arrival]]) -> bool:
        """Read chunks of one steady frame each; False, and nothing is read, where they are something else."""
        steady, chunks = self._steady, [chunk for chunk, _ in reads]
        texts = steady.read_each(chunks) if self._decided is None else None
        if texts is None or steady.open_text is None:
            return False
        arrivals = [arrival for _, arrival in reads]
        self._bytes += sum(map(len, chunks))
        self._frames += len(texts)
        _, kind, tokens = steady.open_text
        self._state.add_reads(texts, kind, tokens, arrivals)
        self._before_ns = max(self._before_ns, *(arrival.at_ns for arrival in arrivals))
        return True

    def _read(self, chunk: bytes, arrival: Arrival) -> None:
        self._bytes += len(chunk)
        if self._decided is None and chunk:
            try:
                self._feed(chunk, arrival)
            except Verdict as verdict:
                self._decide(verdict)
            except WireError as error:
                self._decide(_framing_verdict(error))
        if arrival.at_ns > self._before_ns:
            self._before_ns = arrival.at_ns

    def finish(self, *, clean_end: bool) -> Answer:
        """Give the verdict.

        Args:
            clean_end: the body ended exactly as its HTTP framing says.

        Raises:
            InputError: it was given before.
        """
        if self._finished:
            raise InputError("this answer was already finished", way_out="make a reader for each answer")
        self._finished = True
        self._catch_up()
        if self._decided is None:
            try:
                self._end(clean_end=clean_end)
            except Verdict as verdict:
                self._decide(verdict)
            except WireError as error:
                self._decide(_framing_verdict(error))
        return self._answer()

    def _decide(self, verdict: Verdict) -> None:
        if self._decided is None:
            self._decided = verdict

    def _feed_json(self, chunk: bytes, arrival: Arrival) -> None:
        self._body.feed(chunk)

    def _feed_sse(self, chunk: bytes, arrival: Arrival) -> None:
        steady = self._steady
        texts = steady.read(chunk)
        if texts is not None and steady.open_text is not None:
            if not texts:
                return
            self._frames += len(texts)
            _, kind, tokens = steady.open_text
            span = self._uncertainty(arrival)[1] if len(texts) > 1 else None
            self._state.add_steady(texts, kind, tokens, arrival, span)
            return
        events = self._sse.feed(chunk)
        if not events:
            return
        state, reader, frame_json = self._state, self._reader, self._limits.frame_json
        exact, span = self._uncertainty(arrival)
        position, last = 0, len(events) - 1
        state.arrived(arrival, span)
        while position <= last:
            texts = steady.run(events, position)
            if texts and steady.open_text is not None:
                position += len(texts)
                self._frames += len(texts)
                _, kind, tokens = steady.open_text
                here = arrival if position > last else Arrival(arrival.at_ns, span, arrival.lag_ns)
                state.add_steady(texts, kind, tokens, here, span)
                continue
            name, data, _, _ = events[position]
            coming = last - position
            position += 1
            if not coming:
                state.uncertainty_ns = exact
            self._frames += 1
            if data == _DONE:
                reader.done_mark()
                continue
            try:
                value = parse_json(data.encode(), frame_json)
            except WireError as error:
                raise _json_verdict(error, data) from None
            reader.frame(name, value)
            steady.learn(name, data, value, coming=coming)

    def _feed_ndjson(self, chunk: bytes, arrival: Arrival) -> None:
        self._lines(self._ndjson.feed(chunk), arrival)

    def _lines(self, rows: list[JsonValue], arrival: Arrival) -> None:
        if not rows:
            return
        exact, span = self._uncertainty(arrival)
        last = len(rows) - 1
        self._state.arrived(arrival, span)
        for position, row in enumerate(rows):
            if position == last:
                self._state.uncertainty_ns = exact
            self._frames += 1
            self._reader.frame("", row)

    def _uncertainty(self, arrival: Arrival) -> tuple[int | None, int | None]:
        """Uncertainty of the last event of a read, and of those before it."""
        own = arrival.uncertainty_ns
        return own, None if own is None else max(own, arrival.at_ns - self._before_ns)

    def _end(self, *, clean_end: bool) -> None:
        """The verdicts that only the end can give; returns for a complete answer."""
        if self._framing is Framing.SSE:
            self._sse.finish()
        elif self._framing is Framing.NDJSON:
            rows = self._ndjson.finish()
            if clean_end:
                state = self._state
                self._lines(rows, Arrival(self._before_ns, state.uncertainty_ns, state.lag_ns))
        if not clean_end:
            raise Verdict(AnswerReason.TRANSPORT_CUT)
        if not self._bytes:
            raise Verdict(AnswerReason.EMPTY_BODY)
        if self._framing is Framing.JSON:
            self._end_json()
            return
        trailing = self._sse.trailing_incomplete or self._ndjson.trailing_incomplete
        if trailing:
            raise Verdict(AnswerReason.AFTER_TERMINATOR if self._reader.ended else AnswerReason.FRAME_INCOMPLETE)
        if not self._frames:
            raise Verdict(AnswerReason.EMPTY_BODY)
        self._reader.close()

    def _end_json(self) -> None:
        self._frames = 1
        try:
            value = self._body.finish()
        except WireError as error:
            raise _json_verdict(error, None) from None
        self._reader.body(value)

    def _answer(self) -> Answer:
        state = self._state
        reason = AnswerReason.COMPLETED if self._decided is None else self._decided.reason
        outcome = OUTCOME_OF[reason]
        return Answer(
            outcome=outcome,
            reason=reason,
            wire_code=None if self._decided is None else self._decided.wire_code,
            finish_reason=state.finish_reason,
            raw_finish_reason=state.raw_finish_reason,
            usage=state.usage,
            resolved_model=state.resolved_model,
            model_redacted=state.model_redacted,
            build_match=state.build_match,
            model_loaded=state.model_loaded,
            logprobs=state.logprobs,
            length_suspected=outcome is Outcome.COMPLETED and self._reader.length_suspected,
            choices=state.choices,
            events=tuple(state.events),
            events_dropped=state.events_dropped,
            provider_timings=tuple(state.timings.values()),
            text_bytes=state.text_bytes,
            reasoning_bytes=state.reasoning_bytes,
            frames=self._frames,
            comments=self._sse.comments,
            body_bytes=self._bytes,
            text=state.text,
        )


def _framing_verdict(error: WireError) -> Verdict:
    """A refusal of the framing itself."""
    limit = isinstance(error, LimitExceeded)
    return Verdict(AnswerReason.LIMIT_EXCEEDED if limit else AnswerReason.FRAMING_INVALID, error.code)


def _json_verdict(error: WireError, data: str | None) -> Verdict:
    """A refusal of the JSON of a frame, or of a body where ``data`` is None."""
    if isinstance(error, LimitExceeded):
        return Verdict(AnswerReason.LIMIT_EXCEEDED, error.code)
    if data is not None and data.lstrip().startswith('{"error"'):
        return Verdict(AnswerReason.ERROR_FRAME_INVALID, error.code)
    return Verdict(AnswerReason.JSON_INVALID, error.code)
