"""Faults that answer with a status, a refusal or a body that is no generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tasc_collector.contract_servers.contract import Refusal, Reply
from tasc_collector.contract_servers.faults.model import Fault, Instead
from tasc_collector.contract_servers.frames import encode
from tasc_collector.contract_servers.generation import PROVIDER_TEXT
from tasc_collector.contract_servers.plan import Headers

LOCATION: Final = "http://127.0.0.1:9/elsewhere"
"""Where redirects point: a port that nobody may contact."""


def _refusal(status: int, kind: str, *, headers: Headers = (), retry_after: bool = False) -> Callable[[Instead], Reply]:
    """An error in the runtime's own shape; ``retry_after`` adds the header that the behaviour asks for."""

    def reply(given: Instead) -> Reply:
        body = encode(given.contract.error(Refusal(status, kind, PROVIDER_TEXT)))
        seconds = given.behaviour.retry_after_s
        wait: Headers = (("Retry-After", str(seconds)),) if retry_after and seconds is not None else ()
        return Reply(status, body, given.contract.http.json_media, (*headers, *wait))

    return reply


def _exact(
    status: int, body: bytes, media: str | None = "application/json", headers: Headers = ()
) -> Callable[[Instead], Reply]:
    return lambda given: Reply(status, body, media, headers)


def _reflecting(given: Instead) -> Reply:
    """VLLM 0.26.0 and SGLang validation messages carry the whole offending request."""
    text = "validation failed, input: " + given.request.body.decode("utf-8", "replace")
    return Reply(400, encode(given.contract.error(Refusal(400, "Bad Request", text))), given.contract.http.json_media)


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("bad-request", (), "400 in the runtime's shape", reply=_refusal(400, "BadRequestError")),
    Fault(
        "unauthorized",
        (),
        "401",
        reply=_refusal(401, "authentication_error", headers=(("WWW-Authenticate", "Bearer"),)),
    ),
    Fault("forbidden", (), "403", reply=_refusal(403, "permission_error")),
    Fault("not-found", (), "404", reply=_refusal(404, "not_found_error")),
    Fault("overloaded-429", (), "429, with Retry-After", reply=_refusal(429, "overloaded", retry_after=True)),
    Fault("not-implemented", (), "501", reply=_refusal(501, "not_supported_error")),
    Fault("server-error", (), "500", reply=_refusal(500, "InternalServerError")),
    Fault(
        "server-error-text",
        (),
        "500 as bare text",
        reply=_exact(500, b"Internal Server Error", "text/plain; charset=utf-8"),
    ),
    Fault("unavailable-503", (), "503, with Retry-After", reply=_refusal(503, "unavailable_error", retry_after=True)),
    Fault(
        "redirect", (), "307 to a port that nobody may contact", reply=_exact(307, b"", None, (("Location", LOCATION),))
    ),
    Fault("no-content", (), "204", reply=_exact(204, b"", None)),
    Fault("reset-content", (), "205", reply=_exact(205, b"", None)),
    Fault(
        "partial-content",
        (),
        "206 with a piece of JSON",
        reply=_exact(206, b'{"id":', headers=(("Content-Range", "bytes 0-5/99"),)),
    ),
    Fault(
        "null-body",
        ("T16",),
        "200 with the body null (TensorRT-LLM after an executor failure)",
        reply=_exact(200, b"null"),
    ),
    Fault(
        "error-200",
        ("T17",),
        "200 with an error object (LM Studio, unknown route)",
        reply=_refusal(200, "internal_error"),
    ),
    Fault("empty-body", ("T18",), "200 with an empty body", reply=_exact(200, b"")),
    Fault("not-found-text", ("T19",), "the text Not Found labelled JSON (MLX-LM)", reply=_exact(404, b"Not Found")),
    Fault("text-200", ("T19",), "200 with text labelled JSON", reply=_exact(200, b"Not Found")),
    Fault("reflect-prompt", ("S01",), "400 whose message holds the whole request", reply=_reflecting),
)
"""Faults by status and whole replies."""
