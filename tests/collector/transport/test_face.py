"""The httpx face: the same strict exchange below an ordinary client."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import DispatchState, NotAuthorized, TransportError
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.face import FaceTarget, OneShotTransport
from tests.support.calls import policy_for
from tests.support.raw_server import Peer, RawServer, Script, answer


def get(server: RawServer, path: str = "/v1/models", **headers: str) -> tuple[httpx.Response, OneShotTransport]:
    async def go() -> tuple[httpx.Response, OneShotTransport]:
        transport = OneShotTransport(
            FaceTarget(policy_for(server.origin), "main", "vllm", "0.26.0", HttpLimits()), clock=SystemClock()
        )
        async with httpx.AsyncClient(transport=transport, follow_redirects=True, trust_env=False) as client:
            return await client.get(server.origin + path, headers=headers), transport

    return asyncio.run(go())


def play(*parts: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(*parts)
        peer.fin()

    return script


def test_a_get_comes_back_as_an_httpx_response() -> None:
    with RawServer(play(answer(b'{"data":[]}', extra=b"X-Request-Id: r1\r\n"))) as server:
        response, transport = get(server)
    assert (response.status_code, response.json(), response.headers["x-request-id"]) == (200, {"data": []}, "r1")
    assert transport.last is not None
    assert transport.last.state is DispatchState.COMPLETED
    assert server.requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert b"user-agent" not in server.requests[0].lower()


def test_a_refusal_has_its_status_and_no_body() -> None:
    with RawServer(play(answer(b"private text", status="404 Not Found"))) as server:
        response, _ = get(server)
    assert (response.status_code, response.content) == (404, b"")


def test_a_redirect_is_not_followed_even_where_the_client_would() -> None:
    with RawServer(play(answer(status="302 Found", extra=b"Location: http://169.254.169.254/\r\n"))) as server:
        response, _ = get(server)
        assert (response.status_code, server.connections) == (302, 1)


def test_a_cut_answer_raises_with_code_and_state() -> None:
    with RawServer(play(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{")) as server:
        with pytest.raises(TransportError) as failure:
            get(server)
    assert (failure.value.code, failure.value.state) == (Code.RESPONSE_TRUNCATED, DispatchState.SENT_UNKNOWN)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/models?x=1", "/v1/models?", "/v1/models#x", "/v1/%6dodels", "/v1%2fmodels", "/v1/%2e%2e/admin"),
        "http://127.0.0.1:1/v1/models",
    ],
)
def test_a_url_that_is_not_the_endpoints_is_refused_before_any_connection(path: str) -> None:
    async def go(server: RawServer) -> None:
        transport = OneShotTransport(
            FaceTarget(policy_for(server.origin), "main", "vllm", "0.26.0", HttpLimits()), clock=SystemClock()
        )
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            await client.get(path if path.startswith("http") else server.origin + path)

    with RawServer(play(answer())) as server:
        with pytest.raises(NotAuthorized):
            asyncio.run(go(server))
        assert server.connections == 0


def test_a_request_cannot_bring_its_own_secret() -> None:
    with RawServer(play(answer())) as server:
        with pytest.raises(NotAuthorized):
            get(server, Authorization="Bearer CANARY")
        assert server.connections == 0
