"""What a window's journal says about every planned execution, as the rows of the warehouse want it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.fault import CollectorFault
from tasc_collector.contracts.sets import trace_set_digest
from tasc_collector.contracts.timeline import TraceTimeline
from tasc_collector.errors import JournalCorrupt
from tasc_collector.journal import JournalBinding, JournalRecord, RecordKind, scan
from tasc_collector.shadow.executions import PlannedPair, planned_pairs
from tasc_collector.shadow.keys import ExecutionKey
from tasc_collector.shadow.ledger import Ledger, is_warm_up
from tasc_pipeline.steps.plan import ApprovedPlan
from tasc_pipeline.warehouse.rows import Execution, TargetFacts


@dataclass(frozen=True, slots=True)
class Collected:
    """The final executions of a window."""

    executions: tuple[Execution, ...]
    trace_digests: tuple[str, ...]
    pending: int
    """Planned executions that are not final."""

    @property
    def trace_set_digest(self) -> str:
        """Digest over the accepted envelopes."""
        return trace_set_digest(self.trace_digests)


def read_collected(approved: ApprovedPlan, folder: Path, journal_key: bytes) -> Collected:
    """Read the journal once and pair it with the plan.

    Raises:
        JournalCorrupt: a byte is wrong, or records fit no order of the runner.
    """
    plan = approved.plan.record
    binding = JournalBinding(
        plan.study_id, plan.protocol_digest, plan.digest, plan.window_key, 0, plan.declaration_digest
    )
    bodies = _Bodies()
    bodies.read(scan(folder, binding, journal_key))
    entries = {entry.case_id: entry for entry in approved.case_set.entries}
    facts = {target.profile_id: TargetFacts.of(target) for target in plan.targets}
    executions: list[Execution] = []
    digests: list[str] = []
    pending = 0
    for pair in planned_pairs(plan, approved.declaration.record, approved.case_set):
        entry = entries[pair.case_id]
        for key in pair.executions():
            common = {
                "window_key": plan.window_key,
                "study_id": plan.study_id,
                "target": facts[key.profile_id],
                "case_id": pair.case_id,
                "group_id": pair.group_id,
                "replicate": pair.replicate_index,
                "replicate_id": pair.replicate_id,
                "length_bucket": entry.length_bucket,
                "slices": entry.slices,
                "weight": entry.weight,
                "input_token_estimate": entry.input_token_estimate,
            }
            envelope = bodies.accepted.get(key)
            if envelope is not None:
                execution = _accepted(common, envelope, bodies.timelines.get(envelope["traceId"]))
                digests.append(execution.trace_digest or "")
                executions.append(execution)
            elif (fault := bodies.faults.get(key)) is not None:
                executions.append(_faulted(common, pair, fault))
            else:
                pending += 1
    return Collected(tuple(executions), tuple(digests), pending)


class _Bodies:
    """The bodies that rows need, by execution; the fold of the ledger checks their order."""

    def __init__(self) -> None:
        self.accepted: dict[ExecutionKey, dict[str, Any]] = {}  # Any: envelopes as JSON
        self.timelines: dict[str, tuple[str, dict[str, Any]]] = {}  # Any: timeline drafts as JSON
        self.faults: dict[ExecutionKey, dict[str, Any]] = {}  # Any: faults as JSON

    def read(self, records: Iterable[JournalRecord]) -> None:
        ledger = Ledger()
        for record in records:
            ledger.apply(record)
            body: dict[str, Any] = record.body  # Any: JSON of our own runner, MAC verified
            if record.kind is RecordKind.ACCEPTED:
                trace = body["trace"]
                self.accepted[ExecutionKey(trace["caseId"], trace["replicateId"], trace["profileId"])] = trace
            elif record.kind is RecordKind.OUTCOME and not is_warm_up(record.trace_id) and body["timeline"] is not None:
                self.timelines[record.trace_id] = (body["attempt"]["attemptId"], body["timeline"])
            elif record.kind is RecordKind.FAULT:
                self.faults[ExecutionKey(body["caseId"], body["replicateId"], body["profileId"])] = body


def _accepted(
    common: dict[str, Any], value: dict[str, Any], timed: tuple[str, dict[str, Any]] | None
) -> Execution:  # Any: JSON objects
    envelope = TraceEnvelope.from_value(value, where="journal").record
    trace_digest = TraceEnvelope.digest_of(value)
    timeline = None
    if timed is not None and timed[0] == envelope.attempts[-1].attempt_id:
        draft = {
            "version": "tasc-trace-timeline-v1",
            "traceId": envelope.trace_id,
            "traceDigest": trace_digest,
            "attemptId": timed[0],
            **timed[1],
        }
        timeline = TraceTimeline.from_value(draft, where="journal").record
    return Execution(
        **common,
        trace_id=envelope.trace_id,
        envelope=envelope,
        envelope_bytes=canonical_bytes(value),
        trace_digest=trace_digest,
        timeline=timeline,
    )


def _faulted(common: dict[str, Any], pair: PlannedPair, value: dict[str, Any]) -> Execution:  # Any: JSON objects
    fault = CollectorFault.from_value(value, where="journal").record
    if fault.replicate_index != pair.replicate_index:
        raise JournalCorrupt(
            "a fault names another replicate than the plan", where="journal", way_out="compare the folder with a backup"
        )
    return Execution(**common, trace_id=fault.trace_id, fault=fault)
