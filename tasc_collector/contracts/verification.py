"""Whether a trace was dispatched and collected under a study's two keys (original project, section 3.2).

The steps, each over the JSON value that was read:

1. Study and protocol digest are the study's.
2. Dispatch: the intent names the dispatch authority, was issued in ``[createdAt, expiresAt)``, and the signature is
   that key's over every field up to the intent.
3. Collector: the attestation names the collector authority, was made after the last attempt ended and in the same
   interval, and the signature is that key's over the whole envelope.
4. Required capabilities: ``chat-completions`` wants workload mode ``chat`` and, if bound, the route
   ``chatCompletions``; ``streaming`` wants an event-stream identity of a success; ``final-usage`` wants its three
   token counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import (
    ATTESTATION_DOMAIN,
    ATTESTATION_FIELD,
    DISPATCH_DOMAIN,
    DISPATCH_FIELD,
    TraceEnvelope,
    attestation_preimage,
    dispatch_preimage,
)
from tasc_collector.errors import InputError, SignatureError
from tasc_collector.signing import PublicKey, verify

if TYPE_CHECKING:
    from tasc_collector.contracts.protocol import ExperimentProtocol, RequiredCapability

_WAY_OUT: Final = "take the trace out of the input, or name the study it belongs to"


@dataclass(frozen=True, slots=True)
class StudyTerms:
    """What a trace is checked against: a protocol's, or a comparison's, identity, keys, validity and requirements."""

    study_id: str
    protocol_digest: str
    created_at: str
    expires_at: str
    dispatch: AuthorityKey
    collector: AuthorityKey
    required_capabilities: tuple[RequiredCapability, ...] = ()

    @classmethod
    def of_protocol(cls, protocol: Parsed[ExperimentProtocol]) -> Self:
        """The terms of a decision study."""
        record = protocol.record
        return cls(
            record.study_id,
            record.digest_of(protocol.value),
            record.created_at,
            record.expires_at,
            record.dispatch_authority,
            record.collector_authority,
            record.required_capabilities,
        )


def verify_dispatch(
    value: dict[str, Any], terms: StudyTerms, *, where: str | None = None
) -> None:  # Any: a JSON object
    """Steps 1 and 2.

    Args:
        value: the envelope as it was read, or the part of it that exists at dispatch.
        terms: the study's terms.
        where: file or record, for the message.

    Raises:
        InputError: another study, protocol, key or time.
        SignatureError: the signature is not the dispatch key's.
    """
    intent = value["dispatchIntent"]
    _same(value["studyId"], terms.study_id, "studyId", "must be the study's", where)
    _same(
        value["protocolDigest"], terms.protocol_digest, "protocolDigest", "must be that of the study's protocol", where
    )
    _authority(intent, terms.dispatch, "dispatchIntent", where)
    _within(intent["issuedAt"], terms, "dispatchIntent.issuedAt", where)
    key = PublicKey.from_spki(terms.dispatch.public_key_spki)
    try:
        verify(key, DISPATCH_DOMAIN, DISPATCH_FIELD, dispatch_preimage(value), intent["signature"])
    except SignatureError as error:
        raise _signature_error(error, "dispatchIntent.signature", where) from None


def verify_collector(trace: Parsed[TraceEnvelope], terms: StudyTerms, *, where: str | None = None) -> None:
    """Steps 3 and 4.

    Raises:
        InputError: another key or time, or a required capability is not shown.
        SignatureError: the signature is not the collector key's.
    """
    attestation = trace.value["collectorAttestation"]
    _authority(attestation, terms.collector, "collectorAttestation", where)
    _within(attestation["collectedAt"], terms, "collectorAttestation.collectedAt", where)
    if attestation["collectedAt"] < trace.record.completed_at:
        raise _refusal("collectorAttestation.collectedAt", "must not be before the last attempt's completion", where)
    key = PublicKey.from_spki(terms.collector.public_key_spki)
    try:
        verify(key, ATTESTATION_DOMAIN, ATTESTATION_FIELD, attestation_preimage(trace.value), attestation["signature"])
    except SignatureError as error:
        raise _signature_error(error, "collectorAttestation.signature", where) from None
    _capabilities(trace.record, terms, where)


def verify_trace(trace: Parsed[TraceEnvelope], terms: StudyTerms, *, where: str | None = None) -> None:
    """All four steps; raises as ``verify_dispatch`` and ``verify_collector`` do."""
    verify_dispatch(trace.value, terms, where=where)
    verify_collector(trace, terms, where=where)


def _capabilities(trace: TraceEnvelope, terms: StudyTerms, where: str | None) -> None:
    last, binding = trace.attempts[-1], trace.collection_binding
    usage = last.token_usage
    success = last.status == "success"
    shown: dict[RequiredCapability, tuple[bool, str]] = {
        "chat-completions": (
            trace.workload.mode == "chat" and (binding is None or binding.route == "chatCompletions"),
            "workload.mode",
        ),
        "streaming": (not success or last.payloads.event_stream is not None, "attempts.payloads.eventStream"),
        "final-usage": (not success or None not in (usage.input, usage.output, usage.total), "attempts.tokenUsage"),
    }
    for capability in terms.required_capabilities:
        holds, field = shown[capability]
        if not holds:
            raise _refusal(field, f"the study requires {capability}", where)


def _authority(claim: dict[str, Any], key: AuthorityKey, field: str, where: str | None) -> None:  # Any: a JSON object
    _same(claim["authorityKeyId"], key.key_id, f"{field}.authorityKeyId", "must be the study's authority", where)


def _within(instant: str, terms: StudyTerms, field: str, where: str | None) -> None:
    if not terms.created_at <= instant < terms.expires_at:
        raise _refusal(field, "must lie in the study's validity, from createdAt to before expiresAt", where)


def _same(found: str, expected: str, field: str, rule: str, where: str | None) -> None:
    if found != expected:
        raise _refusal(field, rule, where)


def _refusal(field: str, rule: str, where: str | None) -> InputError:
    return InputError("the trace does not belong to this study", where=where, field=field, rule=rule, way_out=_WAY_OUT)


def _signature_error(error: SignatureError, field: str, where: str | None) -> SignatureError:
    return SignatureError(error.what, where=where, field=field, way_out=error.way_out)
