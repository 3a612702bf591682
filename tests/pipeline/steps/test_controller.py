"""The controller from a study's records: each state takes the next fact from disk, and says why where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.canonical import digest
from tasc_collector.contracts.collection import Ceilings
from tasc_collector.contracts.manifest import CapacityUnavailable, WindowManifest
from tasc_collector.contracts.proposal import ExperimentBudget, HeldExperiment, ProposedExperiment
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.contracts.window import LinkCounts, WindowLink
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_pipeline.control.decided import Decided
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.controller import controller_log
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import APPROVAL, DECISION, LINK, MANIFEST, REPORT, WindowFolder
from tasc_pipeline.steps import controller, plan, seal
from tasc_pipeline.steps.authorize import Wanted as Allowed
from tasc_pipeline.steps.authorize import authorize
from tasc_pipeline.steps.controller import Wanted
from tasc_pipeline.steps.decided import Recompute, decided_record, read_decided
from tasc_pipeline.steps.prepare import prepare_window
from tasc_pipeline.steps.proposals import BUDGET, ProposalFiles, propose_next
from tests.support.decision_world import STUDY, DecisionWorld, decision_world
from tests.support.made_decisions import D, made_decision, made_report
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


def as_filed(home: Home, key: str, _as_of: str) -> Decided:
    """A decision made again where nothing was collected: what the window's files say (the real one: the whole life)."""
    return read_decided(load_study(home, STUDY), WindowFolder(home, key), keys.read_ring(home))


def advance(made: DecisionWorld, at: datetime | None = None, recompute: Recompute = as_filed, **wanted: Any) -> str:
    """Record the next fact; returns the state."""
    done = controller.advance(made.home, STUDY, at or now(), Wanted(**wanted), recompute=recompute)
    return done.chain.current.state


def stuck(made: DecisionWorld, rule: str, at: datetime | None = None) -> None:
    """Nothing on disk moves the controller, and ``show`` says the same."""
    at = at or now()
    with pytest.raises(NotAuthorized, match=rule) as caught:
        controller.advance(made.home, STUDY, at, recompute=as_filed)
    view = controller.show(made.home, STUDY, at)
    assert view.next_fact is None and view.waiting_for == caught.value.rule


def development(made: DecisionWorld, **options: Any) -> str:
    """A development window with an approved plan, closed over the traces that a decision made by hand names."""
    at = now()
    key = seal.seal(made.home, STUDY, seal.SealOptions(lead_s=1.0, **options), at).window_key
    issued, _ = plan.make_plan(made.home, key, at, write=True, purpose="development")
    plan.approve(made.home, key, issued.digest, at)
    link(made, key, D, plan_digest=issued.digest)
    return key


def link(made: DecisionWorld, key: str, traces: str, **changes: Any) -> None:
    """The signed link that closing a window leaves."""
    ring, closed_at, folder = keys.read_ring(made.home), format_timestamp(now()), WindowFolder(made.home, key)
    signer = signers.collector(made.home, ring, made.study.study, closed_at)
    fields: dict[str, Any] = {
        "window_key": key,
        "study_id": STUDY,
        "declaration_digest": folder.declaration(ring).record.digest,
        "plan_digest": traces,
        "trace_set_digest": traces,
        "manifest_digest": None,
        "journal_head": traces,
        "scrapes_digest": None,
        "device_snapshots_digest": None,
        "counts": LinkCounts(planned=0, accepted=0, not_sent=0, not_attempted=0, reasons=()),
        "closed_at": closed_at,
    }
    folder.write(LINK, WindowLink.sign_with(signer.key, signer.key_id, **{**fields, **changes}))


def without_manifest(made: DecisionWorld, number: int, **options: Any) -> tuple[str, str]:
    """A closed window of a purpose that has no manifest, and its traces."""
    traces = digest("tests/traces/v1", number)
    key = seal.seal(made.home, STUDY, seal.SealOptions(lead_s=number + 1.0, **options), now()).window_key
    link(made, key, traces)
    return key, traces


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
    WindowFolder(made.home, declaration.window_key).write(MANIFEST, manifest)
    link(made, declaration.window_key, traces, manifest_digest=manifest.self_digest)
    return declaration.window_key, manifest


def decide(made: DecisionWorld, key: str, phase: str, status: str, **changes: Any) -> AssessmentReport:
    """Put a decision into a window's folder: development by engine v2, the rest by our own analysis."""
    decision = made_decision(protocol_of(made), made.fast_only, phase, status, **changes)
    folder, v2 = WindowFolder(made.home, key), phase == "development"
    closed_by = folder.link(keys.read_ring(made.home)).record
    report = made_report(decision, key, engine="tasc-assessment-engine-v2" if v2 else "tasc-decision-engine-1")
    report = report.model_copy(
        update={"declaration_digest": closed_by.declaration_digest, "plan_digest": closed_by.plan_digest}
    )
    if v2:
        folder.write(DECISION, decision)
    write_file(folder.path / REPORT, report.canonical(), replace=True)
    return report


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
    observed, _ = closed(made, 2, window_class="observation")
    with pytest.raises(NotAuthorized, match="an observation window does not move a controller"):
        advance(made, LATER, window_key=observed)
    _, traces = without_manifest(made, 4)
    held = made_decision(protocol_of(made), made.fast_only, "holdout", "PASS", trace_set_digest=traces)
    decision = tmp_path / "holdout.json"
    decision.write_bytes(held.canonical())
    again: Recompute = lambda *_: decided_record(made.study, held)  # noqa: E731 - what the window's records give
    assert advance(made, LATER, again, decision=decision) == "HOLDOUT_CONFIRMED"
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


def test_a_window_under_a_standing_authorization_starts_the_collection(made: DecisionWorld) -> None:
    advance(made)
    at = now()
    ceilings = Ceilings(
        windows_per_day=5, windows_in_all=20, calls_per_day=200, output_tokens_per_day=2_000, canary_calls_per_day=0,
        cost_usd_per_day=None,
    )  # fmt: skip
    until = format_timestamp(at + timedelta(days=1))
    authorize(made.home, STUDY, Allowed(ceilings, until, "nightly", purposes=("development",)), at)
    key = prepare_window(made.home, STUDY, format_timestamp(at), at, lead_s=60.0).window_key
    assert not WindowFolder(made.home, key).has(APPROVAL)
    done = controller.advance(made.home, STUDY, now())
    assert (done.chain.current.state, done.chain.current.collection_id) == ("COLLECTING", key)


def test_a_decision_on_an_observation_or_on_no_window_moves_nothing(made: DecisionWorld, tmp_path: Path) -> None:
    advance(made)
    development(made)
    advance(made)
    made.to_shadow_assessing()
    observed, traces = without_manifest(made, 1, window_class="observation")
    report = decide(made, observed, "holdout", "PASS", trace_set_digest=traces)
    stuck(made, "and no holdout decision")
    with pytest.raises(NotAuthorized, match="an observation window does not move a controller"):
        advance(made, window_key=observed)
    path = tmp_path / "decision.json"
    elsewhere = made_decision(
        protocol_of(made), made.fast_only, "holdout", "PASS", trace_set_digest="sha256:" + "9" * 64
    )
    for record in (report, elsewhere):
        path.write_bytes(record.canonical())
        with pytest.raises(InputError, match="no closed decisive window of this study has the traces") as caught:
            advance(made, decision=path)
        assert caught.value.way_out
    assert controller_log(made.home, made.study).read().current.state == "SHADOW_ASSESSING"


def test_a_decision_that_its_window_does_not_give_moves_nothing(made: DecisionWorld, tmp_path: Path) -> None:
    advance(made)
    development(made)
    advance(made)
    made.to_shadow_assessing()
    key, traces = without_manifest(made, 1)
    honest = decide(made, key, "holdout", "HOLD", trace_set_digest=traces)
    forged = decide(made, key, "holdout", "PASS", trace_set_digest=traces)
    path = tmp_path / "decision.json"
    path.write_bytes(forged.canonical())
    asked: list[tuple[str, str]] = []

    def again(_home: Home, window_key: str, as_of: str) -> Decided:
        asked.append((window_key, as_of))
        return decided_record(made.study, honest)

    for wanted in ({}, {"window_key": key}, {"decision": path}):
        with pytest.raises(DigestMismatch, match="not what the window's records give") as caught:
            advance(made, None, again, **wanted)
        assert caught.value.way_out == f"assess the window again: tasc assess {key}"
    assert asked == [(key, "2026-11-29T00:00:00.000Z")] * 3
    for field in ("declaration_digest", "plan_digest", "trace_set_digest", "window_key"):
        other = "other.20261129t000000.r01-00000000" if field == "window_key" else "sha256:" + "9" * 64
        changed = forged.model_copy(update={field: other})
        write_file(WindowFolder(made.home, key).path / REPORT, changed.canonical(), replace=True)
        with pytest.raises(DigestMismatch, match="the report is not of the closed window"):
            advance(made, window_key=key)
    write_file(WindowFolder(made.home, key).path / REPORT, honest.canonical(), replace=True)
    assert advance(made, None, again) == "HOLD"


def test_late_evidence_without_a_revision_is_passed_over_and_the_way_out_is_said(made: DecisionWorld) -> None:
    advance(made)
    development(made)
    advance(made)
    made.to_shadow_assessing()
    made.to_holdout_confirmed()
    (late, first), (sound, second) = closed(made, 1), closed(made, 2)
    assert [advance(made, LATER) for _ in range(2)] == ["HOLDOUT_CONFIRMED"] * 2
    decide(
        made, late, "window", "PASS", window_manifest_digest=first.self_digest, trace_set_digest=first.trace_set_digest
    )  # fmt: skip
    stuck(
        made, f"not taken: the assessment is of exactly the manifest's source sets .* tasc seal --revise {late}", LATER
    )
    folder = WindowFolder(made.home, late)
    elsewhen = folder.report().record.model_copy(update={"as_of": format_timestamp(LATER)})
    write_file(folder.path / REPORT, elsewhen.canonical(), replace=True)
    stuck(made, f"takes the decision as of the watermark: tasc assess {late}", LATER)
    decide_window(made, sound, second, "PASS")
    assert advance(made, LATER) == "PROMOTION_RECOMMENDED"


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
    with pytest.raises(InputError, match="no closed decisive window of this study has the traces and the manifest"):
        advance(made, decision=path)
    decide(made, key, "development", "NO_CANDIDATE")
    assert [advance(made), advance(made)] == ["DEV_READY", "HOLD"]
