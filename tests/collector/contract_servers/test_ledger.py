"""The ledger counts exactly what came, names cases by digest only, and survives its process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer, EntryKind, Ledger, case_digest
from tasc_collector.errors import InputError
from tests.support.wire_client import call, connect, drain, request_bytes

PATH = "/v1/completions"


def test_calls_are_counted_per_route_per_case_and_per_connection() -> None:
    with ContractServer("vllm") as server:
        for prompt in ("ash", "birch", "ash"):
            call(server.port, "POST", PATH, {"prompt": prompt})
        call(server.port, "GET", "/health")
        call(server.port, "GET", "/nothing/here")
        ledger = server.ledger
        assert ledger.by_route == {f"POST {PATH}": 3, "GET /health": 1, "GET /nothing/here": 1}
        assert ledger.by_request == {case_digest("ash"): 2, case_digest("birch"): 1}
        assert (ledger.inference_calls, ledger.requests, ledger.connections) == (3, 5, 5)
        assert ledger.requests_per_connection == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


def test_case_digest_is_sha_256_over_canonical_json() -> None:
    # printf '"ash"' | sha256sum
    assert case_digest("ash") == "15e105b2bf800a41d47f7310503b6975cc960457c3ebddd8d66954f2d1f5b970"


def test_several_requests_on_one_connection_are_seen_as_such() -> None:
    with ContractServer("vllm") as server, connect(server.port) as sock:
        sock.sendall(request_bytes("GET", "/health", close=False) + request_bytes("GET", "/version", close=True))
        answer = drain(sock)
        assert answer.raw.count(b"HTTP/1.1 200 OK") == 2
        assert server.ledger.requests_per_connection == {1: 2}


def test_half_a_request_is_a_partial_one_and_no_call() -> None:
    with ContractServer("vllm") as server:
        with connect(server.port) as sock:
            sock.sendall(request_bytes("POST", PATH, {"prompt": "ash"})[:-3])
        assert server.ledger.wait_for(lambda ledger: ledger.partial_requests == 1)
        partial = server.ledger.entries[-1]
        assert (partial.kind, partial.path, partial.body_bytes) == (
            EntryKind.PARTIAL,
            PATH,
            len('{"prompt": "ash"}') - 3,
        )
        assert server.ledger.inference_calls == 0


def test_a_connection_without_a_byte_is_a_connection_and_nothing_else() -> None:
    with ContractServer("vllm") as server:
        connect(server.port).close()
        assert server.ledger.wait_for(lambda ledger: ledger.connections == 1)
    assert (server.ledger.requests, server.ledger.partial_requests) == (0, 0)


def test_a_client_that_leaves_within_an_answer_is_entered_as_cancelled() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="stall-body")) as server:
        with connect(server.port) as sock:
            sock.sendall(request_bytes("POST", PATH, {"prompt": "ash", "stream": True}))
            assert sock.recv(1)
        assert server.ledger.wait_for(lambda ledger: ledger.cancelled == 1)
        assert server.ledger.inference_calls == 1


def test_no_text_of_a_request_reaches_the_ledgers_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    with ContractServer("vllm", ledger_path=path) as server:
        call(server.port, "POST", PATH, {"prompt": "sentinel-prompt"}, headers="Authorization: Bearer sentinel-key\r\n")
    assert b"sentinel" not in path.read_bytes()
    assert case_digest("sentinel-prompt").encode() in path.read_bytes()


def test_the_file_gives_the_same_counts_and_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    with ContractServer("ollama", ledger_path=path) as server:
        for prompt in ("ash", "birch"):
            call(server.port, "POST", "/api/generate", {"model": server.model, "prompt": prompt})
        server.ledger.wait_for(lambda ledger: ledger.requests == 2)
        expected = server.ledger.entries
    with path.open("ab") as file:
        file.write(b'{"kind":"request","connection":9')
    read = Ledger.read(path)
    assert read.entries == expected
    assert read.by_request == {case_digest("ash"): 1, case_digest("birch"): 1}


def test_a_line_in_the_middle_that_is_broken_is_not_ignored(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    path.write_bytes(b"{}\n{broken\n")
    with pytest.raises((ValueError, KeyError)):
        Ledger.read(path)


def test_a_ledger_that_cannot_be_opened_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a file in a folder that exists"):
        ContractServer("vllm", ledger_path=tmp_path / "missing" / "ledger.ndjson")


def test_concurrent_calls_are_all_counted() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=2)) as server:
        threads = [
            threading.Thread(
                target=call,
                args=(server.port, "POST", PATH, {"prompt": f"case {n % 5}", "stream": True}),
                kwargs={"timeout_s": 30},
            )
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(server.ledger.by_request.values()) == [4, 4, 4, 4, 4]


def test_generating_health_checks_count_as_inference_and_mutating_reads_are_marked() -> None:
    """P01, P10."""
    with ContractServer("sglang") as server:
        call(server.port, "GET", "/health")
        call(server.port, "GET", "/flush_cache")
        health, flush = (entry for entry in server.ledger.entries if entry.kind is EntryKind.REQUEST)
    assert (health.inference, health.mutating, flush.inference, flush.mutating) == (True, False, False, True)
    assert server.ledger.inference_calls == 1
