"""The one object through which every operating system call of a journal goes, and what a file system is trusted for.

A crash test puts another implementation here: one that dies at the n-th call, fails it, or forgets what was not synced.
Nothing in ``journal`` touches a file in any other way.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_MOUNT_TABLE: Final = Path("/proc/self/mountinfo")


class FilesystemTrust(StrEnum):
    """What durability may be claimed for a journal on a file system."""

    TRUSTED = "trusted"
    MARKED = "marked"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FilesystemVerdict:
    """One file system, judged.

    Args:
        trust: whether a journal there is taken, taken with a mark, or refused.
        type: name of the file system as the kernel spells it, or ``unknown``.
        reason: one sentence for the report.
    """

    trust: FilesystemTrust
    type: str
    reason: str


_LOCAL: Final = (FilesystemTrust.TRUSTED, "a local file system that keeps what fsync returned for")
_COPY_ON_WRITE: Final = (
    FilesystemTrust.MARKED,
    "copy-on-write: durable, but overwriting reserved space may still need new space",
)
_VOLATILE: Final = (FilesystemTrust.MARKED, "memory only: everything is lost when the machine stops")
_LAYER: Final = (FilesystemTrust.MARKED, "a container's layer: it is gone with the container; mount a volume")
_UNKNOWN: Final = (FilesystemTrust.MARKED, "its promises about fsync, rename and locks are not known to us")
_NETWORK: Final = (FilesystemTrust.REFUSED, "a network file system: locks and fsync do not hold across its clients")

FILESYSTEMS: Final[dict[str, tuple[FilesystemTrust, str]]] = {
    **dict.fromkeys(("ext2", "ext3", "ext4", "xfs", "f2fs", "jfs", "apfs"), _LOCAL),
    **dict.fromkeys(("btrfs", "zfs", "bcachefs"), _COPY_ON_WRITE),
    **dict.fromkeys(("tmpfs", "ramfs"), _VOLATILE),
    **dict.fromkeys(("overlay", "aufs"), _LAYER),
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre"), _NETWORK),
    **dict.fromkeys(("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"), _NETWORK),
}
"""Judgement per file system type; a type that is not named is marked, never trusted."""


class FileSystem(Protocol):
    """Every call that a journal makes. Each raises ``OSError`` where the operating system does."""

    def verdict(self, folder: Path) -> FilesystemVerdict:
        """Judge the file system that holds ``folder``."""

    def make_folder(self, folder: Path) -> None:
        """Make ``folder`` (0700) and its missing parents, each durable in its own parent."""

    def names(self, folder: Path) -> list[str]:
        """Names in ``folder``, sorted."""

    def create(self, path: Path) -> int:
        """Make a file (0600) that must not exist; returns a descriptor for reading and writing."""

    def open(self, path: Path) -> int:
        """Open a file that exists, no symbolic link, for reading and writing."""

    def open_lock(self, path: Path) -> int:
        """Open a lock file, made (0600) where missing; it is never deleted."""

    def lock(self, descriptor: int) -> bool:
        """Take the exclusive lock, held until the descriptor is closed; False where another holds it."""

    def size(self, descriptor: int) -> int:
        """Size in bytes."""

    def read(self, path: Path) -> bytes:
        """The whole file, no symbolic link."""

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        """Write at ``offset``; returns how many bytes were taken, which may be fewer."""

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """Make sure that writing these bytes cannot fail for want of space."""

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut or extend to ``length`` bytes."""

    def fdatasync(self, descriptor: int) -> None:
        """Make the file's data durable, and its size where that changed."""

    def fsync(self, descriptor: int) -> None:
        """Make the file's data and metadata durable."""

    def drop_cache(self, descriptor: int) -> None:
        """Forget clean cached pages, so that the next read comes from the disk."""

    def close(self, descriptor: int) -> None:
        """Close; an error counts, since some file systems report a lost write only here."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace ``target`` by ``source`` in one step."""

    def unlink(self, path: Path) -> None:
        """Remove a name."""

    def fsync_folder(self, folder: Path) -> None:
        """Make the names in ``folder`` durable."""


class OsFileSystem:
    """The real one."""

    def verdict(self, folder: Path) -> FilesystemVerdict:
        """Judge by the mount table of Linux; elsewhere the type is unknown and the journal is marked."""
        kind = _mount_type(folder)
        trust, reason = FILESYSTEMS.get(kind, _UNKNOWN)
        return FilesystemVerdict(trust, kind, reason)

    def make_folder(self, folder: Path) -> None:
        """See ``FileSystem``.

        The folders above are synced up to the first that another user owns, also where nothing was missing: a process
        that died after it made one may not have come to that.
        """
        for path in reversed((folder, *folder.parents)):
            path.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        for path in folder.absolute().parents:
            if path.stat().st_uid != os.geteuid():
                break
            self.fsync_folder(path)

    def names(self, folder: Path) -> list[str]:
        """See ``FileSystem``."""
        return sorted(os.listdir(folder))  # noqa: PTH208  # names are wanted, not paths

    def create(self, path: Path) -> int:
        """See ``FileSystem``."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE)

    def open(self, path: Path) -> int:
        """See ``FileSystem``."""
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)

    def open_lock(self, path: Path) -> int:
        """See ``FileSystem``."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _FILE_MODE)

    def lock(self, descriptor: int) -> bool:
        """See ``FileSystem``."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            raise
        return True

    def size(self, descriptor: int) -> int:
        """See ``FileSystem``."""
        return os.fstat(descriptor).st_size

    def read(self, path: Path) -> bytes:
        """See ``FileSystem``."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        """See ``FileSystem``."""
        return os.pwrite(descriptor, data, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """See ``FileSystem``; where the system has no call for it, the zeros that the journal writes do it."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, offset, length)

    def truncate(self, descriptor: int, length: int) -> None:
        """See ``FileSystem``."""
        os.ftruncate(descriptor, length)

    def fdatasync(self, descriptor: int) -> None:
        """See ``FileSystem``."""
        _DATA_SYNC(descriptor)

    def fsync(self, descriptor: int) -> None:
        """See ``FileSystem``."""
        _FULL_SYNC(descriptor)

    def drop_cache(self, descriptor: int) -> None:
        """See ``FileSystem``."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self, descriptor: int) -> None:
        """See ``FileSystem``."""
        os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """See ``FileSystem``."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """See ``FileSystem``."""
        path.unlink()

    def fsync_folder(self, folder: Path) -> None:
        """See ``FileSystem``."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _FULL_SYNC(descriptor)
        finally:
            os.close(descriptor)


def _flush_drive(descriptor: int) -> None:
    """On macOS fsync leaves the data in the drive's cache; this call does not (``man 2 fcntl``, F_FULLFSYNC)."""
    fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]  # only where the system has it


_FULL_SYNC: Final[Callable[[int], None]] = _flush_drive if hasattr(fcntl, "F_FULLFSYNC") else os.fsync
_DATA_SYNC: Final[Callable[[int], None]] = _flush_drive if hasattr(fcntl, "F_FULLFSYNC") else os.fdatasync


def _mount_type(folder: Path) -> str:
    """File system type of the innermost mount that holds ``folder`` (proc(5), mountinfo), or ``unknown``."""
    try:
        table = _MOUNT_TABLE.read_text("utf-8", "surrogateescape")
        target = folder.resolve()
    except OSError:
        return "unknown"
    return mount_type(table, target)


def mount_type(table: str, target: Path) -> str:
    """The same over the text of a mount table; later lines hide earlier ones on the same point."""
    best, best_depth = "unknown", -1
    for line in table.splitlines():
        front, separator, back = line.partition(" - ")
        fields = front.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(_unescape(fields[4]))
        depth = len(point.parts)
        if depth >= best_depth and (target == point or point in target.parents):
            best, best_depth = back.split(" ", 1)[0], depth
    return best


def _unescape(text: str) -> str:
    """Undo the octal escapes of space, tab, newline and backslash in a mount table."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text
