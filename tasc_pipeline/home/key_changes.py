"""Changing keys with dates: rotation, revocation, and public keys from elsewhere. Every change replaces the key ring whole.

Rules:

1. Rotation: the role's new key is valid from now; the old one signs no longer than the overlap. What it signed while it
   was valid keeps counting, by the date in the record. Its private file is kept under its key id until it ends, because
   a study names its dispatch and collector keys for life.
2. The overlap is zero for the operator, whose key no study names, and 30 days for dispatch and collector unless said
   otherwise: so long running studies may go on; then they need a successor (``tasc study fork``), which names the new
   keys.
3. Revocation says since when a key is not trusted: now, or an earlier date if it was lost earlier. From then on its
   signatures do not count, also those of records that had been accepted. It is never taken back or moved later.
4. A date inside a record is its signer's word: who holds a stolen key can write an earlier one. Where that is feared,
   revoke with the date since which the key may have been in other hands, and rotate.
5. Import adds public keys of one named role from a ring file that another machine wrote, and takes over revocations. It
   never changes what is known otherwise: another key under a known id, or a known key under another id, is refused.
6. The steps of a rotation are ordered so that a crash between any two leaves a ring and files that agree or are put
   right by ``finish_rotation``, which ``tasc init`` and the next rotation run.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from tasc_collector.contracts.operations import KeyRing, KeyRole, RingKey
from tasc_collector.contracts.scalars import format_timestamp, timestamp_ms
from tasc_collector.errors import InputError, NotAuthorized, SecretUnavailable
from tasc_collector.signing import SigningKey, encode_b64u
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home

OVERLAP: Final = timedelta(days=30)
"""Rule 2."""
MAX_OVERLAP: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did."""

    new: RingKey
    old: RingKey | None
    """The key that it replaces, with its new end; None where the role had none."""


def rotate(home: Home, role: KeyRole, now: datetime, *, overlap: timedelta | None = None) -> Rotation:
    """Make a new key for a role (rules 1, 2 and 6).

    Args:
        home: the state folder.
        role: whose key; an evaluator's private key is never here.
        now: the wall clock.
        overlap: how long the old key may still sign; rule 2 if None.

    Raises:
        InputError: the role has no private key here, or the overlap is out of bounds.
    """
    if role not in keys.SIGNING_ROLES:
        raise InputError(
            f"the {role}'s private key is not made here",
            where="tasc keys rotate",
            rule=f"one of {', '.join(keys.SIGNING_ROLES)}",
            way_out=f"import its new public key: tasc keys import FILE --role {role}",
        )
    overlap = (timedelta(0) if role == "operator" else OVERLAP) if overlap is None else overlap
    if not timedelta(0) <= overlap <= MAX_OVERLAP:
        raise InputError(
            "the overlap is out of bounds",
            where="--overlap-days",
            rule=f"0 to {MAX_OVERLAP.days} days",
            way_out="choose a shorter one",
        )
    finish_rotation(home, role)
    ring, at = keys.read_ring(home), format_timestamp(now)
    old = _current(ring, role, at)
    key, key_id = SigningKey.generate(), f"{role}-{now:%Y%m%d}-{secrets.token_hex(3)}"
    new = RingKey(
        key_id=key_id,
        role=role,
        public_key_spki=key.public_key.spki,
        valid_from=at,
        valid_until=format_timestamp(now + keys.KEY_VALIDITY),
        revoked_at=None,
    )
    _keep(home, ring, role)
    write_file(home.keys / f"{key_id}.key", key.to_pkcs8().encode())
    ended = None if old is None else _ended(old, at, format_timestamp(now + overlap))
    keys.save_ring(home, _replaced(ring, ended, new))
    finish_rotation(home, role)
    return Rotation(new, ended)


def new_hmac_key(home: Home, name: str, now: datetime) -> str:
    """Make another HMAC key beside the one there is, for a new study to name; an old study keeps its own for life.

    Args:
        home: the state folder.
        name: payload-hmac or journal-hmac.
        now: the wall clock.

    Returns:
        Its reference, as ``study.toml`` names it.
    """
    file = f"{name}-{now:%Y%m%d}-{secrets.token_hex(3)}.key"
    write_file(home.keys / file, encode_b64u(secrets.token_bytes(32)).encode())
    return f"keyfile:{file}"


def finish_rotation(home: Home, role: KeyRole) -> bool:
    """Put the newest key of a role into its place where a rotation was cut off (rule 6); True where that was needed."""
    ring, place = keys.read_ring(home), keys.key_file(home, role)
    newest = max((key for key in ring.keys if key.role == role), key=lambda key: key.valid_from, default=None)
    if newest is None:
        return False
    waiting = home.keys / f"{newest.key_id}.key"
    if not waiting.is_file() or _public(home, place) == newest.public_key_spki:
        return False
    write_file(place, waiting.read_bytes(), replace=True)
    return True


def revoke(home: Home, key_id: str, now: datetime, *, since: str | None = None) -> RingKey:
    """Take trust from a key from a date on (rule 3).

    Args:
        home: the state folder.
        key_id: the key.
        now: the wall clock.
        since: the date; now if None.

    Raises:
        InputError: no such key, or a date after now.
        NotAuthorized: it would move a revocation later.
    """
    ring, at = keys.read_ring(home), format_timestamp(now)
    entry = next((key for key in ring.keys if key.key_id == key_id), None)
    if entry is None:
        raise InputError(
            "there is no such key in the key ring",
            where="tasc keys revoke",
            field=key_id,
            way_out="run: tasc keys list",
        )
    date = since or at
    try:
        timestamp_ms(date)
    except ValueError as error:
        raise InputError(
            "this is no instant", where="--since", rule=str(error), way_out="write it like 2026-01-31T09:30:00.000Z"
        ) from None
    if date > at:
        raise InputError(
            "a revocation is not dated after now",
            where="--since",
            rule=f"not after {at}",
            way_out="end a key at a later date by rotating it with an overlap",
        )
    if entry.revoked_at is not None and since is None:
        return entry
    if entry.revoked_at is not None and date > entry.revoked_at:
        raise NotAuthorized(
            "a revocation never moves later",
            where="--since",
            field=key_id,
            rule=f"revoked from {entry.revoked_at}",
            way_out="choose an earlier date, or leave it as it is",
        )
    revoked = entry.model_copy(update={"revoked_at": date})
    keys.save_ring(home, _replaced(ring, revoked))
    return revoked


def import_public(home: Home, path: Path, role: KeyRole) -> list[RingKey]:
    """Add public keys of a role from a ring file, and take over revocations (rule 5).

    Args:
        home: the state folder.
        path: a ``tasc-key-ring-v1`` file, as ``tasc keys public`` prints it.
        role: only keys of this role are taken.

    Returns:
        The entries that are new or have changed.

    Raises:
        InputError: the file holds no key of the role, or contradicts what is known. A low-order key is refused.
    """
    offered = [key for key in read_record_file(KeyRing, path).record.keys if key.role == role]
    if not offered:
        raise InputError(
            f"the file holds no {role} key", where=path.name, field="keys", way_out="name the role that it holds"
        )
    ring, changed = keys.read_ring(home), []
    for entry in offered:
        known = next(
            (key for key in ring.keys if entry.key_id == key.key_id or entry.public_key_spki == key.public_key_spki),
            None,
        )
        if known is None:
            taken = entry
        elif (known.key_id, known.role, known.public_key_spki) != (entry.key_id, entry.role, entry.public_key_spki):
            raise InputError(
                "the key ring knows this id or this key as another",
                where=path.name,
                field=entry.key_id,
                rule="one key has one id and one role",
                way_out="give the new key a new id where it was made",
            )
        elif entry.revoked_at is not None and (known.revoked_at is None or entry.revoked_at < known.revoked_at):
            taken = known.model_copy(update={"revoked_at": entry.revoked_at})
        else:
            continue
        ring = _replaced(ring, taken)
        changed.append(taken)
    if changed:
        keys.save_ring(home, ring)
    return changed


def public_part(ring: KeyRing, key_ids: tuple[str, ...]) -> KeyRing:
    """A ring file of the named keys, or of all: public halves, to take to another machine.

    Raises:
        InputError: a key is not in the ring.
    """
    known = {key.key_id: key for key in ring.keys}
    missing = [key_id for key_id in key_ids if key_id not in known]
    if missing:
        raise InputError(
            "there is no such key in the key ring",
            where="tasc keys public",
            field=missing[0],
            way_out="run: tasc keys list",
        )
    return KeyRing(keys=tuple(known[key_id] for key_id in key_ids) or ring.keys)


def _current(ring: KeyRing, role: KeyRole, at: str) -> RingKey | None:
    valid = [key for key in ring.keys if key.role == role and keys.is_valid(key, at)]
    return max(valid, key=lambda key: key.valid_from, default=None)


def _ended(old: RingKey, at: str, until: str) -> RingKey:
    """The old key with its end; it is valid for at least the instant in which it began."""
    end = min(old.valid_until, max(until, at))
    return old.model_copy(update={"valid_until": end}) if end > old.valid_from else old


def _replaced(ring: KeyRing, *entries: RingKey | None) -> KeyRing:
    """The ring with entries put in the place of those of the same id, or added."""
    found = {key.key_id: key for key in ring.keys}
    found.update({entry.key_id: entry for entry in entries if entry is not None})
    return KeyRing(keys=tuple(found.values()))


def _keep(home: Home, ring: KeyRing, role: KeyRole) -> None:
    """Keep the private key that is in place now under its id, before another takes the place."""
    place = keys.key_file(home, role)
    spki = _public(home, place)
    entry = next((key for key in ring.keys if key.public_key_spki == spki), None)
    if entry is not None:
        write_file(home.keys / f"{entry.key_id}.key", place.read_bytes())


def _public(home: Home, place: Path) -> str | None:
    """The public half of a private key file; None where there is none, as on a host without the operator's key."""
    if not place.exists():
        return None
    try:
        return keys.signing_key(home, f"keyfile:{place.name}").public_key.spki
    except SecretUnavailable:
        return None
