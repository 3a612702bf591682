"""Device snapshots of a window: when they are made, what is kept, and that they never hurt a run."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasc_collector.contracts.observations import DeviceSnapshotRecord
from tasc_collector.errors import InputError, SignatureError
from tasc_collector.identity import PayloadKey
from tasc_collector.signing import SigningKey
from tasc_compute.contracts import (
    Accelerator,
    AcceleratorInfo,
    DeviceSnapshot,
    DeviceVendor,
    HostArch,
    HostInfo,
    HostPlatform,
)
from tasc_compute.devices.finding import FaultCategory, ProbeFault
from tasc_compute.devices.snapshot import Survey
from tasc_pipeline.home.lines import AppendedLines
from tasc_pipeline.steps import close, collect, publish
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.sampling import (
    DEVICE_SNAPSHOTS,
    DeviceSampler,
    Phase,
    maxima,
    node_id_of,
    read_device_snapshots,
    sign_snapshot,
)
from tasc_pipeline.warehouse.database import connect
from tests.support.window import World, world

GPU = AcceleratorInfo(
    "GPU-1", 0, DeviceVendor.NVIDIA, "RTX", Accelerator.CUDA, 100, 40, False, 95.0, 61.0, 312.5, None, "550"
)
UNTOLD = replace(
    GPU,
    id="GPU-2",
    memory_total_bytes=0,
    memory_used_bytes=0,
    utilization_pct=0.0,
    temperature_c=None,
    power_watts=None,
)
HOST = HostInfo("cpu", 2, 1000, 900, None, HostPlatform.LINUX, HostArch.X64, "6.1", 12.5)
SNAPSHOT = DeviceSnapshot("2026-01-01T00:00:00.000Z", (GPU, UNTOLD), HOST, (), (), ())
KEY = SigningKey.generate()


def sign(snapshot: DeviceSnapshot, phase: Phase) -> DeviceSnapshotRecord:
    return sign_snapshot(snapshot, phase, window_key="w.r01-00000000", node_id="node-1", key=KEY, key_id="collector")


def looked(*faults: ProbeFault) -> Survey:
    return Survey(SNAPSHOT, {}, (), faults)


def phases(path: Path) -> list[str]:
    return [json.loads(line)["phase"] for line in path.read_bytes().splitlines()]


class Probe:
    """Counts its calls and says when the wanted one came."""

    def __init__(self, wanted: int) -> None:
        self.calls, self._wanted, self.reached = 0, wanted, threading.Event()

    def __call__(self) -> Survey:
        self.calls += 1
        if self.calls == self._wanted:
            self.reached.set()
        return looked()


def test_one_before_some_during_one_after(tmp_path: Path) -> None:
    path, probe = tmp_path / "s.ndjson", Probe(4)
    with DeviceSampler(path, sign, probe=probe, every_s=0.01):
        assert phases(path) == ["before"], "the first is on disk before the block begins"
        assert probe.reached.wait(60)
    found = phases(path)
    assert found[0] == "before" and found[-1] == "after" and set(found[1:-1]) == {"during"} and len(found) >= 5
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_pace_that_no_run_reaches_leaves_two(tmp_path: Path) -> None:
    path = tmp_path / "s.ndjson"
    with DeviceSampler(path, sign, probe=looked, every_s=3600):
        pass
    assert phases(path) == ["before", "after"]


def test_a_resumed_run_appends_after_cutting_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "s.ndjson"
    with DeviceSampler(path, sign, probe=looked, every_s=3600):
        pass
    with path.open("ab") as stream:
        stream.write(b'{"phase": "duri')
    with DeviceSampler(path, sign, probe=looked, every_s=3600):
        pass
    assert phases(path) == ["before", "after", "before", "after"]


def test_a_run_that_sent_nothing_leaves_the_bytes_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "s.ndjson"
    with DeviceSampler(path, sign, probe=looked, every_s=3600):
        pass
    before = path.read_bytes()
    with DeviceSampler(path, sign, probe=looked, every_s=3600) as sampler:
        sampler.forget()
    assert path.read_bytes() == before


def test_one_run_at_a_time_appends_and_a_second_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.ndjson"
    path.write_bytes(b"earlier\ntor")
    with AppendedLines(path) as mine:
        mine.write(b"mine")
        with pytest.raises(BlockingIOError), AppendedLines(path) as other:
            other.forget()
    assert path.read_bytes() == b"earlier\nmine\n"


@pytest.mark.parametrize("error", [RuntimeError("no"), OSError(28, "full"), KeyError("x")])
def test_a_probe_that_fails_is_a_missing_snapshot_and_a_logged_category(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Survey:
        raise error

    path = tmp_path / "s.ndjson"
    with caplog.at_level(logging.WARNING), DeviceSampler(path, sign, probe=broken, every_s=3600):
        pass
    assert path.read_bytes() == b""
    category = "not-written" if isinstance(error, OSError) else type(error).__name__
    assert [record.getMessage() for record in caplog.records] == [f"device probe snapshot: {category}"], (
        "once, not once per snapshot"
    )


def test_a_fault_of_one_probe_is_logged_once_and_the_snapshot_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.ndjson"
    fault = ProbeFault("nvml", FaultCategory.TIMED_OUT)
    with caplog.at_level(logging.WARNING), DeviceSampler(path, sign, probe=lambda: looked(fault), every_s=3600):
        pass
    assert phases(path) == ["before", "after"]
    assert [record.getMessage() for record in caplog.records] == ["device probe nvml: timed-out"]


def test_a_file_that_cannot_be_opened_does_not_stop_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = tmp_path / "target"
    target.write_text("")
    link = tmp_path / "s.ndjson"
    link.symlink_to(target)
    with caplog.at_level(logging.WARNING), DeviceSampler(link, sign, probe=looked, every_s=3600) as sampler:
        sampler.forget()
    assert target.read_text() == ""
    assert [record.getMessage() for record in caplog.records] == ["device probe snapshot: not-opened"]


def test_maxima_are_numbers_of_what_was_told() -> None:
    hotter = replace(SNAPSHOT, accelerators=(replace(GPU, temperature_c=70.0, memory_used_bytes=20), UNTOLD))
    assert maxima([sign(SNAPSHOT, "before"), sign(hotter, "after")]) == {
        "device_utilization_max_pct": 95.0,
        "device_memory_used_max_bytes": 40.0,
        "device_temperature_max_c": 70.0,
        "device_power_max_watts": 312.5,
    }
    assert maxima([sign(replace(SNAPSHOT, accelerators=(UNTOLD,)), "before")]) == {"device_utilization_max_pct": 0.0}
    assert maxima([]) == {}


def test_a_host_is_known_by_a_keyed_id_that_holds_no_name() -> None:
    first, second = PayloadKey("first", "k", bytes(32)), PayloadKey("second", "k", bytes(32))
    assert node_id_of(first, "gpu-host.example") == node_id_of(first, "gpu-host.example")
    assert node_id_of(first, "gpu-host.example") != node_id_of(second, "gpu-host.example")
    assert len(node_id_of(first)) == 21 and "gpu" not in node_id_of(first, "gpu-host.example")


# --- a whole window ---------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, cases=2) as found:
        yield found


@pytest.fixture
def finished(made: World) -> tuple[World, str]:
    key = made.approved_window()
    assert collect.collect(made.home, key, show=lambda _: None).status == "complete"
    return made, key


def test_a_window_has_signed_snapshots_in_its_folder_and_its_table(finished: tuple[World, str]) -> None:
    made, key = finished
    published = publish.publish(made.home, key)
    records = read_device_snapshots(made.home, key, load_approved(made.home, key).ring)
    assert [record.phase for record in records][:: len(records) - 1] == ["before", "after"]
    total = records[0].snapshot["host"]["memoryTotalBytes"]
    session = connect(made.home.root)
    found = session.sql(
        "SELECT phase, value, node_id FROM device_samples WHERE device_id = 'host' AND metric = 'memory_total' "
        "ORDER BY sampled_at"
    ).fetchall()
    assert found == [(record.phase, float(total), record.node_id) for record in records]
    assert published.rows["device_samples"] > 0 and published.device_maxima["device_memory_used_max_bytes"] > 0


def test_running_again_adds_no_snapshot(finished: tuple[World, str]) -> None:
    made, key = finished
    path = made.home.window(key) / DEVICE_SNAPSHOTS
    publish.publish(made.home, key)
    close.close(made.home, key)
    before = path.read_bytes()
    assert collect.collect(made.home, key, show=lambda _: None).sent_calls == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda line: line.replace(b'"phase":"before"', b'"phase":"during"'), SignatureError),
        (lambda line: line.replace(b'"cpuCount":', b'"cpuCores":'), SignatureError),
        (lambda line: b"not json", InputError),
        (lambda line: b"", InputError),
    ],
)
def test_a_changed_snapshot_is_refused(
    change: Callable[[bytes], bytes], error: type[Exception], finished: tuple[World, str]
) -> None:
    made, key = finished
    path = made.home.window(key) / DEVICE_SNAPSHOTS
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(change(first) + b"\n" + rest)
    with pytest.raises(error):
        read_device_snapshots(made.home, key, load_approved(made.home, key).ring)
