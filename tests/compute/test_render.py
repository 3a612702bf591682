"""Every failure as text, exit code and event."""

from __future__ import annotations

import pytest

from tasc_compute.contracts import (
    AlreadyRunning,
    Cancelled,
    EngineId,
    ExitedEarly,
    InstallFailed,
    NoCapacity,
    SpawnFailed,
    UnhealthyTimeout,
    Unsupported,
)
from tasc_compute.errors import LaunchFailed
from tasc_compute.render import render


@pytest.mark.parametrize(
    ("failed", "text", "code", "event"),
    [
        (
            LaunchFailed(Unsupported(EngineId.MLX, "no Mac; use llamacpp")),
            "one: mlx cannot be launched here: no Mac; use llamacpp",
            3,
            {"kind": "unsupported", "name": "one", "engine": "mlx"},
        ),
        (
            LaunchFailed(AlreadyRunning("one")),
            "one is already running: tasc engines stop one",
            3,
            {"kind": "already-running", "name": "one"},
        ),
        (
            LaunchFailed(NoCapacity(2, 1), detail="devices are held by b -> tasc engines stop b"),
            "one: needs 2 device(s), 1 free: devices are held by b -> tasc engines stop b",
            3,
            {"kind": "no-capacity", "name": "one", "need": 2, "free": 1},
        ),
        (
            LaunchFailed(InstallFailed(EngineId.VLLM, "vllm: not found -> install it")),
            "one: vllm is not installed: vllm: not found -> install it",
            1,
            {"kind": "install-failed", "name": "one", "engine": "vllm"},
        ),
        (
            LaunchFailed(SpawnFailed("port 1 is busy -> change it")),
            "one: could not be started: port 1 is busy -> change it",
            1,
            {"kind": "spawn-failed", "name": "one"},
        ),
        (
            LaunchFailed(ExitedEarly(1, None, "a user's words")),
            "one: ended before it was ready, exit code 1 -> tasc engines logs one",
            1,
            {"kind": "exited-early", "name": "one", "exitCode": 1, "signal": None},
        ),
        (
            LaunchFailed(ExitedEarly(None, "SIGKILL", ""), detail="out of memory"),
            "one: ended before it was ready, ended by SIGKILL (out of memory) -> tasc engines logs one",
            1,
            {"kind": "exited-early", "name": "one", "exitCode": None, "signal": "SIGKILL"},
        ),
        (
            LaunchFailed(ExitedEarly(None, None, "")),
            "one: ended before it was ready, exit code unknown -> tasc engines logs one",
            1,
            {"kind": "exited-early", "name": "one", "exitCode": None, "signal": None},
        ),
        (
            LaunchFailed(UnhealthyTimeout(61_000, "a user's words")),
            "one: lives but was not ready after 61 s -> tasc engines logs one; a larger ready_deadline_s",
            1,
            {"kind": "unhealthy-timeout", "name": "one", "waitedMs": 61_000},
        ),
        (
            LaunchFailed(Cancelled()),
            "one: launch cancelled; launch it again when you like",
            130,
            {"kind": "cancelled", "name": "one"},
        ),
    ],
)
def test_a_failure_is_rendered_once_for_all(failed, text, code, event):
    rendered = render(failed, "one")
    assert (rendered.text, rendered.exit_code, rendered.event) == (text, code, event)


def test_a_log_tail_is_for_the_terminal_and_never_in_text_or_event():
    rendered = render(LaunchFailed(ExitedEarly(1, None, "a user's words")), "one")
    assert rendered.log_tail == "a user's words"
    assert "words" not in rendered.text + str(rendered.event)


def test_a_kept_lease_is_said():
    rendered = render(LaunchFailed(Cancelled(), record_kept=True), "one")
    assert rendered.text.endswith("its lease is kept -> tasc engines stop one")
    assert rendered.event["recordKept"] is True
