"""Durability, order, groups, reservations, segments, the seal: through real files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest

from tasc_collector.errors import InputError, JournalCorrupt, JournalFailed, JournalFull, JournalLocked
from tasc_collector.journal import (
    FilesystemTrust,
    FilesystemVerdict,
    Journal,
    OsFileSystem,
    Owner,
    RecordKind,
    journal_exists,
    record_bytes,
    scan,
    verify,
)
from tasc_collector.journal.committer import _Batch
from tests.support.crash_world import BINDING, KEY
from tests.support.memory_disk import MemoryDisk, MemoryFileSystem
from tests.support.processes import next_line

SMALL = {"segment_bytes": 2048, "grow_bytes": 2048}


def test_records_come_back_in_order_with_their_content(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "runs" / "w", BINDING, KEY) as journal:
        assert journal.append_sync(RecordKind.ADMISSION, "", {"b": 1, "a": [True, None, "ü", 1.5]}) == 1
        assert journal.append_sync(RecordKind.INTENT, "t1", {}) == 2
    first, second = scan(tmp_path / "runs" / "w", BINDING, KEY)
    assert (first.kind, first.sequence, first.trace_id) == (RecordKind.ADMISSION, 1, "")
    assert first.body_bytes == '{"a":[true,null,"ü",1.5],"b":1}'.encode()
    assert first.body == {"a": [True, None, "ü", 1.5], "b": 1}
    assert (second.kind, second.sequence, second.trace_id, second.body) == (RecordKind.INTENT, 2, "t1", {})
    assert (tmp_path / "runs" / "w").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "runs" / "w" / "segment-000001.tjl").stat().st_mode & 0o777 == 0o600


def test_concurrent_appends_share_commits_and_keep_the_order_of_the_calls(tmp_path: Path) -> None:
    async def run() -> tuple[list[int], int]:
        with Journal.open(tmp_path, BINDING, KEY) as journal:
            sequences = await asyncio.gather(
                *(journal.append(RecordKind.LEASE, f"t{number}", {"n": number}) for number in range(200))
            )
            return list(sequences), journal.groups

    sequences, groups = asyncio.run(run())
    assert sequences == list(range(1, 201))
    assert groups < 20
    assert [record.trace_id for record in scan(tmp_path, BINDING, KEY)] == [f"t{number}" for number in range(200)]


def test_an_append_returns_only_after_the_sync_of_its_record() -> None:
    disk = MemoryDisk()
    journal = Journal.open(Path("/run"), BINDING, KEY, fs=MemoryFileSystem(disk))
    inode = disk.names[Path("/run/segment-000001.tjl")]
    for number in range(20):
        journal.append_sync(RecordKind.LEASE, f"trace-{number}", {})
        assert f"trace-{number}".encode() in inode.kept
    journal.close()


def test_what_was_enqueued_is_durable_when_a_later_append_returns() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        with Journal.open(Path("/run"), BINDING, KEY, fs=MemoryFileSystem(disk)) as journal:
            inode = disk.names[Path("/run/segment-000001.tjl")]
            assert journal.enqueue(RecordKind.INTENT, "trace-1", {}) == 1
            assert await journal.append(RecordKind.LEASE, "trace-2", {}) == 2
            assert b"trace-1" in inode.kept
            journal.enqueue(RecordKind.COMPLETE, "trace-3", {})
            await journal.flush()
            assert b"trace-3" in inode.kept
            assert journal.records == 3
            journal.flush_sync()

    asyncio.run(run())


def test_an_intent_that_is_enqueued_shares_the_commit_of_its_lease(tmp_path: Path) -> None:
    async def run() -> int:
        with Journal.open(tmp_path, BINDING, KEY) as journal:
            journal.enqueue(RecordKind.INTENT, "t1", {})
            await journal.append(RecordKind.LEASE, "t1", {})
            return journal.groups

    assert asyncio.run(run()) == 1


def test_what_was_enqueued_is_written_without_a_waiter_and_by_close(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal.open(tmp_path, BINDING, KEY)
        journal.enqueue(RecordKind.INTENT, "t1", {})
        assert journal.append_sync(RecordKind.INTENT, "t2", {}) == 2, "the loop's thread may block in it"
        journal.enqueue(RecordKind.INTENT, "t3", {})
        await asyncio.sleep(0)
        await journal.flush()
        assert journal.records == 3
        journal.enqueue(RecordKind.INTENT, "t4", {})
        journal.close()

    asyncio.run(run())
    assert [record.trace_id for record in scan(tmp_path, BINDING, KEY)] == ["t1", "t2", "t3", "t4"]


def test_threads_and_tasks_may_write_together(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal.open(tmp_path, BINDING, KEY, **SMALL) as journal:

            def sampler() -> None:
                for number in range(50):
                    journal.append_sync(RecordKind.FAULT, f"s{number}", {})

            thread = threading.Thread(target=sampler)
            thread.start()
            for number in range(50):
                await journal.append(RecordKind.LEASE, f"t{number}", {})
            await asyncio.to_thread(thread.join)

    asyncio.run(run())
    assert verify(tmp_path, BINDING, KEY).by_kind == {RecordKind.LEASE: 50, RecordKind.FAULT: 50}


def test_a_cancelled_append_ends_when_its_record_is_durable(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal.open(tmp_path, BINDING, KEY) as journal:
            task = asyncio.create_task(journal.append(RecordKind.LEASE, "t1", {}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert journal.records == 1
            await journal.append(RecordKind.FAULT, "t1", {})

    asyncio.run(run())
    assert [record.kind for record in scan(tmp_path, BINDING, KEY)] == [RecordKind.LEASE, RecordKind.FAULT]


class HeldFileSystem(OsFileSystem):
    """Its first sync of records takes until ``released``: what is appended meanwhile shares the next commit."""

    def __init__(self) -> None:
        self.began, self.released = threading.Event(), threading.Event()

    def fdatasync(self, descriptor: int) -> None:
        self.began.set()
        assert self.released.wait(30)
        super().fdatasync(descriptor)


async def first_lease(journal: Journal, fs: HeldFileSystem) -> asyncio.Task[int]:
    task = asyncio.create_task(journal.append(RecordKind.LEASE, "t0", {}))
    assert await asyncio.to_thread(fs.began.wait, 30)
    return task


def test_tasks_that_share_a_commit_go_on_in_the_order_of_their_calls_each_in_its_own_context(tmp_path: Path) -> None:
    name: ContextVar[str] = ContextVar("name")
    woken: list[tuple[int, str]] = []

    async def lease(journal: Journal, trace: str) -> None:
        name.set(trace)
        woken.append((await journal.append(RecordKind.LEASE, trace, {}), name.get()))

    async def run() -> int:
        fs = HeldFileSystem()
        with Journal.open(tmp_path, BINDING, KEY, fs=fs) as journal:
            tasks = [await first_lease(journal, fs)]
            tasks += [asyncio.create_task(lease(journal, f"t{number}")) for number in range(1, 9)]
            await asyncio.sleep(0)
            fs.released.set()
            await asyncio.gather(*tasks)
            return journal.groups

    assert asyncio.run(run()) == 2
    assert woken == [(number + 1, f"t{number}") for number in range(1, 9)]


def test_a_task_that_is_cancelled_by_another_of_its_commit_has_leased(tmp_path: Path) -> None:
    async def run() -> list[object]:
        fs = HeldFileSystem()
        with Journal.open(tmp_path, BINDING, KEY, fs=fs) as journal:

            async def cancelling() -> int:
                sequence = await journal.append(RecordKind.LEASE, "t1", {})
                tasks[2].cancel()
                return sequence

            tasks = [await first_lease(journal, fs), asyncio.create_task(cancelling())]
            tasks.append(asyncio.create_task(journal.append(RecordKind.LEASE, "t2", {})))
            await asyncio.sleep(0)
            fs.released.set()
            return [type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)]

    assert asyncio.run(run()) == [int, int, asyncio.CancelledError]
    assert [record.trace_id for record in scan(tmp_path, BINDING, KEY)] == ["t0", "t1", "t2"]


def test_a_task_that_ends_the_loop_leaves_no_other_of_its_commit_asleep(tmp_path: Path) -> None:
    async def interrupted(journal: Journal) -> None:
        await journal.append(RecordKind.LEASE, "t1", {})
        raise KeyboardInterrupt

    async def begun(journal: Journal, fs: HeldFileSystem) -> tuple[asyncio.Task[None], asyncio.Task[int]]:
        await first_lease(journal, fs)
        tasks = (
            asyncio.create_task(interrupted(journal)),
            asyncio.create_task(journal.append(RecordKind.LEASE, "t2", {})),
        )
        await asyncio.sleep(0)
        fs.released.set()
        return tasks

    fs, loop = HeldFileSystem(), asyncio.new_event_loop()
    with contextlib.closing(loop), Journal.open(tmp_path, BINDING, KEY, fs=fs) as journal:
        first, second = loop.run_until_complete(begun(journal, fs))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(first)
        assert loop.run_until_complete(asyncio.wait({second}, timeout=30)) == ({second}, set())
        assert second.result() == 3


def test_a_task_that_closes_the_journal_in_its_turn_is_not_waited_for() -> None:
    """The committing thread waits for a turn that cannot end before the thread itself does: only its bound ends that.

    With ``SimpleQueue.get`` one such wait in some 5,000 had no end.
    """

    async def run(folder: Path) -> None:
        journal = Journal.open(folder, BINDING, KEY, fs=MemoryFileSystem(MemoryDisk()))

        async def append_and_close(name: str) -> None:
            await journal.append(RecordKind.LEASE, name, {})
            journal.close()

        await asyncio.gather(append_and_close("t1"), append_and_close("t2"))

    asyncio.run(run(Path("/j")))
    waits = 0

    def wait_often() -> None:
        nonlocal waits
        while waits < 30_000:
            _Batch().await_turn(1e-9)
            waits += 1

    waiting = threading.Thread(target=wait_often, daemon=True)
    waiting.start()
    waiting.join(60)
    assert waits == 30_000


def test_segments_end_with_a_record_and_the_chain_crosses_them(tmp_path: Path) -> None:
    with Journal.open(tmp_path, BINDING, KEY, **SMALL) as journal:
        for number in range(40):
            journal.append_sync(RecordKind.OUTCOME, f"t{number}", {"pad": "x" * 300})
    names = sorted(path.name for path in tmp_path.glob("*.tjl"))
    assert len(names) >= 5
    report = verify(tmp_path, BINDING, KEY)
    assert (report.records, report.segments) == (40, len(names))
    for name in names[:-1]:
        assert not (tmp_path / name).read_bytes().endswith(b"\0" * 32)


def test_reserved_space_outlives_a_full_disk_and_the_step_to_the_next_segment() -> None:
    disk = MemoryDisk()
    with Journal.open(Path("/run"), BINDING, KEY, fs=MemoryFileSystem(disk), **SMALL) as journal:
        reservation = journal.reserve(5000)
        for number in range(20):
            journal.append_sync(RecordKind.INTENT, f"t{number}", {"pad": "x" * 300})
        disk.free_bytes = 0
        with pytest.raises(JournalFull, match="free disk space"):
            for number in range(100):
                journal.append_sync(RecordKind.INTENT, f"u{number}", {"pad": "x" * 300})
        with pytest.raises(JournalFull):
            journal.reserve(5000)
        size = record_bytes("t1", b'{"pad":"' + b"x" * 300 + b'"}')
        for _ in range(5000 // size):
            journal.append_sync(RecordKind.OUTCOME, "t1", {"pad": "x" * 300}, reservation=reservation)
        assert reservation.remaining_bytes == 5000 % size
        assert not journal.failed
    assert verify(Path("/run"), BINDING, KEY, fs=MemoryFileSystem(disk)).by_kind[RecordKind.OUTCOME] == 5000 // size


def test_released_space_is_free_again() -> None:
    disk = MemoryDisk()
    with Journal.open(Path("/run"), BINDING, KEY, fs=MemoryFileSystem(disk), grow_bytes=4096) as journal:
        disk.free_bytes = 0
        with journal.reserve(4096):
            with pytest.raises(JournalFull):
                journal.append_sync(RecordKind.INTENT, "t", {})
        assert journal.append_sync(RecordKind.INTENT, "t", {}) == 1


def test_a_seal_ends_the_journal_and_every_byte_is_then_fixed(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, BINDING, KEY, **SMALL)
    for number in range(20):
        journal.append_sync(RecordKind.OUTCOME, f"t{number}", {"pad": "x" * 300})
    seal = journal.seal()
    report = verify(tmp_path, BINDING, KEY, expected_head=seal.head)
    assert (report.sealed, report.records, report.head, report.macs_checked) == (True, 20, seal.head, True)
    assert seal.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.tjl"))
    assert verify(tmp_path, BINDING, None).sealed
    with pytest.raises(InputError, match="closed"):
        journal.append_sync(RecordKind.OUTCOME, "t", {})
    with pytest.raises(InputError, match="sealed"):
        Journal.open(tmp_path, BINDING, KEY)
    last = max(tmp_path.glob("*.tjl"))
    data = last.read_bytes()
    for damaged in (data[:-1], data + b"\0", data[:95]):
        last.write_bytes(damaged)
        with pytest.raises(JournalCorrupt):
            verify(tmp_path, BINDING, KEY)


def test_records_that_vanish_with_the_seal_are_seen_by_the_signed_head(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, BINDING, KEY)
    for number in range(3):
        journal.append_sync(RecordKind.OUTCOME, f"t{number}", {})
    seal = journal.seal()
    (tmp_path / "seal.json").unlink()
    path = tmp_path / "segment-000001.tjl"
    last = [record.offset for record in scan(tmp_path, BINDING, KEY)][-1]
    path.write_bytes(path.read_bytes()[:last])
    assert verify(tmp_path, BINDING, KEY).records == 2
    with pytest.raises(JournalCorrupt, match="head that was signed"):
        verify(tmp_path, BINDING, KEY, expected_head=seal.head)


def test_a_forged_seal_is_refused_with_and_without_the_key(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, BINDING, KEY)
    journal.append_sync(RecordKind.OUTCOME, "t", {})
    journal.seal()
    path = tmp_path / "seal.json"
    right = path.read_bytes()
    for wrong in (right.replace(b'"records":1', b'"records":2'), b"{}", b"[]", b"", right[:-1]):
        path.write_bytes(wrong)
        for key in (KEY, None):
            with pytest.raises(JournalCorrupt):
                verify(tmp_path, BINDING, key)


def test_a_second_owner_is_told_who_holds_the_journal(tmp_path: Path) -> None:
    owner = Owner(4711, "collector-1", "2026-01-31T09:30:00.000Z")
    with Journal.open(tmp_path, BINDING, KEY, owner=owner):
        with pytest.raises(JournalLocked, match="process 4711 on collector-1 since 2026-01-31T09:30:00"):
            Journal.open(tmp_path, BINDING, KEY)
    Journal.open(tmp_path, BINDING, KEY).close()


def test_a_dead_owner_frees_the_journal(tmp_path: Path) -> None:
    program = (
        "import sys, os, pathlib\n"
        "from tasc_collector.journal import Journal, JournalBinding, RecordKind\n"
        "b = JournalBinding('study-1', 'sha256:'+'a'*64, 'sha256:'+'b'*64, 'w.r1-00000000', 0, 'sha256:'+'c'*64)\n"
        "j = Journal.open(pathlib.Path(sys.argv[1]), b, bytes(range(32)))\n"
        "j.append_sync(RecordKind.LEASE, 't1', {})\n"
        "print('leased', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert next_line(process) == "leased\n"
        with pytest.raises(JournalLocked, match=f"process {process.pid} on"):
            Journal.open(tmp_path, BINDING, KEY)
        process.kill()
        process.wait(30)
    seen: list[str] = []
    with Journal.open(tmp_path, BINDING, KEY, on_record=lambda record: seen.append(record.trace_id)):
        assert seen == ["t1"]


def test_what_looks_wrong_while_somebody_writes_is_answered_with_who_that_is(tmp_path: Path) -> None:
    with Journal.open(tmp_path, BINDING, KEY, grow_bytes=4096) as journal:
        journal.append_sync(RecordKind.OUTCOME, "t", {})
        assert verify(tmp_path, BINDING, KEY).records == 1
        path = tmp_path / "segment-000001.tjl"
        with path.open("r+b") as file:
            file.seek(3000)
            file.write(b"x")
        with pytest.raises(JournalLocked, match="in use by process"):
            verify(tmp_path, BINDING, KEY)
    with pytest.raises(JournalCorrupt):
        verify(tmp_path, BINDING, KEY)


class FailingFileSystem(OsFileSystem):
    """The real file system until ``fail`` names a call."""

    fail = ""

    def fdatasync(self, descriptor: int) -> None:
        if self.fail == "fdatasync":
            raise OSError(errno.EIO, "injected")
        super().fdatasync(descriptor)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        if self.fail == "close":
            raise OSError(errno.EIO, "injected")


def test_the_first_error_ends_the_journal(tmp_path: Path) -> None:
    async def run() -> None:
        fs = FailingFileSystem()
        journal = Journal.open(tmp_path, BINDING, KEY, fs=fs)
        await journal.append(RecordKind.LEASE, "t0", {})
        reservation = journal.reserve(1000)
        fs.fail = "fdatasync"
        results = await asyncio.gather(
            *(journal.append(RecordKind.LEASE, f"t{number}", {}) for number in range(1, 9)), return_exceptions=True
        )
        assert [type(result) for result in results] == [JournalFailed] * 8
        fs.fail = ""
        assert journal.failed
        for call in (
            lambda: journal.append_sync(RecordKind.LEASE, "t9", {}, reservation=reservation),
            lambda: journal.enqueue(RecordKind.LEASE, "t9", {}),
            lambda: journal.reserve(1),
            journal.flush_sync,
            journal.close,
        ):
            with pytest.raises(JournalFailed, match="EIO"):
                call()
        journal.close()

    asyncio.run(run())
    assert next(scan(tmp_path, BINDING, KEY)).trace_id == "t0"


def test_an_error_of_close_is_told(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    journal = Journal.open(tmp_path, BINDING, KEY, fs=fs)
    fs.fail = "close"
    with pytest.raises(JournalFailed, match="EIO"):
        journal.close()


def test_a_refused_file_system_is_told_before_anything_is_written(tmp_path: Path) -> None:
    class OnNetwork(OsFileSystem):
        def verdict(self, folder: Path) -> FilesystemVerdict:
            return FilesystemVerdict(FilesystemTrust.REFUSED, "nfs4", "locks do not hold")

    with pytest.raises(InputError, match=r"nfs4.*local disk"):
        Journal.open(tmp_path / "run", BINDING, KEY, fs=OnNetwork())
    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_failure_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalFailed, match="EEXIST"):
        Journal.open(tmp_path / "file" / "run", BINDING, KEY)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run", BINDING, KEY, grow_bytes=4096) as journal:
        journal.append_sync(RecordKind.INTENT, "t", {})
    segment = tmp_path / "run" / "segment-000001.tjl"
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalFailed, match="ELOOP"):
        Journal.open(tmp_path / "run", BINDING, KEY)


def test_bounds_are_refused_before_a_record_is_written(tmp_path: Path) -> None:
    with Journal.open(tmp_path, BINDING, KEY) as journal:
        with pytest.raises(InputError, match="trace id"):
            journal.append_sync(RecordKind.INTENT, "ü", {})
        with pytest.raises(InputError, match="canonical"):
            journal.append_sync(RecordKind.INTENT, "t", {"n": float("nan")})
        assert journal.append_sync(RecordKind.INTENT, "t", {}) == 1


def test_an_unsealed_journal_exists_and_an_empty_folder_does_not(tmp_path: Path) -> None:
    assert not journal_exists(tmp_path / "nowhere")
    assert not journal_exists(tmp_path)
    Journal.open(tmp_path, BINDING, KEY).close()
    assert journal_exists(tmp_path)
    assert list(scan(tmp_path, BINDING, KEY)) == []
