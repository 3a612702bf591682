"""A decision on the report's page: the sentence, every gate with interval and bounds, what it rests on. Pure.

Every figure comes from the assessment's record. A gate is told as a question, the figure, how sure it is, what the
executions that are not known could make of it, and what became of it, in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasc_collector.contracts.report import DecisionEvidence, DecisionFigure, DecisionResult, GateResult, Interval
from tasc_pipeline.control.decisions.gates import RULES
from tasc_pipeline.control.decisions.words import REASONS, amount
from tasc_pipeline.warehouse.blocks import Block, Bullets, Grid, Heading, Paragraph, Statement, marked

UNKNOWN = "not available"
FIGURES = {
    "p95-ttft": "TTFT, 95th percentile",
    "p95-itl": "ITL, 95th percentile",
    "p95-tpot": "TPOT, 95th percentile",
    "p95-e2e": "E2E, 95th percentile",
    "mean-score": "mean score",
    "failure-rate": "share of calls that fail",
    "cost-per-thousand": "cost of a thousand calls",
}
"""What the shown figures are called."""
_EVIDENCE: tuple[tuple[str, str], ...] = (
    ("scored", "answered and scored"),
    ("protocol_failures", "failed, which scores 0"),
    ("missing", "answered, no trusted score"),
    ("abstained", "answered, the evaluator abstained"),
    ("invalid", "answered, the score is invalid"),
    ("sent_unknown", "sent, and nobody knows what became of it"),
    ("not_sent", "never sent: the collector's fault"),
    ("not_attempted", "never attempted"),
    ("unrouted", "no route signal, or no execution"),
)


def decision_blocks(decision: DecisionResult) -> list[Block]:
    """The decision's part of the page."""
    blocks: list[Block] = [Statement(decision.status, decision.sentence)]
    if decision.wait_until is not None:
        blocks.append(Paragraph(f"Evidence may arrive until {decision.wait_until}; nothing is judged before."))
    if decision.gates:
        blocks += [Heading("Gates"), gate_grid(decision.gates), Bullets(_reading(decision.gates))]
    if len(decision.policies) > 1:
        rows = tuple(
            (item.policy_digest[7:19], marked(item.status), _failing(item.gates)) for item in decision.policies
        )
        blocks += [Heading("All policies"), Grid(("policy", "result", "gates in the way"), rows)]
    if decision.evidence is not None:
        blocks += _evidence(decision.evidence)
    if decision.figures:
        blocks += [Heading("Champion and policy side by side"), _figures(decision.figures)]
    return [*blocks, *_windows(decision)]


def gate_grid(gates: Sequence[GateResult]) -> Grid:
    """Every gate as a row."""
    return Grid(
        ("gate", "asked", "figure", "interval", "unknown at worst / best", "bound", "evidence", "result"),
        tuple(
            (
                gate.id + (f" {gate.slice}" if gate.slice else ""),
                RULES[gate.id].asks,
                _amount(gate.actual, gate.unit),
                _interval(gate.interval, gate.unit),
                _bounds(gate),
                f"{'≥' if gate.operator == '>=' else '≤'} {amount(gate.threshold, gate.unit)}",
                gate.evidence_class,
                marked(gate.state),
            )
            for gate in gates
        ),
    )


def _reading(gates: Sequence[GateResult]) -> tuple[str, ...]:
    """Why each gate that is not passed is not, in words."""
    lines = tuple(
        f"{RULES[gate.id].asks}{f' {gate.slice}' if gate.slice else ''}: {gate.state}, "
        f"{REASONS.get(gate.reason or '', gate.reason or 'no reason given')}"
        for gate in gates
        if gate.state != "passed"
    )
    return lines or ("Every gate's whole interval is within its bound, whatever the unknown executions were.",)


def _failing(gates: Sequence[GateResult]) -> str:
    return ", ".join(gate.id for gate in gates if gate.state != "passed") or "none"


def _evidence(evidence: DecisionEvidence) -> list[Block]:
    rows = tuple((words, str(getattr(evidence, name))) for name, words in _EVIDENCE if getattr(evidence, name))
    return [
        Heading(f"What the {evidence.rows} planned executions of champion and policy are"),
        Grid(("executions", "count"), rows),
    ]


def _figures(figures: Sequence[DecisionFigure]) -> Grid:
    names = list(dict.fromkeys(item.id for item in figures))
    held: dict[tuple[str, str], DecisionFigure] = {(item.id, item.side): item for item in figures}

    def cell(name: str, side: str) -> tuple[str, str]:
        item = held.get((name, side))
        if item is None or item.estimate is None:
            return UNKNOWN, UNKNOWN
        return amount(item.estimate, item.unit), _interval(item.interval, item.unit)

    return Grid(
        ("figure", "champion", "interval", "policy", "interval"),
        tuple((FIGURES[name], *cell(name, "champion"), *cell(name, "policy")) for name in names),
    )


def _windows(decision: DecisionResult) -> list[Block]:
    windows = decision.windows
    if windows is None or windows.windows < 2:
        return []
    lines = [f"{windows.windows} windows under this policy and plan, this one the last."]
    if windows.sequential:
        lines.append(
            f"Intervals hold over all looks; they have used {windows.spent:.2%} of an error of {windows.alpha:.1%} per gate."
        )
    else:
        lines.append("Each window is judged on its own: looking at every one of them makes a wrong PASS likelier.")
    lines += [
        f"{RULES[item.gate].asks}{f' {item.slice}' if item.slice else ''}: differs over {item.windows} windows with "
        f"p = {item.p_value:.2g} (Cochran's Q)"
        for item in windows.drift
    ]
    return [Heading("Over windows"), Bullets(tuple(lines))]


def _amount(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else amount(value, unit)


def _interval(interval: Interval | None, unit: str) -> str:
    if interval is None:
        return "none"
    low, high = (("unbounded" if end is None else amount(end, unit)) for end in (interval.low, interval.high))
    return f"{low} to {high} ({100 * interval.confidence:g} %)"


def _bounds(gate: GateResult) -> str:
    if gate.worst is None and gate.best is None:
        return "no bound" if gate.interval is not None else ""
    if gate.worst == gate.best:
        return "no difference"
    worst = "no bound" if gate.worst is None else amount(gate.worst, gate.unit)
    return f"{worst} / {_amount(gate.best, gate.unit)}"
