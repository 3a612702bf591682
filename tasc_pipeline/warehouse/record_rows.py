"""From signed records to the rows of all tables but those of executions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tasc_collector.contracts.evidence import EvaluatorEvidence, Scored
from tasc_collector.contracts.observations import DeviceSnapshotRecord
from tasc_collector.contracts.operations import Notice
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.report import AssessmentReport, ComparisonResult, FailureResult, Interval
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.contracts.study import StudyFork
from tasc_collector.contracts.window import WindowDeclaration, WindowLink
from tasc_pipeline.warehouse.schemas import (
    DECISIONS,
    DEVICE_SAMPLES,
    EVIDENCE,
    GATES,
    NOTICES,
    RECEIPTS,
    REPORTED_SCORES,
    WINDOWS,
)
from tasc_pipeline.warehouse.tables_assessment import (
    DecisionRow,
    EvidenceRow,
    GateRow,
    NoticeRow,
    ReportedScoreRow,
    WindowRow,
)
from tasc_pipeline.warehouse.tables_collection import DeviceSampleRow, ReceiptRow

_ACCELERATOR = (
    ("utilizationPct", "utilization", "percent"),
    ("memoryUsedBytes", "memory_used", "bytes"),
    ("memoryTotalBytes", "memory_total", "bytes"),
    ("powerWatts", "power", "watts"),
    ("powerLimitWatts", "power_limit", "watts"),
    ("temperatureC", "temperature", "celsius"),
    ("throttled", "throttled", "flag"),
)
_MEMORY = ("memoryUsedBytes", "memoryTotalBytes")
_HOST = (
    ("memoryAvailableBytes", "memory_available", "bytes"),
    ("memoryTotalBytes", "memory_total", "bytes"),
    ("swapTotalBytes", "swap_total", "bytes"),
    ("cpuCount", "cpu_count", "count"),
    ("uptimeSeconds", "uptime", "seconds"),
    ("cpuThrottleCount", "throttle_count", "count"),
)
_VOLUME = (("freeBytes", "free", "bytes"), ("totalBytes", "total", "bytes"))
_THERMAL = (("celsius", "temperature", "celsius"),)
"""JSON name in the snapshot, metric, unit."""


def windows_table(
    declaration: WindowDeclaration, link: WindowLink, *, purpose: str, fork: StudyFork | None = None
) -> pa.Table:
    """``windows``: the one row of a closed window; ``fork`` is set where its study is a successor."""
    return WINDOWS.from_rows(
        [
            WindowRow(
                window_key=link.window_key,
                study_id=declaration.study_id,
                study_kind=declaration.study_kind,
                window_id=declaration.window_id,
                revision=declaration.revision,
                window_class=declaration.window_class,
                purpose=purpose,
                predecessor_study_id=None if fork is None else fork.predecessor_study_id,
                lineage_id=declaration.study_id if fork is None else fork.lineage_id,
                event_time_start=timestamp_ms(declaration.event_time_start_inclusive),
                event_time_end=timestamp_ms(declaration.event_time_end_exclusive),
                ingestion_watermark=timestamp_ms(declaration.ingestion_watermark),
                closed_at=timestamp_ms(link.closed_at),
                planned=link.counts.planned,
                accepted=link.counts.accepted,
                not_sent=link.counts.not_sent,
                not_attempted=link.counts.not_attempted,
                declaration_digest=link.declaration_digest,
                plan_digest=link.plan_digest,
                trace_set_digest=link.trace_set_digest,
            )
        ]
    )


def receipts_table(window_key: str, receipts: Iterable[CapabilityReceipt]) -> pa.Table:
    """``receipts``: those that the window's plan pins."""
    return RECEIPTS.from_rows(
        ReceiptRow(
            window_key=window_key,
            receipt_digest=receipt.digest,
            capability=receipt.capability,
            state=receipt.state,
            effect=receipt.effect,
            endpoint_alias=receipt.endpoint_alias,
            runtime=receipt.runtime.profile_id,
            build=receipt.runtime.build,
            backend=f"{receipt.backend.name} {receipt.backend.build}",
            model_id=receipt.model.id,
            route=receipt.route,
            framing=receipt.framing,
            configuration_digest=receipt.configuration_digest,
            observed_at=timestamp_ms(receipt.observed_at),
            valid_until=timestamp_ms(receipt.valid_until),
        )
        for receipt in receipts
    )


def device_samples_table(window_key: str, snapshots: Iterable[DeviceSnapshotRecord]) -> pa.Table:
    """``device_samples``: one row per device, quantity and snapshot; what a platform cannot say is null."""
    return DEVICE_SAMPLES.from_rows(row for snapshot in snapshots for row in _device_rows(window_key, snapshot))


def gates_table(report: AssessmentReport) -> pa.Table:
    """``gates``: every margin of every candidate, or every gate of the decision."""
    rows = [row for result in report.comparisons for row in _comparison_gates(report, result)]
    for gate in report.decision.gates if report.decision is not None else ():
        rows.append(
            GateRow(
                window_key=report.window_key,
                study_id=report.study_id,
                gate=gate.id if gate.slice is None else f"{gate.id}.{gate.slice}",
                operator=gate.operator,
                threshold=gate.threshold,
                actual=gate.actual,
                evidence_class=gate.evidence_class,
                verdict=gate.state,
                deciding=True,
                reason=gate.reason,
                **_interval(gate.interval),
            )
        )
    return GATES.from_rows(rows)


def decisions_table(report: AssessmentReport) -> pa.Table:
    """``decisions``: one row per candidate, or the decision's."""
    results: list[tuple[str | None, str, str]] = [
        (item.candidate_profile_id, str(item.verdict), item.sentence) for item in report.comparisons
    ]
    if report.decision is not None:
        results.append((None, report.decision.status, report.decision.sentence))
    return DECISIONS.from_rows(
        DecisionRow(
            window_key=report.window_key,
            study_id=report.study_id,
            study_kind=report.study_kind,
            candidate_profile_id=candidate,
            result=result,
            sentence=sentence,
            coverage=report.coverage,
            as_of=timestamp_ms(report.as_of),
            report_digest=report.digest,
        )
        for candidate, result, sentence in results
    )


def notices_table(window_key: str, notices: Iterable[Notice]) -> pa.Table:
    """``notices``: those of one window."""
    return NOTICES.from_rows(
        NoticeRow(
            window_key=window_key,
            study_id=notice.study_id,
            kind=notice.kind,
            before=notice.before,
            after=notice.after,
            noticed_at=timestamp_ms(notice.at),
        )
        for notice in notices
    )


def evidence_table(window_key: str, judged: Iterable[tuple[EvaluatorEvidence, str]]) -> pa.Table:
    """``evidence``: every piece with the status that its verification gave."""
    return EVIDENCE.from_rows(
        EvidenceRow(
            window_key=window_key,
            evidence_digest=item.digest,
            trace_id=item.trace_id,
            profile_id=item.profile_id,
            case_id=item.case_id,
            evaluator_id=item.evaluator.evaluator_id,
            rubric_version=item.evaluator.rubric_version,
            producer_kind=item.evaluator.producer.kind,
            outcome=item.outcome.kind,
            score=item.outcome.score if isinstance(item.outcome, Scored) else None,
            trust_status=status,
            trusted=status == "trusted",
            produced_at=timestamp_ms(item.produced_at),
        )
        for item, status in judged
    )


def reported_scores_table(
    window_key: str, evidence: Iterable[EvaluatorEvidence], others: Iterable[ReportedScoreRow] = ()
) -> pa.Table:
    """``reported_scores``: primary scores and subscores of evidence, and scores that are no evidence."""
    return REPORTED_SCORES.from_rows([*_reported(window_key, evidence), *others])


def _reported(window_key: str, evidence: Iterable[EvaluatorEvidence]) -> Iterator[ReportedScoreRow]:
    return (
        ReportedScoreRow(
            window_key=window_key,
            source="evaluator-evidence",
            evidence_digest=item.digest,
            trace_id=item.trace_id,
            profile_id=item.profile_id,
            case_id=item.case_id,
            score_id=name,
            score=score,
            range_minimum=low,
            range_maximum=high,
        )
        for item in evidence
        if isinstance(item.outcome, Scored)
        for name, score, low, high in _scores(item.outcome)
    )


def _scores(outcome: Scored) -> Iterator[tuple[str, float, float, float]]:
    yield "primary", outcome.score, outcome.range.minimum, outcome.range.maximum
    for part in outcome.subscores:
        yield part.id, part.score, part.range.minimum, part.range.maximum


def _device_rows(window_key: str, record: DeviceSnapshotRecord) -> Iterator[DeviceSampleRow]:
    snapshot = record.snapshot
    devices: list[tuple[str, str, Mapping[str, Any], tuple[tuple[str, str, str], ...]]] = [  # Any: checked JSON
        ("host", "host", snapshot["host"], _HOST)
    ]
    devices += [("accelerator", str(item["id"]), item, _ACCELERATOR) for item in snapshot["accelerators"]]
    devices += [("storage", f"volume-{index}", item, _VOLUME) for index, item in enumerate(snapshot["storage"])]
    devices += [("sensor", f"sensor-{index}", item, _THERMAL) for index, item in enumerate(snapshot["thermals"])]
    for kind, device_id, values, quantities in devices:
        # the compute contract has no null for memory: a device without a total is one whose memory cannot be told
        untold = _MEMORY if kind == "accelerator" and not values["memoryTotalBytes"] else ()
        for name, metric, unit in quantities:
            value = None if name in untold else values.get(name)
            yield DeviceSampleRow(
                window_key=window_key,
                node_id=record.node_id,
                device_id=device_id,
                device_kind=kind,
                phase=record.phase,
                sampled_at=timestamp_ms(record.sampled_at),
                metric=metric,
                value=None if value is None else float(value),
                unit=unit,
            )


def _comparison_gates(report: AssessmentReport, result: ComparisonResult) -> Iterator[GateRow]:
    for ratio in result.ratios:
        yield GateRow(
            window_key=report.window_key,
            study_id=report.study_id,
            candidate_profile_id=result.candidate_profile_id,
            gate=f"{ratio.metric}-{ratio.statistic}-ratio",
            operator="<=",
            threshold=ratio.margin,
            actual=ratio.estimate,
            evidence_class="unavailable" if ratio.estimate is None else "measured",
            verdict=ratio.verdict,
            deciding=ratio.deciding,
            pairs=ratio.pairs,
            noise_floor=ratio.noise_floor,
            **_interval(ratio.interval),
        )
    yield _failure_gate(report, result.candidate_profile_id, result.failures)


def _failure_gate(report: AssessmentReport, candidate: str, failures: FailureResult) -> GateRow:
    return GateRow(
        window_key=report.window_key,
        study_id=report.study_id,
        candidate_profile_id=candidate,
        gate="failure-rate-difference",
        operator="<=",
        threshold=failures.margin,
        actual=failures.difference,
        evidence_class="unavailable" if failures.difference is None else "measured",
        verdict=failures.verdict,
        deciding=True,
        pairs=failures.pairs,
        noise_floor=failures.noise_floor,
        **_interval(failures.interval),
    )


def _interval(interval: Interval | None) -> dict[str, Any]:  # Any: keyword arguments of GateRow
    if interval is None:
        return {}
    return {
        "interval_low": interval.low,
        "interval_high": interval.high,
        "confidence": interval.confidence,
        "interval_method": interval.method,
    }
