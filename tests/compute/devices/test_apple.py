"""GPUs of a Mac, from what its tools print."""

from __future__ import annotations

import json

import pytest

from tasc_compute.contracts import Accelerator, DeviceVendor, HostArch, HostPlatform
from tasc_compute.devices import apple
from tasc_compute.devices.finding import FaultCategory, HostMemory, ProbeFault
from tasc_compute.devices.host import available_of_vm_stat

MIB, GIB = 1024**2, 1024**3
M1 = {
    "SPDisplaysDataType": [
        {
            "_name": "kHW_AppleM1Item",
            "sppci_model": "Apple M1 Pro",
            "sppci_cores": "16",
            "spdisplays_vendor": "sppci_vendor_Apple",
            "sppci_bus": "spdisplays_builtin",
            "sppci_device_type": "spdisplays_gpu",
        }
    ]
}
IOREG = """+-o AGXAcceleratorG13X  <class AGXAcceleratorG13X, id 0x100000ad7>
    {
      "model" = "Apple M1 Pro"
      "gpu-core-count" = 16
      "PerformanceStatistics" = {"Device Utilization %"=34,"In use system memory"=7688503296,"Alloc system memory"=9}
    }
"""
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               12345.
Pages active:                            400000.
Pages inactive:                           20000.
Pages speculative:                          655.
Pages throttled:                              0.
Pages wired down:                        100000.
Pages purgeable:                           1000.
"""


def test_apple_silicon_is_one_device_that_shares_memory(tool, make_context) -> None:
    tool("system_profiler", {"SPDisplaysDataType": json.dumps(M1)})
    tool("ioreg", {"IOAccelerator": IOREG})
    context = make_context(platform=HostPlatform.DARWIN, arch=HostArch.ARM64, memory=HostMemory(32 * GIB, 20 * GIB))
    (device,) = apple.probe(context).accelerators
    assert (device.id, device.vendor, device.accelerator, device.name) == (
        "metal:0",
        DeviceVendor.APPLE,
        Accelerator.METAL,
        "Apple M1 Pro",
    )
    assert (device.unified_memory, device.memory_total_bytes, device.memory_used_bytes, device.utilization_pct) == (
        True,
        32 * GIB,
        12 * GIB,
        34.0,
    )
    assert (device.temperature_c, device.power_watts) == (None, None), "both need root on a Mac"


def test_another_system_is_not_asked(tool, make_context) -> None:
    tool("system_profiler", {"SPDisplaysDataType": json.dumps(M1)})
    assert apple.probe(make_context()).accelerators == ()


def test_a_truncated_answer_is_a_fault(tool, make_context) -> None:
    tool("system_profiler", {"SPDisplaysDataType": json.dumps(M1)[:70]})
    finding = apple.probe(make_context(platform=HostPlatform.DARWIN))
    assert (finding.accelerators, finding.faults) == ((), (ProbeFault("system_profiler", FaultCategory.UNREADABLE),))


@pytest.mark.parametrize(("key", "unified"), [("spdisplays_vram", False), ("spdisplays_vram_shared", True)])
def test_intel_macs_tell_shared_memory_apart(key: str, unified: bool, tool, make_context) -> None:
    card = {"sppci_model": "Intel Iris Plus", "spdisplays_vendor": "Intel", key: "1536 MB"}
    tool("system_profiler", {"SPDisplaysDataType": json.dumps({"SPDisplaysDataType": [card]})})
    tool("ioreg", {"IOAccelerator": ""})
    (device,) = apple.probe(make_context(platform=HostPlatform.DARWIN)).accelerators
    assert (device.unified_memory, device.vendor, device.utilization_pct) == (unified, DeviceVendor.INTEL, None)


def test_available_memory_is_four_kinds_of_pages() -> None:
    assert available_of_vm_stat(VM_STAT) == (12345 + 20000 + 655 + 1000) * 16384
    assert available_of_vm_stat(VM_STAT.replace("16384", "4096")) == 34000 * 4096
    assert available_of_vm_stat("Pages free: 12.") is None
