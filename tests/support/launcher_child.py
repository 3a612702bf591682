"""A process that launches fake engines, for the race and crash tests.

``python -m tests.support.launcher_child '<json>'`` with:

| key | meaning |
|---|---|
| ``home`` | state folder |
| ``binary`` | the fake engine |
| ``locks`` | folder of the engines' device locks |
| ``threads`` | how many launchers at once in this process |
| ``devices`` | pool; each launcher wants one of them |
| ``die_at`` | kill this process at this step of the launch, counted from 1; 0 for never |
| ``keep`` | leave the engine running |

Prints one JSON line per launcher: its outcome.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any  # JSON

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
from tasc_compute.errors import LaunchFailed
from tasc_compute.lifecycle import launch, stop
from tasc_compute.local import local_compute
from tasc_compute.reservations import LaunchOrder


def order(told: dict[str, Any], name: str) -> LaunchOrder:
    """An order for one device of the pool."""
    host = HostProfile("self", HostPlatform.LINUX, HostArch.X64, Accelerator.CUDA, False, False, False, False, 2)
    request = LaunchRequest(
        engine=EngineId.LLAMACPP,
        host=host,
        runtime=EngineRuntimeKind.PROCESS,
        devices=(),
        port=told["port"],
        model_path="/models/tiny.gguf",
        served_model_name="tiny",
        options=ServingOptions(),
        extra_args=(),
        env={"FAKE_ENGINE": json.dumps({"device_locks": told["locks"]})},
        docker_image=None,
        binary=told["binary"],
    )
    return LaunchOrder(
        name=name,
        recipe_id=name,
        request=request,
        device_count=1,
        device_pool=tuple(told["devices"]),
        exact_port=False,
        ready_deadline_ms=60_000,
    )


STEPS = frozenset(
    {"open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock", "subprocess.Popen", "socket.bind", "socket.connect"}
    | {"os.listdir", "pathlib.Path.glob"}
)
"""Audit events that are steps of a launch."""


def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an audit event touches the launch's own files, processes or ports."""
    about = str(arguments[0]) if arguments else ""
    return event in STEPS and not about.startswith("/proc/") and not about.endswith((".pyc", ".py"))


def die_at(count: int) -> Callable[[], None]:
    """Arrange this process's death at the given step after the returned function was called."""
    seen = 0
    armed = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if armed and is_step(event, arguments):
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)

    def arm() -> None:
        nonlocal armed
        armed = True

    if count:
        sys.addaudithook(hook)
    return arm


def main() -> None:
    told = json.loads(sys.argv[1])
    arm = die_at(told["die_at"])
    results: list[dict[str, Any]] = []

    def one(index: int) -> None:
        name = f"p{told['process']}-{index}"
        # a store of its own per launcher: locks must hold between them as between processes
        compute = local_compute(Path(told["home"]))
        try:
            record = launch(order(told, name), compute)
        except LaunchFailed as failed:
            results.append({"name": name, "outcome": failed.failure.kind, "kept": failed.record_kept})
            return
        if not told["keep"]:
            stop(name, compute)
        results.append({"name": name, "outcome": "launched", "devices": list(record.devices)})

    threads = [threading.Thread(target=one, args=(index,)) for index in range(told["threads"])]
    arm()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for result in results:
        sys.stdout.write(json.dumps(result) + "\n")


main()
