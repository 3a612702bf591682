"""AMD's answers of ROCm 5 to 7, and the kernel's own files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasc_compute.contracts import Accelerator
from tasc_compute.devices import amd, kfd
from tasc_compute.devices.finding import DeviceUse, FaultCategory, ProbeFault
from tasc_compute.visibility import DevicePlace

MIB, GIB = 1024**2, 1024**3
SERIAL = "0x0CEE36DDC4255115"
ID = "GPU-0cee36ddc4255115"
BDF = "0000:03:00.0"

STATIC = [
    {
        "gpu": 0,
        "asic": {
            "market_name": "AMD Instinct MI300X",
            "vendor_id": "0x1002",
            "asic_serial": SERIAL,
            "target_graphics_version": "gfx942",
        },
        "bus": {"bdf": BDF},
        "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
        "driver": {"name": "amdgpu", "version": "6.12.12"},
        "limit": {"max_power": {"value": 750, "unit": "W"}},
    }
]
METRIC = [
    {
        "gpu": 0,
        "usage": {"gfx_activity": {"value": 12, "unit": "%"}},
        "power": {"socket_power": {"value": 92, "unit": "W"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 48, "unit": "C"}, "mem": {"value": 40, "unit": "C"}},
        "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 1024, "unit": "MB"}},
    }
]


def test_a_bare_list_and_the_new_envelope_say_the_same() -> None:
    (old,) = amd.cards_of_amd_smi(STATIC, METRIC)  # type: ignore[arg-type]  # JSON
    (new,) = amd.cards_of_amd_smi({"gpu_data": STATIC}, {"gpu_data": METRIC})  # type: ignore[dict-item]  # JSON
    assert old == new
    assert (old.total, old.used, old.utilization, old.temperature) == (196592 * MIB, 1024 * MIB, 12.0, 48.0)
    assert (old.power, old.power_limit, old.driver, old.gfx, old.bdf) == (92.0, 750.0, "6.12.12", "gfx942", BDF)


def test_the_id_is_the_one_that_rocr_takes() -> None:
    assert amd.device_ids(amd.cards_of_amd_smi(STATIC, METRIC)) == (ID,)  # type: ignore[arg-type]  # JSON


@pytest.mark.parametrize("serial", ["0x0", "N/A", None, "", "0xfffffffffffffffffffff"])
def test_a_card_without_a_unique_id_is_known_by_its_place(serial: str | None) -> None:
    (card,) = amd.cards_of_amd_smi([{"gpu": 0, "asic": {"asic_serial": serial}, "bus": {"bdf": "0000:0A:00.0"}}], None)
    assert amd.device_ids((card,)) == ("amd:0000:0a:00.0",)


def test_partitions_that_share_a_unique_id_do_not_share_a_device_id() -> None:
    parts = [{"gpu": n, "asic": {"asic_serial": SERIAL}, "bus": {"bdf": f"0000:03:00.{n}"}} for n in (0, 1)]
    assert amd.device_ids(amd.cards_of_amd_smi(parts, None)) == ("amd:0000:03:00.0", "amd:0000:03:00.1")  # type: ignore[arg-type]  # JSON


def test_unanswered_values_are_null() -> None:
    (card,) = amd.cards_of_amd_smi(STATIC, [{"gpu": 0, "usage": "N/A", "power": {"socket_power": {"value": "N/A"}}}])  # type: ignore[arg-type]  # JSON
    assert (card.utilization, card.power, card.temperature, card.used) == (None, None, None, None)


@pytest.mark.parametrize("value", [None, [], {}, {"gpu_data": None}, [1, "x"], [{"gpu": None}], "text", 3])
def test_another_shape_has_no_cards(value: object) -> None:
    assert amd.cards_of_amd_smi(value, value) == ()  # type: ignore[arg-type]  # hostile on purpose


def test_the_new_power_limit_is_read_before_the_highest_possible_one() -> None:
    static = [STATIC[0] | {"limit": {"ppt0": {"max_power_limit": 1000, "socket_power_limit": "750"}}}]
    (card,) = amd.cards_of_amd_smi(static, METRIC)  # type: ignore[arg-type]  # JSON
    assert card.power_limit == 750.0


ROCM = {
    "card1": {
        "Card Series": "AMD INSTINCT MI250",
        "Unique ID": "0x2",
        "PCI Bus": "0000:C5:00.0",
        "Average Graphics Package Power (W)": "N/A (Secondary die)",
    },
    "card0": {
        "Card series": "AMD INSTINCT MI250",
        "Unique ID": "0xcee36ddc4255115",
        "GUID": "1",
        "GFX Version": "gfx90a",
        "GPU use (%)": "50",
        "PCI Bus": "0000:C1:00.0",
        "VRAM Total Memory (B)": "68702699520",
        "VRAM Total Used Memory (B)": "10960896",
        "Temperature (Sensor edge) (C)": "41.0",
        "Temperature (Sensor junction) (C)": "45.0",
        "Average Graphics Package Power (W)": "92.0",
        "Max Graphics Package Power (W)": "560.0",
    },
    "system": {"Driver version": "6.2.4"},
}


def test_rocm_smi_says_everything_as_text_under_changing_names() -> None:
    first, second = amd.cards_of_rocm_smi(ROCM)  # type: ignore[arg-type]  # JSON
    assert (first.index, first.total, first.used, first.utilization, first.temperature) == (
        0,
        68702699520,
        10960896,
        50.0,
        41.0,
    )
    assert (first.power, first.power_limit, first.driver, first.name) == (92.0, 560.0, "6.2.4", "AMD INSTINCT MI250")
    assert (second.power, second.utilization, second.total) == (None, None, None)
    assert amd.device_ids((first, second)) == (ID, "GPU-0000000000000002")


def test_the_newer_power_key_is_known() -> None:
    (card,) = amd.cards_of_rocm_smi({"card0": {"Current Socket Graphics Package Power (W)": "33.0"}})
    assert card.power == 33.0


@pytest.mark.parametrize(
    ("gfx", "name", "kind", "shared"),
    [
        ("gfx1151", "AMD Radeon Graphics", "LPDDR5", True),
        ("gfx1151", "Strix Halo", None, True),
        ("gfx942", "AMD Instinct MI300A", "HBM", True),
        ("gfx942", "AMD Instinct MI300X", "HBM", False),
        ("gfx1100", "Radeon RX 7900 XTX", "GDDR6", False),
        ("gfx1100", "AMD Radeon 7900", None, False),
    ],
)
def test_which_cards_share_memory(gfx: str, name: str, kind: str | None, shared: bool) -> None:
    assert amd.shares_memory(amd.Card(0, BDF, 1, name, gfx=gfx, memory_type=kind)) is shared


def test_an_apu_counts_the_hosts_memory_once_without_carve_out_or_table(make_context) -> None:
    """Lesson 44: legacy-rocm-build 6004, ollama 5471 and 12062: VRAM plus GTT was more than the machine had."""
    card = amd.Card(0, BDF, None, "Strix Halo", gfx="gfx1151", total=8 * GIB, used=1 * GIB)
    (device,) = amd.finding_of((card,), make_context()).accelerators
    assert (device.unified_memory, device.memory_total_bytes, device.memory_used_bytes) == (True, 128 * GIB, 28 * GIB)


def topology(put: Callable[[str, str], None]) -> None:
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    put(f"{nodes}/0/gpu_id", "0")
    put(f"{nodes}/0/properties", "cpu_cores_count 96\nsimd_count 0\n")
    for node, (gpu_id, location, minor) in {1: (45412, 0x0300, 128), 2: (45413, 0xC500, 136)}.items():
        put(f"{nodes}/{node}/gpu_id", str(gpu_id))
        put(
            f"{nodes}/{node}/properties",
            f"simd_count 1216\ndomain 0\nlocation_id {location}\ndrm_render_minor {minor}\n"
            "gfx_target_version 90402\nunique_id 931765834783707413\n",
        )


def test_places_and_processes_come_from_the_kernels_topology(
    put: Callable[[str, str], None], root: Path, make_context
) -> None:
    topology(put)
    put("/dev/kfd", "")
    put("/dev/dri/renderD128", "")
    put("/sys/class/kfd/kfd/proc/4242/vram_45412", str(3 * GIB))
    put("/sys/class/kfd/kfd/proc/4243/vram_45412", "0")
    put("/sys/class/kfd/kfd/proc/4244/vram_45413", str(GIB))
    group = (root / "dev/kfd").stat().st_gid
    finding = amd.finding_of(amd.cards_of_amd_smi(STATIC, METRIC), make_context())  # type: ignore[arg-type]  # JSON
    assert finding.places == {ID: DevicePlace(0, ("/dev/kfd", "/dev/dri/renderD128"), (group,))}
    assert finding.uses == (DeviceUse(ID, 4242, 3 * GIB),)
    assert [node.ordinal for node in kfd.kfd_nodes(make_context())] == [0, 1]


def test_addresses_and_architectures_are_decoded() -> None:
    assert kfd.bdf_of(0, 0x0300) == "0000:03:00.0"
    assert kfd.bdf_of(1, 0xC5 << 8 | 2 << 3 | 1) == "0001:c5:02.1"
    assert [kfd.gfx_of(version) for version in (90010, 90402, 110501, 100306)] == [
        "gfx90a",
        "gfx942",
        "gfx1151",
        "gfx1036",
    ]


def test_the_kernels_files_answer_without_any_tool(put: Callable[[str, str], None], root: Path, make_context) -> None:
    device = f"/sys/devices/pci0000:00/{BDF}"
    for name, content in {
        "vendor": "0x1002",
        "unique_id": "0cee36ddc4255115",
        "mem_info_vram_total": "17163091968",
        "mem_info_vram_used": "1000",
        "gpu_busy_percent": "7",
        "product_name": "Radeon RX 7900 XTX",
        "hwmon/hwmon4/temp1_input": "51000",
        "hwmon/hwmon4/power1_average": "21000000",
        "hwmon/hwmon4/power1_cap": "303000000",
    }.items():
        put(f"{device}/{name}", content)
    cards = root / "sys/class/drm/card0"
    cards.mkdir(parents=True)
    (cards / "device").symlink_to(root / device.lstrip("/"))
    (found,) = amd.probe(make_context()).accelerators
    assert (found.id, found.name, found.memory_total_bytes, found.memory_used_bytes) == (
        ID,
        "Radeon RX 7900 XTX",
        17163091968,
        1000,
    )
    assert (found.utilization_pct, found.temperature_c, found.power_watts, found.power_limit_watts) == (
        7.0,
        51.0,
        21.0,
        303.0,
    )
    assert found.accelerator is Accelerator.ROCM


def test_warnings_before_the_json_do_not_hide_the_cards(tool, make_context) -> None:
    warning = "WARNING: User is missing the following required groups: render, video. [1]\n"
    tool("amd-smi", {"static": warning + json.dumps(STATIC), "metric": warning + json.dumps({"gpu_data": METRIC})})
    finding = amd.probe(make_context())
    assert [device.id for device in finding.accelerators] == [ID]
    assert finding.faults == ()


def test_amd_smi_is_asked_once_for_each_report_and_never_left_watching(tool, make_context, tmp_path) -> None:
    """Lesson 47: what it prints while it watches is no JSON."""
    asked = tmp_path / "asked"
    program = tool("amd-smi", {"static": json.dumps(STATIC), "metric": json.dumps({"gpu_data": METRIC})})
    program.write_text(program.read_text().replace("case", f'echo "$*" >> "{asked}"\ncase', 1))
    assert [device.id for device in amd.probe(make_context()).accelerators] == [ID]
    assert asked.read_text().splitlines() == ["static --json", "metric --json"]


def test_rocm_smi_answers_where_amd_smi_prints_nonsense(tool, make_context) -> None:
    tool("amd-smi", {"static": json.dumps(STATIC)[:80], "metric": ""})
    tool("rocm-smi", {"--json": json.dumps(ROCM)})
    finding = amd.probe(make_context())
    assert [device.id for device in finding.accelerators] == [ID, "GPU-0000000000000002"]
    assert finding.faults == (ProbeFault("amd-smi", FaultCategory.UNREADABLE),)


def test_a_tool_without_its_driver_says_so(tool, make_context) -> None:
    tool("amd-smi", {"static": "ERROR: driver not loaded\n", "metric": ""}, exit_codes={"static": 255})
    assert amd.probe(make_context()).faults == (ProbeFault("amd-smi", FaultCategory.DRIVER),)


def test_a_low_power_card_that_reports_nothing_is_a_fault_and_no_device(tool, make_context) -> None:
    tool("rocm-smi", {"--json": "WARNING: No JSON data to report\n"})
    finding = amd.probe(make_context())
    assert (finding.accelerators, finding.faults) == ((), (ProbeFault("rocm-smi", FaultCategory.UNREADABLE),))
