"""A study's controller on disk: an append-only log with checkpoint anchors under ``studies/<study>/controller/``.

Rules:

1. The log is a journal (``tasc_collector.journal``): chained, authenticated, one writer at a time by its lock, a torn
   write at its end is cut, any other damage stops with the offset. Its first record is the genesis, each later one an
   event with the digest of the snapshot that it led to.
2. The state is what the log says and nothing else: every reading replays it from the first record.
3. ``anchor.json`` pins the newest snapshot beside the log and is written after the event is durable. A log that does
   not pass through its anchor (events missing at its end, another history) is refused; one that goes beyond it, as
   after a crash between the two, is right, and the next event writes the anchor again.
4. A fact that was recorded before is not recorded again: the answer names the event that did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contracts.controller import ControllerAnchor, ControllerEvent, ControllerSnapshot, fact_digest
from tasc_collector.contracts.controller_facts import ControllerFact
from tasc_collector.errors import DigestMismatch, InputError, JournalCorrupt, JournalLocked
from tasc_collector.journal import (
    Journal,
    JournalRecord,
    LogBinding,
    OsFileSystem,
    RecordKind,
    held_by,
    journal_exists,
    scan,
)
from tasc_collector.limits import JOURNAL_RECORD_MAX_BYTES
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.control.controller import extend
from tasc_pipeline.control.controller_replay import Chain, check_anchor, replay
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy

ANCHOR: Final = "anchor.json"
GROW_BYTES: Final = 256 * 1024
"""Step in which the log's space is reserved: an event has one to a few KiB."""
SEGMENT_BYTES: Final = 2 * JOURNAL_RECORD_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Recorded:
    """A fact's event and the chain that it stands in."""

    event: ControllerEvent
    chain: Chain
    new: bool
    """False where the fact had been recorded before and nothing was written."""


@dataclass(frozen=True, slots=True)
class ControllerLog:
    """The log of one controller; see the rules of this module.

    Args:
        folder: where it is kept; made with the first fact.
        genesis: the empty DRAFT that it starts from.
        key: the journal key.
    """

    folder: Path
    genesis: ControllerSnapshot
    key: bytes = field(repr=False)

    @property
    def anchor_path(self) -> Path:
        """File of the anchor."""
        return self.folder / ANCHOR

    def read(self) -> Chain:
        """The controller as its log says; the genesis alone where nothing was recorded yet.

        Raises:
            InputError: the log does not add up, is of another protocol, or misses its anchor.
            JournalLocked: another process is writing, and what is there so far cannot be told from damage.
            JournalError: it is damaged or cannot be read.
        """
        anchor = self._anchor()  # before the log: an event that is recorded meanwhile only makes the log longer
        found = journal_exists(self.folder)
        try:
            chain = _chain_of(scan(self.folder, self._binding, self.key) if found else (), self.genesis)
        except JournalCorrupt:
            holder = held_by(OsFileSystem(), self.folder)
            if holder is None:
                raise
            raise JournalLocked(
                f"the controller's log is being written by {holder}", where=self.genesis.study_id, way_out="try again"
            ) from None
        return _anchored(chain, anchor)

    def record(self, fact: ControllerFact, at: str) -> Recorded:
        """Take a fact, durably, or say that it was taken before.

        Args:
            fact: what was learnt.
            at: the instant of recording.

        Raises:
            NotAuthorized: the controller does not take it in this state; names the rule, nothing was written.
            InputError: as ``read``.
            JournalLocked: another process is recording a fact.
            JournalError: the log is damaged or could not be written.
        """
        known = self._recorded(self.read(), fact, at)
        if known is not None:
            return known
        make_folder(self.folder)
        read: list[JournalRecord] = []
        with Journal.open(
            self.folder,
            self._binding,
            self.key,
            on_record=read.append,
            segment_bytes=SEGMENT_BYTES,
            grow_bytes=GROW_BYTES,
        ) as journal:
            chain = _anchored(_chain_of(read, self.genesis), self._anchor())
            known = self._recorded(chain, fact, at)
            if known is not None:
                return known
            step = extend(chain.current, fact, at)
            if not read:
                journal.append_sync(RecordKind.EVENT, "", {"genesis": self.genesis.to_json()})
            body: dict[str, JsonValue] = {
                "event": step.event.to_json(),
                "snapshotDigest": step.snapshot.snapshot_digest,
            }
            journal.append_sync(RecordKind.EVENT, step.event.event_id, body)
            write_file(self.anchor_path, step.snapshot.anchor.canonical(), replace=True)
            return Recorded(step.event, chain.extended(step.event), new=True)

    @property
    def _binding(self) -> LogBinding:
        return LogBinding(self.genesis.study_id, self.genesis.protocol_digest, "controller")

    def _recorded(self, chain: Chain, fact: ControllerFact, at: str) -> Recorded | None:
        """Rule 4; a fact that is neither known nor allowed is refused here, before anything is made on the disk."""
        before = chain.event_of(fact_digest(fact))
        if before is None:
            extend(chain.current, fact, at)
            return None
        return Recorded(before, chain, new=False)

    def _anchor(self) -> ControllerAnchor | None:
        return read_anchor(self.anchor_path) if self.anchor_path.exists() else None


def controller_log(home: Home, loaded: LoadedStudy) -> ControllerLog:
    """The log of a decision study's controller.

    Raises:
        InputError: a comparison has no controller.
        SecretUnavailable: the journal key cannot be read.
    """
    study = loaded.study
    if loaded.protocol is None:
        raise InputError(
            "a comparison has no controller: it gives a verdict per window and promotes nothing",
            where=study.study_id,
            field="kind",
            way_out="see its verdicts with tasc status, or make a decision study: tasc study new --decision",
        )
    genesis = ControllerSnapshot.genesis(
        controller_id=f"{study.study_id[:117]}-controller",
        study_id=study.study_id,
        protocol_digest=loaded.protocol_digest,
        created_at=loaded.protocol.record.created_at,
        expires_at=loaded.protocol.record.expires_at,
    )
    return ControllerLog(
        home.study(study.study_id) / "controller", genesis, keys.hmac_key(home, study.keys.journal_hmac)
    )


def read_chain(home: Home, loaded: LoadedStudy) -> Chain:
    """The controller of a decision study, as its log says; see ``ControllerLog.read``."""
    return controller_log(home, loaded).read()


def read_anchor(path: Path) -> ControllerAnchor:
    """An anchor file."""
    return read_record_file(ControllerAnchor, path).record


def _anchored(chain: Chain, anchor: ControllerAnchor | None) -> Chain:
    if anchor is not None:
        check_anchor(chain, anchor)
    return chain


def _chain_of(records: Iterable[JournalRecord], genesis: ControllerSnapshot) -> Chain:
    """Replay a log's records, and compare every snapshot with the digest that was recorded."""
    events: list[ControllerEvent] = []
    digests: list[str] = []
    for number, item in enumerate(records):
        where = f"controller log, record {item.sequence} at offset {item.offset}"
        body = item.body
        if number == 0:
            found = ControllerSnapshot.from_value(_member(body, "genesis", where), where=where).record
            if found != genesis:
                raise DigestMismatch(
                    "the controller's log is of another protocol",
                    where=where,
                    field="genesis",
                    way_out="restore the study's protocol, or fork the study: tasc study fork",
                )
            continue
        events.append(ControllerEvent.from_value(_member(body, "event", where), where=where).record)
        digests.append(str(body.get("snapshotDigest")))
    chain = replay(genesis, events)
    wrong = next((n for n, found in enumerate(digests) if chain.snapshots[n + 1].snapshot_digest != found), None)
    if wrong is not None:
        raise DigestMismatch(
            "an event does not lead to the snapshot that was recorded with it",
            where="controller log",
            field=f"event {wrong + 1}",
            way_out="restore the controller's log from a copy, or read it with the build that wrote it",
        )
    return chain


def _member(body: dict[str, Any], name: str, where: str) -> dict[str, Any]:  # Any: JSON objects
    value = body.get(name)
    if not isinstance(value, dict):
        raise InputError(
            "this is no record of a controller's log",
            where=where,
            field=name,
            way_out="restore the controller's log from a copy",
        )
    return value
