"""A paced or bursting OpenAI-style stream server for the transport bench; it remembers when it read and when it sent.

    python bench/transport/server.py --port 0 --ttft-ms 200 --itl-ms 10 --tokens 128 [--cert F --key F] [--core 1]

Prints its port. ``GET /sent`` answers ``{case: [read_ns, [sent_ns, ...]]}`` of the monotonic clock and forgets it;
the case is the number after ``case-`` in the request. ``GET /cpu`` answers the CPU seconds that it has used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import ssl
import time

CASE = re.compile(rb"case-(\d+)")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
SENT: dict[int, tuple[int, list[int]]] = {}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(**changes: object) -> bytes:
    value = {"id": "c-0123456789abcdef", "object": "text_completion", "created": 1, "model": "org/model", **changes}
    return chunk(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


TOKEN = event(choices=[{"index": 0, "text": " tok", "logprobs": None, "finish_reason": None}])


class Server(asyncio.Protocol):
    """One connection, one request."""

    options: argparse.Namespace
    tail: bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream
        self.transport, self.data = transport, b""
        self.index = 0

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        if not end:
            return
        if head.startswith(b"GET"):
            self.answer_get(head)
            return
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if length is None or len(body) < int(length[1]):
            return
        read_ns = time.monotonic_ns()
        case = CASE.search(body)
        self.sent: list[int] = []
        if case is not None:
            SENT[int(case[1])] = (read_ns, self.sent)
        if self.options.itl_ms == 0 and self.options.ttft_ms == 0:
            self.burst()
            return
        self.transport.write(HEAD)
        self.loop = asyncio.get_running_loop()
        self.start = self.loop.time() + self.options.ttft_ms / 1e3
        self.loop.call_at(self.start, self.token)

    def burst(self) -> None:
        self.transport.write(HEAD)
        for first in range(0, self.options.tokens, 16):
            self.sent.extend([time.monotonic_ns()] * min(16, self.options.tokens - first))
            self.transport.write(TOKEN * min(16, self.options.tokens - first))
        self.transport.write(self.tail)
        self.transport.close()

    def token(self) -> None:
        self.sent.append(time.monotonic_ns())
        self.transport.write(TOKEN)
        self.index += 1
        if self.index < self.options.tokens:
            self.loop.call_at(self.start + self.index * self.options.itl_ms / 1e3, self.token)
        else:
            self.transport.write(self.tail)
            self.transport.close()

    def answer_get(self, head: bytes) -> None:
        if b" /cpu " in head:
            used = resource.getrusage(resource.RUSAGE_SELF)
            body = json.dumps(used.ru_utime + used.ru_stime).encode()
        else:
            body = json.dumps(SENT).encode()
            SENT.clear()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        self.transport.close()


async def serve(options: argparse.Namespace) -> None:
    Server.options = options
    usage = {"prompt_tokens": 32, "completion_tokens": options.tokens, "total_tokens": 32 + options.tokens}
    Server.tail = (
        event(choices=[{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}])
        + event(choices=[], usage=usage)
        + chunk(b"data: [DONE]\n\n")
        + b"0\r\n\r\n"
    )
    context = None
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.cert, options.key)
    server = await asyncio.get_running_loop().create_server(
        Server, "127.0.0.1", options.port, backlog=4096, ssl=context
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=0)
    parser.add_argument("--itl-ms", type=float, default=0)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(options))
    else:
        uvloop.run(serve(options))


if __name__ == "__main__":
    main()
