"""Faults of connections and time: nothing comes, it comes too late, it breaks off. They can hit any route."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from tasc_collector.contract_servers.faults.model import Action, Fault, Moment
from tasc_collector.contract_servers.faults.wires import half, only, part_head
from tasc_collector.contract_servers.plan import Coding, End, Plan, Wire, Write, chunk

_DRIP_S: Final = 0.02
"""Between two bytes of a drip: far under any idle limit, so only a deadline for the whole ends it."""

_PARTIAL_HEAD_BYTES: Final = 27


def _nothing(end: End) -> Callable[[Wire], Wire]:
    return lambda wire: only(end=end)


def _partial_head(end: End) -> Callable[[Wire], Wire]:
    return lambda wire: only(Write(0.0, part_head(wire)[0][:_PARTIAL_HEAD_BYTES]), end=end)


def _broken(end: End) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, pieces=half(plan), end=end, cut=True)


def _length_cut(plan: Plan) -> Plan:
    return replace(plan, coding=Coding.LENGTH, cut=True, end=End.FIN)


def _dripped(data: bytes) -> Iterable[Write]:
    return (Write(number * _DRIP_S, data[number : number + 1]) for number in range(len(data)))


def _drip_headers(wire: Wire) -> Wire:
    head, rest = part_head(wire)
    late_s = len(head) * _DRIP_S
    later = [Write(max(late_s, write.due_s), write.data) for write in rest]
    return replace(wire, writes=[*_dripped(head), *later], stamp=None)


def _drip_body(wire: Wire) -> Wire:
    head, rest = part_head(wire)
    return replace(wire, writes=[Write(0.0, head), *_dripped(b"".join(write.data for write in rest))], stamp=None)


def _endless(first: list[Write], data: bytes) -> Wire:
    return Wire(itertools.chain(first, itertools.repeat(Write(0.0, data))), End.STALL, keep_alive=False)


def _endless_1xx(wire: Wire) -> Wire:
    return _endless([], b"HTTP/1.1 103 Early Hints\r\n\r\n" * 16)


def _endless_body(wire: Wire) -> Wire:
    """The first event again and again, in chunks; a JSON body is an opening bracket for ever."""
    head, rest = part_head(wire)
    chunked = b"Transfer-Encoding: chunked" in head
    body = next((write.data for write in rest if write.data), b"") if chunked else b""
    if not chunked:
        lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"content-length")]
        head = b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""])
    return _endless([Write(0.0, head)], body or chunk(b"[" * 64))


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("refused", (), "nothing listens on the port", moment=Moment.LISTEN, action=Action.REFUSE),
    Fault(
        "backlog-full", (), "the accept queue is full: connects hang", moment=Moment.LISTEN, action=Action.FILL_BACKLOG
    ),
    Fault("reset-at-accept", (), "RST right after accept", moment=Moment.ACCEPT, action=Action.RESET),
    Fault(
        "close-at-accept",
        (),
        "FIN right after accept, before or within any handshake",
        moment=Moment.ACCEPT,
        action=Action.CLOSE,
    ),
    Fault(
        "silent-accept",
        (),
        "nothing is read or written; a TLS handshake stalls",
        moment=Moment.ACCEPT,
        action=Action.SILENT,
    ),
    Fault("reset-in-request", (), "RST when the request's head is here", moment=Moment.HEAD, action=Action.RESET),
    Fault(
        "stop-reading", (), "the request's body is not read any further", moment=Moment.HEAD, action=Action.STOP_READING
    ),
    Fault("early-413", (), "413 and RST before the request's body", moment=Moment.HEAD, action=Action.REPLY_413),
    Fault("close-before-status", ("T15",), "the request is read, then FIN without a byte", wire=_nothing(End.FIN)),
    Fault("reset-before-status", (), "the request is read, then RST", wire=_nothing(End.RESET)),
    Fault("half-close", (), "the server closes its writing side and waits", wire=_nothing(End.HALF_CLOSE)),
    Fault("stall-headers", ("C02", "P06"), "no byte ever comes; health stays good", wire=_nothing(End.STALL)),
    Fault("partial-headers-stall", (), "27 bytes of the head, then nothing", wire=_partial_head(End.STALL)),
    Fault("partial-headers-cut", (), "27 bytes of the head, then FIN", wire=_partial_head(End.FIN)),
    Fault("drip-headers", (), "the head comes one byte every 20 ms", wire=_drip_headers),
    Fault("drip-body", (), "the body comes one byte every 20 ms", wire=_drip_body),
    Fault("stall-body", ("C01", "C03", "C04"), "half of the body, then nothing", plan=_broken(End.STALL)),
    Fault("body-cut", ("T06",), "half of the body, then FIN; length or chunks promise more", plan=_broken(End.FIN)),
    Fault("reset-mid-body", (), "half of the body, then RST", plan=_broken(End.RESET)),
    Fault("length-cut", (), "Content-Length promises 64 bytes more than come", plan=_length_cut),
    Fault("endless-1xx", (), "interim responses without end", wire=_endless_1xx),
    Fault("endless-body", (), "the body never ends", wire=_endless_body),
)
"""Faults of connections and time."""
