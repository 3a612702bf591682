"""Standing authorizations of a study: one file each, signed by the operator, and the revocation beside it.

``authorizations/<id>.json`` and ``authorizations/<id>.revocation.json``. A file that no operator's key signed, or that
was edited, makes every use of the folder fail: what cannot be read cannot be obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.collection import AuthorizationRevocation, StandingAuthorization
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import DigestMismatch, NotAuthorized
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home

_REVOCATION = ".revocation.json"


@dataclass(frozen=True, slots=True)
class Held:
    """An authorization with its revocation, both verified."""

    authorization: Parsed[StandingAuthorization]
    revocation: AuthorizationRevocation | None


def held(home: Home, ring: KeyRing, study_id: str) -> tuple[Held, ...]:
    """Every authorization in a study's folder, the newest first.

    Raises:
        InputError: a file is no such record, or is not what its name says.
        SignatureError: no operator's key of the ring signed it.
    """
    folder = home.authorizations(study_id)
    found = [
        _held(home, ring, study_id, path.stem)
        for path in sorted(folder.glob("*.json"))
        if not path.name.endswith(_REVOCATION)
    ]
    return tuple(sorted(found, key=lambda item: item.authorization.record.issued_at, reverse=True))


def held_by_digest(home: Home, ring: KeyRing, study_id: str, digest: str) -> Held:
    """The authorization that a record names.

    Raises:
        NotAuthorized: the study's folder has no authorization with this digest.
    """
    for item in held(home, ring, study_id):
        if item.authorization.record.digest == digest:
            return item
    raise NotAuthorized(
        "the standing authorization that the record names is not in the study's folder",
        where=study_id,
        field="authorizationDigest",
        rule="the operator's word is compared first",
        way_out="restore the file in authorizations/, or issue another: tasc authorize new " + study_id,
    )


def held_by_id(home: Home, ring: KeyRing, study_id: str, authorization_id: str) -> Held:
    """The authorization with an id.

    Raises:
        NotAuthorized: there is none; names those that there are.
    """
    every = held(home, ring, study_id)
    for item in every:
        if item.authorization.record.authorization_id == authorization_id:
            return item
    known = ", ".join(item.authorization.record.authorization_id for item in every) or "none"
    raise NotAuthorized(
        f"there is no such standing authorization (known: {known})",
        where=study_id,
        field=authorization_id[:80],
        way_out=f"run: tasc authorize show {study_id}",
    )


def store(home: Home, authorization: StandingAuthorization) -> None:
    """Write a new authorization; another one with its id is refused."""
    folder = home.authorizations(authorization.study_id)
    make_folder(folder)
    write_file(folder / f"{authorization.authorization_id}.json", authorization.canonical())


def store_revocation(home: Home, authorization: StandingAuthorization, revocation: AuthorizationRevocation) -> None:
    """Write a revocation beside what it takes back; it can be written once."""
    folder = home.authorizations(authorization.study_id)
    write_file(folder / f"{authorization.authorization_id}{_REVOCATION}", revocation.canonical())


def _held(home: Home, ring: KeyRing, study_id: str, authorization_id: str) -> Held:
    folder = home.authorizations(study_id)
    path = folder / f"{authorization_id}.json"
    parsed = read_record_file(StandingAuthorization, path)
    record = parsed.record
    signer = keys.public_key(ring, record.signature.authority_key_id, ("operator",), record.issued_at, where=str(path))
    StandingAuthorization.check_signature(parsed, signer, where=str(path))
    if (record.study_id, record.authorization_id) != (study_id, authorization_id):
        raise DigestMismatch(
            "the authorization is for another study, or is not what its file's name says",
            where=str(path),
            field="studyId" if record.study_id != study_id else "authorizationId",
            rule=f"{record.study_id}/{record.authorization_id}",
            way_out="move the file back to where it was written",
        )
    taken_back = folder / f"{authorization_id}{_REVOCATION}"
    if not taken_back.exists():
        return Held(parsed, None)
    revoked = read_record_file(AuthorizationRevocation, taken_back)
    signer = keys.public_key(
        ring,
        revoked.record.signature.authority_key_id,
        ("operator",),
        revoked.record.revoked_at,
        where=str(taken_back),
    )
    AuthorizationRevocation.check_signature(revoked, signer, where=str(taken_back))
    if revoked.record.authorization_digest != record.digest:
        raise DigestMismatch(
            "the revocation is for another authorization",
            where=str(taken_back),
            field="authorizationDigest",
            way_out="move the file back to where it was written",
        )
    return Held(parsed, revoked.record)
