"""One owner per journal: an exclusive ``flock`` on ``owner.lock``.

Rules:
- The process that sends holds the lock from before it reads the journal until after its last write.
- The kernel releases it when the process ends, however it ends; so no file is deleted and no process id is trusted.
- The text in the file names the last owner, for people. It is written over by the next owner, and may be torn by a crash;
  where a lease was made is said by the admission before it.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import orjson

from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.errors import JournalLocked
from tasc_collector.journal.filesystem import FileSystem
from tasc_collector.journal.format import LOCK_NAME

_HOST_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a journal.

    Args:
        pid: process id on ``host``.
        host: host name; empty where the system has none.
        since: UTC timestamp with milliseconds.
    """

    pid: int
    host: str
    since: str

    @classmethod
    def current(cls) -> Self:
        """This process, now."""
        return cls(os.getpid(), platform.node()[:_HOST_CHARACTERS], timestamp_of_ms(time.time_ns() // 1_000_000))


def take_lock(fs: FileSystem, folder: Path, owner: Owner) -> tuple[int, Owner | None]:
    """Take the folder's lock and write the owner's name into it.

    Returns:
        The descriptor that holds the lock until it is closed, and who held it last, where the file tells.

    Raises:
        JournalLocked: another process holds it; the message says who and since when.
        OSError: the lock file cannot be opened or written.
    """
    path = folder / LOCK_NAME
    descriptor = fs.open_lock(path)
    try:
        taken, before = fs.lock(descriptor), None
        if taken:
            before = _read(fs, path)
            fs.truncate(descriptor, 0)
            fs.pwrite(descriptor, orjson.dumps({"pid": owner.pid, "host": owner.host, "since": owner.since}), 0)
    except BaseException:
        fs.close(descriptor)
        raise
    if not taken:
        fs.close(descriptor)
        raise _in_use(fs, path)
    return descriptor, before


def refuse_if_owned(fs: FileSystem, folder: Path) -> None:
    """Raise ``JournalLocked`` where a process is writing the journal now.

    Raises:
        JournalLocked: it is in use; the message says by whom.
        OSError: the lock file cannot be opened.
    """
    if LOCK_NAME not in fs.names(folder):
        return
    descriptor = fs.open_lock(folder / LOCK_NAME)
    try:
        free = fs.lock(descriptor)
    finally:
        fs.close(descriptor)
    if not free:
        raise _in_use(fs, folder / LOCK_NAME)


def _in_use(fs: FileSystem, path: Path) -> JournalLocked:
    return JournalLocked(
        f"the journal is in use by {_holder(fs, path)}",
        where=path.parent.name,
        way_out="wait until that process ends, or stop it; its lock ends with it",
    )


def held_by(fs: FileSystem, folder: Path) -> str | None:
    """Who holds a journal now, as words for people; None where nobody does or there is no journal.

    It asks by taking the lock for an instant, so it is for a person's question and not for a loop.
    """
    path = folder / LOCK_NAME
    if LOCK_NAME not in fs.names(folder):
        return None
    descriptor = fs.open_lock(path)
    try:
        return None if fs.lock(descriptor) else _holder(fs, path)
    finally:
        fs.close(descriptor)


def _holder(fs: FileSystem, path: Path) -> str:
    try:
        found = _read(fs, path)
    except OSError:
        found = None
    return "another process" if found is None else f"process {found.pid} on {found.host} since {found.since}"


def _read(fs: FileSystem, path: Path) -> Owner | None:
    """Who wrote the lock file last; None where it does not tell, as after a crash in the midst of that."""
    try:
        found = orjson.loads(fs.read(path))
        return Owner(int(found["pid"]), str(found["host"])[:_HOST_CHARACTERS], str(found["since"])[:24])
    except (ValueError, TypeError, KeyError):
        return None
