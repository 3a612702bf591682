"""Many launchers at once, and launchers that are killed at any step.

The oracle is not our bookkeeping: each fake engine takes a kernel lock per device that it sees, and says so if another
one has it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any  # JSON

import pytest

from tasc_compute.contracts import InstanceState
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.launchers.proctable import LinuxProcessTable
from tasc_compute.lifecycle import Observation, stop, supervise
from tasc_compute.local import local_compute
from tests.support.processes import wait_until

ROOT = Path(__file__).parents[2]
DEVICES = ["GPU-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21", "GPU-35fa9bdb-0b7f-5f0e-9f5a-3b8f1c7a9e22"]
LAST_STEP = 60
"""More steps than one launch takes, so that the last runs are not killed at all."""


@pytest.fixture
def told(tmp_path, fake_binary, free_port) -> Iterator[dict[str, Any]]:
    locks = tmp_path / "locks"
    locks.mkdir()
    content = {
        "home": str(tmp_path / "home"),
        "binary": str(fake_binary),
        "locks": str(locks),
        "devices": DEVICES,
        "port": free_port(),
        "threads": 1,
        "process": 0,
        "die_at": 0,
        "keep": False,
    }
    yield content
    for pid in engines(content):  # only after a failure: each is a program of this test's own folder
        os.kill(pid, signal.SIGKILL)


def child(told: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.launcher_child", json.dumps(told)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def engines(told: dict[str, Any]) -> list[int]:
    found = []
    for row in LinuxProcessTable().rows():
        try:
            command = Path(f"/proc/{row.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if told["binary"].encode() in command and not row.dead:
            found.append(row.pid)
    return found


def race(told: dict[str, Any], processes: int, threads: int) -> Counter[str]:
    children = [child({**told, "process": index, "threads": threads}) for index in range(processes)]
    outcomes: Counter[str] = Counter()
    for process in children:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        outcomes.update(json.loads(line)["outcome"] for line in out.splitlines())
    return outcomes


def check_race(told: dict[str, Any], outcomes: Counter[str], launchers: int) -> None:
    assert sum(outcomes.values()) == launchers
    assert set(outcomes) <= {"launched", "no-capacity"}
    assert outcomes["launched"] >= 2
    assert not (Path(told["locks"]) / "violations").exists()
    assert engines(told) == []
    assert local_compute(Path(told["home"])).store.names() == ()


def test_two_hundred_launchers_never_share_one_of_two_devices(told):
    """Lessons 21, 30 and 31: devices and ports are chosen inside the lock."""
    check_race(told, race(told, processes=4, threads=50), 200)


@pytest.mark.crash
def test_launchers_of_forty_processes_never_share_one_of_two_devices(told):
    check_race(told, race(told, processes=40, threads=5), 200)


def die_and_recover(told: dict[str, Any], step: int) -> str:
    """Kill a launcher at a step, then demand that nothing is lost and nothing held twice. Says what was found."""
    told = {**told, "die_at": step, "devices": DEVICES[:1]}
    process = child(told)
    process.communicate(timeout=120)
    compute = local_compute(Path(told["home"]))
    states: Mapping[str, Observation] = {}

    def settled() -> bool:
        nonlocal states
        states = supervise(compute, states).observations
        return not any(item.state in (InstanceState.RESERVING, InstanceState.STARTING) for item in states.values())

    wait_until(settled)  # what a dead launcher left behind its gate ends by itself
    second = child({**told, "die_at": 0, "process": 1, "keep": False})
    out, _ = second.communicate(timeout=120)
    outcome = json.loads(out)["outcome"]
    if states:
        assert {name: item.state for name, item in states.items()} == {"p0-0": InstanceState.READY}
        assert outcome == "no-capacity"
        assert len(engines(told)) == 1
        assert stop("p0-0", compute) is StopOutcome.STOPPED
    else:
        assert outcome == "launched"
    assert engines(told) == []
    assert compute.store.names() == ()
    assert not (Path(told["locks"]) / "violations").exists()
    left = {path.name for path in compute.store.folder.iterdir()}
    assert left <= {"placement.lock", *(f"start-{device}.lock" for device in DEVICES)}
    return "running" if states else "free"


@pytest.mark.parametrize("step", [17, 18, 23, 24, 28, 29, 41, 10_000])
def test_a_launcher_killed_at_a_step_leaks_no_lease_and_doubles_no_device(told, step):
    """Lessons 4, 9, 12 and 34: what a dead launcher started is found again, what it did not start is not held."""
    assert die_and_recover({**told, "keep": True}, step) in ("running", "free")


@pytest.mark.crash
def test_a_launcher_killed_at_every_step_leaks_no_lease_and_doubles_no_device(told):
    found = [die_and_recover({**told, "keep": True}, step) for step in range(1, LAST_STEP)]
    assert found[0] == "free"
    assert found[-1] == "running"


@pytest.mark.crash
def test_a_process_killed_at_every_step_of_a_stop_leaks_nothing(told):
    found = [die_and_recover({**told, "keep": False}, step) for step in range(48, 80)]
    assert found[0] == "running"
    assert found[-1] == "free"
