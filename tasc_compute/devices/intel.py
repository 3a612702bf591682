"""Intel GPUs: xpu-smi in its old and its 2026 form, else the kernel's own files.

Rules:

1. The id is ``intel:<PCI address>``: Intel's UUIDs are derived from the slot by some drivers and no tool takes them,
   and both sources know the address, so that a device keeps its id when xpu-smi fails once.
2. The ordinal, which ``ZE_AFFINITY_MASK`` takes, is xpu-smi's device id; without xpu-smi it is not known.
3. A virtual function is a part of a card that is already listed and is passed over.
4. A GPU at PCI device 00:02.0 is integrated and shares memory with the host.

Sources: XPU Manager's command line reference; kernel documentation of ``i915`` and ``xe``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.codec import Json
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor
from tasc_compute.devices.finding import FaultCategory, Finding, ProbeContext, ProbeFault, device_memory
from tasc_compute.devices.kfd import nodes_and_groups
from tasc_compute.devices.values import (
    MIB,
    celsius,
    folders,
    items,
    member,
    noisy_json,
    number,
    percent,
    read_small,
    size,
    text,
    watts,
)
from tasc_compute.limits import MAX_DEVICES
from tasc_compute.visibility import DevicePlace

_XPU_SMI: Final = "xpu-smi"
_VENDOR: Final = "0x8086"
_DISPLAY_CLASS: Final = "0x03"
_BDF: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INTEGRATED: Final = "0000:00:02."
_OLD_METRICS: Final = "metrics_type"


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as Intel's tool or kernel driver tells it; ``None`` where it does not."""

    index: int
    bdf: str
    name: str
    ordinal: int | None
    total: int | None = None
    used: int | None = None
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Measured values of one GPU: bytes, percent, degrees Celsius, watts."""

    used: int | None = None
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None


def probe(context: ProbeContext) -> Finding:
    """Intel's GPUs of this host."""
    cards, faults = _ask_xpu_smi(context)
    return finding_of(cards or cards_of_sysfs(context), context, faults)


def _ask_xpu_smi(context: ProbeContext) -> tuple[tuple[Card, ...], tuple[ProbeFault, ...]]:
    discovery = context.tools.run(_XPU_SMI, "discovery", "-j")
    if not discovery.answered:
        return (), ProbeFault.of_status(_XPU_SMI, discovery.status)
    value = noisy_json(discovery.output)
    if not isinstance(value, dict):
        none = "No device discovered" in discovery.output
        return (), () if none else (ProbeFault(_XPU_SMI, FaultCategory.UNREADABLE),)
    cards = []
    faults: tuple[ProbeFault, ...] = ()
    for listed in listed_devices(value):
        number_of = str(listed[0])
        details = context.tools.run(_XPU_SMI, "discovery", "-d", number_of, "-j")
        stats = context.tools.run(_XPU_SMI, "stats", "-d", number_of, "-j")
        faults += ProbeFault.of_status(_XPU_SMI, details.status) + ProbeFault.of_status(_XPU_SMI, stats.status)
        cards.append(card_of(listed, noisy_json(details.output), stats_of(noisy_json(stats.output))))
    return tuple(cards), faults


def listed_devices(discovery: Json) -> list[tuple[int, str, str]]:
    """Device id, PCI address and name of every physical function that ``discovery -j`` lists."""
    found = []
    for item in items(member(discovery, "device_list"))[:MAX_DEVICES]:
        device_id, bdf = size(item.get("device_id")), str(item.get("pci_bdf_address") or "").lower()
        if device_id is not None and _BDF.fullmatch(bdf) and item.get("device_function_type") != "virtual":
            found.append((device_id, bdf, text(item.get("device_name")) or "Intel GPU"))
    return found


def card_of(listed: tuple[int, str, str], details: Json, stats: Stats) -> Card:
    """A listed device with its details (``discovery -d N -j``) and what was measured."""
    device_id, bdf, name = listed
    total = size(member(details, "memory_physical_size_byte"))
    if total is None:
        total = size(member(details, "memory_physical_size"), MIB)
    return Card(
        index=device_id,
        bdf=bdf,
        name=name,
        ordinal=device_id,
        total=total,
        used=stats.used,
        utilization=stats.utilization,
        temperature=stats.temperature,
        power=stats.power,
        driver=text(member(details, "driver_version")),
    )


def stats_of(value: Json) -> Stats:
    """What ``stats -d N -j`` measured, in the old form (a list of metrics) or the 2026 form (values per tile)."""
    old = {str(item.get(_OLD_METRICS)): item.get("value") for item in items(member(value, "device_level"))}
    if old:
        return Stats(
            size(old.get("XPUM_STATS_MEMORY_USED"), MIB),
            percent(old.get("XPUM_STATS_GPU_UTILIZATION")),
            celsius(old.get("XPUM_STATS_GPU_CORE_TEMPERATURE")),
            watts(old.get("XPUM_STATS_POWER")),
        )
    used = _tiles(member(value, "memory", "used_mib"))
    busy = _tiles(member(value, "utilization", "gpu_percent"))
    heat = _tiles(member(value, "temperature", "gpu_core_celsius"))
    power = _tiles(member(value, "power", "gpu_power_w"))
    return Stats(
        size(sum(used), MIB) if used else None,
        percent(sum(busy) / len(busy)) if busy else None,
        celsius(max(heat)) if heat else None,
        watts(sum(power)) if power else None,
    )


def _tiles(value: Json) -> list[float]:
    """The current (else average) value of each tile; a bare number counts as one tile."""
    if not isinstance(value, dict):
        found = number(value)
        return [] if found is None else [found]
    if "current" in value or "avg" in value:
        value = {"0": value}
    readings = []
    for tile in value.values():
        reading = number(tile.get("current", tile.get("avg"))) if isinstance(tile, dict) else number(tile)
        if reading is not None:
            readings.append(reading)
    return readings


def cards_of_sysfs(context: ProbeContext) -> tuple[Card, ...]:
    """Cards of ``/sys/class/drm``, numbered in the order of their PCI addresses; used memory is not told there."""
    found: dict[str, Path] = {}
    for folder in folders(context.path("/sys/class/drm"), "card*"):
        device = folder / "device"
        if not re.fullmatch(r"card\d+", folder.name) or read_small(device / "vendor") != _VENDOR:
            continue
        bdf = device.resolve().name.lower()
        is_display = (read_small(device / "class") or _DISPLAY_CLASS).startswith(_DISPLAY_CLASS)
        if _BDF.fullmatch(bdf) and is_display and not (device / "physfn").exists():
            found.setdefault(bdf, device)
    return tuple(Card(index, bdf, "Intel GPU", None) for index, bdf in enumerate(sorted(found)[:MAX_DEVICES]))


def finding_of(cards: tuple[Card, ...], context: ProbeContext, faults: tuple[ProbeFault, ...] = ()) -> Finding:
    """Cards as devices, with the render nodes that the kernel shows for them."""
    devices, places = [], {}
    for card in cards:
        device_id = f"intel:{card.bdf}"
        drm = folders(context.path(f"/sys/bus/pci/devices/{card.bdf}/drm"), "renderD*")
        places[device_id] = DevicePlace(card.ordinal, *nodes_and_groups([f"/dev/dri/{d.name}" for d in drm], context))
        unified = card.bdf.startswith(_INTEGRATED)
        total, used = device_memory(card.total, card.used, unified=unified, host=context.memory)
        devices.append(
            AcceleratorInfo(
                id=device_id,
                index=card.index,
                vendor=DeviceVendor.INTEL,
                name=card.name,
                accelerator=Accelerator.XPU,
                memory_total_bytes=total,
                memory_used_bytes=used,
                unified_memory=unified,
                utilization_pct=card.utilization,
                temperature_c=card.temperature,
                power_watts=card.power,
                power_limit_watts=None,
                driver=card.driver,
            )
        )
    return Finding(tuple(devices), places, (), faults)
