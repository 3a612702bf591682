"""Authorization: one request shape, longest prefix, exact authentication, and nothing that loosens a parent."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.errors import InputError, NotAuthorized
from tasc_collector.transport.origins import parse_origin, request_path_ok, route_prefix_ok
from tasc_collector.transport.policy import authorize, require_narrower
from tests.support.calls import authorized, policy_for

ORIGIN = "https://api.example.com"


def route(method: str, prefix: str, *references: str) -> dict[str, Any]:
    return {"method": method, "pathPrefix": prefix, "authenticationReferences": list(references)}


def policy(*routes: dict[str, Any], **changes: Any) -> CollectorTrustPolicy:
    references = sorted({name for item in routes for name in item["authenticationReferences"]})
    return policy_for(ORIGIN, endpoint={"routes": list(routes)}, secretReferences=references, **changes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"alias": "other"}, "alias"),
        ({"runtime": "sglang"}, "runtime"),
        ({"build": "0.26.1"}, "runtime"),
        ({"method": "GET"}, "path"),
        ({"path": "/v2"}, "path"),
        ({"path": "/v1evil"}, "path"),
        ({"path": "/v1/../admin"}, "path"),
        ({"path": "/v1/%2e%2e"}, "path"),
        ({"path": "/v1?x=1"}, "path"),
        ({"path": "/v1/a b"}, "path"),
        ({"path": "v1"}, "path"),
        ({"path": "/v1//x"}, "path"),
        ({"authentication_reference": "key"}, "authenticationReference"),
        ({"duration_ms": 0}, "deadlineMs"),
        ({"duration_ms": 60_001}, "deadlineMs"),
    ],
)
def test_a_request_that_is_not_exactly_allowed_is_refused_with_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(NotAuthorized) as refusal:
        authorized(ORIGIN, policy=policy(route("POST", "/v1")), **changes)
    assert refusal.value.field == field
    assert refusal.value.way_out


def test_the_longest_prefix_of_the_method_decides_about_authentication() -> None:
    found = policy(
        route("POST", "/"),
        route("POST", "/v1", "key-a"),
        route("POST", "/v1/completions", "key-b"),
        route("GET", "/v1/completions"),
    )
    assert (
        authorized(
            ORIGIN, policy=found, path="/v1/completions/x", authentication_reference="key-b"
        ).authentication_reference
        == "key-b"
    )
    assert authorized(ORIGIN, policy=found, path="/v1/chat", authentication_reference="key-a").path == "/v1/chat"
    assert authorized(ORIGIN, policy=found, path="/health").authentication_reference is None
    for path, reference in (("/v1/completions", "key-a"), ("/v1/completions", None), ("/health", "key-a")):
        with pytest.raises(NotAuthorized):
            authorized(ORIGIN, policy=found, path=path, authentication_reference=reference)


def test_the_digest_binds_every_part_of_the_shape() -> None:
    found = policy(route("POST", "/v1"))
    first = authorized(ORIGIN, policy=found)
    digests = {
        first.digest,
        authorized(ORIGIN, policy=found, path="/v1/chat").digest,
        authorized(ORIGIN, policy=found, duration_ms=59_999).digest,
        authorized("https://other.example.com", policy=policy_for("https://other.example.com")).digest,
    }
    assert len(digests) == 4
    assert authorized(ORIGIN, policy=found).digest == first.digest


def test_loopback_needs_local_mode_and_a_private_literal_needs_an_extension() -> None:
    value = policy_for("http://127.0.0.1:8000").to_json()
    with pytest.raises(InputError):
        CollectorTrustPolicy.from_value({**value, "localMode": "disabled"})
    private = policy_for("https://10.20.0.5")
    with pytest.raises(InputError) as refusal:
        authorized("https://10.20.0.5", policy=private)
    assert "10.20" not in str(refusal.value)
    assert authorized(
        "https://10.20.0.5", policy=private, extension=extension(), now_ms=1_800_000_000_000
    ).private_networks


def extension(**changes: Any) -> NetworkExtension:
    networks = {"cidrs": ["10.20.0.0/16"], "caFile": None, "spkiPin": None, **changes.pop("networks", {})}
    return NetworkExtension.from_value(
        {
            "version": "tasc-network-extension-v1",
            "studyId": "study-1",
            "endpoints": [{"alias": "main", "privateNetworks": networks, "clientCertificate": None}],
            "issuedAt": "2026-01-01T00:00:00.000Z",
            "expiresAt": "2036-01-01T00:00:00.000Z",
            **changes,
        }
    ).record


@pytest.mark.parametrize("now_ms", [None, 0, 4_000_000_000_000])
def test_an_extension_counts_only_while_it_is_valid(now_ms: int | None) -> None:
    with pytest.raises(NotAuthorized) as refusal:
        authorized(ORIGIN, extension=extension(), now_ms=now_ms)
    assert refusal.value.field == "networkExtension"


@pytest.mark.parametrize(
    "networks",
    [
        {"cidrs": ["127.0.0.0/8"]},
        {"cidrs": ["169.254.0.0/16"]},
        {"cidrs": ["0.0.0.0/0"]},
        {"cidrs": ["10.0.0.1/8"]},
        {"cidrs": ["8.8.8.0/24"]},
        {"cidrs": []},
        {"cidrs": ["10.2.0.0/16", "10.1.0.0/16"]},
        {"cidrs": ["fe80::/10"]},
        {"cidrs": ["100.100.100.200/32"]},
        {"cidrs": ["fd00:ec2::/64"]},
        {"caFile": {"path": "relative.pem", "digest": "sha256:" + "a" * 64}},
        {"caFile": {"path": "/ca.pem", "digest": "sha256:" + "a" * 64}, "spkiPin": "sha256:" + "b" * 64},
    ],
)
def test_an_extension_opens_private_blocks_only(networks: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        extension(networks=networks)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"localMode": "literal-loopback-only"}, "localMode"),
        ({"maximumRequestDurationMs": 60_001}, "maximumRequestDurationMs"),
        ({"evaluatorKeyIds": ["new"]}, "evaluatorKeyIds"),
        ({"storeRoots": ["/new"]}, "storeRoots"),
        ({"secretReferences": ["key-a", "new"]}, "secretReferences"),
    ],
)
def test_a_child_policy_that_loosens_a_list_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    parent = policy(route("POST", "/v1", "key-a"), localMode="disabled").to_json()
    child = CollectorTrustPolicy.from_value({**parent, **change}).record
    with pytest.raises(NotAuthorized) as refusal:
        require_narrower(CollectorTrustPolicy.from_value(parent).record, child)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("routes", "good"),
    [
        ([route("POST", "/v1/completions", "key-a")], True),
        ([route("POST", "/v1", "key-a")], True),
        ([route("POST", "/v1/completions")], False),
        ([route("POST", "/", "key-a")], False),
        ([route("GET", "/v1", "key-a")], False),
    ],
)
def test_a_child_route_lies_inside_a_parent_route_and_keeps_its_authentication(
    routes: list[dict[str, Any]], good: bool
) -> None:
    parent = policy(route("POST", "/v1", "key-a", "key-b"))
    child = policy_for(ORIGIN, endpoint={"routes": routes}, secretReferences=["key-a"])
    if good:
        require_narrower(parent, child)
    else:
        with pytest.raises(NotAuthorized):
            require_narrower(parent, child)


@pytest.mark.parametrize(
    ("routes", "field"),
    [
        ([route("POST", "/")], "endpoints.0.routes.0.authenticationReferences"),
        ([route("GET", "/"), route("POST", "/")], "endpoints.0.routes.1.authenticationReferences"),
        ([route("POST", "/"), route("POST", "/v1", "key-a")], "endpoints.0.routes.1.authenticationReferences"),
        ([route("POST", "/"), route("POST", "/v1", "key-a"), route("POST", "/v1/health")], None),
        ([route("POST", "/v1", "key-a"), route("POST", "/v1/health")], None),
        ([route("POST", "/v1/chat", "key-a")], None),
    ],
)
def test_a_child_cannot_leave_out_a_route_that_decides_otherwise(
    routes: list[dict[str, Any]], field: str | None
) -> None:
    """Where the child lists no route of its own, a shorter one of it decides: without the secret, or with it where the
    parent allows none.
    """
    every = [route("POST", "/"), route("POST", "/v1", "key-a"), route("POST", "/v1/health"), route("GET", "/")]
    parent = policy_for(ORIGIN, endpoint={"routes": every}, secretReferences=["key-a"])
    child = policy_for(ORIGIN, endpoint={"routes": routes}, secretReferences=["key-a"])
    if field is None:
        require_narrower(parent, child)
    else:
        with pytest.raises(NotAuthorized) as refusal:
            require_narrower(parent, child)
        assert refusal.value.field == field


def test_a_child_endpoint_cannot_move() -> None:
    with pytest.raises(NotAuthorized) as refusal:
        require_narrower(policy_for(ORIGIN), policy_for("https://other.example.com"))
    assert refusal.value.field == "endpoints.0"


@pytest.mark.parametrize(
    ("path", "good"),
    [("/", True), ("/v1", True), ("/v1/", False), ("/a..b", True), ("/..", False), ("", False), ("/a%b", False)],
)
def test_route_prefixes(path: str, good: bool) -> None:
    assert route_prefix_ok(path) is good


def test_a_request_path_may_end_with_a_slash() -> None:
    assert request_path_ok("/v1/")
    assert not request_path_ok("/v1//")


def test_an_origin_shows_itself_only_on_request() -> None:
    origin = parse_origin("https://canary.example.com:8443")
    assert "canary" not in repr(origin) + str(origin)
    assert (origin.text, origin.authority, origin.port) == (
        "https://canary.example.com:8443",
        "canary.example.com:8443",
        8443,
    )
    assert parse_origin("https://[2606:4700:4700::1111]").authority == "[2606:4700:4700::1111]"


def test_plain_http_to_a_name_names_the_two_ways_out() -> None:
    with pytest.raises(InputError) as refusal:
        parse_origin("http://gpu-1.cluster.local:8000")
    assert "TLS in front" in str(refusal.value)
    assert "path differs" in str(refusal.value)


def test_authorize_takes_only_what_it_names() -> None:
    with pytest.raises(TypeError):
        authorize(policy_for(ORIGIN), "main")  # type: ignore[call-arg, misc]  # positional arguments are refused
