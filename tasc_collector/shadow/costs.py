"""What one call cost by the study's cost model; the result is always evidence class ``modeled``. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tasc_collector.contracts.operations import CostModel, TokenPrice

MILLION = 1_000_000
NANOSECOND = 1_000_000_000

UNAVAILABLE: Mapping[str, Any] = {"kind": "unavailable"}  # Any: a JSON object


def modeled_cost(
    model: CostModel | None,
    profile_id: str,
    *,
    input_tokens: int | None,
    cached_tokens: int | None,
    output_tokens: int | None,
    service_ns: int | None,
    lane_width: int,
) -> dict[str, Any]:  # Any: a JSON object
    """The ``cost`` block of an attempt.

    Args:
        model: the study's cost model, if it has one.
        profile_id: whose price.
        input_tokens: prompt tokens as reported, cached ones included.
        cached_tokens: prompt tokens that came from a cache, null where not reported (then none is priced as cached).
        output_tokens: generated tokens as reported.
        service_ns: first request byte to last answer byte.
        lane_width: concurrent calls that share the profile's devices.

    Returns:
        ``modeled`` with an amount in US dollars, or ``unavailable`` where a price or what it needs is missing, or the amount is beyond
        every number.
    """
    price = None if model is None else {entry.profile_id: entry.price for entry in model.profiles}.get(profile_id)
    if model is None or price is None:
        return dict(UNAVAILABLE)
    if isinstance(price, TokenPrice):
        if input_tokens is None or output_tokens is None:
            return dict(UNAVAILABLE)
        cached = min(cached_tokens or 0, input_tokens) if price.cached_input_usd_per_million is not None else 0
        amount = (
            (input_tokens - cached) * price.input_usd_per_million
            + cached * (price.cached_input_usd_per_million or 0.0)
            + output_tokens * price.output_usd_per_million
        ) / MILLION
    else:
        if service_ns is None:
            return dict(UNAVAILABLE)
        amount = service_ns / NANOSECOND * price.usd_per_device_second * price.devices / lane_width
    if not math.isfinite(amount):
        return dict(UNAVAILABLE)
    return {"kind": "modeled", "amount": amount, "currency": model.currency, "modelDigest": model.digest}
