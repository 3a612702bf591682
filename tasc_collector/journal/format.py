"""The bytes of a journal: segment header, record, chain and MAC. Pure; nothing here opens a file.

A journal is a folder of segments ``segment-000001.tjl``, ``segment-000002.tjl``, ... . All integers are little-endian.

Segment header, 96 bytes. Every field has exactly one right value, so a reader compares instead of trusting::

    offset  bytes
    0       8      magic ``TASCJNL1``
    8       4      format version, 1
    12      4      segment number, from 1, as in the file name
    16      8      sequence of the segment's first record
    24      8      zero
    32      32     SHA-256 binding digest (domain ``tasc/journal-binding/v1``)
    64      32     chain head before the first record: of the previous segment's last record, or the genesis value

Record, ``82 + t + b`` bytes::

    0       4      length of the whole record, this field and the chain included
    4       8      sequence, from 1, without gaps, across segments
    12      1      kind (table ``KIND_CODES``)
    13      1      t, length of the trace id
    14      4      CRC-32 of the 14 bytes before it: a damaged length is told from a record cut short
    18      t      trace id, ASCII; empty where a record is about the whole run
    18+t    b      body, canonical JSON
    18+t+b  32     MAC
    50+t+b  32     chain

- chain = SHA-256(chain before it || the record without its chain). It is checksum and hash chain at once; the chain
  before a record always stands in the 32 bytes before it in the file, so a reader hashes one contiguous slice.
- MAC = HMAC-SHA-256(journal key, ``TASC_JOURNAL_RECORD_HMAC_V1`` NUL || canonical binding || NUL || the record up to
  its MAC). It covers length, sequence, kind, trace id and body, and binds study, protocol, plan, window, shard and
  declaration; never the list of jobs, so a longer list leaves old records readable.
- genesis = SHA-256(``TASC_JOURNAL_GENESIS_V1`` NUL || binding digest).

A seal ``seal.json`` is canonical JSON that names segments, records, bytes and chain head, with a MAC under the prefix
``TASC_JOURNAL_SEAL_HMAC_V1`` NUL. The chain head is what a signed manifest carries.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import orjson

from tasc_collector import limits
from tasc_collector.canonical import JsonValue, canonical_bytes, digest
from tasc_collector.errors import InputError

FORMAT_VERSION: Final = 1
MAGIC: Final = b"TASCJNL1"
HEADER: Final = struct.Struct("<8sIIQQ32s32s")
RECORD_HEAD: Final = struct.Struct("<IQBB")
RECORD_HEAD_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = HEADER.size
HEAD_BYTES: Final = RECORD_HEAD.size + RECORD_HEAD_CRC.size
HASH_BYTES: Final = 32
TRAILER_BYTES: Final = 2 * HASH_BYTES
RECORD_OVERHEAD_BYTES: Final = HEAD_BYTES + TRAILER_BYTES
"""Bytes of a record beside trace id and body."""

RECORD_MAC_PREFIX: Final = b"TASC_JOURNAL_RECORD_HMAC_V1\0"
SEAL_MAC_PREFIX: Final = b"TASC_JOURNAL_SEAL_HMAC_V1\0"
GENESIS_PREFIX: Final = b"TASC_JOURNAL_GENESIS_V1\0"
BINDING_DOMAIN: Final = "tasc/journal-binding/v1"
KEY_MIN_BYTES: Final = 32
"""As for payload identities (original project, section 4.4): at least 32 bytes of secret key."""

SEAL_NAME: Final = "seal.json"
LOCK_NAME: Final = "owner.lock"
TEMPORARY_SUFFIX: Final = ".tmp"
_SEGMENT_NAME: Final = re.compile(r"^segment-(\d{6})\.tjl$")


class RecordKind(StrEnum):
    """What a record says; the order of a call's records is the runner's."""

    ADMISSION = "admission"
    INTENT = "intent"
    LEASE = "lease"
    OUTCOME = "outcome"
    ACCEPTED = "accepted"
    COMPLETE = "complete"
    FAULT = "fault"
    SETTLEMENT = "settlement"
    EVENT = "event"
    """Of a study's own log: not about a call."""


KIND_CODES: Final = {kind: code for code, kind in enumerate(RecordKind, start=1)}
"""Wire code of each kind; a new kind is appended, a code is never used again."""
KIND_OF_CODE: Final = tuple(dict(zip(KIND_CODES.values(), KIND_CODES, strict=True)).get(code) for code in range(256))


@dataclass(frozen=True, slots=True)
class JournalBinding:
    """What a journal belongs to; every MAC covers it.

    Args:
        study_id: the study.
        protocol_digest: digest of the protocol or comparison.
        plan_digest: digest of the collection plan.
        window_key: key of the sealed window.
        shard: shard number from 0.
        declaration_digest: digest of the window's declaration.
    """

    study_id: str
    protocol_digest: str
    plan_digest: str
    window_key: str
    shard: int
    declaration_digest: str

    def to_json(self) -> dict[str, JsonValue]:
        """The binding as the record that is digested and authenticated."""
        return {
            "studyId": self.study_id,
            "protocolDigest": self.protocol_digest,
            "planDigest": self.plan_digest,
            "windowKey": self.window_key,
            "shard": self.shard,
            "declarationDigest": self.declaration_digest,
        }

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of the binding."""
        return digest(BINDING_DOMAIN, self.to_json())


@dataclass(frozen=True, slots=True)
class LogBinding:
    """What a study's own log belongs to, which is about no single window; every MAC covers it.

    Args:
        study_id: the study.
        protocol_digest: digest of the protocol or comparison.
        log: which log of the study, such as ``controller``.
    """

    study_id: str
    protocol_digest: str
    log: str

    def to_json(self) -> dict[str, JsonValue]:
        """The binding as the record that is digested and authenticated."""
        return {"studyId": self.study_id, "protocolDigest": self.protocol_digest, "log": self.log}

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of the binding."""
        return digest(BINDING_DOMAIN, self.to_json())


Binding: TypeAlias = JournalBinding | LogBinding
"""What a journal belongs to: a window's run, or a study's own log."""


class JournalRecord(NamedTuple):
    """One record as it was read.

    A named tuple and not a dataclass: a resume reads a million of them, and making a frozen dataclass takes as long as
    checking a record.
    """

    kind: RecordKind
    sequence: int
    trace_id: str
    body_bytes: bytes
    segment: int
    offset: int

    @property
    def body(self) -> dict[str, JsonValue]:
        """The parsed body; parsed at each access, since most records of a resume are only counted."""
        parsed: dict[str, JsonValue] = orjson.loads(self.body_bytes)
        return parsed


@dataclass(frozen=True, slots=True)
class JournalSeal:
    """End of a journal: what a signed manifest pins.

    Args:
        binding_digest: ``sha256:<hex>`` of the binding.
        segments: number of segment files.
        records: number of records.
        size_bytes: sum of the segments' sizes.
        head: chain of the last record, 64 hex digits.
    """

    binding_digest: str
    segments: int
    records: int
    size_bytes: int
    head: str

    def to_json(self) -> dict[str, JsonValue]:
        """The seal's fields without its MAC."""
        return {
            "version": "tasc-journal-seal-v1",
            "bindingDigest": self.binding_digest,
            "segments": self.segments,
            "records": self.records,
            "sizeBytes": self.size_bytes,
            "head": self.head,
        }

    def to_bytes(self, key: bytes) -> bytes:
        """The seal file: canonical JSON with its MAC."""
        record = self.to_json()
        mac = hmac.digest(key, SEAL_MAC_PREFIX + canonical_bytes(record), "sha256").hex()
        return canonical_bytes({**record, "mac": mac})


RecordMac: TypeAlias = Callable[[bytes], bytes]
"""MAC of a record's bytes up to its MAC field."""


def record_mac(key: bytes, binding: Binding) -> RecordMac:
    """HMAC-SHA-256 with the constant front of the message hashed once (RFC 2104 by its two hash states).

    A function and not a method: a resume calls it a million times, and an object's attributes cost 6 % of that.

    Args:
        key: journal key, at least 32 bytes.
        binding: what the journal belongs to.

    Raises:
        InputError: the key is too short.
    """
    if len(key) < KEY_MIN_BYTES:
        raise InputError(
            "the journal key is too short",
            rule=f"at least {KEY_MIN_BYTES} bytes",
            way_out="make another key for this role",
        )
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    front = RECORD_MAC_PREFIX + canonical_bytes(binding.to_json()) + b"\0"
    new_inner = hashlib.sha256(block.translate(_INNER_PAD) + front).copy
    new_outer = hashlib.sha256(block.translate(_OUTER_PAD)).copy

    def mac(content: bytes) -> bytes:
        inner = new_inner()
        inner.update(content)
        outer = new_outer()
        outer.update(inner.digest())
        return outer.digest()

    return mac


_INNER_PAD: Final = bytes(value ^ 0x36 for value in range(256))
_OUTER_PAD: Final = bytes(value ^ 0x5C for value in range(256))


def genesis(binding_digest: str) -> bytes:
    """Chain head before the first record of a journal."""
    return hashlib.sha256(GENESIS_PREFIX + bytes.fromhex(binding_digest.removeprefix("sha256:"))).digest()


def segment_name(number: int) -> str:
    """File name of a segment, numbers from 1."""
    return f"segment-{number:06d}.tjl"


def segment_number(name: str) -> int | None:
    """Number of a segment's file name, or None where the name is no segment's."""
    match = _SEGMENT_NAME.match(name)
    return int(match[1]) if match else None


def segment_header(number: int, first_sequence: int, binding_digest: str, head: bytes) -> bytes:
    """The 96 bytes before a segment's first record (``HEADER``, little-endian).

    Args:
        number: of the segment, from 1.
        first_sequence: of its first record.
        binding_digest: ``sha256:<hex>`` of what the journal belongs to.
        head: 32 bytes of the chain before that record.
    """
    return HEADER.pack(
        MAGIC, FORMAT_VERSION, number, first_sequence, 0, bytes.fromhex(binding_digest.removeprefix("sha256:")), head
    )


def record_bytes(trace_id: str, body: bytes) -> int:
    """Size in bytes of a record with this trace id and body."""
    return RECORD_OVERHEAD_BYTES + len(trace_id) + len(body)


def encode_record(
    kind: RecordKind, sequence: int, trace: bytes, body: bytes, mac: RecordMac, head: bytes
) -> tuple[bytes, bytes]:
    """One record's bytes and the chain head after it.

    Args:
        kind: what the record says.
        sequence: number of the record in the journal, from 1.
        trace: the trace id as ``checked_trace`` gives it.
        body: canonical JSON.
        mac: the journal's MAC.
        head: chain head before the record, 32 bytes.
    """
    front = RECORD_HEAD.pack(RECORD_OVERHEAD_BYTES + len(trace) + len(body), sequence, KIND_CODES[kind], len(trace))
    content = front + RECORD_HEAD_CRC.pack(zlib.crc32(front)) + trace + body
    authenticated = content + mac(content)
    chain = hashlib.sha256(head + authenticated).digest()
    return authenticated + chain, chain


def checked_trace(trace_id: str, body: bytes) -> bytes:
    """The trace id's bytes, unless the format cannot hold the record.

    Raises:
        InputError: the trace id is no short ASCII text or the record is beyond its bound.
    """
    if len(trace_id) > limits.JOURNAL_TRACE_ID_MAX_CHARACTERS or not trace_id.isascii():
        raise InputError(
            "the trace id does not fit a journal record",
            rule=f"ASCII, at most {limits.JOURNAL_TRACE_ID_MAX_CHARACTERS} characters",
            way_out="use the execution's digest as trace id",
        )
    if record_bytes(trace_id, body) > limits.JOURNAL_RECORD_MAX_BYTES:
        raise InputError(
            "the journal record is too large",
            rule=f"at most {limits.JOURNAL_RECORD_MAX_BYTES} bytes",
            way_out="lower the plan's response bound or its maximum of tokens",
        )
    return trace_id.encode("ascii")
