"""NVIDIA's answers as cards: NVML's report, nvidia-smi's CSV, XML and list. Pure; nothing here runs a tool.

Sources: nvidia-smi's own help (``--help-query-gpu``, ``-q -x``, ``-L``) and the NVML reference. Placeholders such as
``[N/A]``, ``ERR!``, ``[Unknown Error]`` and ``[GPU requires reset]`` are values that cannot be told.
"""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET  # a local tool's bounded output; entities are refused below
from dataclasses import dataclass
from typing import Final

from tasc_compute.devices.values import MIB, celsius, is_absent, items, member, number, percent, size, text, watts
from tasc_compute.limits import MAX_DEVICES

FIELDS: Final = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "memory.total",
    "memory.used",
    "memory.free",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "driver_version",
    "mig.mode.current",
    "compute_cap",
)
"""What is asked of ``nvidia-smi --query-gpu``."""

SLOWDOWN_FIELDS: Final = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The name of the same field since driver 535, and before; asked alone, because a driver refuses what it does not know."""
_SLOWED: Final = 0x08 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, software and hardware thermal slowdown, power brake (nvml.h, nvmlClocksEventReason*). Idling, set
clocks and a power cap (0x04) are what the operator chose."""

BASIC_FIELDS: Final = FIELDS[:12]
"""What every driver in use knows; one unknown field makes an old driver refuse the whole query with exit code 2."""

_NAME_AT: Final = 3
_BITS: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_UUID: Final = re.compile(r"(?:GPU|MIG|MIG-GPU)-[0-9a-fA-F-]{8,64}(?:/\d+/\d+)?")
_LISTED: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")
_LISTED_GPU: Final = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG slice: the unit that a process may be given."""

    uuid: str
    name: str
    total: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class CardUse:
    """A compute process on a card or slice."""

    uuid: str
    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as NVIDIA's software tells it: bytes, percent, degrees Celsius, watts; ``None`` where it does not.

    ``memory_absent`` says that it has no memory of its own to tell about, as against that reading it failed. A lost
    card has no UUID.
    """

    index: int
    uuid: str | None
    name: str
    total: int | None = None
    used: int | None = None
    memory_absent: bool = False
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    driver: str | None = None
    throttled: bool | None = None
    mig: bool = False
    slices: tuple[Slice, ...] = ()
    uses: tuple[CardUse, ...] = ()


def _uuid(value: object) -> str | None:
    return value if isinstance(value, str) and _UUID.fullmatch(value) else None


def _milli(value: object) -> float | None:
    found = number(value)
    return None if found is None else watts(found / 1000)


def cards_of_nvml(report: object) -> tuple[Card, ...]:
    """Cards of the report that ``nvml_script`` writes."""
    driver = text(member(report, "driver"))
    cards = []
    for item in items(member(report, "devices"))[:MAX_DEVICES]:
        index = size(item.get("index"))
        if index is None:
            continue
        parts = [part for part in items(item.get("slices")) if _uuid(part.get("uuid"))]
        cards.append(
            Card(
                index=index,
                uuid=_uuid(item.get("uuid")),
                name=text(item.get("name")) or "NVIDIA GPU",
                total=size(item.get("totalBytes")),
                used=size(item.get("usedBytes")),
                memory_absent=item.get("memoryAbsent") is True,
                utilization=percent(item.get("utilization")),
                temperature=celsius(item.get("temperature")),
                power=_milli(item.get("milliwatts")),
                power_limit=_milli(item.get("limitMilliwatts")),
                driver=driver,
                throttled=_throttled(item.get("slowdowns")),
                mig=item.get("mig") is True,
                slices=tuple(
                    Slice(
                        str(part["uuid"]),
                        text(part.get("name")) or "MIG",
                        size(part.get("totalBytes")),
                        size(part.get("usedBytes")),
                    )
                    for part in parts
                ),
                uses=tuple(use for part in (item, *parts) for use in _nvml_uses(part)),
            )
        )
    return tuple(cards)


def _nvml_uses(part: dict[str, object] | object) -> list[CardUse]:
    uuid = _uuid(member(part, "uuid"))
    found = []
    for process in items(member(part, "processes")):
        pid = size(process.get("pid"))
        if uuid is not None and pid:
            found.append(CardUse(uuid, pid, size(process.get("usedBytes"))))
    return found


def _throttled(bits: object) -> bool | None:
    return bool(bits & _SLOWED) if isinstance(bits, int) and not isinstance(bits, bool) else None


def with_slowdowns(cards: tuple[Card, ...], output: str) -> tuple[Card, ...]:
    """Cards with the answer of ``--query-gpu=uuid,<one of SLOWDOWN_FIELDS>``, such as ``GPU-..., 0x0000000000000004``."""
    found: dict[str, bool] = {}
    for line in output.splitlines()[:MAX_DEVICES]:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 2 and _BITS.fullmatch(parts[1]):
            found[parts[0]] = bool(int(parts[1], 16) & _SLOWED)
    return tuple(dataclasses.replace(card, throttled=found.get(card.uuid or "", card.throttled)) for card in cards)


def cards_of_csv(output: str, fields: tuple[str, ...] = FIELDS) -> tuple[Card, ...]:
    """Cards of ``--query-gpu=<fields> --format=csv,noheader,nounits``; a line that is no card is passed over.

    A comma in a product's name widens the name; the UUID guards against lines that are out of step.
    """
    cards = []
    for line in output.splitlines()[:MAX_DEVICES]:
        parts = [part.strip() for part in line.split(",")]
        extra = len(parts) - len(fields)
        if extra < 0:
            continue
        name = ", ".join(parts[_NAME_AT : _NAME_AT + 1 + extra])
        row = dict(zip(fields, (*parts[:_NAME_AT], name, *parts[_NAME_AT + 1 + extra :]), strict=True))
        index, uuid = size(row["index"]), _uuid(row["uuid"])
        if index is None or uuid is None:
            continue
        cards.append(
            Card(
                index=index,
                uuid=uuid,
                name=text(name) or "NVIDIA GPU",
                total=size(row["memory.total"], MIB),
                used=size(row["memory.used"], MIB),
                memory_absent=is_absent(row["memory.total"]),
                utilization=percent(row["utilization.gpu"]),
                temperature=celsius(row["temperature.gpu"]),
                power=watts(row["power.draw"]),
                power_limit=watts(row["power.limit"]),
                driver=text(row["driver_version"]),
                mig=row.get("mig.mode.current") == "Enabled",
            )
        )
    return tuple(cards)


def cards_of_xml(output: str) -> tuple[Card, ...]:
    """Cards of ``-q -x``, with warnings before the document and both namings of the power readings."""
    start = output.find("<nvidia_smi_log")
    if start < 0 or "<!ENTITY" in output:
        return ()
    try:
        log = ET.fromstring(output[start:])  # noqa: S314  # see the import
    except ET.ParseError:
        return ()
    driver = text(log.findtext("driver_version"))
    found = (_xml_card(index, gpu, driver) for index, gpu in enumerate(log.findall("gpu")[:MAX_DEVICES]))
    return tuple(card for card in found if card is not None)


def _xml_card(index: int, gpu: ET.Element, driver: str | None) -> Card | None:
    uuid = _uuid(gpu.findtext("uuid"))
    if uuid is None:
        return None
    power = gpu.find("gpu_power_readings")
    if power is None:
        power = gpu.find("power_readings")
    draws = [power.findtext(name) for name in ("instant_power_draw", "power_draw")] if power is not None else []
    limits = [power.findtext(name) for name in ("current_power_limit", "power_limit")] if power is not None else []
    total = gpu.findtext("fb_memory_usage/total")
    return Card(
        index=index,
        uuid=uuid,
        name=text(gpu.findtext("product_name")) or "NVIDIA GPU",
        total=size(total, MIB),
        used=_mebibytes(gpu, "fb_memory_usage/used"),
        memory_absent=is_absent(total),
        utilization=percent(gpu.findtext("utilization/gpu_util")),
        temperature=celsius(gpu.findtext("temperature/gpu_temp")),
        power=next((found for draw in draws if (found := watts(draw)) is not None), None),
        power_limit=next((found for limit in limits if (found := watts(limit)) is not None), None),
        driver=driver,
        throttled=_xml_throttled(gpu),
        mig=gpu.findtext("mig_mode/current_mig") == "Enabled",
        slices=tuple(
            Slice("", "MIG", _mebibytes(part, "fb_memory_usage/total"), _mebibytes(part, "fb_memory_usage/used"))
            for part in gpu.findall("mig_devices/mig_device")
        ),
    )


def _xml_throttled(gpu: ET.Element) -> bool | None:
    """Whether one of the slowdowns is active, under either name of the group."""
    told = [
        gpu.findtext(f"clocks_{group}_reasons/clocks_{group}_reason_{name}")
        for group in ("event", "throttle")
        for name in ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    ]
    known = [word.strip() for word in told if word is not None and word.strip() in ("Active", "Not Active")]
    return "Active" in known if known else None


def _mebibytes(part: ET.Element, path: str) -> int | None:
    return size(part.findtext(path), MIB)


def with_listed_slices(cards: tuple[Card, ...], listing: str) -> tuple[Card, ...]:
    """Cards with the slices of ``nvidia-smi -L``, which alone names them; memory comes from the XML in its order."""
    listed: dict[str, list[Slice]] = {}
    parent = ""
    for line in listing.splitlines():
        if found := _LISTED_GPU.match(line):
            parent = found[1]
        elif (found := _LISTED.match(line)) and _uuid(found[3]) and parent:
            listed.setdefault(parent, []).append(Slice(found[3], f"MIG {found[1]}", None, None))
    return tuple(
        dataclasses.replace(card, slices=_joined(listed.get(card.uuid or "", []), card.slices)) for card in cards
    )


def _joined(listed: list[Slice], measured: tuple[Slice, ...]) -> tuple[Slice, ...]:
    if len(listed) != len(measured):
        return tuple(listed)
    return tuple(
        dataclasses.replace(named, total=seen.total, used=seen.used)
        for named, seen in zip(listed, measured, strict=True)
    )


def uses_of_csv(output: str) -> tuple[CardUse, ...]:
    """Processes of ``--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits``."""
    found = []
    for line in output.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and (uuid := _uuid(parts[0])) and (pid := size(parts[1])):
            found.append(CardUse(uuid, pid, size(parts[2], MIB)))
    return tuple(found)
