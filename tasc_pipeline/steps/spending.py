"""What is sent under a standing authorization is paid first: reserve the worst case, send, settle.

Rules:

1. A window reserves before it is sampled or sent. A window that is resumed keeps its reservation. One whose
   authorization has expired or was revoked meanwhile sends nothing more; it can still be settled.
2. Where the runner refuses before it has a journal, nothing was sent, and the run gives back its own part. The reservation
   stays while another run holds it, which may be waiting for the window's start: whoever made it, and whoever found it
   there.
3. Closing the window settles: a window that was begun counts as one; calls that may have left count, and the tokens that
   their answers report, or where one reports none, all that it might have generated. What was given back before counts
   again where envelopes show that calls were sent nevertheless.
4. A window of which a call was sent under an authorization, warm-up included, is in the ledger, because it was reserved
   first. Where one is not, an older ledger was put in the place of the newest, and nothing more is prepared or reserved
   on its word. A journal alone says nothing: a window that is only settled has one, and was never reserved.
5. A probe reserves and settles in one go, under a name that is used once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasc_collector.contracts.attempt import UnavailableCost
from tasc_collector.contracts.collection import CollectionPlan, StandingAuthorization
from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_collector.journal import JournalBinding, RecordKind, journal_exists, scan
from tasc_collector.shadow.executions import planned_pairs
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.control import authorizations as allowing
from tasc_pipeline.control import plans
from tasc_pipeline.control.authorizations import Entries, GivenBack, Reserved, Settled, Spend
from tasc_pipeline.home import authorizations, keys
from tasc_pipeline.home.authorizations import Held
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.ledger import open_ledger, read_entries
from tasc_pipeline.home.studies import LoadedStudy
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import PLAN
from tasc_pipeline.steps.approved import ApprovedPlan

if TYPE_CHECKING:
    from tasc_pipeline.warehouse.rows import Execution  # only named here: paying needs no Arrow


def worst_case(approved: ApprovedPlan) -> Spend:
    """What a window costs at most."""
    plan, cases = approved.plan.record, approved.case_set
    pairs = list(planned_pairs(plan, approved.collected_under, cases))
    model = None if approved.study.cost_model is None else approved.study.cost_model.record
    return allowing.window_spend(plans.estimate(plan, pairs, cases, model))


@contextmanager
def window_reserved(home: Home, approved: ApprovedPlan, as_of: str) -> Iterator[None]:
    """Reserve a window's worst case for the block that sends it (rules 1 and 2); nothing where a person approved it.

    Args:
        home: the state folder.
        approved: the window's plan.
        as_of: now.

    Raises:
        NotAuthorized: the authorization is not in force, or a ceiling would be passed; nothing was sent.
    """
    if approved.authorization is None:
        yield
        return
    key = approved.plan.record.window_key
    found, run = _in_force(home, approved, as_of), secrets.token_hex(8)
    _reserve(home, approved.study, found, worst_case(approved), key, as_of, run=run)
    try:
        yield
    except InputError:
        folder = home.run(key)
        if not (folder.is_dir() and journal_exists(folder)):
            with open_ledger(home, approved.study.study) as ledger:
                ledger.give_back(GivenBack(key, as_of, run))
        raise


def settle_window(home: Home, approved: ApprovedPlan, executions: Sequence[Execution], as_of: str) -> None:
    """Settle what a closed window has used (rule 3); again is fine.

    Args:
        home: the state folder.
        approved: the window's plan.
        executions: all of its executions, final.
        as_of: now.
    """
    key = approved.plan.record.window_key
    if approved.authorization is None:
        return
    entry = read_entries(home, approved.study.study).get(key)
    if entry is None:
        return
    found = used(approved, entry.reserved, executions)
    sent = any(execution.envelope is not None for execution in executions)
    if entry.used is None or (sent and allowing.exceeds(found, entry.used)):
        with open_ledger(home, approved.study.study) as ledger:
            ledger.settle(Settled(key, as_of, found))


def used(approved: ApprovedPlan, reserved: Spend, executions: Sequence[Execution]) -> Spend:
    """What a window has used at most, by its signed envelopes.

    An execution without an envelope was certainly not sent. Warm-up calls are not scored, and count in full.
    """
    plan = approved.plan.record
    caps = {entry.case_id: entry.maximum_output_tokens for entry in approved.case_set.entries}
    warm_up = plan.warm_up_calls_per_profile * len(plan.targets)
    calls = tokens = warm_up
    planned_calls = max(reserved.calls - warm_up, 1)
    cost: float | None = None if reserved.cost_usd is None else 0.0
    for execution in executions:
        if execution.envelope is None:
            continue
        last = execution.envelope.attempts[-1]
        calls += 1
        reported = last.token_usage.output
        tokens += caps[execution.case_id] if reported is None else reported.value
        if cost is not None and reserved.cost_usd is not None:
            share = reserved.cost_usd / planned_calls
            cost += share if isinstance(last.cost, UnavailableCost) else last.cost.amount
    return Spend(1, calls, tokens, 0, None if cost is None else round(cost, 6))


@dataclass(frozen=True, slots=True)
class ProbeWord:
    """On whose word a probe is made that no person started.

    Args:
        authorization_id: the standing authorization.
        request: name of the request; a second probe of this name is refused.
    """

    authorization_id: str
    request: str


@contextmanager
def probe_reserved(
    home: Home,
    loaded: LoadedStudy,
    word: ProbeWord,
    profile_id: str,
    route: str,
    effect: str,
    wanted: Spend,
    as_of: str,
) -> Iterator[None]:
    """Reserve a probe's worst case for the block that sends it (rule 5).

    A block that ends with a refusal sent nothing and gives all back; otherwise a probe counts as what it reserved.

    Args:
        home: the state folder.
        loaded: the study.
        word: authorization and name.
        profile_id: profile of the endpoint.
        route: inference route.
        effect: the probe's effect.
        wanted: its worst case.
        as_of: now.

    Raises:
        NotAuthorized: study, target or effect is not covered, it is not in force, the name was used, or a ceiling would
            be passed.
    """
    held = authorizations.held_by_id(home, keys.read_ring(home), loaded.study.study_id, word.authorization_id)
    record = held.authorization.record
    allowing.in_force(record, held.revocation, as_of)
    allowing.covers_study(record, loaded.study.study_id, loaded.protocol_digest)
    allowing.covers_prices(record, loaded.cost_model_digest)
    allowing.covers_effect(record, effect)
    endpoint, lane_width = loaded.endpoints[profile_id], loaded.target(profile_id).lane_width
    allowing.covers_target(record, profile_id, endpoint.alias, loaded.bindings[profile_id], route, lane_width)
    _reserve(home, loaded, held, wanted, word.request, as_of, once=True)
    try:
        yield
    except InputError:
        _settle(home, loaded, word.request, Spend(), as_of)
        raise
    _settle(home, loaded, word.request, wanted, as_of)


def canary_cost(loaded: LoadedStudy, profile_id: str, calls: int, most_tokens: int) -> Spend:
    """Worst case of one canary of a study's profile."""
    return allowing.canary_spend(
        calls,
        most_tokens,
        None if loaded.cost_model is None else loaded.cost_model.record,
        profile_id,
        deadline_ms=loaded.study.http_limits.deadline_ms,
        lane_width=loaded.target(profile_id).lane_width,
    )


def in_force_now(home: Home, loaded: LoadedStudy, as_of: str) -> tuple[StandingAuthorization, ...]:
    """The study's authorizations that are in force, the newest first.

    Raises:
        NotAuthorized: there are some, and none is in force; says why the newest is not.
    """
    every = authorizations.held(home, keys.read_ring(home), loaded.study.study_id)
    found: list[StandingAuthorization] = []
    refusal: NotAuthorized | None = None
    for item in every:
        try:
            allowing.in_force(item.authorization.record, item.revocation, as_of)
        except NotAuthorized as error:
            refusal = refusal or error
        else:
            found.append(item.authorization.record)
    if refusal is not None and not found:
        raise refusal
    return tuple(found)


def check_whole(home: Home, loaded: LoadedStudy, entries: Entries) -> None:
    """Check that a ledger knows every window of its study of which a call was sent (rule 4).

    Only the journals of windows that it does not know are read, and those as far as their first lease.

    Args:
        home: the state folder.
        loaded: the study.
        entries: its ledger, read before this call under the ledger's lock; without it, a run that has just reserved
            looks like a window that is missing.

    Raises:
        NotAuthorized: one is missing, or nobody can tell because its journal cannot be read.
    """
    study_id = loaded.study.study_id
    for key, facts in window_facts(home).items():
        own = facts.authorized and facts.protocol_digest == loaded.protocol_digest
        if not own or key in entries:
            continue
        try:
            if not _was_sent(home, key):
                continue
        except TascError as error:
            raise NotAuthorized(
                f"the journal of a window that is not in the ledger cannot be read: {error}",
                where=study_id,
                field=key,
                rule="what is sent is reserved first, and the ledger only grows",
                way_out=f"restore runs/{key} and windows/{key}/{PLAN} from a backup; "
                f"or go on as a successor: tasc study fork {study_id}",
            ) from None
        raise NotAuthorized(
            "a window was sent under an authorization and is not in the ledger: the ledger is an older copy",
            where=study_id,
            field=key,
            rule="what is sent is reserved first, and the ledger only grows",
            way_out=f"restore the newest studies/{study_id}/ledger from a backup; "
            f"or go on as a successor: tasc study fork {study_id}",
        )


def whole_entries(home: Home, loaded: LoadedStudy) -> Entries:
    """What a study's ledger says now, checked by rule 4; a ledger that looks older is read again under its lock.

    Raises:
        NotAuthorized: the ledger is an older copy.
        JournalError: it is corrupt.
    """
    entries = read_entries(home, loaded.study)
    try:
        check_whole(home, loaded, entries)
    except NotAuthorized:
        with open_ledger(home, loaded.study) as ledger:
            check_whole(home, loaded, ledger.entries)
            return dict(ledger.entries)
    return entries


def _in_force(home: Home, approved: ApprovedPlan, as_of: str) -> Held:
    record = approved.plan.record
    held = authorizations.held_by_digest(home, approved.ring, record.study_id, str(record.authorization_digest))
    try:
        allowing.in_force(held.authorization.record, held.revocation, as_of)
    except NotAuthorized as error:
        raise NotAuthorized(
            error.what,
            where=record.window_key,
            rule=error.rule,
            way_out=f"nothing is sent; after the window's end: tasc settle {record.window_key}",
        ) from None
    return held


def _reserve(
    home: Home,
    loaded: LoadedStudy,
    held: Held,
    wanted: Spend,
    reference: str,
    as_of: str,
    *,
    run: str = "",
    once: bool = False,
) -> None:
    """Reserve, or join what is reserved for the same and not settled; ``once`` refuses a name that was used."""
    record = held.authorization.record
    with open_ledger(home, loaded.study) as ledger:
        entry = ledger.entries.get(reference)
        check_whole(home, loaded, ledger.entries)
        if entry is not None and once:
            raise NotAuthorized(
                "a probe of this name was made before",
                where=loaded.study.study_id,
                field=reference,
                rule="one request, one probe",
                way_out="request another one",
            )
        if entry is None or not allowing.is_same(entry, record.digest, wanted):
            allowing.check_spend(record, ledger.entries, wanted, reference=reference, as_of=as_of)
        ledger.reserve(Reserved(reference, record.digest, as_of, wanted, run))


def _was_sent(home: Home, key: str) -> bool:
    """Whether the journal of a window holds a lease, which comes before every call; without a key, for chain and order."""
    if not (home.run(key).is_dir() and journal_exists(home.run(key))):
        return False
    plan = read_record_file(CollectionPlan, home.window(key) / PLAN).record
    binding = JournalBinding(plan.study_id, plan.protocol_digest, plan.digest, key, 0, plan.declaration_digest)
    return any(record.kind is RecordKind.LEASE for record in scan(home.run(key), binding, None))


def _settle(home: Home, loaded: LoadedStudy, reference: str, spend: Spend, as_of: str) -> None:
    with open_ledger(home, loaded.study) as ledger:
        entry = ledger.entries.get(reference)
        if entry is not None and entry.used is None:
            ledger.settle(Settled(reference, as_of, spend))
