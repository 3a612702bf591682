"""All windows at a glance: what `tasc status` shows and the asset ``window_catalogue`` publishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tasc_collector.canonical import digest
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import TascError
from tasc_pipeline.clock import utc_now
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import WindowFacts, current_keys, window_facts
from tasc_pipeline.home.windows import APPROVAL, LINK, PLAN, REPORT, WindowFolder
from tasc_pipeline.steps.progress_of import RunState, run_state
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.compaction import compact_due
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.publish import ManifestSigner


@dataclass(frozen=True, slots=True)
class WindowLine:
    """One window."""

    window_key: str
    study_id: str
    stage: str
    """sealed, planned, approved, collecting, partial, collected, closed or assessed; a revision before it is closed."""
    counts: dict[str, int]
    ends_at: str
    expires_at: str | None
    owner: str | None
    """Who holds the journal's lock, if anyone does."""
    verdict: str | None
    next_command: str | None
    problem: str | None
    current: bool = True
    """False where a later revision replaces it."""


def windows(home: Home, now: datetime) -> list[WindowLine]:
    """Every sealed window in order of its key. Assessed ones are taken from the index; the others are read and verified."""
    facts = window_facts(home)
    current = current_keys(facts)
    lines: list[WindowLine] = []
    for key, item in facts.items():
        is_current = not item.readable or key in current
        lines.append(_assessed(item, current=is_current) or replace(_line(home, key, now), current=is_current))
    return lines


def version(lines: Sequence[WindowLine]) -> str:
    """Digest over what the lines say of every window."""
    return digest(
        "tasc/window-catalogue/v1", [[line.window_key, line.stage, line.verdict, line.current] for line in lines]
    )


def _assessed(item: WindowFacts, *, current: bool) -> WindowLine | None:
    """The line of an assessed window, which nothing changes any more; None for any other."""
    if item.results is None or item.counts is None or item.closed_at is None:
        return None
    _, accepted, not_sent, not_attempted = item.counts
    verdict = ", ".join(str(found) for _, found in item.results)
    return WindowLine(
        item.window_key,
        item.study_id,
        "assessed",
        {"accepted": accepted, "not_sent": not_sent, "not_attempted": not_attempted},
        item.ends_at,
        None,
        None,
        verdict,
        _next_command(item.window_key, verdict),
        None,
        current,
    )


def _verdict(report: AssessmentReport) -> str:
    """Verdicts of a comparison, or the status of a decision."""
    results: list[str] = [item.verdict for item in report.comparisons]
    results += [] if report.decision is None else [report.decision.status]
    return ", ".join(results)


def _next_command(key: str, verdict: str) -> str:
    """A stale decision is assessed again; any other result is read."""
    return f"tasc assess {key}" if verdict == "STALE" else f"tasc report {key}"


def publish_catalogue(home: Home) -> list[WindowLine]:
    """Compact what has become many small parts, rebuild the views over everything that is published, and say what there is."""
    ring = keys.read_ring(home)
    collector = keys.current(ring, "collector", format_timestamp(utc_now()))
    signer = ManifestSigner(keys.signing_key(home, "keyfile:collector.key"), collector.key_id)
    compact_due(home.warehouse, sign=signer, clock=utc_now, keys=keys.collector_keys(home), watch=counted)
    build_views(home.root, clock=utc_now, keys=keys.collector_keys(home))
    return windows(home, utc_now())


def _line(home: Home, key: str, now: datetime) -> WindowLine:
    folder = WindowFolder(home, key)
    try:
        ring = keys.read_ring(home)
        declaration = folder.declaration(ring).record
        study, ends = declaration.study_id, declaration.event_time_end_exclusive
        source = folder.origin(ring)
        if source is not folder and not folder.has(LINK):
            return WindowLine(key, study, "revision", {}, ends, None, None, None, f"tasc collect {key}", None)
        if not source.has(PLAN):
            return WindowLine(key, study, "sealed", {}, ends, None, None, None, f"tasc plan {key}", None)
        plan = source.plan(ring).record
        expires = plan.expires_at
        if plan.authorization_digest is None and not source.has(APPROVAL):
            return WindowLine(
                key, study, "planned", {}, ends, expires, None, None, f"tasc plan approve {key} {plan.digest}", None
            )
        state: RunState = run_state(home, key)
        if folder.has(LINK):
            counts = folder.link(ring).record.counts
            totals = {"accepted": counts.accepted, "not_sent": counts.not_sent, "not_attempted": counts.not_attempted}
            if not folder.has(REPORT):
                return WindowLine(key, study, "closed", totals, ends, None, None, None, f"tasc assess {key}", None)
            verdict = _verdict(folder.report().record)
            return WindowLine(
                key,
                study,
                "assessed",
                totals,
                ends,
                None,
                None,
                verdict,
                _next_command(key, verdict),
                None,
            )
        if not state.counts:
            return WindowLine(key, study, "approved", {}, ends, expires, state.owner, None, f"tasc collect {key}", None)
        over = format_timestamp(now) >= ends
        stage = "collecting" if state.owner else "collected" if state.counts.get("pending", 0) == 0 else "partial"
        command = None if state.owner else f"tasc settle {key}" if over else f"tasc collect {key}"
        return WindowLine(key, study, stage, state.counts, ends, expires, state.owner, None, command, None)
    except TascError as error:
        return WindowLine(key, "", "unreadable", {}, "", None, None, None, f"tasc verify {key}", str(error))
