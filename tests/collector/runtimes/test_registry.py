"""Builds are keys: the pins, an operator's own build, and the refusal of any other."""

from __future__ import annotations

import pytest

from tasc_collector.contracts.build_profile import BuildProfile
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Capability, CapabilityState, Evidence, Route
from tasc_collector.runtimes.registry import get_profile, operator_profile

VALUE = {
    "version": "tasc-build-profile-v1",
    "runtime": "vllm",
    "build": "0.33.0",
    "wireBase": {"runtime": "vllm", "build": "0.26.0"},
    "declaredBy": "operator-1",
    "createdAt": "2026-11-01T09:30:00.000Z",
}


def record(**changes):
    return BuildProfile.from_value({**VALUE, **changes}).record


def test_an_operators_build_borrows_the_wire_and_claims_nothing():
    profile = get_profile("vllm", "0.33.0", [record()])
    base = get_profile("vllm", "0.26.0")
    assert (profile.build, profile.wire_base) == ("0.33.0", ("vllm", "0.26.0"))
    assert profile.routes is base.routes
    assert {profile.state(capability) for capability in Capability} == {CapabilityState.UNKNOWN}
    assert {claim.evidence for claim in profile.capabilities.values()} == {Evidence.OPERATOR}
    assert base.state(Capability.COMPLETIONS) is CapabilityState.SUPPORTED
    assert profile.routes[Route.COMPLETIONS].flags.fingerprint == "vllm-{build}-"


def test_a_build_that_nobody_registered_is_refused_with_the_known_ones():
    with pytest.raises(InputError) as refused:
        get_profile("vllm", "0.33.0")
    assert str(refused.value) == (
        "build: vllm is registered at 0.26.0 only -> use a registered build, or add yours:"
        " tasc runtimes try vllm BUILD --endpoint ALIAS"
    )
    with pytest.raises(InputError, match=r"choose one of llama\.cpp, lm-studio, mlx-lm, ollama, sglang"):
        get_profile("vllmm", "0.26.0")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"wireBase": {"runtime": "vllm", "build": "0.25.0"}}, "wireBase"),
        ({"wireBase": {"runtime": "sglang", "build": "0.5.16"}}, "wireBase.runtime"),
        ({"build": "0.26.0"}, "build"),
    ],
)
def test_a_build_file_needs_a_registered_base_of_its_own_runtime(changes, field):
    with pytest.raises(InputError) as refused:
        operator_profile(record(**changes))
    assert refused.value.field == field
    assert refused.value.way_out


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"runtime": "transformers"}, "runtime"),
        ({"extra": 1}, "extra"),
        ({"build": "0.33.0/../x"}, "build"),
        ({"createdAt": "2026-11-01"}, "createdAt"),
        ({"declaredBy": ""}, "declaredBy"),
    ],
)
def test_a_build_file_is_strict(changes, field):
    with pytest.raises(InputError) as refused:
        record(**changes)
    assert refused.value.field == field


def test_the_record_has_a_stable_digest():
    assert record().digest == record().digest
    assert record().digest != record(build="0.34.0").digest
    assert record().to_json() == VALUE
