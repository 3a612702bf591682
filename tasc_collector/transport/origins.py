"""Canonical origins and request paths. Pure.

Rules (original project, section 5):

1. An origin is ``scheme://host[:port]`` in exactly the spelling in which a URL serialises it: ASCII, lower case, no
   user information, path, query, fragment, trailing slash or dot, no default port, no leading zero, no percent sign.
2. Plain http only to the literals ``127.0.0.1`` and ``[::1]`` with a port; https never to them. Names such as
   ``localhost``, other loopback addresses and mapped addresses are refused.
3. A literal address must be public and canonical. A name has at least one dot, labels of 1 to 63 letters, digits and
   inner hyphens, 253 characters at most, a last label that is no number, and ``xn--`` labels that decode to letters.
4. A path is ``/`` or segments of ``[A-Za-z0-9._~-]`` without ``.`` and ``..``; a request's path may end with a slash.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from tasc_collector.errors import InputError
from tasc_collector.limits import MAX_ORIGIN_LENGTH, MAX_PATH_LENGTH
from tasc_collector.transport.addresses import Address, Network, parse_address, private_refusal, public_refusal

_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[0-9a-z.-]+)(?::([1-9][0-9]{0,4}))?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
_DEFAULT_PORT = {"http": 80, "https": 443}
_LOOPBACK = frozenset({"127.0.0.1", "::1"})

PLAIN_HTTP_WAY_OUT = (
    "put TLS in front of the server (a sidecar that terminates https), or forward a loopback port to it and use "
    "http://127.0.0.1:<port>, which is marked 'path differs'"
)
"""The two ways out for a server that speaks only plain http."""
PRIVATE_WAY_OUT = (
    "use the server's public name or address, or let the operator open its network for this endpoint "
    "in a network extension "
    "(loopback, link-local and metadata addresses stay refused)"
)
"""The ways out for an address that is not public."""


class HostKind(StrEnum):
    """What an origin's host is."""

    NAME = "name"
    ADDRESS = "address"
    LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True, repr=False)
class Origin:
    """A checked origin. Its ``repr`` does not show where it points."""

    scheme: str
    host: str
    """Name or literal address, without brackets."""
    port: int
    kind: HostKind

    def __repr__(self) -> str:
        return f"Origin(kind={self.kind.value!r})"

    @property
    def secure(self) -> bool:
        """True for https."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Value of the ``host`` header: the port only where it is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORT[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The canonical spelling."""
        return f"{self.scheme}://{self.authority}"


Refuse = Callable[..., InputError]
_SPELLING = "write the origin as a browser serialises it, such as https://api.example.com"


@lru_cache(maxsize=256)
def parse_origin(text: str, *, where: str | None = None, private_networks: tuple[Network, ...] = ()) -> Origin:
    """Check an origin against rules 1 to 3.

    Args:
        text: the origin as the operator wrote it.
        where: the file it stands in, for the message.
        private_networks: networks that an operator's extension opens for this endpoint; a literal must then lie in one.

    Raises:
        InputError: a rule is broken. The message names the rule, never the origin.
    """

    def refuse(rule: str, way_out: str = _SPELLING) -> InputError:
        return InputError("the origin is refused", where=where, field="origin", rule=rule, way_out=way_out)

    if len(text) > MAX_ORIGIN_LENGTH:
        raise refuse(f"at most {MAX_ORIGIN_LENGTH} characters")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise refuse("exactly scheme://host or scheme://host:port, lower-case ASCII, nothing before or after")
    scheme, host, port_text = match.groups()
    port = int(port_text) if port_text else _DEFAULT_PORT[scheme]
    if port > 65535:
        raise refuse("a port is 1 to 65535")
    if port_text and port == _DEFAULT_PORT[scheme]:
        raise refuse("the scheme's default port is not written")
    address = _literal(host, refuse)
    host = host.strip("[]")
    if scheme == "http":
        if host not in _LOOPBACK:
            raise refuse("plain http is allowed only to the literals 127.0.0.1 and [::1]", PLAIN_HTTP_WAY_OUT)
        if not port_text:
            raise refuse("a loopback origin names its port", "add the port, such as http://127.0.0.1:8000")
        return Origin(scheme, host, port, HostKind.LOOPBACK)
    if address is None:
        return Origin(scheme, host, port, HostKind.NAME)
    reason = private_refusal(address, private_networks) if private_networks else public_refusal(address)
    if reason is not None:
        raise refuse(f"a literal address must be one that may be reached; this one is {reason}", PRIVATE_WAY_OUT)
    return Origin(scheme, host, port, HostKind.ADDRESS)


def _literal(host: str, refuse: Refuse) -> Address | None:
    """The address that a host spells, or None for a good name."""
    if host.startswith("["):
        address = parse_address(host[1:-1])
        if address is None or address.version != 6:
            raise refuse("an IPv6 literal is written in its canonical form (RFC 5952), without zone")
        return address
    address = parse_address(host)
    if address is not None:
        return address
    labels = host.split(".")
    if len(host) > 253 or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise refuse(
            "a host name has at least one dot and labels of letters, digits and inner hyphens, 253 characters at most"
        )
    if _NUMBER.fullmatch(labels[-1]):
        raise refuse("a host whose last label is a number must be a canonical IPv4 address")
    if not all(_valid_idna(label) for label in labels if label.startswith("xn--")):
        raise refuse("an xn-- label must be the ASCII form of a real label")
    return None


def _valid_idna(label: str) -> bool:
    """True if an A-label decodes to letters, marks, digits and hyphens, is not all ASCII, and encodes back to
    itself.
    """
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        back = decoded.encode("punycode").decode("ascii")
    except (UnicodeError, ValueError):
        return False
    if back != label[4:] or decoded.isascii():
        return False
    if unicodedata.normalize("NFC", decoded) != decoded:
        return False
    return all(char == "-" or unicodedata.category(char)[0] in "LMN" for char in decoded)


def _segments_ok(path: str) -> bool:
    return all(_SEGMENT.fullmatch(part) and part not in {".", ".."} for part in path.split("/"))


def route_prefix_ok(path: str) -> bool:
    """True if ``path`` can be a route prefix: ``/`` or ``/a/b`` without a trailing slash (rule 4)."""
    return path == "/" or (len(path) <= MAX_PATH_LENGTH and path.startswith("/") and _segments_ok(path[1:]))


def request_path_ok(path: str) -> bool:
    """True if ``path`` can be requested: like a prefix, and it may end with a slash (rule 4)."""
    return path == "/" or route_prefix_ok(path.removesuffix("/"))


def under_prefix(path: str, prefix: str) -> bool:
    """True if ``path`` lies under ``prefix``, by whole segments."""
    return prefix == "/" or path == prefix or path.startswith(prefix + "/")
