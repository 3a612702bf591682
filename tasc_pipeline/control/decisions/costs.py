"""What calls cost by ``tasc-cost-model-v1``: evidence class ``modeled``, never ``measured``. Pure.

1. *Token price*: input tokens that were not cached, cached ones at their own price (at the input price where there is
   none), output tokens. A call without token counts has no cost.
2. *Device second*: the profile's devices cost all the time that at least one of its calls is open, and calls that are
   open together share it evenly. A call costs the integral of price / open calls over its own time, so the calls of
   a window add up to the devices' busy time, whatever the concurrency.
3. A call whose cost is not known costs at least nothing and at most its *ceiling*: as many output tokens as the plan
   allows, the most input tokens that any call of the window had; or the whole time limit of an attempt with the devices
   to itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tasc_collector.contracts.operations import DevicePrice, TokenPrice
from tasc_pipeline.control.pairing import Floats

_MILLION, _NS_PER_S = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class CostRule:
    """How one profile's calls are priced, and what a call can cost at most.

    Args:
        price: of the cost model.
        maximum_output_tokens: that the plan allows; null where no plan says so (imported traces).
        attempt_timeout_ms: that the plan allows; null likewise.
    """

    price: TokenPrice | DevicePrice
    maximum_output_tokens: int | None
    attempt_timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What one profile's calls used; NaN is not known.

    Args:
        input_tokens: with the cached ones.
        cached_tokens: of them, from a cache.
        output_tokens: generated.
        started_ns: first byte written.
        e2e_ns: from there to the last byte read.
    """

    input_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    started_ns: Floats
    e2e_ns: Floats


def costs(rule: CostRule, usage: Usage) -> Floats:
    """US dollars per call, NaN where what it used is not known."""
    if isinstance(rule.price, TokenPrice):
        return _by_tokens(rule.price, usage)
    return (
        shared_time_ns(usage.started_ns, usage.e2e_ns)
        / _NS_PER_S
        * rule.price.usd_per_device_second
        * rule.price.devices
    )


def ceiling_usd(rule: CostRule, usage: Usage) -> float:
    """The most that any of these calls can have cost, infinite where nothing bounds it."""
    if isinstance(rule.price, TokenPrice):
        known = usage.input_tokens[~np.isnan(usage.input_tokens)]
        if rule.maximum_output_tokens is None or len(known) == 0:
            return math.inf
        dearest = max(rule.price.input_usd_per_million, rule.price.cached_input_usd_per_million or 0.0)
        tokens = float(known.max()) * dearest + rule.maximum_output_tokens * rule.price.output_usd_per_million
        return tokens / _MILLION
    if rule.attempt_timeout_ms is None:
        return math.inf
    return rule.attempt_timeout_ms / 1e3 * rule.price.usd_per_device_second * rule.price.devices


def shared_time_ns(started_ns: Floats, e2e_ns: Floats) -> Floats:
    """Each call's share of the time in which calls are open, rule 2; NaN where its times are not known."""
    known = ~np.isnan(started_ns) & ~np.isnan(e2e_ns)
    start, end = started_ns[known], started_ns[known] + e2e_ns[known]
    times = np.unique(np.concatenate([start, end]))
    opened = np.searchsorted(np.sort(start), times, side="right")
    closed = np.searchsorted(np.sort(end), times, side="right")
    held = opened - closed
    steps = np.diff(times) / np.maximum(held[:-1], 1) * (held[:-1] > 0)
    passed = np.concatenate([[0.0], np.cumsum(steps)])
    shares = np.full(len(started_ns), np.nan)
    shares[known] = passed[np.searchsorted(times, end)] - passed[np.searchsorted(times, start)]
    return shares


def _by_tokens(price: TokenPrice, usage: Usage) -> Floats:
    cached = np.where(np.isnan(usage.cached_tokens), 0.0, usage.cached_tokens)
    cached_price = price.cached_input_usd_per_million
    of_cached = price.input_usd_per_million if cached_price is None else cached_price
    spent = (usage.input_tokens - cached) * price.input_usd_per_million + cached * of_cached
    found: Floats = (spent + usage.output_tokens * price.output_usd_per_million) / _MILLION
    return found
