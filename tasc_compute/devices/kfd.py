"""AMD's compute nodes as the kernel's KFD driver lists them: places of devices and the processes on them.

``/sys/class/kfd/kfd/topology/nodes/<node>/`` holds ``gpu_id`` and ``properties``; ``/sys/class/kfd/kfd/proc/<pid>/``
holds ``vram_<gpu_id>``. Files only, no tool. Source: the Linux kernel's ``kfd_topology.c`` and ``kfd_process.c``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.devices.finding import DeviceUse, ProbeContext
from tasc_compute.devices.values import folders, read_small, size
from tasc_compute.limits import MAX_DEVICES
from tasc_compute.visibility import DevicePlace

_KFD: Final = "/sys/class/kfd/kfd"
_KFD_NODE: Final = "/dev/kfd"


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU in the topology; ``ordinal`` is its rank among the GPUs, the order that HIP counts in."""

    ordinal: int
    gpu_id: int
    bdf: str
    unique_id: int
    gfx: str
    render_minor: int | None


def bdf_of(domain: int, location: int) -> str:
    """``0000:03:00.0`` of a PCI domain and location id (bus, device and function in 16 bits)."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def gfx_of(version: int) -> str:
    """``gfx90a`` of 90010: major, minor and stepping in pairs of decimal digits; the stepping is hexadecimal."""
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}"


def kfd_nodes(context: ProbeContext) -> tuple[KfdNode, ...]:
    """The GPUs of the topology; processors are nodes without SIMD units and are passed over."""
    found: list[KfdNode] = []
    for folder in folders(context.path(f"{_KFD}/topology/nodes"), "*")[:MAX_DEVICES]:
        values = _properties(read_small(folder / "properties") or "")
        gpu_id = size(read_small(folder / "gpu_id"))
        if not values.get("simd_count") or not gpu_id:
            continue
        minor = values.get("drm_render_minor", 0)
        found.append(
            KfdNode(
                ordinal=len(found),
                gpu_id=gpu_id,
                bdf=bdf_of(values.get("domain", 0), values.get("location_id", 0)),
                unique_id=values.get("unique_id", 0),
                gfx=gfx_of(values.get("gfx_target_version", 0)),
                render_minor=minor if minor > 0 else None,
            )
        )
    return tuple(found)


def _properties(content: str) -> dict[str, int]:
    pairs = (line.split() for line in content.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal() and len(pair[1]) <= 20}


def place_of(node: KfdNode, context: ProbeContext) -> DevicePlace:
    """Ordinal, device files and the groups that own them."""
    names = [_KFD_NODE] + ([f"/dev/dri/renderD{node.render_minor}"] if node.render_minor else [])
    return DevicePlace(node.ordinal, *nodes_and_groups(names, context))


def nodes_and_groups(names: list[str], context: ProbeContext) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Those of some device files that exist, and the numeric groups that own them."""
    nodes = []
    groups: list[int] = []
    for name in names:
        try:
            group = context.path(name).stat().st_gid
        except OSError:
            continue
        nodes.append(name)
        if group not in groups:
            groups.append(group)
    return tuple(nodes), tuple(groups)


def kfd_uses(context: ProbeContext, ids: dict[int, str]) -> tuple[DeviceUse, ...]:
    """Processes that hold memory of a GPU.

    Args:
        context: the probe's context.
        ids: device id of each ``gpu_id``.
    """
    found = []
    for folder in folders(context.path(f"{_KFD}/proc"), "[0-9]*"):
        for entry in _names(folder):
            gpu_id = size(entry.removeprefix("vram_")) if entry.startswith("vram_") else None
            used = size(read_small(folder / entry)) if gpu_id in ids else None
            if gpu_id is not None and used:
                found.append(DeviceUse(ids[gpu_id], int(folder.name), used))
    return tuple(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  # names are all that is wanted
    except OSError:
        return []
