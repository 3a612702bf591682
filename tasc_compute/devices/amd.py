"""AMD GPUs: amd-smi, else rocm-smi, else the kernel's own files.

Rules:

1. The id is ROCR's (``GPU-<16 hex>``, from the unique id that all three sources know), because
   ``ROCR_VISIBLE_DEVICES`` takes it. amd-smi's own UUID is another number. Consumer cards have no unique id, and
   partitions of one card share it: then the id is ``amd:<PCI address>``.
2. Places come from the KFD topology; without it the ordinal is not known.
3. Memory of DDR or LPDDR type, an APU by its architecture, and the MI300A share memory with the host; carve-out and
   translation table are not added (``device_memory``).
4. amd-smi prints a bare list (ROCm up to 6) or ``{"gpu_data": [...]}`` (7); "MB" there are MiB. rocm-smi prints every
   value as text.

Sources: amd-smi and rocm-smi JSON of ROCm 5 to 7; kernel documentation of ``amdgpu`` (``mem_info_vram_total`` ...).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.codec import Json
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor
from tasc_compute.devices import kfd
from tasc_compute.devices.finding import FaultCategory, Finding, ProbeContext, ProbeFault, device_memory
from tasc_compute.devices.runner import ToolAnswer
from tasc_compute.devices.values import (
    MIB,
    celsius,
    folders,
    items,
    member,
    noisy_json,
    percent,
    read_small,
    size,
    text,
    watts,
)
from tasc_compute.limits import MAX_DEVICES

_AMD_SMI: Final = "amd-smi"
_ROCM_SMI: Final = "rocm-smi"
_SYSFS: Final = "amd-sysfs"
_VENDOR: Final = "0x1002"
_DRM: Final = "/sys/class/drm"
_ROCM_QUERY: Final = (
    "--showid",
    "--showproductname",
    "--showuse",
    "--showmeminfo",
    "vram",
    "--showtemp",
    "--showpower",
    "--showmaxpower",
    "--showuniqueid",
    "--showbus",
    "--showdriverversion",
    "--json",
)
_APU_GFX: Final = frozenset(
    {"gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103", "gfx1150"}
    | {"gfx1151", "gfx1152", "gfx1153"}
)
_APU_NAME: Final = re.compile(r"MI300A|Radeon(?:\(TM\))? (?:Graphics|\d{3,4}[MS]\b)|Ryzen")
_SHARED_TYPE: Final = re.compile(r"(LP)?DDR\d")
_MICRO: Final = 1_000_000
_MILLI: Final = 1000


_THROTTLE: Final = {"THROTTLED": True, "UNTHROTTLED": False}
"""``throttle_status`` of ``amd-smi metric``; cards that cannot say print N/A."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as a source of AMD tells it; bytes, percent, degrees Celsius, watts, ``None`` where it does not."""

    index: int
    bdf: str | None
    serial: int | None
    name: str
    gfx: str | None = None
    memory_type: str | None = None
    total: int | None = None
    used: int | None = None
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    driver: str | None = None
    throttled: bool | None = None


def probe(context: ProbeContext) -> Finding:
    """AMD's GPUs of this host."""
    faults: tuple[ProbeFault, ...] = ()
    for source in (_ask_amd_smi, _ask_rocm_smi):
        cards, wrong = source(context)
        faults += wrong
        if cards:
            break
    else:
        cards = cards_of_sysfs(context)
    return finding_of(cards, context, faults)


def _ask_amd_smi(context: ProbeContext) -> tuple[tuple[Card, ...], tuple[ProbeFault, ...]]:
    static = context.tools.run(_AMD_SMI, "static", "--json")
    if not static.answered:
        return (), ProbeFault.of_status(_AMD_SMI, static.status)
    metric = context.tools.run(_AMD_SMI, "metric", "--json")
    cards = cards_of_amd_smi(noisy_json(static.output), noisy_json(metric.output))
    faults = ProbeFault.of_status(_AMD_SMI, metric.status)
    return cards, faults or (() if cards else _fault(_AMD_SMI, static))


def _ask_rocm_smi(context: ProbeContext) -> tuple[tuple[Card, ...], tuple[ProbeFault, ...]]:
    answer = context.tools.run(_ROCM_SMI, *_ROCM_QUERY)
    if not answer.answered:
        return (), ProbeFault.of_status(_ROCM_SMI, answer.status)
    cards = cards_of_rocm_smi(noisy_json(answer.output))
    return cards, () if cards else _fault(_ROCM_SMI, answer)


def _fault(tool: str, answer: ToolAnswer) -> tuple[ProbeFault, ...]:
    """An answer without cards: a driver that is not loaded makes the tool fail, otherwise its output is broken."""
    return (ProbeFault(tool, FaultCategory.DRIVER if answer.exit_code else FaultCategory.UNREADABLE),)


def _list_of(value: Json) -> list[dict[str, Json]]:
    return items(value if isinstance(value, list) else member(value, "gpu_data"))[:MAX_DEVICES]


def _hexadecimal(value: object) -> int | None:
    if not isinstance(value, str) or not re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", value.strip()):
        return None
    return int(value, 16)


def _bdf(value: object) -> str | None:
    found = re.fullmatch(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])", str(value or "").strip())
    return found[0].lower() if found else None


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def cards_of_amd_smi(static: Json, metric: Json) -> tuple[Card, ...]:
    """Cards of ``amd-smi static --json`` joined with ``amd-smi metric --json`` on the GPU's number."""
    measured = {size(item.get("gpu")): item for item in _list_of(metric)}
    cards = []
    for item in _list_of(static):
        index = size(item.get("gpu"))
        if index is None:
            continue
        now = measured.get(index, {})
        temperatures = [celsius(member(now, "temperature", name)) for name in ("edge", "hotspot")]
        draws = [
            watts(member(now, "power", name))
            for name in ("socket_power", "current_socket_power", "average_socket_power")
        ]
        limits = [
            watts(member(item, "limit", *path))
            for path in (("ppt0", "socket_power_limit"), ("ppt0", "max_power_limit"), ("power_cap",), ("max_power",))
        ]
        total = size(_first(member(now, "mem_usage", "total_vram"), member(item, "vram", "size")), MIB)
        driver = item.get("driver")
        cards.append(
            Card(
                index=index,
                bdf=_bdf(member(item, "bus", "bdf")),
                serial=_hexadecimal(member(item, "asic", "asic_serial")),
                name=text(member(item, "asic", "market_name")) or "AMD GPU",
                gfx=text(member(item, "asic", "target_graphics_version")),
                memory_type=text(member(item, "vram", "type")),
                total=total,
                used=size(member(now, "mem_usage", "used_vram"), MIB),
                utilization=percent(member(now, "usage", "gfx_activity")),
                temperature=next((value for value in temperatures if value is not None), None),
                power=next((value for value in draws if value is not None), None),
                power_limit=next((value for value in limits if value is not None), None),
                driver=text(_first(member(driver, "version"), member(driver, "driver_version"))),
                throttled=_THROTTLE.get(str(member(now, "power", "throttle_status"))),
            )
        )
    return tuple(cards)


def cards_of_rocm_smi(value: Json) -> tuple[Card, ...]:
    """Cards of ``rocm-smi ... --json``: one object per ``card<N>``, every value text, keys that changed their case."""
    if not isinstance(value, dict):
        return ()
    driver = text(member(value, "system", "Driver version"))
    cards = []
    for name, found in value.items():
        number = re.fullmatch(r"card(\d{1,3})", name)
        if number is None or not isinstance(found, dict):
            continue
        item = {key.lower(): content for key, content in found.items()}
        powers = [
            watts(content) for key, content in item.items() if "graphics package power" in key and "max" not in key
        ]
        limits = [watts(content) for key, content in item.items() if key.startswith("max graphics package power")]
        heat = [celsius(item.get(f"temperature (sensor {sensor}) (c)")) for sensor in ("edge", "junction")]
        cards.append(
            Card(
                index=int(number[1]),
                bdf=_bdf(item.get("pci bus")),
                serial=_hexadecimal(item.get("unique id")),
                name=text(item.get("card series")) or text(item.get("device name")) or "AMD GPU",
                gfx=text(item.get("gfx version")),
                total=size(item.get("vram total memory (b)")),
                used=size(item.get("vram total used memory (b)")),
                utilization=percent(item.get("gpu use (%)")),
                temperature=next((content for content in heat if content is not None), None),
                power=next((content for content in powers if content is not None), None),
                power_limit=next((content for content in limits if content is not None), None),
                driver=driver,
            )
        )
    return tuple(sorted(cards, key=lambda card: card.index))


def cards_of_sysfs(context: ProbeContext) -> tuple[Card, ...]:
    """Cards of ``/sys/class/drm``, numbered in the order of their PCI addresses."""
    found: dict[str, Path] = {}
    for folder in folders(context.path(_DRM), "card*"):
        device = folder / "device"
        if re.fullmatch(r"card\d+", folder.name) and read_small(device / "vendor") == _VENDOR:
            found.setdefault(_bdf(device.resolve().name) or folder.name, device)
    return tuple(_sysfs_card(index, bdf, found[bdf], context) for index, bdf in enumerate(sorted(found)[:MAX_DEVICES]))


def _sysfs_card(index: int, bdf: str, device: Path, context: ProbeContext) -> Card:
    sensors = folders(device / "hwmon", "hwmon*")
    sensor = sensors[0] if sensors else device / "hwmon"
    heat = size(read_small(sensor / "temp1_input"))
    draw = size(_first(read_small(sensor / "power1_average"), read_small(sensor / "power1_input")))
    cap = size(read_small(sensor / "power1_cap"))
    return Card(
        index=index,
        bdf=_bdf(bdf),
        serial=_hexadecimal(read_small(device / "unique_id")),
        name=text(read_small(device / "product_name")) or "AMD GPU",
        total=size(read_small(device / "mem_info_vram_total")),
        used=size(read_small(device / "mem_info_vram_used")),
        utilization=percent(read_small(device / "gpu_busy_percent")),
        temperature=None if heat is None else celsius(heat / _MILLI),
        power=None if draw is None else watts(draw / _MICRO),
        power_limit=None if cap is None else watts(cap / _MICRO),
        driver=text(read_small(context.path("/sys/module/amdgpu/version"))),
    )


def device_ids(cards: tuple[Card, ...]) -> tuple[str, ...]:
    """An id per card, by rule 1."""
    serials = Counter(card.serial for card in cards)
    return tuple(
        f"GPU-{card.serial:016x}" if card.serial and serials[card.serial] == 1 else f"amd:{card.bdf or card.index}"
        for card in cards
    )


def finding_of(cards: tuple[Card, ...], context: ProbeContext, faults: tuple[ProbeFault, ...] = ()) -> Finding:
    """Cards as devices, with places and uses from the KFD topology."""
    nodes = {node.bdf: node for node in kfd.kfd_nodes(context)}
    devices, places, by_gpu = [], {}, {}
    for card, device_id in zip(cards, device_ids(cards), strict=True):
        node = nodes.get(card.bdf or "")
        if node is not None:
            places[device_id] = kfd.place_of(node, context)
            by_gpu[node.gpu_id] = device_id
        unified = shares_memory(card, node.gfx if node is not None else None)
        total, used = device_memory(card.total, card.used, unified=unified, host=context.memory)
        devices.append(
            AcceleratorInfo(
                id=device_id,
                index=card.index,
                vendor=DeviceVendor.AMD,
                name=card.name,
                accelerator=Accelerator.ROCM,
                memory_total_bytes=total,
                memory_used_bytes=used,
                unified_memory=unified,
                utilization_pct=card.utilization,
                temperature_c=card.temperature,
                power_watts=card.power,
                power_limit_watts=card.power_limit,
                driver=card.driver,
                throttled=card.throttled,
            )
        )
    return Finding(tuple(devices), places, kfd.kfd_uses(context, by_gpu), faults)


def shares_memory(card: Card, kfd_gfx: str | None = None) -> bool:
    """Whether a card's memory is the host's (rule 3)."""
    if card.memory_type is not None and _SHARED_TYPE.fullmatch(card.memory_type):
        return True
    return (card.gfx or kfd_gfx) in _APU_GFX or _APU_NAME.search(card.name) is not None
