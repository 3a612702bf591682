"""A disk in memory that forgets what was not synced, and a process's view of it that can be made to fail.

Rules of the disk:
- A write is seen by every process at once. It is kept by a power loss only if a sync of the file returned after it;
  else a prefix of the unsynced writes is kept, the last of them torn to a prefix of 512-byte sectors.
- A new, renamed or removed name is kept only if a sync of the folder returned after it; else either way.
- A sync that fails loses what it should have kept, though every process still sees it until the cache is dropped; the
  next sync succeeds and keeps nothing of that (Linux since 4.13, "fsyncgate").
- A power loss, and the end of a process, release its locks.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tasc_collector.journal.filesystem import FilesystemTrust, FilesystemVerdict

SECTOR = 512
FILE_CALLS = frozenset(
    {"mkdir", "names", "create", "open", "lock", "size", "read", "pwrite", "allocate", "truncate", "fdatasync"}
    | {"fsync", "fadvise", "close", "rename", "unlink", "fsync-folder"}
)
"""Names under which a file system call is shown to the hook."""
Hook = Callable[[str], Literal["short"] | None]
"""Called before each operating system call with its name; raises to fail it, says ``short`` to shorten a write."""


@dataclass
class Inode:
    """One file: what is seen, what is kept, and the changes between the two."""

    seen: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Unsynced changes in order: (offset, data) is a write, (length, None) a truncation."""

    def change(self, offset: int, data: bytes | None) -> None:
        _apply(self.seen, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.kept, offset, data)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        count = rng.randint(0, len(self.pending))
        for offset, data in self.pending[:count]:
            _apply(self.kept, offset, data)
        if count < len(self.pending):
            offset, data = self.pending[count]
            if data is not None:
                boundary = rng.randint(offset // SECTOR, (offset + len(data)) // SECTOR) * SECTOR
                if boundary > offset:
                    _apply(self.kept, offset, data[: boundary - offset])
        self.pending.clear()
        self.seen = bytearray(self.kept)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    else:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


class MemoryDisk:
    """The machine's disk: it outlives processes."""

    def __init__(self) -> None:
        self.names: dict[Path, Inode] = {}
        self.kept_names: dict[Path, Inode] = {}
        self.folders: set[Path] = set()
        self.locks: set[int] = set()
        self.free_bytes: int | None = None
        """Space left for ``allocate``; None is without bound."""

    def end_process(self) -> None:
        """The kernel releases what a process held."""
        self.locks.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Stop the machine: see the rules of this module."""
        self.end_process()
        if rng.random() < 0.5:
            self.names = dict(self.kept_names)
        else:
            self.kept_names = dict(self.names)
        for inode in {id(inode): inode for inode in self.names.values()}.values():
            inode.lose_power(rng)

    def flip(self, path: Path, bit: int) -> None:
        """Damage one bit of a file, durably."""
        inode = self.names[path]
        for content in (inode.seen, inode.kept):
            content[bit // 8] ^= 1 << (bit % 8)


class MemoryFileSystem:
    """One process's view of a disk; every call asks the hook first."""

    def __init__(self, disk: MemoryDisk, hook: Hook = lambda _: None) -> None:
        self.disk, self._hook = disk, hook
        self._open: dict[int, Inode] = {}
        self._next = 3

    @property
    def open_files(self) -> int:
        return len(self._open)

    def verdict(self, folder: Path) -> FilesystemVerdict:
        return FilesystemVerdict(FilesystemTrust.TRUSTED, "memory-disk", "it forgets what was not synced, as disks do")

    def make_folder(self, folder: Path) -> None:
        self._hook("mkdir")
        self.disk.folders.add(folder)

    def names(self, folder: Path) -> list[str]:
        self._hook("names")
        if folder not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder")
        return sorted(path.name for path in self.disk.names if path.parent == folder)

    def create(self, path: Path) -> int:
        self._hook("create")
        if path in self.disk.names:
            raise FileExistsError(errno.EEXIST, "the file exists")
        self.disk.names[path] = Inode()
        return self._descriptor(path)

    def open(self, path: Path) -> int:
        self._hook("open")
        if path not in self.disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        return self._descriptor(path)

    def open_lock(self, path: Path) -> int:
        self._hook("open")
        self.disk.names.setdefault(path, Inode())
        return self._descriptor(path)

    def lock(self, descriptor: int) -> bool:
        self._hook("lock")
        inode = id(self._open[descriptor])
        if inode in self.disk.locks:
            return False
        self.disk.locks.add(inode)
        return True

    def size(self, descriptor: int) -> int:
        self._hook("size")
        return len(self._open[descriptor].seen)

    def read(self, path: Path) -> bytes:
        self._hook("read")
        if path not in self.disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        return bytes(self.disk.names[path].seen)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        if self._hook("pwrite") == "short":
            data = data[: max(1, len(data) // 2)]
        self._open[descriptor].change(offset, bytes(data))
        return len(data)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        self._hook("allocate")
        if self.disk.free_bytes is not None:
            if self.disk.free_bytes < length:
                raise OSError(errno.ENOSPC, "the disk is full")
            self.disk.free_bytes -= length

    def truncate(self, descriptor: int, length: int) -> None:
        self._hook("truncate")
        self._open[descriptor].change(length, None)

    def fdatasync(self, descriptor: int) -> None:
        self._sync("fdatasync", descriptor)

    def fsync(self, descriptor: int) -> None:
        self._sync("fsync", descriptor)

    def drop_cache(self, descriptor: int) -> None:
        self._hook("fadvise")
        inode = self._open[descriptor]
        inode.seen = bytearray(inode.kept)
        for offset, data in inode.pending:
            _apply(inode.seen, offset, data)

    def close(self, descriptor: int) -> None:
        inode = self._open.pop(descriptor)
        self.disk.locks.discard(id(inode))
        self._hook("close")

    def rename(self, source: Path, target: Path) -> None:
        self._hook("rename")
        self.disk.names[target] = self.disk.names.pop(source)

    def unlink(self, path: Path) -> None:
        self._hook("unlink")
        del self.disk.names[path]

    def fsync_folder(self, folder: Path) -> None:
        self._hook("fsync-folder")
        self.disk.kept_names = dict(self.disk.names)

    def _descriptor(self, path: Path) -> int:
        self._next += 1
        self._open[self._next] = self.disk.names[path]
        return self._next

    def _sync(self, name: str, descriptor: int) -> None:
        inode = self._open[descriptor]
        try:
            self._hook(name)
        except OSError:
            inode.pending.clear()
            raise
        inode.sync()
