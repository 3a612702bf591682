"""A machine that can die at any call, a server that counts, and the judgement over both.

``trial`` runs a collector in a process that dies or meets an error at the n-th call, loses power or only the process,
starts it again, and judges by what the *server* counted and what the collector had been told was durable.
A collector is any coroutine ``run(process, executions)`` that sends through ``process.send`` and writes through
``process.fs``; the toy of this folder and the project's runner both fit.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tasc_collector.errors import InputError, JournalError
from tasc_collector.journal import JournalBinding, JournalRecord, RecordKind, scan
from tests.support.memory_disk import FILE_CALLS, MemoryDisk, MemoryFileSystem

FOLDER = Path("/runs/window-1")
BINDING = JournalBinding(
    "study-1", "sha256:" + "a" * 64, "sha256:" + "b" * 64, "w.r1-00000000", 0, "sha256:" + "c" * 64
)
KEY = bytes(range(32))
NET_CALLS = frozenset({"net-connect", "net-send", "net-receive"})


class Killed(BaseException):
    """The process is dead: nothing catches this, and every later call of the process raises it again."""


@dataclass(frozen=True)
class Fault:
    """What happens at the ``at``-th of the named calls of a process: death, an errno, or a short write."""

    at: int
    action: Literal["kill", "short"] | int
    calls: frozenset[str] = FILE_CALLS | NET_CALLS


@dataclass
class Machine:
    """What outlives a process: the disk, the server's own count, and what the collector was told is durable."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    sent: Counter[str] = field(default_factory=Counter)
    acknowledged: set[str] = field(default_factory=set)
    sent_after_failure: int = 0


class Process:
    """One run of the collector on a machine."""

    def __init__(self, machine: Machine, fault: Fault | None = None) -> None:
        self.machine, self._fault = machine, fault
        self.calls = 0
        self.dead = self.struck = False
        self._lock = threading.Lock()
        self.fs = MemoryFileSystem(machine.disk, self.step)
        self.folder = FOLDER

    def step(self, name: str) -> Literal["short"] | None:
        """Count one call; die or fail where the fault says so."""
        with self._lock:
            if self.dead:
                raise Killed
            fault = self._fault
            if fault is None or name in fault.calls:
                self.calls += 1
            if fault is None or self.struck or self.calls < fault.at:
                return None
            self.struck = True
            if fault.action == "kill":
                self.dead = True
                raise Killed
            if fault.action == "short":
                return "short"
            raise OSError(fault.action, "injected")

    async def connect(self, execution: str) -> None:
        """Open the connection of one call."""
        self.step("net-connect")
        await asyncio.sleep(0)

    async def send(self, execution: str, *, journal_failed: bool) -> None:
        """One request reaches the server, which counts it; then the answer comes."""
        self.step("net-send")
        self.machine.sent[execution] += 1
        self.machine.sent_after_failure += journal_failed
        await asyncio.sleep(0)
        self.step("net-receive")

    async def acknowledge(self, execution: str) -> None:
        """The collector was told that this accepted record is durable."""
        if not self.dead:
            self.machine.acknowledged.add(execution)


Collector = Callable[[Process, int], Awaitable[None]]


@dataclass(frozen=True)
class JournalOf:
    """Which journal a collector writes, and how its records say that a call may have been sent."""

    binding: JournalBinding = BINDING
    key: bytes = KEY
    is_unknown: Callable[[JournalRecord], bool] = lambda record: record.kind is RecordKind.SETTLEMENT


TOY_JOURNAL = JournalOf()


@dataclass(frozen=True)
class Verdict:
    """What one trial showed."""

    calls: int
    struck: bool
    duplicates: int
    lost: int
    stuck: bool
    changed_by_second_resume: bool
    sent_after_failure: int
    sent_unknown: int

    @property
    def clean(self) -> bool:
        return not (
            self.duplicates or self.lost or self.stuck or self.changed_by_second_resume or self.sent_after_failure
        )


def run_once(process: Process, collect: Collector, executions: int) -> bool:
    """Run the collector to its end or its death; True if it ended by itself without an error."""
    try:
        asyncio.run(collect(process, executions))  # type: ignore[arg-type]  # a coroutine function in every use
    except (Killed, JournalError, InputError):
        return False
    except BaseExceptionGroup as group:
        if group.subgroup(lambda error: not isinstance(error, (Killed, JournalError, BaseExceptionGroup))):
            raise
        return False
    finally:
        process.machine.disk.end_process()
    return True


def trial(
    collect: Collector,
    *,
    executions: int,
    fault: Fault | None,
    power_loss: bool,
    rng: random.Random,
    wrap: Callable[[Process], None] = lambda _: None,
    journal: JournalOf = TOY_JOURNAL,
) -> Verdict:
    """One crash, then recovery, judged. See the module."""
    machine = Machine()
    first = Process(machine, fault)
    wrap(first)
    run_once(first, collect, executions)
    if power_loss:
        machine.disk.lose_power(rng)
    survived = {record.trace_id for record in _journal(machine, journal) if record.kind is RecordKind.ACCEPTED}
    lost = len(machine.acknowledged - survived)
    finished = _resume(machine, collect, executions, wrap)
    before = _journal(machine, journal)
    sent_before = sum(machine.sent.values())
    second = _resume(machine, collect, executions, wrap)
    after = _journal(machine, journal)
    kinds = Counter(record.kind for record in after)
    accepted = {record.trace_id for record in after if record.kind is RecordKind.ACCEPTED}
    return Verdict(
        calls=first.calls,
        struck=first.struck,
        duplicates=sum(count - 1 for count in machine.sent.values() if count > 1),
        lost=lost + len(machine.acknowledged - accepted),
        stuck=not finished or kinds[RecordKind.COMPLETE] != executions,
        changed_by_second_resume=not second or before != after or sum(machine.sent.values()) != sent_before,
        sent_after_failure=machine.sent_after_failure,
        sent_unknown=sum(journal.is_unknown(record) for record in after),
    )


def _resume(machine: Machine, collect: Collector, executions: int, wrap: Callable[[Process], None]) -> bool:
    process = Process(machine)
    wrap(process)
    return run_once(process, collect, executions)


def _journal(machine: Machine, journal: JournalOf) -> list[JournalRecord]:
    try:
        return list(scan(FOLDER, journal.binding, journal.key, fs=MemoryFileSystem(machine.disk)))
    except (JournalError, InputError):
        return []
