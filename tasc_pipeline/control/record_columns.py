"""From signed records to the columns that are joined: envelopes to ``Executions``, checked evidence to ``Evidence``. Pure.

Times are the envelope's, in milliseconds, as the original project gates on them: imported traces have no timeline.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from tasc_collector.canonical import canonical_bytes, sha256_hex
from tasc_collector.contracts.attempt import Attempt, UnavailableCost
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence, EvidenceEvaluator, Scored
from tasc_collector.contracts.evidence_trust import EvidenceReceipt
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.protocol import EvaluatorDefinition, ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import DispatchState
from tasc_pipeline.control.identifiers import Codes, id_column
from tasc_pipeline.control.joined_rows import SPLITS, STATUSES, Backing, Evidence, Executions, Outcome, State
from tasc_pipeline.control.trace_checks import ProtocolTerms

K = TypeVar("K", bound=Hashable)
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
                "key": id_column(
                    execution_key(record, digest)[7:] for record, digest in zip(records, known, strict=True)
                ),
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
    "key",
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


_EVIDENCE_TEXTS: Final = (
    "digest",
    "source_digest",
    "trace_id",
    "profile_id",
    "output_id",
    "case_id",
    "replicate_id",
)
_NO_EVIDENCE: Final[dict[str, Any]] = {  # Any: numpy columns
    **{name: np.zeros(0, dtype="S1") for name in _EVIDENCE_TEXTS},
    **{name: np.zeros(0, dtype=np.int64) for name in ("check", "context", "declared", "produced_ms")},
    **{name: np.zeros(0, dtype=np.int8) for name in ("split", "status", "outcome")},
    **{name: np.zeros(0, dtype=bool) for name in ("key_pinned", "terms_match")},
    "score": np.zeros(0),
}


class EvidenceBlocks:
    """The columns of much evidence, a block at a time: no piece is held once it is in them.

    Args:
        terms: of the protocol that it is held against.
    """

    def __init__(self, terms: ProtocolTerms) -> None:
        self._terms = terms
        self._pinned = frozenset(terms.protocol.evaluator.required_trusted_key_ids)
        self._same_evaluator: dict[EvidenceEvaluator, bool] = {}
        self._blocks: list[dict[str, Any]] = []  # Any: numpy columns
        self._words: dict[str, int] = {}
        self._contexts: dict[str, int] = {}
        self._checks: dict[tuple[str, str, str], int] = {}

    def add(self, receipts: Sequence[EvidenceReceipt]) -> None:
        """Take checked evidence, in its order."""
        if not receipts:
            return
        records = [receipt.evidence for receipt in receipts]
        digests = [receipt.context.context_digest for receipt in receipts]
        outcomes = [item.outcome for item in records]
        words = [None if isinstance(outcome, Scored) else outcome.reason_code for outcome in outcomes]
        checks = [
            (receipt.status.value, item.key_id, digest)
            for receipt, item, digest in zip(receipts, records, digests, strict=True)
        ]
        self._blocks.append(
            {
                "digest": id_column(receipt.evidence_digest[7:] for receipt in receipts),
                "source_digest": id_column(receipt.source_digest[7:] for receipt in receipts),
                "check": _numbered(checks, self._checks),
                "trace_id": id_column(item.trace_id for item in records),
                "profile_id": id_column(item.profile_id for item in records),
                "output_id": id_column(output_key(item.terminal_output_id) for item in records),
                "case_id": id_column(item.case_id for item in records),
                "replicate_id": id_column(item.replicate_id for item in records),
                "split": np.array([SPLITS.index(item.split) for item in records], dtype=np.int8),
                "status": np.array([STATUSES.index(receipt.status) for receipt in receipts], dtype=np.int8),
                "key_pinned": np.array([item.key_id in self._pinned for item in records], dtype=bool),
                "terms_match": np.array([self._terms_match(item) for item in records], dtype=bool),
                "context": _numbered(digests, self._contexts),
                "outcome": np.array([_DECLARED[outcome.kind] for outcome in outcomes], dtype=np.int8),
                "declared": _numbered(words, self._words),
                "score": _numbers([item.score if isinstance(item, Scored) else None for item in outcomes]),
                "produced_ms": np.array([timestamp_ms(item.produced_at) for item in records], dtype=np.int64),
            }
        )

    def done(self) -> Evidence:
        """Everything that was taken, in its order."""
        if not self._blocks:
            return Evidence(reason_words=(), **_NO_EVIDENCE)
        columns = {name: np.concatenate([block[name] for block in self._blocks]) for name in self._blocks[0]}
        columns["declared"] = _by_rank(columns["declared"], self._words)
        columns["context"] = _by_rank(columns["context"], self._contexts)
        return Evidence(reason_words=tuple(sorted(self._words)), **columns)

    def _terms_match(self, item: EvaluatorEvidence) -> bool:
        """Study and protocol are the assessed ones; evaluator, rubric, calibration and producer those that it names."""
        terms, claim = self._terms, item.evaluator
        if claim not in self._same_evaluator:
            self._same_evaluator[claim] = _same_evaluator(claim, terms.protocol.evaluator)
        own = (item.study_id, item.protocol_digest) == (terms.protocol.study_id, terms.digest)
        return own and self._same_evaluator[claim]


def evidence_of(receipts: Sequence[EvidenceReceipt], terms: ProtocolTerms) -> Evidence:
    """The columns of checked evidence, in the order given."""
    blocks = EvidenceBlocks(terms)
    blocks.add(receipts)
    return blocks.done()


def execution_key(record: TraceEnvelope, trace_digest: str) -> str:
    """What the table of engine v2 calls an execution: its envelope under the key that evidence joins it by.

    Args:
        record: the envelope.
        trace_digest: its digest.
    """
    output = record.terminal_output_id
    terminal = "null"
    if output is not None:
        terminal = f'{{"algorithm":"hmac-sha256","keyId":"{output.key_id}","value":"{output.value}"}}'
    joined = digest_of_canonical(
        "tasc/assessment-trace-join-key/v2",
        f'{{"profileId":"{record.profile_id}","protocolDigest":"{record.protocol_digest}",'
        f'"terminalOutputId":{terminal},"traceId":"{record.trace_id}"}}',
    )
    return digest_of_canonical(
        "tasc/assessment-execution/v2", f'{{"traceDigest":"{trace_digest}","traceIdentityKey":"{joined}"}}'
    )


def digest_of_canonical(domain: str, value: str) -> str:
    """``canonical.digest`` of a value whose canonical JSON is at hand."""
    return "sha256:" + sha256_hex(f'{{"domain":"{domain}","value":{value}}}'.encode())


def output_key(identity: KeyedIdentity | None) -> str | None:
    """A terminal output as one identifier."""
    return None if identity is None else f"{identity.key_id}:{identity.value}"


def _same_evaluator(claim: EvidenceEvaluator, wanted: EvaluatorDefinition) -> bool:
    return (
        claim.evaluator_id,
        claim.rubric_version,
        claim.calibration_digest,
        claim.producer.kind,
        claim.producer.producer_id,
        claim.producer.version,
    ) == (
        wanted.evaluator_id,
        wanted.rubric_version,
        wanted.calibration_digest,
        wanted.producer_kind,
        wanted.producer_id,
        wanted.producer_version,
    )


def _numbered(values: Sequence[K | None], known: dict[K, int]) -> Codes:
    """A number per value, new ones in the order in which they come; -1 where there is none."""
    return np.array([-1 if item is None else known.setdefault(item, len(known)) for item in values], dtype=np.int64)


def _by_rank(numbers: Codes, known: Mapping[str, int]) -> Codes:
    """The numbers of ``_numbered`` as places among the sorted values."""
    place = np.full(len(known) + 1, -1, dtype=np.int64)
    place[[known[value] for value in sorted(known)]] = np.arange(len(known))
    return place[numbers]


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
