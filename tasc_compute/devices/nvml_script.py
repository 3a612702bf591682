"""A program of its own: asks NVML once and writes JSON. Started by the tool runner; imports nothing of this project.

A call into NVML can block in the driver for ever when a GPU is lost. A thread of ours could never be ended then, a
process can at least be left behind. Every value that NVML refuses is null; ``memoryAbsent`` is true where it says that
the device has no such value (GB10), as against that reading it failed.
"""

from __future__ import annotations

import json
import sys
from typing import Any  # NVML's module ships no types

_NOT_SUPPORTED = 3
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""NVML's name for the same function since driver 535, and before."""
_MOST = 64


def report(nvml: Any) -> dict[str, Any]:  # Any: the module, and JSON
    """All devices as JSON, or ``{"error": code}``.

    Args:
        nvml: the module ``pynvml``, or one like it.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": int(error.value)}
    try:
        count = min(int(nvml.nvmlDeviceGetCount()), _MOST)
        driver = _ask(nvml, nvml.nvmlSystemGetDriverVersion)
        return {"driver": _word(driver), "devices": [_device(nvml, index) for index in range(count)]}
    except nvml.NVMLError as error:
        return {"error": int(error.value)}
    finally:
        _ask(nvml, nvml.nvmlShutdown)


def _ask(nvml: Any, call: Any, *arguments: Any) -> Any:  # Any: NVML's functions and results
    try:
        return call(*arguments)
    except (nvml.NVMLError, AttributeError, TypeError):
        return None


def _word(value: Any) -> str | None:  # Any: str, or bytes in older bindings
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _device(nvml: Any, index: int) -> dict[str, Any]:  # Any: the module, and JSON
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": int(error.value)}
    mig = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    utilization = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    return {
        **_part(nvml, handle),
        "index": index,
        "utilization": None if utilization is None else int(utilization.gpu),
        "temperature": _ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "milliwatts": _ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle),
        "limitMilliwatts": _ask(nvml, nvml.nvmlDeviceGetPowerManagementLimit, handle),
        "slowdowns": _slowdowns(nvml, handle),
        "mig": bool(mig and mig[0]),
        "slices": _slices(nvml, handle) if mig and mig[0] else [],
    }


def _slowdowns(nvml: Any, handle: Any) -> int | None:  # Any: the module and a handle
    """The bits of why clocks are lower than they could be."""
    for name in _REASONS:
        found = _ask(nvml, getattr(nvml, name, None), handle)
        if found is not None:
            return int(found)
    return None


def _part(nvml: Any, handle: Any) -> dict[str, Any]:  # Any: the module, a handle, and JSON
    total, used, absent = _memory(nvml, handle)
    running = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return {
        "uuid": _word(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        "name": _word(_ask(nvml, nvml.nvmlDeviceGetName, handle)),
        "totalBytes": total,
        "usedBytes": used,
        "memoryAbsent": absent,
        "processes": [{"pid": int(item.pid), "usedBytes": item.usedGpuMemory} for item in running],
    }


def _memory(nvml: Any, handle: Any) -> tuple[int | None, int | None, bool]:  # Any: the module and a handle
    """Version 2 tells reserved apart from used; older drivers have version 1 only."""
    absent = False
    for version in (getattr(nvml, "nvmlMemory_v2", None), None):
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, *([] if version is None else [version]))
        except nvml.NVMLError as error:
            absent = int(error.value) == _NOT_SUPPORTED
            continue
        except (AttributeError, TypeError):
            continue
        return int(memory.total), int(memory.used), False
    return None, None, absent


def _slices(nvml: Any, handle: Any) -> list[dict[str, Any]]:  # Any: the module, a handle, and JSON
    found = []
    for place in range(int(_ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
        part = _ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        if part is not None:
            found.append(_part(nvml, part))
    return found


def main() -> None:
    """Write the report to standard output."""
    try:
        import pynvml
    except ImportError:
        sys.stdout.write('{"error": "no-bindings"}')
        return
    sys.stdout.write(json.dumps(report(pynvml)))


if __name__ == "__main__":
    main()
