"""Faults of answers as cases: a fault on one route, and what must be true of the bytes that came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tasc_collector.contract_servers import CONTRACTS, Behaviour, ContractServer
from tests.support.wire_client import PROMPTS, Received, call

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


class Case(NamedTuple):
    """A fault on one route, and what must be true of (what came, what comes without the fault)."""

    fault: str
    runtime: str
    path: str
    check: Callable[[Received, Received], bool]
    stream: bool = True


def request(server: ContractServer, path: str, *, stream: bool) -> Received:
    route = CONTRACTS[server.runtime].inference[path]
    body: dict[str, Any] = {"model": server.model, route.fields.prompt: PROMPTS[route.fields.prompt], "stream": stream}
    if stream and path in (CHAT, TEXT):
        body["stream_options"] = {"include_usage": True}
    if path.startswith("/generate"):
        body["parameters"] = {"details": True}
    return call(server.port, "POST", path, body, timeout_s=20)


def finishes(answer: Received) -> list[Any]:
    """Terminal reasons of the choices of an OpenAI stream, null ones left out."""
    chunks = [event for event in answer.events if isinstance(event, dict) and event.get("choices")]
    return [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c.get("finish_reason") is not None]


def usages(answer: Received) -> list[Any]:
    """``usage`` of every chunk that has one, null included."""
    return [event["usage"] for event in answer.events if isinstance(event, dict) and "usage" in event]


def has_error(event: Any) -> bool:
    return isinstance(event, dict) and "error" in event


def outcome(case: Case) -> tuple[Received, Received]:
    """(What came under the fault, what comes without it), of the same server."""
    with ContractServer(case.runtime, behaviour=Behaviour(tokens=6)) as server:
        normal = request(server, case.path, stream=case.stream)
        server.behaviour = Behaviour(tokens=6, fault=case.fault)
        return request(server, case.path, stream=case.stream), normal
