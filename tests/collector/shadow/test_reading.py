"""Progress of reading what an earlier run left."""

from __future__ import annotations

import asyncio

from tasc_collector.journal import JournalRecord, RecordKind
from tasc_collector.shadow.progress import Snapshot
from tasc_collector.shadow.reading import told
from tasc_collector.shadow.runner import run_window
from tasc_collector.shadow.scheduler import StopSignal
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup
from tests.support.runs import ORIGINS, memory_run

MILLISECOND = 1_000_000


def read(
    records: int, *, planned: int, record_ns: int, every_s: float = 1.0
) -> tuple[list[JournalRecord], list[Snapshot]]:
    """A pass over records of which every second one is final; each takes the same time."""
    applied: list[JournalRecord] = []
    shown: list[Snapshot] = []
    kinds = (RecordKind.INTENT, RecordKind.ACCEPTED)
    with told(
        applied.append, planned, show=shown.append, now_ns=lambda: len(applied) * record_ns, every_s=every_s
    ) as each:
        for number in range(1, records + 1):
            each(JournalRecord(kinds[number % 2 == 0], number, "trace", b"{}", 1, 0))
    return applied, shown


def test_a_large_journal_is_told_at_the_asked_pace_and_ends_done() -> None:
    applied, shown = read(4_096, planned=3_000, record_ns=MILLISECOND)
    assert len(applied) == 4_096
    assert [(snapshot.done, snapshot.total) for snapshot in shown] == [
        (512, 3_000), (1_024, 3_000), (1_536, 3_000), (2_048, 3_000), (3_000, 3_000),
    ]  # fmt: skip
    assert [round(snapshot.elapsed_s, 3) for snapshot in shown] == [1.024, 2.048, 3.072, 4.096, 4.096]
    assert {snapshot.what for snapshot in shown} == {"reading the journal"}


def test_a_pass_that_is_quick_tells_nothing() -> None:
    applied, shown = read(4_096, planned=3_000, record_ns=1)
    assert len(applied) == 4_096
    assert shown == []


def test_records_of_warm_up_calls_do_not_end_the_pass_early() -> None:
    _, shown = read(2_048, planned=100, record_ns=MILLISECOND)
    assert [snapshot.done for snapshot in shown] == [99, 99, 100]


def test_a_run_tells_how_far_it_has_read_what_an_earlier_one_left() -> None:
    server = MemoryServer()
    cases = [f"case {number}" for number in range(110)]
    context = memory_run(server, setup=Setup(ORIGINS, cases=cases))
    stop = StopSignal()
    shown: list[Snapshot] = []
    server.on_request = lambda: stop.request("sigterm") if sum(server.sent.values()) == 210 else None
    asyncio.run(run_window(context, stop, show=lambda _: None))
    for _ in ("resumed", "sealed"):
        asyncio.run(run_window(context, StopSignal(), show=shown.append, show_every_s=0.0))
    told_of = [(snapshot.done, snapshot.total) for snapshot in shown if snapshot.what == "reading the journal"]
    assert len(told_of) == 4
    assert told_of[1::2] == [(220, 220), (220, 220)]
    assert all(150 < done < 220 for done, _ in told_of[::2])
