"""How good a closed window is as evidence: figures that may warn and never forbid. Pure.

Missing coverage is honest, so nothing here is an error that tempts anybody to run a window again. Each figure has a limit;
a figure that cannot be told is null and does not warn, except where its absence is the finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from tasc_collector.contracts.scalars import timestamp_ms
from tasc_pipeline.control.observations import Observation

UNKNOWN_RATE_LIMIT: Final = 0.01
"""More than one execution in a hundred whose end nobody knows: look at the network between collector and servers."""
USAGE_NULL_LIMIT: Final = 0.05
"""Token counts missing from more than one success in twenty make TPOT and cost say little."""
CLOCK_SKEW_LIMIT_MS: Final = 1_000.0
"""A wall clock that was set by more than a second puts calls into the wrong hour and receipts out of their time."""
THROTTLED_LIMIT: Final = 0.05
"""Share of device samples that were throttled."""


class Figure(StrEnum):
    """What is looked at."""

    COVERAGE = "coverage_floor"
    UNKNOWN = "sent_unknown_rate"
    USAGE = "usage_null_rate"
    CLOCK = "clock_skew"
    ANSWERS = "servers_answered"
    THROTTLING = "device_throttling"
    RECEIPTS = "receipt_age"


@dataclass(frozen=True, slots=True)
class Quality:
    """One figure of a window.

    Attributes:
        figure: which.
        value: as measured; None where it cannot be told.
        limit: at which it warns.
        passed: False warns.
        note: what a person should know, if anything.
    """

    figure: Figure
    value: float | None
    limit: float
    passed: bool
    note: str = ""


def coverage(known: float, floor: float) -> Quality:
    """Share of planned executions that have an answer."""
    return Quality(Figure.COVERAGE, known, floor, known >= floor)


def unknown_rate(observations: Sequence[Observation]) -> Quality:
    """Share of planned executions of which nobody knows whether the server did them."""
    unknown = sum(item.dispatch_state == "sent_unknown" for item in observations)
    return _at_most(Figure.UNKNOWN, _share(unknown, len(observations)), UNKNOWN_RATE_LIMIT)


def usage_null_rate(observations: Sequence[Observation]) -> Quality:
    """Share of successful executions without a count of output tokens."""
    done = [item for item in observations if item.outcome == "success"]
    return _at_most(Figure.USAGE, _share(sum(item.output_tokens is None for item in done), len(done)), USAGE_NULL_LIMIT)


def clock_skew(started: Iterable[str], in_order: Iterable[Sequence[str]], *, start: str, end: str) -> Quality:
    """How far the wall clock was certainly set during the window, in milliseconds.

    Args:
        started: when each accepted call began.
        in_order: instants of records that were written one after the other, such as snapshots; a step back is a set clock.
        start: first instant of the window; no call begins before it.
        end: first instant after it; no call begins after it.
    """
    first, last = timestamp_ms(start), timestamp_ms(end)
    skew = max((max(first - at, at - last, 0) for at in map(timestamp_ms, started)), default=0)
    for sequence in in_order:
        times = [timestamp_ms(at) for at in sequence]
        skew = max([skew, *(before - after for before, after in pairwise(times))])
    return _at_most(Figure.CLOCK, float(skew), CLOCK_SKEW_LIMIT_MS)


def servers_answered(observations: Sequence[Observation]) -> Quality:
    """How many servers gave no single answer: an engine that was gone when its window came."""
    profiles = sorted({item.profile_id for item in observations})
    answered = {item.profile_id for item in observations if item.outcome in ("success", "failure")}
    silent = [profile for profile in profiles if profile not in answered]
    note = f"no answer in the whole window from {', '.join(silent)}" if silent else ""
    return Quality(Figure.ANSWERS, float(len(silent)), 0.0, not silent, note)


def throttling(shares: Iterable[float | None]) -> Quality:
    """The largest share of throttled samples among the devices that tell."""
    told = [share for share in shares if share is not None]
    note = "" if told else "no device tells"
    worst = max(told, default=None)
    return Quality(Figure.THROTTLING, worst, THROTTLED_LIMIT, worst is None or worst <= THROTTLED_LIMIT, note)


def receipt_age(observed: Iterable[str], start: str, *, limit_h: float) -> Quality:
    """Age of the oldest pinned receipt when the window began, in hours."""
    ages = [(timestamp_ms(start) - timestamp_ms(at)) / 3_600_000 for at in observed]
    return _at_most(Figure.RECEIPTS, round(max(ages), 3) if ages else None, limit_h)


def _at_most(figure: Figure, value: float | None, limit: float) -> Quality:
    return Quality(figure, value, limit, value is None or value <= limit)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
