"""Reading one segment: its records in order, and what its end means.

Rules:
1. Every byte of the header has one right value; another one stops the reader.
2. A record is read if its chain is right. With a key its MAC must be right too.
3. The first record that is not read is the end. What lies there is judged once:
   - nothing, or only zeros: the segment ends here (zeros are reserved space);
   - a record that the file's end cuts short, or one that is all zero from some 512-byte boundary to its end with only
     zeros after it: a torn write. It was never acknowledged and is cut;
   - anything else stops with the offset.
4. Only the last segment of an unsealed journal may have reserved space or a torn write. Every other one ends with a
   record.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from hmac import compare_digest
from typing import Final

from tasc_collector import limits
from tasc_collector.errors import DigestMismatch, JournalCorrupt
from tasc_collector.journal.format import (
    FORMAT_VERSION,
    HASH_BYTES,
    HEAD_BYTES,
    HEADER,
    HEADER_BYTES,
    KIND_OF_CODE,
    MAGIC,
    RECORD_HEAD,
    RECORD_HEAD_CRC,
    RECORD_OVERHEAD_BYTES,
    JournalRecord,
    RecordMac,
    segment_header,
    segment_name,
)

_WAY_OUT: Final = "keep the folder as it is, restore it from a copy, or settle the window without it; nothing is sent"


class SegmentReader:
    """Reads the records of one segment.

    After ``records()`` is exhausted: ``end`` is the offset after the last record, ``torn_bytes`` the size of a torn
    write after it (to the last byte that is not zero), ``head`` and ``next_sequence`` what the next segment continues.

    Args:
        data: the whole file.
        number: the segment's number from its file name.
        first_sequence: sequence that its first record must have.
        binding_digest: ``sha256:<hex>`` of the journal's binding.
        head: chain head before the segment.
        mac: the journal's MAC, or None to check chain and order only.
        open_end: whether this is the last segment of an unsealed journal (rule 4).
    """

    def __init__(
        self,
        data: bytes,
        *,
        number: int,
        first_sequence: int,
        binding_digest: str,
        head: bytes,
        mac: RecordMac | None,
        open_end: bool,
    ) -> None:
        self._data, self._number, self._mac, self._open_end = data, number, mac, open_end
        self._header = segment_header(number, first_sequence, binding_digest, head)
        self.head, self.next_sequence = head, first_sequence
        self.end, self.torn_bytes = HEADER_BYTES, 0

    def records(self) -> Iterator[JournalRecord]:
        """The records in order.

        Raises:
            DigestMismatch: the segment belongs to another journal.
            JournalCorrupt: by rule 1, 2, 3 or 4, with the offset.
        """
        self._check_header()
        data, number, mac = self._data, self._number, self._mac
        size, sequence, offset = len(data), self.next_sequence, HEADER_BYTES
        unpack, sha256, kinds, new = RECORD_HEAD.unpack_from, hashlib.sha256, KIND_OF_CODE, tuple.__new__
        while offset + RECORD_OVERHEAD_BYTES <= size:
            length, found, code, trace_length = unpack(data, offset)
            end = offset + length
            if length < RECORD_OVERHEAD_BYTES or end > size:
                break
            chain_at = end - HASH_BYTES
            if sha256(data[offset - HASH_BYTES : chain_at]).digest() != data[chain_at:end]:
                break
            mac_at = chain_at - HASH_BYTES
            body_at = offset + HEAD_BYTES + trace_length
            kind = kinds[code]
            if found != sequence or kind is None or body_at > mac_at:
                raise self._corrupt("a record is out of order or of an unknown kind", offset)
            if mac is not None and not compare_digest(mac(data[offset:mac_at]), data[mac_at:chain_at]):
                raise self._corrupt("a record was not written with this journal key", offset)
            trace_id = data[offset + HEAD_BYTES : body_at].decode("ascii")
            yield new(JournalRecord, (kind, sequence, trace_id, data[body_at:mac_at], number, offset))
            sequence += 1
            offset = end
        self.end, self.next_sequence = offset, sequence
        self.head = data[offset - HASH_BYTES : offset]
        self._judge_end()

    def _check_header(self) -> None:
        if self._data[:HEADER_BYTES] == self._header:
            return
        if len(self._data) < HEADER_BYTES or self._data[: len(MAGIC)] != MAGIC:
            raise self._corrupt("not a journal segment", 0)
        found, right = HEADER.unpack_from(self._data), HEADER.unpack(self._header)
        if found[1] != FORMAT_VERSION:
            raise self._corrupt(f"format version {found[1]} is not known to this build", 8)
        if found[5] != right[5]:
            raise DigestMismatch(
                "the journal belongs to another plan or window",
                where=segment_name(self._number),
                rule="a journal is bound to one study, protocol, plan, window, shard and declaration",
                way_out="name the window that this folder was made for, or start another folder",
            )
        raise self._corrupt("the header does not continue the segment before it", 0)

    def _judge_end(self) -> None:
        rest = self._data[self.end :]
        used = len(rest.rstrip(b"\0"))
        if not rest or (self._open_end and not used):
            return
        if not self._open_end:
            raise self._corrupt("a record is damaged, or something stands after the last one", self.end)
        if not _torn(rest, used, self.end, self.next_sequence):
            raise self._corrupt("a record is damaged", self.end)
        self.torn_bytes = used

    def _corrupt(self, what: str, offset: int) -> JournalCorrupt:
        return JournalCorrupt(
            f"{what} (offset {offset})", where=segment_name(self._number), offset=offset, way_out=_WAY_OUT
        )


def _torn(rest: bytes, used: int, offset: int, sequence: int) -> bool:
    """Whether ``rest``, from ``offset`` in the file to its end, is the start of one record and then nothing (rule 3).

    Args:
        rest: bytes from the first one that is not part of a read record.
        used: length up to the last byte that is not zero, at least 1.
        offset: where ``rest`` begins in the file.
        sequence: number that the record must have.
    """
    whole_sectors = -(offset + used) % limits.JOURNAL_TEAR_BYTES + used
    if len(rest) < HEAD_BYTES:
        return True
    if whole_sectors < HEAD_BYTES:
        front = rest[:whole_sectors]
        return front[4:12] == sequence.to_bytes(8, "little")[: max(0, whole_sectors - 4)]
    length: int
    length, found, _, _ = RECORD_HEAD.unpack_from(rest)
    (checksum,) = RECORD_HEAD_CRC.unpack_from(rest, RECORD_HEAD.size)
    if checksum != zlib.crc32(rest[: RECORD_HEAD.size]) or found != sequence:
        return False
    return length > len(rest) or (used <= length and whole_sectors < length)
