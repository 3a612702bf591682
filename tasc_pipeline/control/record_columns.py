"""From signed records to the columns that are joined: envelopes to ``Executions``, checked evidence to ``Evidence``. Pure.

Times are the envelope's, in milliseconds, as the original project gates on them: imported traces have no timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tasc_collector.canonical import canonical_bytes, sha256_hex
from tasc_collector.contracts.attempt import Attempt, UnavailableCost
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence, Scored
from tasc_collector.contracts.evidence_trust import EvidenceReceipt
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import DispatchState
from tasc_pipeline.control.identifiers import id_column
from tasc_pipeline.control.joined_rows import SPLITS, STATUSES, Backing, Evidence, Executions, Outcome, State
from tasc_pipeline.control.trace_checks import ProtocolTerms

_COST_BACKING: Final = {
    "measured": Backing.MEASURED,
    "provider-reported": Backing.REPORTED,
    "modeled": Backing.MODELED,
    "unavailable": Backing.UNAVAILABLE,
}
_DECLARED: Final = {
    "scored": Outcome.SCORED,
    "abstained": Outcome.ABSTAINED,
    "missing": Outcome.MISSING,
    "invalid": Outcome.INVALID,
}


class ExecutionBlocks:
    """The columns of many envelopes, a block at a time: no envelope is held once it is in them.

    Args:
        protocol: whose profiles and slices they have.
    """

    def __init__(self, protocol: ExperimentProtocol) -> None:
        self._profile_ids = tuple(sorted(profile.id for profile in protocol.profiles))
        self._places = {profile_id: place for place, profile_id in enumerate(self._profile_ids)}
        self._critical = frozenset(protocol.critical_slices)
        self._blocks: list[dict[str, Any]] = []  # Any: numpy columns
        self._slices: list[tuple[str, ...]] = []

    def add(self, traces: Sequence[Parsed[TraceEnvelope]], digests: Sequence[str] | None = None) -> None:
        """Take envelopes that ``trace_checks`` has passed.

        Args:
            traces: in their order.
            digests: of each, where they are known.
        """
        if not traces:
            return
        records = [trace.record for trace in traces]
        known = digests or [TraceEnvelope.digest_of(trace.value) for trace in traces]
        times = [envelope_times_ms(record) for record in records]
        costs = [_cost(record.attempts) for record in records]
        self._slices += [record.slices for record in records]
        self._blocks.append(
            {
                "case_id": id_column(record.case_id for record in records),
                "replicate_id": id_column(record.replicate_id for record in records),
                "group_id": id_column(record.group_id for record in records),
                "profile": np.array([self._places[record.profile_id] for record in records], dtype=np.int64),
                "trace_id": id_column(record.trace_id for record in records),
                "trace_digest": id_column(digest[7:] for digest in known),
                "output_id": id_column(output_key(record.terminal_output_id) for record in records),
                "split": np.array([SPLITS.index(record.split) for record in records], dtype=np.int8),
                "state": np.array([_state(record) for record in records], dtype=np.int8),
                "succeeded": np.array([record.attempts[-1].status == "success" for record in records], dtype=bool),
                "weight": _numbers([record.workload.declared_traffic_weight for record in records]),
                "workload": id_column(_key(trace.value["workload"]) for trace in traces),
                "signal_key": id_column(_key(trace.value["routeSignal"]) for trace in traces),
                "policy": id_column(record.policy_digest for record in records),
                "window": id_column(_window(record) for record in records),
                "signal": _numbers(
                    [None if record.route_signal is None else record.route_signal.value for record in records]
                ),
                "ttft_ms": _numbers([ttft for ttft, _ in times]),
                "e2e_ms": _numbers([e2e for _, e2e in times]),
                "cost_usd": _numbers([amount for amount, _ in costs]),
                "cost_class": np.array([backing for _, backing in costs], dtype=np.int8),
                "completed_ms": np.array([timestamp_ms(record.completed_at) for record in records], dtype=np.int64),
            }
        )

    def done(self) -> Executions:
        """Everything that was taken, in its order."""
        names = sorted(self._critical.union(*self._slices))
        columns = {name: place for place, name in enumerate(names)}
        slices = np.zeros((len(self._slices), len(names)), dtype=bool)
        for row, own in enumerate(self._slices):
            slices[row, [columns[name] for name in own]] = True
        return Executions(
            profile_ids=self._profile_ids,
            slice_ids=tuple(names),
            slices=slices,
            **{name: np.concatenate([block[name] for block in self._blocks]) for name in self._blocks[0]}
            if self._blocks
            else _NO_EXECUTIONS,
        )


_TEXTS: Final = (
    "case_id",
    "replicate_id",
    "group_id",
    "trace_id",
    "trace_digest",
    "output_id",
    "workload",
    "signal_key",
    "policy",
    "window",
)
_NO_EXECUTIONS: Final[dict[str, Any]] = {  # Any: numpy columns
    **{name: np.zeros(0, dtype="S1") for name in _TEXTS},
    **{name: np.zeros(0, dtype=np.int64) for name in ("profile", "completed_ms")},
    **{name: np.zeros(0, dtype=np.int8) for name in ("split", "state", "cost_class")},
    **{name: np.zeros(0) for name in ("weight", "signal", "ttft_ms", "e2e_ms", "cost_usd")},
    "succeeded": np.zeros(0, dtype=bool),
}


def executions_of(traces: Sequence[Parsed[TraceEnvelope]], protocol: ExperimentProtocol) -> Executions:
    """The columns of envelopes that ``trace_checks`` has passed, in the order given."""
    blocks = ExecutionBlocks(protocol)
    blocks.add(traces)
    return blocks.done()


def envelope_times_ms(record: TraceEnvelope) -> tuple[int | None, int]:
    """TTFT (null without a first token) and E2E of an envelope, both from the first attempt's start."""
    started, token = timestamp_ms(record.event_time), record.attempts[-1].observer_timings.first_meaningful_token_at
    return None if token is None else timestamp_ms(token) - started, timestamp_ms(record.completed_at) - started


def evidence_of(receipts: Sequence[EvidenceReceipt], terms: ProtocolTerms) -> Evidence:
    """The columns of checked evidence, in the order given."""
    records = [receipt.evidence for receipt in receipts]
    pinned = set(terms.protocol.evaluator.required_trusted_key_ids)
    declared = [None if isinstance(item.outcome, Scored) else item.outcome.reason_code for item in records]
    words = tuple(sorted({word for word in declared if word is not None}))
    contexts = {
        digest: place for place, digest in enumerate(sorted({item.context.context_digest for item in receipts}))
    }
    return Evidence(
        reason_words=words,
        digest=id_column(receipt.evidence_digest[7:] for receipt in receipts),
        trace_id=id_column(item.trace_id for item in records),
        profile_id=id_column(item.profile_id for item in records),
        output_id=id_column(output_key(item.terminal_output_id) for item in records),
        case_id=id_column(item.case_id for item in records),
        replicate_id=id_column(item.replicate_id for item in records),
        split=np.array([SPLITS.index(item.split) for item in records], dtype=np.int8),
        status=np.array([STATUSES.index(receipt.status) for receipt in receipts], dtype=np.int8),
        key_pinned=np.array([item.key_id in pinned for item in records], dtype=bool),
        terms_match=np.array([_terms_match(item, terms) for item in records], dtype=bool),
        context=np.array([contexts[receipt.context.context_digest] for receipt in receipts], dtype=np.int64),
        outcome=np.array([_DECLARED[item.outcome.kind] for item in records], dtype=np.int8),
        declared=np.array([-1 if word is None else words.index(word) for word in declared], dtype=np.int64),
        score=_numbers([item.outcome.score if isinstance(item.outcome, Scored) else None for item in records]),
        produced_ms=np.array([timestamp_ms(item.produced_at) for item in records], dtype=np.int64),
    )


def output_key(identity: KeyedIdentity | None) -> str | None:
    """A terminal output as one identifier."""
    return None if identity is None else f"{identity.key_id}:{identity.value}"


def _terms_match(item: EvaluatorEvidence, terms: ProtocolTerms) -> bool:
    wanted, claim = terms.protocol.evaluator, item.evaluator
    return (
        item.study_id,
        item.protocol_digest,
        claim.evaluator_id,
        claim.rubric_version,
        claim.calibration_digest,
        claim.producer.kind,
        claim.producer.producer_id,
        claim.producer.version,
    ) == (
        terms.protocol.study_id,
        terms.digest,
        wanted.evaluator_id,
        wanted.rubric_version,
        wanted.calibration_digest,
        wanted.producer_kind,
        wanted.producer_id,
        wanted.producer_version,
    )


def _state(record: TraceEnvelope) -> State:
    if any(
        attempt.dispatch_state is DispatchState.SENT_UNKNOWN or attempt.abort_lifecycle == "abort-ambiguous"
        for attempt in record.attempts
    ):
        return State.AMBIGUOUS
    return State.SUCCESS if record.attempts[-1].status == "success" else State.FAILURE


def _cost(attempts: Sequence[Attempt]) -> tuple[float | None, Backing]:
    amount, backing = 0.0, Backing.MEASURED
    for attempt in attempts:
        if isinstance(attempt.cost, UnavailableCost):
            return None, Backing.UNAVAILABLE
        amount += attempt.cost.amount
        backing = max(backing, _COST_BACKING[attempt.cost.kind])
    return amount, backing


def _window(record: TraceEnvelope) -> str:
    return f"{record.collection_window_id or ''}/{record.collection_window_membership_digest or ''}"


def _key(value: Any) -> str:  # Any: a JSON value
    return sha256_hex(canonical_bytes(value))


def _numbers(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
