"""Origins that may be reached, and request paths. Pure.

Rules (original project, section 5):

1. An origin is spelled by the rules of ``contracts.origin_grammar``.
2. Plain http, which is to this machine only, names its port.
3. A literal address must be public, or lie in a network that an operator's extension opens.
4. A path is ``/`` or segments of ``[A-Za-z0-9._~-]`` without ``.`` and ``..``; a request's path may end with a slash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from tasc_collector.contracts.origin_grammar import DEFAULT_PORTS, Fault, MisspelledOrigin, read_origin
from tasc_collector.errors import InputError
from tasc_collector.limits import MAX_PATH_LENGTH
from tasc_collector.transport.addresses import Network, private_refusal, public_refusal

_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)

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
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The canonical spelling."""
        return f"{self.scheme}://{self.authority}"


_SPELLING = "write the origin as a browser serialises it, such as https://api.example.com"
_WAYS_OUT = {
    Fault.SPELLING: _SPELLING,
    Fault.PLAIN_HTTP: PLAIN_HTTP_WAY_OUT,
    Fault.THIS_MACHINE: "use http://127.0.0.1:<port>",
}


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

    try:
        parts = read_origin(text)
    except MisspelledOrigin as error:
        raise refuse(str(error), _WAYS_OUT[error.fault]) from None
    if parts.scheme == "http":
        if not parts.has_port:
            raise refuse("a loopback origin names its port", "add the port, such as http://127.0.0.1:8000")
        return Origin(parts.scheme, parts.host, parts.port, HostKind.LOOPBACK)
    address = parts.address
    if address is None:
        return Origin(parts.scheme, parts.host, parts.port, HostKind.NAME)
    reason = private_refusal(address, private_networks) if private_networks else public_refusal(address)
    if reason is not None:
        raise refuse(f"a literal address must be one that may be reached; this one is {reason}", PRIVATE_WAY_OUT)
    return Origin(parts.scheme, parts.host, parts.port, HostKind.ADDRESS)


def _segments_ok(path: str) -> bool:
    return all(_SEGMENT.fullmatch(part) and part not in {".", ".."} for part in path.split("/"))


def route_prefix_ok(path: str) -> bool:
    """True if ``path`` can be a route prefix: ``/`` or ``/a/b`` without a trailing slash (rule 4)."""
    return path == "/" or (len(path) <= MAX_PATH_LENGTH and path.startswith("/") and _segments_ok(path[1:]))


def request_path_ok(path: str) -> bool:
    """True if ``path`` can be requested: like a prefix, and it may end with a slash (rule 4)."""
    return path == "/" or (path != "//" and route_prefix_ok(path.removesuffix("/")))


def under_prefix(path: str, prefix: str) -> bool:
    """True if ``path`` lies under ``prefix``, by whole segments."""
    return prefix == "/" or path == prefix or path.startswith(prefix + "/")
