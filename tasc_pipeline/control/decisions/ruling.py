"""One policy against the champion in one window: every gate, on this window alone or on the sequence so far. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasc_collector.contracts.operations import AnalysisPlan
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import CapacityGate, ExperimentProtocol
from tasc_collector.contracts.report import DecisionSummary, EvidenceClass, GateResult
from tasc_pipeline.control.decisions import figures, gates, sequential
from tasc_pipeline.control.decisions.capacity import Capacity
from tasc_pipeline.control.decisions.figures import Sums
from tasc_pipeline.control.decisions.gates import Figure, GateRule
from tasc_pipeline.control.decisions.means import SIGNED, UNIT, Mean, Resamples, Span, mean_interval
from tasc_pipeline.control.decisions.routing import run_policy
from tasc_pipeline.control.decisions.tails import BEYOND, METHOD, Latencies, p95_interval
from tasc_pipeline.control.decisions.units import Side, Units
from tasc_pipeline.control.intervals import Levels, generator
from tasc_pipeline.control.pairing import Floats

_LATENCY_GATES: tuple[tuple[GateRule, GateRule, Literal["ttft_ns", "e2e_ns"]], ...] = (
    (gates.P95_TTFT, gates.BEYOND_TTFT, "ttft_ns"),
    (gates.P95_E2E, gates.BEYOND_E2E, "e2e_ns"),
)
"""The gate on a percentile, the share that stands for it in a sequence, and the latency."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one policy is judged by.

    Args:
        protocol: gates and critical slices.
        analysis: confidence, draws, seed, slices and whether it is sequential.
        analysis_digest: its digest.
        policy: what is ruled on.
        champion: profile id.
        window_key: the window.
        collected_as: key of the window's revision 1; part of every seed.
        watermark: of the window; orders windows in a sequence.
        capacity: what the primary's server says, null where no capacity gate applies.
        cost_reason: why calls have no cost.
    """

    protocol: ExperimentProtocol
    analysis: AnalysisPlan
    analysis_digest: str
    policy: PolicyBundle
    champion: str
    window_key: str
    collected_as: str
    watermark: str
    capacity: Capacity | None
    cost_reason: str | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One policy, ruled.

    Args:
        policy: which.
        status: by its gates.
        gates: in the order of ``gates.RULES``, per slice in the order of their names.
        side: what it would have given.
        windows: the summaries it was ruled on, this window's last.
        resamples: the window's draws.
    """

    policy: PolicyBundle
    status: Literal["PASS", "HOLD", "INSUFFICIENT_EVIDENCE"]
    gates: tuple[GateResult, ...]
    side: Side
    windows: Sequence[DecisionSummary]
    resamples: Resamples


def judge(case: Judgement, units: Units, earlier: Sequence[DecisionSummary]) -> Judged:
    """Every gate of one policy; see the procedure of ``deciding``.

    Args:
        case: what it is judged by.
        units: the window.
        earlier: what windows before this one left.
    """
    window = _Window(case, units)
    windows = sequential.up_to(window.summary(), earlier)
    found = (*window.performance(windows), *window.evidence())
    return Judged(case.policy, gates.ruled(found), found, window.side, windows, window.resamples)


class _Window:
    """The figures of one policy in one window, each made once."""

    def __init__(self, case: Judgement, units: Units) -> None:
        analysis, policy = case.analysis, case.policy
        self._case, self._units = case, units
        self._levels = Levels(analysis.confidence)
        self._champion, self.side = units.sides[case.champion], run_policy(units, policy)
        rng = generator(analysis.seed, case.collected_as, policy.policy_digest)
        self.resamples = Resamples.draw(max(units.groups, 1), analysis.draws, rng)
        self._means: dict[tuple[str, str | None], Mean] = {
            (rule.id, slice_id): self._mean(sums, span) for rule, slice_id, sums, span in self._asked()
        }
        self._failures = figures.failure_rate(units, self.side)
        self._calls: dict[str, Latencies] = {
            name: figures.latencies(units, self.side, _values(self.side, name)) for _, _, name in _LATENCY_GATES
        }

    def summary(self) -> DecisionSummary:
        """What later windows need of this one."""
        bounds, units = self._case.protocol.gates, self._units
        shares = [sequential.window_shares(gates.FAILURE_RATE.id, self._failures)]
        for percentile, share, name in _LATENCY_GATES:
            bound_ns = gates.bound_of(percentile, bounds) / percentile.scale
            shares.append(sequential.window_shares(share.id, figures.beyond(self._calls[name], bound_ns)))
        means = [sequential.window_mean(gate, slice_id, mean) for (gate, slice_id), mean in self._means.items()]
        return DecisionSummary(
            window_key=self._case.window_key,
            as_of=self._case.watermark,
            policy_digest=self._case.policy.policy_digest,
            analysis_plan_digest=self._case.analysis_digest,
            means=tuple(item for item in means if item is not None),
            shares=tuple(shares),
            champion_missing=int((~self._champion.known).sum()),
            policy_missing=int((~units.sides[self._case.policy.primary_profile_id].known).sum()),
        )

    def performance(self, windows: Sequence[DecisionSummary]) -> tuple[GateResult, ...]:
        """Gates with an interval, and capacity."""
        case, cascade = self._case, self._case.policy.kind == "cascade"
        score: EvidenceClass = "modeled" if cascade else "reported"
        measured: EvidenceClass = "modeled" if cascade else "measured"
        found = [
            self._of_mean(gates.QUALITY, windows, score),
            self._of_mean(gates.MEAN_SCORE, windows, score),
            self._of_failures(windows, measured),
        ]
        for percentile, share, name in _LATENCY_GATES:
            found.append(
                self._of_share(share, windows, measured)
                if case.analysis.sequential
                else self._of_percentile(percentile, self._calls[name], measured)
            )
        found.append(self._of_mean(gates.COST, windows, "modeled", unknown=case.cost_reason or "no-call-has-a-cost"))
        found += [
            self._of_mean(gates.SLICE_QUALITY, windows, score, slice_id=name)
            for name in sorted(case.analysis.slice_gates)
        ]
        return (*found, *self._of_capacity())

    def evidence(self) -> tuple[GateResult, ...]:
        """Gates on how much there is to judge."""
        case, units = self._case, self._units
        limits, paired = case.protocol.gates, figures.scored_pairs(self._champion, self.side)
        least = max(limits.minimum_evidence_coverage, case.analysis.minimum_coverage)
        return (
            gates.counted_gate(gates.COVERAGE, least, figures.coverage(self._champion, self.side)),
            gates.counted_gate(gates.GROUPS, limits.minimum_independent_groups, float(units.groups_with(paired))),
            *(
                gates.counted_gate(
                    gates.SLICE_GROUPS,
                    limits.minimum_critical_slice_groups,
                    float(units.groups_with(paired & units.slices[name])),
                    slice_id=name,
                )
                for name in sorted(case.protocol.critical_slices)
            ),
        )

    def _asked(self) -> list[tuple[GateRule, str | None, Sums, Span | None]]:
        units, champion, policy = self._units, self._champion, self.side
        return [
            (gates.QUALITY, None, figures.quality(units, champion, policy), SIGNED),
            (gates.MEAN_SCORE, None, figures.mean_score(units, policy), UNIT),
            (gates.COST, None, figures.cost_per_thousand(units, policy), figures.cost_span(policy)),
            *(
                (gates.SLICE_QUALITY, name, figures.quality(units, champion, policy, units.slices[name]), SIGNED)
                for name in sorted(self._case.analysis.slice_gates)
            ),
        ]

    def _mean(self, sums: Sums, span: Span | None) -> Mean:
        return mean_interval(sums.known, sums.lowest, sums.highest, self._levels, self.resamples, span)

    def _of_mean(
        self,
        rule: GateRule,
        windows: Sequence[DecisionSummary],
        evidence_class: EvidenceClass,
        *,
        slice_id: str | None = None,
        unknown: str = "nothing-is-known",
    ) -> GateResult:
        own = self._means[rule.id, slice_id]
        if own.estimate is None:
            figure = _NOTHING
        elif self._case.analysis.sequential:
            figure = sequential.mean_figure(windows, rule.id, slice_id, self._levels)
        else:
            figure = _of(own)
        return self._gate(rule, figure, evidence_class, slice_id=slice_id, unknown=unknown)

    def _of_failures(self, windows: Sequence[DecisionSummary], evidence_class: EvidenceClass) -> GateResult:
        if self._case.analysis.sequential:
            figure = sequential.share_figure(windows, gates.FAILURE_RATE.id, self._levels)
        else:
            figure = _of(self._mean(self._failures, UNIT))
        return self._gate(gates.FAILURE_RATE, figure if self.side.known.any() else _NOTHING, evidence_class)

    def _of_share(
        self, rule: GateRule, windows: Sequence[DecisionSummary], evidence_class: EvidenceClass
    ) -> GateResult:
        figure = sequential.share_figure(windows, rule.id, self._levels)
        return gates.gate(rule, BEYOND, figure, self._levels.confidence, evidence_class)

    def _of_percentile(self, rule: GateRule, calls: Latencies, evidence_class: EvidenceClass) -> GateResult:
        found = p95_interval(calls, self._levels, self.resamples)
        bounds = found.bounds
        figure = Figure(bounds.estimate, bounds.low, bounds.high, found.lowest, found.highest, METHOD)
        return self._gate(rule, figure, evidence_class)

    def _of_capacity(self) -> tuple[GateResult, ...]:
        wanted, capacity = self._case.protocol.gates.service_capacity, self._case.capacity
        if not isinstance(wanted, CapacityGate) or capacity is None:
            return ()
        state, reason = capacity.state(wanted.minimum)
        actual = capacity.tokens_per_second
        return (gates.counted_gate(gates.CAPACITY, wanted.minimum, actual, state=state, reason=reason),)

    def _gate(
        self,
        rule: GateRule,
        figure: Figure,
        evidence_class: EvidenceClass,
        *,
        slice_id: str | None = None,
        unknown: str = "nothing-is-known",
    ) -> GateResult:
        bound = gates.bound_of(rule, self._case.protocol.gates)
        return gates.gate(
            rule, bound, figure, self._levels.confidence, evidence_class, slice_id=slice_id, unknown_reason=unknown
        )


_NOTHING = Figure(None, None, None, None, None, None)


def _of(found: Mean) -> Figure:
    return Figure(found.estimate, found.low, found.high, found.lowest, found.highest, found.method)


def _values(side: Side, name: Literal["ttft_ns", "e2e_ns"]) -> Floats:
    return side.ttft_ns if name == "ttft_ns" else side.e2e_ns
