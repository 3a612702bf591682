"""What the compute tests share: a real store, the real process launcher, and an engine that does as it is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tasc_compute.clock import SystemClock
from tasc_compute.contracts import (
    Accelerator,
    EngineId,
    EngineRuntimeKind,
    HostArch,
    HostPlatform,
    HostProfile,
    LaunchRequest,
    ServingOptions,
)
from tasc_compute.instances import InstanceStore
from tasc_compute.launchers.process import ProcessLauncher
from tasc_compute.launchers.proctable import LinuxProcessTable
from tasc_compute.lifecycle import Compute
from tasc_compute.reservations import LaunchOrder

FAKE_ENGINE = Path(__file__).parents[1] / "support" / "fake_engine.py"


@pytest.fixture
def host() -> HostProfile:
    return HostProfile("self", HostPlatform.LINUX, HostArch.X64, Accelerator.CPU, False, False, False, False, 0)


@pytest.fixture
def fake_binary(tmp_path: Path) -> Path:
    path = tmp_path / "fake-engine"
    path.write_text(f"#!{sys.executable} -IS\n" + FAKE_ENGINE.read_text())
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return find


@pytest.fixture
def compute(tmp_path: Path) -> Iterator[Compute]:
    clock = SystemClock()
    store = InstanceStore(tmp_path / "instances", clock)
    table = LinuxProcessTable()
    launcher = ProcessLauncher(clock, table, os.environ, store.members)
    logs = tmp_path / "logs"
    logs.mkdir()
    yield Compute(store, {EngineRuntimeKind.PROCESS: launcher}, clock, logs, listener=table.listener)
    # a failed test must leave no engine behind: only what carries a nonce of this very store is ended
    for record in store.all()[0]:
        found = launcher.find(record.nonce)
        if found is not None:
            os.killpg(found.pid, signal.SIGKILL)
            launcher.liveness(record)


class MakeOrder(Protocol):
    """Builds an order for the fake engine; keyword arguments change its behaviour."""

    def __call__(
        self, name: str = ..., *, engine: EngineId = ..., port: int | None = ..., **told: object
    ) -> LaunchOrder: ...


@pytest.fixture
def make_order(host: HostProfile, fake_binary: Path, free_port: Callable[[], int]) -> MakeOrder:
    def make(
        name: str = "one", *, engine: EngineId = EngineId.LLAMACPP, port: int | None = None, **told: object
    ) -> LaunchOrder:
        request = LaunchRequest(
            engine=engine,
            host=host,
            runtime=EngineRuntimeKind.PROCESS,
            devices=(),
            port=port or free_port(),
            model_path="/models/tiny.gguf",
            served_model_name="tiny",
            options=ServingOptions(max_context_length=2048, max_concurrent_requests=2),
            extra_args=(),
            env={"FAKE_ENGINE": json.dumps(told)},
            docker_image=None,
            binary=str(fake_binary),
        )
        return LaunchOrder(name=name, recipe_id=name, request=request, ready_deadline_ms=20_000)

    return make
