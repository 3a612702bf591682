from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tasc_collector.canonical import canonical_bytes, digest, sha256_hex
from tasc_collector.contracts.decision import AssessmentDecision, CandidateAssessment
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_collector.contracts.manifest import CapacityReported, CapacityUnavailable, WindowManifest
from tasc_collector.contracts.membership import membership_digest
from tasc_collector.contracts.policy import control_policy, policy_space
from tasc_collector.errors import InputError
from tasc_pipeline.control import engine_v2_texts
from tasc_pipeline.control.engine_v2 import assess_development, assess_window
from tasc_pipeline.control.engine_v2_dataset import dataset_json
from tasc_pipeline.control.record_columns import execution_key, executions_of
from tasc_pipeline.control.stored import StoredReceipts, StoredTraces, Text
from tests.support.engine_v2_world import (
    AS_OF,
    CANDIDATE,
    CHAMPION,
    EXPIRES,
    FAILED,
    GROUPS,
    PROTOCOL,
    SCORED_AT,
    STARTED,
    UNKNOWN,
    attempt,
    context,
    d,
    later,
    pair,
    protocol,
    receipt,
    table,
    trace,
)


def both(*pairs: Any) -> tuple[list[Any], list[Any]]:
    """Traces and evidence of several pairs."""
    return [item for made in pairs for item in made[0]], [item for made in pairs for item in made[1]]


def under(item: Any, terms: Any) -> Any:
    """The same envelope under another protocol."""
    return TraceEnvelope.from_value({**item.value, "protocolDigest": terms.record.digest})


def about(item: Any, terms: Any) -> Any:
    """The same checked evidence under another protocol."""
    parsed = EvaluatorEvidence.from_value({**item.evidence.to_json(), "protocolDigest": terms.record.digest})
    return replace(item, evidence=parsed.record, evidence_digest=parsed.record.digest)


def fast(decision: AssessmentDecision) -> CandidateAssessment:
    return next(item for item in decision.candidates if item.policy.kind == "fast-only")


def cascade(decision: AssessmentDecision) -> CandidateAssessment:
    return next(item for item in decision.candidates if item.policy.kind == "cascade")


def decided(traces: list[Any], receipts: list[Any], terms: Any = PROTOCOL, as_of: str = AS_OF) -> AssessmentDecision:
    return assess_development(table(traces, receipts, terms), context(as_of))


def test_two_cases_by_hand() -> None:
    decision = decided(*both(pair("case-1", 0.8, 0.6), pair("case-2", 0.5, 0.9, group=GROUPS[1], weight=3)))
    found = fast(decision)
    assert found.inference is not None
    # effects -0.2 of weight 1 and +0.4 of weight 3
    assert found.inference.estimate == pytest.approx((-0.2 + 3 * 0.4) / 4)
    assert found.metrics.mean_score.value == pytest.approx((0.6 + 3 * 0.9) / 4)
    assert (found.metrics.mean_score.evidence_class, found.metrics.ttft_ms.evidence_class) == ("reported", "measured")
    assert found.metrics.cost_per_thousand_requests_usd.value == pytest.approx(1.0)
    assert (found.coverage.case_count, found.coverage.group_count, found.coverage.effective_traffic_mass) == (2, 2, 4.0)
    assert decision.control.inference is not None
    assert decision.control.inference.estimate == 0.0
    assert decision.status == "NOMINATED"


def test_a_failed_execution_scores_zero_and_a_cascade_asks_the_champion_after_it() -> None:
    champion = trace("case-1", CHAMPION, attempts=[attempt(CHAMPION, ttft_ms=30, e2e_ms=100)])
    failed = trace("case-1", CANDIDATE, attempts=[attempt(CANDIDATE, ttft_ms=None, e2e_ms=400, **FAILED)])
    decision = decided([champion, failed], [receipt(champion, 0.7)])
    (row,) = fast(decision).replay
    assert (row.status, row.score, row.score_evidence_class, row.ttft_ms) == ("failure", 0.0, "modeled", 400.0)
    (row,) = cascade(decision).replay
    assert (row.attempted_profile_ids, row.escalated, row.score) == ((CANDIDATE, CHAMPION), True, 0.7)
    assert (row.ttft_ms, row.end_to_end_latency_ms, row.cost_usd) == (430.0, 500.0, 0.002)


def test_several_attempts_count_from_the_first_start() -> None:
    first = attempt(CANDIDATE, ttft_ms=None, e2e_ms=100, **FAILED)
    second = attempt(CANDIDATE, number=2, start=later(STARTED, 150), ttft_ms=20, e2e_ms=60)
    champion = trace("case-1", CHAMPION)
    retried = trace("case-1", CANDIDATE, attempts=[first, second])
    (row,) = fast(decided([champion, retried], [receipt(champion), receipt(retried)])).replay
    assert (row.ttft_ms, row.end_to_end_latency_ms, row.cost_usd, row.status) == (170.0, 210.0, 0.002, "success")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("missing profile", "missing-required-profile"),
        ("ambiguous", "ambiguous-execution"),
        ("abstained", "evaluator-abstention"),
        ("missing", "missing-evaluator-evidence"),
        ("no evidence", "missing-evaluator-evidence"),
        ("invalid", "invalid-evaluator-evidence"),
        ("untrusted", "invalid-evaluator-evidence"),
        ("no cost", "required-cost-evidence-unavailable"),
        ("few groups", "insufficient-independent-groups"),
        ("few slice groups", "insufficient-critical-slice-groups:hard"),
        ("low coverage", "insufficient-evaluator-coverage"),
    ],
)
def test_each_reason_for_insufficient_evidence(what: str, reason: str) -> None:
    traces, receipts = both(pair("case-1"), pair("case-2", group=GROUPS[1]))
    gates: dict[str, Any] = {}
    last = trace("case-2", CANDIDATE, group=GROUPS[1])
    match what:
        case "missing profile":
            traces, receipts = traces[:-1], receipts[:-1]
        case "ambiguous":
            traces[-1] = trace("case-2", CANDIDATE, group=GROUPS[1], attempts=[attempt(CANDIDATE, **UNKNOWN)])
            receipts = receipts[:-1]
        case "abstained" | "missing" | "invalid":
            receipts[-1] = receipt(last, what)
        case "no evidence":
            receipts = receipts[:-1]
        case "untrusted":
            receipts[-1] = receipt(last, status=EvidenceStatus.INVALID_SIGNATURE)
        case "no cost":
            traces[-1] = trace(
                "case-2", CANDIDATE, group=GROUPS[1], attempts=[attempt(CANDIDATE, cost={"kind": "unavailable"})]
            )
        case "few groups":
            gates = {"minimumIndependentGroups": 3}
        case "few slice groups":
            gates = {"minimumCriticalSliceGroups": 1}
        case "low coverage":
            receipts, gates = receipts[:-1], {"minimumEvidenceCoverage": 0.8}
    terms = protocol(gates)
    found = fast(decided([under(item, terms) for item in traces], [about(item, terms) for item in receipts], terms))
    assert reason in found.insufficiency_reasons
    assert found.status == "INSUFFICIENT_EVIDENCE"
    assert found.inference is None


@pytest.mark.parametrize(
    ("gates", "failed"),
    [
        ({"minimumMeanScore": 0.7}, "minimum-mean-score"),
        ({"nonInferiorityMargin": -0.1}, "paired-quality"),
        ({"maximumFailureRate": 0.4}, "maximum-failure-rate"),
        ({"maximumP95TtftMs": 199}, "maximum-p95-ttft"),
        ({"maximumP95EndToEndMs": 199}, "maximum-p95-end-to-end"),
        ({"maximumCostPerThousandRequestsUsd": 0.9}, "maximum-cost-per-thousand"),
    ],
)
def test_each_gate_holds_alone(gates: dict[str, Any], failed: str) -> None:
    first, second = pair("case-1", 0.9, 0.8), pair("case-2", 0.9, 0.9, group=GROUPS[1])
    failure = trace("case-2", CANDIDATE, group=GROUPS[1], attempts=[attempt(CANDIDATE, ttft_ms=None, **FAILED)])
    traces, receipts = [*first[0], second[0][0], failure], [*first[1], second[1][0]]
    terms = protocol(gates)
    found = fast(decided([under(item, terms) for item in traces], [about(item, terms) for item in receipts], terms))
    assert [gate.id for gate in found.gates if not gate.passed] == [failed]
    assert (found.status, found.rejection_reasons) == ("HOLD", (f"failed-gate:{failed}",))
    assert fast(decided(traces, receipts)).status == "PASS"


def test_nomination_prefers_cost_then_latency_then_digest() -> None:
    decision = decided(*both(pair("case-1", signal=0.2), pair("case-2", group=GROUPS[1])))
    costs = {item.policy.kind: item.metrics.cost_per_thousand_requests_usd.value for item in decision.candidates}
    assert costs["cascade"] == costs["fast-only"]
    assert decision.selected_policy_digest == min(item.policy_digest for item in decision.candidates)


def test_no_candidate_and_insufficient_evidence() -> None:
    terms = protocol({"minimumMeanScore": 0.95})
    traces, receipts = pair("case-1")
    made = [under(item, terms) for item in traces], [about(item, terms) for item in receipts]
    assert decided(*made, terms).status == "NO_CANDIDATE"
    assert decided(traces, receipts[:1]).status == "INSUFFICIENT_EVIDENCE"
    assert decided(traces, receipts[:1]).selected_policy is None


def test_one_group_is_a_warning() -> None:
    assert decided(*pair("case-1")).warnings == ("single-independent-group-produces-degenerate-bootstrap",)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("before", "protocol-not-yet-valid"),
        ("after", "protocol-expired"),
        ("trace", "trace-completed-after-assessment-cutoff"),
        ("evidence", "evaluator-evidence-produced-after-assessment-cutoff"),
        ("revoked", "evaluator-evidence-revoked"),
        ("stale", "evaluator-evidence-stale"),
        ("future-dated", "evaluator-evidence-future-dated"),
        ("key-not-yet-valid", "evaluator-evidence-key-not-yet-valid"),
        ("key-expired", "evaluator-evidence-key-expired"),
        ("context", "assessment-context-drift"),
        ("contexts", "evaluator-verification-context-drift"),
        ("context-mismatch", "evaluator-verification-context-drift"),
    ],
)
def test_each_stale_reason_overrides_everything(what: str, reason: str) -> None:
    traces, receipts = pair("case-1")
    as_of = {"before": "2026-06-30T00:00:00.000Z", "after": EXPIRES, "trace": STARTED, "evidence": later(SCORED_AT, -1)}
    instant = as_of.get(what, AS_OF)
    under_context = context(later(AS_OF, 1)) if what == "context" else context(instant)
    statuses = {status.value: status for status in EvidenceStatus}
    status = statuses.get(what, EvidenceStatus.TRUSTED)
    receipts = [receipt(item, under=under_context, status=status) for item in traces]
    if what == "contexts":
        receipts[0] = receipt(traces[0], under=context(later(AS_OF, 1)))
    decision = decided(traces, receipts, as_of=instant)
    assert decision.status == "STALE"
    assert reason in decision.stale_reasons
    assert all(item.status == "STALE" and item.replay == () for item in (decision.control, *decision.candidates))


def test_a_table_with_problems_gives_no_decision() -> None:
    traces, receipts = pair("case-1")
    for changed, message in (
        ((traces, [*receipts, receipts[0]]), "same-evidence-twice"),
        (([*traces, traces[0]], receipts), "same-envelope-twice"),
        ((traces, [*receipts, receipt(traces[0], 0.1)]), "multiple-distinct-evidence-rows-for-join-key"),
        ((traces[1:], receipts), "no-matching-trace"),
    ):
        with pytest.raises(InputError, match=message):
            decided(*changed)


def test_a_stale_table_with_problems_is_stale_and_still_has_its_own_identity() -> None:
    traces, receipts = pair("case-1")
    plain = decided(traces, receipts, as_of=EXPIRES)
    digests = {plain.dataset_digest}
    for changed in (
        (traces, [*receipts, receipts[0]]),
        ([*traces, traces[0]], receipts),
        (traces, [*receipts, receipt(traces[0], 0.1)]),
        (traces[1:], receipts),
        ([*traces, trace("case-1", CHAMPION, weight=2)], receipts),
        (traces, [receipts[0], receipt(traces[1], "abstained")]),
        (traces, [receipts[0], receipt(traces[1], "missing")]),
        (traces, [receipts[0], receipt(traces[1], "invalid")]),
    ):
        decision = decided(*changed, as_of=EXPIRES)
        assert decision.status == "STALE"
        digests.add(decision.dataset_digest)
    assert len(digests) == 9


def test_the_table_is_hashed_as_the_canonical_json_that_it_is() -> None:
    traces, receipts = both(*(pair(f"case-{number}", 0.25, 1.0, slices=["hard"], weight=2.5) for number in range(300)))
    failed = trace("case-x", CANDIDATE, attempts=[attempt(CANDIDATE, **FAILED)])
    unknown = trace("case-x", CHAMPION, attempts=[attempt(CHAMPION, **UNKNOWN)])
    alone = trace("case-y", CHAMPION, signal=None)
    found = table([*traces, failed, unknown, alone], [*receipts[:-1], receipt(alone, "abstained")])
    given = executions_of(found.sources.traces, PROTOCOL.record)
    data = b"".join(dataset_json(found.rows, given, found.evidence, found.sources))
    value = orjson.loads(data)
    assert canonical_bytes(value) == data
    assert found.dataset.digest == f"sha256:{sha256_hex(data)}"
    body = value["value"]
    assert value["domain"] == "tasc/assessment-dataset/v2"
    assert len(body["executions"]) == len(found.rows) == 603 and len(body["pairs"]) == 301
    assert {item["outcome"]["kind"] for item in body["executions"]} == {
        "scored",
        "protocol-failure-zero",
        "ambiguous-execution",
        "abstained",
        "missing-evidence",
    }
    assert body["executions"][0]["trace"] == found.sources.traces[found.rows.source[0]].value
    assert [item["pairKey"] for item in body["pairs"]] == sorted(item["pairKey"] for item in body["pairs"])
    assert body["counts"]["observedTrafficMass"] == 300 * 2.5 + 2
    assert body["counts"]["slices"] == [{"sliceId": "hard", "caseReplicates": 300, "groups": 1}]
    assert body["diagnostics"]["missingProfileExecutions"] == [
        {"caseId": "case-y", "replicateId": "replicate-0", "missingProfileIds": [CANDIDATE]}
    ]


class _Held:
    """Records that are at hand, in the place of those of a spool."""

    def __init__(self, held: Sequence[Any]) -> None:
        self.held = held

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: Any) -> Any:
        return self.held[index]


class _Traces(_Held, StoredTraces):
    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        return [memoryview(canonical_bytes(self.held[place].value)) for place in places]


class _Receipts(_Held, StoredReceipts):
    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        return [memoryview(canonical_bytes(self.held[place].evidence.to_json())) for place in places]


@pytest.mark.parametrize("rows_of_a_block", [1, 7, 24, 4_096])
def test_a_table_has_one_digest_however_its_records_are_held_and_however_large_a_block_is(
    monkeypatch: pytest.MonkeyPatch, rows_of_a_block: int
) -> None:
    traces, receipts = both(*(pair(f"case-{number}", number / 12, 0.0005, slices=["hard"]) for number in range(12)))
    failed = trace("case-12", CANDIDATE, attempts=[attempt(CANDIDATE, **FAILED)])
    traces, receipts = [*traces, failed, trace("case-12", CHAMPION)], [*receipts[:-1], receipt(traces[-1], "abstained")]
    expected = table(traces, receipts)
    monkeypatch.setattr(engine_v2_texts, "_BLOCK", rows_of_a_block)
    found = table(_Traces(traces), _Receipts(receipts))
    assert found.dataset == expected.dataset
    assert len(found.rows) == 26


def test_an_execution_key_is_the_digest_of_its_join_key_and_envelope() -> None:
    for made in (trace("case-1", CHAMPION), trace("case-1", CANDIDATE, attempts=[attempt(CANDIDATE, **FAILED)])):
        value, envelope = made.value, TraceEnvelope.digest_of(made.value)
        names = ("profileId", "protocolDigest", "terminalOutputId", "traceId")
        joined = digest("tasc/assessment-trace-join-key/v2", {name: value[name] for name in names})
        expected = digest("tasc/assessment-execution/v2", {"traceDigest": envelope, "traceIdentityKey": joined})
        assert execution_key(made.record, envelope) == expected


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"studyId": "other"}, "study and protocol are those that are assessed"),
        ({"protocolDigest": d(98)}, "study and protocol are those that are assessed"),
        ({"executionProfileDigest": d(99)}, "execution profile is the protocol's"),
        ({"split": "holdout"}, "group's hash gives"),
    ],
)
def test_a_trace_of_another_study_profile_or_split_is_refused(changes: dict[str, Any], rule: str) -> None:
    traces, receipts = pair("case-1")
    strange = trace("case-1", CANDIDATE, **changes)
    with pytest.raises(InputError, match=rule):
        decided([traces[0], strange], receipts)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"cost": {"kind": "modeled", "amount": 1, "currency": "USD", "modelDigest": d(70)}},
            "modeled cost is from the protocol's cost model",
        ),
        ({"requestedModel": {"id": "other", "revision": "1"}}, "requested model is the profile's"),
        (
            {"resolvedModel": {"id": "champion-model", "revision": "2", "source": "provider-reported"}},
            "model that answered is the profile's",
        ),
        ({"start": "2026-06-30T00:00:00.000Z"}, None),
        ({"start": later(EXPIRES, -100)}, "inside the protocol's validity"),
    ],
)
def test_an_attempt_that_is_not_the_protocols_is_refused(changes: dict[str, Any], rule: str | None) -> None:
    if rule is None:  # the contract refuses it already: an attempt cannot start before its dispatch intent
        with pytest.raises(InputError, match="no later than the first attempt"):
            trace("case-1", CHAMPION, attempts=[attempt(CHAMPION, **changes)])
        return
    strange = trace("case-1", CHAMPION, attempts=[attempt(CHAMPION, **changes)])
    with pytest.raises(InputError, match=rule) as found:
        decided([strange], [])
    assert found.value.way_out


def test_a_route_signal_outside_the_protocols_range_is_refused() -> None:
    with pytest.raises(InputError, match="lies in the protocol's range"):
        decided([trace("case-1", CHAMPION, signal=1.5)], [])


START, END, WATERMARK = STARTED, later(STARTED, 60_000), later(SCORED_AT, 0)


def window_of(table_: Any, capacity: Any = None, **changes: Any) -> WindowManifest:
    """The manifest of the traces of a table."""
    terms = table_.sources.terms
    policy = policy_space(terms.protocol, START)[0]
    fields = {
        "window_id": "window-1",
        "protocol_digest": terms.digest,
        "frozen_policy_digest": policy.policy_digest,
        "event_time_start_inclusive": START,
        "event_time_end_exclusive": END,
        "ingestion_watermark": WATERMARK,
        "closure_reason": "scheduled",
        "membership_rule": terms.protocol.online_window_membership,
        "membership_digest": membership_digest("window-1", terms.digest, terms.protocol.online_window_membership),
        "revision": 1,
        "predecessor_manifest_digest": None,
        "trace_set_digest": table_.dataset.trace_set_digest,
        "evaluator_set_digest": table_.dataset.evaluator_set_digest,
        "capacity_evidence": capacity or CapacityUnavailable(reason_code="none"),
    }
    return WindowManifest.issue(**(fields | changes))


def online(terms: Any, start: str = STARTED) -> tuple[list[Any], list[Any]]:
    policy = policy_space(terms.record, START)[0]
    fields = {
        "terms": terms,
        "split": "online",
        "collectionWindowId": "window-1",
        "collectionWindowMembershipDigest": membership_digest(
            "window-1", terms.record.digest, terms.record.online_window_membership
        ),
        "policyDigest": policy.policy_digest,
    }
    traces = [
        trace("case-1", profile, attempts=[attempt(profile, start=start)], **fields)
        for profile in (CHAMPION, CANDIDATE)
    ]
    return traces, [receipt(item) for item in traces]


def test_a_window_without_capacity_gate_passes_and_needs_its_own_manifest() -> None:
    found = table(*online(PROTOCOL))
    policy = policy_space(PROTOCOL.record, START)[0]
    decision = assess_window(found, context(), policy, window_of(found))
    assert (decision.status, decision.candidates[0].metrics.service_capacity.reason) == (
        "PASS",
        "service-capacity-gate-disabled",
    )
    other = policy_space(PROTOCOL.record, START)[1]
    for manifest, message in (
        (window_of(found, trace_set_digest=d(1)), "sealed over other sources"),
        (window_of(found, evaluator_set_digest=d(1)), "sealed over other sources"),
        (window_of(found, frozen_policy_digest=other.policy_digest), "does not belong to this assessment"),
    ):
        with pytest.raises(InputError, match=message):
            assess_window(found, context(), policy, manifest)
    with pytest.raises(InputError, match="policy's primary must have the role"):
        bad = control_policy(PROTOCOL.record, START).model_copy(
            update={"primary_profile_id": "nobody", "kind": "fast-only"}
        )
        assess_window(found, context(), bad, window_of(found, frozen_policy_digest=bad.policy_digest))


def test_a_declared_capacity_is_ignored_and_said_so() -> None:
    terms = protocol(
        {
            "serviceCapacity": {
                "kind": "minimum-measured-window-throughput",
                "metric": "aggregate-output-tokens-per-second",
                "minimum": 10,
            }
        }
    )
    found = table(*online(terms), terms)
    policy = policy_space(terms.record, START)[0]
    capacity = CapacityReported(
        value=100,
        declaration_digest=d(1),
        frozen_policy_digest=policy.policy_digest,
        event_time_start_inclusive=START,
        event_time_end_exclusive=END,
    )
    decision = assess_window(found, context(), policy, window_of(found, capacity))
    assert decision.status == "INSUFFICIENT_EVIDENCE"
    assert (
        decision.candidates[0].gates[-1].reason == "window capacity declaration lacks trusted measurement attestation"
    )
    assert "operator-reported-capacity-declaration-ignored" in decision.warnings


def test_a_window_is_stale_before_its_watermark() -> None:
    as_of = later(WATERMARK, -1)
    traces, _ = online(PROTOCOL)
    receipts = [receipt(item, under=context(as_of), producedAt=later(STARTED, 1_000)) for item in traces]
    found = table(traces, receipts)
    policy = policy_space(PROTOCOL.record, START)[0]
    decision = assess_window(found, context(as_of), policy, window_of(found))
    assert decision.stale_reasons == ("window-not-yet-sealed-at-assessment-time",)


def test_a_trace_outside_the_window_and_late_evidence_are_refused() -> None:
    policy = policy_space(PROTOCOL.record, START)[0]
    outside = table(*online(PROTOCOL, start=END))
    with pytest.raises(InputError, match="event-time-outside-window"):
        assess_window(outside, context(), policy, window_of(outside))
    traces, _ = online(PROTOCOL)
    late = table(traces, [receipt(item, producedAt=later(WATERMARK, 1)) for item in traces])
    with pytest.raises(InputError, match="produced after the window's watermark"):
        assess_window(late, context(), policy, window_of(late))
