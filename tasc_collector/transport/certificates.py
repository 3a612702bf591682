"""What is read from a certificate: the key for a pin, and names and dates for an operator's eyes. Pure.

Rules:

1. A pin is compared with the bytes of the SubjectPublicKeyInfo as the certificate holds them, never with a key that was
   parsed and written again: a key of ``id-RSASSA-PSS`` would come back as another one (RFC 8017, RFC 4055).
2. A certificate comes from the peer. One that cannot be read is not pinned and has no name; it raises nothing.
3. A pinned certificate is within its dates, and an RSA key has at least ``RSA_BITS_MIN`` bits, as everywhere in TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509

RSA_BITS_MIN: Final = 2048
_SEQUENCE, _INTEGER, _EXPLICIT_0 = 0x30, 0x02, 0xA0


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What an operator wants to know of a certificate.

    Args:
        subject: common name or organization of whom it is for.
        issuer: the same of who issued it.
        ends: when it ends.
    """

    subject: str
    issuer: str
    ends: datetime

    def days_left(self, now: datetime) -> int:
        """Whole days until it ends; negative once it has ended."""
        return (self.ends - now).days


def facts_of(der: bytes | None) -> CertificateFacts | None:
    """Names and end of a certificate, DER; None where it cannot be read (rule 2)."""
    from cryptography import x509

    try:
        return _facts(x509.load_der_x509_certificate(der or b""))
    except Exception:  # noqa: BLE001 - whatever a peer's bytes make the parser raise, they are no certificate
        return None


def authorities_of(pem: str) -> tuple[CertificateFacts, ...]:
    """Names and ends of the certificates of a CA file; none where it cannot be read."""
    from cryptography import x509

    try:
        return tuple(_facts(certificate) for certificate in x509.load_pem_x509_certificates(pem.encode("ascii")))
    except Exception:  # noqa: BLE001 - as above; that the file is no CA set is said where it is loaded
        return ()


def is_pinned(der: bytes | None, pin: str, now: datetime) -> bool:
    """True if a certificate holds the pinned key, strong enough, within its dates (rules 1 to 3).

    Args:
        der: the peer's certificate.
        pin: ``sha256:`` digest of its SubjectPublicKeyInfo.
        now: the wall clock, aware.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        certificate = x509.load_der_x509_certificate(der or b"")
        dated = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
        key = certificate.public_key()
        spki = public_key_info(certificate.tbs_certificate_bytes)
    except Exception:  # noqa: BLE001 - as above
        return False
    strong = not isinstance(key, rsa.RSAPublicKey) or key.key_size >= RSA_BITS_MIN
    return dated and strong and hmac.compare_digest("sha256:" + hashlib.sha256(spki).hexdigest(), pin)


def public_key_info(tbs: bytes) -> bytes:
    """The bytes of the SubjectPublicKeyInfo in a TBSCertificate, DER (RFC 5280, section 4.1).

    Raises:
        ValueError: the structure is another one.
    """
    at, end = _content(tbs, 0, _SEQUENCE)
    if tbs[at : at + 1] == bytes([_EXPLICIT_0]):
        at = _content(tbs, at, _EXPLICIT_0)[1]
    at = _content(tbs, at, _INTEGER)[1]
    for _ in ("signature", "issuer", "validity", "subject"):
        at = _content(tbs, at, _SEQUENCE)[1]
    stop = _content(tbs, at, _SEQUENCE)[1]
    if stop > end:
        raise ValueError("a certificate ends before its key")
    return tbs[at:stop]


def _content(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Begin and end of an element's content; the element has this tag and ends within the data."""
    if at + 2 > len(data) or data[at] != tag:
        raise ValueError("an element has another tag")
    size, begin = data[at + 1], at + 2
    if size >= 0x80:
        width = size & 0x7F
        size, begin = int.from_bytes(data[begin : begin + width], "big"), begin + width
    if begin + size > len(data):
        raise ValueError("an element is longer than what holds it")
    return begin, begin + size


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    return CertificateFacts(
        _name(certificate.subject), _name(certificate.issuer), certificate.not_valid_after_utc.astimezone(UTC)
    )


def _name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME) or name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    text = str(found[0].value) if found else "somebody without a name"
    return "".join(char if char.isprintable() else "?" for char in text[:80])
