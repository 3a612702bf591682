"""Building trace envelopes: what the dispatch key signs before the send, what the collector key signs after it. Pure.

The two keys are distinct. The dispatch signature covers every field that decides what is sent; it is made with the intent,
so that nothing can be sent that was not signed. The collector's covers the whole envelope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tasc_collector.canonical import MAX_SAFE_INTEGER, canonical_bytes
from tasc_collector.contracts.collection import CollectionPlan, PlanTarget
from tasc_collector.contracts.envelope import (
    ATTESTATION_DOMAIN,
    ATTESTATION_FIELD,
    DISPATCH_DOMAIN,
    DISPATCH_FIELD,
    TraceEnvelope,
    attestation_preimage,
    dispatch_preimage,
)
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.identity import PayloadKey, trace_id
from tasc_collector.shadow.attempts import unknown_attempt
from tasc_collector.shadow.cases import Case
from tasc_collector.shadow.executions import Pair
from tasc_collector.signing import SigningKey

if TYPE_CHECKING:
    from tasc_collector.contracts.protocol import RouteSignalDefinition

COLLECTOR_VERSION = "tasc-collector-0.1.0"
_UNSIGNED = "A"
"""Stands where a signature will stand, in an envelope that is only checked."""
Split = Literal["dev", "holdout", "online"]

_SPLITS: Mapping[str, Split] = {
    "comparison": "online",
    "window": "online",
    "monitoring": "online",
    "development": "dev",
    "holdout": "holdout",
}
"""Purpose of the plan to split of its traces (design: development and holdout have no window and no binding)."""


@dataclass(frozen=True, slots=True)
class EnvelopeTerms:
    """What is the same in every envelope of a window."""

    plan: CollectionPlan
    declaration: WindowDeclaration
    bound_plan_digest: str
    """The embedded shadow run plan's digest where there is one, else the collection plan's."""
    route_signal: RouteSignalDefinition | None
    payload_key: PayloadKey
    dispatch_key: SigningKey
    dispatch_key_id: str
    collector_key: SigningKey
    collector_key_id: str

    @property
    def split(self) -> Split:
        """Split of this window's traces."""
        return _SPLITS[self.plan.purpose]


def execution_ids(
    terms: EnvelopeTerms, pair: Pair, target: PlanTarget, request_identity: KeyedIdentity
) -> tuple[str, str]:
    """Trace id and route decision id of one execution (original project, section 4.1).

    Args:
        terms: plan, declaration and keys of the run.
        pair: case and replicate.
        target: the profile's endpoint.
        request_identity: keyed identity of the exact request.

    Returns:
        ``(trace-<hex>, route-<hex>)``; window fields are null in them outside split ``online``.
    """
    online = terms.split == "online"
    return trace_id(
        terms.payload_key,
        protocol_digest=terms.plan.protocol_digest,
        collection_window_id=terms.declaration.window_id if online else None,
        collection_window_membership_digest=terms.declaration.membership_digest if online else None,
        policy_digest=terms.plan.policy_digest,
        case_id=pair.case.case_id,
        group_id=pair.case.group_id,
        replicate_id=pair.planned.replicate_id,
        profile_id=target.profile_id,
        request_identity=request_identity,
        endpoint_binding_digest=target.endpoint_binding_digest,
        authentication_reference=target.authentication_reference,
        http_limits_digest=target.http_limits.digest,
    )


def _workload(case: Case) -> dict[str, Any]:  # Any: a JSON object
    """The workload block; a whole weight is written as an integer, which is its canonical form and quick to make."""
    weight = case.weight
    whole = weight.is_integer() and weight <= MAX_SAFE_INTEGER
    return {**case.workload.to_json(), "declaredTrafficWeight": int(weight) if whole else weight}


def route_signal_of(terms: EnvelopeTerms, case: Case) -> dict[str, Any] | None:  # Any: a JSON object
    """The envelope's route signal of a case; None where the study has none or the case brings none."""
    signal, definition = case.route_signal, terms.route_signal
    if signal is None or definition is None:
        return None
    return {
        "definitionId": definition.definition_id,
        "version": definition.version,
        "calibrationDigest": definition.calibration_digest,
        "value": signal.get("value"),
        "provenance": {
            "kind": "route-signal-observation",
            "sourceId": signal.get("sourceId"),
            "observedAt": signal.get("observedAt"),
        },
    }


def signed_intent(
    terms: EnvelopeTerms, pair: Pair, target: PlanTarget, *, trace: str, decision: str, issued_at: str
) -> dict[str, Any]:  # Any: a JSON object
    """Every envelope field up to the dispatch intent, signed with the dispatch key (original project, trace envelope v2).

    Args:
        terms: plan, declaration and keys of the run.
        pair: case and replicate.
        target: the profile's endpoint.
        trace: trace id of the execution.
        decision: its route decision id.
        issued_at: instant of the intent, before anything is sent.

    Returns:
        A JSON object, for ``attested``.
    """
    value = _intent(terms, pair, target, trace, decision, issued_at)
    signature = terms.dispatch_key.sign(DISPATCH_DOMAIN, DISPATCH_FIELD, dispatch_preimage(value))
    value["dispatchIntent"]["signature"] = signature
    return value


def _intent(
    terms: EnvelopeTerms, pair: Pair, target: PlanTarget, trace: str, decision: str, issued_at: str
) -> dict[str, Any]:  # Any: a JSON object
    online = terms.split == "online"
    return {
        "version": "tasc-trace-envelope-v2",
        "studyId": terms.plan.study_id,
        "protocolDigest": terms.plan.protocol_digest,
        "traceId": trace,
        "caseId": pair.case.case_id,
        "groupId": pair.case.group_id,
        "replicateId": pair.planned.replicate_id,
        "split": terms.split,
        "collectionWindowId": terms.declaration.window_id if online else None,
        "collectionWindowMembershipDigest": terms.declaration.membership_digest if online else None,
        "sourceMode": "shadow" if online else "observed",
        "collectionBinding": {
            "shadowPlanDigest": terms.bound_plan_digest,
            "endpointAlias": target.endpoint_alias,
            "endpointBindingDigest": target.endpoint_binding_digest,
            "route": target.route,
            "authenticationReference": target.authentication_reference,
            "httpLimitsDigest": target.http_limits.digest,
            "capabilityReceiptDigests": list(target.capability_receipt_digests),
        }
        if online
        else None,
        "profileId": target.profile_id,
        "executionProfileDigest": target.execution_profile_digest,
        "policyDigest": terms.plan.policy_digest,
        "observedRoute": {"selectedProfileId": target.profile_id, "decisionId": decision},
        "workload": _workload(pair.case),
        "slices": list(pair.case.slices),
        "routeSignal": route_signal_of(terms, pair.case),
        "dispatchIntent": {
            "version": "tasc-dispatch-intent-v1",
            "issuedAt": issued_at,
            "authorityKeyId": terms.dispatch_key_id,
            "signatureAlgorithm": "ed25519",
        },
    }


def attested(
    terms: EnvelopeTerms,
    intent: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
    terminal_output_id: Mapping[str, Any] | None,
    *,
    collected_at: str,
) -> bytes:  # Any above: JSON objects
    """Canonical bytes of the complete envelope, signed with the collector key and checked against the schema before anyone
    stores it.

    Args:
        terms: plan, declaration and keys of the run.
        intent: what ``signed_intent`` gave.
        attempts: what became of each attempt, in order.
        terminal_output_id: keyed identity of the answer; None where there is none.
        collected_at: instant of the attestation.

    Raises:
        InputError: the envelope breaks its own schema.
    """
    value = _envelope(terms, intent, attempts, terminal_output_id, collected_at)
    signature = terms.collector_key.sign(ATTESTATION_DOMAIN, ATTESTATION_FIELD, attestation_preimage(value))
    value["collectorAttestation"]["signature"] = signature
    envelope = canonical_bytes(value)
    TraceEnvelope.read_own(envelope, where="trace envelope")
    return envelope


def check_envelope(
    terms: EnvelopeTerms, pair: Pair, target: PlanTarget, request_identity: KeyedIdentity, *, at: str
) -> None:
    """Hold what is known of an execution before it is sent to the envelope's schema. Signs nothing.

    Args:
        terms: the window's terms.
        pair: one of its pairs.
        target: where the pair is sent.
        request_identity: identity of the request.
        at: an instant at which it might be sent.

    Raises:
        InputError: an envelope of it could not be written; names the field.
    """
    trace, decision = execution_ids(terms, pair, target, request_identity)
    intent = _intent(terms, pair, target, trace, decision, at)
    intent["dispatchIntent"]["signature"] = _UNSIGNED
    lease = {
        "attemptId": "attempt-1",
        "attemptNumber": 1,
        "issuedAt": at,
        "expiresAt": at,
        "requestIdentity": request_identity.to_json(),
    }
    value = _envelope(terms, intent, [unknown_attempt(lease, target, settled_at=at)], None, at)
    value["collectorAttestation"]["signature"] = _UNSIGNED
    TraceEnvelope.read_own(canonical_bytes(value), where="trace envelope")


def _envelope(
    terms: EnvelopeTerms,
    intent: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
    terminal_output_id: Mapping[str, Any] | None,
    collected_at: str,
) -> dict[str, Any]:  # Any above: JSON objects
    return {
        **intent,
        "attempts": [dict(attempt) for attempt in attempts],
        "terminalOutputId": None if terminal_output_id is None else dict(terminal_output_id),
        "collectorVersion": COLLECTOR_VERSION,
        "collectorAttestation": {
            "version": "tasc-collector-attestation-v1",
            "collectedAt": collected_at,
            "authorityKeyId": terms.collector_key_id,
            "signatureAlgorithm": "ed25519",
        },
    }
