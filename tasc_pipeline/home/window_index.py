"""What is known of every window at a glance, without reading every window's files each time.

Sensors, notices and the catalogue ask here, each tick; ``bench/dagster/ticks.py`` measures it at 20,000 windows. Rules:

1. Nothing here is authority. No signature is checked; whatever is started from these facts verifies everything itself.
2. The facts of a window hold as long as its folder has the same modification time: a record enters a folder under a
   temporary name and is renamed, which changes that time. Facts of a folder that changed in the last two seconds are
   not kept, because a second change could share its time; nor are those of one that cannot be read, because its files
   may be put right in their place.
3. Kept facts lie in ``windows/.index.json``. A lost, damaged or older index is made again from the folders.
4. A process remembers the kept facts as long as that file is the one that it read or wrote last, so that a code server
   parses it once. What it remembers is bound by rule 2 like what it reads: every look asks every folder for its time.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.errors import InputError
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import APPROVAL, DECLARATION, LINK, PLAN, REPORT

INDEX: Final = ".index.json"
_FORM: Final = 5
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


_File = tuple[int, int, int]
"""Modification time, inode and size of a file; one that is replaced or written in its place differs."""


class _Kept(NamedTuple):
    """The kept facts as a process remembers them (rule 4).

    Attributes:
        file: the index file that says the same; None where there is none.
        changed_ns: modification time of each window's folder that the facts hold for, nanoseconds since 1970.
        facts: of the same windows, in order of their keys.
    """

    file: _File | None
    changed_ns: dict[str, int]
    facts: dict[str, WindowFacts]


_KEPT: Final[dict[Path, _Kept]] = {}
"""By folder of the windows; a process looks at one state folder."""
_ONE_LOOK: Final = threading.Lock()
"""A code server evaluates its sensors in threads: one of them reads or writes the index, the others find it remembered."""


def window_facts(home: Home, *, now_ns: Callable[[], int] = time.time_ns) -> dict[str, WindowFacts]:
    """The facts of every sealed window, in order of their keys; see the rules of this module.

    Args:
        home: the state folder.
        now_ns: wall clock, nanoseconds since 1970.
    """
    with _ONE_LOOK:
        settled_before_ns = now_ns() - _SETTLED_NS
        folders = _folders(home.windows)
        kept = _kept(home.windows / INDEX)
        if folders == kept.changed_ns:
            facts = dict(kept.facts)
        else:
            facts, settled = _look(home, folders, kept, settled_before_ns)
            if settled != kept.changed_ns:
                remembered = {key: facts[key] for key in settled}
                kept = _Kept(_write_index(home.windows / INDEX, settled, remembered), settled, remembered)
        _KEPT[home.windows] = kept
    return facts


def _look(
    home: Home, folders: Mapping[str, int], kept: _Kept, settled_before_ns: int
) -> tuple[dict[str, WindowFacts], dict[str, int]]:
    """The facts of every window, read where they are not kept; and the folders' times of those to keep (rule 2)."""
    facts: dict[str, WindowFacts] = {}
    settled: dict[str, int] = {}
    for key in sorted(folders):
        changed_ns = folders[key]
        if kept.changed_ns.get(key) == changed_ns:
            facts[key], settled[key] = kept.facts[key], changed_ns
            continue
        found = _read(home.window(key))
        if found is None:
            continue
        facts[key] = found
        if changed_ns < settled_before_ns and found.readable:
            settled[key] = changed_ns
    return facts, settled


def current_keys(facts: Mapping[str, WindowFacts]) -> frozenset[str]:
    """Keys of the newest revision of every window."""
    newest: dict[tuple[str, str], WindowFacts] = {}
    for item in facts.values():
        name = (item.study_id, item.window_id)
        if name not in newest or (item.revision, item.window_key) > (newest[name].revision, newest[name].window_key):
            newest[name] = item
    return frozenset(item.window_key for item in newest.values())


def _folders(windows: Path) -> dict[str, int]:
    """Modification time (nanoseconds since 1970) of every folder, by name."""
    try:
        descriptor = os.open(windows, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return {}
    found: dict[str, int] = {}
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # moved out of the state folder since it was listed
                        found[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
    finally:
        os.close(descriptor)
    return found


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


def _kept(index: Path) -> _Kept:
    """What is remembered where the index is still the file that says so, else what the index says (rules 3 and 4)."""
    try:
        kept = _KEPT.get(index.parent)
        if kept is not None and kept.file == _file(index.stat()):
            return kept
        with index.open("rb") as file, _no_collection():
            value = orjson.loads(file.read())
            changed_ns, *columns = value["columns"]
            if value["form"] != _FORM or len(columns) != len(WindowFacts._fields):
                return _Kept(None, {}, {})
            facts = {row[0]: WindowFacts(*row) for row in zip(*columns, strict=True)}
            return _Kept(_file(os.fstat(file.fileno())), dict(zip(facts, changed_ns, strict=True)), facts)
    except (OSError, ValueError, KeyError, TypeError):
        return _Kept(None, {}, {})


def _write_index(index: Path, changed_ns: Mapping[str, int], facts: Mapping[str, WindowFacts]) -> _File | None:
    """Write by columns, which are read in a third of the time; it only saves time, so that it may fail.

    Returns:
        the file as it is then; None where there is none.
    """
    value = {"form": _FORM, "columns": [list(changed_ns.values()), *zip(*facts.values(), strict=True)]}
    try:
        write_file(index, orjson.dumps(value), replace=True)
        return _file(index.stat())
    except (InputError, OSError):
        return None


def _file(status: os.stat_result) -> _File:
    return status.st_mtime_ns, status.st_ino, status.st_size


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Half of the time that many small objects take goes into looking for cycles among them; there are none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
