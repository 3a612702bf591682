"""What an assessment says: ``tasc-assessment-report-v1``. A pure function of sealed inputs and ``as_of``.

A comparison has ``comparisons``; a decision has ``gates`` and ``decision``. Every figure that a sentence, a chart or
the table of the terminal shows is in here.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from tasc_collector.contracts.base import Model, Record, SparseModel
from tasc_collector.contracts.reasons import ReasonCount
from tasc_collector.contracts.rules import Omittable
from tasc_collector.contracts.scalars import Count, Digest, Finite, NonNegative, Ratio, Slug, Timestamp, WindowKey

Verdict = Literal["no-worse", "worse", "undecided"]
LatencyMetric = Literal["ttft", "itl", "tpot", "e2e"]
Statistic = Literal["median", "p95"]
EvidenceClass = Literal["measured", "reported", "modeled", "unavailable"]


class ExecutionCounts(Model):
    """Planned executions by state; ``planned`` equals the sum of the others."""

    planned: Count
    success: Count
    failure: Count
    sent_unknown: Count
    not_sent: Count
    not_attempted: Count
    reasons: tuple[ReasonCount, ...]
    """Of failures and of executions without an envelope."""


class LatencySummary(Model):
    """One latency of one profile over its successful executions, in milliseconds."""

    metric: LatencyMetric
    count: Count
    p50_ms: NonNegative | None
    p95_ms: NonNegative | None
    mean_ms: NonNegative | None


class ProfileSummary(Model):
    """What one profile did in the window."""

    profile_id: Slug
    role: Literal["champion", "candidate"]
    counts: ExecutionCounts
    latencies: tuple[LatencySummary, ...]
    input_tokens: Count | None
    output_tokens: Count | None
    cached_input_tokens: Count | None
    tokens_per_event: NonNegative | None
    cost_usd: NonNegative | None
    timing_flagged: Count


class Interval(Model):
    """A two-sided interval at ``confidence``; null bounds where the data cannot give one."""

    low: Finite | None
    high: Finite | None
    confidence: Ratio
    method: Slug


class RatioResult(Model):
    """Candidate over champion for one latency and statistic, paired by case and clustered by group."""

    metric: LatencyMetric
    statistic: Statistic
    estimate: NonNegative | None
    interval: Interval
    margin: NonNegative
    """The largest ratio that still counts as no worse."""
    verdict: Verdict
    deciding: bool
    """False for a figure that is shown but does not enter the verdict (ITL where TPOT replaces it)."""
    pairs: Count
    groups: Count
    noise_floor: NonNegative | None
    """Relative difference that the champion shows against its own replicates, null with fewer than two."""
    joint_low: NonNegative | None = None
    """Lower bound at a level shared among all deciding figures; beyond the margin, the candidate is worse."""
    set_aside: str | None = None
    """Why the figure does not decide, in words; null where it does."""


class FailureResult(SparseModel):
    """Paired difference of failure rates, candidate minus champion, with bounds for unknown and missing executions."""

    champion_rate: Ratio | None
    candidate_rate: Ratio | None
    difference: Finite | None
    interval: Interval
    worst_case: Finite | None
    best_case: Finite | None
    margin: Ratio
    verdict: Verdict
    pairs: Count
    groups: Count
    joint_low: Finite | None = None
    """Lower bound at a level shared among all deciding figures; beyond the margin, the candidate is worse."""
    noise_floor: Omittable[Ratio] = None
    """Difference that the champion shows against its own replicates, absent with fewer than two and in reports of engine 2."""

    omitted: ClassVar[frozenset[str]] = frozenset({"noiseFloor"})


class FairnessItem(Model):
    """One line of the fairness strip: the same quantity on both sides, and whether the imbalance is a warning."""

    item: Slug
    champion: Finite | None
    candidate: Finite | None
    unit: Slug
    imbalanced: bool


class WindowFigure(Model):
    """One log ratio of one window with its standard error: what a sequence over windows adds up."""

    metric: LatencyMetric
    statistic: Statistic
    log_ratio: Finite
    standard_error: NonNegative
    pairs: Count
    groups: Count


class DifferenceCount(Model):
    """How many case groups of a window have this paired difference of failure shares, from -1 to 1."""

    value: Finite
    count: Count


class WindowSummary(Model):
    """All that later windows need of this one; no execution and no case can be read from it."""

    window_key: WindowKey
    as_of: Timestamp
    figures: tuple[WindowFigure, ...]
    differences_best: tuple[DifferenceCount, ...]
    """Every execution without an answer that counts taken in the candidate's favour."""
    differences_worst: tuple[DifferenceCount, ...]
    """Every such execution taken against the candidate."""
    planned_pairs: Count
    champion_missing: Count
    """Executions of the champion without an answer that counts."""
    candidate_missing: Count


class DriftItem(Model):
    """Whether one figure differs between windows by more than their own errors explain (Cochran's Q)."""

    metric: LatencyMetric
    statistic: Statistic
    windows: Count
    q: NonNegative
    p_value: Ratio


class SequenceResult(Model):
    """The state of a confidence sequence over the windows of a recurring study, this window included."""

    windows: Count
    earlier_windows: tuple[WindowKey, ...]
    """The windows before this one, in the order of their closing."""
    alpha: Ratio
    """The error that the whole sequence may ever make, per figure."""
    spent: Ratio
    """The part of alpha that the looks taken so far have used, under equal information per window."""
    tuned_to_windows: Count
    """Number of windows at which the sequence is narrowest relative to a fixed interval."""
    drift: tuple[DriftItem, ...]
    mismatch_evidence: NonNegative
    """E-value against "both sides lose answers alike" (sample-ratio mismatch); 1000 or more is a warning."""


class ComparisonResult(Model):
    """The verdict on one candidate."""

    candidate_profile_id: Slug
    verdict: Verdict
    sentence: str
    ratios: tuple[RatioResult, ...]
    failures: FailureResult
    fairness: tuple[FairnessItem, ...]
    reasons: tuple[str, ...] = ()
    """Why the verdict is not more than it is, in words."""
    summary: WindowSummary | None = None
    sequence: SequenceResult | None = None
    """Null for a study that is not recurring."""


GateState = Literal["passed", "failed", "undecided", "unavailable"]
DecisionStatus = Literal["PASS", "HOLD", "INSUFFICIENT_EVIDENCE", "STALE", "NOMINATED", "NO_CANDIDATE"]


class GateResult(Model):
    """One gate of a decision."""

    id: Slug
    operator: Literal[">=", "<="]
    threshold: Finite
    actual: Finite | None
    interval: Interval | None
    evidence_class: EvidenceClass
    passed: bool
    reason: Slug | None
    state: GateState = "unavailable"
    """``passed`` where the whole interval is within the bound, ``failed`` where it is wholly beyond, else ``undecided``."""
    slice: Slug | None = None
    """The slice of a gate that is asked per slice."""
    unit: Slug = "share"
    worst: Finite | None = None
    """The figure with every execution that is not known taken against the policy; null where nothing bounds it."""
    best: Finite | None = None
    """The same in its favour."""


class DecisionFigure(Model):
    """A figure that is shown beside the gates and decides nothing."""

    id: Slug
    side: Literal["champion", "policy"]
    estimate: Finite | None
    interval: Interval | None
    unit: Slug
    evidence_class: EvidenceClass
    executions: Count
    """Executions that the estimate is made from."""


class DecisionEvidence(Model):
    """What the rows of champion and policy rest on; ``rows`` equals the sum of the others."""

    rows: Count
    scored: Count
    protocol_failures: Count
    """Failures of the protocol, which score 0."""
    abstained: Count
    missing: Count
    invalid: Count
    sent_unknown: Count
    not_sent: Count
    not_attempted: Count
    unrouted: Count
    """Rows that no route signal or no execution exists for."""


class WindowMean(Model):
    """One mean of one window for a sequence: both ends of what the unknown allows, and its standard error."""

    gate: Slug
    slice: Slug | None
    lowest: Finite
    highest: Finite
    standard_error: NonNegative


class WindowShares(Model):
    """One share of calls of one window for a sequence: case groups by their share, the unknown taken both ways."""

    gate: Slug
    lowest: tuple[DifferenceCount, ...]
    highest: tuple[DifferenceCount, ...]


class DecisionSummary(Model):
    """All that later windows need of this one; no execution and no case can be read from it."""

    window_key: WindowKey
    as_of: Timestamp
    """The window's watermark: it orders the windows of a sequence."""
    policy_digest: Digest
    analysis_plan_digest: Digest
    means: tuple[WindowMean, ...]
    shares: tuple[WindowShares, ...]
    champion_missing: Count
    policy_missing: Count


class DecisionDrift(Model):
    """Whether one figure differs between windows by more than their own errors explain (Cochran's Q)."""

    gate: Slug
    slice: Slug | None
    windows: Count
    q: NonNegative
    p_value: Ratio


class DecisionWindows(Model):
    """The windows up to this one: the sequence of a sequential plan, drift and sample-ratio mismatch of any."""

    windows: Count
    earlier_windows: tuple[WindowKey, ...]
    sequential: bool
    alpha: Ratio
    spent: Ratio
    """The part of alpha that the looks so far have used, under equal information; 0 where the plan is not sequential."""
    drift: tuple[DecisionDrift, ...]
    mismatch_evidence: NonNegative
    """E-value against "both sides lose answers alike" (sample-ratio mismatch); 1000 or more is a warning."""


class DecisionSources(Model):
    """Digests of what a decision was made from, beside those of the report."""

    phase: Literal["development", "holdout", "window"]
    assessment_context_digest: Digest
    dataset_digest: Digest
    evaluator_set_digest: Digest
    cost_model_digest: Digest | None
    window_manifest_digest: Digest | None


class PolicyResult(Model):
    """One policy of a development decision."""

    policy_digest: Digest
    status: Literal["PASS", "HOLD", "INSUFFICIENT_EVIDENCE", "STALE"]
    gates: tuple[GateResult, ...]


class DecisionResult(Model):
    """Status of a decision study's window."""

    status: DecisionStatus
    policy_digest: Digest
    gates: tuple[GateResult, ...]
    reasons: tuple[Slug, ...]
    sentence: str
    wait_until: Timestamp | None = None
    """Set where the decision is STALE because evidence may still arrive."""
    figures: tuple[DecisionFigure, ...] = ()
    evidence: DecisionEvidence | None = None
    fairness: tuple[FairnessItem, ...] = ()
    summary: DecisionSummary | None = None
    windows: DecisionWindows | None = None
    policies: tuple[PolicyResult, ...] = ()
    """Every policy of a development decision, sorted by digest; the gates above are those of ``policy_digest``."""
    sources: DecisionSources | None = None


class AssessmentReport(Record):
    """The result of one assessment."""

    domain: ClassVar[str] = "tasc/assessment-report/v1"

    version: Literal["tasc-assessment-report-v1"] = "tasc-assessment-report-v1"
    engine: Slug
    study_id: Slug
    study_kind: Literal["comparison", "decision"]
    window_key: WindowKey
    protocol_digest: Digest
    declaration_digest: Digest
    plan_digest: Digest
    trace_set_digest: Digest
    analysis_plan_digest: Digest | None
    as_of: Timestamp
    counts: ExecutionCounts
    coverage: Ratio | None
    profiles: tuple[ProfileSummary, ...]
    comparisons: tuple[ComparisonResult, ...]
    decision: DecisionResult | None
    warnings: tuple[str, ...]
    missing: tuple[str, ...]
    """What would have been shown but is not available, in words."""
