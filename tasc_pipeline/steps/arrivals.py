"""What evaluator evidence that came since the last look asks for. It reads file names, and batches that are new.

Rules:

1. Evidence that came before its window's watermark counts in the window's own assessment, which is due when the watermark
   has passed: before, the decision is STALE.
2. Evidence that came later counts in a revision only. A revision is signed by the operator, so it is not made here: the
   window is named with the command.
3. A revision that was sealed is closed and then assessed; it refers to what its window collected and sends nothing.
4. Nothing is lost on the way: a look asks for at most so many runs, and what is over that waits for the next one; so does
   evidence of a window whose folder is not there yet or cannot be read. What a revision was asked for is not asked for
   again, so that revisions that are stuck take no other's place.
5. Nothing here is authority: whoever is started verifies batch, evidence and window.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import orjson

from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import study_ids
from tasc_pipeline.home.window_index import WindowFacts, window_facts


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look left for the next one.

    Attributes:
        until_ns: modification time of the newest batch that was read, nanoseconds since 1970.
        waiting: digest and instant of the first batch by window, where the assessment is not due or was not asked for yet.
        asked: what was asked for last by revision, ``close`` or ``assess``; of those that still need it.
    """

    until_ns: int = 0
    waiting: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """From a cursor; from the beginning where it is empty or was edited."""
        try:
            value = json.loads(text or "{}")
            waiting = {str(key): (str(digest), str(at)) for key, (digest, at) in value["waiting"].items()}
            asked = {str(key): str(what) for key, what in value.get("asked", {}).items()}
            return cls(int(value["untilNs"]), waiting, asked)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def text(self) -> str:
        """As a cursor."""
        return json.dumps({"untilNs": self.until_ns, "waiting": self.waiting, "asked": self.asked}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run that is due.

    Attributes:
        window_key: of which window.
        close: True closes a revision, False assesses.
        why: tells two runs of one window apart: the batch that asks for it, or what a revision needs.
    """

    window_key: str
    close: bool
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found."""

    wanted: list[Wanted]
    late: dict[str, str]
    """Batch by window, of evidence that needs a revision."""
    after: Seen


def look(home: Home, seen: Seen, now: str, *, most: int) -> Look:
    """Look once; see the rules of this module.

    Args:
        home: the state folder.
        seen: what the last look left.
        now: the instant.
        most: so many runs are asked for at most.
    """
    facts = window_facts(home)
    newest = _newest_revisions(facts)
    until_ns, came = seen.until_ns, list(seen.waiting.items())
    for changed_ns, digest, added_at, keys in _new_batches(home, seen.until_ns):
        until_ns = max(until_ns, changed_ns)
        came += [(key, (digest, added_at)) for key in keys]
    wanted: dict[str, Wanted] = {}
    waiting: dict[str, tuple[str, str]] = {}
    late: dict[str, str] = {}
    for key, (digest, added_at) in came:
        item = facts.get(key)
        window = newest[item.study_id, item.window_id] if item is not None and item.readable else None
        if window is not None and added_at > window.watermark:
            late[window.window_key] = digest
        elif window is not None and window.window_key in wanted:
            continue  # the same assessment counts it
        elif window is None or now < window.watermark or window.closed_at is None or len(wanted) >= most:
            if key not in waiting or added_at < waiting[key][1]:
                waiting[key] = (digest, added_at)
        else:
            wanted[window.window_key] = Wanted(window.window_key, False, digest)
    asked = _ask_revisions(newest.values(), seen, wanted, most)
    return Look(list(wanted.values()), late, Seen(until_ns, waiting, asked))


def _ask_revisions(windows: Iterable[WindowFacts], seen: Seen, wanted: dict[str, Wanted], most: int) -> dict[str, str]:
    """Add what sealed revisions need and were not asked for to ``wanted``; returns what each was asked for now or before."""
    asked: dict[str, str] = {}
    for window in windows:
        if window.revises is None or not window.readable or window.as_of is not None:
            continue
        key, needs = window.window_key, "close" if window.closed_at is None else "assess"
        if seen.asked.get(key) != needs and key not in wanted:
            if len(wanted) >= most:
                continue
            wanted[key] = Wanted(key, needs == "close", needs)
        asked[key] = needs
    return asked


def _newest_revisions(facts: Mapping[str, WindowFacts]) -> dict[tuple[str, str], WindowFacts]:
    found: dict[tuple[str, str], WindowFacts] = {}
    for item in facts.values():
        name = (item.study_id, item.window_id)
        if name not in found or item.revision > found[name].revision:
            found[name] = item
    return found


def _new_batches(home: Home, since_ns: int) -> Iterator[tuple[int, str, str, list[str]]]:
    """Modification time, content digest, instant and windows of every batch that is newer, oldest first."""
    files: list[tuple[int, str]] = []
    for study_id in study_ids(home):
        with contextlib.suppress(FileNotFoundError), os.scandir(home.evidence(study_id)) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and entry.name[0] != ".":
                    changed_ns = entry.stat().st_mtime_ns
                    if changed_ns > since_ns:
                        files.append((changed_ns, entry.path))
    for changed_ns, path in sorted(files):
        try:
            batch = orjson.loads(Path(path).read_bytes())
            yield changed_ns, batch["contentDigest"], batch["addedAt"], list(batch["windowKeys"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # whoever uses it says what is wrong
