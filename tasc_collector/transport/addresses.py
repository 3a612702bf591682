"""Which IP addresses a collector may connect to. Pure; a pinned table, because ``ipaddress.is_global`` changes with
the patch release.

Rules:

1. IPv4: everything in the IANA IPv4 special-purpose registry is refused, globally reachable or not, and multicast, and
   the one public address that a cloud uses for its own host channel.
2. IPv6: only global unicast (2000::/3), minus the IANA IPv6 special-purpose registry, minus any interface identifier
   that embeds an IPv4 address the ISATAP way (RFC 5214).
3. A private network can be allowed by an operator's extension, and then only inside the blocks of ``PRIVATE_BLOCKS``,
   and never an address of ``METADATA_BLOCKS`` or one that embeds an IPv4 address. Loopback, link-local and metadata
   addresses stay refused even then.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

from tasc_collector.contracts import origin_grammar
from tasc_collector.contracts.network_extension import METADATA_BLOCKS, PRIVATE_BLOCKS, opens

Address: TypeAlias = origin_grammar.Address
Network: TypeAlias = IPv4Network | IPv6Network

IANA_IPV4: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this-network"),
    ("0.0.0.0/32", "this-host"),
    ("10.0.0.0/8", "private-use"),
    ("100.64.0.0/10", "shared-address-space"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private-use"),
    ("192.0.0.0/24", "ietf-protocol-assignments"),
    ("192.0.0.0/29", "service-continuity"),
    ("192.0.0.8/32", "dummy-address"),
    ("192.0.0.9/32", "port-control-anycast"),
    ("192.0.0.10/32", "turn-anycast"),
    ("192.0.0.170/32", "nat64-discovery"),
    ("192.0.0.171/32", "nat64-discovery"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "as112"),
    ("192.52.193.0/24", "amt"),
    ("192.88.99.0/24", "6to4-relay"),
    ("192.88.99.2/32", "6a44-relay"),
    ("192.168.0.0/16", "private-use"),
    ("192.175.48.0/24", "as112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("240.0.0.0/4", "reserved"),
    ("255.255.255.255/32", "broadcast"),
)
"""Every block of the IANA IPv4 special-purpose address registry, with a short name for messages."""

IANA_IPV6: tuple[tuple[str, str], ...] = (
    ("::1/128", "loopback"),
    ("::/128", "unspecified"),
    ("::ffff:0:0/96", "ipv4-mapped"),
    ("64:ff9b::/96", "nat64"),
    ("64:ff9b:1::/48", "nat64-local"),
    ("100::/64", "discard-only"),
    ("100:0:0:1::/64", "dummy-prefix"),
    ("2001::/23", "ietf-protocol-assignments"),
    ("2001::/32", "teredo"),
    ("2001:1::1/128", "port-control-anycast"),
    ("2001:1::2/128", "turn-anycast"),
    ("2001:1::3/128", "dns-sd-anycast"),
    ("2001:2::/48", "benchmarking"),
    ("2001:3::/32", "amt"),
    ("2001:4:112::/48", "as112"),
    ("2001:10::/28", "orchid"),
    ("2001:20::/28", "orchid-v2"),
    ("2001:30::/28", "drone-remote-id"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("2620:4f:8000::/48", "as112"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "segment-routing"),
    ("fc00::/7", "unique-local"),
    ("fe80::/10", "link-local"),
)
"""Every block of the IANA IPv6 special-purpose address registry."""

ADDED: tuple[tuple[str, str], ...] = (
    ("224.0.0.0/4", "multicast"),
    ("168.63.129.16/32", "cloud-host-channel"),
    ("ff00::/8", "multicast"),
    ("3ff0::/12", "unallocated"),
)
"""What the registries do not list: multicast, Azure's virtual host address, which is public but local to each machine, and the
block of the returned 6bone addresses, of which nothing is allocated (the original project's section 5 refuses it too)."""

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_ISATAP_MARKERS = frozenset({0x00005EFE, 0x02005EFE})


def _table(rows: Iterable[tuple[str, str]]) -> tuple[tuple[int, int, int, str], ...]:
    networks = [(ip_network(cidr), name) for cidr, name in rows]
    # the smallest block first, so that a message names the most particular reason
    networks.sort(key=lambda row: -row[0].prefixlen)
    return tuple((net.version, int(net.network_address), int(net.broadcast_address), name) for net, name in networks)


_REFUSED = _table((*IANA_IPV4, *IANA_IPV6, *ADDED))
_METADATA = _table((cidr, "cloud-metadata") for cidr in METADATA_BLOCKS)
_PRIVATE = tuple(ip_network(cidr) for cidr in PRIVATE_BLOCKS)


def _lookup(address: Address, table: tuple[tuple[int, int, int, str], ...]) -> str | None:
    version, value = address.version, int(address)
    for row_version, low, high, name in table:
        if row_version == version and low <= value <= high:
            return name
    return None


parse_address = origin_grammar.canonical_address
"""The address that a text spells canonically, or None; one grammar for origins and for a resolver's answers."""


def public_refusal(address: Address) -> str | None:
    """Why a public-only collector refuses an address: a short word, or None where it may connect."""
    name = _lookup(address, _REFUSED)
    if name is not None:
        return name
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "outside-global-unicast"
    return _isatap(address)


def _isatap(address: Address) -> str | None:
    """``isatap`` where an interface identifier embeds an IPv4 address that way, whatever the prefix."""
    embeds = address.version == 6 and (int(address) >> 32) & 0xFFFFFFFF in _ISATAP_MARKERS
    return "isatap" if embeds else None


def private_refusal(address: Address, networks: Iterable[Network]) -> str | None:
    """Why an endpoint with private networks refuses an address: a short word, or None.

    Args:
        address: one answer of the resolver.
        networks: the networks that the operator's extension opens for this endpoint.
    """
    reason = _lookup(address, _METADATA) or _isatap(address)
    if reason is not None:
        return reason
    if not any(address.version == block.version and address in block for block in _PRIVATE):
        return public_refusal(address) or "not-in-private-networks"
    if any(address.version == network.version and address in network for network in networks):
        return None
    return "not-in-private-networks"


def without_refused(network: Network) -> tuple[Network, ...]:
    """What of a private network may be reached: the network, or where metadata addresses lie in it, what is around them."""
    pieces: list[Network] = [network]
    for hole in map(ip_network, METADATA_BLOCKS):
        pieces = [rest for piece in pieces for rest in _around(piece, hole)]
    return tuple(sorted(pieces, key=lambda piece: int(piece.network_address)))


def _around(piece: Network, hole: Network) -> Iterable[Network]:
    if piece.version != hole.version or not hole.subnet_of(piece):  # type: ignore[arg-type]  # same version
        return (piece,)
    return piece.address_exclude(hole)  # type: ignore[arg-type]  # same version


def private_network(cidr: str) -> Network | None:
    """The network that ``cidr`` spells canonically, where an extension may open it; else None."""
    try:
        network = ip_network(cidr)
    except ValueError:
        return None
    return network if str(network) == cidr and opens(network) else None
