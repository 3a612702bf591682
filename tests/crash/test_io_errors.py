"""An error of the operating system at any file call: never a send after it, and the next process finishes cleanly."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from tests.support.crash_world import Fault, Machine, Process, run_once, trial
from tests.support.memory_disk import FILE_CALLS
from tests.support.real_runner import RealRunner

ERRORS = (errno.EIO, errno.ENOSPC, errno.EINTR, errno.EMFILE, errno.EROFS)
NEVER = 10**9


def _calls(runner: RealRunner, names: frozenset[str]) -> int:
    process = Process(Machine(), Fault(NEVER, "kill", names))
    assert run_once(process, runner, runner.executions)
    return process.calls


def _strike(step: int, count: Callable[[str, int], None]) -> None:
    rng, points, runner = random.Random(7), 0, RealRunner(2)
    calls = _calls(runner, FILE_CALLS)
    for index, number in enumerate(ERRORS):
        for at in range(1 + index % step, calls + 1, step):
            for power_loss in (False, True):
                fault = Fault(at, number, FILE_CALLS)
                verdict = trial(
                    runner,
                    executions=runner.executions,
                    fault=fault,
                    power_loss=power_loss,
                    rng=rng,
                    journal=runner.journal,
                )
                assert verdict.clean, (errno.errorcode[number], at, power_loss, verdict)
                points += 1
    count("I/O errors at file calls of the runner, each followed by a clean resume", points)


def test_a_sample_of_errors_is_clean(count: Callable[[str, int], None]) -> None:
    _strike(29, count)


@pytest.mark.crash
def test_every_error_at_every_file_call_is_clean(count: Callable[[str, int], None], *, full: bool) -> None:
    _strike(1 if full else 4, count)


def test_a_short_write_is_continued() -> None:
    runner, pwrite = RealRunner(1), frozenset({"pwrite"})
    for at in range(1, _calls(runner, pwrite) + 1):
        process = Process(Machine(), Fault(at, "short", pwrite))
        assert run_once(process, runner, runner.executions), at
        assert sorted(process.machine.sent.values()) == [1] * runner.executions


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_after_a_failed_commit_the_process_sends_nothing(call: str) -> None:
    """The commit that fails holds a lease; its call must not be sent, nor any later one."""
    runner = RealRunner(2)
    for at in range(1, _calls(runner, frozenset({call})) + 1, 2):
        process = Process(Machine(), Fault(at, errno.EIO, frozenset({call})))
        ended_well = run_once(process, runner, runner.executions)
        assert ended_well is not process.struck, "how many commits a run makes depends on who shares one"
        assert process.machine.sent_after_failure == 0
        assert process.fs.open_files == 0


def test_a_full_disk_ends_the_run_and_a_later_one_finishes_without_a_duplicate() -> None:
    """Every call that was sent before the disk was full has its envelope: its space was set aside before its lease."""
    runner, machine = RealRunner(20), Machine()
    machine.disk.free_bytes = 60_000
    assert not run_once(Process(machine), runner, runner.executions)
    assert 0 < sum(machine.sent.values()) < runner.executions
    assert len(machine.acknowledged) == sum(machine.sent.values())
    machine.disk.free_bytes = None
    assert run_once(Process(machine), runner, runner.executions)
    assert set(machine.sent.values()) == {1}
    assert len(machine.acknowledged) == runner.executions
