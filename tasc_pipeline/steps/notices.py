"""Telling: which notices a window, a study or a failed run gives, kept durably, and published as content-free rows.

Rules:

1. A notice that is kept is told, whoever kept it: ``unpublished`` finds those whose rows are missing, whatever ended
   between keeping and publishing.
2. A window whose look failed is marked, and ``look_again`` looks at it until it succeeds.
3. One study's or window's trouble stops no other's: what failed is collected and named at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError, TascError
from tasc_pipeline.clock import utc_now
from tasc_pipeline.control import notices as rules
from tasc_pipeline.home import keys
from tasc_pipeline.home import notices as store
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.notices import StoredNotice
from tasc_pipeline.home.studies import load_study, study_ids
from tasc_pipeline.home.window_index import WindowFacts, current_keys, window_facts
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.manifests import published, read_window
from tasc_pipeline.warehouse.publish import ManifestSigner, publish
from tasc_pipeline.warehouse.record_rows import notices_table
from tasc_pipeline.warehouse.schemas import NOTICES

FAILURES: Final[Mapping[str, str]] = {
    "DagsterAssetCheckFailedError": "check-failed",
    "DagsterExecutionInterruptedError": "interrupted",
    "DigestMismatch": "digest-mismatch",
    "InputError": "input",
    "JournalCorrupt": "journal-corrupt",
    "JournalFailed": "journal-failed",
    "JournalFull": "journal-full",
    "JournalLocked": "journal-locked",
    "NotAuthorized": "not-authorized",
    "PartCorruptError": "part-corrupt",
    "SecretUnavailable": "secret-unavailable",
    "SignatureError": "signature",
    "WarehouseError": "disk-refused",
}
"""What a notice says of a failed run, by the class of its error."""
UNEXPECTED: Final = "unexpected"
"""What it says of any other."""
ENDED: Final = "run-ended"
"""What it says where no step failed: the run's process ended, or was ended, from outside."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a round of publishing did.

    Attributes:
        windows: how many windows' rows were published.
        failed: name of a study or window, and why its rows were not.
    """

    windows: int
    failed: tuple[tuple[str, TascError], ...]


def after_assessment(home: Home, window_key: str) -> list[StoredNotice]:
    """Keep what an assessed window tells; nothing where it was told before or is not assessed.

    Raises:
        TascError: the study's files break a rule, or the notice cannot be written; the window is marked (rule 2).
    """
    facts = window_facts(home)
    told = facts.get(window_key)
    if told is None or told.as_of is None:
        return []
    try:
        found = _after_assessment(home, facts, told)
    except TascError:
        if told.study_id in study_ids(home):
            with contextlib.suppress(InputError):  # the first error says why
                store.set_aside(home, told.study_id, window_key)
        raise
    store.looked_at(home, told.study_id, window_key)
    return found


def look_again(home: Home) -> list[StoredNotice]:
    """Look at every window whose last look failed; one that fails again stays marked."""
    found: list[StoredNotice] = []
    for study_id in study_ids(home):
        for window_key in store.to_look_at(home, study_id):
            with contextlib.suppress(TascError):
                found += after_assessment(home, window_key)
    return found


def _after_assessment(home: Home, facts: Mapping[str, WindowFacts], told: WindowFacts) -> list[StoredNotice]:
    window_key, as_of = told.window_key, told.as_of or ""
    study = load_study(home, told.study_id)
    current = current_keys(facts)
    same = [
        item
        for item in facts.values()
        if item.study_id == told.study_id
        and item.protocol_digest == told.protocol_digest
        and item.as_of is not None
        and (item.window_key == window_key or item.window_key in current)
        and (item.as_of, item.window_key) <= (as_of, window_key)
    ]
    looks = [_look(item) for item in sorted(same, key=lambda item: (item.as_of or "", item.window_key))]
    found = rules.notices_of(
        told.study_id,
        told.study_kind,
        looks,
        agreeing_windows=store.read_rules(home, told.study_id).agreeing_windows,
        floor=study.minimum_coverage,
    )
    return [item for notice in found if (item := store.store(home, notice)) is not None]


def after_failure(home: Home, window_key: str, run_id: str, category: str) -> StoredNotice | None:
    """Keep that a window's run failed; None where no such window was sealed, or it was told before.

    Args:
        home: the state folder.
        window_key: the run's partition.
        run_id: the run.
        category: category of its error; no text of the error.
    """
    told = window_facts(home).get(window_key)
    if told is None or not told.study_id:
        return None
    notice = rules.failed_run(told.study_id, window_key, category, at=format_timestamp(utc_now()))
    return store.store(home, notice, about=run_id)


def overdue(home: Home, now: str) -> list[StoredNotice]:
    """Keep that a study's next window did not come; once per newest window.

    A window came where it was collected and closed; one that was only sealed did not. Of a study that never collected one,
    the first that was sealed counts. Without ``period_minutes`` the period is the time between the last two that came, at
    least an hour.
    """
    found: list[StoredNotice] = []
    for study_id, windows in _by_study(window_facts(home).values()).items():
        try:
            study, rule = load_study(home, study_id), store.read_rules(home, study_id)
        except TascError:
            continue  # `tasc status` says what is wrong with it
        recurring = study.comparison is not None and study.comparison.record.rule.recurring
        if not recurring and rule.period_minutes is None:
            continue
        firsts = sorted((item.starts_at, item.window_key, item.closed_at) for item in windows if item.revision == 1)
        came = [item for item in firsts if item[2] is not None] or firsts[:1]
        if not came:
            continue
        start, key, _ = came[-1]
        period = rules.period_ms([start for start, *_ in came[-2:]], rule.period_minutes)
        notice = rules.missing_window(study_id, key, start, period, as_of=now)
        if notice is not None and (item := store.store(home, notice)) is not None:
            found.append(item)
    return found


def every(home: Home) -> list[StoredNotice]:
    """Every notice of every study, oldest first."""
    found = [item for study_id in study_ids(home) for item in store.stored(home, study_id)]
    return sorted(found, key=lambda item: (item.notice.at, item.path.name))


def publish_notices(home: Home, *, only: str | None = None) -> Published:
    """Publish the rows of every window whose notices are not all in the warehouse; each is tried (rule 3).

    Args:
        home: the state folder.
        only: key of the one window to publish; all where None.
    """
    windows, by_window, failed = 0, *_by_window(home)
    for key, items in by_window.items():
        if only not in (None, key):
            continue
        try:
            if _published(home, key) == len(items):
                continue
            rows = notices_table(key, [item.notice for item in items])
            publish(home.warehouse, NOTICES.name, key, rows, sign=signer_of(home), clock=utc_now)
            windows += 1
        except TascError as error:
            failed.append((key, error))
    if windows:
        try:
            build_views(home.root, clock=utc_now, keys=keys.collector_keys(home))
        except TascError as error:
            failed.append(("views", error))
    return Published(windows, tuple(failed))


def unpublished(home: Home) -> list[StoredNotice]:
    """Notices of windows whose rows are not all published, as the manifests list them; no part is read."""
    rows: dict[str, int] = {}
    with contextlib.suppress(TascError):  # whoever publishes reads what can be read, and names what cannot
        listed = published(home.warehouse, NOTICES.name)
        for _, group in reversed(listed.compacted):
            rows |= {item.window_key: item.rows for item in group.covers}
        rows |= {key: sum(part.rows for part in manifest.parts) for key, manifest in listed.windows.items()}
    by_window, _ = _by_window(home)
    return [item for key, items in by_window.items() if rows.get(key, 0) != len(items) for item in items]


def _by_window(home: Home) -> tuple[dict[str, list[StoredNotice]], list[tuple[str, TascError]]]:
    """Notices by window; and the studies whose notices cannot be read."""
    found: dict[str, list[StoredNotice]] = {}
    failed: list[tuple[str, TascError]] = []
    for study_id in study_ids(home):
        try:
            for item in store.stored(home, study_id):
                if item.notice.window_key is not None:
                    found.setdefault(item.notice.window_key, []).append(item)
        except TascError as error:
            failed.append((study_id, error))
    return found, failed


def signer_of(home: Home) -> ManifestSigner:
    """The state folder's collector key, for tables that belong to no one study."""
    current = keys.current(keys.read_ring(home), "collector", format_timestamp(utc_now()))
    return ManifestSigner(keys.signing_key(home, "keyfile:collector.key"), current.key_id)


def _published(home: Home, window_key: str) -> int:
    try:
        return int(read_window(home.warehouse, NOTICES.name, window_key).num_rows)
    except InputError:
        raise
    except TascError:
        return 0


def _look(item: WindowFacts) -> rules.Look:
    verdicts = {candidate: str(verdict) for candidate, verdict in item.results or ()}
    return rules.Look(item.window_key, item.as_of or "", verdicts, item.coverage)


def _by_study(windows: Iterable[WindowFacts]) -> Mapping[str, list[WindowFacts]]:
    found: dict[str, list[WindowFacts]] = {}
    for item in windows:
        if item.study_id:
            found.setdefault(item.study_id, []).append(item)
    return found
