"""HTTP/1.1 answers that others wrote down: what must be refused is refused, however it is cut; what must be taken is
taken.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import WireError
from tasc_collector.transport.codes import Code
from tasc_collector.transport.head import check_success, refuse_status
from tasc_collector.transport.http1 import Http1Limits, ResponseReader
from tests.support.calls import call
from tests.support.raw_server import Peer, RawServer, answer

LIMITS = Http1Limits(header_bytes=16_384, header_count=64, body_bytes=1_048_576, chunks=4_096)
BODY = b'{"ok":true}'


def read(
    data: bytes, pieces: Iterator[bytes], *, content_types: frozenset[str] = frozenset({"application/json"})
) -> tuple[str, bytes]:
    """Read an answer in pieces: ``accept`` with the body, ``status``, or the refusal's code."""
    reader = ResponseReader(LIMITS)
    body = b""
    try:
        for piece in pieces:
            body += reader.feed(piece)
        reader.end()
        assert reader.head is not None
        refusal = refuse_status(reader.head.status)
        if refusal is not None:
            return ("status" if refusal is Code.PROVIDER_ERROR else refusal), b""
        check_success(reader.head, content_types)
    except WireError as error:
        return error.code, b""
    assert len(body) <= len(data)
    return "accept", body


def cuts(data: bytes, seed: int = 0) -> Iterator[Iterator[bytes]]:
    """The whole, byte by byte where that is feasible, and at random places."""
    yield iter([data])
    if len(data) < 40_000:
        yield (data[at : at + 1] for at in range(len(data)))
    rng = random.Random(seed)
    for _ in range(5):
        places = [0, *sorted(rng.randrange(len(data) + 1) for _ in range(4)), len(data)]
        yield (data[a:b] for a, b in itertools.pairwise(places) if b > a)


def cases(shared: Path, name: str) -> list[dict[str, Any]]:
    path = shared / "vectors" / "http1" / name
    if not path.is_file():
        pytest.skip("the HTTP/1.1 vectors are not there")
    return json.loads(path.read_text(encoding="utf-8"))["cases"]


def test_own_answers_get_their_verdict_at_every_cut(shared: Path) -> None:
    wrong = []
    for case in cases(shared, "own_responses.json"):
        data = bytes.fromhex(case["hex"])
        for pieces in cuts(data):
            verdict, body = read(data, pieces)
            good = {
                "accept": verdict == "accept" and body == BODY,
                "error-status": verdict == "status",
                "reject": verdict not in {"accept", "status"},
                "accept-or-reject": verdict != "accept" or body == BODY,
            }[case["expect"]]
            if not good:
                wrong.append((case["id"], verdict))
    assert wrong == []


def test_what_llhttp_refuses_is_refused_at_every_cut(shared: Path) -> None:
    wrong = []
    for case in cases(shared, "llhttp_responses.json"):
        if not case["llhttp_error"]:
            continue
        data = bytes.fromhex(case["hex"])
        wrong += [
            case["id"]
            for pieces in cuts(data)
            if read(data, pieces, content_types=frozenset())[0] in {"accept", "status"}
        ]
    assert wrong == []


def test_own_answers_get_their_verdict_over_a_socket(shared: Path) -> None:
    """The same through the whole transport: never a success for what must be refused."""
    items = cases(shared, "own_responses.json")

    def script(peer: Peer) -> None:
        request = peer.read_request()
        at = int(request.split(b"\r\nx-case: ")[1].split(b"\r\n")[0])
        peer.send(bytes.fromhex(items[at]["hex"]))
        peer.fin()

    async def go(origin: str) -> list[str]:
        wrong = []
        limits = HttpLimits(max_response_bytes=1_048_576)
        for at, case in enumerate(items):
            done = await call(origin, headers=(("x-case", str(at)),), limits=limits, deadline_ms=3_000)
            result = done.result
            good = {
                "accept": result.succeeded and done.body == BODY,
                "error-status": result.code is Code.PROVIDER_ERROR and result.clean_end,
                "reject": not result.succeeded,
                "accept-or-reject": not result.succeeded or done.body == BODY,
            }[case["expect"]]
            if not good:
                wrong.append(case["id"])
        return wrong

    with RawServer(script) as server:
        assert asyncio.run(go(server.origin)) == []
        assert server.connections == len(server.requests) == len(items)


def mutations(seed: int, count: int) -> Iterator[bytes]:
    """Answers with one accident each in the framing: bits, cuts, doubled and moved pieces. The body bytes stay as
    they were.
    """
    rng = random.Random(seed)
    chunked = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n"
        + BODY[:6]
        + b"\r\n5\r\n"
        + BODY[6:]
        + b"\r\n0\r\n\r\n"
    )
    for _ in range(count):
        data = bytearray(rng.choice([answer(), chunked]))
        held = {at for at in range(len(data)) if data[at : at + len(BODY)] == BODY for at in range(at, at + len(BODY))}
        held |= {
            at + i
            for piece in (BODY[:6], BODY[6:])
            for at in [bytes(data).rfind(piece)]
            if at > 0
            for i in range(len(piece))
        }
        kind = rng.randrange(4)
        at = rng.choice([at for at in range(len(data)) if at not in held])
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 9)]
        else:
            del data[at]
        yield bytes(data)


def test_2000_mutated_answers_never_complete_with_other_bytes_than_the_servers() -> None:
    wrong, refused = [], 0
    for number, data in enumerate(mutations(20_261_129, 2_000)):
        for pieces in cuts(data or b"\r", number):
            verdict, body = read(data, pieces)
            refused += verdict != "accept"
            if verdict == "accept" and body != BODY:
                wrong.append((number, data))
    assert wrong == []
    assert refused > 2_000


@pytest.mark.parametrize("trailer", [b"X-A: b\r\n", b""])
def test_trailers_are_read_and_dropped(trailer: bytes) -> None:
    data = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n"
        + BODY
        + b"\r\n0\r\n"
        + trailer
        + b"\r\n"
    )
    assert {read(data, pieces) for pieces in cuts(data)} == {("accept", BODY)}


def test_a_closed_body_counts_only_where_the_caller_says_that_the_dialect_has_a_terminator() -> None:
    data = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n"
    reader = ResponseReader(LIMITS, close_delimited=True)
    assert reader.feed(data) == b"data: [DONE]\n\n"
    assert not reader.complete
    reader.end()
    assert reader.complete
    with pytest.raises(WireError) as refusal:
        ResponseReader(LIMITS).feed(data)
    assert refusal.value.code == Code.UNFRAMED_RESPONSE


@pytest.mark.parametrize(("count", "code"), [(64, None), (65, Code.RESPONSE_HEADERS_TOO_LARGE)])
def test_the_header_count_is_exact(count: int, code: Code | None) -> None:
    fields = b"".join(b"X-%d: y\r\n" % number for number in range(count - 1))
    reader = ResponseReader(LIMITS)
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + fields + b"\r\n"
    if code is None:
        assert reader.feed(data) == b""
        assert reader.complete
    else:
        with pytest.raises(WireError) as refusal:
            reader.feed(data)
        assert refusal.value.code == code


@pytest.mark.parametrize(("over", "good"), [(0, True), (1, False)])
def test_the_header_bytes_are_exact(over: int, good: bool) -> None:
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: "
    data = start + b"y" * (LIMITS.header_bytes - len(start) - 4 + over) + b"\r\n\r\n"
    reader = ResponseReader(LIMITS)
    if good:
        reader.feed(data)
        assert (reader.complete, reader.header_bytes) == (True, 16_384)
    else:
        with pytest.raises(WireError):
            reader.feed(data)
