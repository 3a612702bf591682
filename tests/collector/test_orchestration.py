"""Descriptors of Ray Serve, SkyPilot and SkyServe: locators, refused shapes, fingerprints, binding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.trust_policy import TrustedEndpoint, TrustedRoute
from tasc_collector.errors import InputError
from tasc_collector.orchestration import OrchestratedEndpoint, bind, ray_serve, read_descriptor, skypilot, skyserve
from tasc_collector.runtimes.registry import get_profile

VLLM = RuntimeBuild(profile_id="vllm", build="0.26.0")
PLACE = OrchestratedEndpoint("https://llm.example.com", "/v1", VLLM, "2.40.0", "sha256:" + "a" * 64)


def endpoint(*routes: tuple[str, str], origin: str = "https://llm.example.com") -> TrustedEndpoint:
    return TrustedEndpoint(
        alias="main", origin=origin, runtime=VLLM,
        routes=tuple(TrustedRoute(method=m, path_prefix=p, authentication_references=()) for m, p in routes),
    )  # fmt: skip


def test_each_mode_has_its_own_locator() -> None:
    assert ray_serve(PLACE, application_name="app", deployment_name="dep").orchestration.locator.to_json() == {
        "applicationName": "app", "deploymentName": "dep",
    }  # fmt: skip
    assert skypilot(PLACE, cluster_name="c1").orchestration.locator.to_json() == {"clusterName": "c1"}
    assert skyserve(PLACE, service_name="s1").orchestration.locator.to_json() == {"serviceName": "s1"}


def test_a_descriptor_grants_nothing() -> None:
    authority = skypilot(PLACE, cluster_name="c1").authority
    assert (authority.deployment, authority.network) == ("none", "unverified")


@pytest.mark.parametrize(
    ("kind", "locator", "owner"),
    [("skypilot", {"serviceName": "s"}, "skyserve"), ("skyserve", {"clusterName": "c"}, "skypilot")],
)
def test_the_old_draft_shape_is_refused_and_not_reinterpreted(kind: str, locator: dict[str, Any], owner: str) -> None:
    value = skypilot(PLACE, cluster_name="c1").to_json()
    value["orchestration"]["kind"], value["orchestration"]["locator"] = kind, locator
    with pytest.raises(InputError, match=f"set kind to {owner}"):
        read_descriptor(value, where="descriptor.json")


def test_a_locator_with_more_than_its_fields_is_refused() -> None:
    value = skypilot(PLACE, cluster_name="c1").to_json()
    value["orchestration"]["locator"] = {"clusterName": "c1", "serviceName": "s1"}
    with pytest.raises(InputError):
        read_descriptor(value, where="descriptor.json")


def test_a_descriptor_reads_back_as_it_was_written() -> None:
    made = ray_serve(replace(PLACE, authentication_reference="gateway"), application_name="a", deployment_name="b")
    assert read_descriptor(made.to_json(), where="descriptor.json").record == made


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "x" * 129])
def test_a_name_that_breaks_its_rule_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        skyserve(PLACE, service_name=name)


def test_the_fingerprint_covers_origin_base_path_runtime_and_locator() -> None:
    made = skypilot(PLACE, cluster_name="c1")
    others = [
        skypilot(replace(PLACE, origin="https://other.example.com"), cluster_name="c1"),
        skypilot(replace(PLACE, route_prefix="/"), cluster_name="c1"),
        skypilot(replace(PLACE, runtime=RuntimeBuild(profile_id="vllm", build="0.27.0")), cluster_name="c1"),
        skypilot(PLACE, cluster_name="c2"),
        skypilot(replace(PLACE, configuration_digest="sha256:" + "b" * 64), cluster_name="c1"),
    ]
    assert len({made.digest, *(other.digest for other in others)}) == 6


def test_binding_depends_on_the_descriptor() -> None:
    trusted, profile = endpoint(("POST", "/v1/chat/completions")), get_profile("vllm", "0.26.0")
    one = bind(trusted, skypilot(PLACE, cluster_name="c1"), profile)
    two = bind(trusted, skypilot(PLACE, cluster_name="c2"), profile)
    assert len({one, two, trusted.binding_digest()}) == 3


@pytest.mark.parametrize(
    "routes",
    [
        (("POST", "/v2/chat/completions"),),
        (("POST", "/v1/embeddings"),),
        (("GET", "/v1/chat/completions"),),
        (("GET", "/health"),),
    ],
)
def test_a_route_outside_the_base_path_or_the_profile_is_not_bound(routes: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(InputError):
        bind(endpoint(*routes), skypilot(PLACE, cluster_name="c1"), get_profile("vllm", "0.26.0"))


def test_another_origin_is_not_bound() -> None:
    moved = endpoint(("POST", "/v1/completions"), origin="https://elsewhere.example.com")
    with pytest.raises(InputError, match="origin must be the endpoint's"):
        bind(moved, skypilot(PLACE, cluster_name="c1"), get_profile("vllm", "0.26.0"))
