"""Window manifest: its rules, its revisions, and why a trace is not in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.manifest import (
    CapacityReported,
    CapacityUnavailable,
    WindowManifest,
    check_revision,
    membership_digest,
)
from tasc_collector.contracts.membership import MembershipRule
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.shadow.membership import Exclusion, exclusion

Value = dict[str, Any]
D = "sha256:" + "1" * 64
E = "sha256:" + "2" * 64
START, END = "2026-07-23T00:00:00.000Z", "2026-07-23T01:00:00.000Z"


def _manifest(**changes: Any) -> WindowManifest:
    rule = MembershipRule(seed="sample", sample_basis_points=10_000)
    protocol_digest = changes.get("protocol_digest", D)
    fields: Value = {
        "window_id": "window-1",
        "protocol_digest": protocol_digest,
        "frozen_policy_digest": D,
        "event_time_start_inclusive": START,
        "event_time_end_exclusive": END,
        "ingestion_watermark": END,
        "closure_reason": "scheduled",
        "membership_rule": rule,
        "membership_digest": membership_digest("window-1", protocol_digest, rule),
        "revision": 1,
        "predecessor_manifest_digest": None,
        "trace_set_digest": D,
        "evaluator_set_digest": D,
        "capacity_evidence": CapacityUnavailable(reason_code="not-measured"),
    }
    return WindowManifest.issue(**{**fields, **changes})


def _reported(**changes: Any) -> CapacityReported:
    fields: Value = {
        "value": 512.5,
        "declaration_digest": D,
        "frozen_policy_digest": D,
        "event_time_start_inclusive": START,
        "event_time_end_exclusive": END,
    }
    return CapacityReported(**{**fields, **changes})


def test_a_manifest_is_its_own_digest() -> None:
    value = _manifest(capacity_evidence=_reported()).to_json()
    assert WindowManifest.from_value(value).record.to_json() == value
    with pytest.raises(DigestMismatch):
        WindowManifest.from_value({**value, "closureReason": "early"})


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"event_time_end_exclusive": START}, "must be after eventTimeStartInclusive"),
        ({"ingestion_watermark": "2026-07-23T00:59:59.999Z"}, "ingestionWatermark"),
        ({"revision": 2}, "exactly in revision 1"),
        ({"predecessor_manifest_digest": E}, "exactly in revision 1"),
        ({"membership_digest": E}, "membershipDigest"),
        ({"capacity_evidence": _reported(frozen_policy_digest=E)}, "capacityEvidence"),
        ({"capacity_evidence": _reported(event_time_end_exclusive="2026-07-23T02:00:00.000Z")}, "capacityEvidence"),
    ],
)
def test_a_broken_rule_is_refused_by_name(change: Value, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        _manifest(**change)


def _revision(before: WindowManifest, **changes: Any) -> WindowManifest:
    return _manifest(revision=2, predecessor_manifest_digest=before.self_digest, **{"trace_set_digest": E, **changes})


def test_a_revision_brings_late_evidence() -> None:
    first = _manifest()
    check_revision(first, _revision(first, ingestion_watermark="2026-07-24T00:00:00.000Z", closure_reason="late"))
    check_revision(first, _revision(first, trace_set_digest=D, capacity_evidence=_reported()))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"event_time_start_inclusive": "2026-07-23T00:00:00.001Z"}, "event_time_start_inclusive"),
        ({"frozen_policy_digest": E}, "frozen_policy_digest"),
        ({"revision": 3}, "revision"),
        ({"predecessor_manifest_digest": E}, "predecessorManifestDigest"),
        ({"trace_set_digest": D}, "traceSetDigest"),
    ],
)
def test_a_revision_keeps_what_is_fixed(change: Value, field: str) -> None:
    first = _manifest()
    fields = {"revision": 2, "predecessor_manifest_digest": first.self_digest, "trace_set_digest": E, **change}
    with pytest.raises(InputError) as caught:
        check_revision(first, _manifest(**fields))
    assert caught.value.field == field


def test_the_watermark_never_moves_back() -> None:
    first = _manifest(ingestion_watermark="2026-07-24T00:00:00.000Z")
    with pytest.raises(InputError, match="never moves back"):
        check_revision(first, _revision(first))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"policyDigest": E}, Exclusion.POLICY),
        ({"collectionWindowId": "window-2"}, Exclusion.WINDOW),
        ({"collectionWindowMembershipDigest": E}, Exclusion.MEMBERSHIP),
        (
            {
                "split": "dev",
                "collectionWindowId": None,
                "collectionWindowMembershipDigest": None,
                "sourceMode": "imported",
                "collectionBinding": None,
            },
            Exclusion.SPLIT,
        ),
    ],
)
def test_why_a_trace_is_not_in_a_window(trace_value: Value, change: Value, reason: Exclusion | None) -> None:
    manifest = _manifest(protocol_digest=trace_value["protocolDigest"])
    assert exclusion(TraceEnvelope.from_value({**trace_value, **change}).record, manifest) is reason


@pytest.mark.parametrize(
    ("second", "watermark", "reason"),
    [
        ("2026-07-22T23:59:59", END, Exclusion.EVENT_TIME),
        ("2026-07-23T00:00:00", END, None),
        ("2026-07-23T00:59:59", END, None),
        ("2026-07-23T01:00:00", "2026-07-24T00:00:00.000Z", Exclusion.EVENT_TIME),
    ],
)
def test_event_time_is_the_first_attempts_start(
    trace_value: Value, second: str, watermark: str, reason: Exclusion | None
) -> None:
    timings = trace_value["attempts"][0]["observerTimings"]
    for name, item in timings.items():
        timings[name] = second + item[19:]
    trace_value["routeSignal"] = None
    trace_value["dispatchIntent"]["issuedAt"] = "2026-07-22T00:00:00.000Z"
    manifest = _manifest(protocol_digest=trace_value["protocolDigest"], ingestion_watermark=watermark)
    assert exclusion(TraceEnvelope.from_value(trace_value).record, manifest) is reason


def test_a_trace_that_ends_after_the_watermark_is_late(
    trace_value: Value, attempt_value: Callable[[int, int], Value]
) -> None:
    timings = trace_value["attempts"][0]["observerTimings"]
    timings["completedAt"] = "2026-07-23T01:00:00.001Z"
    manifest = _manifest(protocol_digest=trace_value["protocolDigest"])
    assert exclusion(TraceEnvelope.from_value(trace_value).record, manifest) is Exclusion.WATERMARK


def test_an_unsampled_trace_is_not_in_the_window(trace_value: Value) -> None:
    rule = MembershipRule(seed="sample", sample_basis_points=0)
    digest = membership_digest("window-1", trace_value["protocolDigest"], rule)
    manifest = _manifest(protocol_digest=trace_value["protocolDigest"], membership_rule=rule, membership_digest=digest)
    value = {**trace_value, "collectionWindowMembershipDigest": digest}
    assert exclusion(TraceEnvelope.from_value(value).record, manifest) is Exclusion.SAMPLE
