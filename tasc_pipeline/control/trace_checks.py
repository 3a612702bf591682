"""What every envelope of a decision study must be before anything is joined (original project, section 6.1). Pure.

The steps; the first that does not hold names itself and nothing is taken:

1. Study, protocol digest, both signatures, authorities and required capabilities (``contracts.verification``).
2. The first attempt starts and the last ends inside the protocol's validity.
3. The execution profile is the protocol's, by digest; the requested model is the profile's, and what the provider
   reported is not another.
4. A modeled cost is from the cost model that the protocol names, by digest.
5. A route signal is of the protocol's definition, version, calibration and range, and was observed before the start.
6. A development or holdout trace is in the split that its group's hash gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from tasc_collector.contracts.attempt import Attempt, ModeledCost, ReportedModel
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.execution_profile import ExecutionProfile
from tasc_collector.contracts.protocol import CostModeled, ExperimentProtocol
from tasc_collector.contracts.verification import StudyTerms, verify_trace
from tasc_collector.errors import InputError
from tasc_collector.shadow.membership import group_split

_WAY_OUT: Final = "take the trace out of the input, or assess it under the protocol it was collected under"


@dataclass(frozen=True, slots=True)
class ProtocolTerms:
    """A protocol with everything that is derived from it once."""

    protocol: ExperimentProtocol
    digest: str
    terms: StudyTerms
    profile_digests: Mapping[str, str]
    splits: dict[str, str] = field(default_factory=dict)
    """Split of each group that was asked for."""

    @classmethod
    def of(cls, protocol: Parsed[ExperimentProtocol]) -> Self:
        """The terms of a protocol as it was read."""
        terms = StudyTerms.of_protocol(protocol)
        profiles = {profile.id: profile.digest for profile in protocol.record.profiles}
        return cls(protocol.record, terms.protocol_digest, terms, profiles)

    def split(self, group_id: str) -> str:
        """Development or holdout, by the group's hash."""
        if group_id not in self.splits:
            self.splits[group_id] = group_split(self.protocol.split_membership, group_id)
        return self.splits[group_id]


def check_traces(traces: Iterable[Parsed[TraceEnvelope]], terms: ProtocolTerms, *, verified: bool = False) -> None:
    """Check every envelope by the steps of this module.

    Args:
        traces: as they were read.
        terms: the protocol's.
        verified: leave the signatures out; only for envelopes that this project has verified before.

    Raises:
        InputError: names trace, field and rule.
        SignatureError: a signature is not the study's.
    """
    for trace in traces:
        if not verified:
            verify_trace(trace, terms.terms, where=trace.record.trace_id)
        check_trace(trace.record, terms)


def check_trace(trace: TraceEnvelope, terms: ProtocolTerms) -> None:
    """All steps but the signatures of one envelope; raises as ``check_traces``."""
    protocol = terms.protocol
    if (trace.study_id, trace.protocol_digest) != (protocol.study_id, terms.digest):
        raise _refusal(trace, "protocolDigest", "study and protocol are those that are assessed, by digest")
    if trace.event_time < protocol.created_at or trace.completed_at >= protocol.expires_at:
        raise _refusal(trace, "attempts.observerTimings", "every attempt lies inside the protocol's validity")
    known = terms.profile_digests.get(trace.profile_id)
    if known is None:
        raise _refusal(trace, "profileId", "the profile is one of the protocol's")
    if trace.execution_profile_digest != known:
        raise _refusal(trace, "executionProfileDigest", "the execution profile is the protocol's, by digest")
    profile = protocol.profile(trace.profile_id)
    for attempt in trace.attempts:
        _check_attempt(trace, attempt, profile, protocol)
    _check_signal(trace, protocol)
    if trace.split != "online" and trace.split != terms.split(trace.group_id):
        raise _refusal(trace, "split", "the declared split is the one that the group's hash gives")


def _check_attempt(
    trace: TraceEnvelope, attempt: Attempt, profile: ExecutionProfile, protocol: ExperimentProtocol
) -> None:
    allocation, resolved = protocol.cost_allocation, attempt.resolved_model
    if isinstance(attempt.cost, ModeledCost) and (
        not isinstance(allocation, CostModeled) or attempt.cost.model_digest != allocation.model_digest
    ):
        raise _refusal(
            trace, "attempts.cost.modelDigest", "a modeled cost is from the protocol's cost model, by digest"
        )
    if (attempt.requested_model.id, attempt.requested_model.revision) != (profile.model.id, profile.model.revision):
        raise _refusal(trace, "attempts.requestedModel", "the requested model is the profile's")
    if resolved is not None and (
        resolved.id != profile.model.id
        or (isinstance(resolved, ReportedModel) and resolved.revision != profile.model.revision)
    ):
        raise _refusal(trace, "attempts.resolvedModel", "the model that answered is the profile's")


def _check_signal(trace: TraceEnvelope, protocol: ExperimentProtocol) -> None:
    signal, definition = trace.route_signal, protocol.route_signal
    if signal is None:
        return
    found = (signal.definition_id, signal.version, signal.calibration_digest)
    if found != (definition.definition_id, definition.version, definition.calibration_digest):
        raise _refusal(trace, "routeSignal", "definition, version and calibration are the protocol's")
    if not definition.minimum <= signal.value <= definition.maximum:
        raise _refusal(trace, "routeSignal.value", "the value lies in the protocol's range")
    if signal.provenance.observed_at > trace.event_time:
        raise _refusal(trace, "routeSignal.provenance.observedAt", "it was observed no later than the first attempt")


def _refusal(trace: TraceEnvelope, field_name: str, rule: str) -> InputError:
    return InputError(
        "the trace does not belong to this protocol",
        where=trace.trace_id,
        field=field_name,
        rule=rule,
        way_out=_WAY_OUT,
    )
