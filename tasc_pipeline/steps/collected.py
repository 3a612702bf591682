"""What a window's journal says about every planned execution, as the rows of the warehouse want it.

A window may have a hundred thousand executions. What the journal holds of each is kept as bytes in a spool; the
``Execution`` with its parsed records is made at each pass over them and dropped again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import orjson

from tasc_collector.contracts.base import Record
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.fault import CollectorFault
from tasc_collector.contracts.sets import trace_set_digest
from tasc_collector.contracts.timeline import TraceTimeline
from tasc_collector.errors import JournalCorrupt
from tasc_collector.journal import JournalBinding, JournalRecord, RecordKind, scan
from tasc_collector.shadow.executions import PlannedPair, planned_pairs
from tasc_collector.shadow.keys import ExecutionKey
from tasc_collector.shadow.ledger import Ledger, is_warm_up
from tasc_collector.shadow.reading import LAST
from tasc_pipeline.steps.approved import ApprovedPlan
from tasc_pipeline.steps.spool import Span, Spool, spans_of
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.rows import Execution, TargetFacts
from tasc_pipeline.warehouse.schemas import get_table

_WRAPPED = (b'{"trace":', b"}")
"""What stands around the canonical envelope in the body of its record."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The final executions of a window."""

    executions: Executions
    trace_digests: tuple[str, ...]
    pending: int
    """Planned executions that are not final."""

    @property
    def trace_set_digest(self) -> str:
        """Digest over the accepted envelopes."""
        return trace_set_digest(self.trace_digests)


class _Held(NamedTuple):
    """What is kept of one execution: an envelope with its timeline, or a fault, as bytes of JSON in the spool."""

    pair: PlannedPair
    profile_id: str
    trace_id: str
    """Empty where there is no envelope."""
    envelope: Span | None
    trace_digest: str | None
    timed: Span | None
    fault: Span | None


def _trace(held: _Held) -> str:
    return held.trace_id


R = TypeVar("R", bound=Record)


class _Read(Protocol):
    """How bytes become a record."""

    def __call__(self, kind: type[R], data: bytes, /) -> R: ...


def _strictly(kind: type[R], data: bytes) -> R:
    return kind.from_value(orjson.loads(data), where="journal").record


def _again(kind: type[R], data: bytes) -> R:
    return kind.read_own(data, where="journal")


class Executions(Sequence[Execution]):
    """The final executions of a window in the plan's order; each is made when it is asked for.

    Args:
        approved: the window's plan.
        spool: where the bytes lie.
    """

    def __init__(self, approved: ApprovedPlan, spool: Spool) -> None:
        plan = approved.plan.record
        self._spool = spool
        self._held: list[_Held] = []
        self._entries = {entry.case_id: entry for entry in approved.case_set.entries}
        self._facts = {target.profile_id: TargetFacts.of(target) for target in plan.targets}
        self._window_key, self._study_id = approved.window_key, plan.study_id

    def add(self, held: _Held) -> Execution:
        """Keep one more; returns it, read strictly, so that a record that breaks a rule is found now.

        Raises:
            InputError: a record breaks its schema.
        """
        made = self._made(held, _strictly)
        self._held.append(held)
        return made

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Execution]:
        return map(self._made, self._held)

    @overload
    def __getitem__(self, index: int) -> Execution: ...
    @overload
    def __getitem__(self, index: slice) -> list[Execution]: ...
    def __getitem__(self, index: int | slice) -> Execution | list[Execution]:
        if isinstance(index, slice):
            return list(map(self._made, self._held[index]))
        return self._made(self._held[index])

    def stored_envelopes(self, places: Sequence[int]) -> Callable[[Sequence[int]], list[memoryview]]:
        """A reader of canonical envelopes, unparsed.

        Args:
            places: of executions that have one; the reader is asked for places among these.
        """
        spans = spans_of(self._held[place].envelope for place in places)
        return lambda wanted: self._spool.get_many(spans[wanted])

    def sorted_for(self, table: str) -> Iterator[Execution]:
        """The executions in the order in which a table of ``FROM_JOURNAL`` sorts its rows."""
        by_trace = "trace_id" in get_table(table).sort_by
        return map(self._made, sorted(self._held, key=_trace if by_trace else self._place))

    def _place(self, held: _Held) -> tuple[str, str, str, int]:
        return self._facts[held.profile_id].role, held.profile_id, held.pair.case_id, held.pair.replicate_index

    def _made(self, held: _Held, read: _Read = _again) -> Execution:
        pair, entry = held.pair, self._entries[held.pair.case_id]
        common: dict[str, Any] = {  # Any: arguments of Execution
            "window_key": self._window_key,
            "study_id": self._study_id,
            "target": self._facts[held.profile_id],
            "case_id": pair.case_id,
            "group_id": pair.group_id,
            "replicate": pair.replicate_index,
            "replicate_id": pair.replicate_id,
            "length_bucket": entry.length_bucket,
            "slices": entry.slices,
            "weight": entry.weight,
            "input_token_estimate": entry.input_token_estimate,
        }
        if held.fault is not None:
            fault = read(CollectorFault, self._spool.get(held.fault))
            if fault.replicate_index != pair.replicate_index:
                raise _corrupt("a fault names another replicate than the plan")
            return Execution(**common, trace_id=fault.trace_id, fault=fault)
        envelope_bytes = b"{}" if held.envelope is None else self._spool.get(held.envelope)
        envelope = read(TraceEnvelope, envelope_bytes)
        if (envelope.case_id, envelope.replicate_id, envelope.profile_id) != (
            pair.case_id,
            pair.replicate_id,
            held.profile_id,
        ):
            raise _corrupt("an envelope names another execution than its intent")
        return Execution(
            **common,
            trace_id=envelope.trace_id,
            envelope=envelope,
            envelope_bytes=envelope_bytes,
            trace_digest=held.trace_digest,
            timeline=None if held.timed is None else _timeline(envelope, held, self._spool.get(held.timed), read),
        )


def _timeline(envelope: TraceEnvelope, held: _Held, timed: bytes, read: _Read) -> TraceTimeline | None:
    """The timeline, where it is the last attempt's."""
    attempt_id, draft = orjson.loads(timed)
    if attempt_id != envelope.attempts[-1].attempt_id:
        return None
    own = {
        "version": "tasc-trace-timeline-v1",
        "traceId": envelope.trace_id,
        "traceDigest": held.trace_digest,
        "attemptId": attempt_id,
    }
    return read(TraceTimeline, orjson.dumps({**own, **draft}))


def read_collected(approved: ApprovedPlan, folder: Path, journal_key: bytes) -> Collected:
    """Read the journal once and pair it with the plan.

    Raises:
        JournalCorrupt: a byte is wrong, or records fit no order of the runner.
        InputError: a record breaks its schema.
        SpoolFailed: the disk takes no more.
    """
    plan = approved.plan.record
    binding = JournalBinding(
        plan.study_id, plan.protocol_digest, plan.digest, plan.window_key, 0, plan.declaration_digest
    )
    bodies = _Bodies(folder)
    with telling(approved, "reading the journal") as each:
        bodies.read(scan(folder, binding, journal_key), each)
    executions, digests, pending = Executions(approved, bodies.spool), [], 0
    pairs = _planned(approved)
    tell = counted("reading executions", sum(len(pair.order) for pair in pairs))
    for pair in pairs:
        for key in pair.executions():
            held = bodies.of(key, pair)
            if held is None:
                pending += 1
            elif executions.add(held).trace_digest is not None:
                digests.append(held.trace_digest or "")
            tell(1)
    return Collected(executions, tuple(digests), pending)


@contextmanager
def telling(approved: ApprovedPlan, what: str) -> Iterator[Callable[[JournalRecord], None]]:
    """Tell how far a pass over a window's journal is, in planned executions: how many of it are final already.

    Args:
        approved: the window's plan.
        what: what the pass does, for ``counted``.

    Yields:
        A function to call with each record.
    """
    left = sum(len(pair.order) for pair in _planned(approved))
    tell = counted(what, left)

    def each(record: JournalRecord) -> None:
        nonlocal left
        if record.kind in LAST:
            left -= 1
            tell(1)

    yield each
    tell(left)  # the rest is not final, and the pass is over


def _planned(approved: ApprovedPlan) -> list[PlannedPair]:
    return list(planned_pairs(approved.plan.record, approved.collected_under, approved.case_set))


class _Bodies:
    """The bodies that rows need, by execution; the fold of the ledger checks their order."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder)
        self._accepted: dict[ExecutionKey, tuple[str, Span]] = {}
        self._timed: dict[str, Span] = {}
        self._faults: dict[ExecutionKey, Span] = {}

    def of(self, key: ExecutionKey, pair: PlannedPair) -> _Held | None:
        """What the journal holds of one execution; None where it is not final."""
        trace_id, envelope = self._accepted.pop(key, ("", None))
        if envelope is not None:
            digest = TraceEnvelope.digest_of(orjson.loads(self.spool.get(envelope)))
            timed = self._timed.pop(trace_id, None)
            return _Held(pair, key.profile_id, trace_id, envelope, digest, timed, None)
        fault = self._faults.pop(key, None)
        return None if fault is None else _Held(pair, key.profile_id, "", None, None, None, fault)

    def read(self, records: Iterable[JournalRecord], each: Callable[[JournalRecord], None]) -> None:
        ledger = Ledger()
        for record in records:
            each(record)
            ledger.apply(record)
            if record.kind is RecordKind.ACCEPTED:
                before, after = _WRAPPED
                if not record.body_bytes.startswith(before):
                    raise _corrupt("an accepted record holds no trace")
                key = ledger.by_trace[record.trace_id].key
                self._accepted[key] = record.trace_id, self.spool.put(record.body_bytes[len(before) : -len(after)])
            elif record.kind is RecordKind.OUTCOME and not is_warm_up(record.trace_id):
                body: dict[str, Any] = record.body  # Any: JSON of our own runner, MAC verified
                if body["timeline"] is not None:
                    timed = orjson.dumps((body["attempt"]["attemptId"], body["timeline"]))
                    self._timed[record.trace_id] = self.spool.put(timed)
            elif record.kind is RecordKind.FAULT:
                fault: dict[str, Any] = record.body  # Any: the same
                key = ExecutionKey(fault["caseId"], fault["replicateId"], fault["profileId"])
                self._faults[key] = self.spool.put(record.body_bytes)


def _corrupt(what: str) -> JournalCorrupt:
    return JournalCorrupt(what, where="journal", way_out="compare the folder with a backup")
