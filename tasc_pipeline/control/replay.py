"""What would have happened under a routing policy, from executions of every profile: replay (original, section 6.2). Pure.

Rules, per case and replicate:

1. Primary and expert must both have an execution, else the reason ``missing-required-profile`` and no row.
2. ``expert-only`` and ``fast-only`` take that profile's execution.
3. ``cascade`` needs a route signal, else ``missing-route-signal`` and no row. Where the predicate holds, the expert's
   execution is taken. Else the primary's; where that is not a success, the expert was asked afterwards: outcome of the
   expert, and the primary's end to end goes before the expert's times; costs add up, and are unknown if one is.
4. TTFT is first token minus start of a success that has one (measured), else end to end (modeled).
5. Every value of a cascade is modeled, because nobody was served by it; an unavailable one stays unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import PolicyPredicate
from tasc_pipeline.control.identifiers import Codes, Flags
from tasc_pipeline.control.joined_rows import Backing, JoinedRows, Outcome, Small
from tasc_pipeline.control.pairing import Floats

MISSING_PROFILE: Final = "missing-required-profile"
MISSING_SIGNAL: Final = "missing-route-signal"

_SCORE_BACKING: Final = np.array(
    [
        {Outcome.SCORED: Backing.REPORTED, Outcome.FAILURE_ZERO: Backing.MODELED}.get(item, Backing.UNAVAILABLE)
        for item in Outcome
    ],
    dtype=np.int8,
)
LACKS: Final[Mapping[Outcome, str]] = {
    Outcome.AMBIGUOUS: "ambiguous-execution",
    Outcome.ABSTAINED: "evaluator-abstention",
    Outcome.MISSING: "missing-evaluator-evidence",
    Outcome.INVALID: "invalid-evaluator-evidence",
}
"""The reason that an outcome without a score gives."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One row per replayed (case, replicate), in their sorted order.

    Args:
        policy: what was replayed.
        reasons: why rows are missing, sorted.
        unit: number of the (case, replicate), see ``JoinedRows.unit``.
        case: place of the case.
        group: place of the group.
        row: joined row whose outcome counts.
        first: joined row that was asked before it, or -1 (a fallback).
        succeeded: the outcome is a success.
        outcome: ``Outcome`` that counts.
        score: NaN where the outcome has none.
        score_class: ``Backing``.
        weight: traffic weight of the case.
        ttft_ms: time to first token.
        ttft_class: ``Backing``.
        e2e_ms: end to end.
        e2e_class: ``Backing``.
        cost_usd: NaN where not known.
        cost_class: ``Backing``.
    """

    policy: PolicyBundle
    reasons: tuple[str, ...]
    unit: Codes
    case: Codes
    group: Codes
    row: Codes
    first: Codes
    succeeded: Flags
    outcome: Small
    score: Floats
    score_class: Small
    weight: Floats
    ttft_ms: Floats
    ttft_class: Small
    e2e_ms: Floats
    e2e_class: Small
    cost_usd: Floats
    cost_class: Small

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def scored(self) -> Flags:
        """Rows that have a score."""
        found: Flags = self.outcome <= Outcome.FAILURE_ZERO
        return found

    @property
    def lacks(self) -> set[str]:
        """Why rows have no score."""
        return {LACKS[Outcome(code)] for code in np.unique(self.outcome[~self.scored]).tolist()}


def replay(rows: JoinedRows, policy: PolicyBundle) -> Replay:
    """Replay a policy over joined rows by the rules of this module."""
    primary = rows.unit_rows[:, rows.place(policy.primary_profile_id)]
    expert = rows.unit_rows[:, rows.place(policy.expert_profile_id)]
    reasons = set()
    present = (primary >= 0) & (expert >= 0)
    if not np.all(present):
        reasons.add(MISSING_PROFILE)
    cascade = policy.kind == "cascade"
    if cascade:
        signal = np.where(primary >= 0, rows.executions.signal[primary], np.nan)
        unknown = present & np.isnan(signal)
        if np.any(unknown):
            reasons.add(MISSING_SIGNAL)
        present &= ~unknown
    unit = np.flatnonzero(present)
    primary, expert = primary[unit], expert[unit]
    if cascade:
        routed = holds(policy.predicates[0], signal[unit])
        failed = ~routed & ~rows.executions.succeeded[primary]
        row = np.where(routed | failed, expert, primary)
        first = np.where(failed, primary, -1)
    else:
        row, first = (expert if policy.kind == "expert-only" else primary), np.full(len(unit), -1, dtype=np.int64)
    return _rows(rows, policy, tuple(sorted(reasons)), unit, row, first)


def holds(predicate: PolicyPredicate, signal: Floats) -> Flags:
    """Where a predicate holds."""
    compare = {
        "less-than": np.less,
        "less-than-or-equal": np.less_equal,
        "greater-than": np.greater,
        "greater-than-or-equal": np.greater_equal,
    }[predicate.operator]
    found: Flags = compare(signal, predicate.threshold)
    return found


def _rows(
    rows: JoinedRows, policy: PolicyBundle, reasons: tuple[str, ...], unit: Codes, row: Codes, first: Codes
) -> Replay:
    executions, cascade = rows.executions, policy.kind == "cascade"
    token = executions.ttft_ms[row]
    measured = executions.succeeded[row] & ~np.isnan(token)
    e2e = executions.e2e_ms[row]
    ttft = np.where(measured, token, e2e)
    cost = executions.cost_usd[row]
    outcome = rows.outcome[row]
    score_class, cost_class = _SCORE_BACKING[outcome], executions.cost_class[row]
    ttft_class = np.where(measured, Backing.MEASURED, Backing.MODELED).astype(np.int8)
    e2e_class = np.full(len(unit), Backing.MEASURED, dtype=np.int8)
    if cascade:
        fallback = first >= 0
        before = np.where(fallback, executions.e2e_ms[first], 0.0)
        ttft, e2e = np.where(fallback, before + ttft, ttft), np.where(fallback, before + e2e, e2e)
        cost = np.where(fallback, executions.cost_usd[first] + cost, cost)
        modeled = np.int8(Backing.MODELED)
        score_class = np.where(score_class < Backing.UNAVAILABLE, modeled, score_class)
        cost_class = np.where(np.isnan(cost), np.int8(Backing.UNAVAILABLE), modeled)
        ttft_class, e2e_class = np.full_like(ttft_class, modeled), np.full_like(e2e_class, modeled)
    return Replay(
        policy=policy,
        reasons=reasons,
        unit=unit,
        case=rows.case[row],
        group=rows.group[row],
        row=row,
        first=first,
        succeeded=executions.succeeded[row],
        outcome=outcome,
        score=rows.score[row],
        score_class=score_class,
        weight=executions.weight[row],
        ttft_ms=ttft,
        ttft_class=ttft_class,
        e2e_ms=e2e,
        e2e_class=e2e_class,
        cost_usd=cost,
        cost_class=cost_class,
    )
