"""What deserves a person's attention, from the assessed windows of one study. Pure; a notice names no case and no server.

Rules:

1. ``verdict-changed``: the *standing* verdict of a candidate is the last one on which ``agreeing_windows`` windows in a row
   agreed; before there is one it is the word for "nothing is known". A window tells a change where it makes another verdict
   the standing one. So one odd window tells nothing, and neither does a second one that is odd in another way.
2. ``coverage-low``: a window is below its floor and the window before it was not.
3. ``window-missing``: two periods have passed since the start of the newest window that was collected. Told once per newest
   window. A period that nobody names is the time between the last two such starts, and at least an hour: two windows that
   were made by hand within seconds are no rhythm.
4. ``run-failed``: a run of a window failed. Told once per run, with the category of its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tasc_collector.contracts.operations import Notice
from tasc_collector.contracts.scalars import timestamp_ms

NOTHING_KNOWN: Final[Mapping[str, str]] = {"comparison": "undecided", "decision": "insufficient-evidence"}
"""The standing verdict before the first agreement, by kind of study."""
MISSED_PERIODS: Final = 2
_MINUTE_MS: Final = 60_000
LEAST_GUESSED_PERIOD_MS: Final = 60 * _MINUTE_MS
"""A guessed period is never shorter; one that the operator names may be."""


@dataclass(frozen=True, slots=True)
class Look:
    """One assessed window.

    Args:
        window_key: the window.
        at: instant that its assessment speaks for.
        verdicts: verdict or status by candidate (null for a decision).
        coverage: share of planned pairs with an outcome; None where nothing was planned.
    """

    window_key: str
    at: str
    verdicts: Mapping[str | None, str]
    coverage: float | None


def word(verdict: str) -> str:
    """A verdict or status as a notice spells it."""
    return verdict.lower().replace("_", "-")


def notices_of(
    study_id: str, kind: str, looks: Sequence[Look], *, agreeing_windows: int, floor: float
) -> tuple[Notice, ...]:
    """What the newest window tells (rules 1 and 2).

    Args:
        study_id: the study.
        kind: comparison or decision.
        looks: its assessed windows under the same rules, oldest first; the last is the newest.
        agreeing_windows: how many in a row must agree.
        floor: least coverage of a window.
    """
    if not looks:
        return ()
    newest = looks[-1]
    told: list[Notice] = []
    for candidate in newest.verdicts:
        words = [word(look.verdicts[candidate]) for look in looks if candidate in look.verdicts]
        before = standing(words[:-1], agreeing_windows, NOTHING_KNOWN[kind])
        after = standing(words, agreeing_windows, NOTHING_KNOWN[kind])
        if after != before:
            told.append(_notice("verdict-changed", study_id, newest, before=before, after=after))
    if _low(newest, floor) and not (len(looks) > 1 and _low(looks[-2], floor)):
        told.append(_notice("coverage-low", study_id, newest))
    return tuple(dict.fromkeys(told))


def standing(words: Sequence[str], agreeing_windows: int, at_first: str) -> str:
    """The last word on which so many in a row agreed; ``at_first`` where they never did."""
    run = 0
    found = at_first
    for place, item in enumerate(words):
        run = run + 1 if place and item == words[place - 1] else 1
        if run >= agreeing_windows:
            found = item
    return found


def period_ms(starts: Sequence[str], period_minutes: float | None) -> int | None:
    """Time between two windows in milliseconds: as the operator says, else between the last two starts, at least an hour.

    Args:
        starts: starts of the study's windows, oldest first.
        period_minutes: what the operator says, if anything.

    Returns:
        None where nobody says and there are not two windows that start at different times.
    """
    if period_minutes is not None:
        return round(period_minutes * _MINUTE_MS)
    times = sorted({timestamp_ms(start) for start in starts})
    return max(times[-1] - times[-2], LEAST_GUESSED_PERIOD_MS) if len(times) > 1 else None


def missing_window(
    study_id: str, newest_key: str, newest_start: str, period: int | None, *, as_of: str
) -> Notice | None:
    """The notice that no window came in two periods, or None (rule 3).

    Args:
        study_id: the study.
        newest_key: its newest window.
        newest_start: when that window started or starts.
        period: milliseconds between two windows; None tells nothing.
        as_of: now.
    """
    if period is None or timestamp_ms(as_of) - timestamp_ms(newest_start) < MISSED_PERIODS * period:
        return None
    return Notice(kind="window-missing", study_id=study_id, window_key=newest_key, before=None, after=None, at=as_of)


def failed_run(study_id: str, window_key: str, category: str, *, at: str) -> Notice:
    """The notice that a window's run failed (rule 4)."""
    return Notice(kind="run-failed", study_id=study_id, window_key=window_key, before=None, after=word(category), at=at)


def _low(look: Look, floor: float) -> bool:
    return look.coverage is not None and look.coverage < floor


def _notice(kind: str, study_id: str, look: Look, *, before: str | None = None, after: str | None = None) -> Notice:
    return Notice(
        kind=kind,  # type: ignore[arg-type]  # words of the same list
        study_id=study_id,
        window_key=look.window_key,
        before=before,
        after=after,
        at=look.at,
    )
