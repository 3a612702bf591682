"""From one finding to one signed receipt, and which receipt admits a route.

Rules:

1. A receipt says exactly what one probe showed of one endpoint, build, backend, model and configuration, at one time.
2. A field of the identity is ``provider-reported`` only where the answer named it; what nobody confirmed is listed in
   ``notProved``. A build that the wire cannot confirm stays the operator's word.
3. A receipt admits a route where it says ``supported`` for that route's capability, was made by a canary, has the
   target's whole scope, route and framing, and is valid. Nothing else admits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, get_args

from tasc_collector.contracts.collection import PlanTarget
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild, RuntimeInstance
from tasc_collector.contracts.probe import (
    BackendVerification,
    CapabilityProbeEvidence,
    IdentityVerification,
    ProbeCapability,
    RuntimeBuildVerification,
    TextVerification,
)
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp, timestamp_ms
from tasc_collector.errors import InputError
from tasc_collector.invocation.admission import CapabilityAdmission
from tasc_collector.limits import RECEIPT_HOURS_MAX
from tasc_collector.probes.canaries import CANARIES, CanaryPlace, probe_canary
from tasc_collector.probes.judgement import Finding
from tasc_collector.probes.observations import ALSO_NOT_PROVED, KIND_OF, Subject, observation_route, observe
from tasc_collector.runtimes.profile import Capability, Effect, Framing, Route
from tasc_collector.signing import SigningKey
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess

_ORIGINAL: Final = frozenset(get_args(ProbeCapability))
"""Capabilities for which the original project has a probe evidence."""
_UNVERIFIED: Final = TextVerification(basis="unverified", observed=None)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who signs a receipt, and for how long it holds.

    Args:
        key: the collector's key.
        key_id: its id in the key ring.
        valid_hours: hours from the observation on.
    """

    key: SigningKey
    key_id: str
    valid_hours: float

    def __post_init__(self) -> None:
        if not 0 < self.valid_hours <= RECEIPT_HOURS_MAX:
            raise InputError(
                "a receipt cannot be valid for so long",
                field="validHours",
                rule=f"more than 0, at most {RECEIPT_HOURS_MAX:g} hours",
                way_out="choose less, and probe again when it ends",
            )


async def probe(
    place: CanaryPlace,
    capability: Capability,
    effect: Effect,
    issuer: Issuer,
    *,
    clock: Clock,
    network: NetworkAccess | None = None,
) -> CapabilityReceipt:
    """Make one observation and its signed receipt.

    Args:
        place: the server, and for an inference canary the route, framing and limits.
        capability: what is to be shown.
        effect: the effect that the operator named; exactly the probe's own.
        issuer: who signs.
        clock: both clocks.
        network: lookups and sockets; the system's if None.

    Raises:
        NotAuthorized: effect, policy, profile or residency forbids it; nothing was sent.
        InputError: the route cannot ask for this; nothing was sent.
    """
    at = format_timestamp(
        parse_timestamp("1970-01-01T00:00:00.000Z") + timedelta(microseconds=clock.wall_ns() // 1_000)
    )
    if capability in KIND_OF:
        observation_route(place.subject.profile, capability, alias=place.subject.alias)
        finding = await observe(place.subject, KIND_OF[capability], effect, clock=clock, network=network)
        return make_receipt(place.subject, capability, effect, finding, issuer, observed_at=at)
    result = await probe_canary(place, capability, effect, clock=clock, network=network)
    return make_receipt(
        place.subject,
        capability,
        effect,
        result.finding,
        issuer,
        observed_at=at,
        route=place.route,
        framing=result.framing,
        calls=result.calls,
    )


def make_receipt(
    subject: Subject,
    capability: Capability,
    effect: Effect,
    finding: Finding,
    issuer: Issuer,
    *,
    observed_at: str,
    route: Route | None = None,
    framing: Framing | None = None,
    calls: int = 0,
) -> CapabilityReceipt:
    """Sign what a probe showed.

    Args:
        subject: the server.
        capability: what was probed.
        effect: the effect it had.
        finding: what it showed.
        issuer: who signs.
        observed_at: when it was made.
        route: inference route of a canary.
        framing: framing of its answers.
        calls: inference calls.
    """
    instance = subject.instance
    verification = _verification(instance, finding)
    until = format_timestamp(parse_timestamp(observed_at) + timedelta(hours=issuer.valid_hours))
    evidence = None
    if capability.value in _ORIGINAL:
        evidence = CapabilityProbeEvidence.model_validate(
            {
                "capability": capability.value,
                "state": finding.state,
                "probed_at": observed_at,
                "identity_verification": verification,
                **_scope_fields(instance),
                "endpoint_descriptor_digest": instance.endpoint_descriptor_digest,
            },
            by_name=True,
        ).to_json()
    return CapabilityReceipt.sign_with(
        issuer.key,
        issuer.key_id,
        capability=capability.value,
        state=finding.state,
        effect=effect.value,
        endpoint_alias=subject.alias,
        endpoint_binding_digest=instance.endpoint_descriptor_digest,
        **_scope_fields(instance),
        route=None if route is None else route.value,
        framing=None if framing is None else framing.value,
        identity_verification=verification,
        not_proved=_not_proved(capability, finding),
        reason=str(finding.reason),
        status=finding.status,
        dispatch_state=finding.dispatch_state.value,
        calls=calls,
        measured=finding.measured,
        observed_at=observed_at,
        valid_until=until,
        evidence=evidence,
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """What a receipt must be for, to admit a target's route."""

    endpoint_binding_digest: str
    runtime: RuntimeBuild
    backend: BackendBuild
    model: ModelRevision
    configuration_digest: str
    route: str
    framing: str

    @classmethod
    def of(cls, target: PlanTarget) -> Scope:
        """The scope of a plan's target."""
        return cls(
            target.endpoint_binding_digest,
            target.runtime,
            target.backend,
            target.model,
            target.configuration_digest,
            target.route,
            target.framing,
        )

    def differs(self, receipt: CapabilityReceipt) -> str | None:
        """First field of the endpoint's identity in which a receipt is for something else; None where it fits."""
        for name in ("endpoint_binding_digest", "runtime", "backend", "model", "configuration_digest"):
            if getattr(receipt, name) != getattr(self, name):
                return name
        return None

    def admitted_by(self, receipt: CapabilityReceipt) -> bool:
        """Whether a receipt shows exactly this route (rule 3); time is another question."""
        shown = receipt.capability == receipt.route == self.route and receipt.framing == self.framing
        canary = receipt.effect == Effect.INFERENCE_CANARY.value and receipt.state == "supported"
        return shown and canary and self.differs(receipt) is None


def admit(target: PlanTarget, receipts: Iterable[CapabilityReceipt], as_of: str) -> CapabilityAdmission | None:
    """What verified receipts admit for a target.

    Args:
        target: the plan's target.
        receipts: receipts whose signatures were checked.
        as_of: the instant at which they must be valid.

    Returns:
        The admission of the receipt that holds longest; None where none admits the route.
    """
    scope = Scope.of(target)
    good = [item for item in receipts if scope.admitted_by(item) and item.observed_at <= as_of < item.valid_until]
    if not good:
        return None
    best = max(good, key=lambda item: (item.valid_until, item.digest))
    instance = RuntimeInstance(
        endpoint_descriptor_digest=target.endpoint_binding_digest,
        runtime=target.runtime,
        backend=target.backend,
        model=target.model,
        configuration_digest=target.configuration_digest,
    )
    return CapabilityAdmission(
        instance, Route(target.route), Framing(target.framing), timestamp_ms(best.valid_until), (best.digest,)
    )


def _scope_fields(instance: RuntimeInstance) -> dict[str, object]:
    return {
        "runtime": instance.runtime,
        "backend": instance.backend,
        "model": instance.model,
        "configuration_digest": instance.configuration_digest,
    }


def _verification(instance: RuntimeInstance, finding: Finding) -> IdentityVerification:
    """Rule 2."""
    return IdentityVerification(
        runtime_build=RuntimeBuildVerification(
            basis="provider-reported" if finding.build_seen else "operator-policy",
            observed=instance.runtime.build if finding.build_seen else None,
        ),
        backend=BackendVerification(basis="unverified", observed=None),
        model_id=_text(instance.model.id) if finding.model_seen else _UNVERIFIED,
        model_revision=_text(instance.model.revision) if finding.revision_seen else _UNVERIFIED,
        configuration_digest=_UNVERIFIED,
    )


def _text(value: str) -> TextVerification:
    return TextVerification(basis="provider-reported", observed=value)


def _not_proved(capability: Capability, finding: Finding) -> tuple[str, ...]:
    identity = (
        ("runtime-build", finding.build_seen),
        ("model-id", finding.model_seen),
        ("model-revision", finding.revision_seen),
        ("backend", False),
        ("configuration-digest", False),
    )
    own = ALSO_NOT_PROVED.get(capability, ())
    return tuple(sorted({name for name, seen in identity if not seen} | set(own) | set(finding.not_proved)))


PROBED: Final = (*KIND_OF, *CANARIES)
"""Every capability that can be probed."""
