"""The fairness strip: the same quantities on both sides, and which imbalance is a warning. Pure.

An imbalance does not change the verdict; it stands in the sentence, so that nobody reads a difference of conditions as
a difference of servers. Most lines come from the executions; load and throttling come from the servers and hosts, and
whether a side is reached over loopback from the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasc_collector.contracts.report import FairnessItem
from tasc_pipeline.control.observations import Observation

TOKENS_PER_EVENT = "tokens-per-event"
LOOPBACK_PATH = "loopback-path"
"""1 where a side is reached over a loopback port, where a forward may hide a network, and 0 where it is not."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What one profile's server and devices reported while the window was open, and its path; null is not known.

    Args:
        running: mean number of requests running at the server.
        waiting: mean number of requests waiting at the server.
        throttled_share: share of device samples that were throttled, 0 to 1.
        loopback: whether the plan reaches the server over a loopback port.
    """

    running: float | None = None
    waiting: float | None = None
    throttled_share: float | None = None
    loopback: bool | None = None


NO_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the strip.

    Args:
        item: its name.
        unit: its unit.
        share: relative difference that is a warning.
        least: absolute difference up to which nothing is a warning.
        words: how the warning reads.
    """

    item: str
    unit: str
    share: float
    least: float
    words: str


def _cached(item: Observation) -> float | None:
    if item.cached_input_tokens is None or not item.input_tokens:
        return None
    return item.cached_input_tokens / item.input_tokens


_OF_EXECUTIONS: tuple[tuple[_Line, Callable[[Observation], float | None]], ...] = (
    (_Line("cached-input-share", "share", 0.0, 0.05, "cached input tokens differ"), _cached),
    (_Line("output-tokens", "tokens", 0.05, 1.0, "answers differ in length"), lambda item: item.output_tokens),
    (
        _Line("input-tokens", "tokens", 0.02, 1.0, "the same prompts have different input tokens"),
        lambda item: item.input_tokens,
    ),
    (_Line(TOKENS_PER_EVENT, "tokens", 0.10, 0.1, "tokens per event differ"), lambda item: item.tokens_per_event),
    (_Line("connect", "ms", 0.5, 1.0, "network paths differ"), lambda item: item.connect_ms),
    (_Line("tls", "ms", 0.5, 2.0, "TLS times differ"), lambda item: item.tls_ms),
    (_Line("queue", "ms", 1.0, 5.0, "waiting for a turn differs"), lambda item: item.queue_ms),
    (_Line("collector-lag", "ms", 1.0, 3.0, "the collector's own lag differs"), lambda item: item.collector_lag_ms),
)
_OF_CONDITIONS: tuple[tuple[_Line, Callable[[Conditions], float | None]], ...] = (
    (_Line("server-running", "requests", 0.5, 1.0, "load at the servers differs"), lambda item: item.running),
    (_Line("server-waiting", "requests", 0.5, 0.5, "queues at the servers differ"), lambda item: item.waiting),
    (_Line("throttled-share", "share", 0.0, 0.05, "device throttling differs"), lambda item: item.throttled_share),
    (
        _Line(LOOPBACK_PATH, "yes-no", 0.0, 0.5, "path differs (one side is reached over loopback)"),
        lambda item: None if item.loopback is None else float(item.loopback),
    ),
)


def strip(
    champion: Sequence[Observation],
    candidate: Sequence[Observation],
    champion_conditions: Conditions = NO_CONDITIONS,
    candidate_conditions: Conditions = NO_CONDITIONS,
) -> tuple[FairnessItem, ...]:
    """Means over successful calls of both profiles, and the conditions of their servers; null where nobody reports."""
    measured = [_item(line, _mean(value, champion), _mean(value, candidate)) for line, value in _OF_EXECUTIONS]
    reported = [_item(line, value(champion_conditions), value(candidate_conditions)) for line, value in _OF_CONDITIONS]
    return (*measured, *reported)


def warnings(items: Sequence[FairnessItem]) -> list[str]:
    """The imbalances as words."""
    words = {line.item: line.words for line, _ in (*_OF_EXECUTIONS, *_OF_CONDITIONS)}
    return [words[item.item] for item in items if item.imbalanced]


def tokens_per_event_differ(items: Sequence[FairnessItem]) -> bool:
    """Whether gaps between events are gaps between different numbers of tokens."""
    return any(item.item == TOKENS_PER_EVENT and item.imbalanced for item in items)


def _item(line: _Line, first: float | None, second: float | None) -> FairnessItem:
    apart = False
    if first is not None and second is not None:
        apart = abs(second - first) > max(line.least, line.share * max(abs(first), abs(second)))
    return FairnessItem(item=line.item, champion=first, candidate=second, unit=line.unit, imbalanced=apart)


def _mean(value: Callable[[Observation], float | None], observations: Sequence[Observation]) -> float | None:
    values = [found for item in observations if item.outcome == "success" and (found := value(item)) is not None]
    return float(np.mean(values)) if values else None
