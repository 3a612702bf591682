"""Files of signed records, one canonical JSON record per line, that a run appends to while it goes on.

One process at a time appends: a second one is refused, because what it wrote would stand between the lines that a batch
of the first one covers, and what it cut would be the first one's. A run that is resumed appends. A last line that a crash
has torn is cut off before more is written and left out when the file is read; any other bad line is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self, TypeVar

from tasc_collector.contracts.operations import KeyRing, KeyRole
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.limits import RECORD_MAX_BYTES
from tasc_collector.wire.records import read_lines, read_record
from tasc_pipeline.home import keys

S = TypeVar("S", bound=SignedRecord)

_TORN_MAX_BYTES: Final = RECORD_MAX_BYTES


class AppendedLines:
    """Appends whole lines to a file while the block runs; they are durable when it ends.

    Args:
        path: the file; made with mode 0600 where it is missing. A symbolic link is refused.

    Raises:
        BlockingIOError: (on entering) another run is appending to it; nothing was changed.
        OSError: (on entering, writing or leaving) the file cannot be opened, written or synced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._start = 0
        self._forgotten = False

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise
        size = os.fstat(self._descriptor).st_size
        back = min(size, _TORN_MAX_BYTES)
        tail = os.pread(self._descriptor, back, size - back)
        self._start = size - (len(tail) - (tail.rfind(b"\n") + 1))
        if self._start < size:
            os.ftruncate(self._descriptor, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._forgotten:
                os.ftruncate(self._descriptor, self._start)
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def write(self, line: bytes) -> None:
        """Append one line with a single write; what a full disk took of it only in part is taken back."""
        data = line + b"\n"
        written = os.write(self._descriptor, data)
        if written < len(data):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def forget(self) -> None:
        """Drop what this block wrote when it ends: nothing was sent, so there is nothing that it goes with."""
        self._forgotten = True


def read_signed_lines(
    cls: type[S], path: Path, ring: KeyRing, role: KeyRole, signed_at: Callable[[S], str]
) -> Iterator[S]:
    """The records of a file, each verified, in order; none where there is no file.

    Args:
        cls: the record's class.
        path: the file.
        ring: public keys.
        role: whose key must have signed.
        signed_at: the instant at which that key must have been valid.

    Raises:
        InputError: a line is no such record.
        SignatureError: no such key of the ring signed it.
    """
    if not path.is_file():
        return
    for number, line in enumerate(read_lines(path, RECORD_MAX_BYTES), start=1):
        where = f"{path.name} line {number}"
        parsed = read_record(cls, line, where=where)
        record = parsed.record
        key = keys.public_key(ring, record.signature.authority_key_id, (role,), signed_at(record), where=where)
        cls.check_signature(parsed, key, where=where)
        yield record
