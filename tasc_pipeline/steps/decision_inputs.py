"""What a decision study's window is decided on: its files, journal, scrapes and evidence, read and compared.

The steps; the first that does not hold names itself and nothing is assessed:

1. The analysis plan is the one that the collection plan names, is of this protocol, and was pinned before the study's first
   window began. ``paired-group-percentile-v1`` goes with envelope times: that is engine v2, and nothing else is.
2. The cost model is the one that protocol and plan name, by digest. A study without one has no costs.
3. The frozen policy is one of the study's; development takes all of them.
4. Evidence is that of the window's traces, produced until the assessment and the watermark, checked as of the
   assessment. What is not trusted, or came later, is counted with its reason and scores nothing.
5. Every execution is read once: its envelope is held against the protocol (``control.trace_checks``) and becomes columns,
   and nothing but columns and one small row per execution is kept of it.
6. Traces and evidence join (``control.joining``); duplicates, conflicts and orphans are refused, because a table from
   which rows were dropped is not the table that was collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import orjson

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.operations import AnalysisPlan
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import CostModeled, ExperimentProtocol
from tasc_collector.contracts.report import DecisionSources
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import DigestMismatch, InputError
from tasc_pipeline.control.decisions.building import CallBlocks, Calls, Row, priced, scored, units_of
from tasc_pipeline.control.decisions.capacity import Capacity, capacity_of
from tasc_pipeline.control.decisions.costs import CostRule
from tasc_pipeline.control.decisions.deciding import DecisionInputs
from tasc_pipeline.control.decisions.reporting import DecidedWindow
from tasc_pipeline.control.decisions.words import LATE, BesideManifest
from tasc_pipeline.control.engine_v2 import Table, joined_table, refuse_problems
from tasc_pipeline.control.engine_v2_dataset import Sources
from tasc_pipeline.control.joined_rows import Executions as EnvelopeColumns
from tasc_pipeline.control.observations import Observation, with_costs
from tasc_pipeline.control.record_columns import ExecutionBlocks, envelope_times_ms
from tasc_pipeline.control.stored import StoredTraces, Text
from tasc_pipeline.control.trace_checks import ProtocolTerms, check_traces
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.steps.analysis_pin import check_same_analysis
from tasc_pipeline.steps.approved import ApprovedPlan
from tasc_pipeline.steps.close import ClosedWindow
from tasc_pipeline.steps.collected import Executions
from tasc_pipeline.steps.conditions import conditions
from tasc_pipeline.steps.earlier import earlier_decisions
from tasc_pipeline.steps.evidence import CheckedEvidence, check_window_evidence
from tasc_pipeline.steps.metrics import read_scrapes
from tasc_pipeline.steps.observing import observation
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.rows import Execution

_PHASES: Mapping[str, Literal["development", "holdout", "window"]] = {
    "development": "development",
    "holdout": "holdout",
    "window": "window",
    "monitoring": "window",
}
_BLOCK = 2_000
"""Executions that are held as Python objects at a time."""
_NO_PRICE = "cost-model-without-profile"


@dataclass(frozen=True, slots=True)
class DecisionMaterial:
    """A decision study's closed window with everything read.

    Args:
        approved: study, declaration and plan.
        closed: link, manifest and executions.
        protocol: as it was read.
        analysis: the plan that selects the analysis.
        evidence: checked as of the assessment; only what was produced until the watermark.
        table: traces and evidence, joined.
        calls: every planned execution as columns, with its score.
        observations: the same as rows, for what is told of the executions themselves.
        phase: by the plan's purpose.
        as_of: instant of the assessment.
    """

    approved: ApprovedPlan
    closed: ClosedWindow
    protocol: Parsed[ExperimentProtocol]
    analysis: AnalysisPlan
    evidence: CheckedEvidence
    table: Table
    calls: Calls
    observations: list[Observation]
    phase: Literal["development", "holdout", "window"]
    as_of: str

    @property
    def engine_v2(self) -> bool:
        """Whether the plan selects the original's analysis."""
        return self.analysis.interval == "paired-group-percentile-v1"


def read_material(home: Home, approved: ApprovedPlan, closed: ClosedWindow, as_of: str) -> DecisionMaterial:
    """Read and compare what a window is decided on; see the steps of this module.

    Args:
        home: the state folder.
        approved: the window's plan with its study.
        closed: what was collected.
        as_of: instant of the assessment.

    Raises:
        InputError: a file is missing or breaks a rule, or rows must not be joined.
        DigestMismatch: a file is not the one that the plan names.
    """
    protocol = approved.study.protocol
    if protocol is None:
        raise InputError(
            "this is no decision study",
            where=approved.study.study.study_id,
            field="kind",
            way_out="a comparison needs neither scores nor an analysis plan",
        )
    analysis = _analysis(home, approved)
    watermark = approved.declaration.record.ingestion_watermark
    evidence = check_window_evidence(home, approved.window_key, as_of, until=watermark)
    terms = ProtocolTerms.of(protocol)
    read = read_executions(closed.collected.executions, terms, envelope=analysis.timing_source == "envelope")
    # the envelopes come from this project's own journal, whose MACs were checked while it was read
    table = joined_table(
        Sources(terms, read.traces, evidence.receipts, evidence.snapshot), read.columns, evidence.columns
    )
    refuse_problems(table.rows.problems)
    return DecisionMaterial(
        approved=approved,
        closed=closed,
        protocol=protocol,
        analysis=analysis,
        evidence=evidence,
        table=table,
        calls=scored(read.calls, table.rows),
        observations=read.observations,
        phase=_PHASES[approved.plan.record.purpose],
        as_of=as_of,
    )


def decision_inputs(home: Home, material: DecisionMaterial) -> DecisionInputs:
    """What our own analysis is a function of.

    Raises:
        DigestMismatch: the cost model is not the one that protocol and plan name.
        InputError: an earlier window of a sequential plan was not assessed.
    """
    approved, closed, analysis = material.approved, material.closed, material.analysis
    plan, protocol = approved.plan.record, material.protocol.record
    costs, cost_reason = cost_rules(approved)
    calls = priced(material.calls, costs)
    slices = sorted({*analysis.slice_gates, *protocol.critical_slices})
    policies = policies_of(material)
    return DecisionInputs(
        protocol=protocol,
        protocol_digest=plan.protocol_digest,
        analysis=analysis,
        analysis_digest=analysis.digest,
        window=decided_window(material),
        policies=policies,
        units=units_of(calls, costs, slices),
        observations=with_costs(material.observations, calls.cost_usd.tolist()),
        capacity=_capacity(home, approved),
        sources=DecisionSources(
            phase=material.phase,
            assessment_context_digest=material.evidence.context.context_digest,
            dataset_digest=material.table.dataset.digest,
            evaluator_set_digest=material.table.dataset.evaluator_set_digest,
            cost_model_digest=plan.cost_model_digest,
            window_manifest_digest=None if closed.manifest is None else closed.manifest.self_digest,
        ),
        as_of=material.as_of,
        cost_reason=cost_reason,
        rejected=rejected_evidence(material),
        beside_manifest=_beside_manifest(home, material),
        earlier=earlier_decisions(
            home,
            approved,
            policies[0].policy_digest if len(policies) == 1 else None,
            analysis.digest,
            complete=analysis.sequential,
        ),
        conditions=conditions(home, approved),
    )


def _beside_manifest(home: Home, material: DecisionMaterial) -> BesideManifest | None:
    """How the evidence is not the set that the window's manifest names: checked as of the watermark, as it was at the close."""
    manifest, found = material.closed.manifest, material.evidence
    if manifest is None or manifest.evaluator_set_digest == found.evaluator_set_digest:
        return None
    if material.as_of > manifest.ingestion_watermark:
        found = check_window_evidence(home, material.approved.window_key, manifest.ingestion_watermark)
        if manifest.evaluator_set_digest == found.evaluator_set_digest:
            return "another-instant"
    return "evidence-after-close"


def decided_window(material: DecisionMaterial) -> DecidedWindow:
    """Which window it is."""
    plan, declaration = material.approved.plan.record, material.approved.declaration.record
    return DecidedWindow(
        study_id=plan.study_id,
        window_key=material.approved.window_key,
        collected_as=material.approved.collected_as,
        declaration_digest=declaration.digest,
        plan_digest=plan.digest,
        policy_digest=plan.policy_digest,
        trace_set_digest=material.closed.collected.trace_set_digest,
        start=declaration.event_time_start_inclusive,
        watermark=declaration.ingestion_watermark,
    )


def policies_of(material: DecisionMaterial) -> list[PolicyBundle]:
    """What is ruled on: the frozen policy; in development every policy but the control.

    Raises:
        InputError: the plan's policy is not one of the study's.
    """
    study, digest = material.approved.study, material.approved.plan.record.policy_digest
    if material.phase == "development":
        return [policy for _, policy in sorted(study.policies.items()) if policy.kind != "expert-only"]
    if digest not in study.policies:
        raise InputError(
            "the frozen policy is not among the study's policies",
            where=material.approved.window_key,
            field="policyDigest",
            rule=digest,
            way_out="restore the study's folder policies/ from a backup",
        )
    return [study.policies[digest]]


def cost_rules(approved: ApprovedPlan) -> tuple[dict[str, CostRule], str | None]:
    """How every profile's calls are priced, and why they are not where they are not.

    Raises:
        DigestMismatch: the cost model is not the one that protocol and plan name.
    """
    study, plan = approved.study, approved.plan.record
    allocation = study.rules.cost_allocation
    named = allocation.model_digest if isinstance(allocation, CostModeled) else None
    model = None if study.cost_model is None else study.cost_model.record
    if model is None and named is None:
        return {}, "no-cost-model"
    if model is None or model.digest != named or plan.cost_model_digest != named:
        raise DigestMismatch(
            "the cost model is not the one that protocol and plan name",
            where=approved.window_key,
            field="costModelDigest",
            rule=f"protocol {named or 'none'}, plan {plan.cost_model_digest or 'none'}",
            way_out="restore the study's cost model; other prices are another study: tasc study fork",
        )
    rules = {
        item.profile_id: CostRule(item.price, plan.generation.maximum_output_tokens, plan.attempt_timeout_ms)
        for item in model.profiles
    }
    lacking = [target.profile_id for target in plan.targets if target.profile_id not in rules]
    return rules, _NO_PRICE if lacking else None


def _analysis(home: Home, approved: ApprovedPlan) -> AnalysisPlan:
    """Step 1."""
    study, plan = approved.study, approved.plan.record
    if study.analysis is None:
        raise InputError(
            "the study has no analysis plan",
            where=str(study.folder / "study.toml"),
            field="analysis_plan",
            rule="a decision is analysed as it was planned before its first window",
            way_out="make the decision study with: tasc study new --decision",
        )
    analysis = study.analysis.record
    for field, found, wanted in (
        ("analysisPlanDigest", analysis.digest, plan.analysis_plan_digest),
        ("protocolDigest", analysis.protocol_digest, plan.protocol_digest),
    ):
        if found != wanted:
            raise DigestMismatch(
                "the analysis plan is not the one that the collection plan names",
                where=approved.window_key,
                field=field,
                rule=f"{wanted or 'none'}",
                way_out="restore the study's analysis plan; another analysis is another study: tasc study fork",
            )
    first = min(
        item.starts_at for item in window_facts(home).values() if item.study_id == plan.study_id and item.starts_at
    )
    if analysis.pinned_at > first:
        raise InputError(
            f"the analysis plan was pinned after the study's first window began at {first}",
            where=approved.window_key,
            field="pinnedAt",
            rule="an analysis is chosen before anything is seen",
            way_out="make a new study; its windows are analysed as it says from the first one: tasc study fork",
        )
    if (analysis.interval, analysis.timing_source) == ("paired-group-percentile-v1", "timeline"):
        raise InputError(
            "paired-group-percentile-v1 goes with envelope times",
            where=approved.window_key,
            field="timingSource",
            rule="both together are engine v2, exactly the original's",
            way_out="choose studentized-cluster-bootstrap for timeline times, or envelope times, in a new study",
        )
    check_same_analysis(home, approved.ring, plan.study_id, approved.window_key, analysis.digest)
    return analysis


class _WindowTraces(StoredTraces):
    """The envelopes of a window's journal, parsed when they are asked for."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self._places: list[int] = []

    def take(self, place: int) -> None:
        """The execution at this place has an envelope."""
        self._places.append(place)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:  # Any: an index gives an envelope, a slice a list of them
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return _trace(self._executions[self._places[index]])

    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        return self._read(places)

    @cached_property
    def _read(self) -> Callable[[Sequence[int]], Sequence[Text]]:
        return self._executions.stored_envelopes(self._places)


@dataclass(frozen=True, slots=True)
class ReadExecutions:
    """What one pass over a window's executions leaves.

    Args:
        traces: the envelopes, in the order of ``columns``; parsed when they are asked for.
        columns: of the envelopes, for the join.
        calls: every planned execution, not scored yet.
        observations: the same as rows.
    """

    traces: StoredTraces
    columns: EnvelopeColumns
    calls: Calls
    observations: list[Observation]


def read_executions(executions: Executions, terms: ProtocolTerms, *, envelope: bool) -> ReadExecutions:
    """Read every execution once (step 5).

    Args:
        executions: of a closed window.
        terms: the protocol's.
        envelope: take times from envelopes instead of timelines.

    Raises:
        InputError: an envelope does not belong to the protocol.
    """
    traces, blocks, calls = _WindowTraces(executions), ExecutionBlocks(terms.protocol), CallBlocks()
    observations: list[Observation] = []
    numbered, tell = enumerate(executions), counted("reading executions for the decision", len(executions))
    while block := list(islice(numbered, _BLOCK)):
        accepted = [(place, item) for place, item in block if item.envelope is not None]
        for place, _ in accepted:
            traces.take(place)
        records = [_trace(item) for _, item in accepted]
        check_traces(records, terms, verified=True)
        blocks.add(records, [item.trace_digest or "" for _, item in accepted])
        rows = [_row(item, envelope=envelope) for _, item in block]
        calls.add(rows)
        observations += [row.observation for row in rows]
        tell(len(block))
    return ReadExecutions(traces, blocks.done(), calls.done(), observations)


def _trace(item: Execution) -> Parsed[TraceEnvelope]:
    assert item.envelope is not None and item.envelope_bytes is not None  # noqa: S101 - the caller took those that have one
    return Parsed(item.envelope, orjson.loads(item.envelope_bytes))


def _row(item: Execution, *, envelope: bool) -> Row:
    """A planned execution with times from the plan's source; its score comes from the join."""
    seen, trace = observation(item), item.envelope
    if envelope and trace is not None:
        ttft_ms, e2e_ms = envelope_times_ms(trace)
        seen = replace(seen, ttft_ms=ttft_ms, e2e_ms=e2e_ms, itl_p50_ms=None, itl_p95_ms=None, tpot_ms=None)
    return Row(
        observation=seen,
        slices=item.slices,
        route_signal=None if trace is None or trace.route_signal is None else trace.route_signal.value,
        started_ms=None if trace is None else float(timestamp_ms(trace.attempts[-1].observer_timings.started_at)),
        enveloped=trace is not None,
    )


def _capacity(home: Home, approved: ApprovedPlan) -> dict[str, Capacity]:
    scrapes = read_scrapes(home, approved.collected_as, approved.ring)
    return {target.profile_id: capacity_of(scrapes, target.endpoint_alias) for target in approved.plan.record.targets}


def rejected_evidence(material: DecisionMaterial) -> dict[str, int]:
    """Evidence that does not count, by its reason; before the watermark nothing is late yet."""
    joined = material.table.rows
    found = Counter(joined.reason_words[place] for place in joined.rejected[1].tolist())
    if material.evidence.later and material.as_of >= material.approved.declaration.record.ingestion_watermark:
        found[LATE] = material.evidence.later
    return dict(sorted(found.items()))
