"""Intel's answers: xpu-smi in both forms, and the kernel's own files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasc_compute.contracts import Accelerator
from tasc_compute.devices import intel
from tasc_compute.devices.finding import FaultCategory, ProbeFault
from tasc_compute.visibility import DevicePlace

MIB, GIB = 1024**2, 1024**3
FLEX = {
    "device_id": 0,
    "device_name": "Intel(R) Data Center GPU Flex 170",
    "device_type": "GPU",
    "device_function_type": "physical",
    "pci_bdf_address": "0000:23:00.0",
    "uuid": "00000000-0000-0023-0000-000000000000",
    "vendor_name": "Intel(R) Corporation",
}
VIRTUAL = FLEX | {"device_id": 1, "device_function_type": "virtual", "pci_bdf_address": "0000:23:00.1"}
OLD_STATS = {
    "device_id": 0,
    "device_level": [
        {"metrics_type": "XPUM_STATS_GPU_UTILIZATION", "value": 0.0},
        {"metrics_type": "XPUM_STATS_POWER", "value": 43.5},
        {"metrics_type": "XPUM_STATS_GPU_CORE_TEMPERATURE", "value": 51},
        {"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 120.5},
    ],
}
NEW_STATS = {
    "device_index": 0,
    "utilization": {"gpu_percent": {"0": {"avg": 40}, "1": {"avg": 60}}},
    "power": {"gpu_power_w": {"0": {"avg": 1, "min": 0, "max": 99, "current": 60}, "1": {"current": 70}}},
    "temperature": {"gpu_core_celsius": {"0": 44, "1": 47}},
    "memory": {"used_mib": {"0": {"current": 100}, "1": {"current": 28}}},
}


def test_the_old_statistics_are_a_list_of_metrics() -> None:
    assert intel.stats_of(OLD_STATS) == intel.Stats(int(120.5 * MIB), 0.0, 51.0, 43.5)  # type: ignore[arg-type]  # JSON


def test_the_new_statistics_are_joined_over_tiles() -> None:
    """Memory and power add up, utilization is a mean, the hottest tile counts."""
    assert intel.stats_of(NEW_STATS) == intel.Stats(128 * MIB, 50.0, 47.0, 130.0)  # type: ignore[arg-type]  # JSON


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"device_level": "x"}, {"memory": {"used_mib": {"0": {"current": "N/A"}}}}, {"utilization": 5}],
)
def test_statistics_that_say_nothing_are_null(value: object) -> None:
    assert intel.stats_of(value) == intel.Stats()  # type: ignore[arg-type]  # hostile on purpose


def test_virtual_functions_are_not_counted_beside_their_card() -> None:
    listed = intel.listed_devices({"device_list": [FLEX, VIRTUAL]})  # type: ignore[dict-item]  # JSON
    assert listed == [(0, "0000:23:00.0", "Intel(R) Data Center GPU Flex 170")]
    assert intel.listed_devices({"device_list": None}) == []


@pytest.mark.parametrize(
    "details", [{"memory_physical_size_byte": "17095983104"}, {"memory_physical_size_byte": 17095983104}]
)
def test_memory_is_a_number_or_a_text(details: dict[str, object]) -> None:
    card = intel.card_of((0, "0000:23:00.0", "Flex"), details, intel.Stats())  # type: ignore[arg-type]  # JSON
    assert card.total == 17095983104


def test_a_card_is_asked_for_details_and_statistics(
    tool, put: Callable[[str, str], None], root: Path, make_context
) -> None:
    tool(
        "xpu-smi",
        {
            "discovery -j": json.dumps({"device_list": [FLEX, VIRTUAL]}),
            "discovery -d 0": json.dumps({"memory_physical_size": "16304.00 MiB", "driver_version": "I915_23.8"}),
            "stats -d 0": "note\n" + json.dumps(OLD_STATS),
        },
    )
    put("/sys/bus/pci/devices/0000:23:00.0/drm/renderD129/dev", "226:129")
    put("/dev/dri/renderD129", "")
    finding = intel.probe(make_context())
    (device,) = finding.accelerators
    assert (device.id, device.index, device.accelerator) == ("intel:0000:23:00.0", 0, Accelerator.XPU)
    assert (device.memory_total_bytes, device.memory_used_bytes, device.unified_memory) == (
        16304 * MIB,
        int(120.5 * MIB),
        False,
    )
    assert (device.utilization_pct, device.temperature_c, device.power_watts, device.driver) == (
        0.0,
        51.0,
        43.5,
        "I915_23.8",
    )
    group = (root / "dev/dri/renderD129").stat().st_gid
    assert finding.places == {device.id: DevicePlace(0, ("/dev/dri/renderD129",), (group,))}


@pytest.mark.parametrize(
    ("said", "faults"),
    [
        ("No device discovered\n", ()),
        ('{"device_list": nul', (ProbeFault("xpu-smi", FaultCategory.UNREADABLE),)),
        ('{"device_list": null}', ()),
    ],
)
def test_an_empty_host_is_no_fault_and_a_broken_answer_is(
    said: str, faults: tuple[ProbeFault, ...], tool, make_context
) -> None:
    tool("xpu-smi", {"discovery -j": said})
    finding = intel.probe(make_context())
    assert (finding.accelerators, finding.faults) == ((), faults)


def display(put: Callable[[str, str], None], root: Path, card: str, bdf: str) -> None:
    device = f"/sys/devices/pci0000:00/{bdf}"
    put(f"{device}/vendor", "0x8086")
    put(f"{device}/class", "0x030000")
    folder = root / "sys/class/drm" / card
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(root / device.lstrip("/"))


def test_the_kernels_files_tell_which_cards_there_are_and_that_memory_is_unknown(
    put: Callable[[str, str], None], root: Path, make_context
) -> None:
    display(put, root, "card1", "0000:03:00.0")
    display(put, root, "card0", "0000:00:02.0")
    finding = intel.probe(make_context())
    assert [(d.id, d.unified_memory, d.memory_total_bytes) for d in finding.accelerators] == [
        ("intel:0000:00:02.0", True, 128 * GIB),
        ("intel:0000:03:00.0", False, 0),
    ]
    assert {place.ordinal for place in finding.places.values()} == {None}
