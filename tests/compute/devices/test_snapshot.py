"""A snapshot of whole hosts: several vendors, one that hangs, none at all."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tasc_compute.codec import from_json, to_json
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceSnapshot, DeviceVendor, TelemetryField
from tasc_compute.devices import snapshot
from tasc_compute.devices.finding import FaultCategory, ProbeFault
from tasc_compute.devices.runner import ToolRunner
from tasc_compute.devices.snapshot import memory_for_models, survey
from tasc_compute.host import host_profile
from tasc_compute.visibility import DevicePlace

GIB = 1024**3


def device(name: str, accelerator: Accelerator, vendor: DeviceVendor, total: int, *, unified: bool) -> AcceleratorInfo:
    return AcceleratorInfo(name, 0, vendor, name, accelerator, total, 0, unified, None, None, None, None, None)


NVIDIA = device("GPU-1", Accelerator.CUDA, DeviceVendor.NVIDIA, 24 * GIB, unified=False)
GB10 = device("GPU-2", Accelerator.CUDA, DeviceVendor.NVIDIA, 128 * GIB, unified=True)
DISPLAY = device("intel:0000:00:02.0", Accelerator.XPU, DeviceVendor.INTEL, 64 * GIB, unified=True)
APU = device("amd:0000:04:00.0", Accelerator.ROCM, DeviceVendor.AMD, 64 * GIB, unified=True)
CPU = device("cpu:0", Accelerator.CPU, DeviceVendor.UNKNOWN, 64 * GIB, unified=True)


def test_a_host_without_accelerators_is_its_processor(runner: ToolRunner, root: Path) -> None:
    found = survey(runner, root=root)
    (cpu,) = found.snapshot.accelerators
    assert (cpu.id, cpu.accelerator, cpu.unified_memory, found.places, found.faults) == (
        "cpu:0",
        Accelerator.CPU,
        True,
        {},
        (),
    )
    assert cpu.memory_total_bytes == found.snapshot.host.memory_total_bytes > 0
    assert cpu.utilization_pct is not None and 0 <= cpu.utilization_pct <= 100
    assert TelemetryField.POWER not in found.snapshot.capabilities
    assert {TelemetryField.MEMORY, TelemetryField.HOST_MEMORY, TelemetryField.UTILIZATION} <= set(
        found.snapshot.capabilities
    )


def test_a_snapshot_survives_its_published_json(runner: ToolRunner, root: Path) -> None:
    found = survey(runner, root=root).snapshot
    assert from_json(DeviceSnapshot, json.loads(json.dumps(to_json(found)))) == found
    assert len(found.sampled_at) == 24 and found.sampled_at.endswith("Z")


def test_vendors_stand_side_by_side_and_one_that_hangs_takes_nothing_from_the_others(
    tool, bin_folder: Path, put: Callable[[str, str], None], root: Path
) -> None:
    flex = {
        "device_id": 0,
        "device_name": "Flex 170",
        "device_function_type": "physical",
        "pci_bdf_address": "0000:23:00.0",
    }
    tool("xpu-smi", {"discovery -j": json.dumps({"device_list": [flex]}), "discovery -d": "{}", "stats": "{}"})
    hanging = bin_folder / "amd-smi"
    hanging.write_text('#!/bin/sh\ntrap "" TERM\nexec /bin/sleep 600\n')
    hanging.chmod(hanging.stat().st_mode | stat.S_IXUSR)
    put("/sys/class/hwmon/hwmon0/name", "coretemp")
    put("/sys/class/hwmon/hwmon0/temp1_input", "40000")
    found = survey(ToolRunner({"PATH": str(bin_folder)}, extra_path=(), timeout_ms=4000), root=root)
    assert [item.id for item in found.snapshot.accelerators] == ["intel:0000:23:00.0"]
    assert found.places == {"intel:0000:23:00.0": DevicePlace(0)}
    assert ProbeFault("amd-smi", FaultCategory.TIMED_OUT) in found.faults
    assert TelemetryField.TEMPERATURE in found.snapshot.capabilities
    assert TelemetryField.MEMORY not in found.snapshot.capabilities, "zero bytes here mean that nobody could tell"


def test_a_probe_that_breaks_is_a_fault_and_the_rest_is_told(
    monkeypatch: pytest.MonkeyPatch, runner: ToolRunner, root: Path
) -> None:
    def broken(_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(snapshot, "_PROBES", {"amd": broken})
    found = survey(runner, root=root)
    assert found.faults == (ProbeFault("amd", FaultCategory.UNREADABLE),)
    assert [item.id for item in found.snapshot.accelerators] == ["cpu:0"]


def test_memory_that_several_devices_share_counts_once() -> None:
    assert memory_for_models([NVIDIA, DISPLAY, APU]) == 24 * GIB + 64 * GIB
    assert memory_for_models([NVIDIA, NVIDIA]) == 48 * GIB
    assert memory_for_models([]) == 0


def test_the_first_devices_kind_is_what_a_host_computes_with() -> None:
    profile = host_profile([NVIDIA, APU])
    assert (profile.accelerator, profile.device_count, profile.unified_memory) == (Accelerator.CUDA, 1, False)
    assert host_profile([GB10]).unified_memory is True


def test_a_display_or_a_processor_makes_no_accelerated_host() -> None:
    assert host_profile([DISPLAY]).device_count == 0
    profile = host_profile([CPU])
    assert (profile.device_count, profile.docker_gpu) == (0, False)
