"""The summaries that a study's earlier windows left: what a recurring study and ``tasc power`` go on from.

The index says which windows may belong to a sequence; what it names is verified before it counts, and a window that the
index cannot read is looked at itself. Windows of other studies, and open ones, cost nothing: where any record of a
damaged window still says whose it is, it is in the way of nobody else.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import orjson

from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.report import DecisionSummary, WindowSummary
from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import WindowFacts, current_keys, window_facts
from tasc_pipeline.home.windows import DECLARATION, LINK, PLAN, REPORT, WindowFolder
from tasc_pipeline.steps.approved import ApprovedPlan

T = TypeVar("T")


def earlier_windows(
    home: Home, protocol_digest: str, *, before: str | None = None, complete: bool = True
) -> Mapping[str, tuple[WindowSummary, ...]]:
    """Summaries per candidate of every closed comparison window under exactly these rules.

    Args:
        home: the state folder.
        protocol_digest: digest of the comparison; a fork is another study and starts anew.
        before: only windows that closed before this instant.
        complete: refuse where a closed window was not assessed; a sequence must not lose a window.

    Raises:
        InputError: a window that belongs to the sequence was not assessed, or its report cannot be read.
    """
    ring = keys.read_ring(home)
    found: dict[str, list[WindowSummary]] = defaultdict(list)
    for key, item in window_facts(home).items():
        folder = WindowFolder(home, key)
        if item.readable and not _may_belong(item, protocol_digest, before):
            continue
        if not item.readable and not _may_say(folder, "protocolDigest", protocol_digest):
            continue
        if not folder.has(LINK):
            continue
        if _read(item.study_id, key, partial(folder.declaration, ring)).record.protocol_digest != protocol_digest:
            continue
        if before is not None and _read(item.study_id, key, partial(folder.link, ring)).record.closed_at >= before:
            continue
        if not folder.has(REPORT):
            if complete:
                raise InputError(
                    "an earlier window of this recurring study was not assessed",
                    where=key,
                    rule="a sequence counts every closed window",
                    way_out=f"run: tasc assess {key}",
                )
            continue
        report = _read(item.study_id, key, folder.report, way_out=f"run: tasc assess {key}").record
        for result in report.comparisons:
            if result.summary is not None:
                found[result.candidate_profile_id].append(result.summary)
    return {candidate: tuple(summaries) for candidate, summaries in found.items()}


def _may_belong(item: WindowFacts, protocol_digest: str, before: str | None) -> bool:
    """Whether a window was closed under these rules, and before an instant where one is given."""
    closed = item.closed_at is not None and (before is None or item.closed_at < before)
    return closed and item.protocol_digest == protocol_digest


def earlier_decisions(
    home: Home, approved: ApprovedPlan, policy_digest: str | None, analysis_digest: str, *, complete: bool
) -> tuple[DecisionSummary, ...]:
    """Summaries of every online window of a decision study before this one under the same policy and analysis plan.

    Args:
        home: the state folder.
        approved: the window that is assessed.
        policy_digest: of the frozen policy; null in development, which has no earlier windows.
        analysis_digest: of the analysis plan.
        complete: refuse where such a window is closed and not judged; a sequence must not lose a window.

    Raises:
        InputError: a window that belongs to the sequence was not judged or cannot be read, or a closed window does not
            even say whether it belongs.
    """
    declaration = approved.declaration.record
    if policy_digest is None or approved.plan.record.purpose not in ("window", "monitoring"):
        return ()
    facts = _with_unreadable(home, approved.ring, window_facts(home), declaration.study_id)
    current = current_keys(facts)
    found: list[DecisionSummary] = []
    for key, item in facts.items():
        if item.study_id != declaration.study_id or item.window_id == declaration.window_id or key not in current:
            continue
        folder = WindowFolder(home, key)
        if item.watermark >= declaration.ingestion_watermark or not folder.has(LINK):
            continue
        plan = _read(item.study_id, key, partial(_plan, folder, approved.ring))
        if plan.purpose not in ("window", "monitoring") or plan.policy_digest != policy_digest:
            continue
        decision = None
        if folder.has(REPORT):
            decision = _read(item.study_id, key, folder.report, way_out=f"run: tasc assess {key}").record.decision
        if decision is not None and decision.summary is not None:
            if decision.summary.analysis_plan_digest == analysis_digest:
                found.append(decision.summary)
        elif complete:
            raise InputError(
                "an earlier window of this sequential study was not judged",
                where=key,
                rule="a sequence counts every closed window",
                way_out=f"run: tasc assess {key}",
            )
    return tuple(found)


def _read(study_id: str, key: str, read: Callable[[], T], *, way_out: str = "") -> T:
    """A record of an earlier window; a refusal names the window, that it is counted, and what helps."""
    try:
        return read()
    except TascError as error:
        if isinstance(error, NotAuthorized):
            way_out = (
                f"where the key was revoked, go on as a successor: tasc study fork {study_id or 'STUDY'}; "
                "otherwise put it back into the key ring"
            )
        raise InputError(
            f"an earlier window cannot be read: {error}",
            where=key,
            rule="what is decided over several windows counts every closed one",
            way_out=way_out
            or f"restore its files; see: tasc verify {key}; or move windows/{key} out of the state folder: drift and "
            "sequences then count without it, and a report names the windows that it counts",
        ) from None


def _plan(folder: WindowFolder, ring: KeyRing) -> CollectionPlan:
    return folder.origin(ring).plan(ring).record


def _may_say(folder: WindowFolder, field: str, value: str) -> bool:
    """Whether a damaged window's records have a value in a field, or none of them can be read; no signature is checked."""
    said: set[object] = set()
    for name in (DECLARATION, PLAN, LINK):
        with contextlib.suppress(OSError, ValueError):
            record = orjson.loads((folder.path / name).read_bytes())
            if isinstance(record, dict) and isinstance(record.get(field), str):
                said.add(record[field])
    return not said or value in said


def _with_unreadable(
    home: Home, ring: KeyRing, facts: Mapping[str, WindowFacts], study_id: str
) -> Mapping[str, WindowFacts]:
    """The facts, with what the declaration of a closed window of a study says where the index could not read it.

    Drift and sample-ratio mismatch count over the windows also where the plan is not sequential, so none is passed over.
    One whose declaration cannot be verified either is refused: nobody can tell whether it belongs. One of which a record
    still says that it is another study's is passed over.
    """
    found: dict[str, WindowFacts] = {}
    for key, item in facts.items():
        folder = WindowFolder(home, key)
        if item.readable:
            found[key] = item
        elif _may_say(folder, "studyId", study_id) and _read(study_id, key, partial(folder.has, LINK)):
            said = _read(study_id, key, partial(folder.declaration, ring)).record
            found[key] = WindowFacts(
                key,
                said.study_id,
                window_id=said.window_id,
                revision=said.revision,
                watermark=said.ingestion_watermark,
                readable=False,
            )
    return found
