"""Writing segments: the current file, its reserved space, and the step to the next. Knows no records and no threads.

Rules:
1. Space is allocated, filled with zeros and synced before it counts as reserved, so a commit changes data only.
2. A segment has its final name only once its header is durable; the name is durable before the first write.
3. The segment before it ends exactly with its last record by then.
4. Only want of space (``SPACE_ERRORS``) while reserving is harmless. After any other error the writer must not be used
   again: what the disk holds is not known, and a second fsync would not say.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tasc_collector.journal.filesystem import FileSystem
from tasc_collector.journal.format import (
    HEADER_BYTES,
    SEAL_NAME,
    TEMPORARY_SUFFIX,
    segment_header,
    segment_name,
)

SPACE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FILL_BYTES: Final = 1024 * 1024


class NoSpace(Exception):  # internal signal of rule 4, becomes JournalFull
    """Space could not be reserved; nothing that was reserved before is affected."""


@contextlib.contextmanager
def _space_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in SPACE_ERRORS:
            raise NoSpace from None
        raise


class SegmentWriter:
    """The segment that is written now.

    Args:
        fs: where it lies.
        folder: the journal's folder.
        binding_digest: ``sha256:<hex>`` of the journal's binding.
        grow_bytes: step in which space is reserved.

    Attributes:
        number: the segment's number, 0 before the first.
        offset: where the next record goes.
        capacity: end of the reserved space.
        finished_bytes: sum of the sizes of the segments before this one.
    """

    def __init__(self, fs: FileSystem, folder: Path, binding_digest: str, grow_bytes: int) -> None:
        self._fs, self._folder, self._binding_digest, self._grow_bytes = fs, folder, binding_digest, grow_bytes
        self._descriptor: int | None = None
        self._prepared: tuple[int, int] | None = None
        self.number = self.offset = self.capacity = self.finished_bytes = 0

    def remove_leftovers(self) -> None:
        """Remove temporary files of a process that died; they are never read."""
        for name in self._fs.names(self._folder):
            if name.endswith(TEMPORARY_SUFFIX):
                self._fs.unlink(self._folder / name)

    def attach(self, number: int) -> None:
        """Open the last segment of an older process and make durable what that process only wrote.

        Cached pages are dropped after the sync: if an earlier one failed, the kernel may show data that the disk never
        took.
        """
        self._descriptor = self._fs.open(self._folder / segment_name(number))
        self._fs.fsync(self._descriptor)
        self._fs.drop_cache(self._descriptor)
        self._fs.fsync_folder(self._folder)
        self.number = number

    def resume(self, end: int, *, torn: bool, finished_bytes: int) -> None:
        """Continue the attached segment after its last record; a torn write after it is cut, durably."""
        descriptor = self._open_descriptor()
        if torn:
            self._fs.truncate(descriptor, end)
            self._fs.fsync(descriptor)
        self.offset = self.capacity = end
        self.finished_bytes = finished_bytes

    def prepare(self, minimum_bytes: int, first_sequence: int, head: bytes) -> int:
        """Make the next segment under a temporary name, its header and space durable.

        Args:
            minimum_bytes: space for records that it must hold at least.
            first_sequence: sequence of its first record.
            head: chain head before that record.

        Returns:
            Space for records in bytes.

        Raises:
            NoSpace: nothing was changed.
        """
        path = self._next_path(TEMPORARY_SUFFIX)
        capacity = HEADER_BYTES + max(minimum_bytes, self._grow_bytes)
        with _space_errors():
            descriptor = self._fs.create(path)
        self._prepared = descriptor, capacity
        try:
            self._fill(descriptor, 0, capacity)
        except NoSpace:
            self._prepared = None
            self._fs.close(descriptor)
            self._fs.unlink(path)
            raise
        self._write_all(descriptor, segment_header(self.number + 1, first_sequence, self._binding_digest, head), 0)
        self._fs.fsync(descriptor)
        return capacity - HEADER_BYTES

    def switch(self) -> None:
        """End the current segment with its last record and continue in the prepared one; durable when it returns.

        Raises:
            RuntimeError: none was prepared.
            OSError: the file system refused.
        """
        if self._prepared is None:
            raise RuntimeError("no segment was prepared")
        self._finish()
        self._fs.rename(self._next_path(TEMPORARY_SUFFIX), self._next_path(""))
        self._fs.fsync_folder(self._folder)
        self.number += 1
        self._descriptor, self.capacity = self._prepared
        self.offset, self._prepared = HEADER_BYTES, None

    def write(self, data: bytes) -> None:
        """Write records at the end, durably when it returns."""
        descriptor = self._open_descriptor()
        self._write_all(descriptor, data, self.offset)
        self._fs.fdatasync(descriptor)
        self.offset += len(data)

    def grow(self, minimum_bytes: int) -> int:
        """Reserve at least so many more bytes in the current segment.

        Returns:
            How many bytes more there are.

        Raises:
            NoSpace: what was reserved before still is.
        """
        descriptor = self._open_descriptor()
        step = -(-minimum_bytes // self._grow_bytes) * self._grow_bytes
        self._fill(descriptor, self.capacity, step)
        self._fs.fsync(descriptor)
        self.capacity += step
        return step

    def seal(self, seal: bytes) -> None:
        """End the last segment with its last record and put the seal beside it."""
        self._finish()
        path = self._folder / (SEAL_NAME + TEMPORARY_SUFFIX)
        self._descriptor = self._fs.create(path)
        self._write_all(self._descriptor, seal, 0)
        self._fs.fsync(self._descriptor)
        self.close()
        self._fs.rename(path, self._folder / SEAL_NAME)
        self._fs.fsync_folder(self._folder)

    def close(self) -> None:
        """Close the current segment."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._fs.close(descriptor)

    def abandon(self) -> None:
        """Close what is open after an error; a further error changes nothing."""
        for descriptor in (self._descriptor, self._prepared[0] if self._prepared else None):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    self._fs.close(descriptor)
        self._descriptor = self._prepared = None

    def _finish(self) -> None:
        if self._descriptor is not None:
            self._fs.truncate(self._descriptor, self.offset)
            self._fs.fsync(self._descriptor)
            self.close()
            self.finished_bytes += self.offset

    def _fill(self, descriptor: int, offset: int, length: int) -> None:
        with _space_errors():
            self._fs.allocate(descriptor, offset, length)
            for start in range(offset, offset + length, _FILL_BYTES):
                self._write_all(descriptor, bytes(min(_FILL_BYTES, offset + length - start)), start)

    def _write_all(self, descriptor: int, data: bytes, offset: int) -> None:
        written = self._fs.pwrite(descriptor, data, offset)
        while written < len(data):
            taken = self._fs.pwrite(descriptor, data[written:], offset + written)
            if taken <= 0:
                raise OSError(errno.EIO, "a write takes nothing")
            written += taken

    def _next_path(self, suffix: str) -> Path:
        return self._folder / (segment_name(self.number + 1) + suffix)

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise RuntimeError("no segment is open")
        return self._descriptor
