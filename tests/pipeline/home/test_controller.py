"""The controller's log on a real disk: durable, idempotent, one writer, every kind of damage refused by its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasc_collector.errors import DigestMismatch, InputError, JournalCorrupt, JournalLocked, NotAuthorized
from tasc_collector.journal import Journal, LogBinding
from tasc_pipeline.home.controller import ANCHOR, ControllerLog, read_anchor
from tests.support import controller_chain as c

KEY = bytes(range(32))
SEGMENT = "segment-000001.tjl"


@pytest.fixture
def log(tmp_path: Path) -> ControllerLog:
    return ControllerLog(tmp_path / "controller", c.genesis(), KEY)


def filled(log: ControllerLog, state: str = "NOMINATED") -> ControllerLog:
    for fact in c.WALKS[state]:
        log.record(fact, c.AT)
    return log


def test_a_log_that_is_gone_is_seen_by_its_anchor(log: ControllerLog) -> None:
    filled(log)
    (log.folder / SEGMENT).unlink()
    with pytest.raises(DigestMismatch, match="the log ends at event 0, the anchor is at 4"):
        log.read()


def test_a_new_controller_is_a_draft_without_a_file(log: ControllerLog) -> None:
    assert log.read().current == c.genesis()
    assert not log.folder.exists()


def test_what_is_recorded_is_read_again_by_another_process(log: ControllerLog) -> None:
    filled(log, "MONITORING")
    chain = ControllerLog(log.folder, c.genesis(), KEY).read()
    assert chain.current == c.reached("MONITORING")
    assert read_anchor(log.anchor_path) == chain.current.anchor
    assert [event.sequence for event in chain.events] == list(range(1, 10))


def test_a_fact_is_recorded_once(log: ControllerLog) -> None:
    filled(log)
    before = (log.folder / SEGMENT).read_bytes()
    again = log.record(c.STARTED, c.AT)
    assert (again.new, again.event.sequence) == (False, 2)
    assert (log.folder / SEGMENT).read_bytes() == before


def test_a_refused_fact_writes_nothing(log: ControllerLog) -> None:
    with pytest.raises(NotAuthorized, match="is taken in REGISTERED; the controller is in DRAFT"):
        log.record(c.STARTED, c.AT)
    assert not log.folder.exists()
    filled(log)
    before = {path.name: path.read_bytes() for path in log.folder.iterdir()}
    with pytest.raises(NotAuthorized, match="the one that was nominated"):
        log.record(c.SHADOW.model_copy(update={"frozen_policy_digest": c.d(99)}), c.AT)
    assert {path.name: path.read_bytes() for path in log.folder.iterdir()} == before


def test_one_process_records_at_a_time(log: ControllerLog) -> None:
    filled(log)
    binding = LogBinding("study", c.PROTOCOL, "controller")
    with Journal.open(log.folder, binding, KEY):
        with pytest.raises(JournalLocked):
            log.record(c.SHADOW, c.AT)
    assert log.record(c.SHADOW, c.AT).new


def test_a_torn_write_at_the_end_is_cut(log: ControllerLog) -> None:
    chain = filled(log).read()
    segment = log.folder / SEGMENT
    data = segment.read_bytes()
    last = data.rindex(b'{"event"')
    segment.write_bytes(data[: last + 40])
    log.anchor_path.unlink()  # the anchor is written after the event is durable: a torn event has none
    assert log.read().current == chain.snapshots[-2]
    assert log.record(c.development(), c.AT).new
    assert log.read().current == chain.current


def test_a_missing_event_at_the_end_is_seen_by_the_anchor(log: ControllerLog) -> None:
    filled(log)
    segment = log.folder / SEGMENT
    data = segment.read_bytes()
    segment.write_bytes(data[: data.rindex(b'{"event"') + 40])
    for attempt in (log.read, lambda: log.record(c.SHADOW, c.AT)):
        with pytest.raises(DigestMismatch, match="the log ends at event 3, the anchor is at 4"):
            attempt()


def test_an_anchor_that_lags_is_right_and_is_written_again(log: ControllerLog) -> None:
    filled(log, "DEV_READY")
    old = log.anchor_path.read_bytes()
    log.record(c.development(), c.AT)
    log.anchor_path.write_bytes(old)  # as after a crash between the event and its anchor
    assert log.read().current.state == "NOMINATED"
    log.record(c.SHADOW, c.AT)
    assert read_anchor(log.anchor_path).sequence == 5


def test_a_changed_byte_in_the_middle_stops_with_its_offset(log: ControllerLog) -> None:
    filled(log)
    segment = log.folder / SEGMENT
    data = bytearray(segment.read_bytes())
    place = data.index(b"collection-1")
    data[place] ^= 1
    segment.write_bytes(data)
    for attempt in (log.read, lambda: log.record(c.SHADOW, c.AT)):
        with pytest.raises(JournalCorrupt) as caught:
            attempt()
        assert caught.value.offset is not None and caught.value.offset < place


def test_what_looks_like_damage_while_another_process_writes_is_that_process(log: ControllerLog) -> None:
    filled(log)
    segment = log.folder / SEGMENT
    data = segment.read_bytes()
    with Journal.open(log.folder, LogBinding("study", c.PROTOCOL, "controller"), KEY):
        segment.write_bytes(data.replace(b"collection-1", b"collection-2"))
        with pytest.raises(JournalLocked, match="is being written by process"):
            log.read()
        segment.write_bytes(data)
    assert log.read().current.state == "NOMINATED"


def test_another_key_another_protocol_and_another_history_are_refused(log: ControllerLog) -> None:
    filled(log)
    with pytest.raises(JournalCorrupt):
        replace(log, key=bytes(32)).read()
    with pytest.raises(DigestMismatch):
        replace(log, genesis=c.genesis(protocol_digest=c.d(99))).read()
    with pytest.raises(DigestMismatch, match="of another protocol"):
        replace(log, genesis=c.genesis(expires_at="2026-09-02T00:00:00.000Z")).read()
    anchor = json.loads(log.anchor_path.read_bytes())
    log.anchor_path.write_text(json.dumps({**anchor, "snapshotDigest": c.d(99)}))
    with pytest.raises(DigestMismatch, match="event and snapshot at the anchor's number"):
        log.read()
    log.anchor_path.write_text(json.dumps({**anchor, "sequence": 0}))
    with pytest.raises(InputError, match="lastEventId is null exactly in sequence 0"):
        log.read()
    assert log.anchor_path.name == ANCHOR
