"""Whether a server can carry the traffic, from its own signed metric scrapes around and inside a window. Pure.

1. *Throughput* is the growth of the server's counter of generated tokens between the last scrape before the window's
   first call and the first scrape after its last, over the time between the two. Both must be there, and the counter
   must not have started anew in between.
2. What a server generated, it can generate: throughput at or above the gate's minimum passes.
3. Throughput below the minimum says something of the server only if the server was full: requests waiting at it in at
   least half of the scrapes, or its KV cache in use to 90 % and more on average. Then the gate fails. Else the window did
   not ask for more, and the gate is undecided.
4. A server that reports none of this leaves the gate unavailable. It never passes without evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasc_collector.contracts.observations import ScrapeEntry
from tasc_collector.contracts.report import GateState
from tasc_collector.contracts.scalars import timestamp_ms

GENERATED, WAITING, KV_CACHE = "generation-tokens-total", "requests-waiting", "kv-cache-usage"
_FULL_KV, _WAITING_SHARE = 0.9, 0.5


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the scrapes of one server say.

    Args:
        tokens_per_second: generated between the two scrapes that bracket the window, null where it cannot be told.
        full: whether the server was full; null where it reports neither waiting requests nor its cache.
        reason: why there is no throughput, null where there is one.
    """

    tokens_per_second: float | None
    full: bool | None
    reason: str | None

    def state(self, minimum: float) -> tuple[GateState, str | None]:
        """The gate's state and its reason, rules 2 to 4.

        Args:
            minimum: output tokens per second.
        """
        if self.tokens_per_second is None:
            return "unavailable", self.reason
        if self.tokens_per_second >= minimum:
            return "passed", None
        return ("failed", "beyond-the-bound-as-a-point") if self.full else ("undecided", "server-was-not-full")


def capacity_of(scrapes: Iterable[ScrapeEntry], alias: str) -> Capacity:
    """What the scrapes of the server with this alias say about its throughput.

    Args:
        scrapes: of a window, all servers, in any order.
        alias: of the endpoint.
    """
    own = sorted((item for item in scrapes if item.endpoint_alias == alias), key=lambda item: item.scraped_at)
    if not own:
        return Capacity(None, None, "no-metric-scrape")
    full = _full([item for item in own if item.phase == "during"])
    before = [item for item in own if item.phase == "before"]
    after = [item for item in own if item.phase == "after"]
    if not before or not after:
        return Capacity(None, full, "scrapes-do-not-bracket-the-window")
    first, last = _value(before[-1], GENERATED), _value(after[0], GENERATED)
    if first is None or last is None:
        return Capacity(None, full, "server-does-not-count-tokens")
    bracketed = own[own.index(before[-1]) : own.index(after[0]) + 1]
    counts = [value for item in bracketed if (value := _value(item, GENERATED)) is not None]
    if any(later < earlier for earlier, later in itertools.pairwise(counts)):
        return Capacity(None, full, "server-restarted-inside-the-window")
    seconds = (timestamp_ms(after[0].scraped_at) - timestamp_ms(before[-1].scraped_at)) / 1e3
    if seconds <= 0:
        return Capacity(None, full, "scrapes-do-not-bracket-the-window")
    return Capacity((last - first) / seconds, full, None)


def _full(inside: Sequence[ScrapeEntry]) -> bool | None:
    waiting = [value for item in inside if (value := _value(item, WAITING)) is not None]
    cache = [value for item in inside if (value := _value(item, KV_CACHE)) is not None]
    if not waiting and not cache:
        return None
    queued = bool(waiting) and sum(value > 0 for value in waiting) >= _WAITING_SHARE * len(waiting)
    return queued or (bool(cache) and sum(cache) / len(cache) >= _FULL_KV)


def _value(scrape: ScrapeEntry, metric: str) -> float | None:
    return next((item.value for item in scrape.values if item.metric == metric and not item.labels), None)
