"""Giving and taking back a standing authorization, and what is left of one. The operator's key signs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import TypeVar

from pydantic import ValidationError

from tasc_collector.contracts.base import input_error
from tasc_collector.contracts.collection import (
    AuthorizationRevocation,
    AuthorizedTarget,
    Ceilings,
    Purpose,
    StandingAuthorization,
)
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_pipeline.control.authorizations import CEILINGS, check_recurring, in_force, spent
from tasc_pipeline.control.purposes import PURPOSES
from tasc_pipeline.home import authorizations, keys, signers
from tasc_pipeline.home.authorizations import Held
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.signers import Signer
from tasc_pipeline.home.studies import load_study, study_ids
from tasc_pipeline.steps.prepare import check_next_window


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator allows.

    Args:
        ceilings: how much.
        expires_at: until when.
        authorization_id: readable id; made from the date if None.
        purposes: what may be collected; every purpose of the study's kind if empty.
        effects: effects of probes that may be made.
    """

    ceilings: Ceilings
    expires_at: str
    authorization_id: str | None = None
    purposes: tuple[Purpose, ...] = ()
    effects: tuple[str, ...] = ()


def authorize(home: Home, study_id: str, wanted: Wanted, now: datetime) -> StandingAuthorization:
    """Sign a standing authorization for a study as its files are now, and store it.

    Args:
        home: the state folder.
        study_id: the study that it is for.
        wanted: purposes, effects, ceilings per day and expiry.
        now: the instant from which it holds; signed.

    Raises:
        InputError: a value breaks a rule, or an authorization with this id exists; nothing was written.
        NotAuthorized: the study is a comparison that is not recurring.
        SecretUnavailable: the operator's key is not on this host.
    """
    loaded, ring, issued_at = load_study(home, study_id), keys.read_ring(home), format_timestamp(now)
    check_recurring(study_id, None if loaded.comparison is None else loaded.comparison.record)
    if wanted.ceilings.cost_usd_per_day is not None and loaded.cost_model is None:
        raise InputError(
            "a ceiling on cost needs a cost model, and the study names none",
            where=study_id,
            field="cost_model",
            way_out="name cost_model in study.toml, or leave the ceiling out",
        )
    if wanted.expires_at <= issued_at:
        raise InputError(
            "this instant is over",
            where="--expires",
            rule=f"after {issued_at}",
            way_out="name a later one, like 2026-12-31T00:00:00.000Z",
        )
    signer = signers.operator(home, ring, issued_at)
    of_kind = tuple(purpose for purpose, rule in PURPOSES.items() if rule.kind == loaded.study.kind)
    strange = [purpose for purpose in wanted.purposes if purpose not in of_kind]
    if strange:
        raise InputError(
            f"a {loaded.study.kind} study collects nothing for purpose {strange[0]}",
            where="--purpose",
            rule=f"one of {', '.join(of_kind)}",
            way_out="name one of them",
        )
    authorization = _signed(
        StandingAuthorization,
        signer,
        authorization_id=wanted.authorization_id or _new_id(home, study_id, now),
        study_id=study_id,
        protocol_digest=loaded.protocol_digest,
        purposes=wanted.purposes or of_kind,
        targets=tuple(
            AuthorizedTarget(
                profile_id=target.profile_id,
                endpoint_alias=loaded.endpoints[target.profile_id].alias,
                endpoint_binding_digest=loaded.bindings[target.profile_id],
                route=target.route,
                lane_width=target.lane_width,
            )
            for target in sorted(loaded.study.targets, key=lambda item: item.profile_id)
        ),
        effects=wanted.effects,
        ceilings=wanted.ceilings,
        cost_model_digest=None if wanted.ceilings.cost_usd_per_day is None else loaded.cost_model_digest,
        issued_at=issued_at,
        expires_at=wanted.expires_at,
    )
    authorizations.store(home, authorization)
    return authorization


def revoke(home: Home, study_id: str, authorization_id: str, reason: str, now: datetime) -> AuthorizationRevocation:
    """Take an authorization back from now on; one that was taken back stays so.

    Raises:
        NotAuthorized: there is no such authorization.
        SecretUnavailable: the operator's key is not on this host.
    """
    ring, at = keys.read_ring(home), format_timestamp(now)
    held = authorizations.held_by_id(home, ring, study_id, authorization_id)
    if held.revocation is not None:
        return held.revocation
    signer = signers.operator(home, ring, at)
    revocation = _signed(
        AuthorizationRevocation,
        signer,
        authorization_digest=held.authorization.record.digest,
        revoked_at=at,
        reason_code=reason,
    )
    authorizations.store_revocation(home, held.authorization.record, revocation)
    return revocation


@dataclass(frozen=True, slots=True)
class CeilingLine:
    """One ceiling and what is spent of it now."""

    field: str
    spent: float
    allowed: float


@dataclass(frozen=True, slots=True)
class AuthorizationLine:
    """An authorization as it stands.

    Args:
        record: the authorization.
        problem: why it is not in force; None where it is.
        ceilings: what is spent.
    """

    record: StandingAuthorization
    problem: str | None
    ceilings: tuple[CeilingLine, ...]


def lines(home: Home, study_id: str, now: datetime) -> list[AuthorizationLine]:
    """Every authorization of a study, the newest first.

    Raises:
        InputError: a file cannot be trusted.
    """
    as_of, loaded = format_timestamp(now), load_study(home, study_id)
    entries = read_entries(home, loaded.study)
    found = []
    for held in authorizations.held(home, keys.read_ring(home), study_id):
        record = held.authorization.record
        stand = tuple(
            CeilingLine(ceiling.field, spent(record, ceiling, entries, as_of[:10]), allowed)
            for ceiling in CEILINGS
            if (allowed := ceiling.allowed(record.ceilings)) is not None
        )
        found.append(AuthorizationLine(record, _problem(held, as_of), stand))
    return found


@dataclass(frozen=True, slots=True)
class StudyLine:
    """Whether a study's next window could be prepared now.

    Args:
        study_id: the study.
        authorization_id: on whose word; None where it could not.
        refusal: why not; None where it could.
    """

    study_id: str
    authorization_id: str | None
    refusal: str | None


def study_lines(home: Home, as_of: str) -> list[StudyLine]:
    """Every study that has an authorization, and whether one more window fits it; what the schedule goes by."""
    return list(_study_lines(home, [item for item in study_ids(home) if has_authorization(home, item)], as_of))


def has_authorization(home: Home, study_id: str) -> bool:
    """Whether a study's folder has any authorization."""
    return any(home.authorizations(study_id).glob("*.json"))


def _study_lines(home: Home, studies: Sequence[str], as_of: str) -> Iterator[StudyLine]:
    for study_id in studies:
        try:
            found = check_next_window(home, study_id, as_of)
        except TascError as error:
            yield StudyLine(study_id, None, str(error))
        else:
            yield StudyLine(study_id, found.authorization_id, None)


S = TypeVar("S", bound=SignedRecord)


def ceilings(**fields: float | None) -> Ceilings:
    """Ceilings from what a person typed.

    Raises:
        InputError: a number breaks its rule; names the field.
    """
    try:
        return Ceilings.model_validate(fields)
    except ValidationError as error:
        raise input_error(error, where="ceilings") from None


def _signed(cls: type[S], signer: Signer, **fields: object) -> S:
    """A signed record; what a person typed and breaks a rule is refused by its field."""
    try:
        return cls.sign_with(signer.key, signer.key_id, **fields)
    except ValidationError as error:
        raise input_error(error, where="authorization") from None


def _problem(held: Held, as_of: str) -> str | None:
    try:
        in_force(held.authorization.record, held.revocation, as_of)
    except NotAuthorized as error:
        return error.what
    return None


def _new_id(home: Home, study_id: str, now: datetime) -> str:
    folder = home.authorizations(study_id)
    return next(
        name for number in count(1) if not (folder / f"{(name := f'auth-{now:%Y%m%d}-{number}')}.json").exists()
    )
