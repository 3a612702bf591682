"""What a firewall must let through, and what a check of an endpoint says; neither sends a byte."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tasc_collector.errors import InputError
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.check import CheckStep, EndpointCheck, check_endpoint
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.egress import (
    WEBHOOK,
    EgressRule,
    Reach,
    WebhookPlace,
    egress_of,
    nameservers,
    network_policy,
    reachable,
    systemd_lines,
)
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


def test_the_webhook_of_a_studys_notices_is_listed_and_says_that_it_is_one() -> None:
    opened = extension_for(cidrs=["10.20.0.0/16"])
    found = egress_of(
        [(policy_for("https://api.example.com"), None)],
        [
            WebhookPlace("https://hooks.example.com", "notices"),
            WebhookPlace("https://api.example.com", "notices"),
            WebhookPlace("https://hooks.cluster.local", "main", opened),
        ],
    )
    assert found == (
        EgressRule("api.example.com", 443, Reach.PUBLIC, (), ("main", WEBHOOK)),
        EgressRule("hooks.cluster.local", 443, Reach.PRIVATE, ("10.20.0.0/16",), (WEBHOOK,)),
        EgressRule("hooks.example.com", 443, Reach.PUBLIC, (), (WEBHOOK,)),
    )
    lines = systemd_lines(found, {"hooks.example.com": ["93.184.216.34"]}, [])
    assert "IPAddressAllow=93.184.216.34/32" in lines and "IPAddressAllow=10.20.0.0/16" in lines
    assert len(json.loads(network_policy(found, name="tasc"))["spec"]["egress"]) == 4, "and names are looked up"
    with pytest.raises(InputError):
        egress_of([], [WebhookPlace("https://10.0.0.1", "notices")])


def test_systemd_lines_deny_everything_else_and_hold_no_comment_after_a_value() -> None:
    assert systemd_lines(RULES, {"api.example.com": ["93.184.216.34"]}, ["10.255.0.2", "fe80::1"]) == [
        "[Service]",
        "IPAddressDeny=any",
        "# the resolver: names are looked up there for every call",
        "IPAddressAllow=10.255.0.2/32",
        "IPAddressAllow=fe80::1/128",
        "# 1.1.1.1:443",
        "IPAddressAllow=1.1.1.1/32",
        "# 127.0.0.1:8000",
        "IPAddressAllow=127.0.0.1/32",
        "# api.example.com:443",
        "IPAddressAllow=93.184.216.34/32",
        "# gpu.cluster.local:8443",
        "IPAddressAllow=10.20.0.0/16",
    ]


def test_systemd_lines_say_where_a_public_name_is_not_looked_up_and_open_no_resolver_for_literals() -> None:
    unknown = systemd_lines(RULES[2:3], {}, ["127.0.0.53"])
    assert unknown[2:] == [
        "# the resolver: names are looked up there for every call",
        "IPAddressAllow=127.0.0.53/32",
        "# api.example.com:443 is a public name; its addresses change: see them with --resolve",
    ]
    assert systemd_lines(RULES[:1], {}, ["127.0.0.53"])[2:] == ["# 1.1.1.1:443", "IPAddressAllow=1.1.1.1/32"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_every_line_without_a_complaint(tmp_path: Path) -> None:
    lines = systemd_lines(RULES, {"api.example.com": ["93.184.216.34"]}, ["127.0.0.53", "fe80::1"])
    unit = tmp_path / "tasc-check.service"
    unit.write_text("\n".join([*lines, "ExecStart=/bin/true", ""]))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=30
    )
    assert [line for line in done.stderr.splitlines() if "IPAddress" in line or "ignoring" in line] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# made by a tool\nsearch example.com\nnameserver 10.0.0.2\nnameserver 10.0.0.2\n", ("10.0.0.2",)),
        ("nameserver 127.0.0.53\noptions edns0 trust-ad\n", ("127.0.0.53",)),
        ("nameserver fe80::1%eth0\nnameserver\t9.9.9.9 # second\n", ("fe80::1", "9.9.9.9")),
        ("nameserver none\nnameserver\n", ("127.0.0.1", "::1")),
        ("", ("127.0.0.1", "::1")),
    ],
)
def test_the_resolvers_of_a_host_are_read_from_its_file(text: str, found: tuple[str, ...]) -> None:
    assert nameservers(text) == found


def test_a_network_policy_opens_exactly_the_ports_and_never_a_refused_block() -> None:
    policy = json.loads(network_policy(RULES, name="tasc"))
    names = "1.1.1.1:443, 127.0.0.1:8000, api.example.com:443, gpu.cluster.local:8443"
    assert policy["metadata"]["annotations"] == {"tasc-reaches": names}
    spec = policy["spec"]
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
        "ca",
        "resolve",
        "address",
        "pin",
        "connect",
        "tls",
        "certificate",
    ]
    assert steps["address"].detail == "10.20.1.2: in the endpoint's private networks"
    assert steps["ca"].detail.startswith("test root, ends ")
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


def checked(tmp_path: Path, chain: chains.Chain, ca_pem: str) -> dict[str, CheckStep]:
    """The steps to a private endpoint that shows a chain, with a CA file."""
    ca = tmp_path / "ca.pem"
    ca.write_text(ca_pem)
    what = EndpointCheck(
        policy_for(f"https://{chains.HOST}"),
        "main",
        extension_for(cidrs=["10.20.0.0/16"], ca=ca),
        None,
        SecretStore({}),
    )
    with RawServer(Peer.hold, tls=chain.server_context(tmp_path)) as server:
        return steps_of(what, LabNetwork(server.port, [["10.20.1.2"]]))


def test_a_check_names_each_ca_of_the_operators_file_and_the_one_that_has_ended(tmp_path: Path) -> None:
    old = chains.issue("old root", None, ca=True, starts_days=-60, ends_days=-1)
    steps = checked(tmp_path, chains.good(), old.pem)
    ended = f"{old.certificate.not_valid_after_utc:%Y-%m-%d}"
    assert (steps["ca"].good, steps["ca"].detail) == (False, f"old root, ended {ended}")
    assert not steps["tls"].good


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("expired", "the certificate has expired"),
        ("not yet valid", "the certificate is not yet valid"),
        ("wrong host", "the certificate is for another name"),
        ("unknown ca", "the issuer is not trusted, or an intermediate certificate is missing"),
        ("self-signed", "the certificate is self-signed"),
        ("client certificate", "the certificate is not for a server"),
        ("no authority key identifier", "the certificate does not pass strict X.509 (RFC 5280)"),
    ],
)
def test_a_check_says_why_a_certificate_is_refused(name: str, why: str, tmp_path: Path) -> None:
    steps = checked(tmp_path, chains.CASES[name][2](), chains.root().pem)
    assert (steps["tls"].good, steps["tls"].detail) == (False, f"tls-failed: {why}")


def test_a_check_goes_on_where_a_ca_file_is_none_and_says_so(tmp_path: Path) -> None:
    steps = checked(tmp_path, chains.good(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert list(steps)[-1] == "trust"
    assert "openssl x509" in steps["trust"].detail


def test_a_check_of_an_endpoint_that_resets_at_once_ends_with_a_step() -> None:
    class Gone(LabNetwork):
        def peer(self, sock: socket.socket) -> str:
            raise OSError(107, "not connected")

    with RawServer(Peer.hold) as server:
        what = EndpointCheck(policy_for("https://api.example.com"), "main", None, None, SecretStore({}))
        steps = steps_of(what, Gone(server.port))
    assert [name for name, step in steps.items() if not step.good] == ["peer"]


def test_a_secret_that_a_route_requires_and_nobody_names_is_absent() -> None:
    routes = [{"method": "POST", "pathPrefix": "/v1", "authenticationReferences": ["key-a"]}]
    policy = policy_for("http://127.0.0.1:9", endpoint={"routes": routes}, secretReferences=["key-a"])
    steps = steps_of(EndpointCheck(policy, "main", None, None, SecretStore({})), SystemNetwork())
    assert not steps["secret"].good
    assert "requires authentication" in steps["secret"].detail
    unneeded = EndpointCheck(policy_for("http://127.0.0.1:9"), "main", None, None, SecretStore({}))
    assert steps_of(unneeded, SystemNetwork())["secret"].good


def test_a_literal_in_a_private_network_is_reached_alone_and_metadata_is_not_let_through() -> None:
    literal = egress_of([(policy_for("https://10.20.1.2:8443"), extension_for(cidrs=["10.20.0.0/16"]))])
    assert literal == (EgressRule("10.20.1.2", 8443, Reach.PRIVATE, ("10.20.1.2/32",), ("main",)),)
    found = egress_of([(policy_for("https://gpu.cluster.local"), extension_for(cidrs=["100.100.100.200/31"]))])
    assert [rule.cidrs for rule in found] == [("100.100.100.201/32",)]
    [_, private] = json.loads(network_policy(found, name="tasc"))["spec"]["egress"]
    assert private["to"] == [{"ipBlock": {"cidr": "100.100.100.201/32"}}]
    assert "IPAddressAllow=100.100.100.201/32" in systemd_lines(found, {}, [])


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["93.184.216.34", "2606:4700:4700::1111"], ("93.184.216.34", "2606:4700:4700::1111")),
        (["93.184.216.34", "10.0.0.1"], ()),
        (["::ffff:93.184.216.34"], ()),
        ([], ()),
    ],
)
def test_no_address_of_a_name_that_a_call_would_refuse_is_let_through(
    answers: list[str], found: tuple[str, ...]
) -> None:
    assert reachable(answers) == found


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
