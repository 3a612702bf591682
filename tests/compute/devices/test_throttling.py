"""Which devices say that heat or their own protection slows them down, and that the others say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_compute.codec import from_json, to_json
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceId, DeviceVendor
from tasc_compute.devices import amd, apple, nvidia_cards
from tasc_compute.devices.host import cpu_throttle_count

RTX = "GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21"


@pytest.mark.parametrize(
    ("bits", "throttled"),
    [
        (0x00, False),  # nothing
        (0x01, False),  # idle
        (0x04, False),  # a power cap that was set
        (0x10, False),  # clocks set together
        (0x08, True),  # hardware slowdown
        (0x20, True),  # software, by heat
        (0x44, True),  # hardware, by heat, beside a power cap
        (0x80, True),  # power brake
        (None, None),
    ],
)
def test_heat_and_protection_throttle_and_a_power_cap_does_not(bits: int | None, throttled: bool | None) -> None:
    (card,) = nvidia_cards.cards_of_nvml({"devices": [{"index": 0, "uuid": RTX, "name": "card", "slowdowns": bits}]})
    assert card.throttled is throttled


def test_nvidia_smi_says_it_in_hexadecimal() -> None:
    card = nvidia_cards.Card(0, RTX, "card")
    for output, throttled in ((f"{RTX}, 0x0000000000000020\n", True), (f"{RTX}, 0x0000000000000004\n", False)):
        assert nvidia_cards.with_slowdowns((card,), output)[0].throttled is throttled
    assert nvidia_cards.with_slowdowns((card,), f"{RTX}, [N/A]\n")[0].throttled is None


@pytest.mark.parametrize("group", ["event", "throttle"])
def test_nvidia_xml_says_it_under_both_names(group: str) -> None:
    xml = (
        f"<nvidia_smi_log><gpu><uuid>{RTX}</uuid><clocks_{group}_reasons>"
        f"<clocks_{group}_reason_hw_slowdown>Not Active</clocks_{group}_reason_hw_slowdown>"
        f"<clocks_{group}_reason_hw_thermal_slowdown>Active</clocks_{group}_reason_hw_thermal_slowdown>"
        f"</clocks_{group}_reasons></gpu></nvidia_smi_log>"
    )
    assert nvidia_cards.cards_of_xml(xml)[0].throttled is True
    assert nvidia_cards.cards_of_xml(xml.replace(">Active<", ">Not Active<"))[0].throttled is False


@pytest.mark.parametrize(("word", "throttled"), [("THROTTLED", True), ("UNTHROTTLED", False), ("N/A", None)])
def test_amd_says_it_in_a_word(word: str, throttled: bool | None) -> None:
    (card,) = amd.cards_of_amd_smi([{"gpu": 0}], [{"gpu": 0, "power": {"throttle_status": word}}])
    assert card.throttled is throttled


def test_a_mac_says_it_only_with_a_limit() -> None:
    assert apple.speed_lowered("\tCPU_Scheduler_Limit \t= 100\n\tCPU_Speed_Limit \t= 62\n") is True
    assert apple.speed_lowered("\tCPU_Speed_Limit \t= 100\n") is False
    assert apple.speed_lowered("Note: No thermal warning level has been recorded\n") is None


def test_linux_counts_it_per_core_where_the_processor_does(tmp_path: Path) -> None:
    assert cpu_throttle_count(tmp_path) is None
    for core, count in ((0, 3), (1, 17)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(f"{count}\n")
    assert cpu_throttle_count(tmp_path) == 17


def test_a_device_that_does_not_tell_is_written_as_before() -> None:
    device = AcceleratorInfo(
        id=DeviceId(RTX),
        index=0,
        vendor=DeviceVendor.NVIDIA,
        name="card",
        accelerator=Accelerator.CUDA,
        memory_total_bytes=1,
        memory_used_bytes=0,
        unified_memory=False,
        utilization_pct=None,
        temperature_c=None,
        power_watts=None,
        power_limit_watts=None,
        driver=None,
    )
    value = to_json(device)
    assert isinstance(value, dict) and "throttled" not in value
    assert from_json(AcceleratorInfo, value) == device
