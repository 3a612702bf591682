"""What a plan may cost, in words, and what a schedule makes of it. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

from tasc_collector.contracts.collection import ClosedLoad, PlanEstimate
from tasc_collector.contracts.study import Study
from tasc_collector.errors import InputError
from tasc_pipeline.control.pace import Pace

DAY_MINUTES: Final = 24 * 60
_EVERY: Final = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNIT_MINUTES: Final = {"m": 1, "h": 60, "d": DAY_MINUTES}


def estimate_text(estimate: PlanEstimate, pace: Pace | None = None, *, rated: bool = False) -> str:
    """An estimate in one line.

    Args:
        estimate: of a plan or of a day.
        pace: what its minutes were made from; assumed if None.
        rated: the load is open, so its minutes follow from its rate and not from a pace.
    """
    speed = "" if rated else f" ({(pace or Pace()).basis})"
    cost = "no cost model" if estimate.cost_usd is None else f"at most {_at_most(estimate.cost_usd)} USD (modeled)"
    return (
        f"{estimate.calls} calls and {estimate.warm_up_calls} warm-up calls, at most {estimate.output_tokens} output "
        f"tokens, about {estimate.minutes:g} minutes{speed}, {cost}"
    )


def study_time_text(study: Study, calls: int, profiles: int) -> str:
    """What a window of a new study takes and costs, before there is a plan: the time, and where the cost is said.

    Args:
        study: the study.
        calls: of a window, at most.
        profiles: champion and candidates.
    """
    cost = "no cost model" if study.cost_model is None else "its cost: tasc plan KEY --dry-run"
    if not isinstance(study.load_model, ClosedLoad):
        return f"at the rate of its load, {cost}"
    pace, at_once = Pace(), profiles if study.pair_isolation == "overlap" else 1
    seconds = calls * pace.call_s(study.generation.maximum_output_tokens) / (study.load_model.concurrency * at_once)
    return f"about {seconds / 60:.2g} minutes (assuming {pace.tokens_per_s:g} tokens/s), {cost}"


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
