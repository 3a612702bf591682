"""The one runner of vendor tools: read-only commands, bounded in time and output.

Rules:

1. A tool leads a session and a group of its own, has no input, a chosen environment in the C locale, and its standard
   error is dropped: warnings there are for people.
2. It ends by itself within its time and its output bound, or its whole group is killed while its leader is not yet
   reaped: until then the kernel gives the group's number to nobody else. A tool that only reads has nothing to tidy up,
   so there is no polite signal first.
3. Nobody waits for it without bound. What outlives SIGKILL sits in a driver: it is kept aside, reaped when it ends, and
   the same tool is not started again before (gpu-monitoring-tools issue 46, gpud pull request 117).
4. All tools of one runner share a budget of time, so that a survey of many vendors is bounded too.
5. One call, one answer: no tool is left running to stream (amdsmi issue 168).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from tasc_compute.clock import Clock, SystemClock
from tasc_compute.limits import SURVEY_BUDGET_MS, TOOL_MAX_BYTES, TOOL_REAP_MS, TOOL_TIMEOUT_MS

_EXTRA_PATH: Final = ("/usr/lib/wsl/lib", "/opt/rocm/bin", "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
"""Where vendors put their tools, also where PATH does not lead there (WSL, ROCm)."""

_READ_BYTES: Final = 64 * 1024
_WEDGED: Final[dict[str, subprocess.Popen[bytes]]] = {}
_WEDGED_LOCK: Final = threading.Lock()


class ToolStatus(StrEnum):
    """How a tool's run ended."""

    ANSWERED = "answered"
    MISSING = "missing"
    TIMED_OUT = "timed-out"
    TOO_LARGE = "too-large"
    WEDGED = "wedged"
    NOT_STARTED = "not-started"


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool said.

    Args:
        status: how it ended; only an answered one has output worth reading.
        exit_code: its exit code, negative for a signal; ``None`` where it did not end by itself.
        output: its standard output.
    """

    status: ToolStatus
    exit_code: int | None = None
    output: str = ""

    @property
    def answered(self) -> bool:
        """Whether it ended by itself, with whatever exit code."""
        return self.status is ToolStatus.ANSWERED


class Tools(Protocol):
    """What a probe asks of the operating system's commands."""

    def has(self, name: str) -> bool:
        """Whether there is such a command."""

    def run(self, name: str, *arguments: str) -> ToolAnswer:
        """Run a command once."""

    def run_script(self, script: Path) -> ToolAnswer:
        """Run one of our own Python files once, apart from our environment."""


class ToolRunner:
    """Runs commands of this host by the rules above.

    Args:
        environ: where PATH and HOME are taken from; ours where it is ``None``.
        clock: for the budget.
        timeout_ms: longest run of one tool.
        budget_ms: longest time of all together, from now on.
        extra_path: folders that are searched after PATH.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        clock: Clock | None = None,
        timeout_ms: int = TOOL_TIMEOUT_MS,
        budget_ms: int = SURVEY_BUDGET_MS,
        extra_path: tuple[str, ...] = _EXTRA_PATH,
    ) -> None:
        source = os.environ if environ is None else environ
        self._path = os.pathsep.join((source.get("PATH", os.defpath), *extra_path))
        self._env = {"PATH": self._path, "HOME": source.get("HOME", "/"), "LC_ALL": "C", "LANG": "C"}
        self._clock = clock or SystemClock()
        self._timeout_ms = timeout_ms
        self._end_ms = self._clock.monotonic_ms() + budget_ms

    def has(self, name: str) -> bool:
        """Whether there is such a command."""
        return shutil.which(name, path=self._path) is not None

    def run(self, name: str, *arguments: str) -> ToolAnswer:
        """Run a command once."""
        path = shutil.which(name, path=self._path)
        return ToolAnswer(ToolStatus.MISSING) if path is None else self._run(path, (path, *arguments))

    def run_script(self, script: Path) -> ToolAnswer:
        """Run one of our own Python files once, in Python's isolated mode."""
        return self._run(str(script), (sys.executable, "-I", str(script)))

    def _run(self, key: str, command: tuple[str, ...]) -> ToolAnswer:
        if _is_wedged(key):
            return ToolAnswer(ToolStatus.WEDGED)
        end_ms = min(self._end_ms, self._clock.monotonic_ms() + self._timeout_ms)
        if end_ms <= self._clock.monotonic_ms():
            return ToolAnswer(ToolStatus.TIMED_OUT)
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._env,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            return ToolAnswer(ToolStatus.NOT_STARTED)
        status, output = self._read(child, end_ms)
        if status is ToolStatus.ANSWERED:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(TOOL_REAP_MS / 1000)
                return ToolAnswer(status, code, output.decode(errors="replace"))
            status = ToolStatus.TIMED_OUT
        return ToolAnswer(status if _kill(child, key) else ToolStatus.WEDGED)

    def _read(self, child: subprocess.Popen[bytes], end_ms: float) -> tuple[ToolStatus, bytes]:
        assert child.stdout is not None  # noqa: S101  # narrows for the type checker: it was opened as a pipe
        output = bytearray()
        with child.stdout as stream, selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return ToolStatus.TIMED_OUT, b""
                if not selector.select(left_ms / 1000):
                    continue
                chunk = os.read(stream.fileno(), _READ_BYTES)
                if not chunk:
                    return ToolStatus.ANSWERED, bytes(output)
                output += chunk
                if len(output) > TOOL_MAX_BYTES:
                    return ToolStatus.TOO_LARGE, b""


def _kill(child: subprocess.Popen[bytes], key: str) -> bool:
    """Kill an unreaped tool's group; False where it did not end (rule 3)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(TOOL_REAP_MS / 1000)
    except subprocess.TimeoutExpired:
        with _WEDGED_LOCK:
            _WEDGED[key] = child
        return False
    return True


def _is_wedged(key: str) -> bool:
    with _WEDGED_LOCK:
        child = _WEDGED.get(key)
        if child is not None and child.poll() is not None:
            del _WEDGED[key]
            child = None
        return child is not None
