"""A contract server on a real loopback socket, in a thread with its own event loop.

::

    with ContractServer("vllm", behaviour=Behaviour(ttft_ms=20, itl_ms=5)) as server:
        ... server.origin ... server.ledger.inference_calls

It is deterministic, speaks for exactly one pinned build, and counts everything that it receives.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tasc_collector.contract_servers.behaviour import Behaviour, TlsFiles
from tasc_collector.contract_servers.connection import Connection
from tasc_collector.contract_servers.contract import Contract
from tasc_collector.contract_servers.faults import find_fault
from tasc_collector.contract_servers.faults.model import Action, Moment
from tasc_collector.contract_servers.ledger import Ledger
from tasc_collector.contract_servers.responder import Responder
from tasc_collector.contract_servers.runtimes import CONTRACTS
from tasc_collector.errors import InputError

_BACKLOG: Final = 4096
_WHERE: Final = "contract server"


def find_contract(runtime: str, build: str | None) -> Contract:
    """The contract of a runtime at its pinned build.

    Raises:
        InputError: the runtime is unknown, or the build is not the pinned one.
    """
    contract = CONTRACTS.get(runtime)
    if contract is None:
        known = ", ".join(sorted(CONTRACTS))
        raise InputError(
            "the runtime has no contract server", where=_WHERE, field="runtime", way_out=f"choose one of: {known}"
        )
    if build not in (None, contract.build):
        raise InputError(
            "the build has no contract server",
            where=_WHERE,
            field="build",
            way_out=f"use the pinned build {contract.build}",
        )
    return contract


class ContractServer:
    """One runtime's wire on a socket.

    Args:
        runtime: runtime name as in the profile registry (``vllm``, ``llama.cpp``, ``ollama`` ...).
        build: the pinned build, or None for it.
        behaviour: timing, lengths, faults.
        host: address to listen on; a literal.
        port: port, 0 for a free one.
        tls: PEM files; None speaks plain HTTP.
        ledger_path: file for the ledger, or None.
        loop_factory: makes the event loop; None uses asyncio's own.

    Raises:
        InputError: unknown runtime, build or fault; the port is taken; a file cannot be read.
    """

    def __init__(
        self,
        runtime: str,
        build: str | None = None,
        *,
        behaviour: Behaviour | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: TlsFiles | None = None,
        ledger_path: Path | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._behaviour = behaviour or Behaviour()
        self._contract = find_contract(runtime, build)
        self._listening = find_fault(self._behaviour.fault)
        self._context = _server_context(tls) if tls is not None else None
        self._host, self._scheme = host, "https" if tls is not None else "http"
        self.ledger: Final = Ledger(ledger_path)
        self._responder = Responder(self._contract, self._behaviour, self.ledger)
        self._socket = self._bind(port)
        self.port: Final[int] = self._socket.getsockname()[1]
        self._new_loop = loop_factory or asyncio.new_event_loop
        self._fillers: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self._accepted = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()

    @property
    def origin(self) -> str:
        """``scheme://address:port``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    @property
    def runtime(self) -> str:
        """The runtime whose contract is served."""
        return self._contract.runtime

    @property
    def model(self) -> str:
        """The served model's name."""
        return self.behaviour.model or self._contract.model

    @property
    def behaviour(self) -> Behaviour:
        """How the next request is answered; assign to change it while the server runs."""
        return self._behaviour

    @behaviour.setter
    def behaviour(self, behaviour: Behaviour) -> None:
        fault = find_fault(behaviour.fault)
        if fault is not None and fault.moment is Moment.LISTEN:
            raise InputError(
                "this fault needs a server of its own",
                where=_WHERE,
                field="fault",
                way_out="give it when the server is made",
            )
        self._behaviour = behaviour
        self._responder.behaviour = behaviour

    # --- life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen. Returns when connections are accepted (or refused, where that is the fault)."""
        fault = self._listening
        if fault is not None and fault.action is Action.REFUSE:
            return
        if fault is not None and fault.action is Action.FILL_BACKLOG:
            self._fill_backlog()
            return
        self._socket.listen(_BACKLOG)
        self._thread = threading.Thread(target=self._run, name=f"contract-server-{self.port}", daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Close the listener and every connection, end the thread, close the ledger's file. May be called twice."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for filler in self._fillers:
            filler.close()
        self._socket.close()
        self.ledger.close()

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self._host, port))
        except OSError:
            bound.close()
            self.ledger.close()
            raise InputError(
                "the address cannot be listened on",
                where=_WHERE,
                field="port",
                way_out="choose another port, or 0 for a free one",
            ) from None
        bound.setblocking(False)
        return bound

    def _fill_backlog(self) -> None:
        """A listener whose queue is full and that never accepts: further connects hang (Linux drops their SYN)."""
        self._socket.listen(0)
        for _ in range(4):
            filler = socket.socket(self._socket.family, socket.SOCK_STREAM)
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect((self._host, self.port))
            self._fillers.append(filler)

    def _run(self) -> None:
        loop = self._new_loop()
        self._loop = loop
        try:
            server = loop.run_until_complete(
                loop.create_server(lambda: self._connect(loop), sock=self._socket, ssl=self._context, backlog=_BACKLOG)
            )
            loop.call_soon(self._ready.set)
            loop.run_forever()
            server.close()
            for connection in tuple(self._connections):
                connection.close()
            loop.run_until_complete(_turns(3))
        finally:
            self._ready.set()
            loop.close()

    def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        self._accepted += 1
        return Connection(loop, self._responder, self._accepted, self._track)

    def _track(self, connection: Connection, opened: bool) -> None:  # noqa: FBT001  # a callback
        (self._connections.add if opened else self._connections.discard)(connection)


async def _turns(count: int) -> None:
    """Let the loop turn, so that aborted transports close their sockets."""
    for _ in range(count):
        await asyncio.sleep(0)


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError):
        raise InputError(
            "certificate or key cannot be used",
            where=_WHERE,
            field="tls",
            way_out="name a PEM chain, leaf first, and its key",
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context
