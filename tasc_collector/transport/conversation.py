"""The only lines from which an application byte leaves: one request and its answer on a connected socket.

Rules:

1. The write ledger: ``state`` becomes ``sent_unknown`` and ``request_started`` is set right before the first
   application byte is handed to the system, and nowhere else. ``completed`` needs the whole answer, well framed.
2. Reading goes on while writing: an early refusal is an answer; an early success is a violation.
3. The time of a read is taken before its bytes are looked at.
4. After the end of the answer we say that we are done, and the socket is watched for ``TAIL_GRACE_MS`` or until the
   peer closes: an application byte is a violation.
5. One timer serves all phases. When it fires, bytes that already lie in the socket are read first, so that a late event
   loop does not make a timeout of a timely answer.
6. Whatever is not a clean end resets the socket, so that no queued byte leaves later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from tasc_collector.errors import DispatchState, WireError
from tasc_collector.limits import READ_BYTES, TAIL_GRACE_MS
from tasc_collector.runtimes.result import Arrival
from tasc_collector.transport.arrival import ANCILLARY_BYTES, ArrivalClock
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.codes import Code
from tasc_collector.transport.head import check_success, note_head, refuse_status
from tasc_collector.transport.http1 import Head, Http1Limits, ResponseReader
from tasc_collector.transport.network import reset
from tasc_collector.transport.resolver import not_sent
from tasc_collector.transport.result import ExchangeRequest, ExchangeResult
from tasc_collector.transport.tls import TlsChannel

OnHead = Callable[[Head], None]
OnData = Callable[[bytes, Arrival], None]
_MS = 1_000_000


# phases of a conversation; plain integers, because they are compared for every read of every stream
_WRITE, _AWAIT_HEAD, _BODY, _TAIL = range(4)
_TIMEOUT_CODE = {_WRITE: Code.WRITE_TIMEOUT, _AWAIT_HEAD: Code.HEADERS_TIMEOUT, _BODY: Code.BODY_TIMEOUT}


class Conversation:
    """One request and one answer. Use: ``refuse_early_bytes``, then ``run`` once, then ``close``.

    Args:
        sock: connected, non-blocking.
        tls: the session after its handshake, or None for plain loopback http.
        request: what is asked.
        result: filled as things happen; readable at every moment.
        clock: both clocks.
        stamps: maps kernel times.
        on_head: called with the final head of a 200 answer.
        on_data: called with the body bytes of each read of a 200 answer.
    """

    __slots__ = (
        "_broken",
        "_done",
        "_fd",
        "_first_byte_ns",
        "_lag_max_ns",
        "_last_byte_ns",
        "_loop",
        "_now",
        "_on_data",
        "_on_head",
        "_out",
        "_over",
        "_phase",
        "_phase_ns",
        "_reader",
        "_reads",
        "_recvmsg",
        "_refusal",
        "_request",
        "_response_bytes",
        "_result",
        "_sock",
        "_stamps",
        "_successful",
        "_timer",
        "_tls",
        "_wall",
        "_wire_bytes",
        "_writing",
    )

    def __init__(
        self,
        sock: socket.socket,
        tls: TlsChannel | None,
        request: ExchangeRequest,
        result: ExchangeResult,
        *,
        clock: Clock,
        stamps: ArrivalClock,
        on_head: OnHead | None,
        on_data: OnData,
    ) -> None:
        limits = request.limits
        self._sock, self._fd, self._tls = sock, sock.fileno(), tls
        self._recvmsg = sock.recvmsg
        self._request, self._result = request, result
        self._now, self._wall, self._stamps = clock.now_ns, clock.wall_ns, stamps
        self._on_head, self._on_data = on_head, on_data
        self._reader = ResponseReader(
            Http1Limits(
                limits.max_response_header_bytes,
                limits.max_response_headers,
                limits.max_response_bytes,
                limits.max_response_chunks,
            ),
            close_delimited=request.close_delimited,
        )
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[Code | None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._out = memoryview(b"")
        self._wire_bytes = 0
        self._writing = False
        self._broken = False
        self._phase = _WRITE
        self._phase_ns = 0
        self._refusal: Code | None = None
        self._successful = False
        self._over = False
        self._reads = self._response_bytes = 0
        self._lag_max_ns = -1
        self._first_byte_ns: int | None = None
        self._last_byte_ns: int | None = None

    def refuse_early_bytes(self) -> None:
        """Check, before byte one, that the peer neither closed nor spoke.

        Raises:
            TransportError: it did; not sent.
        """
        data: bytes | None
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            data = None
        except OSError:
            raise not_sent(Code.CONNECTION_RESET) from None
        spoken = data
        if self._tls is not None:
            try:
                # also what the handshake's last read brought along
                spoken = self._tls.decrypt(data or b"")
            except ssl.SSLError:
                raise not_sent(Code.TLS_FAILED) from None
        if spoken:
            raise not_sent(Code.UNSOLICITED_BYTES)
        if data == b"" or (self._tls is not None and self._tls.closed):
            raise not_sent(Code.CONNECTION_CLOSED)

    async def run(self, message: bytes) -> None:
        """Send the request and read its answer; fills ``result``. Cancelling it is safe: ``result`` says how far it
        came.

        Args:
            message: head and body of the request.
        """
        wire = self._tls.encrypt(message) if self._tls is not None else message
        self._out = memoryview(wire)
        self._wire_bytes = len(wire)
        self._loop.add_reader(self._fd, self._readable)
        self._result.request_bytes = len(message)
        self._result.started_at_ms = self._wall() // _MS
        self._phase_ns = self._result.marks.request_started = self._now()
        self._result.state = DispatchState.SENT_UNKNOWN
        self._send()
        self._arm()
        try:
            code = await self._done
        finally:
            self._settle()
        self._result.code = code
        self._result.clean_end = self._reader.complete and code in {None, self._refusal}
        if self._result.clean_end:
            self._result.state = DispatchState.COMPLETED

    def close(self) -> None:
        """Let go of the socket: in order after a clean end, else with a reset."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._fd)
        self._stop_writing()
        if self._result.clean_end and not self._out:
            self._sock.close()
        else:
            reset(self._sock)

    def _settle(self) -> None:
        """Write what was counted into the result, however the call ended."""
        result = self._result
        self._over = True
        result.reads, result.response_bytes, result.body_bytes = (
            self._reads,
            self._response_bytes,
            self._reader.body_bytes,
        )
        result.lag_max_ns = self._lag_max_ns if self._lag_max_ns >= 0 else None
        result.marks.last_byte = self._last_byte_ns
        result.clock_set = self._stamps.wall_clock_was_set()

    def _finish(self, code: Code | None) -> None:
        self._over = True
        if not self._done.done():
            self._done.set_result(code)

    def _send(self) -> None:
        """Hand bytes to the system until it takes no more."""
        while self._out:
            try:
                sent = self._sock.send(self._out)
            except (BlockingIOError, InterruptedError):
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._fd, self._send)
                return
            except OSError:
                self._stop_writing()
                self._broken = True
                self._readable()  # a refusal may lie before the reset
                # behind a whole answer only our goodbye was lost
                self._finish(self._refusal if self._phase == _TAIL else Code.CONNECTION_RESET)
                return
            if self._result.marks.request_written is None and len(self._out) == self._wire_bytes:
                self._result.start_uncertainty_ns = self._now() - (self._result.marks.request_started or 0)
            self._out = self._out[sent:]
        self._stop_writing()
        marks = self._result.marks
        if marks.request_written is None:
            marks.request_written = self._now()
            if self._phase == _WRITE:
                self._phase, self._phase_ns = _AWAIT_HEAD, marks.request_written

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        """Take one read's bytes, its time first."""
        if self._over:
            return
        try:
            data, ancillary, _, _ = self._recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._finish(self._refusal if self._phase == _TAIL else Code.CONNECTION_RESET)
            return
        now_ns = self._now()
        try:
            if data:
                arrival = self._stamps.arrival(ancillary, now_ns)
                if self._phase == _BODY and self._tls is None:
                    self._take_body(data, arrival)
                else:
                    self._take(data, arrival)
            elif not self._broken:
                self._end()
        except WireError as error:
            self._finish(Code(error.code))
        except ssl.SSLError:
            self._finish(self._refusal if self._phase == _TAIL else Code.TLS_FAILED)

    def _take(self, data: bytes, arrival: Arrival) -> None:
        if self._tls is not None:
            data = self._decrypt(data)
            if not data:
                if self._tls.closed:
                    self._end()
                return
        if self._phase == _TAIL:
            raise WireError(Code.BYTES_AFTER_END)
        self._take_body(data, arrival)
        if self._tls is not None and self._tls.closed and self._phase != _TAIL:
            self._end()

    def _take_body(self, data: bytes, arrival: Arrival) -> None:
        """Take application bytes of the answer: the head where it is not complete yet, and body."""
        at_ns = self._last_byte_ns = self._stamps.last_ns
        self._reads += 1
        self._response_bytes += len(data)
        lag_ns = arrival.lag_ns
        if lag_ns is not None and lag_ns > self._lag_max_ns:
            self._lag_max_ns = lag_ns
        reader = self._reader
        body = reader.feed(data)
        if self._phase != _BODY and reader.head is not None:
            self._take_head(reader.head, at_ns)
        if body:
            self._phase_ns = at_ns
            if self._first_byte_ns is None:
                self._first_byte_ns = self._result.marks.first_byte = at_ns
            if self._successful:
                try:
                    self._on_data(body, arrival)
                except Exception:  # noqa: BLE001 - the boundary to the caller's reader; its exception may hold output
                    raise WireError(Code.CONSUMER_FAILED) from None
        if reader.complete:
            self._complete()

    def _decrypt(self, data: bytes) -> bytes:
        tls = self._tls
        if tls is None:
            return data
        plain = tls.decrypt(data)
        answer = tls.pending()
        if answer:
            self._out = memoryview(bytes(self._out) + answer)
            self._send()
        return plain

    def _take_head(self, head: Head, at_ns: int) -> None:
        result = self._result
        self._phase, self._phase_ns = _BODY, at_ns
        noted = note_head(head)
        result.marks.headers = at_ns
        if result.marks.request_written is not None:
            # the peer can answer before our own clock is read again after the last hand-over
            result.marks.request_written = min(result.marks.request_written, at_ns)
        result.status, result.content_type = noted.status, noted.content_type
        result.retry_after_s, result.request_id = noted.retry_after_s, noted.request_id
        self._refusal = refuse_status(head.status)
        if self._refusal is not None:
            return
        if result.marks.request_written is None:
            raise WireError(Code.EARLY_RESPONSE)
        check_success(head, self._request.content_types)
        self._successful = True
        if self._on_head is not None:
            self._on_head(head)

    def _end(self) -> None:
        """The peer closed."""
        if self._phase != _TAIL:
            self._reader.end()
            if self._result.marks.request_written is None:
                raise WireError(Code.EARLY_RESPONSE if self._refusal is None else self._refusal)
        self._finish(self._refusal)

    def _complete(self) -> None:
        """The answer ended by its own framing: watch the tail."""
        if self._result.marks.request_written is None:
            self._finish(self._refusal)
            return
        self._phase, self._phase_ns = _TAIL, self._now()
        if self._tls is not None:
            self._out = memoryview(self._tls.goodbye())
            self._send()
        else:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
        self._arm()
        self._readable()

    def _due(self) -> tuple[int, Code | None]:
        """When the current phase is over, and what that means."""
        limits = self._request.limits
        if self._phase == _TAIL:
            return self._phase_ns + TAIL_GRACE_MS * _MS, self._refusal
        span_ms = limits.body_timeout_ms if self._phase == _BODY else limits.headers_timeout_ms
        due = self._phase_ns + span_ms * _MS
        if due >= self._request.deadline_ns:
            return self._request.deadline_ns, Code.DEADLINE_EXCEEDED
        return due, _TIMEOUT_CODE[self._phase]

    def _arm(self) -> None:
        if self._over:
            return
        if self._timer is not None:
            self._timer.cancel()
        due, _ = self._due()
        self._timer = self._loop.call_later(max(due - self._now(), 0) / 1e9, self._tick)

    def _tick(self) -> None:
        if self._now() >= self._due()[0]:
            self._readable()
            due, code = self._due()
            if self._now() >= due:
                self._finish(code)
                return
        self._arm()
