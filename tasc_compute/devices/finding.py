"""What a probe works with and what it finds. Every vendor's module is ``probe(context) -> Finding``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tasc_compute.contracts import AcceleratorInfo, DeviceId, HostArch, HostPlatform
from tasc_compute.devices.runner import Tools, ToolStatus
from tasc_compute.visibility import DevicePlace


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of the host in bytes, as far as this process may use it."""

    total: int
    available: int


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What a probe may touch.

    Args:
        tools: the runner of commands.
        root: the file system's root; files of /proc, /sys and /dev are read below it.
        platform: operating system.
        arch: processor architecture.
        memory: host memory, for devices that share it; ``None`` where it cannot be told.
    """

    tools: Tools
    root: Path
    platform: HostPlatform
    arch: HostArch
    memory: HostMemory | None

    def path(self, name: str) -> Path:
        """An absolute path below the root."""
        return self.root / name.lstrip("/")


class FaultCategory(StrEnum):
    """Why a probe could not answer; a tool that is not installed is no fault."""

    TIMED_OUT = "timed-out"
    TOO_LARGE = "too-large"
    WEDGED = "wedged"
    NOT_STARTED = "not-started"
    UNREADABLE = "unreadable"
    DRIVER = "driver"
    DEVICE_LOST = "device-lost"
    NO_SLICES = "no-slices"
    DUPLICATE_ID = "duplicate-id"


_OF_STATUS: Mapping[ToolStatus, FaultCategory] = {
    ToolStatus.TIMED_OUT: FaultCategory.TIMED_OUT,
    ToolStatus.TOO_LARGE: FaultCategory.TOO_LARGE,
    ToolStatus.WEDGED: FaultCategory.WEDGED,
    ToolStatus.NOT_STARTED: FaultCategory.NOT_STARTED,
}


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """A probe (by its tool's name) that could not answer, and why."""

    probe: str
    category: FaultCategory

    @classmethod
    def of_status(cls, probe: str, status: ToolStatus) -> tuple[ProbeFault, ...]:
        """The fault of a tool's run; none for a tool that answered or is not there."""
        category = _OF_STATUS.get(status)
        return () if category is None else (cls(probe, category),)


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A process that computes on a device; bytes are ``None`` where they cannot be told."""

    device: DeviceId
    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe found.

    Args:
        accelerators: devices, with the driver's indices (never made compact).
        places: where they are during this boot.
        uses: processes on them.
        faults: what could not be answered.
    """

    accelerators: tuple[AcceleratorInfo, ...] = ()
    places: Mapping[DeviceId, DevicePlace] = field(default_factory=dict)
    uses: tuple[DeviceUse, ...] = ()
    faults: tuple[ProbeFault, ...] = ()


def device_memory(total: int | None, used: int | None, *, unified: bool, host: HostMemory | None) -> tuple[int, int]:
    """Total and used bytes of a device; ``(0, 0)`` where they cannot be told (the contract has no null here).

    Device memory that *is* host memory is given as the host's: total, and total minus available. A carve-out or a
    graphics translation table is a part of it and is not added (legacy-rocm-build issue 6004, ollama issue 5471).
    """
    if unified:
        return (host.total, max(0, host.total - host.available)) if host is not None else (0, 0)
    if not total or used is None:
        return 0, 0
    return total, min(used, total)
