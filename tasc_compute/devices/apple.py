"""GPUs of a Mac: system_profiler names them, ioreg says how busy they are.

Apple silicon has one GPU, ``metal:0``, that shares memory with the host. Temperature and power need root
(powermetrics), so they cannot be told. ``pmset -g therm`` says whether the system has lowered its speed; on Apple silicon
it says so only once it has. GPUs of Intel Macs are listed too; ``spdisplays_vram_shared`` marks those that
share memory.
"""

from __future__ import annotations

import re
from typing import Final

from tasc_compute.codec import Json
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor, HostPlatform
from tasc_compute.devices.finding import FaultCategory, Finding, ProbeContext, ProbeFault, device_memory
from tasc_compute.devices.values import MIB, items, member, noisy_json, number, percent, text
from tasc_compute.limits import MAX_DEVICES

_PROFILER: Final = "system_profiler"
_IOREG: Final = "ioreg"
_PMSET: Final = "pmset"
_SPEED: Final = re.compile(r"(?:CPU|GPU)_Speed_Limit\s*=\s*(\d{1,3})\b")
_BUSY: Final = re.compile(r'"Device Utilization %"\s*=\s*(\d{1,3})\b')
_MODEL: Final = re.compile(r'"model"\s*=\s*"([^"]{1,128})"')
_VENDORS: Final = (("apple", DeviceVendor.APPLE), ("amd", DeviceVendor.AMD), ("intel", DeviceVendor.INTEL))
_UNITS: Final = {"MB": MIB, "GB": 1024 * MIB}


def probe(context: ProbeContext) -> Finding:
    """The GPUs of this Mac; nothing on other systems."""
    if context.platform is not HostPlatform.DARWIN:
        return Finding()
    answer = context.tools.run(_PROFILER, "SPDisplaysDataType", "-json")
    faults = ProbeFault.of_status(_PROFILER, answer.status)
    listed = displays(noisy_json(answer.output))
    if answer.answered and not listed:
        faults += (ProbeFault(_PROFILER, FaultCategory.UNREADABLE),)
    registry = context.tools.run(_IOREG, "-r", "-c", "IOAccelerator", "-d", "1")
    faults += ProbeFault.of_status(_IOREG, registry.status)
    busy = utilization_by_model(registry.output)
    slowed = speed_lowered(context.tools.run(_PMSET, "-g", "therm").output)
    return Finding(
        tuple(_device(i, item, busy, context, slowed=slowed) for i, item in enumerate(listed)), faults=faults
    )


def displays(value: Json) -> list[dict[str, Json]]:
    """The GPUs that ``system_profiler SPDisplaysDataType -json`` lists."""
    found = items(member(value, "SPDisplaysDataType"))[:MAX_DEVICES]
    return [item for item in found if item.get("sppci_device_type", "spdisplays_gpu") == "spdisplays_gpu"]


def utilization_by_model(registry: str) -> dict[str, float]:
    """Utilization in percent of each GPU that ``ioreg`` shows, by its model's name."""
    found: dict[str, float] = {}
    for block in registry.split("+-o ")[1:]:
        model, busy = _MODEL.search(block), _BUSY.search(block)
        value = percent(busy[1]) if busy else None
        if model and value is not None:
            found[model[1]] = value
    return found


def _vram(value: object) -> int | None:
    found = re.fullmatch(r"(\d{1,6}) (MB|GB)", value) if isinstance(value, str) else None
    amount = number(found[1]) if found else None
    return int(amount * _UNITS[found[2]]) if found and amount is not None else None


def speed_lowered(thermal: str) -> bool | None:
    """Whether ``pmset -g therm`` shows a speed limit below 100; ``None`` where it shows none."""
    limits = [int(found) for found in _SPEED.findall(thermal)]
    return min(limits) < 100 if limits else None


def _device(
    index: int, item: dict[str, Json], busy: dict[str, float], context: ProbeContext, *, slowed: bool | None
) -> AcceleratorInfo:
    model = text(item.get("sppci_model")) or text(item.get("_name")) or "GPU"
    maker = str(item.get("spdisplays_vendor") or "").lower()
    vendor = next((vendor for word, vendor in _VENDORS if word in maker), DeviceVendor.UNKNOWN)
    unified = vendor is DeviceVendor.APPLE or "spdisplays_vram_shared" in item
    total, used = device_memory(_vram(item.get("spdisplays_vram")), None, unified=unified, host=context.memory)
    return AcceleratorInfo(
        id=f"metal:{index}",
        index=index,
        vendor=vendor,
        name=model,
        accelerator=Accelerator.METAL,
        memory_total_bytes=total,
        memory_used_bytes=used,
        unified_memory=unified,
        utilization_pct=busy.get(model),
        temperature_c=None,
        power_watts=None,
        power_limit_watts=None,
        driver=None,
        throttled=slowed,
    )
