"""All windows at a glance: what `tasc status` shows and the asset ``window_catalogue`` publishes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import TascError
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import APPROVAL, LINK, PLAN, REPORT, WindowFolder, window_keys
from tasc_pipeline.steps.collect import utc_now
from tasc_pipeline.steps.progress_of import RunState, run_state
from tasc_pipeline.warehouse.compaction import compact_due
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.publish import ManifestSigner


@dataclass(frozen=True, slots=True)
class WindowLine:
    """One window."""

    window_key: str
    study_id: str
    stage: str
    """sealed, planned, approved, collecting, partial, collected, closed or assessed."""
    counts: dict[str, int]
    ends_at: str
    expires_at: str | None
    owner: str | None
    """Who holds the journal's lock, if anyone does."""
    verdict: str | None
    next_command: str | None
    problem: str | None


def windows(home: Home, now: datetime) -> list[WindowLine]:
    """Every sealed window, newest last."""
    return [_line(home, key, now) for key in window_keys(home)]


def publish_catalogue(home: Home) -> list[WindowLine]:
    """Compact what has become many small parts, rebuild the views over everything that is published, and say what there is."""
    ring = keys.read_ring(home)
    collector = keys.current(ring, "collector", format_timestamp(utc_now()))
    signer = ManifestSigner(keys.signing_key(home, "keyfile:collector.key"), collector.key_id)
    compact_due(home.warehouse, sign=signer, clock=utc_now, keys=keys.collector_keys(home))
    build_views(home.root, clock=utc_now, keys=keys.collector_keys(home))
    return windows(home, utc_now())


def _line(home: Home, key: str, now: datetime) -> WindowLine:
    folder = WindowFolder(home, key)
    try:
        ring = keys.read_ring(home)
        declaration = folder.declaration(ring).record
        study, ends = declaration.study_id, declaration.event_time_end_exclusive
        if not folder.has(PLAN):
            return WindowLine(key, study, "sealed", {}, ends, None, None, None, f"tasc plan {key}", None)
        plan = folder.plan(ring).record
        expires = plan.expires_at
        if not folder.has(APPROVAL):
            return WindowLine(
                key, study, "planned", {}, ends, expires, None, None, f"tasc plan approve {key} {plan.digest}", None
            )
        state: RunState = run_state(home, key)
        if folder.has(LINK):
            counts = folder.link(ring).record.counts
            totals = {"accepted": counts.accepted, "not_sent": counts.not_sent, "not_attempted": counts.not_attempted}
            if not folder.has(REPORT):
                return WindowLine(key, study, "closed", totals, ends, None, None, None, f"tasc assess {key}", None)
            verdicts = folder.report().record.comparisons
            return WindowLine(
                key,
                study,
                "assessed",
                totals,
                ends,
                None,
                None,
                ", ".join(item.verdict for item in verdicts),
                f"tasc report {key}",
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
