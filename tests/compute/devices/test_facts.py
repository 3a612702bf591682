"""Foreign use of a device: who is foreign, and what a launch is told of it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_compute.clock import SystemClock
from tasc_compute.contracts import DockerReference, EngineId, EngineRuntimeKind, InstanceRecord, ProcessReference
from tasc_compute.devices.facts import ProbedDeviceFacts, process_name
from tasc_compute.devices.finding import DeviceUse
from tasc_compute.instances import InstanceStore
from tasc_compute.reservations import ForeignUse

GIB = 1024**3


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own that ends when the test does."""
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def store(tmp_path: Path) -> InstanceStore:
    return InstanceStore(tmp_path / "store", SystemClock())


def record(pid: int) -> InstanceRecord:
    return InstanceRecord(
        "one",
        "self",
        EngineId.VLLM,
        "one",
        EngineRuntimeKind.PROCESS,
        ProcessReference(pid, "boot:1"),
        8000,
        ("GPU-1",),
        "n" * 32,
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:10:00.000Z",
    )


def test_a_process_of_another_is_named_with_its_memory(store: InstanceStore, sleeper: subprocess.Popen[bytes]) -> None:
    facts = ProbedDeviceFacts(store, lambda: [DeviceUse("GPU-1", sleeper.pid, 3 * GIB), DeviceUse("GPU-2", 1, None)])
    assert list(facts.foreign_uses(["GPU-1"])) == [ForeignUse("GPU-1", sleeper.pid, process_name(sleeper.pid), 3072)]
    assert process_name(sleeper.pid).startswith("python")


def test_unknown_memory_stays_unknown_and_an_unseen_process_has_no_name(store: InstanceStore) -> None:
    gone = 2**22 + 1
    facts = ProbedDeviceFacts(store, lambda: [DeviceUse("GPU-1", gone, None), DeviceUse("GPU-1", gone, None)])
    assert list(facts.foreign_uses(["GPU-1"])) == [ForeignUse("GPU-1", gone, "unknown", None)]


def test_our_own_engine_is_not_foreign(store: InstanceStore, sleeper: subprocess.Popen[bytes]) -> None:
    """Two engines may share a device whose memory is the host's; the first is no reason to refuse the second."""
    with store.locked():
        store.write(record(sleeper.pid))
    facts = ProbedDeviceFacts(
        store, lambda: [DeviceUse("GPU-1", sleeper.pid, GIB), DeviceUse("GPU-1", os.getppid(), GIB)]
    )
    assert [use.pid for use in facts.foreign_uses(["GPU-1"])] == [os.getppid()]


def test_a_process_in_our_container_is_not_foreign(store: InstanceStore, tmp_path: Path) -> None:
    container = "4f" * 32
    with store.locked():
        store.write(dataclasses.replace(record(1), runtime=EngineRuntimeKind.DOCKER, ref=DockerReference(container)))
    gone = 2**22 + 1
    (tmp_path / str(gone)).mkdir()
    (tmp_path / str(gone) / "cgroup").write_text(f"0::/system.slice/docker-{container}.scope\n")
    uses = [DeviceUse("GPU-1", gone, GIB), DeviceUse("GPU-1", gone + 1, GIB)]
    assert [use.pid for use in ProbedDeviceFacts(store, lambda: uses, tmp_path).foreign_uses(["GPU-1"])] == [gone + 1]


def test_this_hosts_probes_can_be_asked(store: InstanceStore) -> None:
    assert list(ProbedDeviceFacts(store).foreign_uses(["no-such-device"])) == []
