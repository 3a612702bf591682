"""One look at everything that this host has.

Rules:

1. Several vendors may coexist; each probe answers for itself, and one that fails takes nothing from the others.
2. Devices with memory of their own come first: what shares memory with the host is what a planner falls back to.
3. An id stands for one device; a second one of the same id is left out and said to be a fault.
4. The processor is a device only where nothing else is.
5. ``capabilities`` holds what at least one probe really answered.
6. Every reading is bounded in time: tools by their runner and its budget, files by ``bounded``. A reading that fails
   or breaks is a fault; a survey never raises because of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.clock import Clock, SystemClock
from tasc_compute.contracts import (
    AcceleratorInfo,
    DeviceId,
    DeviceSnapshot,
    TelemetryField,
)
from tasc_compute.devices import amd, apple, intel, nvidia
from tasc_compute.devices.bounded import bounded
from tasc_compute.devices.cpu import cpu_device, cpu_times, utilization
from tasc_compute.devices.finding import DeviceUse, FaultCategory, Finding, ProbeContext, ProbeFault
from tasc_compute.devices.host import host_info, host_memory
from tasc_compute.devices.runner import ToolRunner, Tools
from tasc_compute.devices.storage import volumes
from tasc_compute.devices.thermals import thermals
from tasc_compute.host import host_arch, host_platform
from tasc_compute.limits import CPU_SAMPLE_MS, READING_TIMEOUT_MS, SURVEY_BUDGET_MS
from tasc_compute.state import format_time
from tasc_compute.visibility import DevicePlace

_PROBES: Final[Mapping[str, Callable[[ProbeContext], Finding]]] = {
    "nvidia": nvidia.probe,
    "amd": amd.probe,
    "intel": intel.probe,
    "apple": apple.probe,
}
_PROBE_TIMEOUT_MS: Final = SURVEY_BUDGET_MS + READING_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Survey:
    """A snapshot and what is known beside it.

    Args:
        snapshot: the contract's record.
        places: where the devices are during this boot.
        uses: processes on them.
        faults: probes that could not answer.
    """

    snapshot: DeviceSnapshot
    places: Mapping[DeviceId, DevicePlace]
    uses: tuple[DeviceUse, ...]
    faults: tuple[ProbeFault, ...]


def snapshot(tools: Tools | None = None, *, clock: Clock | None = None, root: Path = Path("/")) -> DeviceSnapshot:
    """All devices of this host now; see ``survey``."""
    return survey(tools, clock=clock, root=root).snapshot


def survey(tools: Tools | None = None, *, clock: Clock | None = None, root: Path = Path("/")) -> Survey:
    """All devices of this host now, where they are and who uses them.

    Args:
        tools: the runner of commands; a new one with its full budget where it is ``None``.
        clock: wall and monotonic time.
        root: where /proc, /sys and /dev are read.
    """
    clock = clock or SystemClock()
    started, before = clock.monotonic_ms(), cpu_times()
    now = clock.now()
    context = probe_context(tools, root)
    found = accelerators(context)
    host = host_info(context, now)
    storage = bounded("storage", lambda: volumes(context), timeout_ms=_PROBE_TIMEOUT_MS)
    sensors = bounded("thermals", lambda: thermals(root), timeout_ms=READING_TIMEOUT_MS)
    faults = found.faults
    if isinstance(storage, FaultCategory):
        faults, storage = (*faults, ProbeFault("storage", storage)), ()
    if isinstance(sensors, FaultCategory):
        faults, sensors = (*faults, ProbeFault("thermals", sensors)), ()
    devices = found.accelerators
    if not devices:
        clock.sleep_ms(max(0.0, CPU_SAMPLE_MS - (clock.monotonic_ms() - started)))
        devices = (cpu_device(host.cpu_model, context.memory, utilization(before, cpu_times())),)
    answered = {
        TelemetryField.MEMORY: any(item.memory_total_bytes for item in devices),
        TelemetryField.UTILIZATION: any(item.utilization_pct is not None for item in devices),
        TelemetryField.TEMPERATURE: bool(sensors) or any(item.temperature_c is not None for item in devices),
        TelemetryField.POWER: any(item.power_watts is not None for item in devices),
        TelemetryField.STORAGE: bool(storage),
        TelemetryField.HOST_MEMORY: context.memory is not None,
    }
    record = DeviceSnapshot(
        sampled_at=format_time(now),
        accelerators=devices,
        host=host,
        storage=storage,
        thermals=sensors,
        capabilities=tuple(field for field in TelemetryField if answered[field]),
    )
    return Survey(record, found.places, found.uses, faults)


def probe_context(tools: Tools | None = None, root: Path = Path("/")) -> ProbeContext:
    """What the probes of this host work with."""
    tools = tools or ToolRunner()
    system = host_platform()
    return ProbeContext(tools, root, system, host_arch(), host_memory(tools, root, system))


def accelerators(context: ProbeContext) -> Finding:
    """What all vendors' probes found, by rules 1 to 3; the processor is not among them."""
    findings = [_finding(name, probe, context) for name, probe in _PROBES.items()]
    kept: dict[DeviceId, AcceleratorInfo] = {}
    faults = [fault for finding in findings for fault in finding.faults]
    for device in sorted((d for f in findings for d in f.accelerators), key=lambda device: device.unified_memory):
        if device.id in kept:
            faults.append(ProbeFault(str(device.vendor), FaultCategory.DUPLICATE_ID))
        else:
            kept[device.id] = device
    places = {device: place for finding in findings for device, place in finding.places.items()}
    uses = tuple(use for finding in findings for use in finding.uses)
    return Finding(tuple(kept.values()), places, uses, tuple(faults))


def _finding(name: str, probe: Callable[[ProbeContext], Finding], context: ProbeContext) -> Finding:
    found = bounded(name, lambda: probe(context), timeout_ms=_PROBE_TIMEOUT_MS)
    return Finding(faults=(ProbeFault(name, found),)) if isinstance(found, FaultCategory) else found


def memory_for_models(devices: Sequence[AcceleratorInfo]) -> int:
    """Bytes of device memory of a host in all: what is shared with the host is counted once, however many share it."""
    own = sum(item.memory_total_bytes for item in devices if not item.unified_memory)
    return own + max((item.memory_total_bytes for item in devices if item.unified_memory), default=0)
