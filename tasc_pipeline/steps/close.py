"""Closing a window: manifest v2 over what was accepted, and the link that binds it to its declaration and plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tasc_collector.contracts.manifest import CapacityUnavailable, WindowManifest
from tasc_collector.contracts.report import ReasonCount
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.sets import evaluator_set_digest
from tasc_collector.contracts.window import LinkCounts, WindowLink
from tasc_collector.errors import InputError
from tasc_collector.journal import verify
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import LINK, MANIFEST, WindowFolder
from tasc_pipeline.steps.collect import run_context, utc_now
from tasc_pipeline.steps.collected import Collected, read_collected
from tasc_pipeline.steps.plan import load_approved

ONLINE = frozenset({"comparison", "window", "monitoring"})
"""Purposes whose windows get a manifest; development and holdout get the link only."""


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A closed window's records."""

    link: WindowLink
    manifest: WindowManifest | None
    collected: Collected


def close(home: Home, window_key: str) -> ClosedWindow:
    """Close a window whose planned executions are all final. Closing again gives the same records.

    Raises:
        InputError: executions are pending; says the command that finishes them.
        JournalError: the journal is not what its seal says.
    """
    approved = load_approved(home, window_key)
    plan, declaration = approved.plan.record, approved.declaration.record
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    context = run_context(home, approved, ())
    report = verify(context.folder, context.binding, journal_key)
    collected = read_collected(approved, context.folder, journal_key)
    if collected.pending or not report.sealed:
        raise InputError(
            f"{collected.pending} planned executions are not final",
            where=window_key,
            way_out=f"finish the window: tasc collect {window_key} (or after its end: tasc settle {window_key})",
        )
    folder = WindowFolder(home, window_key)
    if folder.has(LINK):
        link = folder.link(approved.ring).record
        return ClosedWindow(link, folder.manifest() if link.manifest_digest is not None else None, collected)
    manifest = None
    if plan.purpose in ONLINE:
        manifest = WindowManifest.issue(
            window_id=declaration.window_id,
            protocol_digest=plan.protocol_digest,
            frozen_policy_digest=plan.policy_digest,
            event_time_start_inclusive=declaration.event_time_start_inclusive,
            event_time_end_exclusive=declaration.event_time_end_exclusive,
            ingestion_watermark=declaration.ingestion_watermark,
            closure_reason="every-execution-final",
            membership_rule=declaration.membership_rule,
            membership_digest=declaration.membership_digest,
            revision=declaration.revision,
            predecessor_manifest_digest=None,
            trace_set_digest=collected.trace_set_digest,
            evaluator_set_digest=evaluator_set_digest(()),
            capacity_evidence=CapacityUnavailable(reason_code="no-capacity-measured"),
        )
        folder.write(MANIFEST, manifest)
    states = Counter("accepted" if item.fault is None else item.fault.state for item in collected.executions)
    reasons = Counter(str(item.fault.reason) for item in collected.executions if item.fault is not None)
    link = WindowLink.sign_with(
        context.terms.collector_key,
        context.terms.collector_key_id,
        window_key=window_key,
        study_id=plan.study_id,
        declaration_digest=plan.declaration_digest,
        plan_digest=plan.digest,
        trace_set_digest=collected.trace_set_digest,
        manifest_digest=None if manifest is None else manifest.self_digest,
        journal_head="sha256:" + report.head,
        counts=LinkCounts(
            planned=len(collected.executions),
            accepted=states["accepted"],
            not_sent=states["not_sent"],
            not_attempted=states["not_attempted"],
            reasons=tuple(ReasonCount(reason=reason, count=count) for reason, count in sorted(reasons.items())),
        ),
        closed_at=format_timestamp(utc_now()),
    )
    folder.write(LINK, link)
    return ClosedWindow(link, manifest, collected)
