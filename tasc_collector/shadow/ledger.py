"""What the journal says about every planned execution: a pure fold over its records.

Rules (the only states and moves there are):

1. ``planned`` -> ``intent`` -> ``leased`` -> ``outcome`` -> ``accepted`` -> ``complete``; each is one journal record.
2. A lease without an outcome means *may have been sent*. It is never leased again; settlement gives it the outcome
   ``sent_unknown``.
3. An outcome ``not_sent`` may be followed by another lease, while attempts are left. No other outcome may.
4. ``fault`` ends an execution that was certainly not sent or never attempted; it has no envelope.
5. Every run of the window writes an ``admission`` before its first lease. It changes no execution; it names the host on
   which the leases after it were made.
6. A record that fits none of these moves is corruption, not something to be repaired.

``accepted``, ``complete`` and ``fault`` are final; counting them over the planned executions always adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from tasc_collector.errors import DispatchState, JournalCorrupt
from tasc_collector.journal import JournalRecord, RecordKind
from tasc_collector.shadow.keys import ExecutionKey


class Stage(StrEnum):
    """How far an execution came."""

    PLANNED = "planned"
    INTENT = "intent"
    LEASED = "leased"
    OUTCOME = "outcome"
    ACCEPTED = "accepted"
    COMPLETE = "complete"
    FAULT = "fault"


FINAL = frozenset({Stage.ACCEPTED, Stage.COMPLETE, Stage.FAULT})


@dataclass(slots=True)
class Progress:
    """Small state of one execution; bodies stay in the journal."""

    key: ExecutionKey
    trace_id: str
    stage: Stage = Stage.PLANNED
    leases: int = 0
    last_state: DispatchState | None = None
    """Dispatch state of the newest outcome."""
    final_state: str = ""
    """``success``, ``failure``, ``sent_unknown``, ``not_sent`` or ``not_attempted`` once final."""
    reason: str = ""


@dataclass(slots=True)
class OpenExecution:
    """Bodies that an unfinished execution still needs; dropped when it is final, so that memory stays small."""

    intent: dict[str, Any]  # Any: the signed envelope fields up to the dispatch intent
    replicate_index: int
    group_id: str
    attempts: list[dict[str, Any]] = field(default_factory=list)  # Any: attempt blocks
    terminal_output_id: dict[str, Any] | None = None  # Any: a keyed identity
    lease: dict[str, Any] | None = None  # Any: the newest lease, while it has no outcome
    admission: int = 0
    """Which admission stood before the newest lease, counted from 1."""
    code: str | None = None
    """Why the newest outcome was no success, below the dialect."""


class Entry(NamedTuple):
    """What the fold reads of a record, whether it comes from the file or was just written."""

    kind: RecordKind
    trace_id: str
    body: Mapping[str, Any]  # Any: JSON written by our own runner, MAC verified
    sequence: int
    offset: int | None


@dataclass(slots=True)
class Ledger:
    """Progress of every execution that the journal mentions."""

    executions: dict[ExecutionKey, Progress] = field(default_factory=dict)
    by_trace: dict[str, Progress] = field(default_factory=dict)
    open: dict[str, OpenExecution] = field(default_factory=dict)
    warm_up_leased: set[str] = field(default_factory=set)
    hosts: list[str] = field(default_factory=list)
    """Host of every admission in order; empty where the record does not tell (none of them did at first)."""
    closed: bool = False

    def apply(self, record: JournalRecord) -> None:
        """Fold one record in.

        Raises:
            JournalCorrupt: the record fits no move of this module's rules.
        """
        body = {} if record.kind in _UNREAD else record.body
        _MOVES[record.kind](self, Entry(record.kind, record.trace_id, body, record.sequence, record.offset))

    def note(
        self, kind: RecordKind, trace_id: str, body: Mapping[str, Any], sequence: int
    ) -> None:  # Any: a JSON object
        """Fold in a record that this process has just written."""
        _MOVES[kind](self, Entry(kind, trace_id, body, sequence, None))

    def unfinished(self) -> list[Progress]:
        """Executions that the journal mentions and that are not final."""
        return [progress for progress in self.executions.values() if progress.stage not in FINAL]

    def leased_on(self, trace_id: str, last_owner_host: str) -> str:
        """Host of an open lease's sender; empty where it is not known. Ask before this run's own admission is folded in.

        Args:
            trace_id: an execution whose lease has no outcome.
            last_owner_host: what the lock file said. It is of the newest admission's run only, and counts where that
                admission does not tell its host.
        """
        number = self.open[trace_id].admission
        host = self.hosts[number - 1] if number else ""
        return host or (last_owner_host if number == len(self.hosts) else "")


def fold(records: Iterable[JournalRecord]) -> Ledger:
    """The ledger after all records."""
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def _bad(record: Entry, what: str) -> JournalCorrupt:
    return JournalCorrupt(
        f"record {record.sequence} ({record.kind}) {what}",
        where="journal",
        offset=record.offset,
        way_out="keep the folder as it is and compare it with a backup; nothing will be sent from it",
    )


def _known(ledger: Ledger, record: Entry, *stages: Stage) -> Progress:
    progress = ledger.by_trace.get(record.trace_id)
    if progress is None:
        raise _bad(record, "has no intent")
    if progress.stage not in stages:
        raise _bad(record, f"cannot follow stage {progress.stage}")
    return progress


def is_warm_up(trace_id: str) -> bool:
    """True for the ids of warm-up calls, which are journaled and never scored."""
    return trace_id.startswith("warmup-")


def _intent(ledger: Ledger, record: Entry) -> None:
    if is_warm_up(record.trace_id):
        return
    body = record.body
    key = ExecutionKey(body["caseId"], body["replicateId"], body["profileId"])
    if key in ledger.executions or record.trace_id in ledger.by_trace:
        raise _bad(record, "repeats an execution")
    progress = Progress(key, record.trace_id, Stage.INTENT)
    ledger.executions[key] = ledger.by_trace[record.trace_id] = progress
    ledger.open[record.trace_id] = OpenExecution(body["trace"], body["replicateIndex"], body["groupId"])


def _lease(ledger: Ledger, record: Entry) -> None:
    if is_warm_up(record.trace_id):
        if record.trace_id in ledger.warm_up_leased:
            raise _bad(record, "repeats a lease")
        ledger.warm_up_leased.add(record.trace_id)
        return
    progress = _known(ledger, record, Stage.INTENT, Stage.OUTCOME)
    if progress.stage is Stage.OUTCOME and progress.last_state is not DispatchState.NOT_SENT:
        raise _bad(record, "leases an execution that may have been sent")
    progress.stage, progress.leases = Stage.LEASED, progress.leases + 1
    open_ = ledger.open[record.trace_id]
    open_.lease, open_.admission = dict(record.body), len(ledger.hosts)


def _outcome(ledger: Ledger, record: Entry) -> None:
    if is_warm_up(record.trace_id):
        return
    # An attempt that failed before its lease has an outcome without one: it is proved not sent.
    progress = _known(ledger, record, Stage.LEASED, Stage.INTENT, Stage.OUTCOME)
    attempt = record.body["attempt"]
    state = DispatchState(attempt["dispatchState"])
    if progress.stage is not Stage.LEASED and state is not DispatchState.NOT_SENT:
        raise _bad(record, "says sent without a lease")
    progress.stage, progress.last_state = Stage.OUTCOME, state
    progress.final_state = "sent_unknown" if state is DispatchState.SENT_UNKNOWN else str(attempt["status"])
    progress.reason = str(attempt["failureCategory"] or "")
    open_ = ledger.open[record.trace_id]
    open_.attempts.append(attempt)
    open_.terminal_output_id, open_.lease, open_.code = record.body["terminalOutputId"], None, record.body.get("code")


def _accepted(ledger: Ledger, record: Entry) -> None:
    progress = _known(ledger, record, Stage.OUTCOME)
    if progress.last_state is DispatchState.NOT_SENT:
        raise _bad(record, "accepts an execution that was not sent")
    progress.stage = Stage.ACCEPTED
    ledger.open.pop(record.trace_id, None)
    if progress.final_state == "aborted":
        progress.final_state = "failure"


def _complete(ledger: Ledger, record: Entry) -> None:
    _known(ledger, record, Stage.ACCEPTED).stage = Stage.COMPLETE


def _fault(ledger: Ledger, record: Entry) -> None:
    body = record.body
    key = ExecutionKey(body["caseId"], body["replicateId"], body["profileId"])
    progress = ledger.executions.get(key)
    if progress is None:
        progress = ledger.executions[key] = Progress(key, body["traceId"] or "")
    elif progress.stage not in (Stage.INTENT, Stage.OUTCOME) or progress.last_state not in (
        None,
        DispatchState.NOT_SENT,
    ):
        raise _bad(record, f"cannot follow stage {progress.stage}")
    progress.stage, progress.final_state, progress.reason = Stage.FAULT, str(body["state"]), str(body["reason"])
    ledger.open.pop(progress.trace_id, None)


def _settlement(ledger: Ledger, record: Entry) -> None:
    ledger.closed = bool(record.body["closed"])


def _admission(ledger: Ledger, record: Entry) -> None:
    ledger.hosts.append(str(record.body.get("host") or ""))


def _stray(_: Ledger, record: Entry) -> None:
    raise _bad(record, "is of a study's own log and not of a window")


_UNREAD = frozenset({RecordKind.ACCEPTED, RecordKind.COMPLETE})
"""Kinds whose bodies no move looks at; envelopes are most of a journal's bytes, and a resume need not parse them."""
_MOVES = {
    RecordKind.ADMISSION: _admission,
    RecordKind.INTENT: _intent,
    RecordKind.LEASE: _lease,
    RecordKind.OUTCOME: _outcome,
    RecordKind.ACCEPTED: _accepted,
    RecordKind.COMPLETE: _complete,
    RecordKind.FAULT: _fault,
    RecordKind.SETTLEMENT: _settlement,
    RecordKind.EVENT: _stray,
}
