"""The bytes of a journal, against the layout written out by hand."""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from dataclasses import replace

import pytest

from tasc_collector import limits
from tasc_collector.errors import InputError
from tasc_collector.journal import JournalSeal, RecordKind, record_bytes
from tasc_collector.journal.format import (
    KIND_CODES,
    checked_trace,
    encode_record,
    genesis,
    record_mac,
    segment_header,
    segment_name,
    segment_number,
)
from tests.support.crash_world import BINDING as STUDY_BINDING
from tests.support.crash_world import KEY

BINDING = replace(STUDY_BINDING, shard=2)
BINDING_JSON = (
    b'{"declarationDigest":"sha256:' + b"c" * 64 + b'","planDigest":"sha256:' + b"b" * 64 + b'",'
    b'"protocolDigest":"sha256:' + b"a" * 64 + b'","shard":2,"studyId":"study-1","windowKey":"w.r1-00000000"}'
)


def test_binding_digest_is_over_domain_and_value() -> None:
    text = b'{"domain":"tasc/journal-binding/v1","value":' + BINDING_JSON + b"}"
    assert BINDING.digest == "sha256:" + hashlib.sha256(text).hexdigest()


def test_record_has_the_documented_layout() -> None:
    head = b"h" * 32
    body = b'{"n":1}'
    data, chain = encode_record(RecordKind.LEASE, 7, b"t-1", body, record_mac(KEY, BINDING), head)
    front = struct.pack("<IQBB", 18 + 3 + 7 + 64, 7, 3, 3)
    content = front + struct.pack("<I", zlib.crc32(front)) + b"t-1" + body
    mac = hmac.new(KEY, b"TASC_JOURNAL_RECORD_HMAC_V1\0" + BINDING_JSON + b"\0" + content, "sha256").digest()
    assert data[:-64] == content
    assert data[-64:-32] == mac
    assert data[-32:] == chain == hashlib.sha256(head + content + mac).digest()
    assert len(data) == record_bytes("t-1", body)


@pytest.mark.parametrize("length", [32, 64, 65, 200])
def test_mac_is_hmac_for_keys_of_every_length(length: int) -> None:
    key = bytes(length)
    expected = hmac.new(key, b"TASC_JOURNAL_RECORD_HMAC_V1\0" + BINDING_JSON + b"\0" + b"content", "sha256").digest()
    assert record_mac(key, BINDING)(b"content") == expected


def test_short_key_is_refused() -> None:
    with pytest.raises(InputError, match="too short"):
        record_mac(bytes(31), BINDING)


def test_kind_codes_never_change() -> None:
    assert {kind.value: code for kind, code in KIND_CODES.items()} == {
        "admission": 1,
        "intent": 2,
        "lease": 3,
        "outcome": 4,
        "accepted": 5,
        "complete": 6,
        "fault": 7,
        "settlement": 8,
        "event": 9,
    }


def test_segment_header_has_the_documented_layout() -> None:
    digest = "sha256:" + "01" * 32
    expected = b"TASCJNL1" + struct.pack("<IIQQ", 1, 3, 41, 0) + b"\x01" * 32 + b"h" * 32
    assert segment_header(3, 41, digest, b"h" * 32) == expected


def test_genesis_depends_on_the_binding() -> None:
    assert genesis("sha256:" + "00" * 32) == hashlib.sha256(b"TASC_JOURNAL_GENESIS_V1\0" + bytes(32)).digest()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("segment-000001.tjl", 1),
        ("segment-999999.tjl", 999_999),
        ("segment-1.tjl", None),
        ("segment-000001.tjl.tmp", None),
        ("xsegment-000001.tjl", None),
    ],
)
def test_segment_numbers_are_read_from_exact_names(name: str, number: int | None) -> None:
    assert segment_number(name) == number
    if number is not None:
        assert segment_name(number) == name


def test_a_seal_is_canonical_json_with_its_mac() -> None:
    seal = JournalSeal("sha256:" + "d" * 64, 1, 2, 300, "e" * 64)
    fields = (
        b'"bindingDigest":"sha256:' + b"d" * 64 + b'","head":"' + b"e" * 64 + b'"',
        b'"records":2,"segments":1,"sizeBytes":300,"version":"tasc-journal-seal-v1"}',
    )
    text = b"{" + b",".join(fields)
    mac = hmac.new(KEY, b"TASC_JOURNAL_SEAL_HMAC_V1\0" + text, "sha256").hexdigest()
    assert seal.to_bytes(KEY) == b"{" + fields[0] + b',"mac":"' + mac.encode() + b'",' + fields[1]


def test_a_trace_id_must_be_short_ascii() -> None:
    assert checked_trace("t" * limits.JOURNAL_TRACE_ID_MAX_CHARACTERS, b"{}") == b"t" * 128
    for wrong in ("t" * (limits.JOURNAL_TRACE_ID_MAX_CHARACTERS + 1), "é"):
        with pytest.raises(InputError, match="trace id"):
            checked_trace(wrong, b"{}")


def test_a_record_is_bounded() -> None:
    assert checked_trace("", bytes(limits.JOURNAL_RECORD_MAX_BYTES - 82)) == b""
    with pytest.raises(InputError, match="too large"):
        checked_trace("", bytes(limits.JOURNAL_RECORD_MAX_BYTES - 81))
