"""How long after its deadline a call is over (goal: at most 250 ms), whatever the server does meanwhile.

    python bench/transport/overshoot.py [--calls 200] [--concurrency 32] [--deadline-ms 300]

A server in a process of its own never answers, stops within the head, stops within the body, or sends a byte every few
milliseconds for ever. The overshoot of a call is the time from its deadline to its end; the largest counts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from client import body_of, limits_of, no_lease, policy_of

from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.exchange import exchange
from tasc_collector.transport.policy import authorize
from tasc_collector.transport.result import ExchangeRequest

GOAL_MS = 250
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BEHAVIOURS = {
    "never answers": (b"", 0.0),
    "stops within the head": (HEAD[:40], 0.0),
    "stops within the body": (HEAD + b"5\r\ndata", 0.0),
    "drips for ever": (HEAD + b"ffff\r\n", 0.004),
}
DRIP = b": "


def serve() -> None:
    """A process that prints a port for each behaviour and serves until it is killed."""

    def handler(first: bytes, pause_s: float):  # type: ignore[no-untyped-def]  # a coroutine function
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read(65_536)
                writer.write(first)
                while pause_s:
                    await asyncio.sleep(pause_s)
                    writer.write(DRIP)
                    await writer.drain()
                await reader.read()
            except ConnectionError:
                return
            finally:
                writer.close()

        return handle

    async def run() -> None:
        servers = [await asyncio.start_server(handler(*how), "127.0.0.1", 0) for how in BEHAVIOURS.values()]
        print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


async def overshoots(port: int, options: argparse.Namespace) -> list[float]:
    """Milliseconds from the deadline to the end of each call."""
    authorized = authorize(
        policy_of(f"http://127.0.0.1:{port}"),
        alias="main",
        runtime="vllm",
        build="0.26.0",
        method="POST",
        path="/v1/completions",
        authentication_reference=None,
        duration_ms=60_000,
    )
    clock, limits, found, left = SystemClock(), limits_of(), [], iter(range(options.calls))

    async def worker() -> None:
        for case in left:
            deadline_ns = clock.now_ns() + options.deadline_ms * 1_000_000
            request = ExchangeRequest(
                authorized,
                (("accept", "text/event-stream"), ("content-type", "application/json")),
                body_of(case),
                limits,
                deadline_ns,
                frozenset({"text/event-stream"}),
            )
            result = await exchange(request, lease=no_lease, on_data=lambda *_: None, clock=clock)
            assert result.code is Code.DEADLINE_EXCEEDED, result.code
            found.append((time.monotonic_ns() - deadline_ns) / 1e6)

    await asyncio.gather(*(worker() for _ in range(options.concurrency)))
    return found


async def main_async(options: argparse.Namespace) -> None:
    server = await asyncio.create_subprocess_exec(sys.executable, __file__, "--serve", stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout is not None
        ports = map(int, (await server.stdout.readline()).split())
        for name, port in zip(BEHAVIOURS, ports, strict=True):
            found = sorted(await overshoots(port, options))
            print(
                f"{name:22}: {len(found)} calls, overshoot p50 {found[len(found) // 2]:6.1f} ms, largest {found[-1]:6.1f} ms "
                f"(goal <= {GOAL_MS})"
            )
    finally:
        server.kill()
        await server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--deadline-ms", type=int, default=300)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    else:
        asyncio.run(main_async(options))


if __name__ == "__main__":
    main()
