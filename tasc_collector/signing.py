"""Ed25519 over canonical bytes: private keys that do not print, public keys that are checked when they enter.

Rules:

1. What is signed is the RFC 8785 form of ``{"domain": D, <field>: value}``; one domain per purpose, so that a
   signature for one purpose is worth nothing for another.
2. A public key is canonical SPKI DER in unpadded base64url and not one of the 14 encodings of low-order points; a y
   coordinate of 2^255-19 or more is not canonical. The library below accepts both; under a low-order key one signature
   verifies for many messages (RFC 8032 5.1.7; Chalkias et al., "Taming the many EdDSAs"). A private key is PKCS #8 DER of
   the one form that OpenSSL and we write.
3. A signature is 64 bytes, canonical unpadded base64url; s must be reduced, which the library checks.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tasc_collector.canonical import JsonValue, canonical_bytes
from tasc_collector.errors import SignatureError

_FIELD_PRIME = 2**255 - 19
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""DER of an Ed25519 SubjectPublicKeyInfo up to the 32 key bytes (RFC 8410)."""
_PKCS8_PREFIX = bytes.fromhex("302e020100300506032b657004220420")
"""DER of an Ed25519 PrivateKeyInfo up to the 32 key bytes (RFC 8410 7), without attributes or public key."""
_LOW_ORDER_Y = frozenset(
    int.from_bytes(bytes.fromhex(encoding), "little")
    for encoding in (
        "0000000000000000000000000000000000000000000000000000000000000000",  # order 4
        "0100000000000000000000000000000000000000000000000000000000000000",  # order 1
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # order 2
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",  # order 8
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",  # order 8
    )
)
"""The y coordinates of the eight points whose order divides 8; with either sign bit and unreduced y, 14 encodings."""
_WAY_OUT = "make a new key pair and name its public key"


def encode_b64u(data: bytes) -> str:
    """Unpadded base64url of bytes."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode_b64u(text: str) -> bytes:
    """Bytes of canonical unpadded base64url.

    Raises:
        SignatureError: other characters, padding, or spare bits that are not zero. The text is never shown.
    """
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        data = b""
    if encode_b64u(data) != text:
        raise SignatureError("not canonical unpadded base64url", way_out="write the value again from its bytes")
    return data


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key that passed the checks of rule 2."""

    raw: bytes
    """The 32 bytes of the point."""

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise SignatureError("an Ed25519 public key has 32 bytes", way_out=_WAY_OUT)
        y = int.from_bytes(self.raw, "little") & (2**255 - 1)
        if y % _FIELD_PRIME in _LOW_ORDER_Y:
            raise SignatureError("the public key is a low-order point, under which anyone can sign", way_out=_WAY_OUT)
        if y >= _FIELD_PRIME:
            raise SignatureError("the public key is not a canonical encoding of its point", way_out=_WAY_OUT)

    @classmethod
    def from_spki(cls, spki: str) -> Self:
        """Read a canonical SPKI DER in unpadded base64url.

        Raises:
            SignatureError: another algorithm or encoding, a low-order or non-canonical point.
        """
        der = decode_b64u(spki)
        if not der.startswith(_SPKI_PREFIX) or len(der) != len(_SPKI_PREFIX) + 32:
            raise SignatureError("not a canonical Ed25519 public key (SPKI DER)", way_out=_WAY_OUT)
        return cls(der[len(_SPKI_PREFIX) :])

    @property
    def spki(self) -> str:
        """SPKI DER in unpadded base64url, as records hold it."""
        return encode_b64u(_SPKI_PREFIX + self.raw)

    def accepts(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` is this key's over ``message``."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An Ed25519 private key. Its representation shows the public half only; it refuses to be pickled or copied."""

    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """A new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pkcs8(cls, text: str) -> Self:
        """Read PKCS #8 DER in unpadded base64url, as key files and environment values hold it.

        Raises:
            SignatureError: not that; the text is never shown.
        """
        try:
            der = decode_b64u(text)
        except SignatureError:
            der = b""
        if not der.startswith(_PKCS8_PREFIX) or len(der) != len(_PKCS8_PREFIX) + 32:
            raise SignatureError(
                "not an Ed25519 private key (PKCS #8 DER in base64url)",
                way_out="write the key file again with `tasc keys`",
            )
        return cls(Ed25519PrivateKey.from_private_bytes(der[len(_PKCS8_PREFIX) :]))

    def to_pkcs8(self) -> str:
        """PKCS #8 DER in unpadded base64url, for a key file. Never log it."""
        return encode_b64u(_PKCS8_PREFIX + self._key.private_bytes_raw())

    @property
    def public_key(self) -> PublicKey:
        """The public half."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign_bytes(self, message: bytes) -> bytes:
        """The 64-byte signature over ``message``."""
        return self._key.sign(message)

    def sign(self, domain: str, field_name: str, value: JsonValue) -> str:
        """Signature over the canonical form of ``{"domain": domain, field_name: value}``, in unpadded base64url."""
        return encode_b64u(self.sign_bytes(signing_bytes(domain, field_name, value)))

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public_key.spki})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a signing key stays in the process that read it")

    def __copy__(self) -> Self:
        raise TypeError("a signing key is not copied")

    def __deepcopy__(self, memo: object) -> Self:
        raise TypeError("a signing key is not copied")


def signing_bytes(domain: str, field_name: str, value: JsonValue) -> bytes:
    """The bytes that are signed for a value: canonical ``{"domain": domain, field_name: value}``."""
    return canonical_bytes({"domain": domain, field_name: value})


def is_signed(key: PublicKey, domain: str, field_name: str, value: JsonValue, signature: str) -> bool:
    """Whether a signature is that of a key over a value; malformed ones are simply not.

    Args:
        key: Ed25519 public key.
        domain: of the record; a signature counts in no other one.
        field_name: of the value in the signed object, see ``signing_bytes``.
        value: JSON; its canonical bytes are signed.
        signature: 64 bytes in base64url without padding.
    """
    try:
        raw = decode_b64u(signature)
    except SignatureError:
        return False
    return len(raw) == 64 and key.accepts(raw, signing_bytes(domain, field_name, value))


def verify(
    key: PublicKey, domain: str, field_name: str, value: JsonValue, signature: str, *, where: str | None = None
) -> None:
    """Check a signature.

    Args:
        key: the key that must have signed.
        domain: purpose of the signature.
        field_name: name of the signed member beside ``domain``.
        value: the JSON value as it was read, without the signature.
        signature: unpadded base64url.
        where: file or record, for the message.

    Raises:
        SignatureError: it is not that key's signature over that value.
    """
    if not is_signed(key, domain, field_name, value, signature):
        raise SignatureError(
            "the signature is not that of the named key over this content",
            where=where,
            way_out="get the file again from who signed it, or correct which key is trusted",
        )
