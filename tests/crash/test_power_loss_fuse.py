"""The runner over real system calls and a file system that forgets: power is lost at any change, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tasc_collector.errors import JournalError
from tasc_collector.journal import RecordKind, scan
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.progress import Snapshot
from tasc_collector.shadow.runner import run_window
from tasc_collector.shadow.scheduler import StopSignal
from tests.support.memory_server import MemoryServer
from tests.support.real_runner import is_unknown
from tests.support.run_contexts import Setup, run_context
from tests.support.runs import ORIGINS

CASES = 3
SCHEDULES = (1, 2, 3)
"""Pairs in flight."""
POINTS = {False: range(1, 121, 3), True: range(1, 121)}
"""Changes of the disk at which the power is lost, as a sample and where every point is wanted."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(
        not Path("/dev/fuse").exists()
        or shutil.which("fusermount3") is None
        or importlib.util.find_spec("mfusepy") is None,
        reason="needs /dev/fuse, fuse3 and the package mfusepy; the same rules run in memory in test_kill_points",
    ),
]


def _run(context: RunContext) -> tuple[bool, int]:
    """Whether the window was finished, and how many executions the runner was told are durable."""
    told = [0]

    def show(snapshot: Snapshot) -> None:
        told.append(snapshot.done)

    try:
        result = asyncio.run(run_window(context, StopSignal(), show=show, show_every_s=0.0))
    except JournalError:
        return False, max(told)
    return result.status == "complete", max(told)


def _accepted(context: RunContext) -> int:
    if not list(context.folder.glob("segment-*")):
        return 0
    return sum(
        record.kind is RecordKind.ACCEPTED for record in scan(context.folder, context.binding, context.journal_key)
    )


@pytest.mark.parametrize("concurrency", SCHEDULES)
def test_a_power_loss_at_any_change_sends_nothing_twice(
    concurrency: int, tmp_path: Path, count: Callable[[str, int], None], *, full: bool
) -> None:
    from tests.support.lossy_fs import mounted

    struck = unknown = 0
    plan = {"load_model": {"kind": "closed", "concurrency": concurrency}}
    setup = Setup(ORIGINS, cases=[str(number) for number in range(CASES)], plan=plan)
    with mounted(tmp_path / "disk") as disk:
        for point in POINTS[full]:
            server = MemoryServer()
            folder = disk / f"run-{point}"
            context = run_context(setup, folder, network=server, segment_bytes=12_000, grow_bytes=8_192)
            (disk / ".control").write_text(f"arm {point} {point * 7 + concurrency}")
            finished, told = _run(context)
            struck += not finished
            (disk / ".control").write_text("reboot")
            assert _accepted(context) >= told, point
            assert _run(context)[0]
            before = sum(server.sent.values())
            assert _run(context)[0]
            assert sum(server.sent.values()) == before
            records = list(scan(folder, context.binding, context.journal_key))
            kinds = Counter(record.kind for record in records)
            assert max(server.sent.values(), default=0) <= 1, point
            assert kinds[RecordKind.ACCEPTED] == kinds[RecordKind.COMPLETE] == 2 * CASES, point
            unknown += sum(map(is_unknown, records))
    count("power losses under real system calls (FUSE)", struck)
    count("calls settled as unknown after a power loss (FUSE)", unknown)
    assert struck > 0
