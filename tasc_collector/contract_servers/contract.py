"""The shape of one runtime's contract: routes, dialects, checks, errors. The tables are in ``runtimes``.

The servers import nothing of ``tasc_collector.runtimes``: a mistake in a profile must not hide in the server that
tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.counters import Counters
from tasc_collector.contract_servers.frames import Frame
from tasc_collector.contract_servers.generation import Ask, Generation
from tasc_collector.contract_servers.http import Request
from tasc_collector.contract_servers.plan import Headers


class AnswerForm(StrEnum):
    """The three forms in which an answer is written."""

    JSON = "json"
    SSE = "sse"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is not generated: an observation, a refusal.

    Attributes:
        status: status code.
        body: exact bytes.
        media: Content-Type, or None for none.
        headers: further headers.
        silent: close the connection without a byte instead (MLX-LM 0.31.3 on bad parameter types).
    """

    status: int = 200
    body: bytes = b""
    media: str | None = "application/json"
    headers: Headers = ()
    silent: bool = False


@dataclass(frozen=True, slots=True)
class HttpStyle:
    """How a runtime writes HTTP.

    Attributes:
        headers: sent with every answer, in this case and order.
        json_media: Content-Type of JSON.
        stream_media: Content-Type of streams.
        stream_headers: sent with streams only.
        type_name: how the content type's header name is spelled.
        version: HTTP version; 1.0 means that streams end by closing.
        keep_alive: the server keeps connections open.
        spaced_json: JSON has blanks after comma and colon.
        late_head: the head of a stream leaves with the first token, not before.
    """

    headers: Headers = ()
    json_media: str = "application/json"
    stream_media: str = "text/event-stream; charset=utf-8"
    stream_headers: Headers = ()
    type_name: str = "Content-Type"
    version: str = "1.1"
    keep_alive: bool = True
    spaced_json: bool = False
    late_head: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer before it has its runtime's shape.

    Attributes:
        status: HTTP status.
        kind: the runtime's error type.
        message: text; never our own secret, but it may reflect the request as the runtime does.
        param: the field, where the runtime names it.
    """

    status: int
    kind: str
    message: str
    param: str | None = None


ErrorShape = Callable[[Refusal], JsonValue]
"""Gives a refusal its runtime's JSON."""


class Dialect(Protocol):
    """How one route writes an answer."""

    @property
    def form(self) -> AnswerForm:
        """The form of its streams."""
        ...

    @property
    def finish_words(self) -> Mapping[str, str]:
        """This dialect's word for ``stop``, ``length`` and ``tool_calls``."""
        ...

    def json_body(self, generation: Generation) -> JsonValue:
        """The body of a JSON answer."""
        ...

    def json_headers(self, generation: Generation) -> Headers:
        """Headers that only JSON answers have."""
        ...

    def frames(self, generation: Generation) -> list[Frame]:
        """The events of a stream, terminator included."""
        ...

    def error_frame(self, generation: Generation, sent: int) -> Frame:
        """The event in which this dialect reports a failure inside a stream, after ``sent`` events."""
        ...


@dataclass(frozen=True, slots=True)
class AskFields:
    """Where a route finds what it honours; dotted paths into the request's JSON.

    Attributes:
        prompt: the field that holds prompt, messages or input.
        caps: token-cap fields, the first present one counts.
        default_cap: cap where none is sent; None leaves the answer unbounded.
        stream: what an absent ``stream`` means.
        forced_stream: the route always or never streams, whatever is asked; None lets the request choose.
        seed: the seed field.
        details: the switch for counts, where there is one.
        zero_cap_is_one: a cap of 0 gives one token (llama.cpp, MLX-LM) instead of a refusal.
    """

    prompt: str
    caps: tuple[str, ...]
    default_cap: int | None = None
    stream: bool = False
    forced_stream: bool | None = None
    seed: str = "seed"
    details: str | None = None
    zero_cap_is_one: bool = False


@dataclass(frozen=True, slots=True)
class CheckInput:
    """What a check sees: the request, its parsed body, the route's fields and the served model."""

    request: Request
    body: Mapping[str, JsonValue]
    fields: AskFields
    model: str


Check = Callable[[CheckInput], Refusal | Reply | None]
"""Refuses a request as the runtime does, or lets it pass."""


@dataclass(frozen=True, slots=True)
class InferenceRoute:
    """One route that generates."""

    dialect: Dialect
    fields: AskFields
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """What an observation route may look at: counts, the served model, and the request."""

    model: str
    counters: Counters
    request: Request


class Role(StrEnum):
    """What an observation route is for; probe faults select by it."""

    MODELS = "models"
    HEALTH = "health"
    READINESS = "readiness"
    VERSION = "version"
    INFO = "info"
    METRICS = "metrics"
    JSON_METRICS = "json-metrics"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ObservationRoute:
    """One route that is observed.

    Attributes:
        role: what it is for.
        reply: makes the answer; may drain counters where reading consumes.
        generates: the read runs a generation; the ledger counts it as inference.
        mutating: the read changes the server.
    """

    role: Role
    reply: Callable[[Observed], Reply]
    generates: bool = False
    mutating: bool = False


def echo_model(ask: Ask, served: str) -> str:
    """The model that was asked for, as most builds echo it; the served one where none was."""
    return ask.model or served


@dataclass(frozen=True, slots=True)
class Contract:
    """One runtime at one build.

    Attributes:
        runtime: runtime name as in the profile registry.
        build: the pinned build.
        model: model name that is served by default.
        http: how it writes HTTP.
        inference: POST path to route.
        observations: ``METHOD path`` to route.
        error: shape of error bodies.
        malformed: answer to a body that is no JSON object.
        unknown_route: answer to a path or method that it does not serve.
        prefix_paths: GET paths that also match with anything after them (MLX-LM ``/v1/models``).
        exact_query: a query string makes a path unknown (MLX-LM).
        model_of: the model identity that answers carry, from the request and the served name.
        usage_sums_choices: reported output covers all choices (vLLM) or the first one only (llama.cpp).
    """

    runtime: str
    build: str
    model: str
    http: HttpStyle
    inference: Mapping[str, InferenceRoute]
    observations: Mapping[str, ObservationRoute]
    error: ErrorShape
    malformed: Callable[[Request], Reply]
    unknown_route: Callable[[Request], Reply]
    prefix_paths: tuple[str, ...] = ()
    exact_query: bool = False
    model_of: Callable[[Ask, str], str] = field(default=echo_model)
    usage_sums_choices: bool = True
