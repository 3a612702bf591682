"""What every launcher promises.

Order of a start: the launcher makes something inert, tells the caller its reference (who writes it into the record),
and only then lets it run. A crash in between leaves nothing running, or something that ``find`` knows by its nonce.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tasc_compute.contracts import HandleReference, InstanceRecord, LaunchPlan
from tasc_compute.errors import ComputeError
from tasc_compute.state import Liveness
from tasc_compute.visibility import ContainerDevices


class StopOutcome(StrEnum):
    """How a stop ended. Only ``STOPPED`` and ``ABSENT`` prove that the devices are free."""

    STOPPED = "stopped"
    ABSENT = "absent"
    NOT_PROVED = "not-proved"
    """Something lives at the reference that we cannot prove to be ours: nothing was signalled, the lease is kept."""
    SURVIVED = "survived"
    """A process outlived SIGKILL (a driver holds it): the lease is kept."""
    UNREACHABLE = "unreachable"
    """The docker daemon or the other node did not answer, or this installation lacks what asks it (the extra docker): the
    lease is kept."""

    @property
    def proved(self) -> bool:
        """Whether nothing of the instance lives any more."""
        return self in (StopOutcome.STOPPED, StopOutcome.ABSENT)


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How an instance ended, as far as anyone can know.

    Args:
        exit_code: exit code, or ``None`` if it was a signal or only a dead parent could know.
        signal: name of the signal, such as ``SIGKILL``.
        out_of_memory: the container's own report of an out-of-memory kill.
    """

    exit_code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Everything a launcher needs to start one instance.

    Args:
        name: instance name.
        nonce: the record's nonce; it marks the process or container.
        plan: what to run.
        devices: container device options.
        log_path: file that takes standard output and error of a process.
    """

    name: str
    nonce: str
    plan: LaunchPlan
    devices: ContainerDevices
    log_path: Path


class InstallError(ComputeError):
    """The executable is missing or the image could not be pulled."""


class SpawnError(ComputeError):
    """The process or container could not be started; nothing of it is left."""


class Launcher(Protocol):
    """One way to run an engine."""

    def install(self, plan: LaunchPlan) -> LaunchPlan:
        """Make sure that the plan can be run, before anything is reserved; returns it with its executable resolved.

        Raises:
            InstallError: the executable is missing, or the image cannot be had.
        """

    def start(self, start: Start, record: Callable[[HandleReference], None]) -> HandleReference:
        """Start an instance; ``record`` is called with its reference before it runs.

        Raises:
            SpawnError: it could not be started; nothing of it is left.
        """

    def liveness(self, record: InstanceRecord) -> Liveness:
        """Whether anything of the instance still lives."""

    def exit_status(self, record: InstanceRecord) -> ExitStatus:
        """How it ended."""

    def owns_port(self, record: InstanceRecord) -> bool | None:
        """Whether the instance itself listens on its port; ``None`` if this cannot be told."""

    def stop(self, record: InstanceRecord, grace_ms: int) -> StopOutcome:
        """End everything of the instance: gently, then by force, and only what was proved to be ours."""

    def find(self, nonce: str) -> HandleReference | None:
        """An instance that was started with a nonce but perhaps not recorded."""

    def log_tail(self, record: InstanceRecord, log_path: Path, limit: int) -> str:
        """The last ``limit`` bytes of the engine's output, from the start of a line."""

    def remember(self, record: InstanceRecord) -> Mapping[int, str]:
        """Identity of all members now (pid to start token), to prove them later when the leader is gone."""


def tail_of_file(path: Path, limit: int) -> str:
    """The last ``limit`` bytes of a text file, cut to the start of a line; empty if there is no file."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - limit))
            data = stream.read(limit)
    except OSError:
        return ""
    if size > limit and (cut := data.find(b"\n")) >= 0:
        data = data[cut + 1 :]
    return data.decode("utf-8", "replace")
