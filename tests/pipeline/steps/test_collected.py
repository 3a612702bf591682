"""A window that is too large for memory is read from disk, beside its journal, with the same results."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasc_pipeline.home import keys
from tasc_pipeline.steps import collect, spool, verify
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.collected import Collected, read_collected
from tasc_pipeline.steps.spool import SpoolFailed
from tests.support.window import World, world


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    with world(tmp_path_factory.mktemp("spool"), cases=2, warm_up=0) as made:
        key = made.approved_window()
        assert collect.collect(made.home, key, show=lambda _: None).status == "complete"
        yield made, key


def read(window: tuple[World, str]) -> Collected:
    made, key = window
    approved = load_approved(made.home, key)
    return read_collected(
        approved, made.home.run(key), keys.hmac_key(made.home, approved.study.study.keys.journal_hmac)
    )


def open_files(folder: Path) -> list[str]:
    """Files of this process that lie in a folder, with or without a name (proc(5))."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue  # closed since, as the descriptor of the listing is
    return [name for name in found if name.startswith(f"{folder}/")]


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file of this process may grow beyond this (getrlimit(2)): the disk refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_window_that_goes_to_disk_is_read_with_the_same_results(
    window: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = window
    names = sorted(path.name for path in made.home.run(key).iterdir())
    in_memory = read(window)
    monkeypatch.setattr(spool, "SPOOL_BYTES", 8)
    on_disk = read(window)
    assert len(on_disk.executions) == 4
    assert list(on_disk.executions) == list(in_memory.executions)
    assert (on_disk.trace_digests, on_disk.pending) == (in_memory.trace_digests, 0)
    if sys.platform == "linux":
        assert len(open_files(made.home.run(key))) == 1, "beside the journal"
    assert sorted(path.name for path in made.home.run(key).iterdir()) == names, "and without a name"
    del on_disk
    if sys.platform == "linux":
        assert open_files(made.home.run(key)) == []


def test_where_nothing_may_be_written_the_default_folder_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SPOOL_BYTES", 8)
    monkeypatch.setattr(spool.tempfile, "tempdir", str(tmp_path))
    aside = spool.Spool(tmp_path / "absent")  # a folder that cannot be written, also by root
    spans = [aside.put(b"one" * 10), aside.put(b"two")]
    assert [aside.get(span) for span in spans] == [b"one" * 10, b"two"]
    if sys.platform == "linux":
        assert len(open_files(tmp_path)) == 1


@pytest.mark.parametrize("kept_bytes", [8, 1 << 20])
def test_many_spans_are_read_together_in_whatever_order_and_however_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(spool, "SPOOL_BYTES", kept_bytes)
    monkeypatch.setattr(spool, "_RUN_BYTES", 100)
    monkeypatch.setattr(spool, "_GAP_BYTES", 10)
    aside = spool.Spool(tmp_path)
    written = [bytes([number]) * (number % 7 * 9) for number in range(60)]
    spans = [aside.put(data) for data in written]
    asked = [*range(59, -1, -3), 5, 5, *range(0, 60, 11)]
    read_back = aside.get_many(spool.spans_of(spans[place] for place in asked))
    assert [bytes(data) for data in read_back] == [written[place] for place in asked]
    assert aside.get_many(spool.spans_of([])) == []
    assert [bytes(data) for data in aside.get_many(spool.spans_of([None, spans[1]]))] == [b"", written[1]]


def test_a_disk_that_refuses_is_said_with_a_way_out_and_not_as_a_finding(
    window: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = window
    monkeypatch.setattr(spool, "SPOOL_BYTES", 8)
    with file_size_limit(100), pytest.raises(SpoolFailed) as refusal:
        verify.findings(made.home, key)
    assert os.strerror(errno.EFBIG).lower() in refusal.value.what
    assert refusal.value.way_out and refusal.value.way_out.startswith("make room in the state folder")
    [journal] = [finding for finding in verify.findings(made.home, key) if finding.name == "journal"]
    assert journal.sound


def test_the_journals_finding_says_what_its_file_system_is_trusted_for(
    window: tuple[World, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, key = window
    mounts = tmp_path / "mountinfo"
    for kind, said in (
        ("ext4", "file system ext4 is trusted: a local file system that keeps what fsync returned for"),
        ("tmpfs", "file system tmpfs is marked: memory only: everything is lost when the machine stops"),
        ("nfs4", "file system nfs4 is refused: a network file system: locks and fsync do not hold across its clients"),
    ):
        mounts.write_text(f"36 35 98:0 / / rw - {kind} /dev/root rw\n")
        monkeypatch.setattr("tasc_collector.journal.filesystem._MOUNT_TABLE", mounts)
        [line] = [finding.detail for finding in verify.findings(made.home, key) if finding.name == "journal"]
        assert line.endswith(said)
