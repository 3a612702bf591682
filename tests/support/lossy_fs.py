"""A FUSE file system over a ``MemoryDisk``: real system calls on a disk that forgets what was not synced.

Run as a program: ``python -m tests.support.lossy_fs MOUNT_POINT``. Writing to the file ``.control`` in it:

- ``arm N SEED``: the power fails at the N-th change or sync from now; every call after it fails until ``reboot``;
- ``reboot``: the disk is there again, with what it kept.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import mfusepy

from tests.support.memory_disk import Inode, MemoryDisk
from tests.support.processes import killed_after, next_line

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROL = "/.control"


class LossyFiles(mfusepy.Operations):  # type: ignore[misc]  # it ships no types
    """The operations that a journal needs."""

    use_ns = True

    def __init__(self) -> None:
        self._disk = MemoryDisk()
        self._disk.folders.add(Path("/"))
        self._handles: dict[int, Inode | None] = {}
        self._next = 0
        self._countdown: int | None = None
        self._rng = random.Random(0)
        self._off = False

    def _inode(self, path: str) -> Inode:
        try:
            return self._disk.names[Path(path)]
        except KeyError:
            raise mfusepy.FuseOSError(errno.ENOENT) from None

    def _handle(self, inode: Inode | None) -> int:
        self._next += 1
        self._handles[self._next] = inode
        return self._next

    def _file(self, handle: int) -> Inode:
        inode = self._handles[handle]
        if inode is None:
            raise mfusepy.FuseOSError(errno.EINVAL)
        return inode

    def _change(self) -> None:
        """Count one change or sync; fail where the power is off or goes off now."""
        if self._countdown is not None:
            self._countdown -= 1
            if self._countdown == 0:
                self._countdown, self._off = None, True
                self._disk.lose_power(self._rng)
        self._alive()

    def _alive(self) -> None:
        if self._off:
            raise mfusepy.FuseOSError(errno.EIO)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        if path == CONTROL:
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": 0}
        if Path(path) in self._disk.folders:
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(self._inode(path).seen)}

    def readdir(self, path: str, fh: int) -> list[str]:
        self._alive()
        return [".", "..", *(name.name for name in self._disk.names if name.parent == Path(path))]

    def mkdir(self, path: str, mode: int) -> int:
        self._disk.folders.add(Path(path))
        return 0

    def create(self, path: str, mode: int, fi: object = None) -> int:
        self._change()
        self._disk.names[Path(path)] = Inode()
        return self._handle(self._inode(path))

    def open(self, path: str, flags: int) -> int:
        if path == CONTROL:
            return self._handle(None)
        self._alive()
        return self._handle(self._inode(path))

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._alive()
        return bytes(self._file(fh).seen[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if self._handles[fh] is None:
            self._obey(data.decode().split())
        else:
            self._change()
            self._file(fh).change(offset, data)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        if path != CONTROL:
            self._change()
            self._inode(path).change(length, None)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._change()
        self._file(fh).sync()
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._change()
        self._disk.kept_names = dict(self._disk.names)
        return 0

    def flush(self, path: str, fh: int) -> int:
        return 0

    def release(self, path: str, fh: int) -> int:
        del self._handles[fh]
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        self._change()
        self._disk.names[Path(new)] = self._disk.names.pop(Path(old))
        return 0

    def unlink(self, path: str) -> int:
        self._change()
        del self._disk.names[Path(path)]
        return 0

    def _obey(self, words: list[str]) -> None:
        if words[0] == "arm":
            self._countdown, self._rng = int(words[1]), random.Random(int(words[2]))
        else:
            self._countdown, self._off = None, False


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Mount one on ``folder`` in a process of its own."""
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.lossy_fs", str(folder)],
        cwd=Path(__file__).resolve().parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            assert next_line(process) == b"mounted\n"
            yield folder
        finally:  # lazily, because a test that failed may hold files open there
            subprocess.run(["fusermount3", "-u", "-z", str(folder)], check=False, timeout=60)
            with killed_after(process, 30):
                process.communicate(timeout=60)


def _end_with_parent() -> None:
    """A test that is killed closes the pipe; a call that waits for this file system then fails instead of hanging."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    class Announcing(LossyFiles):
        def init(self, path: str) -> None:
            sys.stdout.write("mounted\n")
            sys.stdout.flush()

    threading.Thread(target=_end_with_parent, daemon=True).start()
    options = {"entry_timeout": 0, "attr_timeout": 0, "negative_timeout": 0, "direct_io": True, "fsname": "lossy"}
    options["auto_unmount"] = True
    mfusepy.FUSE(Announcing(), sys.argv[1], foreground=True, nothreads=True, **options)


if __name__ == "__main__":
    main()
