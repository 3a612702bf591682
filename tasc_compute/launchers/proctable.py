"""The process table: who lives, in which group, since when, and who listens where. Read-only.

A start token is ``<boot id>:<start time>``. On Linux the start time is field 22 of ``/proc/<pid>/stat`` in clock ticks,
counted after the last ``)`` because a command name may hold spaces and parentheses. A process in state Z or X is dead:
``kill(pid, 0)`` still succeeds on an unreaped one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil

_DEAD_STATES: Final = frozenset("ZXx")
_LISTEN_STATE: Final = "0A"


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One row of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    token: str
    dead: bool


class ProcessTable(Protocol):
    """What the process launcher asks of an operating system."""

    def read(self, pid: int) -> ProcessInfo | None:
        """The row of a pid, dead ones included; ``None`` if there is none."""

    def rows(self) -> tuple[ProcessInfo, ...]:
        """All rows that can be read."""

    def marker(self, pid: int, name: str) -> str | None:
        """A variable of a process's initial environment; ``None`` where it is absent or cannot be read."""

    def listens(self, pids: Iterable[int], port: int) -> bool | None:
        """Whether one of the processes listens on a TCP port; ``None`` if this cannot be told."""

    def listener(self, port: int) -> int | None:
        """A process that listens on a TCP port, as far as it can be seen."""


class LinuxProcessTable:
    """Reads ``/proc``.

    Args:
        root: the proc file system.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._boot = (root / "sys/kernel/random/boot_id").read_text().strip()

    def read(self, pid: int) -> ProcessInfo | None:
        """The row of a pid.

        The state is that of its first thread. A process of which another still runs is no corpse, though it reads ``Z``: it
        holds its devices, and cannot be reaped yet.
        """
        try:
            text = (self._root / str(pid) / "stat").read_bytes()
            fields = text[text.rindex(b")") + 2 :].split()
            return ProcessInfo(
                pid,
                int(fields[1]),
                int(fields[2]),
                int(fields[3]),
                f"{self._boot}:{int(fields[19])}",
                fields[0].decode() in _DEAD_STATES and int(fields[17]) <= 1,
            )
        except (OSError, ValueError, IndexError):
            return None

    def rows(self) -> tuple[ProcessInfo, ...]:
        """All rows."""
        found = (self.read(int(name)) for name in os.listdir(self._root) if name.isdigit())  # noqa: PTH208  # no Path per pid
        return tuple(row for row in found if row is not None)

    def marker(self, pid: int, name: str) -> str | None:
        """A variable of the initial environment; processes that rewrite their title have lost it."""
        try:
            data = (self._root / str(pid) / "environ").read_bytes()
        except OSError:
            return None
        prefix = name.encode() + b"="
        values = [item[len(prefix) :] for item in data.split(b"\0") if item.startswith(prefix)]
        return values[0].decode("utf-8", "replace") if values else None

    def listens(self, pids: Iterable[int], port: int) -> bool | None:
        """Whether one of the processes holds a listening socket's inode."""
        inodes = self._inodes(port)
        if inodes is None:
            return None
        return any(self._holds(pid, inodes) for pid in pids) if inodes else False

    def listener(self, port: int) -> int | None:
        """The first process that holds a listening socket on a port."""
        inodes = self._inodes(port)
        if not inodes:
            return None
        return next((row.pid for row in self.rows() if self._holds(row.pid, inodes)), None)

    def _inodes(self, port: int) -> frozenset[str] | None:
        found: set[str] = set()
        readable = False
        for name in ("net/tcp", "net/tcp6"):
            with contextlib.suppress(OSError):
                lines = (self._root / name).read_text().splitlines()[1:]
                readable = True
                for columns in (line.split() for line in lines):
                    if (
                        len(columns) > 9
                        and columns[3] == _LISTEN_STATE
                        and int(columns[1].rsplit(":", 1)[1], 16) == port
                    ):
                        found.add(f"socket:[{columns[9]}]")
        return frozenset(found) if readable else None

    def _holds(self, pid: int, inodes: frozenset[str]) -> bool:
        folder = self._root / str(pid) / "fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208  # names only
                with contextlib.suppress(OSError):
                    if os.readlink(folder / name) in inodes:  # noqa: PTH115  # no Path per descriptor
                        return True
        return False


class PsutilProcessTable:
    """The same through psutil, where there is no ``/proc`` (macOS). The start time is in seconds since the epoch."""

    def __init__(self) -> None:
        self._boot = f"{psutil.boot_time():.0f}"

    def read(self, pid: int) -> ProcessInfo | None:
        """The row of a pid."""
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                token = f"{self._boot}:{process.create_time():.3f}"
                dead = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
                return ProcessInfo(pid, process.ppid(), os.getpgid(pid), os.getsid(pid), token, dead)
        except (psutil.Error, OSError):
            return None

    def rows(self) -> tuple[ProcessInfo, ...]:
        """All rows."""
        return tuple(row for pid in psutil.pids() if (row := self.read(pid)) is not None)

    def marker(self, pid: int, name: str) -> str | None:
        """A variable of the initial environment."""
        try:
            value = psutil.Process(pid).environ().get(name)
        except (psutil.Error, OSError):
            return None
        return value if isinstance(value, str) else None

    def listens(self, pids: Iterable[int], port: int) -> bool | None:
        """Whether one of the processes listens on a port."""
        told = False
        for pid in pids:
            with contextlib.suppress(psutil.Error, OSError):
                connections = psutil.Process(pid).net_connections("tcp")
                told = True
                if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
                    return True
        return False if told else None

    def listener(self, port: int) -> int | None:
        """The first process of ours that listens on a port."""
        return next((pid for pid in psutil.pids() if self.listens([pid], port)), None)


def process_table() -> ProcessTable:
    """The process table of this operating system."""
    return LinuxProcessTable() if Path("/proc/self/stat").exists() else PsutilProcessTable()
