"""Records that carry one Ed25519 signature over their own content.

The signature covers ``{"domain": "<record domain>/signature", "record": <value without signature>}`` in canonical form;
the record's digest is that of its content without the signature, so that an unsigned draft and the signed record have
one identity.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Model, Parsed, Record
from tasc_collector.contracts.scalars import B64u, Slug
from tasc_collector.signing import PublicKey, SigningKey, verify


class Signature(Model):
    """Who signed, how, and the 64 bytes."""

    authority_key_id: Slug
    signature_algorithm: Literal["ed25519"] = "ed25519"
    signature: B64u


class SignedRecord(Record):
    """A record with a ``signature`` field."""

    signature: Signature

    @classmethod
    def digest_of(cls, value: dict[str, Any]) -> str:  # Any: a JSON object
        """Digest of the content without its signature."""
        return digest(cls.domain, {key: item for key, item in value.items() if key != "signature"})

    @classmethod
    def sign_with(cls, key: SigningKey, key_id: str, **fields: Any) -> Self:  # Any: validated by the model
        """Build the record and sign it."""
        unsigned = Signature(authority_key_id=key_id, signature="A" * 86)
        draft = cls(**fields, signature=unsigned).to_json()
        del draft["signature"]
        signature = Signature(authority_key_id=key_id, signature=key.sign(f"{cls.domain}/signature", "record", draft))
        return cls(**fields, signature=signature)

    @classmethod
    def check_signature(cls, parsed: Parsed[Self], key: PublicKey, *, where: str | None = None) -> None:
        """Verify over the value that was read.

        Raises:
            SignatureError: the bytes are not what ``key`` signed.
        """
        content = {name: item for name, item in parsed.value.items() if name != "signature"}
        signature = parsed.record.signature.signature
        verify(key, f"{cls.domain}/signature", "record", content, signature, where=where or cls.__name__)
