"""Issuing, estimating, approving and loading a window's plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.collection import CollectionPlan, PlanApproval, PlanEstimate, Purpose
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.shadow.cases import Case, case_root, case_set, read_cases
from tasc_collector.shadow.executions import planned_pairs
from tasc_pipeline.control import plans
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.windows import APPROVAL, CASE_SET, PLAN, window_folder
from tasc_pipeline.steps.admission import select_receipts


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """A plan that may be collected: everything was read, verified and compared with the operator's pin."""

    study: LoadedStudy
    ring: KeyRing
    declaration: Parsed[WindowDeclaration]
    case_set: CaseSetFile
    plan: Parsed[CollectionPlan]
    approval: Parsed[PlanApproval]

    @property
    def digest(self) -> str:
        """The plan's digest."""
        return self.plan.record.digest


def key_ring(home: Home) -> KeyRing:
    """The key ring of the state folder."""
    return keys.read_ring(home)


def study_cases(loaded: LoadedStudy) -> tuple[Case, ...]:
    """The operator's cases, in memory only."""
    path = loaded.cases_path
    if not path.is_file():
        raise InputError(
            "the case file is not there", where=path.name, way_out="put it back, or correct `cases` in study.toml"
        )
    replicates = loaded.comparison.record.replicates if loaded.comparison else 1
    with path.open("rb") as lines:
        return read_cases(lines, loaded.study.cases_format, where=path.name, replicates=replicates)


def make_plan(home: Home, window_key: str, now: datetime, *, write: bool) -> tuple[CollectionPlan, PlanEstimate]:
    """Issue the plan of a sealed window with the operator's key, or only compute it.

    Args:
        home: the state folder.
        window_key: the window.
        now: the wall clock.
        write: False for a dry run, which changes nothing.

    Raises:
        InputError: a file breaks a rule, the window is over, or a plan was issued before; nothing was written.
    """
    folder = window_folder(home, window_key)
    ring = keys.read_ring(home)
    declaration = folder.declaration(ring).record
    loaded = load_study(home, declaration.study_id)
    _same_rules(loaded, declaration, window_key)
    issued_at = format_timestamp(now)
    if issued_at >= declaration.event_time_end_exclusive:
        raise NotAuthorized(
            "the window is over",
            where=window_key,
            rule=f"before {declaration.event_time_end_exclusive}",
            way_out=f"run: tasc seal {declaration.study_id}",
        )
    if write and folder.has(PLAN):
        raise InputError(
            "this window has its plan",
            where=window_key,
            field=PLAN,
            way_out=f"approve it: tasc plan approve {window_key} {folder.plan(ring).record.digest}",
        )
    cases = study_cases(loaded)
    pinned: Mapping[str, Sequence[str]] = {}  # a dry run says what it would cost before any receipt exists
    if write:
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
        analysis_plan_digest=None if loaded.analysis is None else loaded.analysis.record.digest,
        cost_model_digest=None if loaded.cost_model is None else loaded.cost_model.record.digest,
        network_extension_digest=None if loaded.extension is None else loaded.extension.record.digest,
    )
    operator = keys.current(ring, "operator", issued_at)
    purpose: Purpose = "comparison" if loaded.comparison is not None else "monitoring"
    plan = plans.issue_plan(
        inputs,
        purpose=purpose,
        issued_at=issued_at,
        key=keys.signing_key(home, "keyfile:operator.key"),
        key_id=operator.key_id,
    )
    pairs = list(planned_pairs(plan, declaration, entries))
    estimate = plans.estimate(plan, pairs, entries, None if loaded.cost_model is None else loaded.cost_model.record)
    if write:
        folder.write(CASE_SET, entries)
        folder.write(PLAN, plan)
    return plan, estimate


def missing_receipt(home: Home, window_key: str, now: datetime) -> str | None:
    """What to run before the plan of a window can be issued: the first probe that is missing; None where none is."""
    declaration = window_folder(home, window_key).declaration(keys.read_ring(home)).record
    loaded = load_study(home, declaration.study_id)
    try:
        select_receipts(home, loaded, format_timestamp(now), until=declaration.event_time_end_exclusive)
    except NotAuthorized as refusal:
        return refusal.way_out
    return None


def approve(home: Home, window_key: str, plan_digest: str, now: datetime) -> PlanApproval:
    """Pin the plan's digest with the operator's key.

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
    operator = keys.current(ring, "operator", at)
    approval = PlanApproval.sign_with(
        keys.signing_key(home, "keyfile:operator.key"),
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


def load_approved(home: Home, window_key: str) -> ApprovedPlan:
    """Load, verify and compare with the pin; this is what ``run_plans`` and the collector do. Never issues.

    Raises:
        InputError: a record is missing, or its signature, digest or pin does not match; nothing was sent.
    """
    folder = window_folder(home, window_key)
    ring = keys.read_ring(home)
    declaration = folder.declaration(ring)
    plan = folder.plan(ring)
    record = plan.record
    approval = folder.approval(ring)
    if approval.record.plan_digest != record.digest or approval.record.window_key != window_key:
        raise DigestMismatch(
            "the plan is not the one that was approved",
            where=window_key,
            field="planDigest",
            rule="the operator's pin is compared first",
            way_out=f"restore plan.json, or seal a new window: tasc seal {record.study_id}",
        )
    if record.declaration_digest != declaration.record.digest:
        raise DigestMismatch(
            "the plan is for another declaration",
            where=window_key,
            field="declarationDigest",
            way_out=f"run: tasc seal {record.study_id}",
        )
    loaded = load_study(home, record.study_id)
    _same_rules(loaded, declaration.record, window_key)
    _same_targets(loaded, record, window_key)
    entries = folder.case_set().record
    payload = keys.payload_key(
        home, loaded.study.study_id, loaded.study.keys.payload_key_id, loaded.study.keys.payload_hmac
    )
    if case_root(entries, payload) != record.cases.root or len(entries.entries) != record.cases.count:
        raise DigestMismatch(
            "the case set is not the plan's",
            where=window_key,
            field="cases.root",
            way_out=f"restore {CASE_SET} of the window",
        )
    return ApprovedPlan(loaded, ring, declaration, entries, plan, approval)


def _same_rules(loaded: LoadedStudy, declaration: WindowDeclaration, window_key: str) -> None:
    if loaded.protocol_digest != declaration.protocol_digest:
        raise DigestMismatch(
            f"{loaded.study.protocol} was changed after the window was sealed",
            where=window_key,
            field="protocolDigest",
            way_out=f"restore the file, or seal a new window: tasc seal {declaration.study_id}",
        )


def _same_targets(loaded: LoadedStudy, plan: CollectionPlan, window_key: str) -> None:
    for target in plan.targets:
        profile = {profile.id: profile for profile in loaded.rules.profiles}.get(target.profile_id)
        same = (
            profile is not None
            and profile.digest == target.execution_profile_digest
            and loaded.bindings[target.profile_id] == target.endpoint_binding_digest
        )
        if not same:
            raise DigestMismatch(
                "the study's endpoint or profile was changed after the plan was issued",
                where=window_key,
                field=target.profile_id,
                way_out=f"restore the study's files, or seal a new window: tasc seal {plan.study_id}",
            )


@dataclass(frozen=True, slots=True)
class LoadedReceipts:
    """The receipts that a plan pins, verified."""

    receipts: tuple[tuple[str, CapabilityReceipt], ...]
    """Profile id and receipt."""
    digest: str
    """Over the pinned digests."""

    @property
    def every(self) -> tuple[CapabilityReceipt, ...]:
        """Each receipt once, in the order of the plan."""
        return tuple({receipt.digest: receipt for _, receipt in self.receipts}.values())

    def of(self, profile_id: str) -> tuple[CapabilityReceipt, ...]:
        """Receipts of one profile."""
        return tuple(receipt for owner, receipt in self.receipts if owner == profile_id)


def load_receipts(home: Home, window_key: str) -> LoadedReceipts:
    """Load exactly the receipts that the window's plan pins, and verify each.

    Raises:
        InputError: one is missing, is not signed by the collector, has expired, or is for something else.
    """
    ring = keys.read_ring(home)
    return verify_receipts(home, ring, window_folder(home, window_key).plan(ring).record)


def verify_receipts(home: Home, ring: KeyRing, plan: CollectionPlan) -> LoadedReceipts:
    """The receipts that a plan pins, loaded and verified; see ``load_receipts``."""
    found: list[tuple[str, CapabilityReceipt]] = []
    for target in plan.targets:
        for pinned in target.capability_receipt_digests:
            found.append((target.profile_id, receipts.load(home, ring, pinned, target, plan)))
    pinned_digests = [[target.profile_id, list(target.capability_receipt_digests)] for target in plan.targets]
    return LoadedReceipts(tuple(found), digest("tasc/pinned-receipts/v1", pinned_digests))
