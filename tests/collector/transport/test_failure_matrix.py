"""The failure matrix: 36 scenarios on real sockets, plain and TLS, 20 calls each. The server's own count is the oracle.

Numbers are those of the table in which the behaviour of other clients was measured. A call is ``not_sent`` exactly
when the server cannot have read a byte of it; it is ``completed`` only with a whole answer.

Three kinds have one variant only, because there is no other: a name is looked up (1, 2) only for https, since plain http goes
to a literal loopback address and nowhere else (``origins``, rule 2), and a handshake (5 to 8) is TLS by nature.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import InputError
from tasc_collector.transport.codes import Code
from tasc_collector.transport.result import ExchangeCancelled
from tasc_collector.transport.tls import TlsSettings
from tests.support import chains
from tests.support.calls import Call, LabNetwork, call
from tests.support.failure_scenarios import (
    BIG,
    DEFAULTS,
    DONE,
    NOT_SENT,
    UNKNOWN,
    SmallBuffers,
    SmallLab,
    after_request,
    nobody_accepts,
    poisoned,
    scenarios,
)
from tests.support.raw_server import Peer, RawServer, Script, answer

REPEATS = 20
SCENARIOS = scenarios()


SECURE = pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])


def server_side(folder: Path, *, secure: bool) -> ssl.SSLContext | None:
    return chains.good().server_context(folder) if secure else None


async def one(port: int, *, secure: bool, **arguments: Any) -> Call:
    """A call to a port of this host: plain to its loopback address, or TLS to a name whose public address leads there."""
    arguments = {"limits": DEFAULTS, "deadline_ms": 60_000, **arguments}
    if not secure:
        return await call(f"http://127.0.0.1:{port}", **arguments)
    lab = {"network": LabNetwork(port), "tls": TlsSettings(ca_pem=chains.root().pem)}
    return await call(f"https://{chains.HOST}", **{**lab, **arguments})


async def repeated(port: int, *, secure: bool, **arguments: Any) -> list[Call]:
    return list(await asyncio.gather(*(one(port, secure=secure, **arguments) for _ in range(REPEATS))))


@SECURE
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_state_is_what_the_ledger_proves(name: str, secure: bool, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    with RawServer(scenario.script, tls=server_side(tmp_path, secure=secure)) as server:
        arguments: dict[str, Any] = {
            "body": BIG if scenario.big else b"{}",
            "limits": scenario.limits,
            "deadline_ms": scenario.deadline_ms,
            "network": SmallLab(server.port) if secure else SmallBuffers(),
        }
        done = asyncio.run(repeated(server.port, secure=secure, **arguments))
    results = [item.result for item in done]
    assert {result.state for result in results} <= set(scenario.states)
    assert {result.code for result in results} <= set(scenario.codes)
    assert server.connections == REPEATS
    sent = [result for result in results if result.state is not NOT_SENT]
    assert all((result.marks.request_started is not None) == (result.state is not NOT_SENT) for result in results)
    assert len(server.requests) <= len(sent)
    completed = [item for item in done if item.result.succeeded]
    assert all(item.body == b'{"ok":true}' for item in completed)


@SECURE
def test_33_to_36_every_call_is_one_connection_and_one_request(secure: bool, tmp_path: Path) -> None:
    """A server that offers to keep the connection, and poisons it after the answer, never gets a second request on
    it.
    """
    counts: list[int] = []
    script = poisoned(answer(extra=b"Connection: keep-alive\r\n"), answer(b'{"ok":"poison"}'), counts)
    with RawServer(script, tls=server_side(tmp_path, secure=secure)) as server:
        done = asyncio.run(repeated(server.port, secure=secure))
    # a call either ended before the poison came, or saw it and refused it
    assert {item.result.code for item in done} <= {None, Code.BYTES_AFTER_END}
    assert {item.body for item in done if item.result.succeeded} <= {b'{"ok":true}'}
    assert not any(b"poison" in item.body for item in done)
    assert (server.connections, len(server.requests)) == (REPEATS, REPEATS)
    assert set(counts) <= {0}


def test_1_a_name_that_does_not_resolve_is_not_sent_to() -> None:
    network = LabNetwork(9, [[]])
    done = asyncio.run(repeated(9, secure=True, network=network))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.RESOLVE_FAILED)}
    assert network.connects == []


@pytest.mark.parametrize(
    "answers", [["10.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["fe80::1%lo"], ["93.184.216.34"] * 33]
)
def test_2_one_refused_answer_refuses_the_lookup(answers: list[str]) -> None:
    network = LabNetwork(9, [answers])
    done = asyncio.run(repeated(9, secure=True, network=network))
    assert {item.result.state for item in done} == {NOT_SENT}
    assert {item.result.code for item in done} <= {Code.ADDRESS_REFUSED, Code.RESOLVE_FAILED}
    assert network.connects == []


def test_2_a_name_that_changes_its_answer_between_calls_is_checked_each_time(tmp_path: Path) -> None:
    with RawServer(after_request(answer()), tls=server_side(tmp_path, secure=True)) as server:
        network = LabNetwork(server.port, [["93.184.216.34"], ["169.254.169.254"]])

        async def twice() -> list[Call]:
            return [await one(server.port, secure=True, network=network) for _ in range(2)]

        first, second = asyncio.run(twice())
    assert first.result.state is DONE
    assert (second.result.state, second.result.code) == (NOT_SENT, Code.ADDRESS_REFUSED)
    assert network.connects == ["93.184.216.34"]


def test_2_a_peer_that_is_not_the_pinned_address_is_not_sent_to() -> None:
    with RawServer(Peer.hold) as server:
        network = LabNetwork(server.port, claimed_peer="10.0.0.1")
        done = asyncio.run(repeated(server.port, secure=True, network=network))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.PEER_MISMATCH)}


@SECURE
def test_3_a_refused_connection_is_not_sent(secure: bool) -> None:
    with RawServer(Peer.hold) as server:
        port = server.port
    done = asyncio.run(repeated(port, secure=secure))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.CONNECT_REFUSED)}
    assert {item.leases for item in done} == {0}


@SECURE
def test_4_a_connection_that_nobody_accepts_times_out_not_sent(secure: bool) -> None:
    with nobody_accepts() as port:
        done = asyncio.run(repeated(port, secure=secure, limits=HttpLimits(connect_timeout_ms=300)))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.CONNECT_TIMEOUT)}
    assert {item.leases for item in done} == {0}


@pytest.mark.parametrize("name", ["wrong host", "expired", "unknown ca", "address for a name"])
def test_5_a_bad_certificate_is_not_sent_to(name: str, tmp_path: Path) -> None:
    with RawServer(after_request(answer()), tls=chains.CASES[name][2]().server_context(tmp_path)) as server:
        done = asyncio.run(repeated(server.port, secure=True))
    assert {(item.result.state, item.result.code) for item in done} == {(NOT_SENT, Code.TLS_FAILED)}
    assert server.requests == []


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Code.TLS_FAILED),
        (Peer.rst, Code.TLS_FAILED),
        (Peer.fin, Code.TLS_FAILED),
        (Peer.hold, Code.TLS_TIMEOUT),
    ],
    ids=["6 plain http", "7 reset in the handshake", "7 closed in the handshake", "8 stalled handshake"],
)
def test_6_to_8_a_handshake_that_fails_is_not_sent(script: Script, code: Code) -> None:
    with RawServer(script) as server:
        done = asyncio.run(repeated(server.port, secure=True, limits=HttpLimits(connect_timeout_ms=400)))
    # a reset may overtake the accept and be seen by the check of the peer
    assert {item.result.state for item in done} == {NOT_SENT}
    assert {item.result.code for item in done} <= {code, Code.CONNECTION_RESET, Code.CONNECT_FAILED}


@SECURE
@pytest.mark.parametrize(
    "header", [("x-a", "b\nc"), ("x-a", "b\r\nx-b: c"), ("x-a", "\x00"), ("x-a", "\u00e9"), ("x a", "b"), ("x-a:", "b")]
)
def test_31_an_illegal_header_is_refused_before_any_connection(
    header: tuple[str, str], secure: bool, tmp_path: Path
) -> None:
    with RawServer(Peer.hold, tls=server_side(tmp_path, secure=secure)) as server:
        network = LabNetwork(server.port)
        for _ in range(REPEATS):
            with pytest.raises(InputError) as refusal:
                asyncio.run(one(server.port, secure=secure, headers=(header,), network=network))
            assert header[1] not in str(refusal.value) or header[1] == "b"
    assert (server.connections, network.lookups, network.connects) == (0, [], [])


@SECURE
def test_32_a_cancelled_wait_is_unknown(secure: bool, tmp_path: Path) -> None:
    async def go() -> list[ExchangeCancelled]:
        caught: list[ExchangeCancelled] = []

        async def waiting() -> None:
            try:
                await one(server.port, secure=secure)
            except ExchangeCancelled as error:
                caught.append(error)
                raise

        tasks = [asyncio.create_task(waiting()) for _ in range(REPEATS)]
        await server.asked(REPEATS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return caught

    with RawServer(after_request(end=Peer.hold), tls=server_side(tmp_path, secure=secure)) as server:
        caught = asyncio.run(go())
    assert [(error.result.state, error.result.code) for error in caught] == [(UNKNOWN, Code.CALLER_CANCELLED)] * REPEATS


@SECURE
def test_37_a_lease_that_is_refused_lets_no_byte_out(secure: bool, tmp_path: Path) -> None:
    async def refused() -> None:
        raise ConnectionAbortedError

    got: list[bytes] = []
    with RawServer(lambda peer: got.append(peer.sock.recv(65_536)), tls=server_side(tmp_path, secure=secure)) as server:
        for _ in range(REPEATS):
            with pytest.raises(ConnectionAbortedError):
                asyncio.run(one(server.port, secure=secure, lease=refused))
    assert (server.connections, server.requests) == (REPEATS, [])
    assert set(got) <= {b""}
