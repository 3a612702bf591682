"""The options of a contract server as a process: one table for ``python -m`` and for ``tasc contract-server``."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import orjson

from tasc_collector.contract_servers.behaviour import Behaviour, FaultScope, TlsFiles
from tasc_collector.contract_servers.faults import FAULTS
from tasc_collector.contract_servers.server import ContractServer
from tasc_collector.errors import InputError


def read_calls(text: str | None) -> frozenset[int] | None:
    """Call numbers from ``3,7,10-12``; None for None.

    Raises:
        InputError: not numbers and ranges of them.
    """
    if text is None:
        return None
    numbers: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            numbers.update(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        raise InputError(
            "call numbers cannot be read",
            where="contract server",
            field="fault-calls",
            way_out="write numbers and ranges, as in 3,7,10-12",
        ) from None
    return frozenset(numbers)


def read_scope(text: str | None) -> FaultScope | None:
    """A fault scope by name; None for None.

    Raises:
        InputError: no such scope.
    """
    if text is None:
        return None
    if text not in tuple(FaultScope):
        raise InputError(
            "no such scope",
            where="contract server",
            field="fault-scope",
            way_out="choose one of: " + ", ".join(FaultScope),
        )
    return FaultScope(text)


def read_tls(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Both files or neither.

    Raises:
        InputError: one without the other.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError(
            "TLS needs both files", where="contract server", field="tls", way_out="give --tls-cert and --tls-key"
        )
    return TlsFiles(certificate, key)


def fault_lines() -> list[str]:
    """Every fault with its rows and its summary, one line each."""
    width = max(len(name) for name in FAULTS)
    return [
        f"{name:<{width}}  {','.join(fault.rows) or '-':<12}  {fault.summary}" for name, fault in sorted(FAULTS.items())
    ]


def announcement(server: ContractServer, behaviour: Behaviour) -> str:
    """The one JSON line that says that the server is ready."""
    ready = {"origin": server.origin, "port": server.port, "model": server.model, "fault": behaviour.fault}
    return orjson.dumps(ready).decode()


def serve(server: ContractServer, announce: Callable[[str], None], *, until_stdin_closes: bool = False) -> None:
    """Run a server until SIGINT or SIGTERM; main thread only.

    Args:
        server: not started yet.
        announce: gets the ready line once connections are accepted.
        until_stdin_closes: also end when standard input does, so that a killed parent leaves no server behind.
    """
    stopping = threading.Event()
    if until_stdin_closes:
        threading.Thread(target=_watch_stdin, args=(stopping,), name="parent-watch", daemon=True).start()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with server:
            announce(announcement(server, server.behaviour))
            stopping.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch_stdin(stopping: threading.Event) -> None:
    sys.stdin.buffer.read()
    stopping.set()
