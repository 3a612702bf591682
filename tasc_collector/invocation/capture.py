"""Reading one captured answer from a file, exactly as a live one is read. No socket, no clock.

Rules:

1. The bytes go through the same readers as on a live call: the strict HTTP reader where the capture begins with a
   status line, then the answer reader of the dialect.
2. A capture has no arrival times. An event's place is the number of body bytes up to its last one.
3. Without a model to compare with, the first model that the answer itself names is taken for the one that was asked
   for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tasc_collector import limits as bounds
from tasc_collector.errors import InputError, WireError
from tasc_collector.runtimes.answer import AnswerLimits, AnswerReader
from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.profile import Framing, Route, RuntimeProfile
from tasc_collector.runtimes.registry import get_profile, profiles
from tasc_collector.runtimes.result import Answer, Arrival
from tasc_collector.runtimes.verdict import AnswerReason, Outcome
from tasc_collector.transport.codes import Code
from tasc_collector.transport.head import note_head
from tasc_collector.transport.http1 import Http1Limits, ResponseReader
from tasc_collector.wire.ndjson import NdjsonLimits
from tasc_collector.wire.sse import SseLimits

_LIMITS = AnswerLimits(
    sse=SseLimits(max_chunks=bounds.SSE_CHUNKS_HARD), ndjson=NdjsonLimits(max_chunks=bounds.NDJSON_CHUNKS_HARD)
)
_HTTP_LIMITS = Http1Limits(chunks=bounds.SSE_CHUNKS_HARD)
_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_CUTS = frozenset({Code.RESPONSE_TRUNCATED, Code.CONNECTION_CLOSED})
_TRANSPORT_VERDICTS = frozenset({Outcome.COMPLETED, Outcome.TRUNCATED})
"""What broken HTTP framing overrules: an error or violation that the body showed before it stays."""


@dataclass(frozen=True, slots=True)
class CaptureKind:
    """What a capture is said to be.

    Args:
        runtime: a registered runtime; any other name needs ``flags``.
        build: its build; None for the pinned one.
        route: the route that was called.
        framing: how the answer is framed.
        raw_http: the bytes begin with the status line.
        cut: the connection broke where the bytes end.
        flags: dialect flags in the place of the profile's.
        model: the model that was asked for, if known.
        choices: choices that were asked for.
        max_tokens: the token limit of the request, if known.
    """

    runtime: str
    route: Route
    framing: Framing
    build: str | None = None
    raw_http: bool = False
    cut: bool = False
    flags: DialectFlags | None = None
    model: str | None = None
    choices: int | None = 1
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CapturedAnswer:
    """The verdict on a capture, and what its HTTP head said.

    Args:
        answer: the answer; ``at_ns`` of its events is a number of body bytes, not a time.
        status: HTTP status, where the capture has one.
        content_type: media type of the head, where it has one.
        transport: why its HTTP framing was refused, if it was.
    """

    answer: Answer
    status: int | None = None
    content_type: str | None = None
    transport: str | None = None


def read_capture(data: bytes, kind: CaptureKind) -> CapturedAnswer:
    """Read one captured answer.

    Args:
        data: the body, or with ``kind.raw_http`` the whole response.
        kind: what it is.

    Raises:
        InputError: the runtime, route or framing is not known.
    """
    profile = _profile(kind)
    flags = kind.flags or profile.routes[kind.route].flags
    if not kind.raw_http:
        return CapturedAnswer(_read_body(data, kind, profile).finish(clean_end=not kind.cut))
    http = ResponseReader(_HTTP_LIMITS, close_delimited=flags.close_delimited)
    body, transport = _body(http, data, cut=kind.cut)
    reader = _read_body(body, kind, profile, http)
    answer = reader.finish(clean_end=transport is None and not kind.cut)
    if transport is not None and transport not in _CUTS and answer.outcome in _TRANSPORT_VERDICTS:
        answer = replace(
            answer, outcome=Outcome.PROTOCOL_VIOLATION, reason=AnswerReason.FRAMING_INVALID, wire_code=transport
        )
    if http.head is None:
        return CapturedAnswer(answer, transport=transport)
    head = note_head(http.head)
    return CapturedAnswer(answer, head.status, head.content_type, transport)


def _profile(kind: CaptureKind) -> RuntimeProfile:
    registered = [profile for profile in profiles() if profile.runtime == kind.runtime]
    if registered or kind.flags is None:
        build = kind.build or (registered[0].build if registered else "")
        return get_profile(kind.runtime, build)
    for profile in profiles():
        if kind.route in profile.routes and kind.framing in profile.routes[kind.route].paths:
            return profile
    raise InputError(
        "no registered runtime has this route with this framing",
        field=f"{kind.route}/{kind.framing}",
        way_out="choose the route and framing whose answers look like these: tasc runtimes",
    )


def _body(http: ResponseReader, data: bytes, *, cut: bool) -> tuple[bytes, str | None]:
    """The body of a whole response, and why its framing was refused. A cut connection is not a refusal."""
    pieces: list[bytes] = []
    try:
        for start in range(0, len(data), 1024):
            pieces.append(http.feed(data[start : start + 1024]))
        if not cut:
            http.end()
    except WireError as error:
        return b"".join(pieces), error.code
    return b"".join(pieces), None


def _read_body(
    body: bytes, kind: CaptureKind, profile: RuntimeProfile, http: ResponseReader | None = None
) -> AnswerReader:
    reader = AnswerReader(
        profile,
        kind.route,
        kind.framing,
        kind.model,
        _LIMITS,
        flags=kind.flags,
        expected_choices=kind.choices,
        max_tokens=kind.max_tokens,
        keep_text=True,
    )
    if http is not None and http.head is not None:
        head = note_head(http.head)
        reader.head(status=head.status, content_type=head.content_type)
    place = 0
    for line in _LINES.findall(body):
        place += len(line)
        reader.feed(line, Arrival(place))
    return reader
