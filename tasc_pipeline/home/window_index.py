"""What is known of every window at a glance, without reading every window's files each time.

Sensors, notices and the catalogue ask here; at 20,000 windows an answer takes less than a second. Rules:

1. Nothing here is authority. No signature is checked; whatever is started from these facts verifies everything itself.
2. The facts of a window hold as long as its folder has the same modification time: a record enters a folder under a
   temporary name and is renamed, which changes that time. Facts of a folder that changed in the last two seconds are
   not kept, because a second change could share its time; nor are those of one that cannot be read, because its files
   may be put right in their place.
3. Kept facts lie in ``windows/.index.json``. A lost, damaged or older index is made again from the folders.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.errors import InputError
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import APPROVAL, DECLARATION, LINK, PLAN, REPORT

INDEX: Final = ".index.json"
_FORM: Final = 4
"""Raised where the facts change, so that an older index is made again."""
_SETTLED_NS: Final = 2_000_000_000


class WindowFacts(NamedTuple):
    """One window as its files say; a field is null where its record is not there. A tuple, because there are many.

    Attributes:
        plan_digest: of the issued plan.
        analysis_plan_digest: of the analysis that the issued plan names.
        approved: whether an approval is there that names this plan, or the plan names a standing authorization.
        authorized: whether the plan names a standing authorization.
        closed_at: when the link was signed.
        counts: planned, accepted, not sent, not attempted executions of a closed window.
        results: pairs of candidate (null for a decision) and verdict or status, in the report's order.
        coverage: as assessed.
        as_of: instant that the assessment speaks for.
        readable: False where a record is no such JSON or cannot be read, or a closed window has no declaration;
            ``tasc verify`` says what is wrong.
    """

    window_key: str
    study_id: str = ""
    study_kind: str = ""
    protocol_digest: str = ""
    window_id: str = ""
    revision: int = 1
    revises: str | None = None
    starts_at: str = ""
    ends_at: str = ""
    watermark: str = ""
    plan_digest: str | None = None
    plan_expires_at: str | None = None
    analysis_plan_digest: str | None = None
    plan_issued_at: str | None = None
    approved: bool = False
    authorized: bool = False
    closed_at: str | None = None
    counts: Sequence[int] | None = None
    results: Sequence[Sequence[str | None]] | None = None
    coverage: float | None = None
    as_of: str | None = None
    readable: bool = True


def window_facts(home: Home, *, now_ns: Callable[[], int] = time.time_ns) -> dict[str, WindowFacts]:
    """The facts of every sealed window, in order of their keys; see the rules of this module.

    Args:
        home: the state folder.
        now_ns: wall clock, nanoseconds since 1970.
    """
    kept = _read_index(home)
    settled_before = now_ns() - _SETTLED_NS
    facts: dict[str, WindowFacts] = {}
    rows: list[list[Any]] = []  # Any: the fields of the facts
    same = 0
    for key, changed_ns in sorted(_folders(home.windows)):
        row = kept.get(key)
        if row is not None and row[0] == changed_ns:
            facts[key] = WindowFacts(*row[1:])
            rows.append(row)
            same += 1
            continue
        found = _read(home.window(key))
        if found is None:
            continue
        facts[key] = found
        if changed_ns < settled_before and found.readable:
            rows.append([changed_ns, *found])
    if same < len(rows) or same < len(kept):
        _write_index(home, rows)
    return facts


def current_keys(facts: Mapping[str, WindowFacts]) -> frozenset[str]:
    """Keys of the newest revision of every window."""
    newest: dict[tuple[str, str], WindowFacts] = {}
    for item in facts.values():
        name = (item.study_id, item.window_id)
        if name not in newest or (item.revision, item.window_key) > (newest[name].revision, newest[name].window_key):
            newest[name] = item
    return frozenset(item.window_key for item in newest.values())


def _folders(windows: Path) -> list[tuple[str, int]]:
    """Name and modification time (nanoseconds since 1970) of every folder."""
    try:
        with os.scandir(windows) as entries:
            return [
                (entry.name, entry.stat(follow_symlinks=False).st_mtime_ns)
                for entry in entries
                if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def _read(folder: Path) -> WindowFacts | None:
    """The facts of one folder; None where nothing was sealed in it."""
    try:
        declaration = orjson.loads((folder / DECLARATION).read_bytes())
    except FileNotFoundError:  # what was closed is not lost with its declaration
        return WindowFacts(window_key=folder.name, readable=False) if (folder / LINK).is_file() else None
    except (OSError, ValueError):
        return WindowFacts(window_key=folder.name, readable=False)
    try:
        return WindowFacts(
            window_key=folder.name,
            study_id=declaration["studyId"],
            study_kind=declaration["studyKind"],
            protocol_digest=declaration["protocolDigest"],
            window_id=declaration["windowId"],
            revision=declaration["revision"],
            revises=declaration.get("predecessorKey"),
            starts_at=declaration["eventTimeStartInclusive"],
            ends_at=declaration["eventTimeEndExclusive"],
            watermark=declaration["ingestionWatermark"],
            **(_of_plan(folder) | _of_link(folder) | _of_report(folder)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return WindowFacts(window_key=folder.name, readable=False)


Fields = dict[str, Any]
"""Keyword arguments of ``WindowFacts``, from a record's JSON."""


def _of_plan(folder: Path) -> Fields:
    plan = _record(folder / PLAN)
    if plan is None:
        return {}
    approval = _record(folder / APPROVAL)
    digest = None if approval is None else approval["planDigest"]
    if plan["authorizationDigest"] is not None:  # the standing authorization is the pin
        digest = CollectionPlan.digest_of(plan)
    return {
        "plan_digest": digest,
        "plan_expires_at": plan["expiresAt"],
        "analysis_plan_digest": plan["analysisPlanDigest"],
        "plan_issued_at": plan["issuedAt"],
        "approved": digest is not None,
        "authorized": plan["authorizationDigest"] is not None,
    }


def _of_link(folder: Path) -> Fields:
    link = _record(folder / LINK)
    if link is None:
        return {}
    counts = link["counts"]
    return {
        "closed_at": link["closedAt"],
        "plan_digest": link["planDigest"],
        "counts": [counts["planned"], counts["accepted"], counts["notSent"], counts["notAttempted"]],
    }


def _of_report(folder: Path) -> Fields:
    report = _record(folder / REPORT)
    if report is None:
        return {}
    results = [[item["candidateProfileId"], item["verdict"]] for item in report["comparisons"]]
    if report["decision"] is not None:
        results.append([None, report["decision"]["status"]])
    return {"results": results, "coverage": report["coverage"], "as_of": report["asOf"]}


def _record(path: Path) -> Fields | None:
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return dict(value)


def _read_index(home: Home) -> dict[str, list[Any]]:  # Any: time of change and the fields of the facts
    try:
        value = orjson.loads((home.windows / INDEX).read_bytes())
        if value["form"] != _FORM:
            return {}
        return {row[1]: row for row in value["windows"] if len(row) == 1 + len(WindowFacts._fields)}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


def _write_index(home: Home, rows: list[list[Any]]) -> None:  # Any: as above
    with contextlib.suppress(InputError):  # it only saves time
        write_file(home.windows / INDEX, orjson.dumps({"form": _FORM, "windows": rows}), replace=True)
