"""Controller events and snapshots: chains, digests, and which snapshots a chain can add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contracts.controller import ControllerEvent, ControllerSnapshot, fact_digest
from tasc_collector.contracts.controller_facts import CollectionStarted, IdentityDriftRecorded
from tasc_collector.errors import DigestMismatch, InputError

Value = dict[str, Any]
D = "sha256:" + "1" * 64
E = "sha256:" + "2" * 64
CREATED, EXPIRES = "2026-07-20T00:00:00.000Z", "2026-09-01T00:00:00.000Z"
POLICY: Value = {"policyDigest": D, "issuedAt": "2026-07-21T00:00:00.000Z", "expiresAt": EXPIRES}
EVIDENCE: Value = {"datasetDigest": D, "traceSetDigest": D, "evaluatorSetDigest": D}


def _assessment(phase: str, status: str, number: int, **changes: Any) -> Value:
    return {
        "version": "tasc-controller-assessment-projection-v1",
        "decisionDigest": f"sha256:{number:064d}",
        "assessmentContextDigest": D,
        "protocolDigest": D,
        **EVIDENCE,
        "selectedPolicy": POLICY,
        "attestation": "unattested",
        "phase": phase,
        "status": status,
        "windowManifestDigest": None,
        **changes,
    }


def _revision(number: int, **changes: Any) -> Value:
    return {
        "version": "tasc-controller-window-projection-v1",
        "windowId": "window-1",
        "manifestDigest": f"sha256:{number:064x}",
        "protocolDigest": D,
        "frozenPolicyDigest": D,
        "eventTimeStartInclusive": "2026-07-23T00:00:00.000Z",
        "eventTimeEndExclusive": "2026-07-23T01:00:00.000Z",
        "ingestionWatermark": "2026-07-23T02:00:00.000Z",
        "revision": number,
        "predecessorManifestDigest": None if number == 1 else f"sha256:{number - 1:064x}",
        "traceSetDigest": f"sha256:{number:064x}",
        "evaluatorSetDigest": D,
        "capacityEvidenceDigest": D,
        **changes,
    }


NOMINATION = _assessment("development", "NOMINATED", 1)
HOLDOUT = _assessment("holdout", "PASS", 2)
WINDOW: Value = {"windowId": "window-1", "revisions": [_revision(1)]}
DEPLOYED: Value = {
    "source": "external-deployment-observation",
    "attestation": "unattested",
    "observationId": "seen",
    "environmentId": "production",
    "policyDigest": D,
    "observedAt": "2026-07-24T00:00:00.000Z",
}


def _window(status: str, number: int = 3, revision: int = 1) -> Value:
    digest = f"sha256:{revision:064x}"
    return _assessment("window", status, number, windowManifestDigest=digest, traceSetDigest=digest)


def _snapshot(state: str, sequence: int, **changes: Any) -> Value:
    value = {
        "version": "tasc-controller-snapshot-v1",
        "controllerId": "controller",
        "studyId": "study",
        "protocolDigest": D,
        "protocolCreatedAt": CREATED,
        "protocolExpiresAt": EXPIRES,
        "state": state,
        "sequence": sequence,
        "lastEventId": D,
        "lastEventAt": "2026-07-25T00:00:00.000Z",
        "collectionId": "collection",
        "developmentEvidence": EVIDENCE,
        "selectedPolicy": POLICY,
        "assessments": [NOMINATION],
        "windows": [],
        "deploymentObservation": None,
        "staleReasons": [],
        "attestation": "unattested",
        **changes,
    }
    return {**value, "snapshotDigest": ControllerSnapshot.digest_of(value)}


EARLY: Value = {"developmentEvidence": None, "selectedPolicy": None, "assessments": []}
PASSED = [NOMINATION, HOLDOUT]
REACHABLE: dict[str, Value] = {
    "registered": _snapshot("REGISTERED", 1, **EARLY, collectionId=None),
    "collecting": _snapshot("COLLECTING", 2, **EARLY),
    "dev-ready": _snapshot("DEV_READY", 3, selectedPolicy=None, assessments=[]),
    "nominated": _snapshot("NOMINATED", 4),
    "shadow": _snapshot("SHADOW_ASSESSING", 5),
    "shadow-window": _snapshot("SHADOW_ASSESSING", 6, windows=[WINDOW]),
    "confirmed": _snapshot("HOLDOUT_CONFIRMED", 6, assessments=PASSED),
    "confirmed-window": _snapshot("HOLDOUT_CONFIRMED", 7, assessments=PASSED, windows=[WINDOW]),
    "recommended": _snapshot("PROMOTION_RECOMMENDED", 8, assessments=[*PASSED, _window("PASS")], windows=[WINDOW]),
    "monitoring": _snapshot(
        "MONITORING", 9, assessments=[*PASSED, _window("PASS")], windows=[WINDOW], deploymentObservation=DEPLOYED
    ),
    "rollback": _snapshot(
        "ROLLBACK_RECOMMENDED",
        11,
        assessments=[*PASSED, _window("PASS"), _window("HOLD", 4, 2)],
        windows=[{"windowId": "window-1", "revisions": [_revision(1), _revision(2)]}],
        deploymentObservation=DEPLOYED,
    ),
    "hold-development": _snapshot(
        "HOLD",
        4,
        selectedPolicy=None,
        assessments=[_assessment("development", "NO_CANDIDATE", 1, selectedPolicy=None)],
    ),
    "hold-holdout": _snapshot("HOLD", 6, assessments=[NOMINATION, _assessment("holdout", "HOLD", 2)]),
    "hold-window": _snapshot("HOLD", 8, assessments=[*PASSED, _window("INSUFFICIENT_EVIDENCE")], windows=[WINDOW]),
    "stale": _snapshot("STALE", 6, staleReasons=["protocol-expired"], lastEventAt="2026-09-02T00:00:00.000Z"),
    "retired": _snapshot("RETIRED", 5),
}


@pytest.mark.parametrize("name", sorted(REACHABLE))
def test_a_snapshot_that_a_chain_can_reach(name: str) -> None:
    record = ControllerSnapshot.from_value(REACHABLE[name]).record
    assert record.to_json() == REACHABLE[name]


def test_genesis_is_empty() -> None:
    snapshot = ControllerSnapshot.genesis(
        controller_id="controller", study_id="study", protocol_digest=D, created_at=CREATED, expires_at=EXPIRES
    )
    assert (snapshot.state, snapshot.sequence, snapshot.last_event_id) == ("DRAFT", 0, None)
    assert ControllerSnapshot.from_value(snapshot.to_json()).record == snapshot


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (_snapshot("DRAFT", 1), "DRAFT exactly in sequence 0"),
        (_snapshot("REGISTERED", 0, **EARLY, collectionId=None), "no last event exactly in sequence 0"),
        (_snapshot("DRAFT", 0, lastEventId=None, lastEventAt=None), "a DRAFT is empty"),
        (_snapshot("NOMINATED", 4, lastEventAt=None), "set together"),
        (_snapshot("NOMINATED", 4, lastEventAt="2026-07-19T00:00:00.000Z"), "before the protocol's creation"),
        (_snapshot("NOMINATED", 4, lastEventAt=EXPIRES), "before the protocol's expiry"),
        (_snapshot("NOMINATED", 5), "sequence is not the number of events"),
        (_snapshot("NOMINATED", 4, windows=[WINDOW]), "comes before windows"),
        (_snapshot("COLLECTING", 2), "does not fit the evidence"),
        (_snapshot("NOMINATED", 4, collectionId=None), "evidence comes in the order"),
        (_snapshot("NOMINATED", 4, selectedPolicy=None), "that of the development nomination"),
        (_snapshot("NOMINATED", 4, selectedPolicy={**POLICY, "policyDigest": E}), "that of the development nomination"),
        (
            _snapshot("NOMINATED", 4, developmentEvidence={**EVIDENCE, "datasetDigest": E}),
            "of the development evidence",
        ),
        (
            _snapshot("SHADOW_ASSESSING", 6, assessments=[NOMINATION, _assessment("holdout", "HOLD", 2)]),
            "before the holdout",
        ),
        (
            _snapshot("HOLDOUT_CONFIRMED", 6, assessments=[NOMINATION, _assessment("holdout", "HOLD", 2)]),
            "does not fit",
        ),
        (_snapshot("HOLDOUT_CONFIRMED", 6, assessments=[HOLDOUT, NOMINATION]), "in the order development"),
        (_snapshot("HOLDOUT_CONFIRMED", 6, assessments=[NOMINATION, NOMINATION, HOLDOUT]), "at most one development"),
        (
            _snapshot(
                "HOLDOUT_CONFIRMED",
                6,
                assessments=[NOMINATION, {**HOLDOUT, "decisionDigest": NOMINATION["decisionDigest"]}],
            ),
            "decisionDigest",
        ),
        (
            _snapshot("HOLDOUT_CONFIRMED", 6, assessments=[NOMINATION, {**HOLDOUT, "protocolDigest": E}]),
            "names the protocol",
        ),
        (_snapshot("HOLDOUT_CONFIRMED", 7, assessments=[*PASSED, _window("PASS")]), "recorded manifest"),
        (_snapshot("PROMOTION_RECOMMENDED", 8, assessments=[*PASSED, _window("HOLD")], windows=[WINDOW]), "is PASS"),
        (
            _snapshot(
                "PROMOTION_RECOMMENDED",
                9,
                assessments=[*PASSED, _window("PASS")],
                windows=[{"windowId": "window-1", "revisions": [_revision(1), _revision(2)]}],
            ),
            "is PASS",
        ),
        (_snapshot("MONITORING", 8, assessments=[*PASSED, _window("PASS")], windows=[WINDOW]), "does not fit"),
        (
            _snapshot("MONITORING", 8, assessments=PASSED, windows=[WINDOW], deploymentObservation=DEPLOYED),
            "passing window",
        ),
        (
            _snapshot(
                "MONITORING",
                9,
                assessments=[*PASSED, _window("PASS")],
                windows=[WINDOW],
                deploymentObservation={**DEPLOYED, "policyDigest": E},
            ),
            "selected policy",
        ),
        (_snapshot("HOLD", 5, assessments=[NOMINATION]), "last assessment that holds"),
        (_snapshot("STALE", 5), "has a reason"),
        (_snapshot("NOMINATED", 4, staleReasons=["drift"]), "for STALE and RETIRED"),
        (_snapshot("SHADOW_ASSESSING", 6, windows=[{**WINDOW, "revisions": [_revision(2)]}]), "contiguous"),
        (_snapshot("SHADOW_ASSESSING", 6, windows=[{**WINDOW, "windowId": "window-2"}]), "contiguous"),
        (
            _snapshot("SHADOW_ASSESSING", 6, windows=[{**WINDOW, "revisions": [_revision(1, frozenPolicyDigest=E)]}]),
            "selected policy",
        ),
        (
            _snapshot(
                "SHADOW_ASSESSING",
                6,
                windows=[{**WINDOW, "revisions": [_revision(1, ingestionWatermark="2026-07-26T00:00:00.000Z")]}],
            ),
            "not after the last event",
        ),
        (
            _snapshot(
                "SHADOW_ASSESSING",
                7,
                windows=[
                    {**WINDOW, "revisions": [_revision(1), _revision(2, ingestionWatermark="2026-07-23T01:30:00.000Z")]}
                ],
            ),
            "never moves the watermark back",
        ),
        (
            _snapshot(
                "SHADOW_ASSESSING",
                7,
                windows=[{**WINDOW, "revisions": [_revision(1), _revision(2, traceSetDigest=f"sha256:{1:064x}")]}],
            ),
            "changes a source",
        ),
        (_snapshot("SHADOW_ASSESSING", 7, windows=[WINDOW, WINDOW]), "sorted by windowId and unique"),
    ],
)
def test_a_snapshot_that_no_chain_reaches_is_refused(value: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        ControllerSnapshot.from_value(value)


def _event(sequence: int = 2, predecessor: str | None = D, **changes: Any) -> Value:
    fact = CollectionStarted(collection_id="collection")
    value = {
        "version": "tasc-controller-event-v1",
        "controllerId": "controller",
        "studyId": "study",
        "protocolDigest": D,
        "sequence": sequence,
        "predecessorEventId": predecessor,
        "occurredAt": "2026-07-21T00:00:00.000Z",
        "fact": fact.to_json(),
        "factDigest": fact_digest(fact),
        **changes,
    }
    return {**value, "eventId": ControllerEvent.digest_of(value)}


def test_an_event_is_read_and_is_its_own_digest() -> None:
    record = ControllerEvent.from_value(_event()).record
    assert record.event_id == record.digest
    assert isinstance(record.fact, CollectionStarted)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (_event(1), "null exactly in sequence 1"),
        (_event(2, None), "null exactly in sequence 1"),
        (_event(factDigest=E), "factDigest must be that of the fact"),
        (_event(fact={"version": "tasc-controller-fact-v1", "kind": "collection-ended"}), "not one of the kinds"),
        (_event(0), "greater than or equal to 1"),
    ],
)
def test_an_event_that_extends_no_chain_is_refused(value: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        ControllerEvent.from_value(value)


def test_an_edited_event_has_another_id() -> None:
    with pytest.raises(DigestMismatch):
        ControllerEvent.from_value({**_event(), "occurredAt": "2026-07-22T00:00:00.000Z"})


def test_a_drift_is_a_difference() -> None:
    drift: Callable[..., IdentityDriftRecorded] = IdentityDriftRecorded
    with pytest.raises(ValueError, match="two different digests"):
        drift(scope="policy", expected_digest=D, observed_digest=D, reason_code="drift")
