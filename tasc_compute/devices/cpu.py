"""The processor as the device ``cpu:0``: what a host computes with that has no accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psutil

from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor
from tasc_compute.devices.finding import HostMemory, device_memory

_LEAST_TOTAL_S: Final = 0.05
"""Processor time below which a share would be made of a few clock ticks."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds that all processors spent since boot, and that they were busy."""

    total: float
    busy: float


def cpu_times() -> CpuTimes | None:
    """What the kernel counted so far; ``None`` where it does not say."""
    try:
        times = psutil.cpu_times()
    except (OSError, psutil.Error, ValueError):
        return None
    # guest time is counted in user time already; waiting for a disk is idle time
    total = sum(value for name, value in times._asdict().items() if name not in ("guest", "guest_nice"))
    return CpuTimes(total, total - times.idle - getattr(times, "iowait", 0.0))


def utilization(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Busy share in percent between two readings; ``None`` where they are too close, or missing."""
    if before is None or after is None or after.total - before.total < _LEAST_TOTAL_S:
        return None
    return min(100.0, max(0.0, 100 * (after.busy - before.busy) / (after.total - before.total)))


def cpu_device(model: str, memory: HostMemory | None, busy_pct: float | None) -> AcceleratorInfo:
    """The device ``cpu:0``; its memory is the host's."""
    total, used = device_memory(None, None, unified=True, host=memory)
    return AcceleratorInfo(
        id="cpu:0",
        index=0,
        vendor=DeviceVendor.UNKNOWN,
        name=model,
        accelerator=Accelerator.CPU,
        memory_total_bytes=total,
        memory_used_bytes=used,
        unified_memory=True,
        utilization_pct=busy_pct,
        temperature_c=None,
        power_watts=None,
        power_limit_watts=None,
        driver=None,
    )
