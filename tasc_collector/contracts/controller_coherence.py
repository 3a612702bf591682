"""Which controller snapshots a chain of events can add up to (original project, section 3.14).

Rules:

1. Genesis is an empty DRAFT with sequence 0 and no last event; nothing else is DRAFT.
2. What exists grows in one order: collection, development evidence, development assessment, selected policy (exactly
   when that assessment nominated it), windows, a holdout assessment, window assessments after a passing holdout, a
   deployment observation after a passing window. Each names the protocol and, from the nomination on, the selected
   policy.
3. A window's revisions are contiguous, keep their bounds, never move the watermark back, and change a source or the
   capacity. Ledgers are sorted by window id.
4. Each state says how far that order has come, what must not exist yet, and how many events there have been:

   ====================== ============ ======================================================================
   state                  reached      events
   ====================== ============ ======================================================================
   REGISTERED             nothing      1
   COLLECTING             collection   2
   DEV_READY              evidence     3
   NOMINATED              nomination   4
   SHADOW_ASSESSING       nomination   5 + revisions
   HOLDOUT_CONFIRMED      holdout      6 + revisions + window assessments
   PROMOTION_RECOMMENDED  holdout      6 + revisions + window assessments; the latest window assessment passed
   MONITORING             deployment   7 + revisions + window assessments
   ROLLBACK_RECOMMENDED   deployment   7 + revisions + window assessments; the latest window assessment holds
   HOLD                   assessment   3 + assessments, or 4 + assessments + revisions + deployments
   ====================== ============ ======================================================================

   STALE and RETIRED can follow any of them. Stale reasons are there exactly in STALE, or from it in RETIRED.
5. No instant is before the protocol's creation or, in a live state, at or after its expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from tasc_collector.canonical import utf16_key
from tasc_collector.contracts.controller_facts import (
    DevelopmentAssessment,
    HoldoutAssessment,
    WindowAssessment,
    WindowProjection,
)
from tasc_collector.contracts.rules import require, require_unique
from tasc_collector.limits import MAX_CONTROLLER_WINDOW_REVISIONS

if TYPE_CHECKING:
    from tasc_collector.contracts.controller import ControllerSnapshot, WindowLedger

ControllerState = Literal[
    "DRAFT",
    "REGISTERED",
    "COLLECTING",
    "DEV_READY",
    "NOMINATED",
    "SHADOW_ASSESSING",
    "HOLDOUT_CONFIRMED",
    "PROMOTION_RECOMMENDED",
    "MONITORING",
    "HOLD",
    "STALE",
    "ROLLBACK_RECOMMENDED",
    "RETIRED",
]

_OPEN_ENDED: Final = frozenset({"STALE", "RETIRED"})
_AFTER_DEPLOYMENT: Final = frozenset({"MONITORING", "HOLD", "ROLLBACK_RECOMMENDED", "STALE", "RETIRED"})
_HOLDING: Final = frozenset({"NO_CANDIDATE", "HOLD", "INSUFFICIENT_EVIDENCE"})


class Stage(IntEnum):
    """How far a study has come (rule 2)."""

    NOTHING = 0
    COLLECTION = 1
    EVIDENCE = 2
    ASSESSED = 3
    NOMINATION = 4
    HOLDOUT = 5
    DEPLOYMENT = 6


@dataclass(frozen=True, slots=True)
class _Contents:
    """A snapshot taken apart."""

    development: DevelopmentAssessment | None
    holdout: HoldoutAssessment | None
    windows: tuple[WindowAssessment, ...]
    revisions: tuple[WindowProjection, ...]
    stage: Stage

    @property
    def after_holdout(self) -> int:
        """Events after the holdout assessment, without the first six."""
        return len(self.revisions) + len(self.windows)


@dataclass(frozen=True, slots=True)
class _StateRule:
    """A row of rule 4's table."""

    stages: frozenset[Stage]
    events: Callable[[ControllerSnapshot, _Contents], int]
    windows_allowed: bool = True
    latest_window: str | None = None


_STATE_RULES: Final[Mapping[str, _StateRule]] = {
    "REGISTERED": _StateRule(frozenset({Stage.NOTHING}), lambda snapshot, found: 1, windows_allowed=False),
    "COLLECTING": _StateRule(frozenset({Stage.COLLECTION}), lambda snapshot, found: 2, windows_allowed=False),
    "DEV_READY": _StateRule(frozenset({Stage.EVIDENCE}), lambda snapshot, found: 3, windows_allowed=False),
    "NOMINATED": _StateRule(frozenset({Stage.NOMINATION}), lambda snapshot, found: 4, windows_allowed=False),
    "SHADOW_ASSESSING": _StateRule(frozenset({Stage.NOMINATION}), lambda snapshot, found: 5 + len(found.revisions)),
    "HOLDOUT_CONFIRMED": _StateRule(frozenset({Stage.HOLDOUT}), lambda snapshot, found: 6 + found.after_holdout),
    "PROMOTION_RECOMMENDED": _StateRule(
        frozenset({Stage.HOLDOUT}), lambda snapshot, found: 6 + found.after_holdout, latest_window="PASS"
    ),
    "MONITORING": _StateRule(frozenset({Stage.DEPLOYMENT}), lambda snapshot, found: 7 + found.after_holdout),
    "ROLLBACK_RECOMMENDED": _StateRule(
        frozenset({Stage.DEPLOYMENT}), lambda snapshot, found: 7 + found.after_holdout, latest_window="HOLD"
    ),
    "HOLD": _StateRule(
        frozenset({Stage.ASSESSED, Stage.NOMINATION, Stage.HOLDOUT, Stage.DEPLOYMENT}),
        lambda snapshot, found: (
            3 + len(snapshot.assessments)
            if snapshot.selected_policy is None
            else 4 + len(snapshot.assessments) + len(found.revisions) + (snapshot.deployment_observation is not None)
        ),
    ),
}


def check_snapshot(snapshot: ControllerSnapshot) -> None:
    """Check a snapshot by the rules of this module.

    Raises:
        ValueError: with the first rule that it breaks.
    """
    require(
        snapshot.protocol_created_at < snapshot.protocol_expires_at, "protocolExpiresAt must be after protocolCreatedAt"
    )
    _check_genesis(snapshot)
    _check_time(snapshot)
    _check_windows(snapshot)
    _check_policy(snapshot)
    found = _contents(snapshot)
    _check_assessments(snapshot, found)
    _check_deployment(snapshot, found)
    _check_state(snapshot, found)


def _check_genesis(snapshot: ControllerSnapshot) -> None:
    genesis = snapshot.sequence == 0
    require(
        (snapshot.last_event_id is None) == (snapshot.last_event_at is None),
        "lastEventId and lastEventAt are set together",
    )
    require(genesis == (snapshot.last_event_id is None), "there is no last event exactly in sequence 0")
    require(genesis == (snapshot.state == "DRAFT"), "state is DRAFT exactly in sequence 0")
    if genesis:
        contents = (
            snapshot.collection_id,
            snapshot.development_evidence,
            snapshot.selected_policy,
            snapshot.assessments,
            snapshot.windows,
            snapshot.deployment_observation,
            snapshot.stale_reasons,
        )
        require(not any(contents), "a DRAFT is empty")


def _check_time(snapshot: ControllerSnapshot) -> None:
    last = snapshot.last_event_at
    if last is None:
        return
    require(last >= snapshot.protocol_created_at, "lastEventAt must not be before the protocol's creation")
    require(
        snapshot.state in _OPEN_ENDED or last < snapshot.protocol_expires_at,
        "a live controller's last event is before the protocol's expiry",
    )


def _check_windows(snapshot: ControllerSnapshot) -> None:
    ids = [ledger.window_id for ledger in snapshot.windows]
    require(ids == sorted(set(ids), key=utf16_key), "windows are sorted by windowId and unique")
    require(
        sum(len(ledger.revisions) for ledger in snapshot.windows) <= MAX_CONTROLLER_WINDOW_REVISIONS,
        f"all windows together have at most {MAX_CONTROLLER_WINDOW_REVISIONS} revisions",
    )
    require_unique(
        (item.manifest_digest for ledger in snapshot.windows for item in ledger.revisions),
        "windows: manifestDigest must not repeat",
    )
    for ledger in snapshot.windows:
        _check_ledger(snapshot, ledger)


def _check_ledger(snapshot: ControllerSnapshot, ledger: WindowLedger) -> None:
    policy = snapshot.selected_policy
    predecessor: str | None = None
    for number, item in enumerate(ledger.revisions, start=1):
        require(
            (item.window_id, item.revision, item.predecessor_manifest_digest)
            == (ledger.window_id, number, predecessor),
            "windows: revisions are contiguous and name their predecessor",
        )
        require(
            item.protocol_digest == snapshot.protocol_digest
            and policy is not None
            and item.frozen_policy_digest == policy.policy_digest,
            "windows: a revision names the protocol and the selected policy",
        )
        require(
            item.event_time_start_inclusive >= snapshot.protocol_created_at
            and item.ingestion_watermark < snapshot.protocol_expires_at,
            "windows: a window lies within the protocol's validity",
        )
        require(
            snapshot.last_event_at is not None and item.ingestion_watermark <= snapshot.last_event_at,
            "windows: a watermark is not after the last event",
        )
        predecessor = item.manifest_digest
    for before, after in pairwise(ledger.revisions):
        require(
            (before.event_time_start_inclusive, before.event_time_end_exclusive)
            == (after.event_time_start_inclusive, after.event_time_end_exclusive),
            "windows: a revision keeps the bounds",
        )
        require(
            after.ingestion_watermark >= before.ingestion_watermark,
            "windows: a revision never moves the watermark back",
        )
        require(
            (before.trace_set_digest, before.evaluator_set_digest, before.capacity_evidence_digest)
            != (after.trace_set_digest, after.evaluator_set_digest, after.capacity_evidence_digest),
            "windows: a revision changes a source or the capacity",
        )


def _check_policy(snapshot: ControllerSnapshot) -> None:
    policy = snapshot.selected_policy
    if policy is None:
        return
    require(policy.issued_at >= snapshot.protocol_created_at, "selectedPolicy: issued within the protocol's validity")
    require(policy.expires_at == snapshot.protocol_expires_at, "selectedPolicy: expires with the protocol")
    require(
        snapshot.last_event_at is not None and policy.issued_at <= snapshot.last_event_at,
        "selectedPolicy: issued before the last event",
    )


def _contents(snapshot: ControllerSnapshot) -> _Contents:
    phases = [("development", "holdout", "window").index(item.phase) for item in snapshot.assessments]
    require(phases == sorted(phases), "assessments come in the order development, holdout, window")
    require(phases.count(0) <= 1 and phases.count(1) <= 1, "assessments: at most one development and one holdout")
    development = next((item for item in snapshot.assessments if isinstance(item, DevelopmentAssessment)), None)
    holdout = next((item for item in snapshot.assessments if isinstance(item, HoldoutAssessment)), None)
    windows = tuple(item for item in snapshot.assessments if isinstance(item, WindowAssessment))
    revisions = tuple(item for ledger in snapshot.windows for item in ledger.revisions)
    stage = Stage.NOTHING
    for reached, holds in (
        (Stage.COLLECTION, snapshot.collection_id is not None),
        (Stage.EVIDENCE, snapshot.development_evidence is not None),
        (Stage.ASSESSED, development is not None),
        (Stage.NOMINATION, development is not None and development.status == "NOMINATED"),
        (Stage.HOLDOUT, holdout is not None and holdout.status == "PASS"),
        (Stage.DEPLOYMENT, snapshot.deployment_observation is not None),
    ):
        require(
            not holds or stage == reached - 1,
            "evidence comes in the order collection, evidence, nomination, holdout, deployment",
        )
        stage = reached if holds else stage
    return _Contents(development, holdout, windows, revisions, stage)


def _check_assessments(snapshot: ControllerSnapshot, found: _Contents) -> None:
    require_unique(
        (item.decision_digest for item in snapshot.assessments), "assessments: decisionDigest must not repeat"
    )
    require(
        all(item.protocol_digest == snapshot.protocol_digest for item in snapshot.assessments),
        "assessments: each names the protocol",
    )
    nominated = found.development.selected_policy if found.development else None
    require(snapshot.selected_policy == nominated, "selectedPolicy is that of the development nomination")
    evidence, development = snapshot.development_evidence, found.development
    if development is not None and evidence is not None:
        require(
            (development.dataset_digest, development.trace_set_digest, development.evaluator_set_digest)
            == (evidence.dataset_digest, evidence.trace_set_digest, evidence.evaluator_set_digest),
            "assessments: the development assessment is of the development evidence",
        )
    later = [item for item in (found.holdout, *found.windows) if item is not None]
    require(
        not later or found.stage >= Stage.NOMINATION, "assessments: a holdout or window assessment needs a nomination"
    )
    require(
        all(item.selected_policy == snapshot.selected_policy for item in later),
        "assessments: each is of the selected policy",
    )
    require(
        not found.windows or found.stage >= Stage.HOLDOUT, "assessments: a window assessment needs a passing holdout"
    )
    sealed = {item.manifest_digest: item for item in found.revisions}
    for item in found.windows:
        manifest = sealed.get(item.window_manifest_digest)
        require(
            manifest is not None
            and (item.trace_set_digest, item.evaluator_set_digest)
            == (manifest.trace_set_digest, manifest.evaluator_set_digest),
            "assessments: a window assessment is of a recorded manifest and its sources",
        )


def _check_deployment(snapshot: ControllerSnapshot, found: _Contents) -> None:
    seen, policy = snapshot.deployment_observation, snapshot.selected_policy
    if seen is None:
        return
    require(any(item.status == "PASS" for item in found.windows), "deploymentObservation: needs a passing window")
    require(
        policy is not None and seen.policy_digest == policy.policy_digest,
        "deploymentObservation: is of the selected policy",
    )
    require(
        snapshot.protocol_created_at <= seen.observed_at < snapshot.protocol_expires_at
        and snapshot.last_event_at is not None
        and seen.observed_at <= snapshot.last_event_at,
        "deploymentObservation: lies within the protocol's validity and before the last event",
    )
    require(snapshot.state in _AFTER_DEPLOYMENT, "deploymentObservation: not in this state")


def _check_state(snapshot: ControllerSnapshot, found: _Contents) -> None:
    require(snapshot.state != "STALE" or bool(snapshot.stale_reasons), "a STALE controller has a reason")
    require(not snapshot.stale_reasons or snapshot.state in _OPEN_ENDED, "staleReasons are for STALE and RETIRED")
    rule = _STATE_RULES.get(snapshot.state)
    if rule is None:
        return
    require(found.stage in rule.stages, f"{snapshot.state} does not fit the evidence that there is")
    require(rule.windows_allowed or not snapshot.windows, f"{snapshot.state} comes before windows")
    require(
        snapshot.state != "SHADOW_ASSESSING" or found.holdout is None,
        "SHADOW_ASSESSING comes before the holdout assessment",
    )
    require(
        snapshot.sequence == rule.events(snapshot, found),
        f"sequence is not the number of events that lead to {snapshot.state}",
    )
    last = snapshot.assessments[-1] if snapshot.assessments else None
    if rule.latest_window is not None:
        latest = {ledger.revisions[-1].manifest_digest for ledger in snapshot.windows}
        require(
            isinstance(last, WindowAssessment)
            and last.status == rule.latest_window
            and last.window_manifest_digest in latest,
            f"{snapshot.state} needs a latest window assessment that is {rule.latest_window}",
        )
    if snapshot.state == "HOLD":
        require(last is not None and last.status in _HOLDING, "HOLD needs a last assessment that holds")
