"""NVIDIA's answers, from every driver that the field reported trouble with."""

from __future__ import annotations

import pytest

from tasc_compute.contracts import Accelerator, DeviceVendor, HostArch
from tasc_compute.devices import nvidia, nvidia_cards
from tasc_compute.devices.finding import DeviceUse, FaultCategory, ProbeFault
from tasc_compute.visibility import DevicePlace

MIB, GIB = 1024**2, 1024**3
RTX = "GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21"
OTHER = "GPU-35fa9bdb-1111-2222-3333-444455556666"
SLICE = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
SLICE_2 = "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"

ROW_4090 = (
    f"0, {RTX}, 00000000:01:00.0, NVIDIA GeForce RTX 4090, "
    "24564, 745, 23401, 95, 61, 312.45, 450.00, 550.54.15, [N/A], 8.9"
)
ROW_GB10 = (
    f"0, {OTHER}, 0000000F:01:00.0, NVIDIA GB10, [N/A], [N/A], [N/A], 0, 35, 11.17, [N/A], 580.95.05, [N/A], 12.1"
)
ROW_WSL = (
    f"0, {RTX}, 00000000:01:00.0, NVIDIA GeForce RTX 3080, "
    "10240, 1200, 8800, [N/A], 45, 30.10, [N/A], 537.13, [N/A], 8.6"
)
ROW_MIG = (
    f"1, {OTHER}, 00000000:3B:00.0, NVIDIA A100-SXM4-80GB, "
    "81920, 3, 81248, [N/A], 33, 62.10, 400.00, 535.129.03, Enabled, 8.0"
)

XML = f"""Warning: infoROM is corrupted at gpu 0000:3B:00.0
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><driver_version>535.129.03</driver_version>
<gpu id="00000000:3B:00.0"><product_name>NVIDIA A100-SXM4-80GB</product_name><uuid>{OTHER}</uuid>
<mig_mode><current_mig>Enabled</current_mig></mig_mode>
<mig_devices><mig_device><index>0</index>
<fb_memory_usage><total>19968 MiB</total><used>12 MiB</used></fb_memory_usage></mig_device><mig_device><index>1</index>
<fb_memory_usage><total>19968 MiB</total><used>300 MiB</used></fb_memory_usage></mig_device></mig_devices>
<fb_memory_usage><total>81920 MiB</total><reserved>669 MiB</reserved><used>3 MiB</used></fb_memory_usage>
<utilization><gpu_util>N/A</gpu_util></utilization><temperature><gpu_temp>33 C</gpu_temp></temperature>
<gpu_power_readings><instant_power_draw>62.10 W</instant_power_draw>
<current_power_limit>400.00 W</current_power_limit></gpu_power_readings>
<processes>N/A</processes></gpu></nvidia_smi_log>"""

LISTING = f"""GPU 0: NVIDIA A100-SXM4-80GB (UUID: {OTHER})
  MIG 1g.20gb     Device  0: (UUID: {SLICE})
  MIG 1g.20gb     Device  1: (UUID: {SLICE_2})
"""


def test_a_row_is_read_with_its_units() -> None:
    (card,) = nvidia_cards.cards_of_csv(ROW_4090)
    assert (card.index, card.uuid, card.name) == (0, RTX, "NVIDIA GeForce RTX 4090")
    assert (card.total, card.used, card.utilization, card.temperature) == (24564 * MIB, 745 * MIB, 95.0, 61.0)
    assert (card.power, card.power_limit, card.driver, card.mig, card.memory_absent) == (
        312.45,
        450.0,
        "550.54.15",
        False,
        False,
    )


def test_a_gb10_shares_the_hosts_memory_and_is_neither_zero_nor_lost(make_context) -> None:
    """Lesson 43: gpustat pull 179, nvitop pull 208, gpud pull 1170: N/A memory crashed, read 0 or dropped the only GPU."""
    (device,) = nvidia.finding_of(nvidia_cards.cards_of_csv(ROW_GB10), make_context(arch=HostArch.ARM64)).accelerators
    assert (device.unified_memory, device.memory_total_bytes, device.memory_used_bytes) == (True, 128 * GIB, 28 * GIB)
    assert (device.utilization_pct, device.power_watts, device.power_limit_watts) == (0.0, 11.17, None)


@pytest.mark.parametrize(
    ("name", "memory", "arch", "shared"),
    [
        ("NVIDIA N1X", "8128", HostArch.ARM64, True),
        ("NVIDIA Thor", "[N/A]", HostArch.ARM64, True),
        ("Orin (nvgpu)", "Not Supported", HostArch.ARM64, True),
        ("NVIDIA Tegra Next", "[N/A]", HostArch.ARM64, True),
        ("NVIDIA GH200 480GB", "[N/A]", HostArch.ARM64, False),
        ("NVIDIA GB200", "[N/A]", HostArch.ARM64, False),
        ("NVIDIA L40S", "[N/A]", HostArch.ARM64, False),
        ("NVIDIA Tegra Next", "[GPU requires reset]", HostArch.ARM64, False),
        ("NVIDIA GeForce RTX 3080", "[N/A]", HostArch.X64, False),
    ],
)
def test_which_cards_share_memory(name: str, memory: str, arch: HostArch, shared: bool) -> None:
    row = ROW_GB10.replace("NVIDIA GB10, [N/A]", f"{name}, {memory}")
    (card,) = nvidia_cards.cards_of_csv(row)
    assert nvidia.shares_memory(card, arch) is shared


def test_wsl_says_null_where_it_cannot_tell(make_context) -> None:
    """Lesson 45: dask/distributed 5342, WSL 7162: N/A utilization crashed parsers."""
    (device,) = nvidia.finding_of(nvidia_cards.cards_of_csv(ROW_WSL), make_context()).accelerators
    assert (device.utilization_pct, device.power_limit_watts, device.memory_used_bytes) == (None, None, 1200 * MIB)


def test_a_comma_in_a_name_does_not_shift_the_row() -> None:
    (card,) = nvidia_cards.cards_of_csv(ROW_4090.replace("NVIDIA GeForce RTX 4090", "NVIDIA Quadro, Mobile, X"))
    assert (card.name, card.total, card.driver) == ("NVIDIA Quadro, Mobile, X", 24564 * MIB, "550.54.15")


@pytest.mark.parametrize(
    "output",
    [
        "No devices were found",
        "Failed to initialize NVML: Driver/library version mismatch",
        "",
        ROW_4090[:60],
        "\x00" * 50,
        "0, not-a-uuid" + ", 1" * 12,
        "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error",
        'Field "compute_cap" is not a valid field to query.',
    ],
)
def test_texts_are_no_cards(output: str) -> None:
    assert nvidia_cards.cards_of_csv(output) == ()


def test_xml_is_read_after_warnings_with_its_slices() -> None:
    (card,) = nvidia_cards.cards_of_xml(XML)
    assert (card.uuid, card.mig, card.power, card.power_limit, card.temperature) == (OTHER, True, 62.1, 400.0, 33.0)
    assert [part.used for part in card.slices] == [12 * MIB, 300 * MIB]


def test_old_xml_power_readings_are_known() -> None:
    old = (
        XML.replace("gpu_power_readings", "power_readings")
        .replace("instant_power_draw", "power_draw")
        .replace("current_power_limit", "power_limit")
    )
    (card,) = nvidia_cards.cards_of_xml(old)
    assert (card.power, card.power_limit) == (62.1, 400.0)


@pytest.mark.parametrize("broken", [XML[:900], '<nvidia_smi_log><!ENTITY a "b"></nvidia_smi_log>', "no xml at all", ""])
def test_broken_or_hostile_xml_has_no_cards(broken: str) -> None:
    assert nvidia_cards.cards_of_xml(broken) == ()


def test_slices_stand_for_a_card_in_mig_mode(make_context) -> None:
    cards = nvidia_cards.with_listed_slices(nvidia_cards.cards_of_xml(XML), LISTING)
    devices = nvidia.finding_of(cards, make_context()).accelerators
    assert [(d.id, d.memory_used_bytes, d.power_watts, d.utilization_pct, d.temperature_c) for d in devices] == [
        (SLICE, 12 * MIB, None, None, 33.0),
        (SLICE_2, 300 * MIB, None, None, 33.0),
    ]
    assert devices[0].name == "NVIDIA A100-SXM4-80GB MIG 1g.20gb"


def test_a_card_in_mig_mode_without_slices_is_no_device(make_context) -> None:
    finding = nvidia.finding_of(nvidia_cards.cards_of_csv(ROW_MIG), make_context())
    assert (finding.accelerators, finding.faults) == ((), (ProbeFault("nvml", FaultCategory.NO_SLICES),))


NVML = {
    "driver": "550.54.15",
    "devices": [
        {"index": 0, "error": 15},
        {
            "index": 1,
            "uuid": RTX,
            "name": "NVIDIA GeForce RTX 4090",
            "totalBytes": 24564 * MIB,
            "usedBytes": 745 * MIB,
            "memoryAbsent": False,
            "utilization": 95,
            "temperature": 61,
            "milliwatts": 312450,
            "limitMilliwatts": 450000,
            "mig": False,
            "slices": [],
            "processes": [{"pid": 41, "usedBytes": 700 * MIB}, {"pid": 42, "usedBytes": None}],
        },
    ],
}


def test_a_lost_card_keeps_its_index_and_the_others_theirs(make_context) -> None:
    finding = nvidia.finding_of(nvidia_cards.cards_of_nvml(NVML), make_context())
    (device,) = finding.accelerators
    assert (device.id, device.index, device.power_watts, device.vendor, device.accelerator) == (
        RTX,
        1,
        312.45,
        DeviceVendor.NVIDIA,
        Accelerator.CUDA,
    )
    assert finding.faults == (ProbeFault("nvml", FaultCategory.DEVICE_LOST),)
    assert finding.places == {RTX: DevicePlace(1)}
    assert finding.uses == (DeviceUse(RTX, 41, 700 * MIB), DeviceUse(RTX, 42, None))


@pytest.mark.parametrize("report", [None, [], {"devices": None}, {"devices": [1, {"index": "x"}]}, {"error": 12}])
def test_a_report_of_another_shape_has_no_cards(report: object) -> None:
    assert nvidia_cards.cards_of_nvml(report) == ()


# --- with real processes ----------------------------------------------------------------------------------------------


def test_nothing_is_run_without_a_sign_of_a_driver(make_context) -> None:
    finding = nvidia.probe(make_context())
    assert (finding.accelerators, finding.faults) == ((), ())


@pytest.mark.usefixtures("no_nvml")
def test_nvidia_smi_answers_where_nvml_cannot_be_loaded(tool, make_context) -> None:
    tool("nvidia-smi", {"--query-gpu": ROW_4090 + "\n", "--query-compute-apps": f"{RTX}, 77, 512\n{RTX}, 78, [N/A]\n"})
    finding = nvidia.probe(make_context())
    assert [device.id for device in finding.accelerators] == [RTX]
    assert finding.uses == (DeviceUse(RTX, 77, 512 * MIB), DeviceUse(RTX, 78, None))
    assert finding.faults == ()


@pytest.mark.usefixtures("no_nvml")
def test_an_old_driver_is_asked_again_with_what_it_knows(tool, make_context) -> None:
    basic = ", ".join(ROW_4090.split(", ")[:12])
    tool(
        "nvidia-smi",
        {
            "compute_cap": 'Field "compute_cap" is not a valid field to query.',
            "--query-gpu": basic,
            "--query-compute-apps": "",
        },
        exit_codes={"compute_cap": 2},
    )
    (device,) = nvidia.probe(make_context()).accelerators
    assert (device.id, device.driver, device.utilization_pct) == (RTX, "550.54.15", 95.0)


@pytest.mark.usefixtures("no_nvml")
def test_values_printed_beside_a_damaged_inforom_count(tool, make_context) -> None:
    tool("nvidia-smi", {"--query-gpu": ROW_4090, "--query-compute-apps": ""}, exit_codes={"--query-gpu": 14})
    assert [device.id for device in nvidia.probe(make_context()).accelerators] == [RTX]


@pytest.mark.usefixtures("no_nvml")
def test_mig_slices_are_named_by_the_list_and_measured_by_the_xml(tool, make_context) -> None:
    tool("nvidia-smi", {"--query-gpu": ROW_MIG, "-q -x": XML, "-L": LISTING, "--query-compute-apps": ""})
    devices = nvidia.probe(make_context()).accelerators
    assert [(device.id, device.memory_total_bytes) for device in devices] == [
        (SLICE, 19968 * MIB),
        (SLICE_2, 19968 * MIB),
    ]


@pytest.mark.usefixtures("no_nvml")
@pytest.mark.parametrize(
    ("said", "code", "faults"),
    [
        ("No devices were found\n", 6, ()),
        (
            "Failed to initialize NVML: Driver/library version mismatch\n",
            18,
            (ProbeFault("nvidia-smi", FaultCategory.DRIVER),),
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
            9,
            (ProbeFault("nvidia-smi", FaultCategory.DRIVER),),
        ),
    ],
)
def test_a_driver_that_fails_is_a_fault_and_an_empty_host_is_not(
    said: str, code: int, faults: tuple[ProbeFault, ...], tool, make_context
) -> None:
    tool("nvidia-smi", {"-": said}, exit_codes={"-": code})
    finding = nvidia.probe(make_context())
    assert (finding.accelerators, finding.faults) == ((), faults)


@pytest.fixture
def no_nvml(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """A host whose bindings are missing, whatever the machine that runs the tests has."""
    script = tmp_path / "no_bindings.py"
    script.write_text('print(\'{"error": "no-bindings"}\')\n')
    monkeypatch.setattr(nvidia, "_SCRIPT", script)


def test_a_hanging_nvml_is_not_asked_again_through_nvidia_smi(
    monkeypatch: pytest.MonkeyPatch, tmp_path, tool, root, bin_folder
) -> None:
    from tasc_compute.contracts import HostPlatform
    from tasc_compute.devices.finding import ProbeContext
    from tasc_compute.devices.runner import ToolRunner

    script = tmp_path / "hangs.py"
    script.write_text("import time; time.sleep(600)\n")
    monkeypatch.setattr(nvidia, "_SCRIPT", script)
    tool("nvidia-smi", {"--query-gpu": ROW_4090, "--query-compute-apps": ""})
    tools = ToolRunner({"PATH": str(bin_folder)}, extra_path=(), timeout_ms=300)
    finding = nvidia.probe(ProbeContext(tools, root, HostPlatform.LINUX, HostArch.X64, None))
    assert (finding.accelerators, finding.faults) == ((), (ProbeFault("nvml", FaultCategory.TIMED_OUT),))
