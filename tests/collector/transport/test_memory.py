"""A hostile answer costs at most 16 MiB of memory at a limit of 1 MiB. Measured in a process of its own, by its
peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.raw_server import Peer, RawServer, Script

ROOT = Path(__file__).resolve().parents[3]
CHILD = """
import asyncio, gc, json, resource, sys
from tasc_collector.contracts.http_limits import HttpLimits
from tests.support.calls import call

limits = HttpLimits(max_response_bytes=1_048_576)

async def once(origin):
    return (await call(origin, limits=limits, deadline_ms=8_000)).result

asyncio.run(once(sys.argv[2]))
gc.collect()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = asyncio.run(once(sys.argv[1]))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"grown_kib": grown, "code": result.code, "read": result.response_bytes}))
"""


def endless(first: bytes, item: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(first)
        while not peer.server.stopping.is_set():
            peer.send(item)

    return script


def once(data: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)

    return script


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HOSTILE: dict[str, Script] = {
    "endless chunks": endless(JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65_536 + b"\r\n"),
    "one-byte chunks": endless(JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1_000),
    "a chunk of 4 GB": endless(JSON + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", b"x" * 65_536),
    "a length of 4 GB": endless(JSON + b"Content-Length: 4294967296\r\n\r\n", b"x" * 65_536),
    "endless interim answers": endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100),
    "endless head": endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65_536),
    "10,000 headers": once(
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(10_000)) + b"\r\n"
    ),
    "endless trailers": endless(JSON + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: yyyyyyyy\r\n" * 1_000),
    "endless chunk extension": endless(JSON + b"Transfer-Encoding: chunked\r\n\r\n1;a=", b"y" * 65_536),
    "endless error page": endless(b"HTTP/1.1 500 E\r\n\r\n", b"x" * 65_536),
    "compressed bomb": once(
        JSON + b"Content-Encoding: gzip\r\nContent-Length: 50000\r\n\r\n" + b"\x1f\x8b" + b"\0" * 49_998
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_bounded_in_bytes_and_memory(name: str) -> None:
    friendly = once(JSON + b"Content-Length: 2\r\n\r\n{}")
    with RawServer(HOSTILE[name]) as hostile, RawServer(friendly) as warm:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, hostile.origin, warm.origin],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    found = json.loads(done.stdout)
    assert found["code"] is not None
    assert found["grown_kib"] <= 16 * 1024
    assert found["read"] <= 1_048_576 + 131_072
