"""The trace envelope: one profile's run of one case replicate, with all its attempts (original project, section 3.2).

Rules:

1. A window's id and membership digest are set exactly when the split is ``online``; a collection binding exactly when
   the source mode is ``shadow``.
2. Time runs one way: route signal <= dispatch intent <= first attempt; a later attempt starts after the one before
   ended.
3. Attempts are numbered from 1 without a gap and have unique ids. Only the last can be a success, and exactly then
   there is a terminal output identity.
4. Two keys sign: the dispatch key before anything is sent, over every field that decides what is sent; the collector
   key afterwards, over everything including the first signature. ``verification`` checks both.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.attempt import Attempt
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.persistence import RouteName
from tasc_collector.contracts.rules import (
    AscendingDigests,
    UniqueSlugs,
    require,
    require_in_order,
    require_unique,
)
from tasc_collector.contracts.scalars import B64u, Count, Digest, Finite, OpaqueId, Slug, Timestamp, TraceText
from tasc_collector.limits import MAX_ATTEMPTS, MAX_CAPABILITY_RECEIPTS, MAX_SLICES

Split = Literal["dev", "holdout", "online"]
SourceMode = Literal["imported", "observed", "shadow"]

DISPATCH_DOMAIN = "tasc/dispatch-intent-signature/v1"
DISPATCH_FIELD = "intent"
ATTESTATION_DOMAIN = "tasc/collector-attestation-signature/v1"
ATTESTATION_FIELD = "trace"

_AFTER_DISPATCH = frozenset({"attempts", "terminalOutputId", "collectorVersion", "collectorAttestation"})
"""Fields that do not exist yet when the dispatch key signs."""


class CollectionBinding(Model):
    """Which plan, endpoint, route and limits an execution was collected under."""

    shadow_plan_digest: Digest
    endpoint_alias: OpaqueId
    endpoint_binding_digest: Digest
    route: RouteName
    authentication_reference: OpaqueId | None
    http_limits_digest: Digest
    capability_receipt_digests: Annotated[AscendingDigests, Field(max_length=MAX_CAPABILITY_RECEIPTS)]


class ObservedRoute(Model):
    """The profile that ran, and the id of the decision to run it."""

    selected_profile_id: Slug
    decision_id: Slug


class Workload(Model):
    """How the case stands for traffic."""

    mode: Slug
    declared_traffic_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    input_token_estimate: Count | None


class SignalProvenance(Model):
    """Who observed the route signal, and when."""

    kind: Literal["route-signal-observation"] = "route-signal-observation"
    source_id: Slug
    observed_at: Timestamp


class RouteSignalObservation(Model):
    """The value that a router would have decided on."""

    definition_id: Slug
    version: TraceText
    calibration_digest: Digest
    value: Finite
    provenance: SignalProvenance


class DispatchIntent(Model):
    """Signature of the dispatch authority, made before anything is sent."""

    version: Literal["tasc-dispatch-intent-v1"] = "tasc-dispatch-intent-v1"
    issued_at: Timestamp
    authority_key_id: Slug
    signature_algorithm: Literal["ed25519"] = "ed25519"
    signature: B64u


class CollectorAttestation(Model):
    """Signature of the collector authority over the whole envelope."""

    version: Literal["tasc-collector-attestation-v1"] = "tasc-collector-attestation-v1"
    collected_at: Timestamp
    authority_key_id: Slug
    signature_algorithm: Literal["ed25519"] = "ed25519"
    signature: B64u


class TraceEnvelope(Record):
    """One logical execution; see the rules of this module."""

    domain: ClassVar[str] = "tasc/trace-envelope/v2"

    version: Literal["tasc-trace-envelope-v2"] = "tasc-trace-envelope-v2"
    study_id: Slug
    protocol_digest: Digest
    trace_id: Slug
    case_id: Slug
    group_id: Slug
    replicate_id: Slug
    split: Split
    collection_window_id: Slug | None
    collection_window_membership_digest: Digest | None
    source_mode: SourceMode
    collection_binding: CollectionBinding | None
    profile_id: Slug
    execution_profile_digest: Digest
    policy_digest: Digest
    observed_route: ObservedRoute
    workload: Workload
    slices: Annotated[UniqueSlugs, Field(max_length=MAX_SLICES)]
    route_signal: RouteSignalObservation | None
    dispatch_intent: DispatchIntent
    attempts: Annotated[tuple[Attempt, ...], Field(min_length=1, max_length=MAX_ATTEMPTS)]
    terminal_output_id: KeyedIdentity | None
    collector_version: TraceText
    collector_attestation: CollectorAttestation

    @model_validator(mode="after")
    def _window_and_binding(self) -> Self:
        online = self.split == "online"
        require(
            online == (self.collection_window_id is not None), "collectionWindowId is set exactly when split is online"
        )
        require(
            online == (self.collection_window_membership_digest is not None),
            "collectionWindowMembershipDigest is set exactly when split is online",
        )
        require(
            (self.source_mode == "shadow") == (self.collection_binding is not None),
            "collectionBinding is set exactly when sourceMode is shadow",
        )
        require(
            self.observed_route.selected_profile_id == self.profile_id,
            "observedRoute.selectedProfileId must be profileId",
        )
        return self

    @model_validator(mode="after")
    def _attempts(self) -> Self:
        require(
            [attempt.attempt_number for attempt in self.attempts] == list(range(1, len(self.attempts) + 1)),
            "attempts must be numbered from 1 without a gap",
        )
        require_unique((attempt.attempt_id for attempt in self.attempts), "attemptId must not repeat")
        require(
            all(attempt.status != "success" for attempt in self.attempts[:-1]), "only the last attempt can be a success"
        )
        require(
            (self.attempts[-1].status == "success") == (self.terminal_output_id is not None),
            "terminalOutputId is set exactly when the last attempt is a success",
        )
        return self

    @model_validator(mode="after")
    def _time_order(self) -> Self:
        signal = self.route_signal.provenance.observed_at if self.route_signal else None
        require_in_order(
            (signal, self.dispatch_intent.issued_at), "routeSignal must be observed no later than dispatchIntent"
        )
        first = self.attempts[0].observer_timings.started_at
        require_in_order(
            (self.dispatch_intent.issued_at, first), "dispatchIntent must be issued no later than the first attempt"
        )
        for before, after in zip(self.attempts, self.attempts[1:], strict=False):
            require_in_order(
                (before.observer_timings.completed_at, after.observer_timings.started_at),
                "an attempt starts after the one before has ended",
            )
        return self

    @property
    def event_time(self) -> str:
        """The instant that places the trace in a window: the first attempt's start."""
        return self.attempts[0].observer_timings.started_at

    @property
    def completed_at(self) -> str:
        """The end of the last attempt."""
        return self.attempts[-1].observer_timings.completed_at


def dispatch_preimage(value: dict[str, Any]) -> dict[str, Any]:  # Any: JSON objects
    """What the dispatch key signs (member ``intent``): every field up to ``dispatchIntent``, that one unsigned.

    Args:
        value: the envelope's JSON value; fields that come after dispatch may be absent.
    """
    intent = {name: item for name, item in value.items() if name not in _AFTER_DISPATCH}
    intent["dispatchIntent"] = _without_signature(value["dispatchIntent"])
    return intent


def attestation_preimage(value: dict[str, Any]) -> dict[str, Any]:  # Any: JSON objects
    """What the collector key signs (member ``trace``): the whole envelope, its own attestation unsigned."""
    return {**value, "collectorAttestation": _without_signature(value["collectorAttestation"])}


def _without_signature(value: dict[str, Any]) -> dict[str, Any]:  # Any: JSON objects
    return {name: item for name, item in value.items() if name != "signature"}
