"""Reading a whole journal: ``scan`` yields its records, ``verify`` says what it proved. Neither writes."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from tasc_collector.errors import InputError, JournalCorrupt, JournalFailed
from tasc_collector.journal.filesystem import FileSystem, FilesystemVerdict, OsFileSystem
from tasc_collector.journal.format import (
    SEAL_NAME,
    Binding,
    JournalRecord,
    JournalSeal,
    RecordKind,
    genesis,
    record_mac,
    segment_name,
    segment_number,
)
from tasc_collector.journal.lock import refuse_if_owned
from tasc_collector.journal.segments import SegmentReader


@dataclass(slots=True)
class JournalEnd:
    """Where a journal ends; complete once its records were read.

    Args:
        segments: number of segment files.
        records: number of records.
        size_bytes: sum of the segments' used sizes.
        head: chain head, 32 bytes.
        end: offset after the last record in the last segment.
        torn_bytes: size of a torn write after it.
        sealed: whether a seal stands beside the segments; it was compared.
    """

    segments: int
    records: int
    size_bytes: int
    head: bytes
    end: int
    torn_bytes: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What reading a journal from its first to its last byte proved.

    Args:
        records: number of records, all with a right chain and in order.
        by_kind: number of records of each kind.
        segments: number of segment files.
        size_bytes: their used size.
        head: chain head, 64 hex digits: what a signed manifest must name.
        macs_checked: whether a key was given; then every record's MAC is right.
        sealed: whether the journal is sealed; then nothing can be missing at its end.
        torn_bytes: size of a torn, never acknowledged write at the end.
        filesystem: what the file system is trusted for.
    """

    records: int
    by_kind: Mapping[RecordKind, int]
    segments: int
    size_bytes: int
    head: str
    macs_checked: bool
    sealed: bool
    torn_bytes: int
    filesystem: FilesystemVerdict


class JournalReader:
    """One pass over a journal; ``end`` is right once ``records()`` is exhausted.

    Args:
        folder: the journal's folder.
        binding: what it belongs to.
        key: journal key, or None to check chain and order without authenticity.
        fs: where it lies.
    """

    def __init__(self, folder: Path, binding: Binding, key: bytes | None, fs: FileSystem) -> None:
        self._folder, self._key, self._fs = folder, key, fs
        self._mac = None if key is None else record_mac(key, binding)
        self._binding_digest = binding.digest
        self.end = JournalEnd(0, 0, 0, genesis(self._binding_digest), 0, 0, sealed=False)

    def count_segments(self) -> int:
        """Number of segment files.

        Raises:
            JournalCorrupt: one is missing.
            OSError: the folder cannot be read.
        """
        return _segment_count(self._fs.names(self._folder))

    def records(self) -> Iterator[JournalRecord]:
        """Every record in order.

        Raises:
            JournalCorrupt: a segment is missing, or a byte is wrong where no torn write may stand.
            DigestMismatch: the journal belongs to another plan or window.
            JournalFailed: the folder cannot be read.
        """
        try:
            names = self._fs.names(self._folder)
            end = self.end
            end.segments, end.sealed = _segment_count(names), SEAL_NAME in names
            for number in range(1, end.segments + 1):
                reader = SegmentReader(
                    self._fs.read(self._folder / segment_name(number)),
                    number=number,
                    first_sequence=end.records + 1,
                    binding_digest=self._binding_digest,
                    head=end.head,
                    mac=self._mac,
                    open_end=number == end.segments and not end.sealed,
                )
                yield from reader.records()
                end.records, end.head = reader.next_sequence - 1, reader.head
                end.size_bytes += reader.end
                end.end, end.torn_bytes = reader.end, reader.torn_bytes
                del reader  # or two segments are held while the next one is read
            if end.sealed:
                self._check_seal(self._fs.read(self._folder / SEAL_NAME))
        except OSError as error:
            raise JournalFailed(
                f"the journal cannot be read ({error.__class__.__name__})",
                where=self._folder.name,
                way_out="check the folder's path, owner and mode",
            ) from None

    @property
    def seal(self) -> JournalSeal:
        """The seal that belongs to what was read."""
        end = self.end
        return JournalSeal(self._binding_digest, end.segments, end.records, end.size_bytes, end.head.hex())

    def _check_seal(self, found: bytes) -> None:
        if self._key is not None:
            right = hmac.compare_digest(found, self.seal.to_bytes(self._key))
        else:
            right = _without_mac(found) == self.seal.to_json()
        if not right:
            raise JournalCorrupt(
                "the seal is not that of these segments",
                where=SEAL_NAME,
                offset=0,
                way_out="restore the folder from a copy; a record was removed, changed or added after the seal",
            )


def scan(folder: Path, binding: Binding, key: bytes | None, *, fs: FileSystem | None = None) -> Iterator[JournalRecord]:
    """Every record of a journal in order; a torn write at the end of an unsealed one is left out.

    Args:
        folder: the journal's folder.
        binding: what it must belong to.
        key: journal key, or None to check chain and order without authenticity.
        fs: where it lies; the real file system if None.

    Raises:
        JournalCorrupt: with the offset; see ``segments``.
        DigestMismatch: the journal belongs to another plan or window.
        JournalFailed: the folder cannot be read.
    """
    return JournalReader(folder, binding, key, fs or OsFileSystem()).records()


def verify(
    folder: Path,
    binding: Binding,
    key: bytes | None,
    *,
    expected_head: str | None = None,
    fs: FileSystem | None = None,
    each: Callable[[JournalRecord], None] | None = None,
) -> VerificationReport:
    """Read everything and say what that proves.

    A commit that another process is writing meanwhile may look like damage; then the answer is who that process is.

    Args:
        folder: the journal's folder.
        binding: what it must belong to.
        key: journal key, or None to check chain and order without authenticity.
        expected_head: chain head of a signed manifest, 64 hex digits: proves that nothing is missing at the end.
        fs: where it lies; the real file system if None.
        each: called with every record in order, as soon as it is found right.

    Raises:
        JournalCorrupt: a byte is wrong, or the head is not the expected one.
        JournalLocked: something looks wrong while another process is writing.
        DigestMismatch: the journal belongs to another plan or window.
        JournalFailed: the folder cannot be read.
    """
    fs = fs or OsFileSystem()
    reader = JournalReader(folder, binding, key, fs)
    counts: Counter[RecordKind] = Counter()
    try:
        for record in reader.records():
            counts[record.kind] += 1
            if each is not None:
                each(record)
    except JournalCorrupt:
        refuse_if_owned(fs, folder)
        raise
    end = reader.end
    if expected_head is not None and end.head.hex() != expected_head:
        raise JournalCorrupt(
            "the journal does not end with the head that was signed",
            where=folder.name,
            offset=end.end,
            way_out="restore the folder from a copy; records at the end are missing or were added",
        )
    return VerificationReport(
        records=end.records,
        by_kind={kind: counts[kind] for kind in RecordKind if counts[kind]},
        segments=end.segments,
        size_bytes=end.size_bytes,
        head=end.head.hex(),
        macs_checked=key is not None,
        sealed=end.sealed,
        torn_bytes=end.torn_bytes,
        filesystem=fs.verdict(folder),
    )


def _segment_count(names: list[str]) -> int:
    numbers = sorted(number for number in map(segment_number, names) if number is not None)
    if numbers != list(range(1, len(numbers) + 1)):
        gap = next(number for number in range(1, len(numbers) + 2) if number not in numbers)
        raise JournalCorrupt(
            "a segment of the journal is missing",
            where=segment_name(gap),
            offset=0,
            way_out="restore the file from a copy; nothing is sent without it",
        )
    return len(numbers)


def _without_mac(data: bytes) -> object:
    try:
        seal = orjson.loads(data)
        del seal["mac"]
    except (ValueError, TypeError, KeyError):
        raise JournalCorrupt(
            "the seal is not readable", where=SEAL_NAME, offset=0, way_out="restore it from a copy"
        ) from None
    return seal


def journal_exists(folder: Path, *, fs: FileSystem | None = None) -> bool:
    """Whether a folder holds a journal's segment; a folder that is not there holds none.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        return any(segment_number(name) is not None for name in (fs or OsFileSystem()).names(folder))
    except FileNotFoundError:
        return False
    except OSError:
        raise InputError(
            "the journal folder cannot be read", where=folder.name, way_out="check its path, owner and mode"
        ) from None


def is_sealed(folder: Path, *, fs: FileSystem | None = None) -> bool:
    """Whether a journal has ended for good; the seal itself is compared when the journal is read.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        return SEAL_NAME in (fs or OsFileSystem()).names(folder)
    except FileNotFoundError:
        return False
    except OSError:
        raise InputError(
            "the journal folder cannot be read", where=folder.name, way_out="check its path, owner and mode"
        ) from None
