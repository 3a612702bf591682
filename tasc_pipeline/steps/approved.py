"""A window's plan as it may be collected: loaded, verified, and compared with the pin. Nothing is issued here.

``load_approved`` is what the asset ``run_plans`` and the collecting step do, in this order; the first step that fails stops,
and nothing was sent:

1. The declaration gives the window's key and is signed. Of a revision, every declaration before it is there, and plan,
   case set and approval are those of revision 1.
2. The plan is signed, and the operator's pin or a standing authorization names exactly it.
3. The plan is for this declaration; rules, targets, policy, cost model, analysis plan, network extension, embedded shadow
   run plan, case set and split are the study's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.collection import CollectionPlan, PlanApproval, StandingAuthorization
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, NotAuthorized
from tasc_collector.shadow.cases import case_root
from tasc_collector.shadow.membership import group_split
from tasc_pipeline.control import authorizations as allowing
from tasc_pipeline.control import purposes, shadow_plans
from tasc_pipeline.home import authorizations, keys, receipts
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.windows import CASE_SET, WindowFolder, window_folder


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """A plan that may be collected: everything was read, verified and compared with the operator's pin."""

    study: LoadedStudy
    ring: KeyRing
    declaration: Parsed[WindowDeclaration]
    case_set: CaseSetFile
    plan: Parsed[CollectionPlan]
    approval: Parsed[PlanApproval] | None
    """The operator's pin of this plan; None where ``authorization`` is the pin."""
    authorization: Parsed[StandingAuthorization] | None = None
    origin: Parsed[WindowDeclaration] | None = None
    """Of a revision: the declaration of revision 1, under which everything was collected."""

    @property
    def window_key(self) -> str:
        """Key of this partition; of a revision, its own."""
        return self.declaration.record.window_key

    @property
    def collected_as(self) -> str:
        """Key of the window whose plan, journal and samples these are; another one only for a revision."""
        return self.plan.record.window_key

    @property
    def collected_under(self) -> WindowDeclaration:
        """The declaration that the plan and the traces hash: that of revision 1."""
        return (self.origin or self.declaration).record

    @property
    def is_revision(self) -> bool:
        """Whether this partition only refers to what another one collected."""
        return self.origin is not None

    @property
    def pinned_by(self) -> PlanApproval | StandingAuthorization:
        """On whose word the plan is collected."""
        found = self.approval or self.authorization
        assert found is not None  # noqa: S101 - load_approved sets exactly one of them
        return found.record

    @property
    def approved_at(self) -> str:
        """When the plan was approved; a plan under an authorization is approved as it is issued."""
        return self.plan.record.issued_at if self.approval is None else self.approval.record.approved_at

    @property
    def digest(self) -> str:
        """The plan's digest."""
        return self.plan.record.digest


def key_ring(home: Home) -> KeyRing:
    """The key ring of the state folder."""
    return keys.read_ring(home)


def load_approved(home: Home, window_key: str) -> ApprovedPlan:
    """Load, verify and compare with the pin; this is what ``run_plans`` and the collector do. Never issues.

    Raises:
        InputError: a record is missing, or its signature, digest or pin does not match; nothing was sent.
    """
    folder = window_folder(home, window_key)
    ring = keys.read_ring(home)
    declaration = folder.declaration(ring)
    source = folder.origin(ring)
    origin = None if source is folder else source.declaration(ring)
    collected_under = declaration if origin is None else origin
    plan = source.plan(ring)
    record = plan.record
    approval = authorization = None
    if record.authorization_digest is None:
        approval = _approval(source, ring, collected_under, plan)
    else:
        authorization = _authorization(home, ring, collected_under, record)
    if record.declaration_digest != collected_under.record.digest:
        raise DigestMismatch(
            "the plan is for another declaration",
            where=window_key,
            field="declarationDigest",
            way_out=f"run: tasc seal {record.study_id}",
        )
    loaded = load_study(home, record.study_id)
    same_rules(loaded, declaration.record, window_key)
    _same_targets(loaded, record, window_key)
    _same_policy(loaded, record, collected_under.record)
    entries = source.case_set().record
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
    _same_split(loaded, record, entries)
    return ApprovedPlan(loaded, ring, declaration, entries, plan, approval, authorization, origin)


def _approval(
    folder: WindowFolder, ring: KeyRing, declaration: Parsed[WindowDeclaration], plan: Parsed[CollectionPlan]
) -> Parsed[PlanApproval]:
    """The operator's pin of a plan that names no authorization; the operator signed declaration and plan, too."""
    approval, record, window_key = folder.approval(ring), plan.record, folder.window_key
    if approval.record.plan_digest != record.digest or approval.record.window_key != window_key:
        raise DigestMismatch(
            "the plan is not the one that was approved",
            where=window_key,
            field="planDigest",
            rule="the operator's pin is compared first",
            way_out=f"restore plan.json, or seal a new window: tasc seal {record.study_id}",
        )
    for name, signature in (("declaration", declaration.record.signature), ("plan", record.signature)):
        if keys.role_of(ring, signature.authority_key_id) != "operator":
            raise NotAuthorized(
                f"the {name} is signed with the dispatch key and names no standing authorization",
                where=window_key,
                field="signature.authorityKeyId",
                way_out=f"seal a new window: tasc seal {record.study_id}",
            )
    return approval


def _authorization(
    home: Home, ring: KeyRing, declaration: Parsed[WindowDeclaration], plan: CollectionPlan
) -> Parsed[StandingAuthorization]:
    """The standing authorization that a plan names, if it covers the plan and was in force when that was issued."""
    held = authorizations.held_by_digest(home, ring, plan.study_id, str(plan.authorization_digest))
    allowing.in_force(held.authorization.record, held.revocation, plan.issued_at)
    allowing.covers_plan(held.authorization.record, plan, declaration.record)
    return held.authorization


def same_rules(loaded: LoadedStudy, declaration: WindowDeclaration, window_key: str) -> None:
    """Refuse where the comparison or protocol is not the one that the window was sealed under.

    Raises:
        DigestMismatch: it was changed since.
    """
    if loaded.protocol_digest != declaration.protocol_digest:
        raise DigestMismatch(
            f"{loaded.study.protocol} was changed after the window was sealed",
            where=window_key,
            field="protocolDigest",
            way_out=f"restore the file, or seal a new window: tasc seal {declaration.study_id}",
        )


def _same_policy(loaded: LoadedStudy, plan: CollectionPlan, declaration: WindowDeclaration) -> None:
    """The plan's policy is the comparison itself, or one of the study's bundles that was there before the window."""
    if loaded.protocol is None:
        known = plan.policy_digest == loaded.protocol_digest
    else:
        shadow_plans.check_embedded(plan, declaration, loaded.protocol.record)
        policy = loaded.policies.get(plan.policy_digest)
        known = policy is not None and policy.issued_at <= declaration.event_time_start_inclusive
    if not known:
        raise DigestMismatch(
            "the plan's policy is none of the study's, or was issued after the window's start",
            where=plan.window_key,
            field="policyDigest",
            way_out=f"restore the study's policy files, or seal a new window: tasc seal {plan.study_id}",
        )


def _same_split(loaded: LoadedStudy, plan: CollectionPlan, entries: CaseSetFile) -> None:
    """No group of the other split is in a development or holdout plan."""
    split = purposes.PURPOSES[plan.purpose].split
    if loaded.protocol is None or split == "online":
        return
    membership = loaded.protocol.record.split_membership
    strangers = [entry.case_id for entry in entries.entries if group_split(membership, entry.group_id) != split]
    if strangers:
        raise DigestMismatch(
            f"{len(strangers)} cases of the plan are of the other split",
            where=plan.window_key,
            field=strangers[0],
            rule="a seeded hash of the group id decides; splitMembership of the protocol",
            way_out=f"seal and plan a new window: tasc seal {plan.study_id}",
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


def same_files(approved: ApprovedPlan) -> None:
    """What prices, analyses and extends a plan is what it was issued with; asked before anything is reserved or sent.

    A window that is collected is not asked again: a renewed network extension or price does not make it unreadable.

    Raises:
        DigestMismatch: a file of the study was changed; names the field.
    """
    loaded, plan = approved.study, approved.plan.record
    parts = (
        ("costModelDigest", plan.cost_model_digest, loaded.cost_model),
        ("analysisPlanDigest", plan.analysis_plan_digest, loaded.analysis),
        ("networkExtensionDigest", plan.network_extension_digest, loaded.extension),
    )
    for name, planned, part in parts:
        found = None if part is None else part.record.digest
        if planned != found:
            raise DigestMismatch(
                "a file of the study was changed after the plan was issued",
                where=approved.window_key,
                field=name,
                rule=f"plan {planned or 'none'}, study {found or 'none'}",
                way_out=f"restore the study's files; or go on with the new ones: tasc study fork {plan.study_id}",
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
    return verify_receipts(home, ring, window_folder(home, window_key).origin(ring).plan(ring).record)


def verify_receipts(home: Home, ring: KeyRing, plan: CollectionPlan) -> LoadedReceipts:
    """The receipts that a plan pins, loaded and verified; see ``load_receipts``."""
    found: list[tuple[str, CapabilityReceipt]] = []
    for target in plan.targets:
        for pinned in target.capability_receipt_digests:
            found.append((target.profile_id, receipts.load(home, ring, pinned, target, plan)))
    pinned_digests = [[target.profile_id, list(target.capability_receipt_digests)] for target in plan.targets]
    return LoadedReceipts(tuple(found), digest("tasc/pinned-receipts/v1", pinned_digests))
