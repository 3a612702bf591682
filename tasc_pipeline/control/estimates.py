"""What a plan may cost, in words, and what a schedule makes of it. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

from tasc_collector.contracts.collection import PlanEstimate
from tasc_collector.errors import InputError
from tasc_pipeline.control.plans import ASSUMED_TOKENS_PER_S

DAY_MINUTES: Final = 24 * 60
_EVERY: Final = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNIT_MINUTES: Final = {"m": 1, "h": 60, "d": DAY_MINUTES}


def estimate_text(estimate: PlanEstimate, *, rated: bool = False) -> str:
    """An estimate in one line.

    Args:
        estimate: of a plan or of a day.
        rated: the load is open, so its minutes follow from its rate and not from an assumed speed.
    """
    speed = "" if rated else f" (assuming {ASSUMED_TOKENS_PER_S:g} tokens/s)"
    cost = "no cost model" if estimate.cost_usd is None else f"at most {_at_most(estimate.cost_usd)} USD (modeled)"
    return (
        f"{estimate.calls} calls and {estimate.warm_up_calls} warm-up calls, at most {estimate.output_tokens} output "
        f"tokens, about {estimate.minutes:g} minutes{speed}, {cost}"
    )


def _at_most(usd: float) -> str:
    """US dollars, rounded up: to cents, or where that would be less than two significant digits, to these."""
    exact = Decimal(repr(usd))
    digits = max(2, 1 - exact.adjusted()) if exact else 2
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_CEILING):f}"


def per_day(estimate: PlanEstimate, every: str) -> PlanEstimate:
    """What a day of windows costs, one begun every so often.

    Args:
        estimate: of one window.
        every: a whole number and m, h or d, such as ``1h``.

    Raises:
        InputError: no such period, or one that is longer than a day.
    """
    found = _EVERY.fullmatch(every)
    minutes = int(found[1]) * _UNIT_MINUTES[found[2]] if found else 0
    if not 0 < minutes <= DAY_MINUTES:
        raise InputError(
            "this is no period of a schedule",
            where="tasc plan",
            field="--every",
            rule="a whole number and m, h or d; at most a day",
            way_out="write it like 1h or 30m",
        )
    windows = DAY_MINUTES // minutes
    return PlanEstimate(
        calls=estimate.calls * windows,
        warm_up_calls=estimate.warm_up_calls * windows,
        output_tokens=estimate.output_tokens * windows,
        minutes=round(estimate.minutes * windows, 2),
        cost_usd=None if estimate.cost_usd is None else round(estimate.cost_usd * windows, 6),
    )
