"""The instance folder: names, damaged records, locks, and the files beside a record."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from tasc_compute.clock import SystemClock
from tasc_compute.contracts import (
    EngineId,
    EngineRuntimeKind,
    InstanceRecord,
    PinnedReference,
    ProcessReference,
    RemoteReference,
)
from tasc_compute.errors import StoreError
from tasc_compute.instances import InstanceStore, check_name
from tasc_compute.state import Liveness

RECORD = InstanceRecord(
    name="one",
    node_id="self",
    engine=EngineId.VLLM,
    recipe_id="one",
    runtime=EngineRuntimeKind.PROCESS,
    ref=ProcessReference(42, "boot:7"),
    port=8000,
    devices=("GPU-a",),
    nonce="n1",
    started_at="2026-01-02T03:04:05.000Z",
    ready_deadline_at="2026-01-02T03:34:05.000Z",
)


@pytest.fixture
def store(tmp_path):
    return InstanceStore(tmp_path / "instances", SystemClock())


def held_by(store, liveness):
    return store.held(lambda _: liveness)


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a.b", "../a", "a/b", "a" * 64, "ä"])
def test_a_name_is_a_file_container_and_host_name(name):
    with pytest.raises(StoreError, match="is no instance name"):
        check_name(name)


def test_a_record_is_read_back_and_private(store):
    store.write(RECORD)
    assert store.read("one") == RECORD
    assert store.names() == ("one",)
    assert (store.folder / "one.json").stat().st_mode & 0o777 == 0o600
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert store.read("two") is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"\x00" * 100, b"x" * 100_000, b'{"name":"two"}'],
)
def test_a_damaged_record_is_held_and_says_how_to_get_rid_of_it(store, data):
    (store.folder / "one.json").write_bytes(data)
    with pytest.raises(StoreError, match=r"counts as held.*then remove the file"):
        store.read("one")
    assert held_by(store, Liveness.GONE).unreadable == ("one.json",)


def test_a_record_with_a_deadline_that_is_no_time_is_damaged(store):
    store.write(dataclasses.replace(RECORD, ready_deadline_at="soon"))
    with pytest.raises(StoreError, match="counts as held"):
        store.read("one")


def test_a_record_under_another_name_is_refused(store):
    store.write(RECORD)
    (store.folder / "one.json").rename(store.folder / "two.json")
    with pytest.raises(StoreError, match="another name"):
        store.read("two")


@pytest.mark.parametrize(
    ("liveness", "held"), [(Liveness.ALIVE, True), (Liveness.UNKNOWN, True), (Liveness.GONE, False)]
)
def test_a_device_is_held_if_and_only_if_a_record_may_be_alive(store, liveness, held):
    """Lesson 22: a stale record blocks neither device nor port."""
    store.write(RECORD)
    found = held_by(store, liveness)
    assert (found.devices, found.ports) == (({"GPU-a": "one"}, {8000: "one"}) if held else ({}, {}))


def test_a_pinned_hold_is_held_whatever_any_launcher_says(store):
    store.write(dataclasses.replace(RECORD, ref=PinnedReference("speech")))
    found = held_by(store, Liveness.GONE)
    assert (found.devices, found.pinned, found.ports) == ({"GPU-a": "one"}, frozenset({"GPU-a"}), {})


def test_a_remote_instance_that_cannot_be_asked_is_held(store, compute):
    """Lesson 9: a partition must not free what the other side still runs."""
    compute.store.write(dataclasses.replace(RECORD, ref=RemoteReference("node-2", "one")))
    assert compute.store.held(compute.liveness).devices == {"GPU-a": "one"}


def test_a_reservation_lives_as_long_as_its_maker(store):
    guard = store.guard("one")
    assert guard is not None
    store.write(dataclasses.replace(RECORD, ref=None))
    assert store.guard("one") is None
    assert held_by(store, Liveness.GONE).devices == {"GPU-a": "one"}
    guard.release()
    assert held_by(store, Liveness.GONE).devices == {}


def test_only_the_instance_itself_is_removed_with_what_lies_beside_it(store):
    store.write(RECORD)
    store.latch(RECORD)
    store.remember(RECORD, {42: "boot:7"})
    store.remove(dataclasses.replace(RECORD, nonce="another"))
    assert store.names() == ("one",)
    store.remove(RECORD)
    assert [path.name for path in store.folder.iterdir()] == ["placement.lock"]


def test_evidence_of_an_older_instance_of_the_name_counts_for_nothing(store):
    store.write(RECORD)
    store.latch(RECORD)
    store.remember(RECORD, {42: "boot:7"})
    store.remember(RECORD, {43: "boot:8"})
    assert store.members(RECORD) == {42: "boot:7", 43: "boot:8"}
    newer = dataclasses.replace(RECORD, nonce="n2")
    assert not store.latched(newer)
    assert store.members(newer) == {}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"nonce":"n1"}', b'{"nonce":"n1","members":{"x":1}}', b"\xff"])
def test_damaged_evidence_counts_for_nothing(store, data):
    store.write(RECORD)
    (store.folder / "one.members").write_bytes(data)
    (store.folder / "one.ready").write_bytes(data)
    assert store.members(RECORD) == {}
    assert not store.latched(RECORD)


def test_the_lock_keeps_stores_of_one_process_apart_and_gives_up_when_told(store):
    """A pid-file lock would admit two winners; a kernel lock does not, even within one process."""
    other = InstanceStore(store.folder, SystemClock())
    cancel = threading.Event()
    cancel.set()
    with store.locked(), store.locked():
        with pytest.raises(StoreError, match="another process holds the lock"):
            with other.locked(cancel):
                pass
    with other.locked(cancel):
        pass


def test_starts_on_one_device_wait_for_each_other(store):
    """Lesson 32: two engines that profile memory at once mis-size it."""
    other = InstanceStore(store.folder, SystemClock())
    with store.starting(("GPU-b", "GPU-a"), 1000):
        with pytest.raises(StoreError):
            with other.starting(("GPU-a",), 0):
                pass
        with other.starting(("GPU-c",), 0):
            pass


def test_left_overs_of_dead_writers_are_swept(store):
    store.write(RECORD)
    store.latch(RECORD)
    (store.folder / ".one.json.99.tmp").write_text("x")
    (store.folder / "gone.ready").write_text("x")
    (store.folder / "gone.launching").write_text("x")
    store.sweep()
    assert sorted(path.name for path in store.folder.iterdir()) == ["one.json", "one.ready", "placement.lock"]


def test_a_folder_that_is_a_link_or_a_file_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreError, match="is a link"):
        InstanceStore(tmp_path / "link", SystemClock())
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        InstanceStore(tmp_path / "file", SystemClock())


def test_a_link_in_the_place_of_a_lock_is_refused(store, tmp_path):
    (tmp_path / "victim").write_text("keep")
    (store.folder / "placement.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match=r"placement\.lock"):
        with store.locked():
            pass
    assert (tmp_path / "victim").read_text() == "keep"
