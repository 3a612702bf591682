"""One small warehouse with known figures: docs/analysis.md, the report tests and the README's picture come from it.

Two windows, one champion, one candidate, 40 cases with 2 replicates; the candidate's first token is 20 % earlier, its
stream 10 % slower. A few executions fail, one is unknown, one was never sent. Everything follows from a seed.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

from tasc_collector.contracts.reasons import ReasonCount
from tasc_collector.contracts.report import (
    AssessmentReport,
    ComparisonResult,
    ExecutionCounts,
    FailureResult,
    FairnessItem,
    Interval,
    LatencySummary,
    ProfileSummary,
    RatioResult,
)
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse import record_rows
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.publish import ManifestSigner, publish
from tasc_pipeline.warehouse.schemas import DEVICE_SAMPLES, METRIC_SAMPLES, TOKEN_EVENTS, TRACES, WINDOWS
from tasc_pipeline.warehouse.tables_assessment import WindowRow
from tasc_pipeline.warehouse.tables_collection import DeviceSampleRow, ExecutionRow, MetricSampleRow, TokenEventRow

STUDY = "vllm-upgrade"
KEYS = ("morning.r01-5f0c1a2b", "noon.r01-77ab03de")
NOON_MS = 1_795_953_600_000
CASES, REPLICATES = 40, 2
SIGNER = ManifestSigner(SigningKey.generate(), "collector-1")
PROFILES = (("champion", "vllm-0-26-0", "0.26.0", 1.0, 1.0), ("candidate", "vllm-0-33-0", "0.33.0", 0.8, 1.1))
"""Role, profile, build, factor on TTFT, factor on ITL."""


def clock() -> datetime:
    return datetime(2026, 11, 29, 13, 0, tzinfo=UTC)


def build(home: Path) -> None:
    """Publish both windows with all tables and make the views."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place, key in enumerate(KEYS):
        traces, events = executions(key, start_ms=NOON_MS + place * 3_600_000)
        report = assessment(key)
        tables = {
            "traces": TRACES.from_rows(traces),
            "token_events": TOKEN_EVENTS.from_rows(events),
            "windows": WINDOWS.from_rows([window(key, place, traces)]),
            "metric_samples": METRIC_SAMPLES.from_rows(metrics(key, NOON_MS + place * 3_600_000)),
            "device_samples": DEVICE_SAMPLES.from_rows(devices(key, NOON_MS + place * 3_600_000)),
            "gates": record_rows.gates_table(report),
            "decisions": record_rows.decisions_table(report),
        }
        for name, rows in tables.items():
            publish(home / "warehouse", name, key, rows, sign=SIGNER, clock=clock)
    build_views(home, clock=clock)


def executions(key: str, *, start_ms: int) -> tuple[list[ExecutionRow], list[TokenEventRow]]:
    source = random.Random(key)
    rows: list[ExecutionRow] = []
    events: list[TokenEventRow] = []
    for case in range(CASES):
        length = 6 + case % 4
        base = 40 + 15 * length + source.random() * 20
        for replicate in range(REPLICATES):
            begin = start_ms + (case * REPLICATES + replicate) * 1500
            for role, profile, build_name, first_factor, gap_factor in PROFILES:
                number = case * REPLICATES + replicate
                tokens = 24 + case % 9
                first_ns = int(base * first_factor * source.uniform(0.95, 1.2) * 1e6)
                gaps_ns = [int(9e6 * gap_factor * source.uniform(0.7, 1.5)) for _ in range(tokens - 1)]
                failed = role == "candidate" and number in (7, 31)
                unknown = role == "champion" and number == 50
                unsent = role == "candidate" and number == 66
                success = not (failed or unknown or unsent)
                ordered = sorted(gaps_ns)
                last_ns = first_ns + sum(gaps_ns)
                trace_id = "trace-" + source.randbytes(32).hex()
                rows.append(
                    ExecutionRow(
                        window_key=key,
                        study_id=STUDY,
                        role=role,
                        profile_id=profile,
                        case_id=f"case-{case:05d}",
                        group_id=f"conversation-{case // 2:03d}",
                        replicate=replicate,
                        trace_id=trace_id,
                        replicate_id=f"replicate-{number:064x}",
                        runtime="vllm",
                        build=build_name,
                        backend=f"vllm {build_name}",
                        model_id="qwen3-8b",
                        route="completions",
                        framing="sse",
                        slices=("short",) if length < 8 else ("long",),
                        weight=1.0,
                        input_token_estimate=2**length // 4,
                        case_length_bucket=f"chars-{2**length}-{2 ** (length + 1) - 1}",
                        state="not_sent" if unsent else "accepted",
                        status=None if unsent else ("success" if success else "failure"),
                        dispatch_state="not_sent" if unsent else ("sent_unknown" if unknown else "completed"),
                        failure_category="timeout"
                        if failed
                        else ("unknown" if unknown else ("transport" if unsent else None)),
                        fault_reason="connect-failed" if unsent else None,
                        finish_reason="stop" if success else None,
                        attempts=1,
                        started_at=None if unsent else begin,
                        start_hour=None if unsent else begin - begin % 3_600_000,
                        ttft_ms=first_ns / 1e6 if success else None,
                        itl_p50_ms=_quantile(ordered, 0.5) if success else None,
                        itl_p95_ms=_quantile(ordered, 0.95) if success else None,
                        tpot_ms=(last_ns - first_ns) / 1e6 / (tokens - 1) if success else None,
                        e2e_ms=(last_ns + 200_000) / 1e6 if success else None,
                        queue_ms=0.2 + number % 3 / 10,
                        connect_ms=0.25,
                        input_tokens=2**length // 4 if success else None,
                        input_tokens_cached=16 * (role == "champion") if success else None,
                        output_tokens=tokens if success else None,
                        token_event_count=tokens if success else None,
                        tokens_per_event=1.0 if success else None,
                        collector_lag_ms=0.05 + source.random() / 20,
                        arrival_uncertainty_ms=0.0,
                        timing_flagged=False,
                        peer=f"peer-{number % 2}",
                        cost_usd=tokens * 4e-7 if success else None,
                        cost_class="modeled" if success else "unavailable",
                        request_identity=source.randbytes(32).hex(),
                        terminal_output_identity=source.randbytes(32).hex() if success else None,
                    )
                )
                offset = first_ns
                for index in range(tokens if success else 0):
                    gap = None if index == 0 else gaps_ns[index - 1]
                    offset += gap or 0
                    events.append(
                        TokenEventRow(
                            window_key=key,
                            role=role,
                            profile_id=profile,
                            case_id=f"case-{case:05d}",
                            replicate=replicate,
                            trace_id=trace_id,
                            event_index=index,
                            offset_ns=offset,
                            gap_ns=gap,
                            tokens=1,
                            kind="answer",
                            uncertainty_ns=0,
                        )
                    )
    return rows, events


def _quantile(ordered: list[int], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return (ordered[low] + (ordered[high] - ordered[low]) * (position - low)) / 1e6


def window(key: str, place: int, traces: list[ExecutionRow]) -> WindowRow:
    begin = NOON_MS + place * 3_600_000
    states = [row.state for row in traces]
    return WindowRow(
        window_key=key,
        study_id=STUDY,
        study_kind="comparison",
        window_id=key.split(".")[0],
        revision=1,
        window_class="observation",
        purpose="comparison",
        lineage_id=STUDY,
        event_time_start=begin,
        event_time_end=begin + 1_800_000,
        ingestion_watermark=begin + 1_800_000,
        closed_at=begin + 200_000,
        planned=len(states),
        accepted=states.count("accepted"),
        not_sent=states.count("not_sent"),
        not_attempted=0,
        declaration_digest="sha256:" + f"{place:x}1" * 32,
        plan_digest="sha256:" + f"{place:x}2" * 32,
        trace_set_digest="sha256:" + f"{place:x}3" * 32,
    )


def metrics(key: str, start_ms: int) -> list[MetricSampleRow]:
    return [
        MetricSampleRow(
            window_key=key,
            endpoint_alias=alias,
            phase="during",
            sampled_at=start_ms + second * 1000,
            took_ms=3.0,
            metric="requests-running",
            value=float(1 + (second // 10 + shift) % 4),
        )
        for shift, alias in enumerate(("champion", "candidate"))
        for second in range(0, 120, 5)
    ]


def devices(key: str, start_ms: int) -> list[DeviceSampleRow]:
    return [
        DeviceSampleRow(
            window_key=key,
            node_id="host-1",
            device_id=device,
            device_kind="accelerator",
            phase="during",
            sampled_at=start_ms + second * 1000,
            metric="utilization",
            value=40.0 + 10 * shift + second % 30,
            unit="percent",
        )
        for shift, device in enumerate(("gpu-0", "gpu-1"))
        for second in range(0, 120, 5)
    ]


def assessment(key: str) -> AssessmentReport:
    champion = ExecutionCounts(
        planned=80,
        success=79,
        failure=0,
        sent_unknown=1,
        not_sent=0,
        not_attempted=0,
        reasons=(ReasonCount(reason="unknown", count=1),),
    )
    candidate = ExecutionCounts(
        planned=80,
        success=77,
        failure=2,
        sent_unknown=0,
        not_sent=1,
        not_attempted=0,
        reasons=(ReasonCount(reason="timeout", count=2), ReasonCount(reason="connect-failed", count=1)),
    )

    def latency(metric: str, p50: float, p95: float) -> LatencySummary:
        return LatencySummary(metric=metric, count=77, p50_ms=p50, p95_ms=p95, mean_ms=p50)

    def ratio(metric: str, estimate: float, low: float, high: float, verdict: str) -> RatioResult:
        return RatioResult(
            metric=metric,
            statistic="median",
            estimate=estimate,
            interval=Interval(low=low, high=high, confidence=0.95, method="studentized-cluster-bootstrap"),
            margin=1.05,
            verdict=verdict,
            deciding=metric != "itl",
            pairs=76,
            groups=20,
            noise_floor=0.02,
        )

    def profile(role: str, name: str, counts: ExecutionCounts, scale: float) -> ProfileSummary:
        return ProfileSummary(
            profile_id=name,
            role=role,
            counts=counts,
            latencies=(
                latency("ttft", 170.0 * scale, 224.0 * scale),
                latency("itl", 9.7, 13.2),
                latency("tpot", 9.9, 10.9),
                latency("e2e", 430.0, 520.0),
            ),
            input_tokens=4_800,
            output_tokens=2_150,
            cached_input_tokens=1_264,
            tokens_per_event=1.0,
            cost_usd=0.0009,
            timing_flagged=0,
        )

    digest = "sha256:" + "ab" * 32
    return AssessmentReport(
        engine="tasc-comparison-v1",
        study_id=STUDY,
        study_kind="comparison",
        window_key=key,
        protocol_digest=digest,
        declaration_digest=digest,
        plan_digest=digest,
        trace_set_digest=digest,
        analysis_plan_digest=None,
        as_of="2026-11-29T12:30:00.000Z",
        counts=ExecutionCounts(
            planned=160,
            success=156,
            failure=2,
            sent_unknown=1,
            not_sent=1,
            not_attempted=0,
            reasons=(ReasonCount(reason="timeout", count=2),),
        ),
        coverage=0.9625,
        profiles=(
            profile("champion", "vllm-0-26-0", champion, 1.0),
            profile("candidate", "vllm-0-33-0", candidate, 0.8),
        ),
        comparisons=(
            ComparisonResult(
                candidate_profile_id="vllm-0-33-0",
                verdict="worse",
                sentence="vllm-0-33-0 is worse than vllm-0-26-0: TPOT 10 % higher (8 % to 12 %), margin 5 %; "
                "TTFT 21 % lower.",
                ratios=(
                    ratio("ttft", 0.79, 0.76, 0.83, "no-worse"),
                    ratio("itl", 1.09, 1.07, 1.12, "worse"),
                    ratio("tpot", 1.10, 1.08, 1.12, "worse"),
                    ratio("e2e", 1.01, 0.97, 1.06, "undecided"),
                ),
                failures=FailureResult(
                    champion_rate=0.0,
                    candidate_rate=0.025,
                    difference=0.025,
                    interval=Interval(low=-0.01, high=0.06, confidence=0.95, method="newcombe"),
                    worst_case=0.05,
                    best_case=0.012,
                    margin=0.05,
                    verdict="undecided",
                    pairs=78,
                    groups=20,
                ),
                fairness=(
                    FairnessItem(
                        item="output-tokens", champion=2_150.0, candidate=2_140.0, unit="tokens", imbalanced=False
                    ),
                    FairnessItem(
                        item="cached-input-tokens", champion=1_264.0, candidate=0.0, unit="tokens", imbalanced=True
                    ),
                ),
            ),
        ),
        decision=None,
        warnings=("the candidate read nothing from its prefix cache, the champion did",),
        missing=("power draw: neither host reports it",),
    )
