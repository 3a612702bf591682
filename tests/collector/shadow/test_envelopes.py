"""Envelopes and attempts as they leave a run: valid, signed by two keys, honest about what is not known."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.operations import CostModel
from tasc_collector.contracts.verification import verify_trace
from tasc_collector.errors import InputError, SignatureError
from tasc_collector.journal import RecordKind
from tasc_collector.shadow.attempts import attempt_of, unknown_attempt
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.executions import planned_pairs
from tasc_collector.wire.records import read_record
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup, authority, study_terms
from tests.support.runs import ORIGINS, envelopes, memory_run, records, run

PRICES = CostModel.from_value(
    {
        "version": "tasc-cost-model-v1",
        "modelId": "prices-1",
        "currency": "USD",
        "profiles": [
            {
                "profileId": "a",
                "price": {
                    "kind": "token-price",
                    "inputUsdPerMillion": 2,
                    "cachedInputUsdPerMillion": None,
                    "outputUsdPerMillion": 10,
                },
            }
        ],
    },
    where="cost-model",
).record


@pytest.fixture(scope="module")
def collected() -> RunContext:
    setup = Setup(ORIGINS, cases=["one"], plan={"cost_model_digest": PRICES.digest})
    context = memory_run(setup=setup, cost_model=PRICES)
    run(context)
    return context


def accepted(context: RunContext) -> list[dict[str, Any]]:
    return [record.body["trace"] for record in records(context, RecordKind.ACCEPTED)]  # type: ignore[misc]  # objects


def test_dispatch_and_collector_sign_with_two_keys_what_they_know(collected: RunContext) -> None:
    assert authority(1).public_key_spki != authority(2).public_key_spki
    for trace in envelopes(collected):
        assert trace.dispatch_intent.authority_key_id == "dispatch-1"
        assert trace.collector_attestation.authority_key_id == "collector-1"
        assert (trace.split, trace.source_mode, trace.policy_digest) == ("online", "shadow", "sha256:" + "d" * 64)
        assert (
            trace.dispatch_intent.issued_at
            <= trace.event_time
            <= trace.completed_at
            <= trace.collector_attestation.collected_at
        )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("profileId",), "b2"),
        (("caseId",), "case-9"),
        (("replicateId",), "replicate-9"),
        (("workload", "declaredTrafficWeight"), 2),
        (("collectionBinding", "route"), "responses"),
        (("dispatchIntent", "issuedAt"), "2026-01-01T00:00:00.000Z"),
        (("attempts", 0, "finishReason"), "length"),
        (("attempts", 0, "tokenUsage", "output", "value"), 4),
        (("collectorVersion",), "tasc-collector-9"),
        (("attempts", 0, "cost"), {"kind": "unavailable"}),
        (("terminalOutputId", "value"), "0" * 64),
    ],
)
def test_a_change_of_any_field_breaks_a_signature(collected: RunContext, path: tuple[Any, ...], value: object) -> None:
    trace = next(trace for trace in accepted(collected) if trace["profileId"] == "a")
    place: Any = trace
    for step in path[:-1]:
        place = place[step]
    assert place[path[-1]] != value
    place[path[-1]] = value
    with pytest.raises((SignatureError, InputError)):
        verify_trace(read_record(TraceEnvelope, canonical_bytes(trace)), study_terms(collected.wall_ms()))


def test_no_text_of_case_or_answer_is_in_any_record(collected: RunContext) -> None:
    everything = b"".join(record.body_bytes for record in records(collected))
    assert b'"one"' not in everything and b"messages" not in everything and b"127.0.0.1" not in everything
    assert collected.terms.payload_key.identify(b" 0 1 2").value.encode() in everything, "the answer's keyed identity"


def test_a_modeled_cost_stands_beside_what_it_is_computed_from(collected: RunContext) -> None:
    costs = {trace.profile_id: trace.attempts[-1].cost for trace in envelopes(collected)}
    assert costs["a"].kind == "modeled"
    assert costs["a"].to_json() == {
        "kind": "modeled",
        "amount": pytest.approx((3 * 2 + 3 * 10) / 1e6),
        "currency": "USD",
        "modelDigest": PRICES.digest,
    }
    assert costs["b"].kind == "unavailable", "no price, no cost; never zero"


def test_the_timeline_belongs_to_its_attempt_and_starts_at_the_queue(collected: RunContext) -> None:
    for record in records(collected, RecordKind.OUTCOME):
        body: Any = record.body
        marks = body["timeline"]["marks"]
        order = [
            "begunNs",
            "connectedNs",
            "leasedNs",
            "requestStartedNs",
            "requestWrittenNs",
            "headersNs",
            "firstByteNs",
            "firstTokenNs",
            "lastByteNs",
        ]
        assert [marks[name] for name in order] == sorted(marks[name] for name in order)
        assert marks["securedNs"] is None, "no TLS on loopback"
        assert len(body["timeline"]["events"]["offsetNs"]) == 3


LEASE = {
    "attemptId": "attempt-1",
    "attemptNumber": 1,
    "issuedAt": "2026-11-01T00:00:00.000Z",
    "expiresAt": "2026-11-01T00:00:05.000Z",
    "requestIdentity": {"algorithm": "hmac-sha256", "keyId": "payload-1", "value": "0" * 64},
}


@pytest.mark.parametrize(
    ("settled_at", "completed_at"),
    [
        ("2026-11-01T00:00:02.000Z", "2026-11-01T00:00:02.000Z"),
        ("2026-11-09T00:00:00.000Z", "2026-11-01T00:00:05.000Z"),
        ("2026-10-01T00:00:00.000Z", "2026-11-01T00:00:00.000Z"),
    ],
)
def test_an_unknown_attempt_ends_by_its_deadline_and_not_before_its_lease(settled_at: str, completed_at: str) -> None:
    attempt = unknown_attempt(LEASE, memory_run().plan.targets[0], settled_at=settled_at)
    assert attempt["observerTimings"]["completedAt"] == completed_at
    assert (attempt["dispatchState"], attempt["status"], attempt["failureCategory"]) == (
        "sent_unknown",
        "failure",
        "unknown",
    )
    assert attempt["tokenUsage"] == {"input": None, "output": None, "total": None} and attempt["cost"] == {
        "kind": "unavailable"
    }


def test_the_same_plan_gives_the_same_trace_ids_and_another_declaration_others() -> None:
    one = memory_run(setup=Setup(ORIGINS, at_ms=1_800_000_000_000, ends_ms=10**12))
    same, other = (
        dataclasses.replace(one, fs=memory_run().fs),
        memory_run(setup=Setup(ORIGINS, at_ms=1_800_000_000_001, ends_ms=10**12)),
    )
    ids = [[pair.replicate_id for pair in planned_pairs(c.plan, c.declaration, c.case_set)] for c in (one, same, other)]
    assert ids[0] == ids[1]
    assert set(ids[0]).isdisjoint(ids[2])


@pytest.mark.parametrize(
    ("model", "why"),
    [("org/" + "m" * 300, "256"), ("org/sk-learned-model-7b", "credential"), ("org/model", "")],
    ids=["long", "like a credential", "sound"],
)
def test_a_model_that_no_envelope_can_name_is_refused_before_anything_is_sent(model: str, why: str) -> None:
    server = MemoryServer()
    context = memory_run(server, setup=Setup(ORIGINS, targets={"b": {"model": model}}))
    if not why:
        assert run(context).states == {"success": 6}
        return
    with pytest.raises(InputError) as refusal:
        run(context)
    assert refusal.value.field == "targets.b" and refusal.value.way_out
    assert "requestedModel.id" in str(refusal.value) and why in str(refusal.value)
    assert (server.connects, context.fs.disk.names) == (0, {})  # type: ignore[attr-defined]  # a memory disk


def _not_a_slug(*arguments: Any, **named: Any) -> dict[str, Any]:
    return {**attempt_of(*arguments, **named), "finishReason": "No Slug"}


def _no_number(*arguments: Any, **named: Any) -> dict[str, Any]:
    return {**attempt_of(*arguments, **named), "cost": {"kind": "modeled", "amount": math.inf}}


def _a_fault_of_ours(*_: Any, **__: Any) -> dict[str, Any]:
    raise KeyError("a defect")


@pytest.mark.parametrize("made", [_not_a_slug, _no_number, _a_fault_of_ours])
def test_what_cannot_stand_in_an_envelope_is_the_collectors_fault_and_no_stuck_window(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an outcome was written before its envelope was refused: every resume was refused there again."""
    monkeypatch.setattr("tasc_collector.shadow.executor.attempt_of", made)
    server = MemoryServer()
    context = memory_run(server)
    result = run(context)
    assert (result.status, result.states, result.reasons) == ("complete", {"sent_unknown": 6}, {"internal": 6})
    assert run(context).states == {"sent_unknown": 6}, "a window that was read again"
    assert set(server.sent.values()) == {1}
    for envelope in envelopes(context):
        (attempt,) = envelope.attempts
        assert (attempt.dispatch_state, attempt.status, attempt.failure_category) == (
            "sent_unknown",
            "failure",
            "internal",
        )
        assert envelope.terminal_output_id is None and attempt.token_usage.output is None
    outcomes = [record.body for record in records(context, RecordKind.OUTCOME)]
    assert [(body["code"], body["timeline"]) for body in outcomes] == [(None, None)] * 6
