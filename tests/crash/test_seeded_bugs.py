"""The harness is sharp: each of these bugs, built in on purpose, is caught; the right code is not."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from tasc_collector.journal import JournalRecord, RecordKind, scan, segments
from tests.support.crash_world import BINDING, FOLDER, KEY, Fault, Machine, Process, Verdict, run_once, trial
from tests.support.memory_disk import MemoryFileSystem
from tests.support.real_runner import RealRunner
from tests.support.toy_runner import Bug, ToyRunner

EXECUTIONS = 5
KILL_POINTS = range(1, 70, 3)


def no_fsync(process: Process) -> None:
    process.fs.fdatasync = process.fs.fsync = lambda _: None  # type: ignore[method-assign]  # the bug


def no_folder_fsync(process: Process) -> None:
    process.fs.fsync_folder = lambda _: None  # type: ignore[method-assign]  # the bug


def retry_failed_fsync(process: Process) -> None:
    sync = process.fs.fdatasync

    def retrying(descriptor: int) -> None:
        with suppress(OSError):
            sync(descriptor)
            return
        sync(descriptor)

    process.fs.fdatasync = retrying  # type: ignore[method-assign]  # the bug


def keep_cache(process: Process) -> None:
    process.fs.drop_cache = lambda _: None  # type: ignore[method-assign]  # the bug


def nothing(_: Process) -> None:
    """The right code."""


def dirty(
    runner: ToyRunner, wrap: Callable[[Process], None], faults: list[Fault], *, power_loss: bool
) -> list[Verdict]:
    rng = random.Random(3)
    verdicts = [
        trial(runner, executions=EXECUTIONS, fault=fault, power_loss=power_loss, rng=rng, wrap=wrap) for fault in faults
    ]
    return [verdict for verdict in verdicts if not verdict.clean]


KILLS = [Fault(at, "kill") for at in KILL_POINTS]
FAILED_SYNCS = [Fault(at, errno.EIO, frozenset({"fdatasync"})) for at in range(1, 9)]


@pytest.mark.parametrize(
    ("wrap", "faults"),
    [
        (no_fsync, KILLS),
        (no_folder_fsync, KILLS),
        (retry_failed_fsync, FAILED_SYNCS),
    ],
    ids=["no fsync", "no folder fsync", "retry a failed fsync"],
)
def test_a_bug_of_the_disk_discipline_is_caught_by_a_power_loss(
    wrap: Callable[[Process], None], faults: list[Fault]
) -> None:
    runner = ToyRunner(segment_bytes=1024, grow_bytes=1024)
    assert dirty(runner, wrap, faults, power_loss=True)
    assert dirty(runner, nothing, faults, power_loss=True) == []


@pytest.mark.parametrize(
    ("wrap", "fault"),
    [
        (no_fsync, lambda at: Fault(at, "kill")),
        (no_folder_fsync, lambda at: Fault(at, "kill")),
        (retry_failed_fsync, lambda at: Fault(at // 7 + 1, errno.EIO, frozenset({"fdatasync"}))),
    ],
    ids=["no fsync", "no folder fsync", "retry a failed fsync"],
)
def test_the_same_bugs_below_the_projects_runner_are_caught_too(
    wrap: Callable[[Process], None], fault: Callable[[int], Fault]
) -> None:
    runner, rng = RealRunner(2), random.Random(5)

    def is_dirty(at: int, wrap: Callable[[Process], None]) -> bool:
        verdict = trial(
            runner,
            executions=runner.executions,
            fault=fault(at),
            power_loss=True,
            rng=rng,
            wrap=wrap,
            journal=runner.journal,
        )
        return not verdict.clean

    points = range(40, 110, 7)
    assert any(is_dirty(at, wrap) for at in points)
    assert not any(is_dirty(at, nothing) for at in points)


def test_believing_the_cache_after_a_failed_fsync_is_caught() -> None:
    """The next process must see what the disk holds: what it takes for durable is lost by the power loss after it."""

    def damaged(wrap: Callable[[Process], None]) -> int:
        count = 0
        for fault in FAILED_SYNCS:
            machine, runner = Machine(), ToyRunner(segment_bytes=10**6, grow_bytes=20_000)
            run_once(Process(machine, fault), runner, EXECUTIONS)
            resumed = Process(machine)
            wrap(resumed)
            run_once(resumed, runner, EXECUTIONS)
            machine.disk.lose_power(random.Random(1))
            count += not run_once(Process(machine), runner, EXECUTIONS) or max(machine.sent.values()) > 1
        return count

    assert damaged(keep_cache) > 0
    assert damaged(nothing) == 0


@pytest.mark.parametrize("bug", list(Bug))
def test_a_wrong_order_of_records_is_caught_as_a_duplicate(bug: Bug) -> None:
    caught = dirty(ToyRunner(bug), nothing, KILLS, power_loss=False)
    assert sum(verdict.duplicates for verdict in caught) > 0
    assert dirty(ToyRunner(), nothing, KILLS, power_loss=False) == []


def test_no_fsync_is_not_caught_by_killing_the_process_alone() -> None:
    """Why the power loss is needed at all."""
    assert dirty(ToyRunner(), no_fsync, KILLS, power_loss=False) == []


def test_cutting_a_bad_middle_is_caught_as_a_duplicate(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*, sabotaged: bool) -> tuple[bool, int]:
        machine = Machine()
        runner = ToyRunner(segment_bytes=10**6, grow_bytes=20_000)
        run_once(Process(machine), runner, EXECUTIONS)
        lease = _first(machine, RecordKind.LEASE)
        machine.disk.flip(FOLDER / "segment-000001.tjl", (lease.offset + 40) * 8)
        with monkeypatch.context() as patch:
            if sabotaged:
                patch.setattr(segments, "_torn", lambda *_: True)
            ended_well = run_once(Process(machine), runner, EXECUTIONS)
        return ended_well, max(machine.sent.values())

    assert run(sabotaged=False) == (False, 1)
    assert run(sabotaged=True) == (True, 2)


def _first(machine: Machine, kind: RecordKind) -> JournalRecord:
    records = scan(FOLDER, BINDING, KEY, fs=MemoryFileSystem(machine.disk))
    return next(record for record in records if record.kind is kind)
