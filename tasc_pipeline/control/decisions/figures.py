"""What is asked of one policy in one window: every figure with its sums, the unknown taken both ways. Pure.

- *Quality*: the policy's score minus the champion's on the same unit, mean over cases and their replicates. An unknown
  score is 0 or 1, whichever is worse or better for the policy.
- *Mean score* and *failure rate* are the policy's own. *Cost* is that of a thousand of its calls.
- *Latencies* are those of its successful calls; a call that may have succeeded has any latency. A successful call without
  token times has an unknown TTFT; one without gaps (a single token) has no ITL and no TPOT.
- *Shares beyond* are the shares of calls that take longer than a gate's bound: what a sequence adds up over windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasc_pipeline.control.decisions.means import GroupSums, Span
from tasc_pipeline.control.decisions.tails import Latencies
from tasc_pipeline.control.decisions.units import Flags, Outcome, Side, Units
from tasc_pipeline.control.pairing import Floats

THOUSAND = 1_000.0


@dataclass(frozen=True, slots=True)
class Sums:
    """One mean three times.

    Args:
        known: over the units whose value is known.
        lowest: over all units, every unknown at its lowest.
        highest: over all units, every unknown at its highest.
    """

    known: GroupSums
    lowest: GroupSums
    highest: GroupSums


def quality(units: Units, champion: Side, policy: Side, among: Flags | None = None) -> Sums:
    """Score of the policy minus that of the champion.

    Args:
        units: of the window.
        champion: the control.
        policy: what is decided on.
        among: the units of a slice; all of them where not given.
    """
    return _sums(
        units,
        policy.score - champion.score,
        np.nan_to_num(policy.score, nan=0.0) - np.nan_to_num(champion.score, nan=1.0),
        np.nan_to_num(policy.score, nan=1.0) - np.nan_to_num(champion.score, nan=0.0),
        among,
    )


def mean_score(units: Units, policy: Side) -> Sums:
    """Score of the policy."""
    score = policy.score
    return _sums(units, score, np.nan_to_num(score, nan=0.0), np.nan_to_num(score, nan=1.0))


def failure_rate(units: Units, policy: Side) -> Sums:
    """Share of calls that fail."""
    failed = np.where(policy.known, policy.outcome == Outcome.FAILURE, np.nan)
    return _sums(units, failed, np.nan_to_num(failed, nan=0.0), np.nan_to_num(failed, nan=1.0))


def cost_per_thousand(units: Units, policy: Side) -> Sums:
    """US dollars for a thousand calls."""
    cost = policy.cost_usd * THOUSAND
    highest = np.where(np.isnan(cost), policy.ceiling_usd * THOUSAND, cost)
    return _sums(units, cost, np.nan_to_num(cost, nan=0.0), highest)


def cost_span(policy: Side) -> Span | None:
    """What a thousand calls can cost; null where nothing bounds a call."""
    ceiling = float(policy.ceiling_usd.max()) if len(policy.ceiling_usd) else np.inf
    dearest = float(np.nanmax(np.append(policy.cost_usd, 0.0)))
    return Span(0.0, max(ceiling, dearest) * THOUSAND) if np.isfinite(ceiling) and ceiling > 0 else None


def latencies(units: Units, side: Side, values: Floats, *, one_may_lack: bool = False) -> Latencies:
    """The calls that have one latency, or may have it.

    Args:
        units: of the window.
        side: whose calls.
        values: nanoseconds per unit, NaN where not known.
        one_may_lack: a successful call may have none (ITL and TPOT of a single token).
    """
    known = side.succeeded & ~np.isnan(values)
    possible = known | ~side.known if one_may_lack else side.succeeded | ~side.known
    return Latencies(
        values=np.where(known, values, np.inf)[possible],
        known=known[possible],
        weight=units.share(possible)[possible],
        group=units.group[possible],
        groups=units.groups,
    )


def beyond(calls: Latencies, bound: float) -> Sums:
    """Share of calls that take longer than a bound in nanoseconds."""
    return Sums(
        known=calls.beyond_among_known(bound),
        lowest=calls.beyond(bound, unknown_beyond=False),
        highest=calls.beyond(bound, unknown_beyond=True),
    )


def scored_pairs(champion: Side, policy: Side) -> Flags:
    """Units with a score on both sides."""
    return ~np.isnan(champion.score) & ~np.isnan(policy.score)


def coverage(champion: Side, policy: Side) -> float | None:
    """Share of the rows of champion and policy that have a score; every planned unit counts once on either side."""
    rows = len(champion.score) + len(policy.score)
    scored = np.count_nonzero(~np.isnan(champion.score)) + np.count_nonzero(~np.isnan(policy.score))
    return int(scored) / rows if rows else None


def _sums(units: Units, value: Floats, lowest: Floats, highest: Floats, among: Flags | None = None) -> Sums:
    every = np.ones(len(units), dtype=bool) if among is None else among
    known = every & ~np.isnan(value)
    return Sums(
        known=_by_group(units, units.share(known), np.where(known, value, 0.0)),
        lowest=_by_group(units, units.share(every), lowest),
        highest=_by_group(units, units.share(every), highest),
    )


def _by_group(units: Units, weight: Floats, value: Floats) -> GroupSums:
    with np.errstate(invalid="ignore"):
        weighed = np.where(weight > 0, weight * value, 0.0)
    return GroupSums(units.by_group(weighed), units.by_group(weight))
