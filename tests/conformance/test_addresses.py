"""Addresses, origins and hosts that others wrote down: zero connections to what must be refused, everything else
allowed.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
import socket
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.errors import InputError
from tasc_collector.transport.addresses import (
    IANA_IPV4,
    IANA_IPV6,
    parse_address,
    private_network,
    private_refusal,
    public_refusal,
)
from tasc_collector.transport.codes import Code
from tasc_collector.transport.network import SystemNetwork
from tasc_collector.transport.origins import HostKind, parse_origin
from tests.support.calls import call


def load(shared: Path, name: str) -> Any:
    path = shared / "vectors" / "ssrf" / name
    if not path.is_file():
        pytest.skip("the address vectors are not there")
    return path.read_text(encoding="utf-8")


def test_every_address_gets_its_verdict(shared: Path) -> None:
    wrong = []
    for case in json.loads(load(shared, "ip_addresses.json"))["cases"]:
        refusal = public_refusal(ip_address(case["ip"]))
        if case["expect"] != "either" and (refusal is None) != (case["expect"] == "allow"):
            wrong.append((case["ip"], case["category"], refusal))
    assert wrong == []


@pytest.mark.parametrize(
    ("table", "name"), [(IANA_IPV4, "iana-ipv4-special-registry.csv"), (IANA_IPV6, "iana-ipv6-special-registry.csv")]
)
def test_the_pinned_table_is_the_registry(table: tuple[tuple[str, str], ...], name: str, shared: Path) -> None:
    rows = csv.DictReader(load(shared, name).splitlines())
    blocks = {
        str(ip_network(block.strip()))
        for row in rows
        for block in re.sub(r"\[\d+\]", "", row["Address Block"]).split(",")
    }
    assert {cidr for cidr, _ in table} == blocks


class Resolving(SystemNetwork):
    """The machine's network with a resolver that answers as told; connections are the machine's own."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers

    async def resolve(self, host: str, port: int) -> list[str]:
        return self.answers


def test_no_denied_address_is_connected_to_alone_first_last_or_mixed(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``connect`` itself is intercepted: it must not be called at all."""
    connects: list[object] = []

    def refuse(self: socket.socket, address: object) -> None:
        connects.append(address)
        raise OSError("intercepted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    denied = [case["ip"] for case in json.loads(load(shared, "ip_addresses.json"))["cases"] if case["expect"] == "deny"]

    async def go() -> list[tuple[str, object]]:
        wrong: list[tuple[str, object]] = []
        public = "93.184.216.34"
        for ip in denied:
            for answers in ([ip], [ip, public], [public, ip], [public, ip, public]):
                done = await call("https://api.example.com", network=Resolving(answers))
                if done.result.code is not Code.ADDRESS_REFUSED or done.leases:
                    wrong.append((ip, done.result.code))
        return wrong

    assert asyncio.run(go()) == []
    assert connects == []


def test_every_allowed_address_is_tried(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(self: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[0])
        raise ConnectionRefusedError(111, "intercepted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    allowed = [
        case["ip"] for case in json.loads(load(shared, "ip_addresses.json"))["cases"] if case["expect"] == "allow"
    ]

    async def go() -> list[Code | None]:
        return [(await call("https://api.example.com", network=Resolving([ip]))).result.code for ip in allowed]

    codes = asyncio.run(go())
    # a machine without IPv6 cannot make the socket; the policy let the address through all the same
    assert set(codes) <= {Code.CONNECT_REFUSED, Code.CONNECT_FAILED}
    assert set(tried) >= {ip for ip in allowed if ":" not in ip}


def test_every_origin_gets_its_verdict(shared: Path) -> None:
    wrong = []
    for case in json.loads(load(shared, "origins.json"))["cases"]:
        try:
            kind = parse_origin(case["origin"]).kind
        except InputError as refusal:
            verdict = "deny"
            assert "evil" not in str(refusal)
        else:
            verdict = "allow-loopback-optin" if kind is HostKind.LOOPBACK else "allow-public"
        if verdict != case["expect"]:
            wrong.append((case["origin"], verdict))
    assert wrong == []


def test_what_is_taken_of_the_web_platform_hosts_is_canonical_and_means_the_same(shared: Path) -> None:
    wrong = []
    for case in json.loads(load(shared, "wpt_url_http_hosts.json"))["cases"]:
        try:
            origin = parse_origin(case["input"])
        except InputError:
            continue
        port = "" if origin.port == {"http": 80, "https": 443}[origin.scheme] else str(origin.port)
        if not case.get("is_canonical_origin") or (case["hostname"].strip("[]"), case["port"]) != (origin.host, port):
            wrong.append(case["input"])
    assert wrong == []


@pytest.mark.parametrize(
    ("ip", "networks", "reason"),
    [
        ("10.1.2.3", ["10.1.0.0/16"], None),
        ("fd12::1", ["fd12::/16"], None),
        ("10.2.2.3", ["10.1.0.0/16"], "not-in-private-networks"),
        ("8.8.8.8", ["10.1.0.0/16"], "not-in-private-networks"),
        ("127.0.0.1", ["10.0.0.0/8"], "loopback"),
        ("169.254.169.254", ["10.0.0.0/8"], "link-local"),
        ("100.100.100.200", ["100.64.0.0/10"], "cloud-metadata"),
        ("fd00:ec2::254", ["fc00::/7"], "cloud-metadata"),
        ("::ffff:10.1.2.3", ["10.0.0.0/8"], "ipv4-mapped"),
        ("224.0.0.1", ["10.0.0.0/8"], "multicast"),
    ],
)
def test_private_networks_open_only_what_they_name(ip: str, networks: list[str], reason: str | None) -> None:
    assert private_refusal(ip_address(ip), [ip_network(network) for network in networks]) == reason


@pytest.mark.parametrize(
    "cidr", ["127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/0", "10.0.0.1/8", "10.0.0.0/7", "fe80::/10", "2000::/3", "x"]
)
def test_a_network_that_cannot_be_opened_is_none(cidr: str) -> None:
    assert private_network(cidr) is None


@pytest.mark.parametrize(
    "text", ["1.2.3.4%1", "::1%lo", "01.2.3.4", "::0001", "1.2.3", "0x7f.1", " 1.2.3.4", "::FFFF:1.2.3.4"]
)
def test_only_canonical_spellings_are_addresses(text: str) -> None:
    assert parse_address(text) is None
