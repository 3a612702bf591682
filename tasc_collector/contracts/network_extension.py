"""What an operator opens beyond public https: ``tasc-network-extension-v1``.

Rules:

1. It is a record of its own beside the trust policy, and the collection plan carries its digest; without it nothing
   changes.
2. Networks lie inside the private-use blocks and are written canonically. Loopback, link-local and metadata addresses
   stay refused whatever stands here; https stays required.
3. An endpoint with private networks is reached *only* there: a public answer for its name is refused like any other.
4. Trust in its certificate: the public CA set, or one CA file (named with its SHA-256, so that the digest covers it),
   or the SHA-256 of the server's public key.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Digest, Reference, Slug, Timestamp

PRIVATE_BLOCKS: Final = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""The only blocks in which networks can be opened (RFC 1918, RFC 6598, RFC 4193)."""
METADATA_BLOCKS: Final = ("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", "fd00:c1::/32")
"""Metadata services inside them: Alibaba, AWS, Google, Scaleway, Oracle (all but the first IPv6); never reached."""


def opens(network: IPv4Network | IPv6Network) -> bool:
    """True if a network lies inside the private-use blocks and is more than a metadata service."""
    return _inside(network, PRIVATE_BLOCKS) and not _inside(network, METADATA_BLOCKS)


def _inside(network: IPv4Network | IPv6Network, blocks: Iterable[str]) -> bool:
    outer = (ip_network(cidr) for cidr in blocks)
    return any(network.version == block.version and network.subnet_of(block) for block in outer)  # type: ignore[arg-type]  # same version


def _cidr(text: str) -> str:
    try:
        network = ip_network(text)
    except ValueError:
        raise ValueError("a network is written as address/bits with no host bit set") from None
    if str(network) != text:
        raise ValueError("a network is written in its canonical form")
    if not opens(network):
        raise ValueError(
            "a network lies inside 10/8, 100.64/10, 172.16/12, 192.168/16 or fc00::/7 and is no metadata service"
        )
    return text


Cidr = Annotated[str, StringConstraints(min_length=4, max_length=64), AfterValidator(_cidr)]
"""One private network, such as ``10.20.0.0/16``."""
CaPath = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$", min_length=2, max_length=4096)]
"""Absolute path of a PEM file on the collecting host."""


class CaFile(Model):
    """A CA bundle on the collecting host, pinned by its bytes."""

    path: CaPath
    digest: Digest
    """Plain SHA-256 of the file's bytes, in the ``sha256:`` form."""


class PrivateNetworks(Model):
    """The networks of one endpoint, and how its certificate is trusted."""

    cidrs: Annotated[tuple[Cidr, ...], Field(min_length=1, max_length=16)]
    ca_file: CaFile | None
    spki_pin: Digest | None
    """SHA-256 of the server's SubjectPublicKeyInfo; then no chain and no name is checked, only this key and its
    dates."""

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if list(self.cidrs) != sorted(set(self.cidrs)):
            raise ValueError("cidrs are sorted and unique")
        if self.ca_file is not None and self.spki_pin is not None:
            raise ValueError("either caFile or spkiPin, not both")
        return self


class ExtendedEndpoint(Model):
    """What is opened for one alias of the trust policy."""

    alias: Slug
    private_networks: PrivateNetworks | None
    client_certificate: Reference | None
    """``keyfile:`` reference of a PEM file with certificate and key, where the server wants one."""

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if self.client_certificate is not None and not self.client_certificate.startswith("keyfile:"):
            raise ValueError("clientCertificate is a keyfile: reference")
        if self.private_networks is None and self.client_certificate is None:
            raise ValueError("an endpoint opens a network or names a client certificate; otherwise leave it out")
        return self


class NetworkExtension(Record):
    """The operator's network extension of one study."""

    domain: ClassVar[str] = "tasc/network-extension/v1"

    version: Literal["tasc-network-extension-v1"] = "tasc-network-extension-v1"
    study_id: Slug
    endpoints: Annotated[tuple[ExtendedEndpoint, ...], Field(min_length=1, max_length=64)]
    issued_at: Timestamp
    expires_at: Timestamp

    @model_validator(mode="after")
    def _rules(self) -> Self:
        aliases = [endpoint.alias for endpoint in self.endpoints]
        if aliases != sorted(set(aliases)):
            raise ValueError("endpoints are sorted by alias and unique")
        if self.expires_at <= self.issued_at:
            raise ValueError("expiresAt is after issuedAt")
        return self

    def endpoint(self, alias: str) -> ExtendedEndpoint | None:
        """What is opened for an alias, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.alias == alias), None)
