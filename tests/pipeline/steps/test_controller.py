"""The controller from a study's records: each state takes the next fact from disk, and says why where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.canonical import digest
from tasc_collector.contracts.manifest import CapacityUnavailable, WindowManifest
from tasc_collector.contracts.proposal import ExperimentBudget, HeldExperiment, ProposedExperiment
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.contracts.window import LinkCounts, WindowLink
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.controller import controller_log
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.windows import DECISION, LINK, MANIFEST, REPORT, WindowFolder
from tasc_pipeline.steps import controller, plan, seal
from tasc_pipeline.steps.controller import Wanted
from tasc_pipeline.steps.proposals import BUDGET, ProposalFiles, propose_next
from tests.support.decision_world import STUDY, DecisionWorld, decision_world
from tests.support.made_decisions import made_decision, made_report
from tests.support.window import now

LATER = now() + timedelta(hours=2)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DecisionWorld]:
    with decision_world(tmp_path, cases=4) as found:
        yield found


def protocol_of(made: DecisionWorld) -> ExperimentProtocol:
    protocol = made.study.protocol
    assert protocol is not None
    return protocol.record


def advance(made: DecisionWorld, at: datetime | None = None, **wanted: Any) -> str:
    """Record the next fact; returns the state."""
    return controller.advance(made.home, STUDY, at or now(), Wanted(**wanted)).chain.current.state


def stuck(made: DecisionWorld, rule: str, at: datetime | None = None) -> None:
    """Nothing on disk moves the controller, and ``show`` says the same."""
    at = at or now()
    with pytest.raises(NotAuthorized, match=rule) as caught:
        controller.advance(made.home, STUDY, at)
    view = controller.show(made.home, STUDY, at)
    assert view.next_fact is None and view.waiting_for == caught.value.rule


def development(made: DecisionWorld, **options: Any) -> str:
    """A development window with an approved plan."""
    at = now()
    key = seal.seal(made.home, STUDY, seal.SealOptions(lead_s=1.0, **options), at).window_key
    issued, _ = plan.make_plan(made.home, key, at, write=True, purpose="development")
    plan.approve(made.home, key, issued.digest, at)
    return key


def closed(made: DecisionWorld, number: int, **options: Any) -> tuple[str, WindowManifest]:
    """A window with a manifest and a signed link, as closing one leaves them."""
    at, traces = now(), digest("tests/traces/v1", number)
    declaration = seal.seal(made.home, STUDY, seal.SealOptions(lead_s=number + 1.0, **options), at)
    manifest = WindowManifest.issue(
        **{
            name: getattr(declaration, name)
            for name in (
                "window_id", "protocol_digest", "event_time_start_inclusive", "event_time_end_exclusive",
                "ingestion_watermark", "membership_rule", "membership_digest", "revision",
            )
        },
        frozen_policy_digest=made.fast_only.policy_digest,
        closure_reason="every-execution-final",
        predecessor_manifest_digest=None,
        trace_set_digest=traces,
        evaluator_set_digest=traces,
        capacity_evidence=CapacityUnavailable(reason_code="no-capacity-measured"),
    )  # fmt: skip
    ring, closed_at = keys.read_ring(made.home), format_timestamp(at)
    signer = signers.collector(made.home, ring, made.study.study, closed_at)
    link = WindowLink.sign_with(
        signer.key,
        signer.key_id,
        window_key=declaration.window_key,
        study_id=STUDY,
        declaration_digest=declaration.digest,
        plan_digest=traces,
        trace_set_digest=traces,
        manifest_digest=manifest.self_digest,
        journal_head=traces,
        scrapes_digest=None,
        device_snapshots_digest=None,
        counts=LinkCounts(planned=0, accepted=0, not_sent=0, not_attempted=0, reasons=()),
        closed_at=closed_at,
    )
    folder = WindowFolder(made.home, declaration.window_key)
    folder.write(MANIFEST, manifest)
    folder.write(LINK, link)
    return declaration.window_key, manifest


def decide(made: DecisionWorld, key: str, phase: str, status: str, **changes: Any) -> None:
    """Put a decision into a window's folder: development by engine v2, the rest by our own analysis."""
    decision = made_decision(protocol_of(made), made.fast_only, phase, status, **changes)
    folder = WindowFolder(made.home, key)
    if phase == "development":
        folder.write(DECISION, decision)
        folder.write(REPORT, made_report(decision, key, engine="tasc-assessment-engine-v2"))
    else:
        write_file(folder.path / REPORT, made_report(decision, key).canonical(), replace=True)


def decide_window(made: DecisionWorld, key: str, manifest: WindowManifest, status: str, **changes: Any) -> None:
    sets = dict.fromkeys(("trace_set_digest", "evaluator_set_digest"), manifest.trace_set_digest)
    decide(made, key, "window", status, window_manifest_digest=manifest.self_digest, **sets, **changes)


def deployment(made: DecisionWorld, folder: Path, at: datetime) -> Path:
    path = folder / "deployed.json"
    observation = {
        "source": "external-deployment-observation",
        "attestation": "unattested",
        "observationId": "rollout-7",
        "environmentId": "production",
        "policyDigest": made.fast_only.policy_digest,
        "observedAt": format_timestamp(at),
    }
    path.write_text(
        json.dumps({"version": "tasc-controller-fact-v1", "kind": "deployment-observed", "observation": observation})
    )
    return path


def test_a_study_goes_from_draft_to_rollback_on_its_records(made: DecisionWorld, tmp_path: Path) -> None:
    assert advance(made) == "REGISTERED"
    stuck(made, "no decisive window has an approved plan of purpose development")
    key = development(made)
    assert advance(made) == "COLLECTING"
    stuck(made, "no development decision")
    decide(made, key, "development", "NOMINATED")
    assert [advance(made) for _ in range(3)] == ["DEV_READY", "NOMINATED", "SHADOW_ASSESSING"]

    first, manifest = closed(made, 1)
    stuck(made, f"{first} waits for its watermark at {manifest.ingestion_watermark}; and no holdout decision")
    assert advance(made, LATER) == "SHADOW_ASSESSING"
    stuck(made, "no decisive window was closed .* and no holdout decision", LATER)
    holdout, _ = closed(made, 2, window_class="observation")
    with pytest.raises(NotAuthorized, match="an observation window does not move a controller"):
        advance(made, LATER, window_key=holdout)
    decision = tmp_path / "holdout.json"
    decision.write_bytes(
        made_decision(
            protocol_of(made), made.fast_only, "holdout", "PASS", dataset_digest=manifest.self_digest
        ).canonical()
    )
    assert advance(made, LATER, decision=decision) == "HOLDOUT_CONFIRMED"
    stuck(made, "no recorded window has a new decision", LATER)
    # a decision that was made before the watermark says nothing yet, and is not recorded
    decide_window(made, first, manifest, "STALE", stale=["before-watermark"])
    stuck(made, "no recorded window has a new decision", LATER)
    with pytest.raises(NotAuthorized, match="made before its window's watermark"):
        advance(made, LATER, window_key=first)
    decide_window(made, first, manifest, "PASS")
    assert advance(made, LATER) == "PROMOTION_RECOMMENDED"

    # what only the operator knows is never assumed, and another window is not recorded unasked
    second, monitored = closed(made, 3)
    stuck(made, "nothing is recorded unasked here", LATER)
    fact = deployment(made, tmp_path, LATER)
    assert advance(made, LATER, fact=fact) == "MONITORING"
    again = controller.advance(made.home, STUDY, LATER, Wanted(fact=fact))
    assert not again.new and again.event.fact.kind == "deployment-observed"
    assert advance(made, LATER) == "MONITORING"
    decide_window(made, second, monitored, "HOLD")
    assert advance(made, LATER) == "ROLLBACK_RECOMMENDED"
    stuck(made, "ROLLBACK_RECOMMENDED takes drift, expiry and retirement only", LATER)

    view = controller.show(made.home, STUDY, LATER)
    assert [event.fact.kind for event in view.chain.events] == [
        "protocol-registered", "collection-started", "development-evidence-ready", "development-assessment-recorded",
        "shadow-assessment-started", "window-manifest-recorded", "holdout-assessment-recorded",
        "window-assessment-recorded", "deployment-observed", "window-manifest-recorded", "window-assessment-recorded",
    ]  # fmt: skip
    assert {item.fact for item in view.outlooks if item.allowed} == {"identity-drift-recorded", "controller-retired"}
    anchor = tmp_path / "anchor.json"
    anchor.write_bytes(view.chain.snapshots[5].anchor.canonical())
    controller.show(made.home, STUDY, LATER, anchor=anchor)
    anchor.write_bytes(view.chain.snapshots[5].anchor.model_copy(update={"sequence": 6}).canonical())
    with pytest.raises(DigestMismatch, match="not the one that was pinned"):
        controller.show(made.home, STUDY, LATER, anchor=anchor)

    # the next experiment follows from the decision that was recorded last
    with pytest.raises(InputError, match="there is no budget"):
        propose_next(made.home, STUDY)
    budget = ExperimentBudget.issue(
        max_logical_executions=16, max_attempts=16, max_cost_usd=1.0, max_wall_clock_ms=300_000
    )
    (made.study.folder / BUDGET).write_bytes(budget.canonical())
    proposal, path = propose_next(made.home, STUDY)
    assert isinstance(proposal, ProposedExperiment) and proposal.diagnosis == "ttft-regression"
    assert path.read_bytes() == proposal.canonical()
    assert propose_next(made.home, STUDY) == (proposal, path)
    held, _ = propose_next(made.home, STUDY, ProposalFiles(decision=decision))
    assert isinstance(held, HeldExperiment) and held.hold_reason == "holdout-tuning-forbidden"

    assert advance(made, LATER, retire="replaced") == "RETIRED"
    assert not controller.advance(made.home, STUDY, LATER, Wanted(retire="replaced")).new
    with pytest.raises(NotAuthorized, match="a retired controller takes nothing more"):
        advance(made, LATER, retire="again")


def test_an_observation_window_starts_no_collection(made: DecisionWorld) -> None:
    advance(made)
    key = development(made, window_class="observation")
    stuck(made, "no decisive window has an approved plan")
    with pytest.raises(NotAuthorized, match="an observation window does not move a controller") as caught:
        advance(made, window_key=key)
    assert caught.value.way_out == f"seal a decisive one: tasc seal {STUDY} --decisive"


def test_the_end_of_the_protocol_is_recorded_once(made: DecisionWorld) -> None:
    advance(made)
    end = parse_timestamp(protocol_of(made).expires_at) + timedelta(days=1)
    assert advance(made, end) == "STALE"
    assert not controller.advance(made.home, STUDY, end + timedelta(days=1)).new
    assert controller_log(made.home, made.study).read().current.stale_reasons == ("protocol-expired",)


BAD_FACTS: list[tuple[dict[str, Any], str]] = [
    (
        {
            "kind": "protocol-registered",
            "protocolCreatedAt": "2026-07-20T00:00:00.000Z",
            "protocolExpiresAt": "2026-09-01T00:00:00.000Z",
        },
        "follows from records",
    ),
    ({"kind": "controller-retired"}, "reasonCode: required field is missing"),
    ({"kind": "controller-retired", "reasonCode": "x", "note": "y"}, "note: unknown field"),
    ({"kind": "controller-retired", "reasonCode": 7}, "reasonCode"),
    ({"kind": "controller-paused"}, "not one of the kinds"),
    ({"kind": "protocol-expiry-observed", "asOf": "2020-01-01T00:00:00.000Z"}, "does not expire before"),
]


def test_an_operators_file_is_checked(made: DecisionWorld, tmp_path: Path) -> None:
    advance(made)
    path = tmp_path / "fact.json"
    for value, problem in BAD_FACTS:
        path.write_text(json.dumps({"version": "tasc-controller-fact-v1", **value}))
        with pytest.raises(InputError, match=problem) as caught:
            advance(made, fact=path)
        assert caught.value.way_out
    path.write_text(json.dumps({"kind": "controller-retired", "reasonCode": "x"}))
    with pytest.raises(InputError, match="version: required field is missing"):
        advance(made, fact=path)
    assert controller_log(made.home, made.study).read().current.sequence == 1


def test_one_fact_at_a_time_and_only_of_this_study(made: DecisionWorld, tmp_path: Path) -> None:
    advance(made)
    with pytest.raises(InputError, match="one fact is recorded at a time"):
        advance(made, retire="x", window_key="y")
    key = development(made)
    advance(made)
    foreign = made_decision(
        protocol_of(made), made.fast_only, "window", "PASS", window_manifest_digest="sha256:" + "9" * 64
    )
    path = tmp_path / "decision.json"
    path.write_bytes(foreign.canonical())
    with pytest.raises(InputError, match="no closed decisive window has the manifest"):
        advance(made, decision=path)
    decide(made, key, "development", "NO_CANDIDATE")
    assert [advance(made), advance(made)] == ["DEV_READY", "HOLD"]
