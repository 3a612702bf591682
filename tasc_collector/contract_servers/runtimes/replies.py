"""Replies that several runtimes share."""

from __future__ import annotations

from collections.abc import Callable

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.contract import ObservationRoute, Observed, Reply, Role
from tasc_collector.contract_servers.frames import encode
from tasc_collector.contract_servers.http import Request

SECRET_MARKER = "sk-server-secret-that-nobody-may-keep"  # noqa: S105  # planted, so that tests can look for it
"""Stands where the pinned builds leak keys and paths."""

PROMETHEUS_MEDIA = "text/plain; version=0.0.4; charset=utf-8"


def json_reply(value: JsonValue, status: int = 200, media: str = "application/json") -> Reply:
    """A JSON reply."""
    return Reply(status, encode(value), media)


def text_reply(text: str, status: int = 200, media: str = "text/plain; charset=utf-8") -> Reply:
    """A text reply."""
    return Reply(status, text.encode(), media)


def fixed(role: Role, reply: Reply, *, generates: bool = False, mutating: bool = False) -> ObservationRoute:
    """An observation whose answer never changes."""
    return ObservationRoute(role, lambda observed: reply, generates=generates, mutating=mutating)


def computed(role: Role, value: Callable[[Observed], JsonValue], media: str = "application/json") -> ObservationRoute:
    """An observation whose JSON answer depends on what the server counted."""
    return ObservationRoute(role, lambda observed: json_reply(value(observed), media=media))


def metrics(text: Callable[[Observed], bytes], media: str = PROMETHEUS_MEDIA) -> ObservationRoute:
    """A Prometheus text exposition."""
    return ObservationRoute(Role.METRICS, lambda observed: Reply(200, text(observed), media))


def fastapi_unknown(request: Request) -> Reply:
    """FastAPI's answer to a path that it does not serve."""
    return json_reply({"detail": "Not Found"}, 404)


def model_list(observed: Observed, owner: str, created: int, **more: JsonValue) -> JsonValue:
    """An OpenAI model list with the one served model."""
    entry: dict[str, JsonValue] = {"id": observed.model, "object": "model", "created": created, "owned_by": owner}
    return {"object": "list", "data": [{**entry, **more}]}
