"""The original's published controller and proposal: the same facts lead to the same snapshot, the same decision to the
same diagnosis.

The instants of the first four events are not published, so neither are their ids; an event's id covers its instant.
Everything else of the published snapshot is derived here from its facts, and with the published last event id in place
of ours its digest is the published one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.controller_facts import (
    CollectionStarted,
    ControllerFact,
    DevelopmentAssessment,
    DevelopmentAssessmentRecorded,
    DevelopmentEvidenceReady,
    ShadowAssessmentStarted,
)
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.control.controller_sources import registration
from tasc_pipeline.control.controller_table import plan_refusal
from tasc_pipeline.home.controller import ControllerLog

INTEROP = Path(__file__).resolve().parents[3] / "shared" / "interop"
pytestmark = pytest.mark.skipif(
    not (INTEROP / "controller-snapshot.json").is_file(), reason="the interop files are not beside this repository"
)
KEY = bytes(range(32))


@pytest.fixture
def published() -> ControllerSnapshot:
    return read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record


@pytest.fixture
def protocol() -> ExperimentProtocol:
    return read_record_file(ExperimentProtocol, INTEROP / "protocol.json").record


def facts(published: ControllerSnapshot, protocol: ExperimentProtocol) -> list[tuple[ControllerFact, str]]:
    """The five facts that a snapshot of this content has behind it, with instants that its order allows."""
    assessment, policy = published.assessments[0], published.selected_policy
    assert isinstance(assessment, DevelopmentAssessment) and policy is not None
    assert published.collection_id is not None and published.development_evidence is not None
    assert published.last_event_at is not None
    return [
        (registration(protocol), protocol.created_at),
        (CollectionStarted(collection_id=published.collection_id), protocol.created_at),
        (DevelopmentEvidenceReady(evidence=published.development_evidence), policy.issued_at),
        (DevelopmentAssessmentRecorded(projection=assessment), policy.issued_at),
        (ShadowAssessmentStarted(frozen_policy_digest=policy.policy_digest), published.last_event_at),
    ]


@pytest.fixture
def log(tmp_path: Path, published: ControllerSnapshot, protocol: ExperimentProtocol) -> ControllerLog:
    genesis = ControllerSnapshot.genesis(
        controller_id=published.controller_id,
        study_id=protocol.study_id,
        protocol_digest=protocol.digest,
        created_at=protocol.created_at,
        expires_at=protocol.expires_at,
    )
    log = ControllerLog(tmp_path / "controller", genesis, KEY)
    for fact, at in facts(published, protocol):
        assert log.record(fact, at).new
    return log


def test_the_log_replays_to_the_published_snapshot(log: ControllerLog, published: ControllerSnapshot) -> None:
    replayed = ControllerLog(log.folder, log.genesis, KEY).read().current.to_json()
    named = {name: value for name, value in published.to_json().items() if replayed[name] != value}
    assert set(named) == {"lastEventId", "snapshotDigest"}
    same = {**replayed, "lastEventId": published.last_event_id}
    assert ControllerSnapshot.digest_of(same) == published.snapshot_digest
    assert published.snapshot_digest == "sha256:440200e506ee9144bacab526410f9ce50a2725fa7e591b2029295f76eff5fd95"


def test_the_published_controller_may_issue_the_published_plan(published: ControllerSnapshot) -> None:
    plan = read_record_file(ShadowRunPlan, INTEROP / "shadow-run-plan.json").record
    assert plan.controller_snapshot_digest == published.snapshot_digest
    assert plan_refusal(published, "window") is None
    assert plan_refusal(published, "monitoring") is not None
