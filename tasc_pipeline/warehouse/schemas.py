"""All tables of the warehouse, by name. ``TABLES[name].schema`` is the Arrow schema that parts carry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse import tables_assessment as assessment
from tasc_pipeline.warehouse import tables_collection as collection
from tasc_pipeline.warehouse.columns import Table, table

TRACES = table(
    "traces",
    collection.ExecutionRow,
    sort_by=("window_key", "role", "profile_id", "case_id", "replicate"),
    description="One row per planned execution; states add up to what was planned. Null is unknown, never zero.",
)
ATTEMPTS = table(
    "attempts",
    collection.AttemptRow,
    sort_by=("window_key", "role", "profile_id", "case_id", "replicate", "attempt_number"),
    description="One row per attempt of an accepted execution, with every mark in nanoseconds since it was queued.",
)
TOKEN_EVENTS = table(
    "token_events",
    collection.TokenEventRow,
    sort_by=("window_key", "role", "profile_id", "case_id", "replicate", "event_index"),
    description="One row per event that carried output. Pool gap_ns over calls for pooled ITL percentiles.",
)
ENVELOPES = table(
    "envelopes",
    collection.EnvelopeRow,
    sort_by=("window_key", "trace_id"),
    description="Signed trace envelopes as canonical bytes; no prompt and no answer is in them.",
)
RECEIPTS = table(
    "receipts",
    collection.ReceiptRow,
    sort_by=("window_key", "endpoint_alias", "capability", "receipt_digest"),
    description="Capability receipts that each window's plan pins.",
)
METRIC_SAMPLES = table(
    "metric_samples",
    collection.MetricSampleRow,
    sort_by=("window_key", "endpoint_alias", "metric", "labels", "sampled_at"),
    description="Server metrics under canonical names, on the collector's clock.",
)
METRIC_HISTOGRAMS = table(
    "metric_histograms",
    collection.MetricHistogramRow,
    sort_by=("window_key", "endpoint_alias", "metric", "labels", "until_at", "bucket"),
    description="Latency histograms of the servers themselves, as what was added between two scrapes.",
)
DEVICE_SAMPLES = table(
    "device_samples",
    collection.DeviceSampleRow,
    sort_by=("window_key", "node_id", "device_id", "metric", "sampled_at"),
    description="Device and host quantities around each window.",
)
WINDOWS = table(
    "windows",
    assessment.WindowRow,
    sort_by=("window_key",),
    description="Sealed windows, every revision; windows_current keeps the latest of each.",
    version=2,
)
EVIDENCE = table(
    "evidence",
    assessment.EvidenceRow,
    sort_by=("window_key", "profile_id", "case_id", "evaluator_id", "evidence_digest"),
    description="External evaluator evidence and whether it was trusted.",
)
REPORTED_SCORES = table(
    "reported_scores",
    assessment.ReportedScoreRow,
    sort_by=("window_key", "profile_id", "case_id", "evidence_digest", "score_id"),
    description="Scores and subscores as evaluators reported them.",
)
GATES = table(
    "gates",
    assessment.GateRow,
    sort_by=("window_key", "candidate_profile_id", "gate"),
    description="Every gate and margin with its estimate, interval, noise floor and verdict.",
    version=2,
)
DECISIONS = table(
    "decisions",
    assessment.DecisionRow,
    sort_by=("window_key", "candidate_profile_id"),
    description="One result per window and candidate, in one sentence.",
)
NOTICES = table(
    "notices",
    assessment.NoticeRow,
    sort_by=("window_key", "noticed_at", "kind"),
    description="Changes that a person should look at.",
)

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        item.name: item
        for item in (
            TRACES,
            ATTEMPTS,
            TOKEN_EVENTS,
            ENVELOPES,
            RECEIPTS,
            METRIC_SAMPLES,
            METRIC_HISTOGRAMS,
            DEVICE_SAMPLES,
            WINDOWS,
            EVIDENCE,
            REPORTED_SCORES,
            GATES,
            DECISIONS,
            NOTICES,
        )
    }
)


def get_table(name: str) -> Table:
    """The table of that name.

    Raises:
        InputError: there is none; names those that there are.
    """
    if name not in TABLES:
        raise InputError(f"there is no table '{name}'", way_out=f"use one of {', '.join(TABLES)}")
    return TABLES[name]
