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
from tasc_pipeline.steps import collect, collected, verify
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.collected import Collected, SpoolFailed, read_collected
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
    monkeypatch.setattr(collected, "SPOOL_BYTES", 8)
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
    monkeypatch.setattr(collected, "SPOOL_BYTES", 8)
    monkeypatch.setattr(collected.tempfile, "tempdir", str(tmp_path))
    spool = collected._Spool(tmp_path / "absent")  # a folder that cannot be written, also by root
    spans = [spool.put(b"one" * 10), spool.put(b"two")]
    assert [spool.get(span) for span in spans] == [b"one" * 10, b"two"]
    if sys.platform == "linux":
        assert len(open_files(tmp_path)) == 1


def test_a_disk_that_refuses_is_said_with_a_way_out_and_not_as_a_finding(
    window: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = window
    monkeypatch.setattr(collected, "SPOOL_BYTES", 8)
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
