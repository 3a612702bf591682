"""Issuing, estimating and approving a window's plan; ``approved`` loads one that may be collected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.collection import (
    CollectionPlan,
    PlanApproval,
    PlanEstimate,
    Purpose,
)
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized, TascError
from tasc_collector.shadow.cases import case_root, case_set
from tasc_collector.shadow.executions import planned_pairs
from tasc_pipeline.control import plans, purposes
from tasc_pipeline.control.pace import Pace, measured
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.controller import read_chain
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.signers import Signer
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import APPROVAL, CASE_SET, PLAN, WindowFolder, window_folder
from tasc_pipeline.steps.admission import conditional_routes, select_receipts
from tasc_pipeline.steps.analysis_pin import check_same_analysis
from tasc_pipeline.steps.approved import same_rules
from tasc_pipeline.steps.arrival_trace import study_arrivals
from tasc_pipeline.steps.cases import purpose_cases


def _frozen_policy(
    loaded: LoadedStudy, purpose: Purpose, declaration: WindowDeclaration, snapshot: ControllerSnapshot | None
) -> PolicyBundle | None:
    if loaded.protocol is None:
        return None
    return purposes.frozen_policy(purpose, loaded.protocol.record, loaded.policies, snapshot, declaration)


def make_plan(
    home: Home,
    window_key: str,
    now: datetime,
    *,
    write: bool,
    purpose: Purpose | None = None,
    pace: Pace | None = None,
) -> tuple[CollectionPlan, PlanEstimate]:
    """Issue the plan of a sealed window with the operator's key, or only compute it.

    Args:
        home: the state folder.
        window_key: the window.
        now: the wall clock.
        write: False for a dry run, which changes nothing.
        purpose: what is collected; the only one that is allowed now if None.
        pace: how long a call is expected to take; assumed if None.

    Raises:
        InputError: a file breaks a rule, the window is over, or a plan was issued before; nothing was written.
    """
    folder = window_folder(home, window_key)
    ring = keys.read_ring(home)
    declaration = folder.declaration(ring).record
    loaded = load_study(home, declaration.study_id)
    if declaration.revision > 1:
        raise NotAuthorized(
            "a revision has no plan of its own",
            where=window_key,
            field="revision",
            rule="its plan and traces are those of revision 1; nothing is sent under it",
            way_out=f"close it: tasc collect {window_key}",
        )
    if write and folder.has(PLAN):
        raise InputError(
            "this window has its plan",
            where=window_key,
            field=PLAN,
            way_out=f"approve it: tasc plan approve {window_key} {folder.plan(ring).record.digest}",
        )
    issued_at = format_timestamp(now)
    draft = draft_plan(
        home,
        loaded,
        declaration,
        issued_at,
        signers.operator(home, ring, issued_at),
        with_receipts=write,
        purpose=purpose,
        pace=pace,
    )
    if write:
        draft.write(folder)
    return draft.plan, draft.estimate


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A signed plan that is not written yet, what it costs at most, and its cases."""

    plan: CollectionPlan
    estimate: PlanEstimate
    case_set: CaseSetFile

    def write(self, folder: WindowFolder) -> None:
        """Write the case set, then the plan."""
        folder.write(CASE_SET, self.case_set)
        folder.write(PLAN, self.plan)


def draft_plan(
    home: Home,
    loaded: LoadedStudy,
    declaration: WindowDeclaration,
    issued_at: str,
    signer: Signer,
    *,
    with_receipts: bool = True,
    authorization_digest: str | None = None,
    purpose: Purpose | None = None,
    pace: Pace | None = None,
) -> PlanDraft:
    """Issue the plan of a declaration in memory; nothing is written.

    Args:
        home: the state folder.
        loaded: the study.
        declaration: the window.
        issued_at: now.
        signer: the operator's key, or under an authorization the dispatch key.
        with_receipts: False for a dry run, which says what a window would cost before any receipt exists.
        authorization_digest: the standing authorization, if that is the word.
        purpose: what is collected; the only one that is allowed now if None.
        pace: how long a call is expected to take; assumed if None.

    Raises:
        InputError: a file breaks a rule, a receipt is missing, the window is over, or the controller is in a state in
            which this purpose is not collected.
        DigestMismatch: an earlier plan of the study names another analysis.
    """
    window_key = declaration.window_key
    same_rules(loaded, declaration, window_key)
    if issued_at >= declaration.event_time_end_exclusive:
        raise NotAuthorized(
            "the window is over",
            where=window_key,
            rule=f"before {declaration.event_time_end_exclusive}",
            way_out=f"run: tasc seal {declaration.study_id}",
        )
    analysis_digest = None if loaded.analysis is None else loaded.analysis.record.digest
    if loaded.protocol is not None:
        check_same_analysis(home, keys.read_ring(home), declaration.study_id, window_key, analysis_digest)
    snapshot = None if loaded.protocol is None else read_chain(home, loaded).current
    purpose = purposes.choose_purpose(loaded.study.study_id, loaded.study.kind, snapshot, purpose)
    policy = _frozen_policy(loaded, purpose, declaration, snapshot)
    cases = purpose_cases(loaded, purpose)
    pinned: Mapping[str, Sequence[str]] = {}
    if with_receipts:
        pinned = select_receipts(home, loaded, issued_at, until=declaration.event_time_end_exclusive)
    payload = keys.payload_key(
        home, loaded.study.study_id, loaded.study.keys.payload_key_id, loaded.study.keys.payload_hmac
    )
    entries = case_set(
        cases, loaded.study.study_id, payload, maximum_output_tokens=loaded.study.generation.maximum_output_tokens
    )
    inputs = plans.PlanInputs(
        loaded.study,
        loaded.rules,
        declaration,
        loaded.endpoints,
        loaded.bindings,
        entries,
        case_root(entries, payload),
        longest_request_characters=max(case.characters for case in cases),
        receipts=pinned,
        analysis_plan_digest=analysis_digest,
        cost_model_digest=None if loaded.cost_model is None else loaded.cost_model.record.digest,
        network_extension_digest=None if loaded.extension is None else loaded.extension.record.digest,
        policy=policy,
        snapshot=snapshot,
    )
    plan = plans.issue_plan(
        inputs,
        purpose=purpose,
        issued_at=issued_at,
        key=signer.key,
        key_id=signer.key_id,
        authorization_digest=authorization_digest,
    )
    pairs = list(planned_pairs(plan, declaration, entries))
    prices = None if loaded.cost_model is None else loaded.cost_model.record
    estimate = plans.estimate(plan, pairs, entries, prices, pace)
    arrivals = study_arrivals(loaded, plan.load_model, pairs=len(pairs))
    if arrivals and pairs:
        estimate = estimate.model_copy(update={"minutes": round(arrivals[len(pairs) - 1] / 60, 2)})
    return PlanDraft(plan, estimate, entries)


def measured_pace(home: Home, window_key: str) -> Pace | None:
    """What the newest assessed window of the same study has measured; None where there is none that can be read."""
    study_id = window_folder(home, window_key).declaration(keys.read_ring(home)).record.study_id
    facts = [item for item in window_facts(home).values() if item.study_id == study_id and item.results is not None]
    for item in sorted(facts, key=lambda item: item.starts_at, reverse=True):
        with suppress(TascError):  # it only says how long something may take
            pace = measured(WindowFolder(home, item.window_key).report().record)
            if pace is not None:
                return pace
    return None


def missing_receipt(home: Home, window_key: str, now: datetime) -> str | None:
    """What to run before the plan of a window can be issued: the first probe that is missing; None where none is.

    Raises:
        InputError: a build, route or model is one that no receipt could admit.
    """
    declaration = window_folder(home, window_key).declaration(keys.read_ring(home)).record
    loaded = load_study(home, declaration.study_id)
    conditional_routes(home, loaded)
    try:
        select_receipts(home, loaded, format_timestamp(now), until=declaration.event_time_end_exclusive)
    except NotAuthorized as refusal:
        return refusal.way_out
    return None


def approve(home: Home, window_key: str, plan_digest: str, now: datetime) -> PlanApproval:
    """Pin the plan's digest with the operator's key.

    Args:
        home: the state folder.
        window_key: of the plan's window.
        plan_digest: what the operator looked at.
        now: the instant of the approval; signed.

    Raises:
        DigestMismatch: the digest is not that of the window's plan.
    """
    folder = window_folder(home, window_key)
    ring = keys.read_ring(home)
    plan = folder.plan(ring).record
    if plan.digest != plan_digest:
        raise DigestMismatch(
            "this is not the digest of the window's plan",
            where=window_key,
            field="planDigest",
            way_out=f"compare with: tasc plan show {window_key}",
        )
    at = format_timestamp(now)
    if at >= plan.expires_at:
        raise NotAuthorized(
            "the plan has expired",
            where=window_key,
            rule=f"before {plan.expires_at}",
            way_out=f"run: tasc seal {plan.study_id}",
        )
    operator = signers.operator(home, ring, at)
    approval = PlanApproval.sign_with(
        operator.key,
        operator.key_id,
        study_id=plan.study_id,
        window_key=window_key,
        plan_digest=plan_digest,
        approved_at=at,
        expires_at=plan.expires_at,
    )
    if folder.has(APPROVAL) and folder.approval(ring).record.plan_digest == plan_digest:
        return folder.approval(ring).record
    folder.write(APPROVAL, approval)
    return approval
