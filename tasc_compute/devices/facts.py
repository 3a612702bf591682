"""Who else uses a device: what a lease cannot know, asked before a launch takes one.

Compute processes count; a desktop that draws on a GPU does not. NVIDIA and AMD tell them; where a platform does not
(WSL, Intel, Apple), none are known. Processes of our own engines, in a group or a container of theirs, are not foreign:
engines on a device that shares memory with the host may stand side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tasc_compute.contracts import DeviceId, DockerReference, ProcessReference
from tasc_compute.devices.finding import DeviceUse
from tasc_compute.devices.snapshot import accelerators, probe_context
from tasc_compute.devices.values import MIB, read_small
from tasc_compute.instances import InstanceStore
from tasc_compute.reservations import ForeignUse

UNKNOWN_PROCESS = "unknown"
"""Name of a process that cannot be seen from here, such as one of another container."""


def current_uses() -> tuple[DeviceUse, ...]:
    """Compute processes on this host's accelerators now."""
    return accelerators(probe_context()).uses


class ProbedDeviceFacts:
    """``DeviceFacts`` from the probes.

    Args:
        store: our instances, whose processes are not foreign.
        uses: the probe.
        proc: the proc file system.
    """

    def __init__(
        self,
        store: InstanceStore,
        uses: Callable[[], Sequence[DeviceUse]] = current_uses,
        proc: Path = Path("/proc"),
    ) -> None:
        self._store, self._uses, self._proc = store, uses, proc

    def foreign_uses(self, devices: Sequence[DeviceId]) -> Sequence[ForeignUse]:
        """Processes that use these devices now and are none of ours, each once per device."""
        wanted = [use for use in self._uses() if use.device in devices]
        if not wanted:
            return ()
        ours = self._ours()
        found: dict[tuple[DeviceId, int], ForeignUse] = {}
        for use in wanted:
            if not self._is_ours(use.pid, ours):
                memory_mb = None if use.memory_bytes is None else use.memory_bytes // MIB
                found[use.device, use.pid] = ForeignUse(use.device, use.pid, process_name(use.pid), memory_mb)
        return tuple(found.values())

    def _ours(self) -> _Ours:
        pids: set[int] = set()
        groups: set[int] = set()
        containers: set[str] = set()
        for record in self._store.all()[0]:
            pids.update(self._store.members(record))
            if isinstance(record.ref, ProcessReference):
                groups.add(record.ref.pid)
            elif isinstance(record.ref, DockerReference):
                containers.add(record.ref.container)
        return _Ours(frozenset(pids), frozenset(groups), frozenset(containers))

    def _is_ours(self, pid: int, ours: _Ours) -> bool:
        if pid in ours.pids or _group(pid) in ours.groups:
            return True
        # a container's processes are in a control group that is named after its full id
        path = read_small(self._proc / str(pid) / "cgroup") or ""
        return any(container in path for container in ours.containers)


@dataclass(frozen=True, slots=True)
class _Ours:
    """What our engines run as; a group's number stays taken while a member lives."""

    pids: frozenset[int]
    groups: frozenset[int]
    containers: frozenset[str]


def process_name(pid: int) -> str:
    """Name of a process's executable, or ``unknown``."""
    try:
        return Path(psutil.Process(pid).name()).name or UNKNOWN_PROCESS
    except (psutil.Error, OSError, ValueError):
        return UNKNOWN_PROCESS


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (OSError, OverflowError):
        return None
