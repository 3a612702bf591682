"""Trace envelope and attempt: each rule that spans fields, and what the two signatures cover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.envelope import TraceEnvelope, attestation_preimage, dispatch_preimage
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.verification import StudyTerms, verify_collector, verify_dispatch, verify_trace
from tasc_collector.errors import InputError, SignatureError
from tasc_collector.signing import SigningKey

Value = dict[str, Any]
Edit = Callable[[Value], Any]


def _set(path: str, item: Any) -> Edit:
    def edit(value: Value) -> None:
        *parents, last = path.split(".")
        for part in parents:
            value = value[int(part)] if isinstance(value, list) else value[part]
        value[last] = item

    return edit


A = "attempts.0."
RULES: list[tuple[str, list[Edit], str]] = [
    ("window-id-offline", [_set("split", "dev")], "collectionWindowId"),
    ("no-window-id", [_set("collectionWindowId", None)], "collectionWindowId"),
    ("no-membership", [_set("collectionWindowMembershipDigest", None)], "collectionWindowMembershipDigest"),
    ("no-binding", [_set("collectionBinding", None)], "collectionBinding"),
    ("binding-imported", [_set("sourceMode", "imported")], "collectionBinding"),
    ("other-route", [_set("observedRoute.selectedProfileId", "candidate")], "selectedProfileId"),
    ("weight-zero", [_set("workload.declaredTrafficWeight", 0)], "greater than 0"),
    ("slice-twice", [_set("slices", ["a", "a"])], "must not repeat"),
    (
        "receipts-unsorted",
        [_set("collectionBinding.capabilityReceiptDigests", ["sha256:" + "2" * 64, "sha256:" + "1" * 64])],
        "sorted",
    ),
    ("signal-late", [_set("routeSignal.provenance.observedAt", "2026-07-23T00:00:00.001Z")], "routeSignal"),
    ("intent-late", [_set("dispatchIntent.issuedAt", "2026-07-23T00:00:01.001Z")], "dispatchIntent"),
    ("credential", [_set("collectorVersion", "Bearer abcdef")], "credential"),
    ("no-attempts", [_set("attempts", [])], "at least 1"),
    ("number-gap", [_set(A + "attemptNumber", 2)], "numbered from 1"),
    ("no-terminal-output", [_set("terminalOutputId", None)], "terminalOutputId"),
    ("time-backwards", [_set(A + "observerTimings.headersAt", "2026-07-23T00:00:01.021Z")], "must not decrease"),
    ("completed-first", [_set(A + "observerTimings.completedAt", "2026-07-23T00:00:01.029Z")], "must not decrease"),
    ("success-unsent", [_set(A + "dispatchState", "sent_unknown")], "dispatchState completed"),
    ("success-failed", [_set(A + "failureCategory", "timeout")], "no failureCategory"),
    ("success-aborted", [_set(A + "abortLifecycle", "abort-ambiguous")], "not aborted"),
    ("success-partial", [_set(A + "partialOutput", True)], "no partial output"),
    ("success-unfinished", [_set(A + "finishReason", None)], "finishReason"),
    ("success-no-model", [_set(A + "resolvedModel", None)], "resolvedModel"),
    ("failure-no-category", [_set(A + "status", "failure"), _set("terminalOutputId", None)], "failureCategory"),
    (
        "aborted-not-aborted",
        [_set(A + "status", "aborted"), _set(A + "failureCategory", "cancelled"), _set("terminalOutputId", None)],
        "abortLifecycle",
    ),
    (
        "score-metric",
        [
            _set(
                A + "providerReported.metrics",
                [{"name": "judge-score", "value": 1, "unit": "one", "source": "provider-reported"}],
            )
        ],
        "named as a score",
    ),
    ("id-only-with-revision", [_set(A + "resolvedModel.revision", "r1")], "null"),
    ("tokens-negative", [_set(A + "tokenUsage.input.value", -1)], "greater than or equal to 0"),
    (
        "reference-url",
        [_set(A + "payloads.request", {"kind": "controlled-reference", "storeId": "s", "referenceId": "a..b"})],
        "'..'",
    ),
    ("no-leap-day", [_set("dispatchIntent.issuedAt", "2026-02-29T00:00:00.000Z")], "day is out of range"),
    ("no-milliseconds", [_set("dispatchIntent.issuedAt", "2026-07-23T00:00:00Z")], "milliseconds"),
]


def test_a_trace_keeps_its_canonical_bytes(trace_value: Value) -> None:
    parsed = TraceEnvelope.from_value(trace_value)
    assert parsed.record.canonical() == canonical_bytes(trace_value)
    assert parsed.record.event_time == "2026-07-23T00:00:01.000Z"
    assert parsed.record.completed_at == "2026-07-23T00:00:01.090Z"


@pytest.mark.parametrize(("edits", "rule"), [case[1:] for case in RULES], ids=[case[0] for case in RULES])
def test_a_broken_rule_is_refused_by_name(trace_value: Value, edits: list[Edit], rule: str) -> None:
    for edit in edits:
        edit(trace_value)
    with pytest.raises(InputError, match=rule):
        TraceEnvelope.from_value(trace_value)


def test_a_second_attempt_follows_a_failure(trace_value: Value, attempt_value: Callable[[int, int], Value]) -> None:
    failed = {
        **attempt_value(1, 1), "status": "failure", "dispatchState": "not_sent", "failureCategory": "transport",
        "finishReason": None, "resolvedModel": None,
    }  # fmt: skip
    trace_value["attempts"] = [failed, attempt_value(2, 2)]
    assert len(TraceEnvelope.from_value(trace_value).record.attempts) == 2
    trace_value["attempts"] = [failed, attempt_value(2, 1)]
    with pytest.raises(InputError, match="starts after the one before"):
        TraceEnvelope.from_value(trace_value)
    trace_value["attempts"] = [attempt_value(1, 1), attempt_value(2, 2)]
    with pytest.raises(InputError, match="only the last attempt"):
        TraceEnvelope.from_value(trace_value)
    trace_value["attempts"] = [failed, {**attempt_value(2, 2), "attemptId": "attempt-1"}]
    with pytest.raises(InputError, match="attemptId must not repeat"):
        TraceEnvelope.from_value(trace_value)


def test_an_optional_digest_is_absent_and_not_null(trace_value: Value) -> None:
    usage = trace_value["attempts"][0]["tokenUsage"]["input"]
    assert (
        "tokenizerDigest"
        not in TraceEnvelope.from_value(trace_value).record.to_json()["attempts"][0]["tokenUsage"]["input"]
    )
    usage["tokenizerDigest"] = None
    with pytest.raises(InputError, match="leave the field out") as caught:
        TraceEnvelope.from_value(trace_value)
    assert caught.value.field == "attempts.0.tokenUsage.input.tokenizerDigest"


@pytest.fixture
def terms(protocol_value: Value) -> StudyTerms:
    return StudyTerms.of_protocol(ExperimentProtocol.from_value(protocol_value))


def test_both_signatures_verify(trace_value: Value, terms: StudyTerms) -> None:
    verify_trace(TraceEnvelope.from_value(trace_value), terms)


def test_the_dispatch_signature_needs_no_later_field(trace_value: Value, terms: StudyTerms) -> None:
    later = ("attempts", "terminalOutputId", "collectorVersion", "collectorAttestation")
    before_sending = {name: item for name, item in trace_value.items() if name not in later}
    verify_dispatch(before_sending, terms)
    assert dispatch_preimage(before_sending) == dispatch_preimage(trace_value)
    assert "signature" not in dispatch_preimage(trace_value)["dispatchIntent"]
    assert (
        trace_value["dispatchIntent"]["signature"] == attestation_preimage(trace_value)["dispatchIntent"]["signature"]
    )


@pytest.mark.parametrize(
    ("edit", "signature"),
    [
        (_set("caseId", "case-2"), "dispatchIntent.signature"),
        (_set("workload.inputTokenEstimate", 5), "dispatchIntent.signature"),
        (_set("collectionBinding.route", "responses"), "dispatchIntent.signature"),
        (_set("attempts.0.finishReason", "length"), "collectorAttestation.signature"),
        (_set("terminalOutputId.value", "e" * 64), "collectorAttestation.signature"),
        (_set("collectorVersion", "collector 2"), "collectorAttestation.signature"),
    ],
    ids=["case", "workload", "route", "attempt", "output", "collector-version"],
)
def test_a_changed_field_breaks_the_signature_over_it(
    trace_value: Value, terms: StudyTerms, edit: Edit, signature: str
) -> None:
    edit(trace_value)
    with pytest.raises(SignatureError) as caught:
        verify_trace(TraceEnvelope.from_value(trace_value), terms, where="trace.json")
    assert caught.value.field == signature
    assert caught.value.where == "trace.json"


@pytest.mark.parametrize("which", ["dispatch", "collector"])
def test_another_key_is_no_signature(
    trace_value: Value, terms: StudyTerms, resign: Callable[..., Value], which: str
) -> None:
    value = resign(trace_value, **{which: SigningKey.generate()})
    with pytest.raises(SignatureError):
        verify_trace(TraceEnvelope.from_value(value), terms)


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        ([_set("studyId", "another")], "studyId"),
        ([_set("protocolDigest", "sha256:" + "9" * 64)], "protocolDigest"),
        ([_set("dispatchIntent.authorityKeyId", "collector")], "dispatchIntent.authorityKeyId"),
        ([_set("collectorAttestation.authorityKeyId", "dispatch")], "collectorAttestation.authorityKeyId"),
        (
            [_set("dispatchIntent.issuedAt", "2026-07-19T23:59:59.999Z"), _set("routeSignal", None)],
            "dispatchIntent.issuedAt",
        ),
        ([_set("collectorAttestation.collectedAt", "2026-07-23T00:00:01.089Z")], "collectorAttestation.collectedAt"),
        ([_set("collectorAttestation.collectedAt", "2026-09-01T00:00:00.000Z")], "collectorAttestation.collectedAt"),
    ],
    ids=["study", "protocol", "dispatch-key", "collector-key", "issued-early", "collected-early", "collected-late"],
)
def test_a_trace_of_another_study_key_or_time_is_refused(
    trace_value: Value, terms: StudyTerms, resign: Callable[..., Value], edits: list[Edit], field: str
) -> None:
    for edit in edits:
        edit(trace_value)
    with pytest.raises(InputError) as caught:
        verify_trace(TraceEnvelope.from_value(resign(trace_value)), terms)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("capability", "edit", "field"),
    [
        ("chat-completions", None, "workload.mode"),
        ("streaming", _set("attempts.0.payloads.eventStream", None), "attempts.payloads.eventStream"),
        ("final-usage", _set("attempts.0.tokenUsage.total", None), "attempts.tokenUsage"),
    ],
)
def test_a_required_capability_must_be_shown(
    protocol_value: Value,
    trace_value: Value,
    resign: Callable[..., Value],
    capability: str,
    edit: Edit | None,
    field: str,
) -> None:
    protocol_value["requiredCapabilities"] = [capability]
    protocol = ExperimentProtocol.from_value(protocol_value)
    terms = StudyTerms.of_protocol(protocol)
    trace_value["protocolDigest"] = terms.protocol_digest
    if edit is None:
        with pytest.raises(InputError, match=capability):
            verify_collector(TraceEnvelope.from_value(resign(trace_value)), terms)
        _set("workload.mode", "chat")(trace_value)
        _set("collectionBinding.route", "chatCompletions")(trace_value)
    verify_collector(TraceEnvelope.from_value(resign(trace_value)), terms)
    if edit is not None:
        edit(trace_value)
        with pytest.raises(InputError, match=capability) as caught:
            verify_collector(TraceEnvelope.from_value(resign(trace_value)), terms)
        assert caught.value.field == field
