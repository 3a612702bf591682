"""Power losses under real system calls: the journal lies on a FUSE file system that forgets what was not synced."""

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
from tests.support.crash_world import BINDING, KEY
from tests.support.socket_world import CountingServer, SocketWorld
from tests.support.toy_runner import ToyRunner

EXECUTIONS = 6
SCHEDULES = (1, 3, 6)
POINTS = {False: 40, True: 120}
"""Power losses per schedule, as a sample and where every point is wanted."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(
        not Path("/dev/fuse").exists()
        or shutil.which("fusermount3") is None
        or importlib.util.find_spec("mfusepy") is None,
        reason="needs /dev/fuse, fuse3 and the package mfusepy; the same rules run in memory in test_kill_points",
    ),
]


def _run(folder: Path, port: int, concurrency: int) -> bool:
    try:
        asyncio.run(SocketWorld(folder, port).collect(ToyRunner(concurrency=concurrency), EXECUTIONS))
    except JournalError:
        return False
    except BaseExceptionGroup as group:
        if group.subgroup(lambda error: not isinstance(error, (JournalError, BaseExceptionGroup))):
            raise
        return False
    return True


@pytest.mark.parametrize("concurrency", SCHEDULES)
def test_a_power_loss_at_any_change_sends_nothing_twice(
    concurrency: int, tmp_path: Path, count: Callable[[str, int], None], *, full: bool
) -> None:
    from tests.support.lossy_fs import mounted

    struck = unknown = 0
    with mounted(tmp_path / "disk") as disk:
        for point in range(1, POINTS[full] + 1):
            folder = disk / f"run-{point}"
            with CountingServer() as server:
                (disk / ".control").write_text(f"arm {point} {point * 7 + concurrency}")
                struck += not _run(folder, server.port, concurrency)
                (disk / ".control").write_text("reboot")
                assert _run(folder, server.port, concurrency)
                before = sum(server.sent.values())
                assert _run(folder, server.port, concurrency)
                assert sum(server.sent.values()) == before
            records = list(scan(folder, BINDING, KEY))
            kinds = Counter(record.kind for record in records)
            accepted = {record.trace_id for record in records if record.kind is RecordKind.ACCEPTED}
            assert max(server.sent.values()) == 1, point
            assert server.acknowledged <= accepted, point
            assert kinds[RecordKind.ACCEPTED] == kinds[RecordKind.COMPLETE] == EXECUTIONS, point
            unknown += kinds[RecordKind.SETTLEMENT]
    count("power losses under real system calls (FUSE)", struck)
    count("calls settled as unknown after a power loss (FUSE)", unknown)
    assert struck > 0
