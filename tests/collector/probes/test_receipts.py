"""What a receipt says, what it does not, and which receipt admits a route."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contracts.collection import PlanTarget
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.contracts.probe import CapabilityProbeEvidence
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.errors import InputError, SignatureError
from tasc_collector.probes.canaries import CANARIES
from tasc_collector.probes.judgement import Finding
from tasc_collector.probes.observations import KIND_OF
from tasc_collector.probes.receipts import PROBED, Issuer, admit, make_receipt
from tasc_collector.runtimes.profile import Capability, Effect, Framing, Route
from tasc_collector.signing import SigningKey
from tasc_collector.wire.records import read_record
from tests.support.probing import FAST, ISSUER, KEY, place, run_probe, subject

DIGEST = "sha256:" + "5f1c" * 16
CANARY = Effect.INFERENCE_CANARY


def chat_receipt(server: ContractServer, framing: Framing = Framing.SSE) -> CapabilityReceipt:
    return run_probe(place(server, Route.CHAT_COMPLETIONS, framing), Capability.CHAT_COMPLETIONS, CANARY)


def target_of(instance: RuntimeInstance, **changes: Any) -> PlanTarget:
    fields: dict[str, Any] = {
        "profile_id": "champion-vllm",
        "role": "champion",
        "endpoint_alias": "main",
        "endpoint_binding_digest": instance.endpoint_descriptor_digest,
        "execution_profile_digest": "sha256:" + "e" * 64,
        "transport": "loopback-http",
        "runtime": instance.runtime,
        "wire_base": None,
        "backend": instance.backend,
        "model": instance.model,
        "configuration_digest": instance.configuration_digest,
        "route": "chatCompletions",
        "framing": "sse",
        "authentication_reference": None,
        "http_limits": HttpLimits(),
        "capability_receipt_digests": (),
        "lane_width": 1,
    }
    return PlanTarget(**{**fields, **changes})


def test_every_capability_of_the_matrix_has_exactly_one_probe() -> None:
    assert len(PROBED) == len(set(PROBED)) == 17
    assert set(PROBED) == set(Capability)
    assert not set(KIND_OF) & set(CANARIES)


def test_a_receipt_is_signed_and_scoped_to_one_server() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        receipt = chat_receipt(server)
        instance = subject(server).instance
    assert receipt.endpoint_binding_digest == instance.endpoint_descriptor_digest
    assert (receipt.runtime, receipt.model) == (instance.runtime, instance.model)
    assert (receipt.route, receipt.framing, receipt.calls) == ("chatCompletions", "sse", 1)
    parsed = read_record(CapabilityReceipt, receipt.canonical())
    CapabilityReceipt.check_signature(parsed, KEY.public_key)
    with pytest.raises(SignatureError):
        CapabilityReceipt.check_signature(parsed, SigningKey.generate().public_key)


def test_a_changed_receipt_is_no_longer_signed() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        receipt = chat_receipt(server)
    altered = receipt.canonical().replace(b'"framing":"sse"', b'"framing":"json"')
    parsed = read_record(CapabilityReceipt, altered)
    assert parsed.record.digest != receipt.digest
    with pytest.raises(SignatureError):
        CapabilityReceipt.check_signature(parsed, KEY.public_key)


def test_it_wraps_the_originals_evidence_for_the_originals_capabilities_only() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        chat = chat_receipt(server)
        streaming = run_probe(place(server, Route.CHAT_COMPLETIONS), Capability.STREAMING, CANARY)
    assert chat.evidence is not None
    evidence = CapabilityProbeEvidence.from_value(chat.evidence).record
    assert (evidence.capability, evidence.state, evidence.probed_at) == (
        "chatCompletions",
        "supported",
        chat.observed_at,
    )
    assert streaming.evidence is None


def test_a_field_is_provider_reported_only_where_the_answer_named_it() -> None:
    with ContractServer("llama.cpp", behaviour=FAST) as server:
        seen = chat_receipt(server).identity_verification
    assert (seen.runtime_build.basis, seen.runtime_build.observed) == ("operator-policy", None)
    assert (seen.model_id.basis, seen.model_revision.basis) == ("provider-reported", "unverified")
    assert (seen.backend.basis, seen.configuration_digest.basis) == ("unverified", "unverified")
    with ContractServer("ollama") as server:
        listed = run_probe(place(server, revision=DIGEST), Capability.MODEL_DISCOVERY, Effect.NON_MUTATING)
    assert listed.identity_verification.model_revision.observed == DIGEST
    assert listed.identity_verification.runtime_build.basis == "operator-policy"


def test_it_names_what_it_did_not_prove() -> None:
    with ContractServer("lm-studio") as server:
        receipt = run_probe(place(server), Capability.MODEL_DISCOVERY, Effect.NON_MUTATING)
    assert receipt.not_proved == (
        "backend", "configuration-digest", "inference", "model-loaded", "model-revision", "runtime-build",
    )  # fmt: skip
    assert (receipt.calls, receipt.route, receipt.framing) == (0, None, None)


def test_a_failed_probe_is_a_receipt_too() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="not-found")) as server:
        receipt = chat_receipt(server)
    assert (receipt.state, receipt.reason, receipt.status) == ("unsupported", "route-absent", 404)
    with ContractServer("vllm", behaviour=Behaviour(fault="refused")) as server:
        receipt = chat_receipt(server)
    assert (receipt.state, receipt.reason, receipt.dispatch_state) == ("unknown", "connect-refused", "not_sent")


def test_no_receipt_holds_an_answer_or_an_origin() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=6, answer_prefix="CANARY-TEXT")) as server:
        text = run_probe(place(server, Route.CHAT_COMPLETIONS), Capability.STREAMING, CANARY).canonical().decode()
        assert "CANARY-TEXT" not in text
        assert "127.0.0.1" not in text
        assert "Count upwards" not in text


@pytest.mark.parametrize("hours", [0, -1, 169])
def test_a_receipt_holds_for_at_most_a_week(hours: float) -> None:
    with pytest.raises(InputError, match="cannot be valid for so long"):
        Issuer(KEY, "collector-test", hours)


def test_a_receipt_admits_exactly_its_own_target() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        receipt, instance = chat_receipt(server), subject(server).instance
    at = receipt.observed_at
    admission = admit(target_of(instance), [receipt], at)
    assert admission is not None
    assert (admission.instance, admission.route, admission.framing) == (instance, Route.CHAT_COMPLETIONS, Framing.SSE)
    assert admission.receipt_digests == (receipt.digest,)
    others = {
        "endpoint_binding_digest": "sha256:" + "0" * 64,
        "runtime": instance.runtime.model_copy(update={"build": "0.33.0"}),
        "backend": instance.backend.model_copy(update={"build": "2"}),
        "model": instance.model.model_copy(update={"revision": "r2"}),
        "configuration_digest": "sha256:" + "0" * 64,
        "route": "completions",
        "framing": "json",
    }
    for field, value in others.items():
        assert admit(target_of(instance, **{field: value}), [receipt], at) is None, field


def test_an_expired_or_future_receipt_admits_nothing() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        receipt, instance = chat_receipt(server), subject(server).instance
    assert admit(target_of(instance), [receipt], receipt.valid_until) is None
    assert admit(target_of(instance), [receipt], "2020-01-01T00:00:00.000Z") is None


def test_only_a_supported_canary_receipt_of_the_route_itself_admits() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        found = subject(server)
        streaming = run_probe(place(server, Route.CHAT_COMPLETIONS), Capability.STREAMING, CANARY)
        listing = run_probe(place(server), Capability.MODEL_DISCOVERY, Effect.NON_MUTATING)
    with ContractServer("vllm", behaviour=Behaviour(fault="not-found")) as server:
        absent = chat_receipt(server)
    assert admit(target_of(found.instance), [streaming, listing, absent], streaming.observed_at) is None


def test_of_several_receipts_the_one_that_holds_longest_admits() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        found = subject(server)
        short = chat_receipt(server)
    longer = make_receipt(
        found, Capability.CHAT_COMPLETIONS, CANARY, Finding("supported", "observed"),
        Issuer(KEY, "collector-test", 48.0), observed_at=short.observed_at, route=Route.CHAT_COMPLETIONS, framing=Framing.SSE, calls=1,
    )  # fmt: skip
    admission = admit(target_of(found.instance), [short, longer], short.observed_at)
    assert admission is not None
    assert admission.receipt_digests == (longer.digest,)
    assert ISSUER.valid_hours == 24.0
