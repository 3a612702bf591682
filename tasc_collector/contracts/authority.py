"""Public keys that a record names as an authority (original project, section 3.1)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.scalars import B64u, Slug
from tasc_collector.errors import SignatureError
from tasc_collector.signing import PublicKey


def _acceptable(spki: str) -> str:
    try:
        PublicKey.from_spki(spki)
    except SignatureError as error:
        raise ValueError(error.what) from None
    return spki


PublicKeySpki = Annotated[B64u, AfterValidator(_acceptable)]
"""Canonical Ed25519 SPKI DER in base64url, not one of the low-order or non-canonical points."""


class AuthorityKey(Model):
    """One Ed25519 public key under the id that signatures name."""

    key_id: Slug
    algorithm: Literal["ed25519"] = "ed25519"
    public_key_spki: PublicKeySpki
