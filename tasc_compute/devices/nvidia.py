"""NVIDIA GPUs: NVML first, nvidia-smi where NVML cannot be loaded.

Rules:

1. Nothing is run where there is neither a driver's file nor a tool.
2. NVML runs in a process of its own (``nvml_script``). If that hangs, nvidia-smi is not tried: it would hang alike.
3. A card in MIG mode is not a device; its slices are. They share the card's index, temperature and driver; power is the
   card's and is given to none of them, so that a sum counts it once.
4. GB10, N1X, Thor and Orin share memory with the host, whatever number they print (an N1X prints a small real one).
   Other cards do where an arm64 host's driver says that the value does not exist; Grace-Hopper and Grace-Blackwell
   boards have memory of their own.
5. A lost card keeps its index: the others are not renumbered.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor, HostArch
from tasc_compute.devices import nvidia_cards
from tasc_compute.devices.finding import DeviceUse, FaultCategory, Finding, ProbeContext, ProbeFault, device_memory
from tasc_compute.devices.nvidia_cards import Card
from tasc_compute.devices.runner import ToolStatus
from tasc_compute.devices.values import member, noisy_json
from tasc_compute.visibility import DevicePlace

_SMI: Final = "nvidia-smi"
_NVML: Final = "nvml"
_SCRIPT: Final = Path(__file__).with_name("nvml_script.py")
_SIGNS: Final = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-ctrl-gpu")
_SHARED: Final = re.compile(r"\b(GB10|N1X|Thor|Orin)\b")
_OWN: Final = re.compile(r"\b(GH\d{3}|GB[23]00|[ABHLTV]\d{2,3}S?)\b")
_CSV: Final = "--format=csv,noheader,nounits"


def probe(context: ProbeContext) -> Finding:
    """NVIDIA's GPUs of this host."""
    if not context.tools.has(_SMI) and not any(context.path(sign).exists() for sign in _SIGNS):
        return Finding()
    answer = context.tools.run_script(_SCRIPT)
    if answer.status in (ToolStatus.TIMED_OUT, ToolStatus.WEDGED):
        return Finding(faults=ProbeFault.of_status(_NVML, answer.status))
    report = noisy_json(answer.output) if answer.answered else None
    if isinstance(member(report, "devices"), list):
        return finding_of(nvidia_cards.cards_of_nvml(report), context)
    return _ask_smi(context)


def _ask_smi(context: ProbeContext) -> Finding:
    cards: tuple[Card, ...] = ()
    for fields in (nvidia_cards.FIELDS, nvidia_cards.BASIC_FIELDS):
        answer = context.tools.run(_SMI, f"--query-gpu={','.join(fields)}", _CSV)
        if not answer.answered:
            return Finding(faults=ProbeFault.of_status(_SMI, answer.status))
        # the exit code decides nothing: with a damaged infoROM (14) the values are still printed
        cards = nvidia_cards.cards_of_csv(answer.output, fields)
        if cards or answer.exit_code != 2:
            break
    if not cards or any(card.mig for card in cards):
        document = context.tools.run(_SMI, "-q", "-x")
        cards = nvidia_cards.cards_of_xml(document.output) or cards
    if any(card.mig for card in cards):
        cards = nvidia_cards.with_listed_slices(cards, context.tools.run(_SMI, "-L").output)
    if not cards:
        silent = answer.exit_code == 0 or "No devices were found" in answer.output
        return Finding(faults=() if silent else (ProbeFault(_SMI, FaultCategory.DRIVER),))
    for slowdown in nvidia_cards.SLOWDOWN_FIELDS:
        answer = context.tools.run(_SMI, f"--query-gpu=uuid,{slowdown}", _CSV)
        if answer.exit_code != 2:
            cards = nvidia_cards.with_slowdowns(cards, answer.output)
            break
    apps = context.tools.run(_SMI, "--query-compute-apps=gpu_uuid,pid,used_memory", _CSV)
    found = finding_of(cards, context)
    uses = tuple(DeviceUse(u.uuid, u.pid, u.memory_bytes) for u in nvidia_cards.uses_of_csv(apps.output))
    return Finding(found.accelerators, found.places, uses, found.faults + ProbeFault.of_status(_SMI, apps.status))


def finding_of(cards: tuple[Card, ...], context: ProbeContext) -> Finding:
    """Cards as devices, by rules 3 to 5."""
    devices: list[AcceleratorInfo] = []
    faults: list[ProbeFault] = []
    places: dict[str, DevicePlace] = {}
    for card in cards:
        if card.uuid is None:
            faults.append(ProbeFault(_NVML, FaultCategory.DEVICE_LOST))
            continue
        if card.mig:
            parts = [part for part in card.slices if part.uuid]
            if not parts:
                faults.append(ProbeFault(_NVML, FaultCategory.NO_SLICES))
            for part in parts:
                name = f"{card.name} {part.name.removeprefix(card.name).strip()}"
                devices.append(_device(card, context, part.uuid, name, part.total, part.used, whole=False))
        else:
            devices.append(_device(card, context, card.uuid, card.name, card.total, card.used, whole=True))
        places |= {device.id: DevicePlace(card.index) for device in devices if device.index == card.index}
    uses = tuple(DeviceUse(use.uuid, use.pid, use.memory_bytes) for card in cards for use in card.uses)
    return Finding(tuple(devices), places, uses, tuple(faults))


def _device(
    card: Card, context: ProbeContext, uuid: str, name: str, total: int | None, used: int | None, *, whole: bool
) -> AcceleratorInfo:
    unified = whole and shares_memory(card, context.arch)
    total_bytes, used_bytes = device_memory(total, used, unified=unified, host=context.memory)
    return AcceleratorInfo(
        id=uuid,
        index=card.index,
        vendor=DeviceVendor.NVIDIA,
        name=name,
        accelerator=Accelerator.CUDA,
        memory_total_bytes=total_bytes,
        memory_used_bytes=used_bytes,
        unified_memory=unified,
        utilization_pct=card.utilization if whole else None,
        temperature_c=card.temperature,
        power_watts=card.power if whole else None,
        power_limit_watts=card.power_limit if whole else None,
        driver=card.driver,
        throttled=card.throttled,
    )


def shares_memory(card: Card, arch: HostArch) -> bool:
    """Whether a card's memory is the host's (rule 4)."""
    if _SHARED.search(card.name):
        return True
    return arch is HostArch.ARM64 and card.memory_absent and not _OWN.search(card.name)
