"""A launch failure for people, shells and event logs. The only module that renders one.

| kind | exit code |
|---|---|
| cancelled | 130 |
| unsupported, already-running, no-capacity | 3 |
| install-failed, spawn-failed, exited-early, unhealthy-timeout | 1 |

The event names the kind and counts only: log tails may hold what users wrote, and never enter an event or a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tasc_compute.codec import Json
from tasc_compute.contracts import (
    AlreadyRunning,
    Cancelled,
    ExitedEarly,
    InstallFailed,
    LaunchFailure,
    NoCapacity,
    SpawnFailed,
    UnhealthyTimeout,
    Unsupported,
)
from tasc_compute.errors import LaunchFailed

REFUSED: Final = 3
FAILED: Final = 1
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Rendered:
    """One failure in three forms.

    Args:
        text: sentences for a terminal, ending with the way out.
        exit_code: for the shell.
        event: content-free fields for an event log.
        log_tail: the engine's last lines, for a terminal only.
    """

    text: str
    exit_code: int
    event: dict[str, Json]
    log_tail: str = ""


def render(failed: LaunchFailed, name: str) -> Rendered:
    """Render a failed launch of the instance ``name``."""
    rendered = _render(failed.failure, name, failed.detail)
    if failed.record_kept:
        text = f"{rendered.text}\nIts end could not be proved, so its lease is kept -> tasc engines stop {name}"
        return Rendered(text, rendered.exit_code, {**rendered.event, "recordKept": True}, rendered.log_tail)
    return rendered


def _render(failure: LaunchFailure, name: str, detail: str | None) -> Rendered:
    event: dict[str, Json] = {"kind": failure.kind, "name": name}
    logs = f"tasc engines logs {name}"
    match failure:
        case Unsupported(engine=engine, reason=reason):
            return Rendered(f"{name}: {engine} cannot be launched here: {reason}", REFUSED, {**event, "engine": engine})
        case AlreadyRunning(name=holder):
            return Rendered(f"{holder} is already running: {detail or f'tasc engines stop {holder}'}", REFUSED, event)
        case NoCapacity(need=need, free=free):
            text = f"{name}: needs {need} device(s), {free} free: {detail or 'tasc engines list'}"
            return Rendered(text, REFUSED, {**event, "need": need, "free": free})
        case InstallFailed(engine=engine, detail=what):
            return Rendered(f"{name}: {engine} is not installed: {what}", FAILED, {**event, "engine": engine})
        case SpawnFailed(detail=what):
            return Rendered(f"{name}: could not be started: {what}", FAILED, event)
        case ExitedEarly(exit_code=code, signal=signal, log_tail=tail):
            how = f"ended by {signal}" if signal else f"exit code {'unknown' if code is None else code}"
            reason = f" ({detail})" if detail else ""
            text = f"{name}: ended before it was ready, {how}{reason} -> {logs}"
            return Rendered(text, FAILED, {**event, "exitCode": code, "signal": signal}, tail)
        case UnhealthyTimeout(waited_ms=waited, log_tail=tail):
            text = f"{name}: lives but was not ready after {waited / 1000:.0f} s -> {logs}; a larger ready_deadline_s"
            return Rendered(text, FAILED, {**event, "waitedMs": waited}, tail)
        case Cancelled():
            return Rendered(f"{name}: launch cancelled; launch it again when you like", INTERRUPTED, event)
