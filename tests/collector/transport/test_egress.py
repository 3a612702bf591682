"""What a firewall must let through, and what a check of an endpoint says; neither sends a byte."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tasc_collector.errors import InputError
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.check import CheckStep, EndpointCheck, check_endpoint
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.egress import EgressRule, Reach, egress_of, network_policy, systemd_lines
from tasc_collector.transport.network import SystemNetwork
from tests.support import chains
from tests.support.calls import LabNetwork, policy_for
from tests.support.extensions import extension_for
from tests.support.raw_server import Peer, RawServer

RULES = (
    EgressRule("1.1.1.1", 443, Reach.PUBLIC, ("1.1.1.1/32",), ("main",)),
    EgressRule("127.0.0.1", 8000, Reach.LOOPBACK, ("127.0.0.1/32",), ("main",)),
    EgressRule("api.example.com", 443, Reach.PUBLIC, (), ("main",)),
    EgressRule("gpu.cluster.local", 8443, Reach.PRIVATE, ("10.20.0.0/16",), ("main",)),
)


def test_every_host_port_and_network_of_the_studies_is_listed_once() -> None:
    private = policy_for("https://gpu.cluster.local:8443")
    found = egress_of(
        [
            (policy_for("https://api.example.com"), None),
            (policy_for("https://api.example.com"), None),
            (policy_for("http://127.0.0.1:8000"), None),
            (private, extension_for(cidrs=["10.20.0.0/16"])),
            (policy_for("https://1.1.1.1"), None),
        ]
    )
    assert found == RULES


def test_systemd_lines_deny_everything_else() -> None:
    lines = systemd_lines(RULES, {"api.example.com": ["93.184.216.34"]})
    assert lines[:2] == ["[Service]", "IPAddressDeny=any"]
    assert [line.split()[0] for line in lines[2:]] == [
        "IPAddressAllow=1.1.1.1/32",
        "IPAddressAllow=127.0.0.1/32",
        "IPAddressAllow=93.184.216.34/32",
        "IPAddressAllow=10.20.0.0/16",
    ]
    assert any(line.startswith("# api.example.com:443") for line in systemd_lines(RULES, {}))


def test_a_network_policy_opens_exactly_the_ports_and_never_a_refused_block() -> None:
    spec = json.loads(network_policy(RULES, name="tasc"))["spec"]
    assert spec["policyTypes"] == ["Egress"]
    dns, literal, public, private = spec["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert literal["to"] == [{"ipBlock": {"cidr": "1.1.1.1/32"}}]
    assert public["to"][0]["ipBlock"]["cidr"] == "0.0.0.0/0"
    assert {"10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "168.63.129.16/32"} <= set(
        public["to"][0]["ipBlock"]["except"]
    )
    assert private == {"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 8443}]}


def steps_of(what: EndpointCheck, network: LabNetwork | SystemNetwork) -> dict[str, CheckStep]:
    return {step.name: step for step in asyncio.run(check_endpoint(what, clock=SystemClock(), network=network))}


def test_a_check_walks_to_tls_reports_the_certificate_and_sends_nothing(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(chains.root().pem)
    extension = extension_for(cidrs=["10.20.0.0/16"], ca=ca)
    with RawServer(lambda peer: peer.hold(), tls=chains.good().server_context(tmp_path)) as server:
        what = EndpointCheck(
            policy_for(f"https://{chains.HOST}"),
            "main",
            extension,
            "env:TASC_RUNTIME_AUTH_A",
            SecretStore({"TASC_RUNTIME_AUTH_A": "CANARY"}),
        )
        steps = steps_of(what, LabNetwork(server.port, [["10.20.1.2"]]))
        assert server.requests == []
    assert all(step.good for step in steps.values())
    assert list(steps) == [
        "runtime",
        "route",
        "secret",
        "origin",
        "resolve",
        "address",
        "pin",
        "connect",
        "tls",
        "certificate",
    ]
    assert steps["address"].detail == "10.20.1.2: in the endpoint's private networks"
    assert steps["certificate"].detail.startswith("issued by test root, ends ")
    assert steps["tls"].took_ms is not None
    assert "CANARY" not in repr(steps)


def test_a_check_stops_at_the_first_step_that_is_refused_and_says_why() -> None:
    what = EndpointCheck(
        policy_for("https://api.example.com"), "main", None, "env:TASC_RUNTIME_AUTH_A", SecretStore({})
    )
    network = LabNetwork(9, [["93.184.216.34", "10.0.0.1"]])
    steps = asyncio.run(check_endpoint(what, clock=SystemClock(), network=network))
    assert [(step.name, step.good) for step in steps][-4:] == [
        ("resolve", True),
        ("address", True),
        ("address", False),
        ("pin", False),
    ]
    assert "refused, private-use" in steps[-2].detail
    assert not {step.name: step for step in steps}["secret"].good
    assert network.connects == []


def test_a_check_of_a_loopback_endpoint_connects_and_needs_no_tls() -> None:
    with RawServer(Peer.hold) as server:
        steps = steps_of(EndpointCheck(policy_for(server.origin), "main", None, None, SecretStore({})), SystemNetwork())
    assert list(steps)[-1] == "connect"
    assert all(step.good for step in steps.values())


def test_an_unknown_alias_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="main"):
        steps_of(
            EndpointCheck(policy_for("https://api.example.com"), "other", None, None, SecretStore({})), SystemNetwork()
        )
