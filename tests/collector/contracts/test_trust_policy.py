"""Trust policy, endpoint binding and orchestration descriptor."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tasc_collector.canonical import digest
from tasc_collector.contracts.descriptor import EndpointDescriptor, endpoint_binding
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.errors import InputError

Value = dict[str, Any]
D = "sha256:" + "1" * 64
ENDPOINT: Value = {
    "alias": "server-a",
    "origin": "https://a.example.com:8443",
    "runtime": {"profileId": "vllm", "build": "0.26.0"},
    "routes": [
        {"method": "POST", "pathPrefix": "/serve/v1/completions", "authenticationReferences": ["token-a"]},
        {"method": "GET", "pathPrefix": "/serve/health", "authenticationReferences": []},
    ],
}
POLICY: Value = {
    "schemaVersion": "tasc-collector-trust-policy-v1",
    "localMode": "disabled",
    "maximumRequestDurationMs": 10_000,
    "endpoints": [ENDPOINT, {**ENDPOINT, "alias": "server-0", "origin": "https://203.0.113.7"}],
    "secretReferences": ["token-b", "token-a"],
    "evaluatorKeyIds": [],
    "storeRoots": ["/srv/tasc"],
}
DESCRIPTOR: Value = {
    "schemaVersion": "tasc-endpoint-descriptor-v1",
    "origin": ENDPOINT["origin"],
    "basePath": "/serve",
    "runtime": ENDPOINT["runtime"],
    "orchestration": {
        "kind": "ray-serve",
        "build": "2.40.0",
        "configurationDigest": D,
        "locator": {"applicationName": "app", "deploymentName": "Llm_1"},
    },
    "authority": {"deployment": "none", "network": "unverified"},
}


def _policy(**changes: Any) -> Value:
    return {**copy.deepcopy(POLICY), **changes}


def _origin(origin: str, mode: str = "disabled") -> Value:
    return _policy(localMode=mode, endpoints=[{**ENDPOINT, "origin": origin}])


def test_order_in_the_file_does_not_change_the_digest() -> None:
    parsed = CollectorTrustPolicy.from_value(POLICY)
    assert [endpoint.alias for endpoint in parsed.record.endpoints] == ["server-0", "server-a"]
    assert [route.method for route in parsed.record.endpoints[0].routes] == ["GET", "POST"]
    assert parsed.record.secret_references == ("token-a", "token-b")
    in_order = parsed.record.to_json()
    assert in_order != POLICY
    assert CollectorTrustPolicy.digest_of(POLICY) == CollectorTrustPolicy.digest_of(in_order) == parsed.record.digest


def test_a_binding_covers_the_endpoint_and_nothing_else() -> None:
    one = CollectorTrustPolicy.from_value(POLICY).record
    other = CollectorTrustPolicy.from_value(_policy(maximumRequestDurationMs=5, storeRoots=[])).record
    endpoint = one.endpoint("server-a")
    assert endpoint is not None
    assert endpoint.binding_digest() == digest(
        "tasc/collector-endpoint-binding/v1",
        {
            "schemaVersion": "tasc-collector-endpoint-binding-v1",
            "endpoint": {**ENDPOINT, "routes": ENDPOINT["routes"][::-1]},
            "orchestrationDescriptorDigest": None,
        },
    )
    assert endpoint == other.endpoint("server-a")
    assert one.endpoint("server-b") is None


@pytest.mark.parametrize(
    ("origin", "mode"),
    [
        ("https://a.example.com", "disabled"),
        ("https://a.example.com:8443", "disabled"),
        ("https://203.0.113.7", "disabled"),
        ("https://[2001:db8::1]:444", "disabled"),
        ("http://127.0.0.1", "literal-loopback-only"),
        ("http://127.0.0.1:8000", "literal-loopback-only"),
        ("http://[::1]:8000", "literal-loopback-only"),
    ],
)
def test_a_canonical_origin_is_read(origin: str, mode: str) -> None:
    endpoint = CollectorTrustPolicy.from_value(_origin(origin, mode)).record.endpoints[0]
    assert endpoint.origin == origin
    assert endpoint.is_loopback == origin.startswith("http:")


@pytest.mark.parametrize(
    "origin",
    [
        "https://a.example.com/",
        "https://A.example.com",
        "HTTPS://a.example.com",
        "https://a.example.com:443",
        "https://a.example.com:0",
        "https://a.example.com:65536",
        "https://a.example.com:08443",
        "https://a.example.com.",
        "https://localhost",
        "https://-a.example.com",
        "https://user@a.example.com",
        "https://a.example.com?x",
        "https://a.example.com#x",
        "https://2130706433",
        "https://0x7f.0.0.1",
        "https://203.0.113.07",
        "https://203.0.113",
        "https://[2001:db8:0::1]",
        "https://[::1%25lo]",
        "https://127.0.0.1",
        "https://[::1]",
        "http://a.example.com",
        "http://localhost:8000",
        "http://127.0.0.2",
        "http://0.0.0.0",
        "http://127.0.0.1:80",
        "ftp://a.example.com",
        "https://bücher.example.com",
        "https://a.example.com\n",
        "",
    ],
)
def test_another_spelling_of_an_origin_is_refused(origin: str) -> None:
    with pytest.raises(InputError) as caught:
        CollectorTrustPolicy.from_value(_origin(origin, "literal-loopback-only"))
    assert caught.value.field == "endpoints.0.origin"
    assert "example" not in str(caught.value)


def test_plain_http_needs_local_mode() -> None:
    with pytest.raises(InputError, match="literal-loopback-only"):
        CollectorTrustPolicy.from_value(_origin("http://127.0.0.1:8000"))


@pytest.mark.parametrize("path", ["v1", "/v1/", "//", "/a//b", "/a/../b", "/.", "/a%2e", "/a?b", "/a b", ""])
def test_a_path_prefix_is_plain_segments(path: str) -> None:
    routes = [{"method": "GET", "pathPrefix": path, "authenticationReferences": []}]
    with pytest.raises(InputError) as caught:
        CollectorTrustPolicy.from_value(_policy(endpoints=[{**ENDPOINT, "routes": routes}]))
    assert caught.value.field == "endpoints.0.routes.0.pathPrefix"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (_policy(endpoints=[ENDPOINT, ENDPOINT]), "alias may stand once"),
        (_policy(endpoints=[{**ENDPOINT, "routes": ENDPOINT["routes"][:1] * 2}]), "may stand once"),
        (_policy(endpoints=[]), "at least 1"),
        (_policy(secretReferences=["token-b"]), "secretReferences"),
        (_policy(secretReferences=["token-a", "token-a"]), "must not repeat"),
        (_policy(storeRoots=["relative"]), "absolute"),
        (_policy(storeRoots=["/"]), "at least 2"),
        (_policy(storeRoots=["/a/../b"]), "normalized"),
        (_policy(maximumRequestDurationMs=300_001), "less than or equal"),
        (_policy(localMode="everything"), "disabled"),
        (_policy(endpoints=[{**ENDPOINT, "alias": "a..b"}]), "'..'"),
        (_policy(endpoints=[{**ENDPOINT, "runtime": {"profileId": "vllm", "build": "0..1"}}]), "'..'"),
    ],
)
def test_a_policy_keeps_its_rules(value: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        CollectorTrustPolicy.from_value(value)


def test_a_descriptor_is_bound_to_its_endpoint() -> None:
    endpoint = CollectorTrustPolicy.from_value(POLICY).record.endpoint("server-a")
    descriptor = EndpointDescriptor.from_value(DESCRIPTOR).record
    assert endpoint is not None
    assert descriptor.to_json() == DESCRIPTOR
    assert endpoint_binding(endpoint) == endpoint.binding_digest()
    assert (
        endpoint_binding(endpoint, descriptor)
        == endpoint.binding_digest(descriptor.digest)
        != endpoint_binding(endpoint)
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"origin": "https://b.example.com"}, "origin"),
        ({"runtime": {"profileId": "vllm", "build": "0.26.1"}}, "runtime"),
        ({"basePath": "/serv"}, "basePath"),
        ({"basePath": "/serve/v1"}, "basePath"),
    ],
)
def test_a_descriptor_of_another_server_is_refused(change: Value, field: str) -> None:
    endpoint = CollectorTrustPolicy.from_value(POLICY).record.endpoint("server-a")
    assert endpoint is not None
    with pytest.raises(InputError) as caught:
        endpoint_binding(endpoint, EndpointDescriptor.from_value({**DESCRIPTOR, **change}).record)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("kind", "locator"),
    [
        ("skypilot", {"serviceName": "s"}),
        ("skyserve", {"clusterName": "s"}),
        ("ray-serve", {"applicationName": "a"}),
        ("kubernetes", {}),
    ],
)
def test_a_locator_is_that_of_its_orchestrator(kind: str, locator: Value) -> None:
    orchestration = {**DESCRIPTOR["orchestration"], "kind": kind, "locator": locator}
    with pytest.raises(InputError):
        EndpointDescriptor.from_value({**DESCRIPTOR, "orchestration": orchestration})


def test_a_descriptor_may_name_an_authentication_reference() -> None:
    orchestration = {**DESCRIPTOR["orchestration"], "authenticationReference": "token-a"}
    assert EndpointDescriptor.from_value({**DESCRIPTOR, "orchestration": orchestration}).record.to_json()[
        "orchestration"
    ] == orchestration  # fmt: skip
