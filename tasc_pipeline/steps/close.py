"""Closing a window: manifest v2 over what was accepted, and the link that binds it to its declaration and plan.

Rules:

1. A window is closed when every planned execution is final. Closing it again gives the same records, after everything
   that the signed link names was compared with what is there now: nothing is read from half of what was closed.
2. The link, signed with the collector key, names declaration, plan, traces, journal head, samples and counts. Online
   purposes have a manifest, which the link names; development and holdout have the link alone.
3. A revision is closed over the same traces. Its manifest names the one before it and must say something new: the set
   of evidence that was accepted until its watermark.
4. What a standing authorization reserved for the window and the window did not use is given back, before the link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tasc_collector.contracts.manifest import CapacityUnavailable, WindowManifest, check_revision
from tasc_collector.contracts.reasons import ReasonCount
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.sets import evaluator_set_digest
from tasc_collector.contracts.window import LinkCounts, WindowLink
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.journal import journal_exists, verify
from tasc_pipeline.clock import utc_now
from tasc_pipeline.control.purposes import PURPOSES
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import LINK, MANIFEST, WindowFolder
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved
from tasc_pipeline.steps.collect import run_context
from tasc_pipeline.steps.collected import Collected, read_collected, telling
from tasc_pipeline.steps.evidence import check_window_evidence
from tasc_pipeline.steps.metrics import scrapes_digest
from tasc_pipeline.steps.sampling import device_snapshots_digest
from tasc_pipeline.steps.spending import settle_window


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A closed window's records."""

    link: WindowLink
    manifest: WindowManifest | None
    collected: Collected


def close(home: Home, window_key: str, *, now: Callable[[], datetime] = utc_now) -> ClosedWindow:
    """Close a window; see the rules of this module.

    Args:
        home: the state folder.
        window_key: the window.
        now: the wall clock.

    Raises:
        InputError: nothing was collected, or executions are pending; says the command that goes on.
        JournalError: the journal is not what its seal says.
        DigestMismatch: the window is closed, and something is not what its signed link names; says which field.
    """
    approved = load_approved(home, window_key)
    plan, declaration = approved.plan.record, approved.declaration.record
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    context, folder = run_context(home, approved, ()), WindowFolder(home, window_key)
    if not folder.has(LINK) and not journal_exists(context.folder):
        raise InputError("nothing was collected yet", where=window_key, way_out=f"run: tasc collect {window_key}")
    with telling(approved, "verifying the journal") as each:
        report = verify(context.folder, context.binding, journal_key, each=each)
    collected = read_collected(approved, context.folder, journal_key)
    if collected.pending or not report.sealed:
        raise InputError(
            f"{collected.pending} planned executions are not final",
            where=window_key,
            way_out=f"finish the window: tasc collect {window_key} (or after its end: tasc settle {window_key})",
        )
    settle_window(home, approved, collected.executions, format_timestamp(now()))
    if folder.has(LINK):
        return _as_signed(folder, approved, collected, report.head)
    manifest = None
    if PURPOSES[plan.purpose].manifest:
        manifest = _manifest(folder, approved, collected)
        folder.write(MANIFEST, manifest)
    states = Counter("accepted" if item.fault is None else item.fault.state for item in collected.executions)
    reasons = Counter(str(item.fault.reason) for item in collected.executions if item.fault is not None)
    closed_at = format_timestamp(now())
    signer = signers.collector(home, approved.ring, approved.study.study, closed_at)
    link = WindowLink.sign_with(
        signer.key,
        signer.key_id,
        window_key=window_key,
        study_id=plan.study_id,
        declaration_digest=declaration.digest,
        plan_digest=plan.digest,
        trace_set_digest=collected.trace_set_digest,
        manifest_digest=None if manifest is None else manifest.self_digest,
        journal_head="sha256:" + report.head,
        scrapes_digest=scrapes_digest(home, approved.collected_as, approved.ring),
        device_snapshots_digest=device_snapshots_digest(home, approved.collected_as, approved.ring),
        counts=LinkCounts(
            planned=len(collected.executions),
            accepted=states["accepted"],
            not_sent=states["not_sent"],
            not_attempted=states["not_attempted"],
            reasons=tuple(ReasonCount(reason=reason, count=count) for reason, count in sorted(reasons.items())),
        ),
        closed_at=closed_at,
    )
    folder.write(LINK, link)
    return ClosedWindow(link, manifest, collected)


def _as_signed(folder: WindowFolder, approved: ApprovedPlan, collected: Collected, head: str) -> ClosedWindow:
    """The records of a window that was closed before, compared with what is there now (rule 1)."""
    link = folder.link(approved.ring).record
    manifest = folder.manifest() if link.manifest_digest is not None else None
    held = {
        "declarationDigest": (link.declaration_digest, approved.declaration.record.digest),
        "planDigest": (link.plan_digest, approved.digest),
        "journalHead": (link.journal_head, "sha256:" + head),
        "traceSetDigest": (link.trace_set_digest, collected.trace_set_digest),
        "manifestDigest": (link.manifest_digest, None if manifest is None else manifest.self_digest),
        "scrapesDigest": (link.scrapes_digest, scrapes_digest(folder.home, approved.collected_as, approved.ring)),
        "deviceSnapshotsDigest": (
            link.device_snapshots_digest,
            device_snapshots_digest(folder.home, approved.collected_as, approved.ring),
        ),
    }
    if manifest is not None:
        held["manifest.traceSetDigest"] = (link.trace_set_digest, manifest.trace_set_digest)
    for field, (signed, found) in held.items():
        if signed != found:
            raise DigestMismatch(
                "the closed window is not what its signed link names",
                where=approved.window_key,
                field=field,
                rule=f"{signed or 'none'}, found {found or 'none'}",
                way_out=f"restore the window's files from a backup, then: tasc verify {approved.window_key}",
            )
    return ClosedWindow(link, manifest, collected)


def _manifest(folder: WindowFolder, approved: ApprovedPlan, collected: Collected) -> WindowManifest:
    """The window's manifest; of a revision, one that lawfully follows its predecessor's (rule 3)."""
    plan, declaration = approved.plan.record, approved.declaration.record
    before = None
    if declaration.predecessor_key is not None:
        before = WindowFolder(folder.home, declaration.predecessor_key).manifest()
    manifest = WindowManifest.issue(
        window_id=declaration.window_id,
        protocol_digest=plan.protocol_digest,
        frozen_policy_digest=plan.policy_digest,
        event_time_start_inclusive=declaration.event_time_start_inclusive,
        event_time_end_exclusive=declaration.event_time_end_exclusive,
        ingestion_watermark=declaration.ingestion_watermark,
        closure_reason="every-execution-final" if before is None else "late-evidence",
        membership_rule=declaration.membership_rule,
        membership_digest=declaration.membership_digest,
        revision=declaration.revision,
        predecessor_manifest_digest=None if before is None else before.self_digest,
        trace_set_digest=collected.trace_set_digest,
        evaluator_set_digest=_evaluator_set(folder.home, approved),
        capacity_evidence=CapacityUnavailable(reason_code="no-capacity-measured"),
    )
    if before is not None:
        if manifest.evaluator_set_digest == before.evaluator_set_digest:
            raise InputError(
                "the revision says nothing new: no further evidence was taken in until its watermark",
                where=approved.window_key,
                field="evaluatorSetDigest",
                rule="a revision changes the set of evidence",
                way_out=f"take it in, then close the revision: tasc evidence add {plan.study_id} FILE; "
                f"tasc collect {approved.window_key}",
            )
        check_revision(before, manifest)
    return manifest


def _evaluator_set(home: Home, approved: ApprovedPlan) -> str:
    """Digest of the evidence that was taken in and produced until the watermark; a comparison has none."""
    if approved.study.evaluator_trust is None:
        return evaluator_set_digest(())
    watermark = approved.declaration.record.ingestion_watermark
    return check_window_evidence(home, approved.window_key, watermark).evaluator_set_digest
