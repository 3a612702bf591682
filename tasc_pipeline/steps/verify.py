"""Checking what a window left, from the first byte of its journal to its published parts, and saying what that proves.

Parquet is derived. As long as a window is not closed, a run that died may have left none of it, or what an earlier run
published; that is said, and is no damage. What is published must be what was signed in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.verification import StudyTerms, verify_trace
from tasc_collector.errors import TascError
from tasc_collector.journal import VerificationReport, journal_exists
from tasc_collector.journal import verify as verify_journal
from tasc_collector.signing import PublicKey
from tasc_collector.wire.records import read_record
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import LINK, WindowFolder
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved
from tasc_pipeline.steps.collect import run_context
from tasc_pipeline.steps.collected import Collected, read_collected, telling
from tasc_pipeline.steps.metrics import scrapes_digest
from tasc_pipeline.steps.sampling import device_snapshots_digest
from tasc_pipeline.steps.spool import SpoolFailed
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.manifests import is_published, window_batches
from tasc_pipeline.warehouse.parquet import equal_rows
from tasc_pipeline.warehouse.publish import window_folder
from tasc_pipeline.warehouse.rows import FROM_JOURNAL, row_batches
from tasc_pipeline.warehouse.schemas import TABLES

_BESIDE = ("device_samples", "metric_samples")
"""Tables that are published with every collected window; further ones are checked where they are published."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    sound: bool
    detail: str
    way_out: str = "restore the window's files from a backup; nothing was changed"
    """What to do where it is not sound."""


def verify_window(home: Home, window_key: str) -> list[str]:
    """What was proved, one line each.

    Raises:
        TascError: the first thing that is not sound.
    """
    return list(proved(home, window_key))


def proved(home: Home, window_key: str) -> Iterator[str]:
    """The lines of ``verify_window``, each as soon as it is proved, so that what is sound is told before what is not.

    Raises:
        TascError: the first thing that is not sound.
    """
    for finding in _findings(home, window_key):
        if not finding.sound:
            said = finding.detail  # the text of an error has its own way out
            raise TascError(
                f"{finding.name}: {said}", where=window_key, way_out=None if " -> " in said else finding.way_out
            )
        yield f"{finding.name}: {finding.detail}"


def findings(home: Home, window_key: str) -> list[Finding]:
    """Every check, sound or not; a check that cannot be made is not sound.

    Raises:
        SpoolFailed: the disk has no room to read the journal; that says nothing of the window.
    """
    return list(_findings(home, window_key))


def _findings(home: Home, window_key: str) -> Iterator[Finding]:
    try:
        approved = load_approved(home, window_key)
    except TascError as error:
        yield Finding("authority", False, str(error))
        return
    word = "approval" if approved.authorization is None else "standing authorization"
    yield Finding("authority", True, f"declaration, plan and {word} are signed and agree; plan {approved.digest}")
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    folder = home.run(approved.collected_as)
    if not WindowFolder(home, window_key).has(LINK) and not journal_exists(folder):
        yield Finding("journal", False, "nothing was collected yet", f"run: tasc collect {window_key}")
        return
    try:
        with telling(approved, "verifying the journal") as each:
            report = verify_journal(folder, run_context(home, approved, ()).binding, journal_key, each=each)
        collected = read_collected(approved, folder, journal_key)
    except SpoolFailed:
        raise
    except TascError as error:
        yield Finding("journal", False, str(error))
        return
    ended = "sealed: nothing can be missing at its end" if report.sealed else "not sealed: it may still grow"
    kept = report.filesystem
    yield Finding(
        "journal",
        True,
        f"{report.records} records in {report.segments} segments, chain and MACs right, {ended}; "
        f"file system {kept.type} is {kept.trust}: {kept.reason}",
    )
    yield _signatures(approved, collected)
    yield _counts(home, window_key, approved, collected, report)
    yield from _parts(home, window_key, approved, collected)


def _signatures(approved: ApprovedPlan, collected: Collected) -> Finding:
    rules = approved.study.rules
    terms = StudyTerms(
        rules.study_id,
        rules.digest,
        rules.created_at,
        rules.expires_at,
        rules.dispatch_authority,
        rules.collector_authority,
        rules.required_capabilities,
    )
    checked, tell = 0, counted("verifying executions", len(collected.executions))
    for execution in collected.executions:
        tell(1)
        if execution.envelope_bytes is None:
            continue
        try:
            trace = read_record(TraceEnvelope, execution.envelope_bytes)
            verify_trace(trace, terms)
            _dated(approved, trace.record)
        except TascError as error:
            said = f"{error.what} (rule: {error.rule})" if error.rule else error.what
            return Finding("signatures", False, f"trace {execution.trace_id}: {said}")
        checked += 1
    return Finding("signatures", True, f"{checked} envelopes, both signatures of each, by keys that were valid then")


def _dated(approved: ApprovedPlan, trace: TraceEnvelope) -> None:
    """Both of a trace's keys were valid, by the key ring, when they signed it."""
    named = trace.dispatch_intent, trace.collector_attestation
    keys.public_key(approved.ring, named[0].authority_key_id, ("dispatch",), named[0].issued_at, where=trace.trace_id)
    keys.public_key(
        approved.ring, named[1].authority_key_id, ("collector",), named[1].collected_at, where=trace.trace_id
    )


def _counts(
    home: Home, window_key: str, approved: ApprovedPlan, collected: Collected, report: VerificationReport
) -> Finding:
    """Planned executions against the signed link, and the manifest that the link names."""
    planned = len(collected.executions) + collected.pending
    folder = WindowFolder(home, window_key)
    if not folder.has(LINK):
        final = f"{collected.pending} of them not final yet" if collected.pending else "all final"
        return Finding("counts", True, f"{planned} planned, {final}; the window is not closed yet")
    if not report.sealed:
        return Finding("counts", False, "the window is closed, and its journal has no seal any more")
    try:
        link = folder.link(approved.ring).record
        manifest = folder.manifest() if link.manifest_digest is not None else None
        held = (
            scrapes_digest(home, approved.collected_as, approved.ring),
            device_snapshots_digest(home, approved.collected_as, approved.ring),
        )
    except TascError as error:
        return Finding("counts", False, str(error))
    counts = link.counts
    if held != (link.scrapes_digest, link.device_snapshots_digest):
        return Finding("counts", False, "scrapes or device snapshots are not those that the signed link names")
    adds_up = counts.planned == planned == counts.accepted + counts.not_sent + counts.not_attempted
    same = (link.trace_set_digest, link.journal_head, link.plan_digest, link.declaration_digest) == (
        collected.trace_set_digest,
        f"sha256:{report.head}",
        approved.digest,
        approved.declaration.record.digest,
    )
    if not (adds_up and same):
        return Finding("counts", False, "the signed link does not say what the journal says")
    if manifest is not None and (manifest.self_digest, manifest.trace_set_digest) != (
        link.manifest_digest,
        link.trace_set_digest,
    ):
        return Finding("counts", False, "the window's manifest is not the one that the signed link names")
    states = f"{counts.accepted} accepted + {counts.not_sent} not sent + {counts.not_attempted} not attempted"
    return Finding("counts", True, f"{planned} planned = {states}, as signed")


def _parts(home: Home, window_key: str, approved: ApprovedPlan, collected: Collected) -> Iterator[Finding]:
    """Parts that are derived from the journal equal it; those that only came beside it are what was signed."""
    try:
        signers = _part_signers(home, window_key, approved)
    except TascError as error:
        yield Finding("parquet", False, str(error))
        return
    closed = WindowFolder(home, window_key).has(LINK)
    others = (name for name in TABLES if name not in {*FROM_JOURNAL, *_BESIDE})
    names = (*FROM_JOURNAL, *_BESIDE, *(name for name in others if _left(home, name, window_key)))
    tell = counted("comparing tables", len(names))
    for name in names:
        if closed or is_published(home.warehouse, name, window_key):
            yield _part(home, name, window_key, collected, signers, closed=closed)
        else:
            yield Finding(f"parquet {name}", True, f"not published yet; {_publishing(window_key)}")
        tell(1)


def _left(home: Home, table: str, window_key: str) -> bool:
    """Whether a table of the window was published, also where its manifest is gone since."""
    return window_folder(home.warehouse, table, window_key).is_dir() or is_published(home.warehouse, table, window_key)


def _publishing(window_key: str) -> str:
    return f"it is derived from the journal by: tasc settle {window_key}"


def _part(
    home: Home, name: str, window_key: str, collected: Collected, signers: Mapping[str, PublicKey], *, closed: bool
) -> Finding:
    what = f"parquet {name}"
    published = window_batches(home.warehouse, name, window_key, keys=signers)
    try:
        if name not in FROM_JOURNAL:
            return Finding(what, True, f"{sum(batch.num_rows for batch in published)} rows, as signed")
        rows = equal_rows(published, row_batches(name, collected.executions.sorted_for(name)))
    except SpoolFailed:
        raise
    except TascError as error:
        return Finding(what, False, str(error))
    if rows is None and not closed:
        return Finding(what, True, f"as signed, by a run before the journal grew; {_publishing(window_key)}")
    if rows is None:
        return Finding(what, False, "differs from the journal")
    return Finding(what, True, f"{rows} rows, equal to the journal")


def _part_signers(home: Home, window_key: str, approved: ApprovedPlan) -> dict[str, PublicKey]:
    """Collector keys that a part manifest, which has no date, may be signed by: one that was revoked counts only where
    the window was closed before.
    """
    folder = WindowFolder(home, window_key)
    closed_at = folder.link(approved.ring).record.closed_at if folder.has(LINK) else None
    return {
        key.key_id: PublicKey.from_spki(key.public_key_spki)
        for key in approved.ring.keys
        if key.role == "collector"
        and (key.revoked_at is None or (closed_at is not None and closed_at < key.revoked_at))
    }
