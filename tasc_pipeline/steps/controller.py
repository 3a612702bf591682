"""A study's controller: what it says, and the next fact that the records on disk hold.

Rules:

1. ``advance`` records one fact. Which one follows from the controller's state and the records (``FINDERS``); where
   there is none it says what is missing and which command makes it.
2. In PROMOTION_RECOMMENDED nothing is recorded unasked: a new window would take the recommendation back, and whether the
   policy was deployed only the operator knows. He names the window or writes the fact.
3. Records are read with their signatures checked. A window that was not declared decisive is passed over, and refused
   where it is named; a decision counts only with such a window, whose traces are those that it names.
4. A fact that was recorded before is not recorded again.
5. What the controller would refuse is no next fact: it is passed over, and its rule is said where nothing else is found.
6. No decision is believed because a file says so. Before one is recorded it is made again from the window's records, as of
   the same instant, and must be the same to the digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from tasc_collector.contracts.base import json_object
from tasc_collector.contracts.controller import ControllerAnchor, ControllerSnapshot
from tasc_collector.contracts.controller_facts import ControllerFact, ShadowAssessmentStarted
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_collector.limits import RECORD_MAX_BYTES
from tasc_collector.wire.json import parse_json
from tasc_collector.wire.records import read_bounded
from tasc_pipeline.control import controller_sources as sources
from tasc_pipeline.control.controller import Outlook, allowed_next, refusal
from tasc_pipeline.control.controller_replay import Chain, check_anchor
from tasc_pipeline.control.decided import Decided
from tasc_pipeline.home import keys
from tasc_pipeline.home.controller import Recorded, controller_log, read_anchor
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import APPROVAL, LINK, MANIFEST, PLAN, REPORT, WindowFolder, window_folder
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.decided import Recompute, decided_again, decided_record, read_decided, read_decision_file


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
    fact = None if isinstance(found, str) else found.fact
    return ControllerView(chain, allowed_next(chain.current, at), fact, missing)


def advance(
    home: Home,
    study_id: str,
    now: datetime,
    wanted: Wanted | None = None,
    *,
    recompute: Recompute = decided_again,
) -> Recorded:
    """Record one fact (rules 1 to 6).

    Args:
        home: the state folder.
        study_id: a decision study.
        now: the wall clock.
        wanted: what an operator names; the next fact of the records if None.
        recompute: makes a window's decision again (rule 6).

    Raises:
        NotAuthorized: the controller does not take it in this state, or the records hold nothing new; names the rule.
        InputError: a record is missing or is not what was signed.
        DigestMismatch: a decision is not what its window's records give.
    """
    loaded, at, wanted = load_study(home, study_id), format_timestamp(now), wanted or Wanted()
    log, records = controller_log(home, loaded), _Records(home, loaded, keys.read_ring(home))
    chain = log.read()
    snapshot = chain.current
    found = _named(records, snapshot, wanted) or _next(records, snapshot, at)
    if isinstance(found, str):
        raise NotAuthorized(
            "the records hold no next fact for the controller",
            where=study_id,
            field=snapshot.state,
            rule=found,
            way_out=f"see what is allowed next and why: tasc controller show {study_id}",
        )
    if found.decision is not None and found.fact not in [event.fact for event in chain.events]:
        _confirm(home, found.decision, recompute)
    return log.record(found.fact, at)


def _confirm(home: Home, stored: _Decision, recompute: Recompute) -> None:
    """Rule 6."""
    if recompute(home, stored.window_key, stored.as_of) != stored.decided:
        raise DigestMismatch(
            "the decision is not what the window's records give",
            where=stored.window_key,
            field="decisionDigest",
            rule=f"a decision is made again as of {stored.as_of} before it is recorded",
            way_out=f"assess the window again: tasc assess {stored.window_key}",
        )


@dataclass(frozen=True, slots=True)
class _Decision:
    """A decision on a decisive window of this home, as a file says it."""

    window_key: str
    as_of: str
    decided: Decided


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A fact that may be next, and the decision that it rests on."""

    fact: ControllerFact
    decision: _Decision | None = None
    way_out: str = ""
    """What helps where the controller refuses it."""


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
        """The manifest of a closed window.

        Raises:
            DigestMismatch: it is not the one that the signed link names.
        """
        manifest = folder.manifest()
        if folder.link(self.ring).record.manifest_digest != manifest.self_digest:
            raise DigestMismatch(
                "the window's manifest is not the one that the signed link names",
                where=folder.window_key,
                field="manifestDigest",
                way_out=f"run: tasc verify {folder.window_key}",
            )
        return manifest

    def decision(self, folder: WindowFolder) -> _Decision:
        """The decision in a window's folder."""
        decided = read_decided(self.loaded, folder, self.ring)
        return _Decision(folder.window_key, folder.report().record.as_of, decided)

    def decisions(self, phase: str) -> Iterator[_Decision]:
        """Decisions of a phase that do not wait for a watermark, newest window first."""
        found = [self.decision(folder) for folder, _ in self.windows(LINK, REPORT)]
        yield from (item for item in reversed(found) if item.decided.phase == phase and not item.decided.waits)


_Found: TypeAlias = _Candidate | str
"""The next fact, or what is missing."""
_Finder: TypeAlias = Callable[[_Records, ControllerSnapshot, str], _Found]


def _first_taken(snapshot: ControllerSnapshot, at: str, candidates: Iterable[_Candidate], missing: str) -> _Found:
    """The first candidate that the controller takes; where there is none, the first one's rule before what is missing."""
    refused = ""
    for item in candidates:
        rule = refusal(snapshot, item.fact, at)
        if rule is None:
            return item
        where = f" of {item.decision.window_key}" if item.decision else ""
        refused = refused or f"{item.fact.kind}{where} is not taken: {rule}{item.way_out}; "
    return f"{refused}{missing}"


def _registration(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    protocol = records.loaded.protocol
    if protocol is None:
        return "the study has no protocol"
    return _first_taken(snapshot, at, [_Candidate(sources.registration(protocol.record))], "restore the protocol")


def _collection(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    """The start of development, by a plan that an operator or a standing authorization pins."""
    candidates: list[_Candidate] = []
    broken = ""
    for folder, declaration in records.windows(PLAN):
        plan = folder.plan(records.ring).record
        if plan.purpose != "development" or (plan.authorization_digest is None and not folder.has(APPROVAL)):
            continue
        try:
            approved = load_approved(records.home, folder.window_key)
        except InputError as error:  # another window may start it
            broken = broken or f"{error}; "
        else:
            candidates.append(_Candidate(sources.collection_start(approved.plan.record, declaration)))
    return _first_taken(
        snapshot,
        at,
        candidates,
        f"{broken}no decisive window has an approved plan of purpose development: "
        f"tasc seal {snapshot.study_id} --decisive, then tasc plan KEY --purpose development",
    )


def _development(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    return _first_taken(
        snapshot,
        at,
        (_developed(snapshot, decision) for decision in records.decisions("development")),
        "no development decision: close the development window and assess it with tasc assess KEY",
    )


def _developed(snapshot: ControllerSnapshot, decision: _Decision) -> _Candidate:
    """What a development decision tells in this state."""
    tell = sources.evidence_ready if snapshot.state == "COLLECTING" else sources.development_assessment
    return _Candidate(tell(decision.decided), decision, f" (a successor can: tasc study fork {snapshot.study_id})")


def _shadow(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    policy = snapshot.selected_policy
    if policy is None or policy.policy_digest not in records.loaded.policies:
        return "the nominated policy is not among the study's policies/: restore its file"
    fact = ShadowAssessmentStarted(frozen_policy_digest=policy.policy_digest)
    return _first_taken(
        snapshot, at, [_Candidate(fact)], f"go on with a successor: tasc study fork {snapshot.study_id}"
    )


def _holdout(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    manifest = _manifest(records, snapshot, at)
    if not isinstance(manifest, str):
        return manifest
    return _first_taken(
        snapshot,
        at,
        (_Candidate(sources.holdout_assessment(item.decided), item) for item in records.decisions("holdout")),
        f"{manifest}; and no holdout decision: collect with tasc plan KEY --purpose holdout, then tasc assess KEY",
    )


def _manifest(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    recorded, waiting = _recorded(snapshot), ""
    ready: list[_Candidate] = []
    for folder, declaration, manifest in records.closed():
        if manifest.self_digest in recorded:
            continue
        if at >= manifest.ingestion_watermark:
            ready.append(_Candidate(sources.manifest_record(declaration, manifest)))
        else:
            waiting = waiting or f"; {folder.window_key} waits for its watermark at {manifest.ingestion_watermark}"
    return _first_taken(snapshot, at, ready, f"no decisive window was closed whose manifest is not recorded{waiting}")


def _recorded(snapshot: ControllerSnapshot) -> set[str]:
    """Digests of the manifests that were recorded."""
    return {item.manifest_digest for ledger in snapshot.windows for item in ledger.revisions}


def _window(records: _Records, snapshot: ControllerSnapshot, at: str) -> _Found:
    manifest = _manifest(records, snapshot, at)
    if not isinstance(manifest, str):
        return manifest
    missing = f"{manifest}; and no recorded window has a new decision: tasc assess KEY"
    return _first_taken(snapshot, at, _assessed_windows(records, snapshot), missing)


def _assessed_windows(records: _Records, snapshot: ControllerSnapshot) -> Iterator[_Candidate]:
    """Decisions on the newest revisions that are not recorded and do not wait, oldest window first."""
    newest = {ledger.revisions[-1].manifest_digest for ledger in snapshot.windows}
    known = {item.decision_digest for item in snapshot.assessments}
    for folder, declaration, manifest in records.closed(REPORT):
        if manifest.self_digest in newest:
            decision = records.decision(folder)
            if decision.decided.decision_digest not in known and not decision.decided.waits:
                yield _judged(declaration, manifest, decision)


def _judged(declaration: WindowDeclaration, manifest: WindowManifest, decision: _Decision) -> _Candidate:
    """What a decision on a window's manifest tells."""
    fact = sources.window_assessment(declaration, manifest, decision.decided)
    way_out = ""
    if decision.as_of > manifest.ingestion_watermark:
        way_out = f" (a controller takes the decision as of the watermark: tasc assess {decision.window_key})"
    elif decision.decided.evaluator_set_digest != manifest.evaluator_set_digest:
        way_out = f" (evidence that came after the close needs a revision: tasc seal --revise {decision.window_key})"
    return _Candidate(fact, decision, way_out)


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
        return _Candidate(sources.expiry(snapshot.protocol_expires_at))
    return FINDERS.get(snapshot.state, _ended)(records, snapshot, at)


def _named(records: _Records, snapshot: ControllerSnapshot, wanted: Wanted) -> _Candidate | None:
    """The fact that an operator named; None where he named none."""
    if sum(item is not None for item in (wanted.window_key, wanted.decision, wanted.fact, wanted.retire)) > 1:
        raise InputError(
            "one fact is recorded at a time",
            where="tasc controller advance",
            way_out="name a window, a decision, a fact file or a reason to retire, and only one of them",
        )
    if wanted.retire is not None:
        retired = {"version": "tasc-controller-fact-v1", "kind": "controller-retired", "reasonCode": wanted.retire}
        return _Candidate(sources.operator_fact(retired, where="--retire"))
    if wanted.fact is not None:
        value = json_object(parse_json(read_bounded(wanted.fact, RECORD_MAX_BYTES)), where=wanted.fact.name)
        return _Candidate(sources.operator_fact(value, where=wanted.fact.name))
    if wanted.decision is not None:
        return _of_file(records, snapshot, wanted.decision)
    if wanted.window_key is not None:
        return _of_window(records, snapshot, wanted.window_key)
    return None


def _of_file(records: _Records, snapshot: ControllerSnapshot, path: Path) -> _Candidate:
    """The fact of a decision in a file, with the decisive window of this home that it is of (rule 3)."""
    record = read_decision_file(path)
    decided = decided_record(records.loaded, record)
    for folder, declaration in records.windows(LINK):
        link = folder.link(records.ring).record
        if (link.trace_set_digest, link.manifest_digest) != (decided.trace_set_digest, decided.window_manifest_digest):
            continue
        if isinstance(record, AssessmentReport):
            as_of = record.as_of
        else:
            as_of = folder.report().record.as_of if folder.has(REPORT) else declaration.ingestion_watermark
        return _of_decision(records, snapshot, folder, _Decision(folder.window_key, as_of, decided))
    raise InputError(
        "no closed decisive window of this study has the traces and the manifest that the decision names",
        where=snapshot.study_id,
        field="traceSetDigest",
        rule="a decision counts only with a window that was declared decisive and is here",
        way_out="restore the window's folder and journal, or collect and assess one here; see the windows: tasc status",
    )


def _of_decision(
    records: _Records, snapshot: ControllerSnapshot, folder: WindowFolder, decision: _Decision
) -> _Candidate:
    """What a decision on a decisive window tells in this state."""
    if decision.decided.phase == "development":
        return _developed(snapshot, decision)
    if decision.decided.phase == "holdout":
        return _Candidate(sources.holdout_assessment(decision.decided), decision)
    return _judged(folder.declaration(records.ring).record, records.manifest(folder), decision)


def _of_window(records: _Records, snapshot: ControllerSnapshot, window_key: str) -> _Candidate:
    folder = window_folder(records.home, window_key)
    declaration = folder.declaration(records.ring).record
    if declaration.study_id != snapshot.study_id:
        raise InputError(
            "the window is of another study",
            where=window_key,
            field="studyId",
            way_out=f"run: tasc controller advance {declaration.study_id} --window {window_key}",
        )
    sources.check_decisive(declaration)
    if folder.has(MANIFEST):
        manifest = records.manifest(folder)
        if manifest.self_digest not in _recorded(snapshot) or not folder.has(REPORT):
            return _Candidate(sources.manifest_record(declaration, manifest))
    if folder.has(REPORT):
        return _of_decision(records, snapshot, folder, records.decision(folder))
    return _Candidate(sources.collection_start(load_approved(records.home, window_key).plan.record, declaration))
