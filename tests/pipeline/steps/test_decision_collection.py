"""A decision study feeds every state of its controller: development, holdout, window, monitoring; a revision sends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.collection import CollectionPlan, PlanApproval
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.manifest import check_revision
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.shadow.cases import case_root, case_set
from tasc_collector.shadow.membership import exclusion, group_split
from tasc_collector.wire.records import read_record
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.windows import APPROVAL, CASE_SET, DECLARATION, MANIFEST, PLAN, WindowFolder
from tasc_pipeline.steps import assess, close, collect, plan, publish, seal, verify
from tasc_pipeline.steps.approved import key_ring, load_approved
from tasc_pipeline.steps.cases import study_cases
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.warehouse.database import connect
from tests.support.decision_world import ANSWERS, STUDY, DecisionWorld, decision_world
from tests.support.window import now

pytestmark = pytest.mark.usefixtures("undrawn")


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DecisionWorld]:
    with decision_world(tmp_path) as found:
        yield found


def envelopes(made: DecisionWorld, key: str) -> list[TraceEnvelope]:
    lines = list(export_traces(made.home, key))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    found = [read_record(TraceEnvelope, line) for line in lines]
    assert [item.record.canonical() + b"\n" for item in found] == lines, "canonical bytes"
    return [item.record for item in found]


def test_development_and_holdout_take_their_own_groups_and_leave_no_manifest(made: DecisionWorld) -> None:
    protocol = made.study.protocol
    assert protocol is not None
    made.to_collecting()
    development = made.collected("development")
    made.to_shadow_assessing()
    holdout = made.collected("holdout")
    groups: dict[str, set[str]] = {}
    for key, split in ((development, "dev"), (holdout, "holdout")):
        traces = envelopes(made, key)
        assert {(trace.split, trace.source_mode) for trace in traces} == {(split, "observed")}
        assert {trace.collection_window_id for trace in traces} == {None}
        assert {trace.collection_window_membership_digest for trace in traces} == {None}
        assert {trace.collection_binding for trace in traces} == {None}
        groups[split] = {trace.group_id for trace in traces}
        assert {group_split(protocol.record.split_membership, group) for group in groups[split]} == {split}
        folder = WindowFolder(made.home, key)
        assert not folder.has(MANIFEST)
        assert folder.link(key_ring(made.home)).record.manifest_digest is None
        assert verify.verify_window(made.home, key)
    assert groups["dev"] | groups["holdout"] == {f"conversation-{number}" for number in range(6)}
    assert made.calls == 24, "every case once to each server, each group in one split"
    control = next(policy for policy in made.study.policies.values() if policy.kind == "expert-only")
    assert {trace.policy_digest for trace in envelopes(made, development)} == {control.policy_digest}
    assert {trace.policy_digest for trace in envelopes(made, holdout)} == {made.fast_only.policy_digest}


def test_a_window_binds_its_traces_to_a_shadow_run_plan_that_the_original_accepts(made: DecisionWorld) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    key = made.collected("window")
    folder = WindowFolder(made.home, key)
    record = folder.plan(key_ring(made.home)).record
    assert record.shadow_run_plan is not None
    embedded = ShadowRunPlan.from_value(record.shadow_run_plan).record
    assert embedded.controller_snapshot.state == "SHADOW_ASSESSING"
    assert embedded.work_budget == record.budget
    traces = envelopes(made, key)
    assert len(traces) == 24
    assert {trace.collection_binding.shadow_plan_digest for trace in traces if trace.collection_binding} == {
        embedded.plan_digest
    }
    manifest = folder.manifest()
    assert {exclusion(trace, manifest) for trace in traces} == {None}
    assert manifest.frozen_policy_digest == made.fast_only.policy_digest
    assert verify.verify_window(made.home, key)


def test_monitoring_feeds_the_states_after_the_holdout(made: DecisionWorld) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    made.to_holdout_confirmed()
    key = made.collected("monitoring")
    traces = envelopes(made, key)
    assert {(trace.split, trace.source_mode) for trace in traces} == {("online", "shadow")}
    approved = load_approved(made.home, key)
    assert {trace.collection_binding.shadow_plan_digest for trace in traces if trace.collection_binding} == {
        approved.digest
    }
    assert WindowFolder(made.home, key).has(MANIFEST)


def test_a_revision_is_a_partition_of_its_own_and_sends_nothing(made: DecisionWorld) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    first = made.collected("window")
    before, calls = WindowFolder(made.home, first), made.calls
    ring = key_ring(made.home)
    ends = parse_timestamp(before.declaration(ring).record.event_time_end_exclusive)
    with pytest.raises(NotAuthorized, match="the window is not over"):
        seal.revise(made.home, first, ends - timedelta(seconds=1))
    added: list[str] = []
    revision = seal.revise(made.home, first, ends + timedelta(hours=1), add_partition=added.append)
    key = revision.window_key
    assert added == [key]
    assert (revision.revision, revision.predecessor_digest) == (2, before.declaration(ring).record.digest)
    with pytest.raises(InputError, match="revised before"):
        seal.revise(made.home, first, ends + timedelta(hours=2))
    with pytest.raises(NotAuthorized, match="a revision has no plan of its own"):
        plan.make_plan(made.home, key, ends, write=True)
    result = collect.collect(made.home, key, show=nothing)
    assert (result.status, result.sent_calls, result.states) == ("complete", 0, {"success": 24})
    publish.publish(made.home, key)
    with pytest.raises(InputError, match="the revision says nothing new"):
        close.close(made.home, key)
    made.add_scores(first)
    closed = close.close(made.home, key)
    assert closed.manifest is not None
    assert closed.manifest.evaluator_set_digest != before.manifest().evaluator_set_digest
    assert closed.manifest.trace_set_digest == before.manifest().trace_set_digest
    check_revision(before.manifest(), closed.manifest)
    assert closed.link.plan_digest == before.link(ring).record.plan_digest
    assert made.calls == calls
    assert not made.home.run(key).exists()
    assert not WindowFolder(made.home, key).has(PLAN)
    assert verify.verify_window(made.home, key)
    assert list(export_traces(made.home, key)) == list(export_traces(made.home, first))
    counted = (
        connect(made.home.root).sql("SELECT window_key, count(*) FROM traces GROUP BY ALL ORDER BY ALL").fetchall()
    )
    assert counted == sorted([(first, 24), (key, 24)])
    assert assess.assess(made.home, first).window_key == first
    assert assess.assess(made.home, key).window_key == key
    current = connect(made.home.root).sql("SELECT window_key, revision, purpose, lineage_id FROM windows_current")
    assert current.fetchall() == [(key, 2, "window", STUDY)]
    third = seal.revise(made.home, key, ends + timedelta(hours=3))
    assert load_approved(made.home, third.window_key).collected_as == first


@pytest.mark.parametrize("option", ["--start", "--watermark"])
def test_an_instant_that_is_none_is_refused_by_its_option(made: DecisionWorld, option: str) -> None:
    with pytest.raises(InputError, match="this is no instant") as refusal:
        if option == "--start":
            made.sealed(start="tomorrow")
        else:
            seal.revise(made.home, "any", now(), watermark="tomorrow")
    assert refusal.value.field == option


def test_an_unclosed_window_is_not_revised(made: DecisionWorld) -> None:
    made.to_collecting()
    key = made.approved("development")
    with pytest.raises(InputError, match=f"tasc collect {key}"):
        seal.revise(made.home, key, parse_timestamp("2030-01-01T00:00:00.000Z"))
    assert made.calls == 0


def test_a_plan_in_the_wrong_state_is_refused_by_the_states_that_allow_it(made: DecisionWorld) -> None:
    key = made.sealed()
    for purpose, states in (
        ("development", "REGISTERED or COLLECTING"),
        ("holdout", "SHADOW_ASSESSING"),
        ("window", "SHADOW_ASSESSING"),
        ("monitoring", "HOLDOUT_CONFIRMED or PROMOTION_RECOMMENDED or MONITORING"),
    ):
        with pytest.raises(NotAuthorized) as refusal:
            plan.make_plan(made.home, key, now(), write=True, purpose=purpose)  # type: ignore[arg-type]  # words of the table
        assert "controller is in DRAFT" in refusal.value.what
        assert refusal.value.rule == f"issued in {states}"
        assert refusal.value.way_out.endswith(f"tasc controller show {STUDY}")
    with pytest.raises(InputError, match="a decision study collects nothing for purpose comparison"):
        plan.make_plan(made.home, key, now(), write=True, purpose="comparison")
    made.to_collecting()
    made.to_shadow_assessing()
    with pytest.raises(InputError, match="one of holdout, window"):
        plan.make_plan(made.home, key, now(), write=True)
    assert not WindowFolder(made.home, key).has(PLAN)
    assert made.calls == 0


def _reissued(made: DecisionWorld, at: str) -> None:
    """Replace the fast-only policy by the same one with another date, as no honest study has it."""
    policy = made.fast_only
    path = next(made.study.folder.glob("policies/fast-only-*.json"))
    value = policy.to_json() | {"issuedAt": at}
    value["policyDigest"] = PolicyBundle.digest_of(value)
    path.write_bytes(canonical_bytes(value))


def test_a_policy_issued_after_the_windows_start_is_refused(made: DecisionWorld) -> None:
    key = made.sealed(lead_s=0.0)
    late = format_timestamp(now())
    _reissued(made, late)
    made.to_collecting()
    made.to_shadow_assessing()
    for purpose in ("holdout", "window"):
        with pytest.raises(NotAuthorized, match="issued after the window's start") as refusal:
            plan.make_plan(made.home, key, now(), write=True, purpose=purpose)  # type: ignore[arg-type]  # words of the table
        assert late in (refusal.value.rule or "")
    assert made.calls == 0


def test_a_policy_file_that_was_exchanged_after_the_plan_sends_nothing(made: DecisionWorld) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    key = made.approved("window")
    _reissued(made, format_timestamp(now() + timedelta(hours=1)))
    with pytest.raises(DigestMismatch, match="policyDigest"):
        collect.collect(made.home, key, show=nothing)
    assert made.calls == 0


def test_a_window_that_has_started_gets_no_shadow_run_plan(made: DecisionWorld) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    key = made.sealed()
    with pytest.raises(NotAuthorized, match="issued before its window starts"):
        plan.make_plan(made.home, key, now() + timedelta(seconds=30), write=True, purpose="window")
    assert made.calls == 0


@pytest.mark.parametrize(
    ("name", "field"),
    [("budget", "shadowRunPlan.workBudget"), ("policyDigest", "shadowRunPlan.frozenPolicyDigest")],
)
def test_a_plan_that_says_something_else_than_its_shadow_run_plan_sends_nothing(
    made: DecisionWorld, name: str, field: str
) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    key = made.approved("window")
    folder = WindowFolder(made.home, key)
    value = json.loads((folder.path / PLAN).read_bytes())
    if name == "budget":
        value["budget"]["maxNetworkCalls"] += 1
    else:
        value["policyDigest"] = next(
            policy.policy_digest for policy in made.study.policies.values() if policy.kind == "cascade"
        )
    (folder.path / PLAN).write_bytes(resigned(made, CollectionPlan, value))
    (folder.path / APPROVAL).unlink()
    plan.approve(made.home, key, CollectionPlan.digest_of(value), now())
    with pytest.raises(DigestMismatch) as refusal:
        collect.collect(made.home, key, show=nothing)
    assert refusal.value.field == field
    assert made.calls == 0


def resigned(made: DecisionWorld, cls: type[SignedRecord], value: dict[str, Any]) -> bytes:
    """A changed record with a good signature of the operator: what a careless operator could make."""
    signer = signers.operator(made.home, key_ring(made.home), format_timestamp(now()))
    content = {name: item for name, item in value.items() if name != "signature"}
    signature = signer.key.sign(f"{cls.domain}/signature", "record", content)
    return canonical_bytes({**content, "signature": {**value["signature"], "signature": signature}})


def test_a_development_plan_with_a_held_out_group_sends_nothing(made: DecisionWorld) -> None:
    made.to_collecting()
    key = made.approved("development")
    folder = WindowFolder(made.home, key)
    study = made.study
    payload = keys.payload_key(made.home, STUDY, study.study.keys.payload_key_id, study.study.keys.payload_hmac)
    every = case_set(study_cases(study), STUDY, payload, maximum_output_tokens=8)
    value = json.loads((folder.path / PLAN).read_bytes())
    value["cases"] |= {"count": len(every.entries), "root": case_root(every, payload)}
    (folder.path / PLAN).write_bytes(resigned(made, CollectionPlan, value))
    (folder.path / CASE_SET).write_bytes(every.canonical())
    (folder.path / APPROVAL).unlink()
    plan.approve(made.home, key, CollectionPlan.digest_of(value), now())
    with pytest.raises(DigestMismatch, match="of the other split"):
        collect.collect(made.home, key, show=nothing)
    assert made.calls == 0


def test_another_case_set_or_pin_sends_nothing(made: DecisionWorld) -> None:
    made.to_collecting()
    key = made.approved("development")
    folder = WindowFolder(made.home, key)
    whole = (folder.path / CASE_SET).read_bytes()
    value = json.loads(whole)
    del value["entries"][0]
    (folder.path / CASE_SET).write_bytes(canonical_bytes(value))
    with pytest.raises(DigestMismatch, match=r"cases\.root"):
        collect.collect(made.home, key, show=nothing)
    (folder.path / CASE_SET).write_bytes(whole)
    approval = json.loads((folder.path / APPROVAL).read_bytes())
    approval["planDigest"] = "sha256:" + "0" * 64
    (folder.path / APPROVAL).write_bytes(resigned(made, PlanApproval, approval))
    with pytest.raises(DigestMismatch, match="the operator's pin is compared first"):
        collect.collect(made.home, key, show=nothing)
    assert made.calls == 0


def test_a_revision_that_changes_more_than_its_watermark_is_refused(made: DecisionWorld) -> None:
    made.to_collecting()
    made.to_shadow_assessing()
    first = made.collected("window")
    ends = parse_timestamp(
        WindowFolder(made.home, first).declaration(key_ring(made.home)).record.event_time_end_exclusive
    )
    revision = seal.revise(made.home, first, ends + timedelta(hours=1))
    value = revision.to_json() | {"windowClass": "observation"}
    forged = WindowDeclaration.from_value(json.loads(resigned(made, WindowDeclaration, value))).record
    folder = made.home.window(forged.window_key)
    folder.mkdir()
    (folder / DECLARATION).write_bytes(forged.canonical())
    with pytest.raises(DigestMismatch) as refusal:
        load_approved(made.home, forged.window_key)
    assert refusal.value.field == "windowClass"
    assert refusal.value.way_out.endswith(f"tasc seal --revise {first}")


def test_a_sample_that_holds_no_case_is_said_and_plans_nothing(tmp_path: Path) -> None:
    with decision_world(tmp_path, answers=f"{ANSWERS}\n[split]\nsample_basis_points = 1\n") as made:
        made.to_collecting()
        made.to_shadow_assessing()
        with pytest.raises(NotAuthorized, match="no case is in the window's sample") as refused:
            made.approved("window")
    assert refused.value.rule == "a seeded hash of case and replicate takes 1 of 10,000"
    assert refused.value.way_out
