"""The host: processor, memory, release, uptime.

Memory is what this process may use: where a control group (version 2) limits it below the machine's, the limit counts,
because an engine that we start lives under it. Available memory is the kernel's estimate (``MemAvailable``; on a Mac
free, inactive, speculative and purgeable pages), and never more than the group has left.
"""

from __future__ import annotations

import platform
import re
import warnings
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

from tasc_compute.contracts import HostInfo, HostPlatform
from tasc_compute.devices.finding import HostMemory, ProbeContext
from tasc_compute.devices.runner import Tools
from tasc_compute.devices.values import read_small, size, text

_MODEL_LINE: Final = re.compile(r"^(?:model name|Hardware|Model name)\s*:\s*(.+)$", re.MULTILINE)
_GROUP_LINE: Final = re.compile(r"^0::(/.*)$", re.MULTILINE)
_PAGE_SIZE: Final = re.compile(r"page size of (\d{3,6}) bytes")
_DEFAULT_PAGE_BYTES: Final = 16_384
_USABLE_PAGES: Final = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
_DEEPEST_GROUP: Final = 32


def host_memory(tools: Tools, root: Path, system: HostPlatform) -> HostMemory | None:
    """Memory of this host; ``None`` where it cannot be told."""
    try:
        seen = psutil.virtual_memory()
    except (OSError, psutil.Error, ValueError, KeyError):
        return None
    total, available = int(seen.total), int(seen.available)
    if system is HostPlatform.DARWIN:
        available = available_of_vm_stat(tools.run("vm_stat").output) or available
    elif system is HostPlatform.LINUX:
        limit, left = cgroup_memory(root)
        if limit is not None and limit < total:
            total, available = limit, min(available, limit if left is None else left)
    return HostMemory(total, min(available, total)) if total > 0 else None


def available_of_vm_stat(output: str) -> int | None:
    """Bytes that ``vm_stat`` shows as usable; ``None`` where a line is missing."""
    found = _PAGE_SIZE.search(output)
    page = int(found[1]) if found else _DEFAULT_PAGE_BYTES
    pages = 0
    for name in _USABLE_PAGES:
        line = re.search(rf"^{name}:\s+(\d{{1,15}})\.", output, re.MULTILINE)
        if line is None:
            return None
        pages += int(line[1])
    return pages * page


def cgroup_memory(root: Path) -> tuple[int | None, int | None]:
    """The tightest memory limit of our control groups and the least that one has left, in bytes.

    ``None`` where there is no limit. Source: the kernel's ``cgroup-v2.rst``: a limit of a parent binds its children.
    File pages that are not in use can be dropped, so they count as left.
    """
    line = _GROUP_LINE.search(read_small(root / "proc/self/cgroup") or "")
    if line is None:
        return None, None
    base = root / "sys/fs/cgroup"
    parts = [part for part in line[1].split("/") if part and part != ".."][:_DEEPEST_GROUP]
    limits: list[int] = []
    left: list[int] = []
    for depth in range(len(parts) + 1):
        folder = base.joinpath(*parts[:depth])
        limit, current = size(read_small(folder / "memory.max")), size(read_small(folder / "memory.current"))
        if limit is None:
            continue
        limits.append(limit)
        if current is not None:
            cached = re.search(r"^inactive_file (\d{1,18})$", read_small(folder / "memory.stat") or "", re.MULTILINE)
            left.append(max(0, limit - current + (int(cached[1]) if cached else 0)))
    return min(limits, default=None), min(left, default=None)


def cpu_model(context: ProbeContext) -> str:
    """The processor's name, or its architecture: on arm64 the kernel prints no name."""
    if context.platform is HostPlatform.DARWIN:
        found = text(context.tools.run("sysctl", "-n", "machdep.cpu.brand_string").output.strip())
        return found or str(context.arch)
    for content in (read_small(context.path("/proc/cpuinfo")) or "", None):
        line = _MODEL_LINE.search(context.tools.run("lscpu").output if content is None else content)
        name = text(line[1].replace("\0", "")) if line else None
        if name and name != "-":
            return name
    board = text((read_small(context.path("/proc/device-tree/model")) or "").replace("\0", ""))
    return board or str(context.arch)


def host_info(context: ProbeContext, now: datetime) -> HostInfo:
    """The host at this instant; memory is zero where ``context`` has none, and then not among the capabilities."""
    memory = context.memory or HostMemory(0, 0)
    return HostInfo(
        cpu_model=cpu_model(context),
        cpu_count=psutil.cpu_count() or 1,
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        swap_total_bytes=_swap_total(),
        platform=context.platform,
        arch=context.arch,
        release=text(platform.release()) or "unknown",
        uptime_seconds=max(0.0, round(now.timestamp() - psutil.boot_time(), 3)),
        cpu_throttle_count=cpu_throttle_count(context.root),
    )


def cpu_throttle_count(root: Path) -> int | None:
    """How often the hottest core was slowed down since it started; ``None`` where the kernel does not count.

    Source: the kernel's ``Documentation/admin-guide/thermal/intel_powerclamp`` family: ``core_throttle_count`` of every
    core below ``/sys/devices/system/cpu``; Intel's processors have it, others do not.
    """
    cores = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = [found for path in cores if (found := size(read_small(path))) is not None]
    return max(counts, default=None)


def _swap_total() -> int | None:
    try:
        with warnings.catch_warnings():
            # a kernel without swap counters makes psutil warn; the total is right all the same
            warnings.simplefilter("ignore")
            return int(psutil.swap_memory().total)
    except (OSError, psutil.Error, ValueError):
        return None
