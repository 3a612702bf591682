"""The program that asks NVML: what it makes of refusals, and that it stands alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from tasc_compute.devices import nvml_script
from tasc_compute.devices.nvidia import _SCRIPT

UUID = "GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21"


class Refusal(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def refuse(code: int):  # type: ignore[no-untyped-def]
    def call(*_: object) -> None:
        raise Refusal(code)

    return call


def bindings(**changes: object) -> SimpleNamespace:
    """A module like ``pynvml`` with one healthy device."""
    functions: dict[str, object] = {
        "NVMLError": Refusal,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlMemory_v2": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlSystemGetDriverVersion": lambda: b"550.54.15",
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle-{index}",
        "nvmlDeviceGetMigMode": refuse(3),
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=95),
        "nvmlDeviceGetTemperature": lambda *_: 61,
        "nvmlDeviceGetPowerUsage": lambda _: 312450,
        "nvmlDeviceGetPowerManagementLimit": refuse(3),
        "nvmlDeviceGetUUID": lambda _: UUID.encode(),
        "nvmlDeviceGetName": lambda _: "NVIDIA GeForce RTX 4090",
        "nvmlDeviceGetMemoryInfo": lambda _, version=None: SimpleNamespace(total=100, used=10 if version else 40),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=7, usedGpuMemory=None)],
    }
    return SimpleNamespace(**(functions | changes))


def test_a_device_is_reported_with_null_where_nvml_refuses() -> None:
    assert nvml_script.report(bindings()) == {
        "driver": "550.54.15",
        "devices": [
            {
                "uuid": UUID,
                "name": "NVIDIA GeForce RTX 4090",
                "totalBytes": 100,
                "usedBytes": 10,
                "memoryAbsent": False,
                "processes": [{"pid": 7, "usedBytes": None}],
                "index": 0,
                "utilization": 95,
                "temperature": 61,
                "milliwatts": 312450,
                "limitMilliwatts": None,
                "slowdowns": None,
                "mig": False,
                "slices": [],
            }
        ],
    }


def test_version_one_of_memory_is_taken_where_version_two_is_not_known() -> None:
    def memory(_: object, *version: object) -> SimpleNamespace:
        if version:
            raise Refusal(25)
        return SimpleNamespace(total=100, used=40)

    (device,) = nvml_script.report(bindings(nvmlDeviceGetMemoryInfo=memory))["devices"]
    assert (device["totalBytes"], device["usedBytes"], device["memoryAbsent"]) == (100, 40, False)


def test_a_device_without_memory_of_its_own_is_told_apart_from_a_failed_reading() -> None:
    (absent,) = nvml_script.report(bindings(nvmlDeviceGetMemoryInfo=refuse(3)))["devices"]
    (failed,) = nvml_script.report(bindings(nvmlDeviceGetMemoryInfo=refuse(999)))["devices"]
    assert (absent["memoryAbsent"], failed["memoryAbsent"], failed["totalBytes"]) == (True, False, None)


def test_slices_are_reported_with_their_own_uuid() -> None:
    names = {"handle-0": UUID, "slice-0": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"}

    def handle(_: object, place: int) -> str:
        if place:
            raise Refusal(6)
        return "slice-0"

    changed = bindings(
        nvmlDeviceGetMigMode=lambda _: (1, 1),
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=handle,
        nvmlDeviceGetUUID=lambda handle: names[handle],
    )
    (device,) = nvml_script.report(changed)["devices"]
    assert device["mig"] is True
    assert [part["uuid"] for part in device["slices"]] == ["MIG-c7384736-a75d-5afc-978f-d2f1294409fd"]


def test_a_lost_device_and_a_missing_library_are_codes() -> None:
    assert nvml_script.report(bindings(nvmlDeviceGetHandleByIndex=refuse(15)))["devices"] == [{"index": 0, "error": 15}]
    assert nvml_script.report(bindings(nvmlInit=refuse(12))) == {"error": 12}


def test_the_script_runs_apart_from_this_project_and_answers_json() -> None:
    done = subprocess.run([sys.executable, "-I", str(_SCRIPT)], capture_output=True, check=True, cwd="/", timeout=120)
    assert set(json.loads(done.stdout)) in ({"error"}, {"driver", "devices"})
    assert "tasc" not in Path(_SCRIPT).read_text(encoding="utf-8").split('"""', 2)[2]


def test_why_clocks_are_low_is_asked_under_both_of_its_names() -> None:
    new = bindings(nvmlDeviceGetCurrentClocksEventReasons=lambda _: 0x24)
    old = bindings(nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x40)
    assert [nvml_script.report(module)["devices"][0]["slowdowns"] for module in (new, old)] == [0x24, 0x40]
