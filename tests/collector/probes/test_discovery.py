"""What a server says it is: by passive reads, with the basis of every value."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.errors import InputError, NotAuthorized
from tasc_collector.probes.discovery import Discovered, Value, discover, passive_paths
from tasc_collector.transport.clock import SystemClock
from tests.support.probing import RUNTIMES
from tests.support.raw_server import Peer, RawServer

EXPECTED = {
    "llama.cpp": ("b10156", "unknown"),
    "lm-studio": ("0.4.1", "unknown"),
    "mlx-lm": ("0.31.3", "unknown"),
    "ollama": ("0.32.5", "observed"),
    "sglang": ("0.5.16", "observed"),
    "tensorrt-llm": ("1.2.1", "observed"),
    "tgi": ("3.3.7", "unknown"),
    "vllm": ("0.26.0", "observed"),
}


def found(origin: str, **declared: Any) -> Discovered:
    return asyncio.run(discover(origin, clock=SystemClock(), **declared))


def saying(answers: dict[str, str]) -> RawServer:
    """A server with these JSON answers by path; anything else is a 404."""

    def script(peer: Peer) -> None:
        head = peer.read_request()
        path = head.split(b" ")[1].decode()
        body = answers.get(path)
        status = "200 OK" if body is not None else "404 Not Found"
        text = (body if body is not None else "{}").encode()
        peer.send(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n"
            "connection: close\r\n\r\n".encode()
            + text
        )
        peer.fin()

    return RawServer(script)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_is_recognised_by_passive_reads_only(runtime: str) -> None:
    with ContractServer(runtime) as server:
        seen = found(server.origin)
        assert seen.runtime == Value(runtime, "observed")
        assert (seen.build.value, seen.build.basis) == EXPECTED[runtime]
        assert seen.model_id == Value(server.model, "observed")
        assert server.ledger.inference_calls == 0
        assert {route.split(" ")[0] for route in server.ledger.by_route} == {"GET"}
        assert {route.split(" ")[1] for route in server.ledger.by_route} <= set(passive_paths())


def test_ollama_tells_the_digest_of_the_model_and_tgi_its_commit() -> None:
    with ContractServer("ollama") as server:
        revision = found(server.origin).model_revision
        assert revision is not None
        assert revision.basis == "observed"
        assert revision.value.startswith("sha256:5f1c")
    with ContractServer("tgi") as server:
        revision = found(server.origin).model_revision
        assert revision is not None
        assert revision.value.startswith("4c1b")


def test_what_the_operator_declares_is_marked_declared_and_not_asked() -> None:
    with ContractServer("vllm") as server:
        seen = found(server.origin, runtime="vllm", build="0.26.0", model="contract/other")
        assert seen.runtime == Value("vllm", "declared")
        assert seen.build == Value("0.26.0", "declared")
        assert seen.model_id == Value("contract/other", "declared")


def test_a_build_that_the_server_names_differently_is_refused() -> None:
    with ContractServer("vllm") as server, pytest.raises(InputError, match="another build than was declared"):
        found(server.origin, build="0.33.0")


def test_an_unregistered_build_is_reported_as_it_is() -> None:
    models = '{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}'
    with saying({"/v1/models": models, "/version": '{"version":"0.33.0"}'}) as server:
        assert found(server.origin).build == Value("0.33.0", "observed")


def test_several_models_need_one_to_be_named() -> None:
    two = '{"object":"list","data":[{"id":"a","owned_by":"vllm"},{"id":"b","owned_by":"vllm"}]}'
    with saying({"/v1/models": two}) as server:
        with pytest.raises(InputError, match=r"lists 2 models.*--champion-model"):
            found(server.origin)
        assert found(server.origin, model="b").model_id == Value("b", "observed")


def test_a_model_of_a_remote_host_is_not_a_local_model() -> None:
    entries = [
        {"name": "big:cloud", "digest": "a" * 64},
        {"name": "far", "remote_host": "https://x", "digest": "b" * 64},
        {"name": "near", "digest": "c" * 64},
    ]
    tags = json.dumps({"models": entries})
    with saying({"/api/version": '{"version":"0.32.5"}', "/api/tags": tags}) as server:
        seen = found(server.origin)
        assert seen.model_id == Value("near", "observed")
        assert seen.model_revision == Value("sha256:" + "c" * 64, "observed")


@pytest.mark.parametrize("model", ["big:cloud", "big:480b-cloud", "Big:CLOUD", "far", "far:latest"])
def test_a_declared_model_of_a_remote_host_is_refused_by_its_name_or_its_entry(model: str) -> None:
    entries = [
        {"name": "near", "digest": "c" * 64},
        {"name": "far:latest", "remote_model": "far", "digest": "b" * 64},
    ]
    tags = json.dumps({"models": entries})
    with saying({"/api/version": '{"version":"0.32.5"}', "/api/tags": tags}) as server:
        with pytest.raises(NotAuthorized) as refused:
            found(server.origin, model=model)
        assert found(server.origin, model="near").model_id == Value("near", "observed")
    assert refused.value.rule == "Ollama passes this model on to a remote host: its name or its entry says so"
    assert refused.value.way_out == "pull a model to this host and name it: --champion-model or --candidate-model"
    assert model not in str(refused.value)


def test_a_name_like_that_means_nothing_where_the_runtime_passes_nothing_on() -> None:
    with ContractServer("vllm") as server:
        assert found(server.origin, model="big:cloud").model_id == Value("big:cloud", "declared")


def test_a_development_build_names_no_build() -> None:
    tags = json.dumps({"models": [{"name": "near", "digest": "c" * 64}]})
    with saying({"/api/version": '{"version":"0.0.0"}', "/api/tags": tags}) as server:
        assert found(server.origin).build == Value("0.32.5", "unknown")


def test_an_unknown_server_says_what_was_tried_and_how_to_declare_it() -> None:
    with saying({"/v1/models": '{"object":"list","data":[{"id":"m","owned_by":"someone"}]}'}) as server:
        with pytest.raises(InputError) as refusal:
            found(server.origin)
        assert "/api/version" in str(refusal.value)
        assert "--(champion|candidate)-runtime" in str(refusal.value)


def test_nobody_at_the_address_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match="no answer from this server"):
            found(f"http://127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize("origin", ["http://example.com", "https://127.0.0.1", "https://example.com/v1", "ftp://x.y"])
def test_an_origin_that_breaks_a_rule_is_refused_before_contact(origin: str) -> None:
    with pytest.raises(InputError, match="no origin that may be reached"):
        found(origin)


def test_a_server_that_is_still_loading_is_not_guessed_at() -> None:
    with ContractServer("llama.cpp", behaviour=Behaviour(fault="loading")) as server:
        with pytest.raises(InputError, match="none of the known runtimes"):
            found(server.origin)
