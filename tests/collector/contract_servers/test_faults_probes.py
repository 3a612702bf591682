"""Probe faults do on the wire what they say: the P rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contract_servers.faults import probes
from tests.support.fault_cases import TEXT
from tests.support.wire_client import Received, call


def observe(runtime: str, path: str, fault: str | None) -> Received:
    with ContractServer(runtime, behaviour=Behaviour(fault=fault)) as server:
        return call(server.port, "GET", path)


PROBES: dict[str, tuple[str, str, Callable[[Received, Received], bool]]] = {
    "unhealthy": ("tgi", "/health", lambda a, n: (n.status, a.status, a.json["error"]) == (200, 503, "unhealthy")),
    "json-metrics-empty": ("tensorrt-llm", "/metrics", lambda a, n: a.body == b"[]"),
    "metrics-501": ("llama.cpp", "/metrics", lambda a, n: (n.status, a.status) == (200, 501)),
    "loading": (
        "llama.cpp",
        "/health",
        lambda a, n: a.status == 503 and a.json["error"]["type"] == "unavailable_error",
    ),
    "metrics-duplicate-pid": ("vllm", "/metrics", lambda a, n: a.body.count(b'pid="7"') == n.body.count(b"{")),
    "metrics-odd-values": (
        "vllm",
        "/metrics",
        lambda a, n: a.body.startswith(n.body[:100]) and b"} NaN\n" in a.body and a.body.endswith(b"# EOF\n"),
    ),
    "metrics-unknown-family": ("vllm", "/metrics", lambda a, n: a.body.endswith(b'contract_unknown{who="?"} 1\n')),
    "metrics-without-families": ("vllm", "/metrics", lambda a, n: (a.status, a.body) == (200, b"")),
    "models-empty": ("mlx-lm", "/v1/models", lambda a, n: (a.status, a.body) == (200, b"")),
    "models-none": ("vllm", "/v1/models", lambda a, n: (a.json["object"], a.json["data"]) == ("list", [])),
    "models-twice": ("ollama", "/api/tags", lambda a, n: a.json["models"] == n.json["models"] * 2 != []),
    "models-other": (
        "vllm",
        "/v1/models",
        lambda a, n: [entry["id"] for entry in a.json["data"]] == ["contract/other"],
    ),
}


@pytest.mark.parametrize("fault", sorted(PROBES))
def test_the_probe_fault_does_what_it_says(fault: str) -> None:
    runtime, path, check = PROBES[fault]
    assert check(observe(runtime, path, fault), observe(runtime, path, None))


def test_p05_p06_health_is_good_while_inference_is_not() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="healthy-without-workers")) as server:
        assert call(server.port, "GET", "/health").status == 200
        assert call(server.port, "POST", TEXT, {"prompt": "ash"}).status == 404
        server.behaviour = Behaviour(fault="stall-headers")
        assert call(server.port, "GET", "/health").status == 200
        assert call(server.port, "POST", TEXT, {"prompt": "ash"}, timeout_s=0.5).end == "open"


def test_every_fault_of_the_table_has_a_case() -> None:
    assert {fault.name for fault in probes.FAULTS} == {*PROBES, "healthy-without-workers"}
