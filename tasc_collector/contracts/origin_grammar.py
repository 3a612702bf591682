"""How an origin is spelled. Pure, and the only place that says so.

Rules (original project, section 5):

1. An origin is ``scheme://host[:port]`` in exactly the spelling in which a URL serialises it: ASCII, lower case, no
   user information, path, query, fragment, trailing slash or dot, no default port, no leading zero, no percent sign.
2. Plain http only to the literals ``127.0.0.1`` and ``[::1]``; https never to them. Names such as ``localhost``, other
   loopback addresses and mapped addresses are refused.
3. A literal address is canonical. A name has at least one dot, labels of 1 to 63 letters, digits and inner hyphens, 253
   characters at most, a last label that is neither a number nor ``localhost`` (RFC 6761), and ``xn--`` labels that are the
   ASCII form of a label that IDNA 2008 permits (RFC 5892).

Whether an address may be reached is no question of spelling: ``transport.origins`` and the resolver decide it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeAlias

from tasc_collector.limits import MAX_ORIGIN_LENGTH

Address: TypeAlias = IPv4Address | IPv6Address

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1"})

_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[0-9a-z.-]+)(?::([1-9][0-9]{0,4}))?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class Fault(StrEnum):
    """What kind of rule is broken, for whoever knows the way out."""

    SPELLING = "spelling"
    PLAIN_HTTP = "plain-http"
    THIS_MACHINE = "this-machine"


class MisspelledOrigin(ValueError):
    """A rule of this module is broken; the message is the rule and never the origin."""

    def __init__(self, rule: str, fault: Fault = Fault.SPELLING) -> None:
        super().__init__(rule)
        self.fault = fault


@dataclass(frozen=True, slots=True, repr=False)
class SpelledOrigin:
    """The parts of an origin; its ``repr`` does not show them.

    Attributes:
        scheme: http, to this machine, or https.
        host: name or literal address, without brackets.
        port: as written, else the scheme's default.
        has_port: whether it is written.
        address: the literal address; None for a name.
    """

    scheme: str
    host: str
    port: int
    has_port: bool
    address: Address | None


def read_origin(text: str) -> SpelledOrigin:
    """Split an origin that is spelled by the rules.

    Raises:
        MisspelledOrigin: a rule is broken.
    """
    if len(text) > MAX_ORIGIN_LENGTH:
        raise MisspelledOrigin(f"at most {MAX_ORIGIN_LENGTH} characters")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise MisspelledOrigin("exactly scheme://host or scheme://host:port, lower-case ASCII, nothing before or after")
    scheme, host, written = match.groups()
    port = int(written) if written else DEFAULT_PORTS[scheme]
    if port > 65535:
        raise MisspelledOrigin("a port is 1 to 65535")
    if written and port == DEFAULT_PORTS[scheme]:
        raise MisspelledOrigin("the scheme's default port is not written")
    address = _address_of(host)
    host = host.strip("[]")
    if scheme == "http" and host not in LOOPBACK_HOSTS:
        raise MisspelledOrigin("plain http is allowed only to the literals 127.0.0.1 and [::1]", Fault.PLAIN_HTTP)
    if scheme == "https" and host in LOOPBACK_HOSTS:
        raise MisspelledOrigin("a loopback address is reached by plain http", Fault.THIS_MACHINE)
    return SpelledOrigin(scheme, host, port, written is not None, address)


def canonical_address(text: str) -> Address | None:
    """The address that ``text`` spells canonically, or None: no zone, no short, octal, hex or mapped spelling."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.version == 6 and address.ipv4_mapped is not None  # spelled differently from Python 3.13 on
    return address if str(address) == text and "%" not in text and not mapped else None


def _address_of(host: str) -> Address | None:
    """The address that a host spells, or None for a good name."""
    if host.startswith("["):
        address = canonical_address(host[1:-1])
        if address is None or address.version != 6:
            raise MisspelledOrigin("an IPv6 literal is written in its canonical form (RFC 5952), without zone")
        return address
    address = canonical_address(host)
    if address is not None:
        return address
    labels = host.split(".")
    if len(host) > 253 or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise MisspelledOrigin(
            "a host name has at least one dot and labels of letters, digits and inner hyphens, 253 characters at most"
        )
    if _NUMBER.fullmatch(labels[-1]):
        raise MisspelledOrigin("a host whose last label is a number must be a canonical IPv4 address")
    if labels[-1] == "localhost":
        raise MisspelledOrigin("a name under localhost is this host", Fault.THIS_MACHINE)
    if not all(_valid_idna(label) for label in labels if label.startswith("xn--")):
        raise MisspelledOrigin("an xn-- label must be the ASCII form of a real label")
    return None


def _valid_idna(label: str) -> bool:
    """True if an A-label decodes to a label that IDNA 2008 permits (RFC 5891 to 5893) and encodes back to itself.

    The tables are idna's, because Python's own change with its release.
    """
    import idna

    try:
        return idna.alabel(idna.ulabel(label)) == label.encode("ascii")
    except ValueError:  # of idna and of punycode
        return False
