"""Keys of the state folder: made locally, one file each (0600), public halves in the key ring.

Role keys are Ed25519 in PKCS8 DER, base64url without padding and without a final newline; HMAC keys are 32 random bytes
in the same form. The payload and the journal have two different HMAC keys. Copy ``operator.key`` to the operator's own
machine and delete it here where the collecting host must not be able to approve its own plans.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.operations import KeyRing, KeyRole, RingKey
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized, SecretUnavailable
from tasc_collector.identity import PayloadKey
from tasc_collector.secrets import resolve
from tasc_collector.signing import PublicKey, SigningKey, decode_b64u, encode_b64u
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home

SIGNING_ROLES: Final[tuple[KeyRole, ...]] = ("operator", "dispatch", "collector")
HMAC_KEYS: Final = ("payload-hmac", "journal-hmac")
KEY_VALIDITY = timedelta(days=365)
"""A new role key is valid for a year."""


def key_file(home: Home, name: str) -> Path:
    """File of one private key."""
    return home.keys / f"{name}.key"


def create_missing(home: Home, now: datetime) -> list[str]:
    """Make every key that is not there yet and add new public keys to the ring; returns the names of the new ones."""
    made: list[str] = []
    for name in HMAC_KEYS:
        if not key_file(home, name).exists():
            write_file(key_file(home, name), encode_b64u(secrets.token_bytes(32)).encode())
            made.append(name)
    entries = list(read_ring(home).keys) if home.key_ring.exists() else []
    known = {entry.role for entry in entries}
    for role in SIGNING_ROLES:
        if role not in known:
            entries.append(new_key(home, role, now))
            made.append(role)
    if made:
        write_file(home.key_ring, KeyRing(keys=tuple(entries)).canonical(), replace=True)
    return made


def new_key(home: Home, role: KeyRole, now: datetime) -> RingKey:
    """Make one signing key and its ring entry; the key file is written first."""
    key = SigningKey.generate()
    key_id = f"{role}-{now:%Y%m%d}-{secrets.token_hex(3)}"
    write_file(key_file(home, role), key.to_pkcs8().encode(), replace=True)
    return RingKey(
        key_id=key_id,
        role=role,
        public_key_spki=key.public_key.spki,
        valid_from=format_timestamp(now),
        valid_until=format_timestamp(now + KEY_VALIDITY),
        revoked_at=None,
    )


def read_ring(home: Home) -> KeyRing:
    """The key ring; ``InputError`` where there is none."""
    return read_record_file(KeyRing, home.key_ring).record


def current(ring: KeyRing, role: KeyRole, at: str) -> RingKey:
    """The newest key of a role that is valid at an instant.

    Raises:
        NotAuthorized: there is none; says how to make one.
    """
    valid = [key for key in ring.keys if key.role == role and is_valid(key, at)]
    if not valid:
        raise NotAuthorized(
            f"no valid {role} key",
            where="key-ring.json",
            rule=f"valid at {at}",
            way_out="import its public key: tasc keys import FILE --role evaluator"
            if role == "evaluator"
            else f"make one: tasc keys rotate {role}",
        )
    return max(valid, key=lambda key: key.valid_from)


def is_valid(key: RingKey, at: str) -> bool:
    """Whether a key may have signed at an instant."""
    return refusal_at(key, at) is None


def has_ended(key: RingKey, at: str) -> bool:
    """Whether a key may sign nothing from an instant on, for good; one that is not valid yet has not ended."""
    return (key.revoked_at is not None and key.revoked_at <= at) or key.valid_until <= at


def refusal_at(key: RingKey, at: str) -> str | None:
    """The rule by which a signature of a key, dated at an instant, does not count; None where it does.

    What was signed while the key was valid keeps counting after its end; a revocation counts from its own date on.
    """
    if key.revoked_at is not None and at >= key.revoked_at:
        return f"revoked from {key.revoked_at}, the signature is of {at}"
    if at < key.valid_from:
        return f"valid from {key.valid_from}, the signature is of {at}"
    if at >= key.valid_until:
        return f"valid until {key.valid_until}, the signature is of {at}"
    return None


def public_key(ring: KeyRing, key_id: str, roles: tuple[KeyRole, ...], at: str, *, where: str) -> PublicKey:
    """The public key that a signature names, if it had one of the roles and was valid at the instant of signing.

    Raises:
        NotAuthorized: unknown, wrong role, not yet or no longer valid, or revoked.
    """
    entry = next((key for key in ring.keys if key.key_id == key_id), None)
    if entry is None:
        problem, rule = "is not in the key ring", None
    elif entry.role not in roles:
        problem, rule = f"has the role {entry.role}, which may not sign this", f"role {' or '.join(roles)}"
    else:
        problem, rule = "was not valid or was revoked when it signed", refusal_at(entry, at)
        if rule is None:
            return PublicKey.from_spki(entry.public_key_spki)
    raise NotAuthorized(
        f"the signing key {problem}",
        where=where,
        field="signature.authorityKeyId",
        rule=rule,
        way_out="run: tasc keys list",
    )


def role_of(ring: KeyRing, key_id: str) -> KeyRole | None:
    """The role of a key of the ring; None where there is no such key."""
    return next((key.role for key in ring.keys if key.key_id == key_id), None)


def collector_keys(home: Home) -> dict[str, PublicKey]:
    """Every collector key of the ring by its id, retired ones too: what they signed while they were valid still counts."""
    return {
        key.key_id: PublicKey.from_spki(key.public_key_spki) for key in read_ring(home).keys if key.role == "collector"
    }


def signing_key(home: Home, reference: str, environ: Mapping[str, str] | None = None) -> SigningKey:
    """The private key behind a reference such as ``keyfile:dispatch``."""
    return SigningKey.from_pkcs8(_text(home, reference, environ))


def authority_key(
    home: Home, reference: str, authority: AuthorityKey, environ: Mapping[str, str] | None = None
) -> SigningKey:
    """The private key of the authority that a study names: behind its reference, or kept when the role was rotated.

    Args:
        home: the state folder.
        reference: where the study says that the key is.
        authority: the public half that its protocol or comparison names.
        environ: environment to look in; the process's if None.

    Raises:
        DigestMismatch: neither is the authority's.
        SecretUnavailable: the reference has no usable value.
    """
    key = signing_key(home, reference, environ)
    kept = f"{authority.key_id}.key"
    if key.public_key.spki != authority.public_key_spki and (home.keys / kept).is_file():
        key = signing_key(home, f"keyfile:{kept}", environ)
    if key.public_key.spki != authority.public_key_spki:
        raise DigestMismatch(
            "the private key is not that of the authority which the study names",
            where=reference,
            field=authority.key_id,
            way_out="restore the key file, or make a successor with the new key: tasc study fork",
        )
    return key


def hmac_key(home: Home, reference: str, environ: Mapping[str, str] | None = None) -> bytes:
    """The bytes behind a reference such as ``keyfile:journal-hmac``.

    Raises:
        SecretUnavailable: not base64url of at least 32 bytes.
    """
    try:
        secret = decode_b64u(_text(home, reference, environ))
    except InputError:
        secret = b""
    if len(secret) < 32:
        raise SecretUnavailable("an HMAC key is at least 32 bytes in base64url", way_out="run: tasc keys list")
    return secret


def payload_key(home: Home, study_id: str, key_id: str, reference: str) -> PayloadKey:
    """The payload key of a study."""
    return PayloadKey(study_id, key_id, hmac_key(home, reference))


def _text(home: Home, reference: str, environ: Mapping[str, str] | None) -> str:
    return resolve(
        reference, environ=environ if environ is not None else os.environ, key_folder=home.keys
    ).reveal_text()


def save_ring(home: Home, ring: KeyRing) -> None:
    """Replace the key ring."""
    write_file(home.key_ring, canonical_bytes(ring.to_json()), replace=True)
