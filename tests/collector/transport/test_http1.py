"""Answers whose framing somebody else might read otherwise: each gets its verdict, whole, byte by byte and cut in the middle."""

from __future__ import annotations

import pytest

from tasc_collector.contracts.persistence import PersistedError
from tasc_collector.errors import Category, WireError
from tasc_collector.transport.codes import Code
from tasc_collector.transport.head import check_success, note_head, refuse_status
from tasc_collector.transport.http1 import Head, Http1Limits, ResponseReader

BODY = b'{"ok":true}'
TYPED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LIMITS = Http1Limits(header_bytes=16_384, header_count=64, body_bytes=1_048_576, chunks=4_096)


def field(lines: bytes) -> bytes:
    """An answer with more header lines before its length."""
    return TYPED + lines + b"\r\nContent-Length: 11\r\n\r\n" + BODY


def length(value: bytes) -> bytes:
    return TYPED + b"Content-Length: " + value + b"\r\n\r\n" + BODY


def coded(value: bytes, more: bytes = b"") -> bytes:
    return TYPED + b"Transfer-Encoding: " + value + b"\r\n" + more + b"\r\nb\r\n" + BODY + b"\r\n0\r\n\r\n"


def chunk(line: bytes = b"b", *, end: bytes = b"\r\n0\r\n\r\n") -> bytes:
    return TYPED + b"Transfer-Encoding: chunked\r\n\r\n" + line + b"\r\n" + BODY + end


def first_line(line: bytes) -> bytes:
    return line + b"\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n" + BODY


def interim(head: bytes) -> bytes:
    return head + b"\r\n\r\n" + length(b"11")


ACCEPTED = {
    "length with leading zeros": length(b"0011"),
    "length between white space": length(b"\t11 \t"),
    "coding in capitals": coded(b"CHUNKED"),
    "coding before white space": coded(b"chunked \t"),
    "another name than transfer-encoding": field(b"Transfer_Encoding: chunked"),
    "empty value": field(b"X:"),
    "text beyond ASCII in a value": field(b"X: \xe9"),
    "size with leading zeros": chunk(b"0000000b"),
    "size in capitals": chunk(b"B"),
    "extension": chunk(b"b;a"),
    "extension with a value": chunk(b"b;a=b;c=d"),
    "extension with a quoted value": chunk(b'b;a="b;c \\" d"'),
    "last size of several zeros": chunk(end=b"\r\n000\r\n\r\n"),
    "extension at the last size": chunk(end=b"\r\n0;a=b\r\n\r\n"),
    "trailer": chunk(end=b"\r\n0\r\nX: y\r\nX: z\r\n\r\n"),
    "HTTP/1.0 with a length": first_line(b"HTTP/1.0 200 OK"),
    "no reason": first_line(b"HTTP/1.1 200 "),
    "interim": interim(b"HTTP/1.1 102 P"),
    "as many interim as may be": interim(b"\r\n\r\n".join([b"HTTP/1.1 102 P"] * 16)),
    "two interim": interim(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nLink: <x>"),
    "identity": field(b"Content-Encoding: identity"),
    "character set": TYPED.replace(b"json", b'json ; charset="UTF-8"') + b"Content-Length: 11\r\n\r\n" + BODY,
}

REFUSED: dict[Code, dict[str, bytes]] = {
    Code.INVALID_FRAMING: {
        **{
            f"length {value!r}": length(value)
            for value in (b"+11", b"-11", b"1_1", b"0xb", b"1 1", b"11,11", b"11, 11", b"11.0", b"1e1", b"11;", b'"11"')
        },
        "length in other digits": length("\u0661\u0661".encode()),
        "no length": length(b""),
        "length of 20 digits": length(b"00000000000000000011"),
        "length of 2^64": length(b"18446744073709551627"),
        "two equal lengths": field(b"content-length: 11"),
        "coding and length": coded(b"chunked", b"Content-Length: 11\r\n"),
        "length and coding": field(b"Transfer-Encoding: chunked"),
        "identity coding and length": field(b"Transfer-Encoding: identity"),
        **{
            f"coding {value!r}": coded(value)
            for value in (b"", b"chunked,", b",chunked", b"chunked;q=1", b"gzip, chunked", b"xchunked", b'"chunked"')
        },
        "coding twice": coded(b"chunked", b"Transfer-Encoding: chunked\r\n"),
        "coding in HTTP/1.0": coded(b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0"),
        "coding of no content": b"HTTP/1.1 204 N\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "length in a trailer": chunk(end=b"\r\n0\r\nContent-Length: 5\r\n\r\n"),
        "coding in a trailer": chunk(end=b"\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "interim with a length": interim(b"HTTP/1.1 100 C\r\nContent-Length: 5"),
        "interim with a coding": interim(b"HTTP/1.1 103 E\r\nTransfer-Encoding: chunked"),
        "interim in HTTP/1.0": interim(b"HTTP/1.0 100 C"),
    },
    Code.INVALID_RESPONSE_HEADERS: {
        "white space before the colon": field(b"Transfer-Encoding : chunked"),
        "folded": field(b"X: a\r\n b"),
        "folded with a tab": field(b"X: a\r\n\tb"),
        "folded length": TYPED + b"Content-Length:\r\n 11\r\n\r\n" + BODY,
        "first line folded": first_line(b"HTTP/1.1 200 OK\r\n X: a"),
        "line feed alone": field(b"X: a\nY: b"),
        "carriage return alone": field(b"X: a\rY: b"),
        "two carriage returns": length(b"11\r"),
        "zero byte in a name": field(b"X\x00: a"),
        "zero byte in a value": field(b"X: a\x00b"),
        "vertical tab": coded(b"\x0bchunked"),
        "delete": field(b"X: \x7f"),
        "no name": field(b": a"),
        "white space in a name": field(b"X Y: a"),
        "bracket in a name": field(b"X(: a"),
        "no colon": field(b"X"),
        "two content types": field(b"Content-Type: application/json"),
        "content range": field(b"Content-Range: bytes 0-10/11"),
        "bad line in a trailer": chunk(end=b"\r\n0\r\nX y\r\n\r\n"),
        "folded trailer": chunk(end=b"\r\n0\r\nX: y\r\n z\r\n\r\n"),
        "line feed in a trailer": chunk(end=b"\r\n0\r\nX: y\nZ: a\r\n\r\n"),
        "bad line in an interim head": interim(b"HTTP/1.1 100 C\r\nX y"),
    },
    Code.INVALID_CHUNK: {
        **{
            f"size {line!r}": chunk(line)
            for line in (
                *(b"0xb", b"+b", b"-b", b"0_b", b" b", b"b ", b"b\t", b"bh", b"", b"00000000b", b"10000000000000000b"),
                *(
                    b"b ;a",
                    b"b; a",
                    b"b;",
                    b"b;;",
                    b"b;a=",
                    b'b;a="b',
                    b'b;a="\x00"',
                    b"b;a\r",
                    b"b;a\nb",
                    b'b;a="b\nc"',
                ),
                b"b;a=" + b"x" * 300,
            )
        },
        "size ends in a line feed": chunk().replace(b"\r\nb\r\n", b"\r\nb\n"),
        "data ends in a line feed": chunk(end=b"\n0\r\n\r\n"),
        "data is shorter": chunk(b"c"),
        "data is longer": chunk(b"a"),
        "last size ends in line feeds": chunk(end=b"\r\n0\n\n"),
        "last size is negative": chunk(end=b"\r\n-0\r\n\r\n"),
    },
    Code.RESPONSE_TOO_LARGE: {"size of 4 GiB": chunk(b"ffffffff"), "length of 2 GB": length(b"2147483648")},
    Code.BYTES_AFTER_END: {
        "after the length": length(b"11") + b"\r\n",
        "after the last chunk": chunk() + b"0\r\n\r\n",
        "interim after the end": length(b"11") + b"HTTP/1.1 100 C\r\n\r\n",
        "body of no content": b"HTTP/1.1 204 N\r\n\r\nx",
        "body of not modified": b"HTTP/1.1 304 N\r\n\r\nx",
    },
    Code.RESPONSE_TRUNCATED: {
        "shorter than its length": length(b"12"),
        "no end of the trailers": chunk(end=b"\r\n0\r\n"),
        "line feed for the end of the trailers": chunk(end=b"\r\n0\r\n\n"),
        "no last chunk": chunk(end=b"\r\n"),
        "interim alone": b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1",
        "line feeds alone": length(b"11").replace(b"\r\n", b"\n"),
    },
    Code.INVALID_STATUS_LINE: {
        **{
            repr(line): first_line(line)
            for line in (
                *(b"HTTP/1.2 200 OK", b"HTTP/2 200 OK", b"HTTP/01.1 200 OK", b"HTTP/1.10 200 OK", b"HTTP/1,1 200 OK"),
                *(b"http/1.1 200 OK", b"HTTP/1.1  200 OK", b"HTTP/1.1\t200 OK", b"HTTP/1.1 0200 OK", b"HTTP/1.1 20 OK"),
                *(b"HTTP/1.1 +200 OK", b"HTTP/1.1 2_0 OK", b"HTTP/1.1 000 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 600 OK"),
                *(
                    b"HTTP/1.1 200OK",
                    b"HTTP/1.1 200 O\rK",
                    b"HTTP/1.1 200 O\x00K",
                    b"HTTP/1.1 200 O\x7fK",
                    b"ICY 200 OK",
                ),
                "HTTP/1.1 \u0662\u0660\u0660 OK".encode(),
            )
        },
        "no head": BODY,
        "empty line first": b"\r\n" + length(b"11"),
        "white space first": b" " + length(b"11"),
        "byte order mark first": b"\xef\xbb\xbf" + length(b"11"),
    },
    Code.UNFRAMED_RESPONSE: {"neither length nor coding": TYPED + b"\r\n" + BODY},
    Code.INTERIM_FLOOD: {
        "one interim too many": interim(b"\r\n\r\n".join([b"HTTP/1.1 102 P"] * 17)),
        "interim heads without an answer": b"HTTP/1.1 100 C\r\n\r\n" * 17,
    },
    Code.UPGRADE_REFUSED: {"switching protocols": interim(b"HTTP/1.1 101 S\r\nUpgrade: h2c")},
    Code.COMPRESSED_RESPONSE: {
        f"encoding {value!r}": field(b"Content-Encoding: " + value)
        for value in (b"gzip", b"br", b"identity, gzip", b"", b"x-identity")
    },
    Code.CONTENT_TYPE_REFUSED: {
        f"type {value!r}": b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nContent-Type: " + value + b"\r\n\r\n" + BODY
        for value in (
            *(
                b"application/jsonp",
                b"application/json, text/html",
                b"application/json; charset=latin1",
                b"application",
            ),
            *(b"application/json; charset=utf-8; charset=utf-8", b"", b"application/json; x", b"text/event-stream"),
        )
    },
    Code.UNEXPECTED_STATUS: {
        "no content with a length": b"HTTP/1.1 204 N\r\nContent-Length: 5\r\n\r\n",
        "not modified with a length": b"HTTP/1.1 304 N\r\nContent-Length: 5\r\n\r\n",
        "partial content": length(b"11").replace(b"200 OK", b"206 P"),
    },
}


def verdict(data: bytes, step: int) -> tuple[str, bytes]:
    """Read an answer in pieces of a size, as a call reads it."""
    reader, body = ResponseReader(LIMITS), b""
    try:
        for at in range(0, len(data), step):
            body += reader.feed(data[at : at + step])
        reader.end()
        assert reader.head is not None and reader.complete
        refusal = refuse_status(reader.head.status)
        if refusal is not None:
            return refusal, b""
        check_success(reader.head, {"application/json"})
    except WireError as error:
        return error.code, b""
    return "accepted", body


@pytest.mark.parametrize("step", [1, 7, 65_536])
def test_what_is_sound_is_taken_whole(step: int) -> None:
    assert {name: verdict(data, step) for name, data in ACCEPTED.items()} == dict.fromkeys(ACCEPTED, ("accepted", BODY))


@pytest.mark.parametrize("step", [1, 7, 65_536])
@pytest.mark.parametrize("code", REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_by_its_name(code: Code, step: int) -> None:
    found = {name: verdict(data, step)[0] for name, data in REFUSED[code].items()}
    assert found == dict.fromkeys(REFUSED[code], code)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        *((value, True) for value in (b"r", b"req-1.A_b", b"x" * 128, b"token-1", b"sk-short", b"a..b")),
        *(
            (value, False)
            for value in (b"my-secret-1", b"secret", b"password", b"basic-1", b"bearer.token", b"api_key_1")
        ),
        *(
            (value, False)
            for value in (b"apikey", b"sk-abcdefgh1", b"", b"-a", b"a-", b"a b", b"a/b", b"\xe9", b"x" * 129)
        ),
    ],
)
def test_a_request_id_is_kept_only_where_it_may_be_persisted(value: bytes, kept: bool) -> None:
    """A server's header must never make a record that cannot be written: what is noted is what ``ErrorId`` takes."""
    noted = note_head(Head(500, 1, ((b"x-request-id", value),))).request_id
    assert noted == (value.decode() if kept else None)
    assert PersistedError.of(Category.INVALID_RESPONSE, status=500, request_id=noted).request_id == noted
