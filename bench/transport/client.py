"""One client kind against the bench server; prints one JSON line.

    python bench/transport/client.py KIND --port P --calls N --concurrency C [--tls] [--stall] [--burn] [--loop
    uvloop|asyncio]

KIND: ``tasc`` (prepare and dispatch), ``exchange`` (our transport and reader without the invocation), ``aiohttp`` and
``httpx`` (read the stream, parse every event), ``raw`` (a bare protocol that only stamps its reads and counts tokens: what
loop and kernel cost alone). Errors are against the server's own times on the same clock:
TTFT error = (first arrival - request started) - (first token sent - request read), in microseconds.

The places of the concurrency begin one after another over ``--spread-s`` (best the length of a call), so that calls do not
begin in herds; what is counted begins when all of them run and ends while they still do.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import resource
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import orjson

PROMPT = "hello " * 64
FLAG_NS = 3_000_000


@dataclass
class Seen:
    """What a client says of one call: absolute nanoseconds of the monotonic clock."""

    case: int
    started_ns: int
    arrivals_ns: list[int]
    complete: bool
    flagged: bool | None = None


class Events:
    """The usual way to read a stream: split frames, parse JSON, note a time per token."""

    def __init__(self) -> None:
        self.rest, self.arrivals, self.done, self.usage = b"", [], False, False  # type: ignore[var-annotated]

    def feed(self, data: bytes, now_ns: int) -> None:
        *frames, self.rest = (self.rest + data).split(b"\n\n")
        for frame in frames:
            if frame == b"data: [DONE]":
                self.done = True
                continue
            value = orjson.loads(frame[6:])
            if value["choices"] and value["choices"][0].get("text"):
                self.arrivals.append(now_ns)
            self.usage = self.usage or bool(value.get("usage"))


def body_of(case: int) -> bytes:
    return orjson.dumps({"model": "org/model", "stream": True, "max_tokens": 128, "prompt": f"case-{case} {PROMPT}"})


One = Callable[[int], Awaitable[Seen]]


def aiohttp_client(port: int, options: argparse.Namespace) -> tuple[Any, One]:
    import aiohttp

    scheme, trust = ("https", insecure()) if options.tls else ("http", None)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=trust or True), auto_decompress=False
    )

    async def one(case: int) -> Seen:
        events = Events()
        started = time.monotonic_ns()
        async with session.post(
            f"{scheme}://127.0.0.1:{port}/v1/completions",
            data=body_of(case),
            headers={"content-type": "application/json"},
        ) as answer:
            async for data in answer.content.iter_any():
                events.feed(data, time.monotonic_ns())
        return Seen(case, started, events.arrivals, events.done and events.usage)

    return session.close, one


def httpx_client(port: int, options: argparse.Namespace) -> tuple[Any, One]:
    import httpx

    scheme = "https" if options.tls else "http"
    limits = httpx.Limits(max_connections=options.concurrency, max_keepalive_connections=0)
    client = httpx.AsyncClient(limits=limits, timeout=60, trust_env=False, verify=insecure() if options.tls else True)

    async def one(case: int) -> Seen:
        events = Events()
        started = time.monotonic_ns()
        url = f"{scheme}://127.0.0.1:{port}/v1/completions"
        async with client.stream(
            "POST", url, content=body_of(case), headers={"content-type": "application/json"}
        ) as answer:
            async for data in answer.aiter_raw():
                events.feed(data, time.monotonic_ns())
        return Seen(case, started, events.arrivals, events.done and events.usage)

    return client.aclose, one


class RawAnswer(asyncio.Protocol):
    """Stamps every read of one answer; a token is told by its text, and nothing is parsed or checked."""

    def __init__(self, request: bytes) -> None:
        self.request, self.arrivals, self.started = request, [], 0  # type: ignore[var-annotated]
        self.tail = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream
        self.started = time.monotonic_ns()
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self.arrivals.extend([now_ns] * data.count(b'"text":" tok"'))
        self.tail = data[-64:]

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


def raw_client(port: int, options: argparse.Namespace) -> tuple[Any, One]:
    trust = insecure() if options.tls else None

    async def one(case: int) -> Seen:
        body = body_of(case)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        request = head + b"content-length: %d\r\n\r\n" % len(body) + body
        loop = asyncio.get_running_loop()
        _, answer = await loop.create_connection(lambda: RawAnswer(request), "127.0.0.1", port, ssl=trust)
        await answer.ended
        return Seen(case, answer.started, answer.arrivals, answer.tail.endswith(b"[DONE]\n\n\r\n0\r\n\r\n"))

    return no_lease, one


def insecure() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def policy_of(origin: str) -> Any:
    from tasc_collector.contracts.trust_policy import CollectorTrustPolicy

    return CollectorTrustPolicy.from_value(
        {
            "schemaVersion": "tasc-collector-trust-policy-v1",
            "localMode": "literal-loopback-only",
            "maximumRequestDurationMs": 60_000,
            "endpoints": [
                {
                    "alias": "main",
                    "origin": origin,
                    "runtime": {"profileId": "vllm", "build": "0.26.0"},
                    "routes": [{"method": "POST", "pathPrefix": "/v1", "authenticationReferences": []}],
                }
            ],
            "secretReferences": [],
            "evaluatorKeyIds": [],
            "storeRoots": [],
        }
    ).record


def limits_of() -> Any:
    from tasc_collector.contracts.http_limits import HttpLimits

    return HttpLimits(headers_timeout_ms=30_000, body_timeout_ms=30_000, connect_timeout_ms=30_000, deadline_ms=60_000)


async def no_lease() -> None:
    return


def tasc_client(port: int, options: argparse.Namespace) -> tuple[Any, One]:
    from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild, RuntimeInstance
    from tasc_collector.identity import PayloadKey
    from tasc_collector.invocation.dispatch import dispatch
    from tasc_collector.invocation.prepare import CallTarget, prepare
    from tasc_collector.runtimes.profile import Framing, Route
    from tasc_collector.runtimes.registry import get_profile
    from tasc_collector.runtimes.request import Generation
    from tasc_collector.secrets import SecretStore
    from tasc_collector.transport.clock import SystemClock

    policy = policy_of(f"http://127.0.0.1:{port}")
    instance = RuntimeInstance(
        endpoint_descriptor_digest=policy.endpoints[0].binding_digest(None),
        runtime=RuntimeBuild(profile_id="vllm", build="0.26.0"),
        backend=BackendBuild(name="cpu", build="1"),
        model=ModelRevision(id="org/model", revision="r"),
        configuration_digest="sha256:" + "0" * 64,
    )
    target = CallTarget(
        policy, "main", instance, get_profile("vllm", "0.26.0"), Route.COMPLETIONS, Framing.SSE, limits_of()
    )
    key, clock, secrets = PayloadKey("study", "key", bytes(32)), SystemClock(), SecretStore({})

    async def one(case: int) -> Seen:
        generation = Generation(model_id="org/model", max_tokens=128, stream=True, prompt=f"case-{case} {PROMPT}")
        prepared = prepare(target, generation, payload_key=key, secrets=secrets, clock=clock)
        outcome = await dispatch(prepared, lease=no_lease)
        line = outcome.timeline
        arrivals = [line.queued_ns + event.at_ns for event in line.events]
        return Seen(
            case, line.queued_ns + (line.request_started_ns or 0), arrivals, outcome.completed, line.timing_flagged
        )

    return no_lease, one


class Lab:
    """A made-up public address that leads to the bench server."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def resolve(self, host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    async def connect(self, address: Any, port: int) -> socket.socket:
        from tasc_collector.transport.network import SystemNetwork

        return await SystemNetwork().connect(IPv4Address("127.0.0.1"), self.port)

    def peer(self, sock: socket.socket) -> str:
        return "93.184.216.34"


def exchange_client(port: int, options: argparse.Namespace) -> tuple[Any, One]:
    from tasc_collector.runtimes.answer import AnswerReader
    from tasc_collector.runtimes.profile import Framing, Route
    from tasc_collector.runtimes.registry import get_profile
    from tasc_collector.transport.clock import SystemClock
    from tasc_collector.transport.exchange import exchange
    from tasc_collector.transport.network import SystemNetwork
    from tasc_collector.transport.policy import authorize
    from tasc_collector.transport.result import ExchangeRequest
    from tasc_collector.transport.tls import TlsSettings

    origin = "https://bench.example.com" if options.tls else f"http://127.0.0.1:{port}"
    authorized = authorize(
        policy_of(origin),
        alias="main",
        runtime="vllm",
        build="0.26.0",
        method="POST",
        path="/v1/completions",
        authentication_reference=None,
        duration_ms=60_000,
    )
    network = Lab(port) if options.tls else SystemNetwork()
    trust = TlsSettings(spki_pin=options.pin) if options.tls else None
    profile, clock, limits = get_profile("vllm", "0.26.0"), SystemClock(), limits_of()

    async def one(case: int) -> Seen:
        reader = AnswerReader(profile, Route.COMPLETIONS, Framing.SSE, "org/model")
        request = ExchangeRequest(
            authorized,
            (("accept", "text/event-stream"), ("content-type", "application/json")),
            body_of(case),
            limits,
            clock.now_ns() + 60_000_000_000,
            frozenset({"text/event-stream"}),
            tls=trust,
        )
        result = await exchange(request, lease=no_lease, on_data=reader.feed, clock=clock, network=network)
        answer = reader.finish(clean_end=result.clean_end)
        arrivals = [event.at_ns for event in answer.events]
        return Seen(case, result.marks.request_started or 0, arrivals, answer.outcome.value == "completed")

    return no_lease, one


KINDS = {
    "tasc": tasc_client,
    "exchange": exchange_client,
    "aiohttp": aiohttp_client,
    "httpx": httpx_client,
    "raw": raw_client,
}


def burn(core: int) -> None:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    while True:
        pass


async def stalls() -> None:
    """Block the event loop for 5 to 60 ms at random moments."""
    rng = random.Random(7)
    while True:
        await asyncio.sleep(rng.uniform(0.0, 0.05))
        until = time.monotonic_ns() + int(rng.uniform(5e6, 60e6))
        while time.monotonic_ns() < until:
            pass


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    close, one = KINDS[options.kind](options.port, options)
    cases = itertools.count()
    seen: list[Seen] = []
    counting, enough = asyncio.Event(), asyncio.Event()

    async def worker(number: int) -> None:
        await asyncio.sleep(options.spread_s * number / options.concurrency)
        while not enough.is_set():
            item = await one(next(cases))
            if counting.is_set() and not enough.is_set():
                seen.append(item)
                if len(seen) == options.calls:
                    enough.set()

    stalling = asyncio.create_task(stalls()) if options.stall else None
    workers = [asyncio.create_task(worker(number)) for number in range(options.concurrency)]
    await asyncio.sleep(2 * options.spread_s)  # by then every place has begun, and most have made a call
    server = fetch(options.port, "/cpu", tls=options.tls)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    counting.set()
    await enough.wait()
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF)
    server = fetch(options.port, "/cpu", tls=options.tls) - server
    await asyncio.gather(*workers)
    if stalling is not None:
        stalling.cancel()
    await close()
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return {
        "kind": options.kind,
        "tls": options.tls,
        "calls": len(seen),
        "concurrency": options.concurrency,
        "wall_s": round(wall, 3),
        "calls_per_s": round(len(seen) / wall, 1),
        "cpu_ms_per_call": round(1e3 * cpu / len(seen), 3),
        "core_share": round(cpu / wall, 3),
        "server_core_share": round(server / wall, 3),
        "complete": sum(item.complete for item in seen),
        **errors(seen, fetch(options.port, "/sent", tls=options.tls)),
    }


def fetch(port: int, path: str, *, tls: bool) -> Any:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        sock = insecure().wrap_socket(plain) if tls else plain
        sock.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        data = b""
        while piece := sock.recv(1 << 20):
            data += piece
    return json.loads(data.partition(b"\r\n\r\n")[2])


def errors(seen: list[Seen], sent: dict[str, Any]) -> dict[str, Any]:
    """TTFT errors and lags of tokens; with flags, how honest they are.

    The TTFT error holds the server's own lateness in reading the request; the first token's error (arrival as told
    minus sent) is the client's alone, so flags are judged by that one.
    """
    ttft, first, lag, flags = [], [], [], []
    for item in seen:
        read_ns, sent_ns = sent[str(item.case)]
        if len(item.arrivals_ns) != len(sent_ns):
            continue
        ttft.append((item.arrivals_ns[0] - item.started_ns) - (sent_ns[0] - read_ns))
        first.append(item.arrivals_ns[0] - sent_ns[0])
        flags.append(bool(item.flagged))
        lag.extend(a - b for a, b in zip(item.arrivals_ns, sent_ns, strict=True))
    first_ns, flagged = np.array(first), np.array(flags)
    found: dict[str, Any] = {
        "ttft_error_us": percentiles(np.array(ttft)),
        "first_token_error_us": percentiles(first_ns),
        "token_lag_us": percentiles(np.array(lag)),
    }
    if seen and seen[0].flagged is not None:
        wrong = np.abs(first_ns) > FLAG_NS
        found |= {
            "flagged": int(flagged.sum()),
            "over_3ms": int(wrong.sum()),
            "over_3ms_unflagged": int((wrong & ~flagged).sum()),
            "unflagged_first_token_error_us": percentiles(first_ns[~flagged]),
        }
    return found


def percentiles(values: Any) -> dict[str, float]:
    if len(values) == 0:
        return {}
    return {f"p{level:g}": round(float(np.percentile(values, level)) / 1e3, 1) for level in (50, 95, 99, 100)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--spread-s", type=float, default=0.75)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--pin", default="")
    parser.add_argument("--stall", action="store_true", help="block the event loop at random")
    parser.add_argument("--burn", action="store_true", help="share the core with a process that never sleeps")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})
    burner = multiprocessing.Process(target=burn, args=(options.core,), daemon=True) if options.burn else None
    if burner is not None:
        burner.start()
    if options.loop == "uvloop":
        import uvloop

        result = uvloop.run(measure(options))
    else:
        result = asyncio.run(measure(options))
    if burner is not None:
        burner.kill()
    print(json.dumps({**result, "loop": options.loop, "stall": options.stall, "burn": options.burn}))


if __name__ == "__main__":
    main()
