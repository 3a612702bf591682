"""A decision in words that a product owner reads: the sentence, what is missing, what needs care. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.report import DecisionEvidence, DecisionResult, DecisionStatus, GateResult
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_pipeline.control.decisions.gates import RULES
from tasc_pipeline.control.drift import DRIFT_P_VALUE, MISMATCH_EVIDENCE

BesideManifest: TypeAlias = Literal["evidence-after-close", "another-instant"]
"""How a decision is made from other evidence than the window's manifest names."""
_OPENINGS: Mapping[DecisionStatus, str] = {
    "PASS": "{policy} may take the traffic: every gate holds",
    "HOLD": "{policy} must not take the traffic",
    "INSUFFICIENT_EVIDENCE": "There is not enough evidence to let {policy} take the traffic",
    "NOMINATED": "{policy} is nominated: every gate holds on the development cases",
    "NO_CANDIDATE": "No policy is nominated; {policy} comes closest",
}
_STALE: Mapping[str, str] = {
    "before-watermark": "evidence may still arrive until {watermark}",
    "protocol-not-yet-valid": "the protocol is not valid yet",
    "protocol-expired": "the protocol has expired",
    "policy-not-yet-valid": "the policy is not valid yet",
    "policy-issued-after-window-start": "the policy was issued after the window had begun",
}
REASONS: Mapping[str, str] = {
    "nothing-is-known": "no execution says anything of it",
    "no-call-has-a-cost": "no call has a cost",
    "no-cost-model": "the study has no cost model",
    "cost-model-without-profile": "the cost model has no price for this profile",
    "beyond-the-bound-as-a-point": "the figure is beyond the bound",
    "beyond-the-bound": "its whole interval is beyond the bound",
    "interval-crosses-the-bound": "its interval crosses the bound; more cases make it narrower",
    "nothing-bounds-it-yet": "too few case groups, or too many unknown executions, to bound it at all",
    "unknown-executions-decide": "the executions whose outcome is not known could decide it either way",
    "too-little-evidence": "there is less of it than the study asks for",
    "no-metric-scrape": "the server's metrics were not scraped",
    "scrapes-do-not-bracket-the-window": "no metric scrape before the first and after the last call",
    "server-does-not-count-tokens": "the server does not report generated tokens",
    "server-restarted-inside-the-window": "the server's token counter started anew inside the window",
    "server-was-not-full": "the window did not ask for more than the server gave",
}
"""What a gate's reason means."""
LATE = "evaluator-evidence-produced-after-watermark"
"""Why evidence does not count that nothing else is wrong with."""


def policy_name(policy: PolicyBundle) -> str:
    """A policy as a reader knows it."""
    if policy.kind == "cascade":
        predicate = policy.predicates[0]
        return (
            f"{policy.primary_profile_id} with {policy.expert_profile_id} behind it "
            f"(asked where {predicate.signal_definition_id} is {predicate.operator.replace('-', ' ')} {predicate.threshold:g})"
        )
    return policy.primary_profile_id


def sentence(
    status: DecisionStatus,
    policy: PolicyBundle,
    gates: Sequence[GateResult],
    evidence: DecisionEvidence,
    imbalances: Sequence[str],
    *,
    windows: int | None,
) -> str:
    """Result, the gates that stand in the way with their reasons, the figures, what is unknown, what was not equal."""
    text = _OPENINGS[status].format(policy=policy_name(policy))
    hindering = [gate for gate in gates if gate.state != "passed"]
    if hindering:
        text += ": " + "; ".join(
            f"{gate_words(gate)} ({REASONS.get(gate.reason or '', gate.state)})" for gate in hindering
        )
    told = [gate for gate in gates if gate.state == "passed" and gate.interval is not None]
    if told:
        text += (". Held: " if hindering else ": ") + ", ".join(map(gate_words, told))
    if windows is not None:
        text += f", over {windows} {'window' if windows == 1 else 'windows'} and all looks at them"
    text += "."
    unknown = evidence.sent_unknown + evidence.not_sent + evidence.not_attempted + evidence.unrouted
    bare = evidence.missing + evidence.abstained + evidence.invalid
    if unknown or bare:
        text += (
            f" Of {evidence.rows} executions {unknown} have no answer that counts ({evidence.sent_unknown} unknown, "
            f"{evidence.not_sent} not sent, {evidence.not_attempted} not attempted"
            f"{f', {evidence.unrouted} that do not exist or have no route signal' if evidence.unrouted else ''}) and {bare} "
            "answers have no score; each is taken at its worst and at its best."
        )
    if imbalances:
        text += f" Not equal on both sides: {', '.join(imbalances)}."
    return text


def of_engine(
    status: DecisionStatus,
    policy: PolicyBundle,
    gates: Sequence[GateResult],
    reasons: Sequence[str],
    again: str,
    as_of: str,
    watermark: str,
) -> str:
    """The result of engine v2 in a sentence; its reasons are the original's own words.

    Args:
        status: of the decision.
        policy: that was judged.
        gates: its gates.
        reasons: why it is not better.
        again: the command that makes the decision again.
        as_of: of the decision.
        watermark: evidence counts until then.
    """
    if status == "STALE":
        text = f"Nothing is judged as of {as_of}: {', '.join(reasons)}."
        if as_of < watermark:
            text += _wait(as_of, watermark, again)
        return text
    text = _OPENINGS[status].format(policy=policy_name(policy))
    text += f" ({', '.join(reasons)})" if reasons else ""
    told = [gate_words(gate) for gate in gates if gate.state != "unavailable"]
    return f"{text}: {', '.join(told)}." if told else f"{text}."


def gate_words(gate: GateResult) -> str:
    """A gate with figure, interval and bound, such as ``95th percentile of TTFT 320 ms (300 to 352), at most 400``."""
    name = RULES[gate.id].asks + (f" {gate.slice}" if gate.slice else "")
    bound = f"{'at least' if gate.operator == '>=' else 'at most'} {amount(gate.threshold, gate.unit)}"
    if gate.actual is None:
        return f"{name} not known, {bound}"
    text = f"{name} {amount(gate.actual, gate.unit)}"
    if gate.interval is not None:
        low, high = gate.interval.low, gate.interval.high
        ends = (amount(end, gate.unit) if end is not None else "unbounded" for end in (low, high))
        text += f" ({' to '.join(ends)})"
    return f"{text}, {bound}"


def amount(value: float, unit: str) -> str:
    """A figure with its unit."""
    return {
        "share": f"{value:.1%}",
        "score": f"{round(value, 3) + 0.0:.3f}",
        "ms": f"{value:.4g} ms",
        "usd": f"{value:.4g} USD",
        "groups": f"{value:.0f}",
        "tokens-per-second": f"{value:.4g} tokens/s",
    }[unit]


def stale(reasons: Sequence[str], window_key: str, as_of: str, watermark: str) -> str:
    """Why nothing is judged, and how long to wait: counted from the instant that the window was assessed for."""
    why = "; ".join(_STALE[reason].format(watermark=watermark) for reason in reasons)
    text = f"Nothing is judged as of {as_of}: {why}."
    if "before-watermark" in reasons:
        text += _wait(as_of, watermark, f"tasc assess {window_key}")
    return text


def _wait(as_of: str, watermark: str, again: str) -> str:
    return f" Wait {waiting(timestamp_ms(watermark) - timestamp_ms(as_of))} from that instant, then: {again}."


def beside_manifest(how: BesideManifest, window_key: str, watermark: str) -> str:
    """What keeps a controller from this decision: the manifest names other evidence, or as it was at another instant."""
    if how == "another-instant":
        return (
            f"The window's manifest names the evidence as it stood at the watermark, {watermark}: the controller takes the "
            f"decision as of that instant only. Run: tasc assess {window_key}."
        )
    return (
        "The window's manifest was closed over other evidence: some was taken in, or whom the operator trusts was changed, "
        f"after the close. The controller takes the decision of a revision only. Run: tasc seal --revise {window_key}."
    )


def waiting(milliseconds: int) -> str:
    """A time to wait, rounded up to a whole minute, or to a second below one."""
    seconds = -(-milliseconds // 1_000)
    if seconds < 60:
        return f"{seconds} s"
    minutes = -(-seconds // 60)
    days, hours, rest = minutes // 1440, minutes % 1440 // 60, minutes % 60
    parts = [f"{days} d" if days else "", f"{hours} h" if hours else "", f"{rest} min" if rest else ""]
    return " ".join(part for part in parts if part)


def missing(
    decision: DecisionResult, rejected: Mapping[str, int], cost_reason: str | None, window_key: str
) -> tuple[str, ...]:
    """What would be known with better evidence.

    Args:
        decision: with its gates.
        rejected: evidence that does not count, by its reason.
        cost_reason: why calls have no cost, null where they have one.
        window_key: the window.
    """
    lines = [
        f"{gate_words(gate)}: {REASONS.get(gate.reason or '', 'not available')}"
        for gate in decision.gates
        if gate.state == "unavailable"
    ]
    evidence = decision.evidence
    if evidence is not None:
        for count, what in (
            (evidence.sent_unknown, "executions were sent and nobody knows what became of them"),
            (evidence.not_sent, "executions were never sent: the collector's fault, not the model's"),
            (evidence.not_attempted, "executions were never attempted"),
            (evidence.unrouted, "executions that the policy needs do not exist, or have no route signal"),
            (evidence.missing, "answers have no trusted score"),
            (evidence.abstained, "answers were not scored: the evaluator abstained"),
            (evidence.invalid, "scores are invalid"),
        ):
            if count:
                lines.append(f"{count} of {evidence.rows} {what}")
    lines += [
        f"{count} scores were produced after the watermark and count in a revision only: tasc seal --revise {window_key}"
        if reason == LATE
        else f"{count} scores were not trusted: {reason.removeprefix('verification-')}"
        for reason, count in sorted(rejected.items())
    ]
    if cost_reason is not None:
        lines.append(f"cost of calls: {REASONS.get(cost_reason, cost_reason)}")
    return tuple(lines)


def warnings(decision: DecisionResult) -> tuple[str, ...]:
    """What a reader should not read over."""
    windows = decision.windows
    if windows is None:
        return ()
    lines = [
        f"{RULES[item.gate].asks}{f' {item.slice}' if item.slice else ''} differs between windows by more than its error"
        for item in windows.drift
        if item.p_value < DRIFT_P_VALUE
    ]
    if windows.mismatch_evidence >= MISMATCH_EVIDENCE:
        lines.append("one side loses more answers than the other (sample-ratio mismatch)")
    return tuple(lines)
