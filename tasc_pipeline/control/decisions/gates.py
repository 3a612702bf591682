"""The gates of a decision: which there are, and what their interval makes of them. Pure.

1. A gate is ``passed`` where its whole interval is within the bound, ``failed`` where it is wholly beyond, ``undecided``
   in between, and ``unavailable`` where nothing is known. The interval holds whatever the unknown executions were.
2. *Evidence* gates say whether there is enough to judge: coverage, groups, groups per critical slice. Where one of them
   is not passed, the policy is ``INSUFFICIENT_EVIDENCE``, whatever the others say.
3. Else one failed gate makes it ``HOLD``; else one that is undecided or unavailable ``INSUFFICIENT_EVIDENCE``; else
   every gate is passed: ``PASS``. As every gate must pass, the error of a wrong ``PASS`` is that of one gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tasc_collector.contracts.protocol import Gates
from tasc_collector.contracts.report import EvidenceClass, GateResult, GateState, Interval
from tasc_pipeline.control.window_summary import tidy

Kind = Literal["evidence", "performance"]
Operator = Literal[">=", "<="]


@dataclass(frozen=True, slots=True)
class GateRule:
    """One kind of gate.

    Args:
        id: its name in reports and tables.
        asks: what it asks, in words.
        operator: how figure and bound compare.
        kind: see rule 2.
        unit: of figure and bound.
        scale: figure in the gate's unit over figure as computed (nanoseconds to milliseconds).
        bound: field of the protocol's gates that holds the bound; null where it comes from elsewhere.
    """

    id: str
    asks: str
    operator: Operator
    kind: Kind
    unit: str
    scale: float = 1.0
    bound: str | None = None


QUALITY = GateRule(
    "paired-quality",
    "score against the champion on the same cases",
    ">=",
    "performance",
    "score",
    bound="non_inferiority_margin",
)
MEAN_SCORE = GateRule("minimum-mean-score", "mean score", ">=", "performance", "score", bound="minimum_mean_score")
FAILURE_RATE = GateRule(
    "maximum-failure-rate", "share of calls that fail", "<=", "performance", "share", bound="maximum_failure_rate"
)
P95_TTFT = GateRule(
    "maximum-p95-ttft", "95th percentile of TTFT", "<=", "performance", "ms", 1e-6, "maximum_p95_ttft_ms"
)
P95_E2E = GateRule(
    "maximum-p95-end-to-end", "95th percentile of E2E", "<=", "performance", "ms", 1e-6, "maximum_p95_end_to_end_ms"
)
COST = GateRule(
    "maximum-cost-per-thousand",
    "cost of a thousand calls",
    "<=",
    "performance",
    "usd",
    bound="maximum_cost_per_thousand_requests_usd",
)
SLICE_QUALITY = GateRule(
    "slice-quality",
    "score against the champion within a slice",
    ">=",
    "performance",
    "score",
    bound="non_inferiority_margin",
)
COVERAGE = GateRule("minimum-evidence-coverage", "share of planned executions with a score", ">=", "evidence", "share")
GROUPS = GateRule(
    "minimum-independent-groups",
    "case groups with a scored pair",
    ">=",
    "evidence",
    "groups",
    bound="minimum_independent_groups",
)
SLICE_GROUPS = GateRule(
    "minimum-critical-slice-groups",
    "case groups of a critical slice with a scored pair",
    ">=",
    "evidence",
    "groups",
    bound="minimum_critical_slice_groups",
)
CAPACITY = GateRule(
    "minimum-service-capacity",
    "output tokens per second that the server was seen to make",
    ">=",
    "performance",
    "tokens-per-second",
)
BEYOND_TTFT = GateRule(
    "maximum-share-beyond-ttft",
    "share of calls beyond the bound of the 95th percentile of TTFT",
    "<=",
    "performance",
    "share",
)
BEYOND_E2E = GateRule(
    "maximum-share-beyond-end-to-end",
    "share of calls beyond the bound of the 95th percentile of E2E",
    "<=",
    "performance",
    "share",
)

RULES: Final[Mapping[str, GateRule]] = {
    rule.id: rule
    for rule in (
        QUALITY,
        MEAN_SCORE,
        FAILURE_RATE,
        P95_TTFT,
        P95_E2E,
        BEYOND_TTFT,
        BEYOND_E2E,
        COST,
        SLICE_QUALITY,
        COVERAGE,
        GROUPS,
        SLICE_GROUPS,
        CAPACITY,
    )
}
"""Every gate; the two shares stand for the two percentiles in a sequential plan."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure before its gate, as computed; null where there is none.

    Args:
        estimate: over what is known.
        low: lower end of the interval.
        high: upper end.
        lowest: with every unknown at its lowest.
        highest: with every unknown at its highest.
        method: of the interval; null where the figure has none.
    """

    estimate: float | None
    low: float | None
    high: float | None
    lowest: float | None
    highest: float | None
    method: str | None


def bound_of(rule: GateRule, gates: Gates) -> float:
    """The protocol's bound of a gate."""
    return float(getattr(gates, rule.bound or ""))


def gate(
    rule: GateRule,
    bound: float,
    figure: Figure,
    confidence: float,
    evidence_class: EvidenceClass,
    *,
    slice_id: str | None = None,
    unknown_reason: str = "nothing-is-known",
) -> GateResult:
    """A gate with an interval, rule 1.

    Args:
        rule: which gate.
        bound: in the gate's unit.
        figure: as computed.
        confidence: two-sided, of the interval.
        evidence_class: how the figure is known.
        slice_id: of a gate per slice.
        unknown_reason: why there is no figure, where there is none.
    """
    estimate, low, high = (_scaled(value, rule) for value in (figure.estimate, figure.low, figure.high))
    lowest, highest = _scaled(figure.lowest, rule), _scaled(figure.highest, rule)
    at_least = rule.operator == ">="
    state, reason = _state(bound, estimate, low, high, lowest if at_least else highest, at_least=at_least)
    unavailable = state == "unavailable"
    interval = None
    if figure.method is not None and not unavailable:
        interval = Interval(low=low, high=high, confidence=confidence, method=figure.method)
    return GateResult(
        id=rule.id,
        operator=rule.operator,
        threshold=bound,
        actual=estimate,
        interval=interval,
        evidence_class="unavailable" if unavailable else evidence_class,
        passed=state == "passed",
        reason=unknown_reason if unavailable else reason,
        state=state,
        slice=slice_id,
        unit=rule.unit,
        worst=None if unavailable else lowest if at_least else highest,
        best=None if unavailable else highest if at_least else lowest,
    )


def counted_gate(
    rule: GateRule,
    bound: float,
    actual: float | None,
    *,
    slice_id: str | None = None,
    state: GateState | None = None,
    reason: str | None = None,
) -> GateResult:
    """A gate on a figure that has no interval: a count, a share of what was planned, a measured throughput.

    Args:
        rule: which gate.
        bound: in the gate's unit.
        actual: in the gate's unit, null where there is none.
        slice_id: of a gate per slice.
        state: where it does not follow from figure and bound alone.
        reason: why it is not passed.
    """
    found: GateState = state or ("unavailable" if actual is None else "passed" if actual >= bound else "failed")
    return GateResult(
        id=rule.id,
        operator=rule.operator,
        threshold=bound,
        actual=None if actual is None else tidy(actual),
        interval=None,
        evidence_class="unavailable" if actual is None else "measured",
        passed=found == "passed",
        reason=None if found == "passed" else reason or "too-little-evidence",
        state=found,
        slice=slice_id,
        unit=rule.unit,
    )


def ruled(gates: Sequence[GateResult]) -> Literal["PASS", "HOLD", "INSUFFICIENT_EVIDENCE"]:
    """What the gates make of a policy, rules 2 and 3."""
    if any(item.state != "passed" for item in gates if RULES[item.id].kind == "evidence"):
        return "INSUFFICIENT_EVIDENCE"
    if any(item.state == "failed" for item in gates):
        return "HOLD"
    return "PASS" if all(item.state == "passed" for item in gates) else "INSUFFICIENT_EVIDENCE"


def reasons(gates: Sequence[GateResult]) -> tuple[str, ...]:
    """Ids of the gates that are not passed, with their state; sorted and unique."""
    return tuple(sorted({f"{item.state}.{item.id}" for item in gates if item.state != "passed"}))


def _state(
    bound: float, estimate: float | None, low: float | None, high: float | None, worst: float | None, *, at_least: bool
) -> tuple[GateState, str | None]:
    if estimate is None and low is None and high is None:
        return "unavailable", None
    near, far = (low, high) if at_least else (high, low)
    if near is not None and (near >= bound if at_least else near <= bound):
        return "passed", None
    if far is not None and (far < bound if at_least else far > bound):
        return "failed", "beyond-the-bound"
    if near is None:
        return "undecided", "nothing-bounds-it-yet"
    on_its_own = estimate is not None and (estimate >= bound if at_least else estimate <= bound)
    with_unknown = worst is not None and (worst >= bound if at_least else worst <= bound)
    return "undecided", "unknown-executions-decide" if on_its_own and not with_unknown else "interval-crosses-the-bound"


def _scaled(value: float | None, rule: GateRule) -> float | None:
    return None if value is None else tidy(value * rule.scale) + 0.0
