"""Whose private key signs: the operator's where a person gives a command, the dispatch key under a standing authorization.

The key id is that of the public half in the key ring, so a retired or foreign private key signs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.operations import KeyRing, KeyRole, RingKey
from tasc_collector.contracts.study import Study
from tasc_collector.errors import NotAuthorized
from tasc_collector.signing import SigningKey
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy

OPERATOR_KEY: Final = "keyfile:operator.key"


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key and the id of its public half."""

    key: SigningKey = field(repr=False)
    key_id: str


def operator(home: Home, ring: KeyRing, at: str) -> Signer:
    """The operator's key; it need not lie on a host that only collects.

    Raises:
        SecretUnavailable: the key is not here.
        NotAuthorized: it was not valid at that instant.
    """
    return _signer(ring, keys.signing_key(home, OPERATOR_KEY), "operator", at)


def dispatch(home: Home, ring: KeyRing, study: Study, at: str) -> Signer:
    """The study's dispatch key.

    Raises:
        SecretUnavailable: the key is not here.
        NotAuthorized: it was not valid at that instant.
    """
    return _signer(ring, keys.signing_key(home, study.keys.dispatch_signing), "dispatch", at)


def collector(home: Home, ring: KeyRing, study: Study, at: str) -> Signer:
    """The study's collector key.

    Raises:
        SecretUnavailable: the key is not here.
        NotAuthorized: it was not valid at that instant.
    """
    return _signer(ring, keys.signing_key(home, study.keys.collector_signing), "collector", at)


def require_authorities(ring: KeyRing, loaded: LoadedStudy, at: str, *, send: bool = True) -> None:
    """Check that the two keys that a study names may sign what is sent and received now.

    Args:
        ring: public keys.
        loaded: the study.
        at: the instant.
        send: False where nothing is sent: what is settled is signed by the collector alone.

    Raises:
        NotAuthorized: one is not in the key ring, has ended or was revoked; nothing was sent.
    """
    named = _authorities(ring, loaded)
    for role, authority, entry in named if send else named[1:]:
        rule = "it is in the key ring with its role" if entry is None else keys.refusal_at(entry, at)
        if rule is not None:
            study_id = loaded.study.study_id
            raise NotAuthorized(
                f"the {role} key that the study names may not sign now",
                where=study_id,
                field=authority.key_id,
                rule=rule,
                way_out=f"make a successor that names the new keys: tasc study fork {study_id}",
            )


def authority_ended(ring: KeyRing, loaded: LoadedStudy, at: str) -> bool:
    """Whether one of the two keys that a study names is in the key ring and has ended or was revoked, for good."""
    return any(entry is not None and keys.has_ended(entry, at) for _, _, entry in _authorities(ring, loaded))


def _authorities(ring: KeyRing, loaded: LoadedStudy) -> list[tuple[KeyRole, AuthorityKey, RingKey | None]]:
    """The two keys that a study names, with their entries in the key ring; None where it is not there as such."""
    named: tuple[tuple[KeyRole, AuthorityKey], ...] = (
        ("dispatch", loaded.rules.dispatch_authority),
        ("collector", loaded.rules.collector_authority),
    )
    known = {(key.key_id, key.role, key.public_key_spki): key for key in ring.keys}
    return [(role, key, known.get((key.key_id, role, key.public_key_spki))) for role, key in named]


def _signer(ring: KeyRing, key: SigningKey, role: KeyRole, at: str) -> Signer:
    for entry in ring.keys:
        if entry.role == role and entry.public_key_spki == key.public_key.spki and keys.is_valid(entry, at):
            return Signer(key, entry.key_id)
    raise NotAuthorized(
        f"the {role} key that lies here is not valid in the key ring",
        where="key-ring.json",
        rule=f"role {role}, valid at {at}",
        way_out="run: tasc keys list",
    )
