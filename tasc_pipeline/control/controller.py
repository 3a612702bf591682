"""The controller: which fact a study's state takes next, and what it leads to (original project, section 3.14). Pure.

Rules:

1. A controller starts as an empty DRAFT of one protocol. A fact is taken or refused as a whole; a fact that is taken
   makes one event, which names the event before it, and one new snapshot. Nothing else changes a snapshot.
2. ``controller_table.ROWS`` is the whole table: fact, state, the assessment's status where the fact has one, next state. What is not in
   it is refused. RETIRED takes nothing; HOLD, STALE and ROLLBACK_RECOMMENDED take drift, expiry and retirement only.
3. Time never goes back, and nothing happens before the protocol's creation. At or after the expiry of the protocol, or
   of the policy that was selected, only drift, expiry and retirement are taken.
4. Each fact must fit what the snapshot already holds: the same protocol, the selected policy, the evidence that was
   announced, a window's newest revision with exactly its source sets. ``controller_guards`` holds these rules by fact.
5. A window manifest is not taken before its watermark. In PROMOTION_RECOMMENDED it falls back to HOLDOUT_CONFIRMED:
   what was recommended was recommended without it.
6. A controller recommends. It deploys nothing, and nobody asks it before a user's request is answered.

Only decisive windows come here: ``controller_sources`` makes the facts from records and refuses the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tasc_collector.canonical import utf16_key
from tasc_collector.contracts.base import input_error
from tasc_collector.contracts.controller import (
    ControllerEvent,
    ControllerSnapshot,
    ControllerState,
    WindowLedger,
    fact_digest,
)
from tasc_collector.contracts.controller_facts import (
    AssessmentProjection,
    CollectionStarted,
    ControllerFact,
    DeploymentObserved,
    DevelopmentAssessmentRecorded,
    DevelopmentEvidenceReady,
    HoldoutAssessmentRecorded,
    IdentityDriftRecorded,
    ProtocolExpiryObserved,
    WindowAssessmentRecorded,
    WindowManifestRecorded,
    WindowProjection,
)
from tasc_collector.errors import NotAuthorized
from tasc_pipeline.control.controller_guards import content_refusal, kind_refusal
from tasc_pipeline.control.controller_table import FACTS, ROWS, TARGETS, FactKind


@dataclass(frozen=True, slots=True)
class Step:
    """A fact that was taken: its event, and the state after it."""

    event: ControllerEvent
    snapshot: ControllerSnapshot


def refusal(snapshot: ControllerSnapshot, fact: ControllerFact, at: str) -> str | None:
    """The first rule by which a fact is not taken; None where it is.

    Args:
        snapshot: the state before it.
        fact: what was learnt.
        at: when it is recorded, an instant of ``contracts.scalars``.
    """
    return kind_refusal(snapshot, fact.kind, at) or content_refusal(snapshot, fact, at)


def extend(snapshot: ControllerSnapshot, fact: ControllerFact, at: str) -> Step:
    """Take a fact.

    Args:
        snapshot: the state before it.
        fact: what was learnt.
        at: when it is recorded.

    Raises:
        NotAuthorized: a rule refuses it; it names the rule, and nothing has changed.
    """
    rule = refusal(snapshot, fact, at)
    if rule is not None:
        raise NotAuthorized(
            f"the controller does not take {fact.kind}",
            where=snapshot.study_id,
            field=snapshot.state,
            rule=rule,
            way_out=f"see what is allowed next and why: tasc controller show {snapshot.study_id}",
        )
    event = ControllerEvent.issue(
        controller_id=snapshot.controller_id,
        study_id=snapshot.study_id,
        protocol_digest=snapshot.protocol_digest,
        sequence=snapshot.sequence + 1,
        predecessor_event_id=snapshot.last_event_id,
        occurred_at=at,
        fact=fact,
        fact_digest=fact_digest(fact),
    )
    return Step(event, _after(snapshot, event))


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a kind of fact may come next."""

    fact: FactKind
    leads_to: tuple[ControllerState, ...]
    """Where it can lead from this state; empty where this state does not take it."""
    rule: str | None
    """Why it is not allowed now; None where it is."""

    @property
    def allowed(self) -> bool:
        """Whether such a fact is taken, if its content is right."""
        return self.rule is None


def allowed_next(snapshot: ControllerSnapshot, at: str) -> tuple[Outlook, ...]:
    """Every kind of fact: what is allowed next, and by which rule each other one is not."""
    return tuple(
        Outlook(
            kind,
            tuple(dict.fromkeys(row.leads_to for row in ROWS if (row.fact, row.state) == (kind, snapshot.state))),
            kind_refusal(snapshot, kind, at),
        )
        for kind in FACTS
    )


def _after(snapshot: ControllerSnapshot, event: ControllerEvent) -> ControllerSnapshot:
    """The snapshot that an event leads to; every field that the fact does not touch is kept."""
    fact = event.fact
    fixed = ("version", "attestation", "snapshot_digest")
    kept: dict[str, Any] = {  # Any: the snapshot's field values
        name: getattr(snapshot, name) for name in ControllerSnapshot.model_fields if name not in fixed
    }
    changes = {
        "state": TARGETS[fact.kind, snapshot.state, _status(fact)],
        "sequence": event.sequence,
        "last_event_id": event.event_id,
        "last_event_at": event.occurred_at,
        **_effect(snapshot, fact),
    }
    try:
        return ControllerSnapshot.issue(**{**kept, **changes})
    except ValidationError as error:  # the guards say it first; the record's own rules have the last word
        raise input_error(error, where=snapshot.study_id) from None


def _effect(snapshot: ControllerSnapshot, fact: ControllerFact) -> dict[str, Any]:  # Any: field values
    match fact:
        case CollectionStarted():
            return {"collection_id": fact.collection_id}
        case DevelopmentEvidenceReady():
            return {"development_evidence": fact.evidence}
        case DevelopmentAssessmentRecorded():
            return {"selected_policy": fact.projection.selected_policy, **_assessed(snapshot, fact.projection)}
        case HoldoutAssessmentRecorded() | WindowAssessmentRecorded():
            return _assessed(snapshot, fact.projection)
        case WindowManifestRecorded():
            return {"windows": _with_revision(snapshot, fact.projection)}
        case DeploymentObserved():
            return {"deployment_observation": fact.observation}
        case IdentityDriftRecorded():
            return {"stale_reasons": _with_reason(snapshot, fact.reason_code)}
        case ProtocolExpiryObserved():
            return {"stale_reasons": _with_reason(snapshot, "protocol-expired")}
        case _:
            return {}


def _assessed(snapshot: ControllerSnapshot, projection: AssessmentProjection) -> dict[str, Any]:  # Any: field values
    changes: dict[str, Any] = {"assessments": (*snapshot.assessments, projection)}  # Any: field values
    if projection.status == "STALE":
        changes["stale_reasons"] = _with_reason(snapshot, f"{projection.phase}-assessment-stale")
    return changes


def _with_reason(snapshot: ControllerSnapshot, reason: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*snapshot.stale_reasons, reason)))


def _with_revision(snapshot: ControllerSnapshot, revision: WindowProjection) -> tuple[WindowLedger, ...]:
    ledgers = {ledger.window_id: ledger for ledger in snapshot.windows}
    before = ledgers.get(revision.window_id)
    revisions = (*(before.revisions if before else ()), revision)
    ledgers[revision.window_id] = WindowLedger(window_id=revision.window_id, revisions=revisions)
    return tuple(ledgers[name] for name in sorted(ledgers, key=utf16_key))


def _status(fact: ControllerFact) -> str | None:
    match fact:
        case DevelopmentAssessmentRecorded() | HoldoutAssessmentRecorded() | WindowAssessmentRecorded():
            return fact.projection.status
        case _:
            return None
