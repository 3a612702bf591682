"""One connection of a contract server: bytes in, requests out; a wire in, timed writes out.

Rules
- One answer at a time; bytes that come meanwhile wait in the parser.
- A write leaves at its due time or as soon after as the loop turns; the schedule is absolute: lateness never adds up.
- When the peer reads slowly the player waits; when the peer is gone it stops and the ledger says so.
- After a clean end the connection waits for the next request, unless the answer closes it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, cast

from tasc_collector.contract_servers.faults.model import Action, Fault, Moment
from tasc_collector.contract_servers.generation import Generation
from tasc_collector.contract_servers.http import BadRequest, RequestHead, RequestParser
from tasc_collector.contract_servers.ledger import Entry, EntryKind
from tasc_collector.contract_servers.plan import Coding, End, Plan, Wire, Write, to_wire
from tasc_collector.contract_servers.responder import Answered, Responder

_WRITES_PER_TURN: Final = 256
"""Writes in one turn of the loop; an endless body must not starve the other connections."""


class Player:
    """Plays one wire on a transport.

    Args:
        loop: the server's loop.
        transport: where bytes go.
        wire: what is played.
        on_end: called once with the wire's end when the last write was made.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, wire: Wire, on_end: Callable[[End], None]
    ) -> None:
        self._loop, self._transport, self._wire, self._on_end = loop, transport, wire, on_end
        self._writes: Iterator[Write] = iter(wire.writes)
        self._next: Write | None = None
        self._start_s = 0.0
        self._handle: asyncio.Handle | None = None
        self._paused = False
        self.sent = 0

    def start(self) -> None:
        """Begin; due times count from now."""
        self._start_s = self._loop.time()
        self._next = next(self._writes, None)
        self._turn()

    def stop(self) -> None:
        """Write no more."""
        self._next = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._paused = True

    def resume(self) -> None:
        """The transport's buffer has room again."""
        self._paused = False
        if self._handle is None and self._next is not None:
            self._turn()

    def _turn(self) -> None:
        self._handle = None
        now_s = self._loop.time() - self._start_s
        for _ in range(_WRITES_PER_TURN):
            write = self._next
            if write is None:
                self._on_end(self._wire.end)
                return
            if write.due_s > now_s:
                self._handle = self._loop.call_at(self._start_s + write.due_s, self._turn)
                return
            if self._paused or self._transport.is_closing():
                return
            if write.stamped and self._wire.stamp is not None:
                self._transport.write(self._wire.stamp(write.data, time.monotonic_ns()))
            else:
                self._transport.write(write.data)
            self.sent += 1
            self._next = next(self._writes, None)
        self._handle = self._loop.call_soon(self._turn)


class Connection(asyncio.Protocol):
    """The protocol of one accepted connection.

    Args:
        loop: the server's loop.
        responder: answers its requests.
        number: 1-based number of the connection.
        track: called with (connection, still open) so that the server can close what is left.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        responder: Responder,
        number: int,
        track: Callable[[Connection, bool], None],
    ) -> None:
        self._loop, self._responder, self._number, self._track = loop, responder, number, track
        self._parser = RequestParser()
        self._transport: asyncio.Transport | None = None
        self._player: Player | None = None
        self._generation: Generation | None = None
        self._keep_alive = True
        self._call = 0
        self._deaf = False

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter the connection; act on a fault of this moment."""
        self._transport = cast(
            "asyncio.Transport", transport
        )  # asyncio types the base class; TCP and TLS give this one
        self._track(self, True)
        fault = self._responder.early_fault(Moment.ACCEPT, self._number)
        self._enter(EntryKind.CONNECTION, fault=fault.name if fault else "")
        self._act(fault)

    def data_received(self, data: bytes) -> None:
        """Take request bytes; answer when a request is whole and none is being answered."""
        if not self._deaf:
            self._parser.feed(data)
            self._advance()

    def eof_received(self) -> bool:
        """A client that only closes its writing side still gets its answer."""
        return self._player is not None and self._transport is not None and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop playing; enter what was cut short."""
        self._track(self, False)
        if self._parser.head is not None or self._parser.pending:
            head = self._parser.head
            self._enter(EntryKind.PARTIAL, head, self._parser.pending)
        if self._player is not None:
            self._player.stop()
            if self._generation is not None:
                self._abandon(self._player.sent)
        self._transport = self._player = None

    def pause_writing(self) -> None:
        """The peer reads slowly."""
        if self._player is not None:
            self._player.pause()

    def resume_writing(self) -> None:
        """The peer reads again."""
        if self._player is not None:
            self._player.resume()

    # --- requests ------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self._player is not None or self._transport is None:
            return
        try:
            if self._parser.head is None:
                head = self._parser.take_head()
                if head is None:
                    return
                self._call = self._responder.number_call(head)
                self._act(self._responder.early_fault(Moment.HEAD, self._call) if self._call else None)
                if self._deaf:
                    return
                if head.headers.get("expect", "").lower() == "100-continue":
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request = self._parser.take_request()
        except BadRequest as bad:
            self._deaf = True
            self._play(Answered(to_wire(Plan(bad.status, (), (), Coding.LENGTH, keep_alive=False))))
            return
        if request is not None:
            self._play(self._responder.answer(request, self._call, self._number))

    def _play(self, answered: Answered) -> None:
        if self._transport is None:
            return
        self._generation = answered.generation
        self._keep_alive = answered.wire.keep_alive
        self._player = Player(self._loop, self._transport, answered.wire, self._ended)
        self._player.start()

    def _ended(self, end: End) -> None:
        """The last byte was written: settle the counters and do what the wire's end says."""
        transport, generation = self._transport, self._generation
        if transport is None or end is End.STALL:
            return
        if generation is not None:
            ttft_s = generation.ttft_ms / 1000
            reason = generation.finish if isinstance(generation.finish, str) else ""
            self._responder.counters.end(generation.output_tokens, reason, ttft_s, ttft_s + generation.decode_ms / 1000)
            self._generation = None
        match end:
            case End.RESET:
                self._reset()
            case End.FIN:
                transport.close()
            case End.HALF_CLOSE if transport.can_write_eof():
                transport.write_eof()
            case End.CLEAN if not self._keep_alive:
                transport.close()
            case End.CLEAN:
                self._player = None
                self._loop.call_soon(self._advance)

    def _abandon(self, writes: int) -> None:
        generation, self._generation = self._generation, None
        if generation is None:
            return
        self._responder.counters.abandon(min(generation.output_tokens, max(0, writes - 1)))
        self._enter(EntryKind.CANCELLED)

    # --- faults that act before an answer ------------------------------------------------------------------------

    def _act(self, fault: Fault | None) -> None:
        if fault is None or self._transport is None:
            return
        self._deaf = True
        match fault.action:
            case Action.RESET:
                self._reset()
            case Action.CLOSE:
                self._transport.close()
            case Action.SILENT | Action.STOP_READING:
                self._transport.pause_reading()
            case Action.REPLY_413:
                plan = Plan(413, (), (), Coding.LENGTH, end=End.RESET, keep_alive=False)
                self._play(Answered(to_wire(plan)))

    def _reset(self) -> None:
        """Close with RST: no lingering, nothing flushed."""
        if self._transport is None:
            return
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _enter(self, kind: EntryKind, head: RequestHead | None = None, received: int = 0, fault: str = "") -> None:
        entry = Entry(
            kind,
            self._number,
            method=head.method if head is not None else "",
            path=head.path if head is not None else "",
            body_bytes=received,
            fault=fault,
        )
        self._responder.ledger.enter(entry)

    def close(self) -> None:
        """End the connection at once; used when the server stops."""
        if self._transport is not None:
            self._transport.abort()
