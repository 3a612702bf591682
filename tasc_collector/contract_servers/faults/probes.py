"""Faults of observation routes: the P rows, and the S rows about what they leak."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.behaviour import FaultScope
from tasc_collector.contract_servers.contract import Refusal, Reply, Role
from tasc_collector.contract_servers.faults.model import Fault, Instead
from tasc_collector.contract_servers.frames import encode
from tasc_collector.contract_servers.generation import PROVIDER_TEXT

Observed = Callable[[Role, Reply], Reply]

_JSON: Final = "application/json"


def _at(role: Role, change: Callable[[Reply], Reply]) -> Observed:
    """An edit of the replies of one role; others stay."""
    return lambda found, reply: change(reply) if found is role else reply


def _with_body(reply: Reply, body: bytes) -> Reply:
    return Reply(reply.status, body, reply.media, reply.headers)


def _metrics(*lines: str) -> Observed:
    """More lines at the end of the exposition."""
    return _at(Role.METRICS, lambda reply: _with_body(reply, reply.body + "\n".join((*lines, "")).encode()))


def _duplicated(reply: Reply) -> Reply:
    """Every gauge once more under another pid, as several API servers of one engine expose it (vLLM)."""
    lines = reply.body.decode().split("\n")
    copies = [line.replace("{", '{pid="7",', 1) for line in lines if line and not line.startswith("#") and "{" in line]
    return _with_body(reply, "\n".join([*lines[:-1], *copies, ""]).encode())


def _loading(given: Instead) -> Reply:
    """llama.cpp while the model loads: every route is a 503 ``unavailable_error``."""
    body = encode(given.contract.error(Refusal(503, "unavailable_error", "Loading model")))
    return Reply(503, body, given.contract.http.json_media)


_ODD_LINES: Final = (
    "# HELP odd_gauge values that exporters really write.",
    "# TYPE odd_gauge gauge",
    'odd_gauge{kind="nan"} NaN',
    'odd_gauge{kind="inf"} +Inf',
    'odd_gauge{kind="minus"} -Inf',
    'odd_gauge{kind="timed"} 1.5 1790000000000',
    "# TYPE odd_total counter",
    'odd_total{kind="exemplar"} 3 # {trace_id="abc"} 1.0 1790000000.0',
    "# TYPE odd_created gauge",
    "odd_created 1.79e+09",
    "# EOF",
)


def _probe(name: str, rows: tuple[str, ...], summary: str, observed: Observed) -> Fault:
    """A fault of observation routes only."""
    return Fault(name, rows, summary, scope=FaultScope.OBSERVATION, observed=observed)


def _unhealthy(reply: Reply) -> Reply:
    return Reply(503, encode({"error": "unhealthy", "error_type": "healthcheck"}), _JSON)


def _not_switched_on(reply: Reply) -> Reply:
    error: JsonValue = {"code": 501, "message": PROVIDER_TEXT, "type": "not_supported_error"}
    return Reply(501, encode({"error": error}), _JSON)


def _other_model(reply: Reply) -> Reply:
    return Reply(200, encode({"object": "list", "data": [{"id": "contract/other", "object": "model"}]}), _JSON)


def _twice(reply: Reply) -> Reply:
    """The list with each of its entries again, under OpenAI's key or Ollama's."""
    value = json.loads(reply.body)
    return _with_body(
        reply, encode({name: item * 2 if isinstance(item, list) else item for name, item in value.items()})
    )


def _no_entry(reply: Reply) -> Reply:
    value = json.loads(reply.body)
    return _with_body(reply, encode({name: [] if isinstance(item, list) else item for name, item in value.items()}))


def _no_model(given: Instead) -> Reply:
    return Reply(404, encode(given.contract.error(Refusal(404, "not_found_error", PROVIDER_TEXT))), _JSON)


def _empty(reply: Reply) -> Reply:
    return _with_body(reply, b"")


_UNKNOWN_FAMILY: Final = ("# TYPE contract_unknown gauge", 'contract_unknown{who="?"} 1')

FAULTS: Final[tuple[Fault, ...]] = (
    _probe("unhealthy", ("P02",), "health is a 503", _at(Role.HEALTH, _unhealthy)),
    _probe(
        "json-metrics-empty",
        ("P03",),
        "iteration statistics are off: always []",
        _at(Role.JSON_METRICS, lambda reply: Reply(200, b"[]", _JSON)),
    ),
    _probe("metrics-501", ("P04",), "metrics were not switched on", _at(Role.METRICS, _not_switched_on)),
    Fault("loading", ("P04",), "every route is a 503 while the model loads", scope=FaultScope.ALL, reply=_loading),
    Fault("healthy-without-workers", ("P05",), "health is good, every inference is a 404", reply=_no_model),
    _probe("metrics-duplicate-pid", ("P07",), "every series once per process id", _at(Role.METRICS, _duplicated)),
    _probe("metrics-odd-values", ("P08",), "NaN, Inf, timestamps, exemplars, _created, # EOF", _metrics(*_ODD_LINES)),
    _probe("metrics-unknown-family", ("P09",), "one family that nobody knows", _metrics(*_UNKNOWN_FAMILY)),
    _probe("metrics-without-families", ("P09",), "an exposition without one sample", _at(Role.METRICS, _empty)),
    _probe("models-empty", ("T18", "P11"), "the model list is a 200 with an empty body", _at(Role.MODELS, _empty)),
    _probe("models-none", ("P11",), "the model list is well-formed and has no entry", _at(Role.MODELS, _no_entry)),
    _probe("models-twice", ("P11",), "the model list has every entry twice", _at(Role.MODELS, _twice)),
    _probe("models-other", ("P11",), "the model list names another model", _at(Role.MODELS, _other_model)),
)
"""Probe faults."""
