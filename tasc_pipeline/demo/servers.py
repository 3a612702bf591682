"""Two contract servers as child processes of the demo, with different token timing.

They end with the demo, however it ends: each watches a pipe that only the demo holds open. Their ledgers are appended to,
so that counts survive a demo that was killed and run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tasc_collector.errors import InputError

STOP_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class DemoServer:
    """How one server of the demo answers."""

    name: str
    runtime: str
    port: int
    ttft_ms: float
    itl_ms: float
    tokens: int
    answer_prefix: str = ""


CHAMPION = DemoServer("champion", "vllm", 18101, ttft_ms=40, itl_ms=6, tokens=24)
CANDIDATE = DemoServer("candidate", "llama.cpp", 18102, ttft_ms=34, itl_ms=7, tokens=24)


def pair(ports: tuple[int, int], answer_prefix: str = "") -> tuple[DemoServer, DemoServer]:
    """Champion and candidate on these ports; 0 is any that is free."""
    champion, candidate = ports
    return (
        replace(CHAMPION, port=champion, answer_prefix=answer_prefix),
        replace(CANDIDATE, port=candidate, answer_prefix=answer_prefix),
    )


@contextmanager
def running(servers: tuple[DemoServer, ...], ledgers: Path) -> Iterator[dict[str, str]]:
    """Start the servers and stop them at the end.

    Yields:
        Origin by server name.

    Raises:
        InputError: a port is occupied; names the port.
    """
    with ExitStack() as stack:
        yield {server.name: stack.enter_context(_one(server, ledgers)) for server in servers}


@contextmanager
def _one(server: DemoServer, ledgers: Path) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "tasc_collector.contract_servers",
        server.runtime,
        "--port",
        str(server.port),
        "--ttft-ms",
        str(server.ttft_ms),
        "--itl-ms",
        str(server.itl_ms),
        "--tokens",
        str(server.tokens),
        "--timing-spread",
        "0.2",
        "--ledger",
        str(ledgers / f"{server.name}.jsonl"),
        "--until-stdin-closes",
        "--answer-prefix",
        server.answer_prefix,
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        line = process.stdout.readline()
        if not line:
            raise InputError(
                f"the demo's {server.name} server could not start on port {server.port}",
                where=f"127.0.0.1:{server.port}",
                rule="the port must be free",
                way_out="stop what uses the port, or run the demo in a state folder of its own on ports that are free: "
                "TASC_HOME=FOLDER tasc demo --port 0",
            )
        yield str(json.loads(line)["origin"])
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
