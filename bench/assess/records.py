"""Real records for the rates that go with the number of executions: envelopes, evidence, a window's executions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence_trust import EvidenceReceipt
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_pipeline.warehouse.rows import Execution, TargetFacts
from tests.support.engine_v2_world import CANDIDATE, CHAMPION, GROUPS, STARTED, attempt, receipt, trace

TIMED = [timestamp_of_ms(timestamp_ms(STARTED) + second * 1_000) for second in range(3_600)]


@dataclass(frozen=True, slots=True)
class Made:
    """Envelopes with evidence about each."""

    traces: Sequence[Parsed[TraceEnvelope]]
    receipts: Sequence[EvidenceReceipt]


def records(executions: int) -> Made:
    """Two profiles over as many cases as it takes."""
    traces, receipts = [], []
    for number in range(executions // 2):
        for profile in (CHAMPION, CANDIDATE):
            made = trace(
                f"case-{number:06d}",
                profile,
                group=GROUPS[number % len(GROUPS)],
                attempts=[attempt(profile, start=TIMED[number % len(TIMED)])],
            )
            traces.append(made)
            receipts.append(receipt(made, (number % 97) / 97))
    return Made(traces, receipts)


class StoredExecutions(Sequence[Execution]):
    """A window's executions as the product holds them after its journal was read: bytes, parsed at each pass."""

    def __init__(self, made: Made) -> None:
        self._held = [(canonical_bytes(item.value), TraceEnvelope.digest_of(item.value)) for item in made.traces]
        self._facts = {
            name: TargetFacts(
                role="champion" if name == CHAMPION else "candidate",
                profile_id=name,
                runtime="vllm",
                build="0.26.0",
                backend=None,
                model_id=f"{name}-model",
                route="chatCompletions",
                framing="sse",
            )
            for name in (CHAMPION, CANDIDATE)
        }

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Execution]:
        return map(self._made, range(len(self)))

    def __getitem__(self, index: Any) -> Any:  # Any: an index gives an execution, a slice a list of them
        return self._made(index) if isinstance(index, int) else [self._made(item) for item in range(len(self))[index]]

    def _made(self, index: int) -> Execution:
        data, digest = self._held[index]
        record = TraceEnvelope.read_own(data, where="bench")
        return Execution(
            window_key="bench.r01-00000000",
            study_id=record.study_id,
            target=self._facts[record.profile_id],
            case_id=record.case_id,
            group_id=record.group_id,
            replicate=0,
            replicate_id=record.replicate_id,
            trace_id=record.trace_id,
            slices=record.slices,
            weight=record.workload.declared_traffic_weight,
            input_token_estimate=None,
            length_bucket="chars-0-255",
            envelope=record,
            envelope_bytes=data,
            trace_digest=digest,
        )
