"""A study's controller: what it says, and the next fact that the records on disk hold.

Rules:

1. ``advance`` records one fact. Which one follows from the controller's state and the records (``FINDERS``); where
   there is none it says what is missing and which command makes it.
2. In PROMOTION_RECOMMENDED nothing is recorded unasked: a new window would take the recommendation back, and whether the
   policy was deployed only the operator knows. He names the window or writes the fact.
3. Records are read with their signatures checked; a window that was not declared decisive is passed over.
4. A fact that was recorded before is not recorded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from tasc_collector.contracts.base import json_object
from tasc_collector.contracts.controller import ControllerAnchor, ControllerSnapshot
from tasc_collector.contracts.controller_facts import ControllerFact, ShadowAssessmentStarted
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.limits import RECORD_MAX_BYTES
from tasc_collector.wire.json import parse_json
from tasc_collector.wire.records import read_bounded
from tasc_pipeline.control import controller_sources as sources
from tasc_pipeline.control.controller import Outlook, allowed_next
from tasc_pipeline.control.controller_replay import Chain, check_anchor
from tasc_pipeline.control.decided import Decided
from tasc_pipeline.home import keys
from tasc_pipeline.home.controller import Recorded, controller_log, read_anchor
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import APPROVAL, LINK, MANIFEST, PLAN, REPORT, WindowFolder, window_folder
from tasc_pipeline.steps.decided import decided_file, read_decided


@dataclass(frozen=True, slots=True)
class ControllerView:
    """What ``tasc controller show`` shows."""

    chain: Chain
    outlooks: tuple[Outlook, ...]
    next_fact: ControllerFact | None
    """What ``advance`` would record now."""
    waiting_for: str
    """Where there is none: what is missing, and how it is made."""

    @property
    def anchor(self) -> ControllerAnchor:
        """What pins the newest snapshot from outside."""
        return self.chain.current.anchor


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator names for ``advance``; everything empty takes the next fact that the records hold.

    Args:
        window_key: a window whose manifest, then whose decision, is recorded.
        decision: file of a decision that was made elsewhere.
        fact: file of a fact that only an operator can know.
        retire: reason for ending the controller.
    """

    window_key: str | None = None
    decision: Path | None = None
    fact: Path | None = None
    retire: str | None = None


def show(home: Home, study_id: str, now: datetime, *, anchor: Path | None = None) -> ControllerView:
    """The controller as its log says.

    Args:
        home: the state folder.
        study_id: a decision study.
        now: the wall clock.
        anchor: an anchor that was kept elsewhere; the log must pass through it.

    Raises:
        InputError: the study has no controller, or the log is not what was recorded.
    """
    loaded = load_study(home, study_id)
    chain, at = controller_log(home, loaded).read(), format_timestamp(now)
    if anchor is not None:
        check_anchor(chain, read_anchor(anchor))
    found = _next(_Records(home, loaded, keys.read_ring(home)), chain.current, at)
    missing = found if isinstance(found, str) else ""
    return ControllerView(chain, allowed_next(chain.current, at), None if isinstance(found, str) else found, missing)


def advance(home: Home, study_id: str, now: datetime, wanted: Wanted | None = None) -> Recorded:
    """Record one fact (rules 1 to 4).

    Raises:
        NotAuthorized: the controller does not take it in this state, or the records hold nothing new; names the rule.
        InputError: a record is missing or is not what was signed.
    """
    loaded, at, wanted = load_study(home, study_id), format_timestamp(now), wanted or Wanted()
    log, records = controller_log(home, loaded), _Records(home, loaded, keys.read_ring(home))
    snapshot = log.read().current
    found = _named(records, snapshot, wanted) or _next(records, snapshot, at)
    if isinstance(found, str):
        raise NotAuthorized(
            "the records hold no next fact for the controller",
            where=study_id,
            field=snapshot.state,
            rule=found,
            way_out=f"see what is allowed next and why: tasc controller show {study_id}",
        )
    return log.record(found, at)


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a study, read where they are needed."""

    home: Home
    loaded: LoadedStudy
    ring: KeyRing

    def windows(self, *names: str) -> Iterator[tuple[WindowFolder, WindowDeclaration]]:
        """Decisive windows of the study that have all these records, oldest first."""
        study_id, digest = self.loaded.study.study_id, self.loaded.protocol_digest
        known = sorted(window_facts(self.home).values(), key=lambda item: (item.starts_at, item.window_key))
        for facts in known:
            folder = WindowFolder(self.home, facts.window_key)
            if facts.study_id != study_id or facts.protocol_digest != digest or not all(map(folder.has, names)):
                continue
            declaration = folder.declaration(self.ring).record
            if declaration.window_class == "decisive":
                yield folder, declaration

    def closed(self, *names: str) -> Iterator[tuple[WindowFolder, WindowDeclaration, WindowManifest]]:
        """Closed decisive windows that have a manifest, which their signed link names, and these records."""
        for folder, declaration in self.windows(LINK, MANIFEST, *names):
            yield folder, declaration, self.manifest(folder)

    def manifest(self, folder: WindowFolder) -> WindowManifest:
        """The manifest of a closed window."""
        manifest = folder.manifest()
        if folder.link(self.ring).record.manifest_digest != manifest.self_digest:
            raise DigestMismatch(
                "the window's manifest is not the one that the signed link names",
                where=folder.window_key,
                field="manifestDigest",
                way_out=f"run: tasc verify {folder.window_key}",
            )
        return manifest

    def decisions(self, phase: str) -> Iterator[Decided]:
        """Decisions of a phase that do not wait for a watermark, newest window first."""
        found = [read_decided(self.loaded, folder) for folder, _ in self.windows(REPORT)]
        yield from (item for item in reversed(found) if item.phase == phase and not item.waits)


_Found: TypeAlias = ControllerFact | str
"""The next fact, or what is missing."""
_Finder: TypeAlias = Callable[[_Records, ControllerSnapshot, str], _Found]


def _registration(records: _Records, _snapshot: ControllerSnapshot, _at: str) -> _Found:
    protocol = records.loaded.protocol
    return "the study has no protocol" if protocol is None else sources.registration(protocol.record)


def _collection(records: _Records, snapshot: ControllerSnapshot, _at: str) -> _Found:
    for folder, declaration in records.windows(PLAN, APPROVAL):
        plan, approval = folder.plan(records.ring).record, folder.approval(records.ring).record
        if plan.purpose == "development" and approval.plan_digest == plan.digest:
            return sources.collection_start(plan, declaration)
    return (
        "no decisive window has an approved plan of purpose development: "
        f"tasc seal {snapshot.study_id} --decisive, then tasc plan KEY --purpose development"
    )


def _development(records: _Records, snapshot: ControllerSnapshot, _at: str) -> _Found:
    decision = next(records.decisions("development"), None)
    if decision is None:
        return "no development decision: close the development window and assess it with tasc assess KEY"
    if snapshot.state == "COLLECTING":
        return sources.evidence_ready(decision)
    return sources.development_assessment(decision)


def _shadow(records: _Records, snapshot: ControllerSnapshot, _at: str) -> _Found:
    policy = snapshot.selected_policy
    if policy is None or policy.policy_digest not in records.loaded.policies:
        return "the nominated policy is not among the study's policies/: restore its file"
    return ShadowAssessmentStarted(frozen_policy_digest=policy.policy_digest)


def _holdout(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    manifest = _manifest(records, snapshot, at)
    if not isinstance(manifest, str):
        return manifest
    decision = next(records.decisions("holdout"), None)
    if decision is None:
        return (
            f"{manifest}; and no holdout decision: collect with tasc plan KEY --purpose holdout, then tasc assess KEY"
        )
    return sources.holdout_assessment(decision)


def _manifest(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    recorded = {item.manifest_digest for ledger in snapshot.windows for item in ledger.revisions}
    waiting = ""
    for folder, declaration, manifest in records.closed():
        if manifest.self_digest in recorded:
            continue
        if at >= manifest.ingestion_watermark:
            return sources.manifest_record(declaration, manifest)
        waiting = waiting or f"; {folder.window_key} waits for its watermark at {manifest.ingestion_watermark}"
    return f"no decisive window was closed whose manifest is not recorded{waiting}"


def _window(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    manifest = _manifest(records, snapshot, at)
    if not isinstance(manifest, str):
        return manifest
    newest = {ledger.revisions[-1].manifest_digest for ledger in snapshot.windows}
    known = {item.decision_digest for item in snapshot.assessments}
    for folder, declaration, found in records.closed(REPORT):
        decision = read_decided(records.loaded, folder)
        if found.self_digest in newest and decision.decision_digest not in known and not decision.waits:
            return sources.window_assessment(declaration, found, decision)
    return f"{manifest}; and no recorded window has a new decision: tasc assess KEY"


def _operator_only(_records: _Records, snapshot: ControllerSnapshot, _at: str) -> _Found:
    return (
        "nothing is recorded unasked here: record a deployment with tasc controller advance "
        f"{snapshot.study_id} --fact FILE, or a further window with --window KEY"
    )


def _ended(_records: _Records, snapshot: ControllerSnapshot, _at: str) -> _Found:
    return (
        f"{snapshot.state} takes drift, expiry and retirement only; go on with a successor: "
        f"tasc study fork {snapshot.study_id}"
    )


FINDERS: Final[Mapping[str, _Finder]] = {
    "DRAFT": _registration,
    "REGISTERED": _collection,
    "COLLECTING": _development,
    "DEV_READY": _development,
    "NOMINATED": _shadow,
    "SHADOW_ASSESSING": _holdout,
    "HOLDOUT_CONFIRMED": _window,
    "PROMOTION_RECOMMENDED": _operator_only,
    "MONITORING": _window,
}
"""Rule 1: where the next fact of a state is found; the other states have ended."""


def _next(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    if at >= snapshot.protocol_expires_at and snapshot.state != "RETIRED":
        return sources.expiry(snapshot.protocol_expires_at)
    return FINDERS.get(snapshot.state, _ended)(records, snapshot, at)


def _named(records: _Records, snapshot: ControllerSnapshot, wanted: Wanted) -> ControllerFact | None:
    """The fact that an operator named; None where he named none."""
    if sum(item is not None for item in (wanted.window_key, wanted.decision, wanted.fact, wanted.retire)) > 1:
        raise InputError(
            "one fact is recorded at a time",
            where="tasc controller advance",
            way_out="name a window, a decision, a fact file or a reason to retire, and only one of them",
        )
    if wanted.retire is not None:
        return sources.operator_fact(
            {"version": "tasc-controller-fact-v1", "kind": "controller-retired", "reasonCode": wanted.retire},
            where="--retire",
        )
    if wanted.fact is not None:
        return sources.operator_fact(
            json_object(parse_json(read_bounded(wanted.fact, RECORD_MAX_BYTES)), where=wanted.fact.name),
            where=wanted.fact.name,
        )
    if wanted.decision is not None:
        return _of_decision(records, snapshot, decided_file(records.loaded, wanted.decision))
    if wanted.window_key is not None:
        return _of_window(records, snapshot, wanted.window_key)
    return None


def _of_decision(records: _Records, snapshot: ControllerSnapshot, decision: Decided) -> ControllerFact:
    if decision.phase == "development":
        if snapshot.state == "COLLECTING":
            return sources.evidence_ready(decision)
        return sources.development_assessment(decision)
    if decision.phase == "holdout":
        return sources.holdout_assessment(decision)
    for _, declaration, manifest in records.closed():
        if manifest.self_digest == decision.window_manifest_digest:
            return sources.window_assessment(declaration, manifest, decision)
    raise InputError(
        "no closed decisive window has the manifest that the decision names",
        where=snapshot.study_id,
        field="windowManifestDigest",
        way_out="see the windows with tasc status",
    )


def _of_window(records: _Records, snapshot: ControllerSnapshot, window_key: str) -> ControllerFact:
    folder = window_folder(records.home, window_key)
    declaration = folder.declaration(records.ring).record
    if declaration.study_id != snapshot.study_id:
        raise InputError(
            "the window is of another study",
            where=window_key,
            field="studyId",
            way_out=f"run: tasc controller advance {declaration.study_id} --window {window_key}",
        )
    if not folder.has(MANIFEST):
        if folder.has(REPORT):
            return _of_decision(records, snapshot, read_decided(records.loaded, folder))
        return sources.collection_start(folder.plan(records.ring).record, declaration)
    manifest = records.manifest(folder)
    recorded = {item.manifest_digest for ledger in snapshot.windows for item in ledger.revisions}
    if manifest.self_digest in recorded and folder.has(REPORT):
        return sources.window_assessment(declaration, manifest, read_decided(records.loaded, folder))
    return sources.manifest_record(declaration, manifest)
