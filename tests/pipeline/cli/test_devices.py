"""``tasc devices``: what this host has, and "unsupported" for what it cannot tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasc_compute.codec import from_json
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceSnapshot, DeviceVendor, TelemetryField
from tasc_compute.devices.snapshot import Survey, survey
from tasc_pipeline.cli import devices

GIB = 1024**3
UUID = "GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21"


def run(*words: str) -> tuple[str, str]:
    app = typer.Typer()
    devices.register(app)
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["devices", *words])
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_the_json_is_the_contracts_snapshot() -> None:
    snapshot = from_json(DeviceSnapshot, json.loads(run("--json")[0]))
    assert snapshot.accelerators and TelemetryField.HOST_MEMORY in snapshot.capabilities


def test_a_host_without_accelerators_says_what_is_unsupported(tmp_path: Path) -> None:
    found = survey(root=tmp_path)
    bare = replace(found.snapshot, accelerators=(), storage=(), thermals=(), capabilities=(TelemetryField.HOST_MEMORY,))
    shown = list(devices.lines(Survey(bare, {}, (), ()), wsl=True))
    assert shown[-1] == "unsupported on this host: memory, utilization, temperature, power, storage"
    assert shown[1] == "device memory in all: unsupported; what is shared with the host counts once"
    assert shown[2].endswith("(WSL)")


@pytest.mark.parametrize(
    ("total", "utilization", "expected"),
    [
        (
            24 * GIB,
            0.0,
            ["6.0 GiB", "24.0 GiB", "0 %"],
        ),
        (
            0,
            None,
            ["unsupported", "unsupported", "unsupported"],
        ),
    ],
)
def test_null_is_unsupported_and_zero_is_zero(
    total: int, utilization: float | None, expected: list[str], tmp_path: Path
) -> None:
    gpu = AcceleratorInfo(
        UUID,
        0,
        DeviceVendor.NVIDIA,
        "RTX 4090",
        Accelerator.CUDA,
        total,
        6 * GIB if total else 0,
        False,
        utilization,
        61.0,
        None,
        None,
        "550.54",
    )
    found = survey(root=tmp_path)
    shown = list(devices.lines(replace(found, snapshot=replace(found.snapshot, accelerators=(gpu,))), wsl=False))
    cells = [cell.strip() for cell in shown[1].split("  ") if cell]
    assert cells == [UUID, "RTX 4090", *expected, "61 C", "unsupported", "unsupported", "550.54"]
