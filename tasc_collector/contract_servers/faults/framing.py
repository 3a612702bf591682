"""Faults of HTTP itself: headers, interim responses, body framing, codings, bytes that belong to no response."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tasc_collector.contract_servers.faults.model import STREAMS, Fault
from tasc_collector.contract_servers.faults.wires import listed, only, part_head, plain, with_headers, without_media
from tasc_collector.contract_servers.plan import Coding, End, Headers, Piece, Plan, Wire, Write

_HINT: Final = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


def _headers(headers: Headers) -> Callable[[Plan], Plan]:
    return lambda plan: with_headers(plan, *headers)


def _eof_framed(plan: Plan) -> Plan:
    """HTTP/1.1 without length or chunks: its truncation cannot be told from its end."""
    return replace(plan, coding=Coding.CLOSE, version="1.1")


def _http_1_0(plan: Plan) -> Plan:
    return replace(plan, coding=Coding.CLOSE, version="1.0", keep_alive=False)


def _gzipped(plan: Plan) -> Plan:
    due_s = plan.pieces[-1].due_s if plan.pieces else 0.0
    packed = (Piece(due_s, gzip.compress(plan.body, mtime=0)),)
    return replace(with_headers(plan, ("Content-Encoding", "gzip")), pieces=packed, stamp=None)


def _html(plan: Plan) -> Plan:
    return with_headers(without_media(plan), ("Content-Type", "text/html; charset=utf-8"))


def _prepended(data: bytes) -> Callable[[Wire], Wire]:
    return lambda wire: replace(wire, writes=[Write(0.0, data), *wire.writes])


def _appended(data: bytes) -> Callable[[Wire], Wire]:
    def edit(wire: Wire) -> Wire:
        *others, last = listed(wire)
        return plain(wire, *others, Write(last.due_s, last.data + data))

    return edit


def _head_line(line: bytes) -> Callable[[Wire], Wire]:
    """A line put in after the status line."""

    def edit(wire: Wire) -> Wire:
        head, rest = part_head(wire)
        return plain(wire, Write(0.0, head.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)), *rest)

    return edit


def _both_framings(wire: Wire) -> Wire:
    chunked = b"Transfer-Encoding" in part_head(wire)[0]
    return _head_line(b"Content-Length: 5" if chunked else b"Transfer-Encoding: chunked")(wire)


def _two_lengths(wire: Wire) -> Wire:
    return _head_line(b"Content-Length: 3\r\nContent-Length: 4")(wire)


def _short_length(wire: Wire) -> Wire:
    """Content-Length 5 with a longer body behind it."""
    head, rest = part_head(wire)
    framing = (b"content-length", b"transfer-encoding")
    lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(framing)]
    body = b"".join(write.data for write in rest)
    return plain(wire, Write(0.0, b"\r\n".join([*lines, b"Content-Length: 5", b"", b""]) + body))


def _bad_chunk_size(wire: Wire) -> Wire:
    return only(Write(0.0, part_head(wire)[0] + b"zz\r\nbroken\r\n0\r\n\r\n"), end=End.FIN)


def _chunk_extension(wire: Wire) -> Wire:
    head, rest = part_head(wire)
    size, mark, tail = b"".join(write.data for write in rest).partition(b"\r\n")
    return plain(wire, Write(0.0, head + size + b";x=" + b"e" * 65_536 + mark + tail))


def _trailer_flood(wire: Wire) -> Wire:
    *others, last = listed(wire)
    trailers = b"".join(b"X-T%d: v\r\n" % number for number in range(2_000))
    return plain(wire, *others, Write(last.due_s, last.data[:-2] + trailers + b"\r\n"))


def _bad_status_line(wire: Wire) -> Wire:
    head, rest = part_head(wire)
    return plain(wire, Write(0.0, head.replace(b"HTTP/1.", b"HTPP/1.", 1)), *rest)


def _http2_preface(wire: Wire) -> Wire:
    """A SETTINGS frame (RFC 9113, 6.5)."""
    return only(Write(0.0, b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18), end=End.FIN)


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("eof-framed", (), "HTTP/1.1 without length or chunks, ended by FIN", plan=_eof_framed),
    Fault("close-delimited", ("T21",), "HTTP/1.0, ended by FIN", plan=_http_1_0),
    Fault("gzip-body", (), "Content-Encoding gzip without being asked", plan=_gzipped),
    Fault("unknown-encoding", (), "Content-Encoding br over plain bytes", plan=_headers((("Content-Encoding", "br"),))),
    Fault("html-content-type", ("T20",), "the right body under text/html", plan=_html),
    Fault("no-content-type", (), "the right body without Content-Type", plan=without_media),
    Fault("huge-headers", (), "one header of 300 kB", plan=_headers((("X-Padding", "p" * 300_000),))),
    Fault("wide-headers", (), "one header of 60 kB", plan=_headers((("X-Padding", "p" * 60_000),))),
    Fault(
        "many-headers", (), "10,000 headers", plan=_headers(tuple((f"X-H{number}", "v") for number in range(10_000)))
    ),
    Fault(
        "continue-then-answer",
        (),
        "100 and 103 before the answer",
        wire=_prepended(b"HTTP/1.1 100 Continue\r\n\r\n" + _HINT),
    ),
    Fault("flood-1xx", (), "1,000 interim responses before the answer", wire=_prepended(_HINT * 1_000)),
    Fault("extra-bytes", (), "bytes after the response's end", wire=_appended(b"these bytes belong to no response")),
    Fault(
        "second-response",
        (),
        "a second response that nobody asked for",
        wire=_appended(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    ),
    Fault("both-framings", (), "Transfer-Encoding and Content-Length together", wire=_both_framings),
    Fault("two-lengths", (), "two different Content-Length headers", wire=_two_lengths),
    Fault("short-length", (), "Content-Length shorter than the body", wire=_short_length),
    Fault("bad-chunk-size", (), "a chunk size that is no number", forms=STREAMS, wire=_bad_chunk_size),
    Fault("chunk-extension", (), "a chunk extension of 64 KiB", forms=STREAMS, wire=_chunk_extension),
    Fault("trailer-flood", (), "2,000 trailers", forms=STREAMS, wire=_trailer_flood),
    Fault("folded-header", (), "an obsolete folded header line", wire=_head_line(b"X-Folded: one\r\n two")),
    Fault("nul-in-header", (), "a NUL byte in a header value", wire=_head_line(b"X-Nul: a\x00b")),
    Fault("bad-status-line", (), "a status line that is not HTTP", wire=_bad_status_line),
    Fault("http2-preface", (), "HTTP/2 frames on an HTTP/1.1 connection", wire=_http2_preface),
)
"""Faults of HTTP framing."""
