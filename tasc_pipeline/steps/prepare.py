"""Preparing a window that nobody is there to approve: seal, pick receipts, issue the plan. Sends nothing.

Rules:

1. Without a standing authorization that is in force and covers the study, nothing is made, and nothing of a comparison
   that is not recurring, whoever authorized it. Declaration and plan name the authorization and are signed with the
   dispatch key; the operator's private key is not needed.
2. One instant of a schedule makes one window, however often it is asked for: the window's id is that instant's, and
   whoever prepares holds the study's ledger meanwhile. A window that a crash left without its plan gets it.
3. Nothing is written before the plan's worst case is known to fit the ceilings, by a ledger that is no older copy. The
   reservation itself is made by whoever sends, who checks again.
4. A window that was prepared and may still be sent counts as a window already, so asking for many instants prepares no
   more windows than may be sent. No instant is more than an hour ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tasc_collector.contracts.collection import PlanEstimate, Purpose, StandingAuthorization
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import InputError, TascError
from tasc_pipeline.control import authorizations as allowing
from tasc_pipeline.control import windows
from tasc_pipeline.control.authorizations import Entries, Entry, Spend
from tasc_pipeline.home import authorizations, keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.ledger import open_ledger
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import DECLARATION, PLAN, WindowFolder
from tasc_pipeline.steps.plan import draft_plan
from tasc_pipeline.steps.seal import SealOptions, declared
from tasc_pipeline.steps.spending import check_whole, in_force_now, whole_entries

LEAD_S: Final = 45.0
"""A prepared window starts so much later: a sensor has time to request its run, which waits for the start."""

MOST_AHEAD: Final = timedelta(hours=1)
"""No instant of a schedule that is further ahead is prepared."""


@dataclass(frozen=True, slots=True)
class PreparedWindow:
    """A window that may be collected.

    Args:
        window_key: its key.
        authorization_id: on whose word.
        estimate: what it costs at most; None where it was prepared before.
    """

    window_key: str
    authorization_id: str
    estimate: PlanEstimate | None


def prepare_window(
    home: Home,
    study_id: str,
    at: str,
    now: datetime,
    *,
    lead_s: float = LEAD_S,
    add_partition: Callable[[str], None] | None = None,
) -> PreparedWindow:
    """Seal and plan the window of one instant of a schedule; see the rules of this module.

    Args:
        home: the state folder.
        study_id: the study.
        at: the instant that was scheduled, as a timestamp.
        now: the wall clock.
        lead_s: seconds until the window starts.
        add_partition: tells Dagster's instance; called when everything is durable.

    Raises:
        NotAuthorized: no authorization allows it, the study is a comparison that is not recurring, a ceiling would be
            passed, or a receipt is missing.
        InputError: a file breaks a rule, or the instant is too far ahead.
    """
    latest = format_timestamp(now + MOST_AHEAD)
    if at > latest:
        raise InputError(
            "this instant is more than an hour ahead",
            where=study_id,
            field="at",
            rule=f"at most {latest}",
            way_out="prepare the window when it is due, or leave the instant out",
        )
    loaded, ring, as_of = _recurring(home, study_id), keys.read_ring(home), format_timestamp(now)
    window_id = windows.window_id(study_id, at)
    with open_ledger(home, loaded.study) as ledger:
        declaration = _begun(home, ring, study_id, window_id)
        if declaration is None or not WindowFolder(home, declaration.window_key).has(PLAN):
            check_whole(home, loaded, ledger.entries)
            entries = _with_waiting(home, ring, study_id, ledger.entries, as_of)
            prepared = _prepare(home, loaded, ring, entries, window_id, as_of, lead_s, declaration)
        else:
            word = authorizations.held_by_digest(home, ring, study_id, str(declaration.authorization_digest))
            prepared = PreparedWindow(declaration.window_key, word.authorization.record.authorization_id, None)
    if add_partition is not None:
        add_partition(prepared.window_key)
    return prepared


def check_next_window(home: Home, study_id: str, as_of: str) -> StandingAuthorization:
    """The authorization under which one more window of a study could be prepared now; reads no case file.

    Raises:
        NotAuthorized: there is none; says which rule is in the way.
        InputError: a file breaks a rule.
    """
    loaded = _recurring(home, study_id)
    entries = _with_waiting(home, keys.read_ring(home), study_id, whole_entries(home, loaded), as_of)
    return _allowing(home, loaded, entries, as_of)


def _recurring(home: Home, study_id: str) -> LoadedStudy:
    """The study, if it may be looked at window after window."""
    loaded = load_study(home, study_id)
    allowing.check_recurring(study_id, None if loaded.comparison is None else loaded.comparison.record)
    return loaded


def _with_waiting(home: Home, ring: KeyRing, study_id: str, entries: Entries, as_of: str) -> Entries:
    """The ledger with one window for each that was prepared, has reserved nothing yet, and is not over (rule 4)."""
    waiting: dict[str, Entry] = {}
    for key, facts in window_facts(home).items():
        if facts.study_id != study_id or not facts.approved or facts.ends_at <= as_of or key in entries:
            continue
        try:
            declaration = WindowFolder(home, key).declaration(ring).record
        except TascError:
            continue  # what cannot be verified cannot be sent
        if declaration.authorization_digest is not None:
            waiting[key] = Entry(key, declaration.authorization_digest, facts.starts_at, Spend(windows=1))
    return {**waiting, **entries}


def _allowing(home: Home, loaded: LoadedStudy, entries: Entries, as_of: str) -> StandingAuthorization:
    def check(authorization: StandingAuthorization) -> None:
        purpose: Purpose | None = "comparison" if loaded.comparison is not None else None
        allowing.covers_study(authorization, loaded.study.study_id, loaded.protocol_digest, purpose)
        allowing.covers_prices(authorization, loaded.cost_model_digest)
        for target in loaded.study.targets:
            alias, binding = loaded.endpoints[target.profile_id].alias, loaded.bindings[target.profile_id]
            allowing.covers_target(authorization, target.profile_id, alias, binding, target.route, target.lane_width)
        wanted = allowing.last_window(authorization, entries)
        allowing.check_spend(authorization, entries, wanted, reference=None, as_of=as_of)

    return allowing.first_allowed(in_force_now(home, loaded, as_of), check, study_id=loaded.study.study_id)


def _prepare(
    home: Home,
    loaded: LoadedStudy,
    ring: KeyRing,
    entries: Entries,
    window_id: str,
    as_of: str,
    lead_s: float,
    begun: WindowDeclaration | None,
) -> PreparedWindow:
    """Rules 1 and 3, under the ledger's lock."""
    signer = signers.dispatch(home, ring, loaded.study, as_of)
    if begun is None:
        authorization = _allowing(home, loaded, entries, as_of)
        options = SealOptions(lead_s=lead_s, window_id=window_id)
        declaration = declared(loaded, options, as_of, signer, authorization_digest=authorization.digest)
    else:
        held = authorizations.held_by_digest(home, ring, begun.study_id, str(begun.authorization_digest))
        authorization, declaration = held.authorization.record, begun
        allowing.in_force(authorization, held.revocation, as_of)
    draft = draft_plan(
        home,
        loaded,
        declaration,
        as_of,
        signer,
        authorization_digest=authorization.digest,
        purpose=authorization.purposes[0] if len(authorization.purposes) == 1 else None,
    )
    allowing.covers_plan(authorization, draft.plan, declaration)
    spend = allowing.window_spend(draft.estimate)
    allowing.check_spend(authorization, entries, spend, reference=declaration.window_key, as_of=as_of)
    folder = WindowFolder(home, declaration.window_key)
    folder.write(DECLARATION, declaration)
    draft.write(folder)
    return PreparedWindow(declaration.window_key, authorization.authorization_id, draft.estimate)


def _begun(home: Home, ring: KeyRing, study_id: str, window_id: str) -> WindowDeclaration | None:
    """The window of this instant that was prepared before, if it was.

    Raises:
        InputError: its declaration cannot be trusted.
    """
    for path in sorted(home.windows.glob(f"{window_id}.r01-*/{DECLARATION}")):
        found = WindowFolder(home, path.parent.name).declaration(ring).record
        if found.study_id != study_id:
            raise InputError(
                "a window of another study has this id",
                where=path.parent.name,
                field="windowId",
                way_out="give the studies ids that differ in their first 46 characters",
            )
        if found.authorization_digest is not None:
            return found
    return None
