"""Gates that are right at every window, and what differs between windows. Pure.

1. With ``sequential`` in the analysis plan a gate is ruled on all windows of the study under the same policy and plan up
   to this one: whenever somebody looks, the chance that a gate which does not hold ever passes is at most half of
   1 - confidence.
2. *Means* (quality, mean score, cost) take the asymptotic confidence sequence of ``sequences``: the lower end around the
   windows' means with every unknown at its lowest, the upper end around those with every unknown at its highest.
3. *Shares of calls* (failures, calls beyond a latency's bound) take the exact wealth of ``betting``, which multiplies over
   windows. A 95th percentile is asked as its share: at most 5 % of the calls beyond the bound.
4. Drift is Cochran's Q over windows, sample-ratio mismatch an e-value, as in ``drift``; both warn and decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tasc_collector.contracts.report import (
    DecisionDrift,
    DecisionSummary,
    DecisionWindows,
    DifferenceCount,
    WindowMean,
    WindowShares,
)
from tasc_pipeline.control import betting, sequences
from tasc_pipeline.control.decisions.figures import Sums
from tasc_pipeline.control.decisions.gates import Figure
from tasc_pipeline.control.decisions.means import UNIT, GroupSums, Mean, adjusted_error
from tasc_pipeline.control.drift import chi_square_tail, mismatch_evidence
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.window_summary import tidy

MINIMUM_WINDOWS = 3
"""Fewer windows say nothing of drift."""


def window_mean(gate: str, slice_id: str | None, found: Mean) -> WindowMean | None:
    """What a window adds to a sequence of means; nothing where a side is not bounded."""
    if found.lowest is None or found.highest is None or found.standard_error is None:
        return None
    return WindowMean(
        gate=gate,
        slice=slice_id,
        lowest=tidy(found.lowest),
        highest=tidy(found.highest),
        standard_error=tidy(found.standard_error),
    )


def window_shares(gate: str, sums: Sums) -> WindowShares:
    """What a window adds to a sequence of shares."""
    return WindowShares(gate=gate, lowest=_counts(sums.lowest), highest=_counts(sums.highest))


def up_to(last: DecisionSummary, earlier: Sequence[DecisionSummary]) -> list[DecisionSummary]:
    """The windows of a sequence in order, ``last`` at the end: earlier ones under the same policy and analysis plan."""
    before = [
        item
        for item in earlier
        if (item.as_of, item.window_key) < (last.as_of, last.window_key)
        and (item.policy_digest, item.analysis_plan_digest) == (last.policy_digest, last.analysis_plan_digest)
    ]
    return [*sorted(before, key=lambda item: (item.as_of, item.window_key)), last]


def mean_figure(windows: Sequence[DecisionSummary], gate: str, slice_id: str | None, levels: Levels) -> Figure:
    """The sequence of a mean over the windows that have it."""
    found = _means(windows, gate, slice_id)
    if not found:
        return Figure(None, None, None, None, None, None)
    count = len(found)
    lowest = math.fsum(item.lowest for item in found) / count
    highest = math.fsum(item.highest for item in found) / count
    error = math.sqrt(math.fsum(item.standard_error**2 for item in found) / count)
    reach = error * sequences.radius(count, 2 * levels.tail)
    middle = (lowest + highest) / 2
    return Figure(middle, lowest - reach, highest + reach, lowest, highest, sequences.METHOD)


def share_figure(windows: Sequence[DecisionSummary], gate: str, levels: Levels) -> Figure:
    """The sequence of a share of calls; its mean is over case groups and windows."""
    found = [item for window in windows for item in window.shares if item.gate == gate]
    lowest = betting.merged([_differences(item.lowest) for item in found])
    highest = betting.merged([_differences(item.highest) for item in found])
    low, high = betting.mean(lowest), betting.mean(highest)
    if low is None or high is None:
        return Figure(None, None, None, None, None, None)
    turned = {1.0 - value: count for value, count in lowest.items()}
    return Figure(
        estimate=(low + high) / 2,
        low=max(1.0 - betting.upper_bound(turned, levels.tail), 0.0),
        high=max(betting.upper_bound(highest, levels.tail), 0.0),
        lowest=low,
        highest=high,
        method=betting.METHOD,
    )


def window_state(windows: Sequence[DecisionSummary], levels: Levels, *, sequential: bool) -> DecisionWindows:
    """Drift, sample-ratio mismatch and what the looks so far have spent."""
    alpha = 1 - levels.confidence
    champion, policy = (sum(getattr(item, name) for item in windows) for name in ("champion_missing", "policy_missing"))
    return DecisionWindows(
        windows=len(windows),
        earlier_windows=tuple(item.window_key for item in windows[:-1]),
        sequential=sequential,
        alpha=tidy(alpha),
        spent=tidy(sequences.spent(len(windows), tidy(alpha))) if sequential else 0.0,
        drift=_drift(windows),
        mismatch_evidence=tidy(mismatch_evidence(champion, policy)),
    )


def _drift(windows: Sequence[DecisionSummary]) -> tuple[DecisionDrift, ...]:
    last = windows[-1]
    items = [
        _of_values(
            item.gate,
            item.slice,
            [(each.lowest + each.highest) / 2 for each in _means(windows, item.gate, item.slice)],
            [each.standard_error for each in _means(windows, item.gate, item.slice)],
        )
        for item in last.means
    ]
    for item in last.shares:
        parts = [_differences(part.lowest) for window in windows for part in window.shares if part.gate == item.gate]
        held = [part for part in parts if part]
        items.append(_of_values(item.gate, None, [betting.mean(part) or 0.0 for part in held], list(map(_error, held))))
    return tuple(item for item in items if item is not None)


def _of_values(
    gate: str, slice_id: str | None, values: Sequence[float], errors: Sequence[float]
) -> DecisionDrift | None:
    pairs = [(value, error) for value, error in zip(values, errors, strict=True) if error > 0]
    if len(pairs) < MINIMUM_WINDOWS:
        return None
    mass = math.fsum(error**-2 for _, error in pairs)
    common = math.fsum(value * error**-2 for value, error in pairs) / mass
    q = math.fsum((value - common) ** 2 * error**-2 for value, error in pairs)
    return DecisionDrift(
        gate=gate,
        slice=slice_id,
        windows=len(pairs),
        q=tidy(q),
        p_value=float(f"{chi_square_tail(q, len(pairs) - 1):.6g}"),
    )


def _error(part: Mapping[float, int]) -> float:
    """Standard error of a window's share over its groups."""
    values = np.repeat(np.array(list(part.keys()), dtype=np.float64), np.array(list(part.values()), dtype=np.int64))
    return adjusted_error(GroupSums(values, np.ones(len(values))), UNIT) if len(values) else 0.0


def _means(windows: Sequence[DecisionSummary], gate: str, slice_id: str | None) -> list[WindowMean]:
    return [item for window in windows for item in window.means if (item.gate, item.slice) == (gate, slice_id)]


def _counts(sums: GroupSums) -> tuple[DifferenceCount, ...]:
    counted = betting.counted(sums.values.tolist())
    return tuple(DifferenceCount(value=value, count=count) for value, count in counted.items())


def _differences(counts: Sequence[DifferenceCount]) -> dict[float, int]:
    return {item.value: item.count for item in counts}
