"""What a standing authorization allows: whose word, for what, how much, until when. Pure; time comes in as ``as_of``.

Rules:

1. An authorization speaks for one study under one comparison or protocol, for the purposes it names, and for exactly the
   endpoints and routes it names by profile, alias and binding. A plan, its declaration and the authorization name each
   other by digest.
2. It is in force from its issue until it expires, unless it was revoked before.
3. A probe needs its effect named. A canary counts as calls and, beside that, as canary calls.
4. What counts against a ceiling is what was used; until that is known, the worst case that was reserved. It counts on the
   UTC day of the reservation, so a window that goes on after midnight is not paid twice.
5. A reservation has a name: the window's key, or the probe's. One name never counts twice, however often it is resumed.
   Each run that uses it is one of its holders; a run gives back only its own part, and the reservation is free again when
   no holder is left, or when what was used is known.
6. A ceiling on cost needs a cost model; without one nothing that costs is allowed. The authorization names the model that
   was there when it was given: other prices need another word. A lane that is wider than the authorized one would divide
   the price of a device among more calls, and is refused.
7. What runs unattended is looked at window after window, so a comparison must be recurring: the interval of a study that
   is not has its error at a single look alone.

Every refusal names the rule and by how much it is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from tasc_collector.contracts.collection import (
    AuthorizationRevocation,
    Ceilings,
    CollectionPlan,
    PlanEstimate,
    Purpose,
    StandingAuthorization,
)
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.operations import CostModel, TokenPrice
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import InputError, NotAuthorized

DAY_MS: Final = 86_400_000
CANARY_PROMPT_TOKENS: Final = 512
"""Upper bound of a canary's prompt with any chat template and schema around it."""


@dataclass(frozen=True, slots=True)
class Spend:
    """What something costs.

    Args:
        windows: windows that it begins.
        calls: inference calls, warm-up and canary calls included.
        output_tokens: generated tokens.
        canary_calls: how many of the calls are canaries.
        cost_usd: US dollars by the study's cost model; None where no model says.
    """

    windows: int = 0
    calls: int = 0
    output_tokens: int = 0
    canary_calls: int = 0
    cost_usd: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Reserved:
    """The worst case of something was set aside under an authorization, before the first byte was sent.

    A run that finds the reservation there joins its holders by an event of the same worst case.
    """

    reference: str
    authorization_digest: str
    at: str
    spend: Spend
    run: str = ""
    """Which run holds it; empty of a probe, which has one run."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A run that holds a reservation sent nothing and will not send."""

    reference: str
    at: str
    run: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What a reservation has used is known; the rest is free again."""

    reference: str
    at: str
    used: Spend


@dataclass(frozen=True, slots=True)
class Entry:
    """One reservation and what became of it."""

    reference: str
    authorization_digest: str
    at: str
    reserved: Spend
    used: Spend | None = None
    runs: frozenset[str] = frozenset()
    """Runs that hold it."""

    @property
    def day(self) -> str:
        """The UTC day that it counts on."""
        return self.at[:10]

    @property
    def counted(self) -> Spend:
        """What counts against the ceilings."""
        return self.reserved if self.used is None else self.used


Entries = Mapping[str, Entry]
"""By reference, oldest reservation first."""


LedgerEvent: TypeAlias = Reserved | GivenBack | Settled


def fold(events: Iterable[LedgerEvent]) -> dict[str, Entry]:
    """The entries after all events.

    Raises:
        InputError: something is settled that was never reserved.
    """
    entries: dict[str, Entry] = {}
    for event in events:
        apply(entries, event)
    return entries


def apply(entries: dict[str, Entry], event: LedgerEvent) -> None:
    """Fold one event in; see ``fold``."""
    found = entries.get(event.reference)
    if isinstance(event, Reserved):
        if found is not None and is_same(found, event.authorization_digest, event.spend):
            entries[event.reference] = replace(found, runs=found.runs | {event.run})
            return
        open_runs = found.runs if found is not None and found.used is None else frozenset[str]()
        entries.pop(event.reference, None)
        entries[event.reference] = Entry(
            event.reference, event.authorization_digest, event.at, event.spend, runs=open_runs | {event.run}
        )
        return
    if found is None:
        raise InputError(
            "the ledger settles what was never reserved",
            where="ledger",
            field=event.reference[:80],
            way_out="restore the ledger's folder from a backup; nothing is sent",
        )
    if isinstance(event, Settled):
        entries[event.reference] = replace(found, used=event.used)
    elif found.used is None:
        left = found.runs - {event.run}
        entries[event.reference] = replace(found, runs=left, used=None if left else Spend())


def is_same(entry: Entry, authorization_digest: str, worst_case: Spend) -> bool:
    """Whether a reservation that is not settled is this one, so that it is joined and not paid again."""
    return entry.used is None and (entry.authorization_digest, entry.reserved) == (authorization_digest, worst_case)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One row of the table of ceilings."""

    field: str
    word: str
    allowed: Callable[[Ceilings], float | None]
    of: Callable[[Spend], float | None]
    per_day: bool = True


CEILINGS: Final[tuple[Ceiling, ...]] = (
    Ceiling("windowsPerDay", "windows", lambda c: c.windows_per_day, lambda s: s.windows),
    Ceiling("windowsInAll", "windows", lambda c: c.windows_in_all, lambda s: s.windows, per_day=False),
    Ceiling("callsPerDay", "calls", lambda c: c.calls_per_day, lambda s: s.calls),
    Ceiling("outputTokensPerDay", "output tokens", lambda c: c.output_tokens_per_day, lambda s: s.output_tokens),
    Ceiling("canaryCallsPerDay", "canary calls", lambda c: c.canary_calls_per_day, lambda s: s.canary_calls),
    Ceiling("costUsdPerDay", "USD", lambda c: c.cost_usd_per_day, lambda s: s.cost_usd),
)
"""Every ceiling: what it allows, and what of a spend counts against it."""


def spent(
    authorization: StandingAuthorization, ceiling: Ceiling, entries: Entries, day: str, *, but: str | None = None
) -> float:
    """What has been spent of a ceiling on a day, or in all where it is no ceiling per day.

    Args:
        authorization: whose ceiling.
        ceiling: which one.
        entries: the study's ledger.
        day: UTC day, like ``2026-01-31``.
        but: a reference that is left out.
    """
    return sum(
        ceiling.of(entry.counted) or 0
        for entry in entries.values()
        if entry.authorization_digest == authorization.digest
        and entry.reference != but
        and (entry.day == day or not ceiling.per_day)
    )


def check_spend(
    authorization: StandingAuthorization, entries: Entries, wanted: Spend, *, reference: str | None, as_of: str
) -> None:
    """Refuse what would pass a ceiling (rules 4 to 6).

    Args:
        authorization: on whose word.
        entries: the study's ledger.
        wanted: the worst case.
        reference: name of the reservation; what is reserved under it does not count again.
        as_of: now.

    Raises:
        NotAuthorized: names the ceiling and by how much it would be passed.
    """
    day = as_of[:10]
    for ceiling in CEILINGS:
        allowed, more = ceiling.allowed(authorization.ceilings), ceiling.of(wanted)
        if allowed is None or more == 0:
            continue
        if more is None:
            raise NotAuthorized(
                "the cost has a ceiling and the study has no cost model that prices every profile",
                where=authorization.study_id,
                field=f"ceilings.{ceiling.field}",
                rule="a ceiling on cost needs a cost model",
                way_out=f"name cost_model in study.toml, or authorize without that ceiling: {_again(authorization)}",
            )
        before = spent(authorization, ceiling, entries, day, but=reference)
        if before + more > allowed:
            when = f"on {day}" if ceiling.per_day else "in all"
            raise NotAuthorized(
                f"{_number(before)} of {_number(allowed)} {ceiling.word} are spent {when}; "
                f"{_number(more)} more would be {_number(before + more - allowed)} too many",
                where=f"{authorization.study_id}/{authorization.authorization_id}",
                field=f"ceilings.{ceiling.field}",
                rule=f"at most {_number(allowed)} {ceiling.word} {'per UTC day' if ceiling.per_day else 'in all'}",
                way_out=f"wait until {_tomorrow(as_of)}, or allow more: {_again(authorization)}"
                if ceiling.per_day and more <= allowed
                else f"allow more: {_again(authorization)}",
            )


class Ended(StrEnum):
    """Why an authorization is over; neither is ever taken back."""

    REVOKED = "revoked"
    EXPIRED = "expired"


def ended(authorization: StandingAuthorization, revocation: AuthorizationRevocation | None, as_of: str) -> Ended | None:
    """Why an authorization is over at an instant; None where it is not (rule 2)."""
    if revocation is not None and as_of >= revocation.revoked_at:
        return Ended.REVOKED
    return Ended.EXPIRED if as_of >= authorization.expires_at else None


def in_force(authorization: StandingAuthorization, revocation: AuthorizationRevocation | None, as_of: str) -> None:
    """Rule 2.

    Raises:
        NotAuthorized: not yet, no longer, or revoked; says since when.
    """
    what, over = None, ended(authorization, revocation, as_of)
    if as_of < authorization.issued_at:
        what, rule = (
            f"is not valid for another {_span(as_of, authorization.issued_at)}",
            f"from {authorization.issued_at}",
        )
    elif revocation is not None and over is Ended.REVOKED:
        what = f"was revoked {_span(revocation.revoked_at, as_of)} ago ({revocation.reason_code})"
        rule = f"before {revocation.revoked_at}"
    elif over is Ended.EXPIRED:
        what, rule = f"expired {_span(authorization.expires_at, as_of)} ago", f"before {authorization.expires_at}"
    if what is not None:
        raise NotAuthorized(
            f"the standing authorization {what}",
            where=f"{authorization.study_id}/{authorization.authorization_id}",
            rule=rule,
            way_out=f"issue another: {_again(authorization)}",
        )


def covers_study(
    authorization: StandingAuthorization, study_id: str, protocol_digest: str, purpose: Purpose | None = None
) -> None:
    """The first half of rule 1: study, protocol and purpose.

    Args:
        authorization: whose word.
        study_id: the study.
        protocol_digest: of its comparison or protocol.
        purpose: what is collected; None for a probe, and where the plan will say.

    Raises:
        NotAuthorized: names what it does not speak for.
    """
    if authorization.study_id != study_id:
        raise _not_covered(authorization, "is for another study", "studyId", authorization.study_id, study_id)
    if authorization.protocol_digest != protocol_digest:
        raise _not_covered(
            authorization,
            "was given for another comparison or protocol than the study has now",
            "protocolDigest",
            authorization.protocol_digest,
            study_id,
        )
    if purpose is not None and purpose not in authorization.purposes:
        raise _not_covered(
            authorization,
            f"does not speak for purpose {purpose}",
            "purposes",
            ", ".join(authorization.purposes),
            study_id,
        )


def check_recurring(study_id: str, comparison: Comparison | None) -> None:
    """Rule 7.

    Args:
        study_id: the study.
        comparison: its rules; None for a decision study, whose analysis plan says how it is looked at.

    Raises:
        NotAuthorized: the comparison is not recurring.
    """
    if comparison is not None and not comparison.rule.recurring:
        raise NotAuthorized(
            "a comparison that is not recurring runs under no standing authorization",
            where=study_id,
            field="rule.recurring",
            rule="looks at every window need intervals that stay right over all of them",
            way_out=f"run: tasc study fork {study_id} --set rule.recurring=true, or make it with: tasc study new --recurring; "
            "then authorize that study. A single window is approved with: tasc plan approve",
        )


def covers_target(
    authorization: StandingAuthorization,
    profile_id: str,
    endpoint_alias: str,
    binding_digest: str,
    route: str,
    lane_width: int,
) -> None:
    """The second half of rule 1: one profile's endpoint and route; and the lane of rule 6.

    Raises:
        NotAuthorized: the profile, its endpoint's binding, its route or its lane's width is not authorized.
    """
    study_id = authorization.study_id
    named = [target for target in authorization.targets if target.profile_id == profile_id]
    if not named:
        known = ", ".join(target.profile_id for target in authorization.targets)
        raise _not_covered(authorization, f"does not name the profile {profile_id}", "targets", known, study_id)
    bound = [target for target in named if target.endpoint_binding_digest == binding_digest]
    if not bound or all(target.endpoint_alias != endpoint_alias for target in bound):
        raise _not_covered(
            authorization,
            f"is for another endpoint of {profile_id}",
            "targets.endpointBindingDigest",
            "origin, base path, runtime and build are those that were authorized",
            study_id,
        )
    if all(target.route != route for target in bound):
        raise _not_covered(
            authorization,
            f"does not allow {profile_id} to be called on {route}",
            "targets.route",
            ", ".join(sorted({target.route for target in bound})),
            study_id,
        )
    widest = max(target.lane_width for target in bound if target.route == route)
    if lane_width > widest:
        raise _not_covered(
            authorization,
            f"allows {profile_id} a lane of {widest} calls at once, not {lane_width}",
            "targets.laneWidth",
            f"at most {widest}",
            study_id,
        )


def covers_prices(authorization: StandingAuthorization, cost_model_digest: str | None) -> None:
    """Rule 6: where cost has a ceiling, the prices are those that the word was given for.

    Args:
        authorization: whose word.
        cost_model_digest: of the study's cost model, or the plan's; None where there is none.

    Raises:
        NotAuthorized: it is another model, or there is none any more.
    """
    if authorization.cost_model_digest not in (None, cost_model_digest):
        raise _not_covered(
            authorization,
            "was given for another cost model than the study has now",
            "costModelDigest",
            str(authorization.cost_model_digest),
            authorization.study_id,
        )


def covers_effect(authorization: StandingAuthorization, effect: str) -> None:
    """Rule 3.

    Raises:
        NotAuthorized: the effect is not named.
    """
    if effect not in authorization.effects:
        raise _not_covered(
            authorization,
            f"does not name the effect {effect}",
            "effects",
            ", ".join(authorization.effects) or "none is named",
            authorization.study_id,
        )


def covers_plan(authorization: StandingAuthorization, plan: CollectionPlan, declaration: WindowDeclaration) -> None:
    """Rule 1 for a plan and its declaration; whether it was in force is ``in_force``.

    Raises:
        NotAuthorized: names what it does not cover.
    """
    for name, found in (
        ("declaration", declaration.authorization_digest),
        ("plan", plan.authorization_digest),
    ):
        if found != authorization.digest:
            raise _not_covered(
                authorization,
                f"is not the one that the {name} names",
                f"{name}.authorizationDigest",
                str(found),
                plan.study_id,
            )
    covers_study(authorization, plan.study_id, plan.protocol_digest, plan.purpose)
    covers_prices(authorization, plan.cost_model_digest)
    for target in plan.targets:
        covers_target(
            authorization,
            target.profile_id,
            target.endpoint_alias,
            target.endpoint_binding_digest,
            target.route,
            target.lane_width,
        )


def window_spend(estimate: PlanEstimate) -> Spend:
    """Worst case of one window: the plan's estimate."""
    return Spend(1, estimate.calls + estimate.warm_up_calls, estimate.output_tokens, 0, estimate.cost_usd)


def canary_spend(
    calls: int, most_tokens: int, model: CostModel | None, profile_id: str, *, deadline_ms: int, lane_width: int
) -> Spend:
    """Worst case of one canary.

    Args:
        calls: its inference calls.
        most_tokens: output tokens of all of them.
        model: the study's cost model, if it has one.
        profile_id: whose price.
        deadline_ms: bound of each call.
        lane_width: concurrent calls that share the profile's devices.
    """
    price = None if model is None else {item.profile_id: item.price for item in model.profiles}.get(profile_id)
    cost: float | None = None
    if isinstance(price, TokenPrice):
        prompt = calls * CANARY_PROMPT_TOKENS * price.input_usd_per_million
        cost = (prompt + most_tokens * price.output_usd_per_million) / 1e6
    elif price is not None:
        cost = calls * deadline_ms / 1000 * price.usd_per_device_second * price.devices / lane_width
    return Spend(0, calls, most_tokens, calls, cost)


def added(one: Spend, other: Spend) -> Spend:
    """The sum of two spends; its cost is unknown where one of them is."""
    cost = None if one.cost_usd is None or other.cost_usd is None else one.cost_usd + other.cost_usd
    return Spend(
        one.windows + other.windows,
        one.calls + other.calls,
        one.output_tokens + other.output_tokens,
        one.canary_calls + other.canary_calls,
        cost,
    )


def exceeds(one: Spend, other: Spend) -> bool:
    """Whether one spend is more than another in anything."""
    return any((ceiling.of(one) or 0) > (ceiling.of(other) or 0) for ceiling in CEILINGS)


def last_window(authorization: StandingAuthorization, entries: Entries) -> Spend:
    """What the newest window under an authorization needed at most; just one window where there was none.

    Windows of one study are planned alike, so this tells before a case file is read whether one more can fit.
    """
    found = [
        entry.reserved
        for entry in entries.values()
        if entry.authorization_digest == authorization.digest and entry.reserved.windows
    ]
    return found[-1] if found else Spend(windows=1)


def first_allowed(
    authorizations: Sequence[StandingAuthorization], check: Callable[[StandingAuthorization], None], *, study_id: str
) -> StandingAuthorization:
    """The first authorization that a check lets pass.

    Args:
        authorizations: in order of preference.
        check: raises ``NotAuthorized`` where one does not allow what is meant.
        study_id: for the message where there is none at all.

    Raises:
        NotAuthorized: the refusal of the first one, or that there is none.
    """
    refusal: NotAuthorized | None = None
    for authorization in authorizations:
        try:
            check(authorization)
        except NotAuthorized as error:
            refusal = refusal or error
        else:
            return authorization
    raise refusal or NotAuthorized(
        "the study has no standing authorization",
        where=study_id,
        rule="nothing runs unattended without the operator's word",
        way_out=f"run: tasc authorize new {study_id}",
    )


def _not_covered(
    authorization: StandingAuthorization, what: str, field: str, rule: str, study_id: str
) -> NotAuthorized:
    return NotAuthorized(
        f"the standing authorization {authorization.authorization_id} {what}",
        where=study_id,
        field=field,
        rule=rule,
        way_out=f"restore the study's files, or issue another: tasc authorize new {study_id}",
    )


def _again(authorization: StandingAuthorization) -> str:
    return f"tasc authorize new {authorization.study_id}"


def _tomorrow(as_of: str) -> str:
    return timestamp_of_ms((timestamp_ms(as_of) // DAY_MS + 1) * DAY_MS)


def _span(start: str, end: str) -> str:
    """A duration for people, cut to its largest unit."""
    seconds = (timestamp_ms(end) - timestamp_ms(start)) / 1000
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {word}"
    return f"{seconds:.1f} s"


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
