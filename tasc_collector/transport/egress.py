"""Everything that a set of trust policies, and the webhooks of notices, let a collector reach, for firewalls. Pure.

The list is what our own checks enforce; a firewall that is set from it is a second wall, not the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from typing import Final

from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.transport.addresses import (
    ADDED,
    IANA_IPV4,
    IANA_IPV6,
    parse_address,
    private_network,
    public_refusal,
    without_refused,
)
from tasc_collector.transport.origins import HostKind, parse_origin


class Reach(StrEnum):
    """Which addresses an endpoint's name may have."""

    LOOPBACK = "loopback"
    PUBLIC = "public"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True, order=True)
class EgressRule:
    """One host and port.

    Args:
        host: name or literal address.
        port: TCP port.
        reach: which addresses are taken.
        cidrs: the networks without the metadata addresses in them, for ``private``; the address itself, for a literal;
            empty for a public name.
        aliases: the endpoints that need it; ``WEBHOOK`` where notices are posted there.
    """

    host: str
    port: int
    reach: Reach
    cidrs: tuple[str, ...]
    aliases: tuple[str, ...]


WEBHOOK: Final = "webhook of notices.toml"
"""Stands among the aliases of a rule that a notice's POST needs; no alias has spaces."""


@dataclass(frozen=True, slots=True)
class WebhookPlace:
    """Where a study's notices are posted.

    Args:
        origin: as ``notices.toml`` names it.
        alias: under which the study's extension may open private networks for it.
        extension: the study's network extension, if it has one.
    """

    origin: str
    alias: str
    extension: NetworkExtension | None = None


def egress_of(
    studies: Iterable[tuple[CollectorTrustPolicy, NetworkExtension | None]], webhooks: Iterable[WebhookPlace] = ()
) -> tuple[EgressRule, ...]:
    """Every host and port that the studies can reach, sorted and merged.

    Args:
        studies: each study's trust policy and network extension.
        webhooks: where each study that names a webhook posts its notices.

    Raises:
        InputError: an origin is not one that may be reached.
    """
    found: dict[tuple[str, int, Reach, tuple[str, ...]], set[str]] = {}
    for policy, extension in studies:
        for endpoint in policy.endpoints:
            place = _place(endpoint.origin, endpoint.alias, extension, where=f"endpoint {endpoint.alias}")
            found.setdefault(place, set()).add(endpoint.alias)
    for webhook in webhooks:
        place = _place(webhook.origin, webhook.alias, webhook.extension, where=WEBHOOK)
        found.setdefault(place, set()).add(WEBHOOK)
    return tuple(sorted(EgressRule(*key, tuple(sorted(aliases))) for key, aliases in found.items()))


def _place(
    text: str, alias: str, extension: NetworkExtension | None, *, where: str
) -> tuple[str, int, Reach, tuple[str, ...]]:
    """Host, port, reach and networks of an origin."""
    opened = extension.endpoint(alias) if extension is not None else None
    cidrs = () if opened is None or opened.private_networks is None else opened.private_networks.cidrs
    networks = tuple(network for cidr in cidrs if (network := private_network(cidr)) is not None)
    origin = parse_origin(text, where=where, private_networks=networks)
    if origin.kind is HostKind.LOOPBACK:
        return origin.host, origin.port, Reach.LOOPBACK, (_single(origin.host),)
    reach = Reach.PRIVATE if networks else Reach.PUBLIC
    if origin.kind is not HostKind.NAME:
        return origin.host, origin.port, reach, (_single(origin.host),)
    opened_cidrs = tuple(str(piece) for network in networks for piece in without_refused(network))
    return origin.host, origin.port, reach, opened_cidrs


def reachable(answers: Sequence[str]) -> tuple[str, ...]:
    """The answers of a public name's lookup, or nothing where a call would refuse it: where any of them is not public."""
    addresses = [parse_address(answer) for answer in answers]
    refused = any(address is None or public_refusal(address) is not None for address in addresses)
    return () if refused else tuple(answers)


def systemd_lines(
    rules: Sequence[EgressRule], resolved: Mapping[str, Sequence[str]], resolvers: Sequence[str]
) -> list[str]:
    """Lines for a systemd unit: everything is denied but these addresses. systemd knows no comment after a value.

    Args:
        rules: what may be reached.
        resolved: addresses that public names have now; a name that is missing becomes a comment.
        resolvers: addresses that names are looked up at (``nameservers``); opened where an endpoint has a name.
    """
    lines = ["[Service]", "IPAddressDeny=any"]
    if any(_is_name(rule.host) for rule in rules):
        lines.append("# the resolver: names are looked up there for every call")
        lines.extend(f"IPAddressAllow={_single(address)}" for address in resolvers)
    for rule in rules:
        addresses = rule.cidrs or tuple(_single(address) for address in resolved.get(rule.host, ()))
        if addresses:
            lines.append(f"# {rule.host}:{rule.port}")
        else:
            lines.append(f"# {rule.host}:{rule.port} is a public name; its addresses change: see them with --resolve")
        lines.extend(f"IPAddressAllow={address}" for address in addresses)
    return lines


def nameservers(text: str) -> tuple[str, ...]:
    """The resolvers that a ``resolv.conf`` names, in its order; loopback where it names none (resolv.conf(5)).

    The stub of systemd-resolved stands there as 127.0.0.53.

    Args:
        text: content of the file; empty where there is no such file.
    """
    found: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        try:
            address = str(ip_address(words[1].partition("%")[0]))
        except ValueError:
            continue
        if address not in found:
            found.append(address)
    return tuple(found) or ("127.0.0.1", "::1")


def network_policy(rules: Sequence[EgressRule], *, name: str) -> str:
    """A Kubernetes NetworkPolicy, as JSON (which YAML readers take): DNS, and exactly these networks and ports.

    A public name becomes the whole internet minus every block that our own table refuses, on that name's port. Names
    stand in an annotation, because a rule cannot hold one.

    Args:
        rules: what may be reached; loopback needs no rule.
        name: name of the policy.
    """
    egress: list[dict[str, object]] = [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}]
    for rule in rules:
        if rule.reach is Reach.LOOPBACK:
            continue
        blocks: list[dict[str, object]] = [{"ipBlock": {"cidr": cidr}} for cidr in rule.cidrs]
        if not blocks:
            blocks = [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": _outer(IANA_IPV4, 4)}},
                {"ipBlock": {"cidr": "2000::/3", "except": _outer(IANA_IPV6, 6)}},
            ]
        egress.append({"to": blocks, "ports": [{"protocol": "TCP", "port": rule.port}]})
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "annotations": {"tasc-reaches": ", ".join(f"{rule.host}:{rule.port}" for rule in rules)},
        },
        "spec": {"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Egress"], "egress": egress},
    }
    return json.dumps(policy, indent=2)


def _outer(table: Sequence[tuple[str, str]], version: int) -> list[str]:
    """The blocks of a table that no other block of it covers, those outside 2000::/3 left out."""
    networks = [ip_network(cidr) for cidr, _ in (*table, *ADDED) if ip_network(cidr).version == version]
    if version == 6:
        unicast = ip_network("2000::/3")
        networks = [network for network in networks if network.subnet_of(unicast)]  # type: ignore[arg-type]  # both IPv6
    outer = [
        network
        for network in networks
        if not any(network != other and network.subnet_of(other) for other in networks)  # type: ignore[arg-type]  # same version
    ]
    return [str(network) for network in sorted(outer, key=lambda network: int(network.network_address))]


def _is_name(host: str) -> bool:
    return parse_address(host) is None


def _single(address: str) -> str:
    return f"{address}/128" if ":" in address else f"{address}/32"
