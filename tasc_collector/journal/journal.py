"""The durable journal of one window (and shard): who may write, and when a record counts.

Rules:
1. One owner. ``open`` takes the folder's lock before it reads, and holds it until ``close`` or the end of the process.
2. Records have the order of their ``append`` and ``enqueue`` calls; calls that wait at the same time share one commit.
3. ``append`` returns only when its record, and every one before it, is on the disk. A call that is cancelled while it
   waits ends when that is known, and the record stays: who was cancelled on a lease must not send, but has leased.
4. Space comes first. A record is accepted only into space that is allocated and synced. ``reserve`` sets space aside
   that no other record can take, so an outcome can be written on a disk that is full by then.
5. The first error of a write, fsync, close or rename ends the journal: the records that wait fail, each later call
   fails at once, nothing is retried. Only the next process, reading the disk anew, knows what it holds.
6. ``open`` makes durable what a dead process only wrote, cuts a torn write, and stops at any other damage.
7. ``seal`` is the end: no more records, no reserved space, and every later change is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tasc_collector import limits
from tasc_collector.canonical import JsonValue, canonical_bytes
from tasc_collector.errors import InputError, JournalFailed
from tasc_collector.journal.committer import Committer, Reservation
from tasc_collector.journal.filesystem import FileSystem, FilesystemTrust, FilesystemVerdict, OsFileSystem
from tasc_collector.journal.format import (
    SEAL_NAME,
    Binding,
    JournalRecord,
    JournalSeal,
    RecordKind,
    record_mac,
)
from tasc_collector.journal.lock import Owner, take_lock
from tasc_collector.journal.problems import error_name, journal_closed, journal_failed, journal_full
from tasc_collector.journal.scan import JournalEnd, JournalReader
from tasc_collector.journal.writer import NoSpace, SegmentWriter


class Journal:
    """See the rules of this module. Made by ``open``; a context manager that closes.

    Args:
        committer: the running group commit.
        writer: its segment.
        sealer: makes the seal file's bytes from a seal.
        binding_digest: ``sha256:<hex>`` of the binding.
        recovered: where the journal ended when it was opened.
        filesystem: what the file system is trusted for.
        unlock: gives the folder's lock back.
        owner: who holds it now.
        earlier_owner: who held it last; None where the lock file does not tell.
    """

    def __init__(
        self,
        committer: Committer,
        writer: SegmentWriter,
        *,
        sealer: Callable[[JournalSeal], bytes],
        binding_digest: str,
        recovered: JournalEnd,
        filesystem: FilesystemVerdict,
        unlock: Callable[[], None],
        owner: Owner,
        earlier_owner: Owner | None,
    ) -> None:
        self._committer, self._writer, self._sealer, self._unlock = committer, writer, sealer, unlock
        self._binding_digest = binding_digest
        self.recovered, self.filesystem = recovered, filesystem
        self.owner, self.earlier_owner = owner, earlier_owner

    @classmethod
    def open(
        cls,
        folder: Path,
        binding: Binding,
        key: bytes,
        *,
        fs: FileSystem | None = None,
        owner: Owner | None = None,
        on_record: Callable[[JournalRecord], None] | None = None,
        segment_bytes: int = limits.JOURNAL_SEGMENT_BYTES,
        grow_bytes: int = limits.JOURNAL_GROW_BYTES,
    ) -> Self:
        """Own a journal, new or old, and bring it to a state that can be trusted (rules 1 and 6).

        Args:
            folder: the journal's folder; made where missing.
            binding: what it belongs to.
            key: journal key, at least 32 bytes.
            fs: where it lies; the real file system if None.
            owner: what the lock file says about this process; the current one if None.
            on_record: called for every record that is there, in order, so that a resume reads the journal once.
            segment_bytes: size beyond which the next segment is begun.
            grow_bytes: step in which space is reserved.

        Raises:
            JournalLocked: another process owns it.
            JournalCorrupt: a byte is wrong where no torn write may stand.
            DigestMismatch: it belongs to another plan or window.
            InputError: the file system is refused, the key is too short, or the journal is sealed.
            JournalFull: there is no space to begin.
            JournalFailed: the operating system refused something.
        """
        fs = fs or OsFileSystem()
        mac = record_mac(key, binding)
        try:
            fs.make_folder(folder)
            verdict = _accept(fs.verdict(folder), folder)
            owner = owner or Owner.current()
            lock, before = take_lock(fs, folder, owner)
        except OSError as error:
            raise journal_failed(error_name(error), folder.name) from None
        writer = SegmentWriter(fs, folder, binding.digest, grow_bytes)
        try:
            end = _recover(writer, JournalReader(folder, binding, key, fs), fs.names(folder), on_record)
        except BaseException as error:
            writer.abandon()
            with contextlib.suppress(OSError):
                fs.close(lock)
            if isinstance(error, OSError):
                raise journal_failed(error_name(error), folder.name) from None
            if isinstance(error, NoSpace):
                raise journal_full() from None
            raise
        return cls(
            Committer(writer, mac, end.records, end.head, segment_bytes=segment_bytes, grow_bytes=grow_bytes),
            writer,
            sealer=lambda seal: seal.to_bytes(key),
            binding_digest=binding.digest,
            recovered=end,
            filesystem=verdict,
            unlock=lambda: fs.close(lock),
            owner=owner,
            earlier_owner=before,
        )

    @property
    def records(self) -> int:
        """Number of records that are durable."""
        return self._committer.durable

    @property
    def groups(self) -> int:
        """Number of commits by this process; new records divided by it are the mean group."""
        return self._committer.groups

    @property
    def failed(self) -> bool:
        """Whether rule 5 has struck: nothing may be sent by this process any more."""
        return self._committer.failure is not None

    async def append(
        self,
        kind: RecordKind,
        trace_id: str,
        body: Mapping[str, JsonValue],
        *,
        reservation: Reservation | None = None,
    ) -> int:
        """Write a record; returns its sequence when it is durable (rule 3).

        Args:
            kind: what the record says.
            trace_id: ASCII, at most 128 characters; empty for the whole run.
            body: JSON without any raw content.
            reservation: space set aside for it; what it takes beyond that is taken as if there were none.

        Raises:
            JournalFull: there is no space; nothing was written.
            JournalFailed: rule 5; the record may or may not be there.
            InputError: the record breaks a bound, or the journal is closed.
        """
        sequence, commit = self._committer.put(
            kind, trace_id, canonical_bytes(body), reservation, asyncio.get_running_loop()
        )
        failure = await commit if commit is not None else None
        if failure is not None:
            raise journal_failed(failure)
        return sequence

    def append_sync(
        self,
        kind: RecordKind,
        trace_id: str,
        body: Mapping[str, JsonValue],
        *,
        reservation: Reservation | None = None,
    ) -> int:
        """``append`` for a thread without an event loop."""
        event = threading.Event()
        sequence, _ = self._committer.put(kind, trace_id, canonical_bytes(body), reservation, event)
        event.wait()
        self._committer.require_durable(sequence)
        return sequence

    def enqueue(
        self,
        kind: RecordKind,
        trace_id: str,
        body: Mapping[str, JsonValue] | bytes,
        *,
        reservation: Reservation | None = None,
    ) -> int:
        """Write a record without waiting; it is durable when any later ``append`` or ``flush`` returns.

        Args:
            kind: as for ``append``.
            trace_id: as for ``append``.
            body: as for ``append``, or its canonical bytes where they are at hand.
            reservation: as for ``append``.
        """
        data = body if isinstance(body, bytes) else canonical_bytes(body)
        sequence, _ = self._committer.put(kind, trace_id, data, reservation, None)
        return sequence

    async def flush(self) -> None:
        """Wait until every record so far is durable.

        Raises:
            JournalFailed: rule 5.
        """
        _, commit = self._committer.join(asyncio.get_running_loop())
        failure = await commit if commit is not None else None
        if failure is not None:
            raise journal_failed(failure)

    def flush_sync(self) -> None:
        """``flush`` for a thread without an event loop."""
        event = threading.Event()
        sequence, _ = self._committer.join(event)
        event.wait()
        self._committer.require_durable(sequence)

    def reserve(self, size: int) -> Reservation:
        """Set space aside (rule 4), before the lease of a call whose outcome must find room.

        Args:
            size: bytes; ``record_bytes`` tells what a record takes.

        Raises:
            JournalFull: there is not so much space; what was reserved before still is.
            JournalFailed: rule 5.
        """
        return self._committer.reserve(size)

    def close(self) -> None:
        """Write what waits, stop, give the lock back.

        Raises:
            JournalFailed: rule 5, whenever it struck; the process must end non-zero.
        """
        if self._committer.stop():
            self._end(self._writer.close)

    def seal(self) -> JournalSeal:
        """Write what waits, then end the journal for good (rule 7) and give the lock back.

        Returns:
            What a signed manifest pins.

        Raises:
            JournalFailed: rule 5.
            InputError: the journal is closed.
        """
        if not self._committer.stop():
            raise journal_closed()
        seal = JournalSeal(
            self._binding_digest,
            self._writer.number,
            self._committer.durable,
            self._writer.finished_bytes + self._writer.offset,
            self._committer.durable_head.hex(),
        )
        self._end(lambda: self._writer.seal(self._sealer(seal)))
        return seal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(JournalFailed):  # the error in flight says more
                self.close()

    def _end(self, last_step: Callable[[], None]) -> None:
        """Do the last step unless the journal has failed, then give the lock back in any case."""
        failure = self._committer.failure
        if failure is None:
            try:
                last_step()
            except OSError as error:
                failure = error_name(error)
        if failure is not None:
            self._writer.abandon()
        try:
            self._unlock()
        except OSError as error:
            failure = failure or error_name(error)
        if failure is not None:
            raise journal_failed(failure)


def _recover(
    writer: SegmentWriter,
    reader: JournalReader,
    names: list[str],
    on_record: Callable[[JournalRecord], None] | None,
) -> JournalEnd:
    """Rule 6; a journal without a segment gets its first one."""
    if SEAL_NAME in names:
        raise InputError(
            "the journal is sealed",
            where=SEAL_NAME,
            rule="nothing is added after the seal",
            way_out="read it; late evidence goes into a new revision of the window",
        )
    writer.remove_leftovers()
    segments = reader.count_segments()
    if segments:
        writer.attach(segments)
    for record in reader.records():
        if on_record is not None:
            on_record(record)
    end = reader.end
    if segments:
        writer.resume(end.end, torn=end.torn_bytes > 0, finished_bytes=end.size_bytes - end.end)
        writer.grow(1)
    else:
        writer.prepare(0, 1, end.head)
        writer.switch()
    return end


def _accept(verdict: FilesystemVerdict, folder: Path) -> FilesystemVerdict:
    if verdict.trust is FilesystemTrust.REFUSED:
        raise InputError(
            f"a journal cannot be kept on {verdict.type}",
            where=folder.name,
            rule=verdict.reason,
            way_out="put TASC_HOME on a local disk",
        )
    return verdict
