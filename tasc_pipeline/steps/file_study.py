"""A decision study from files alone: traces, evidence and records that were collected elsewhere, decided by engine v2.

The files lie in one folder under the names of ``FILES``; no state folder, key or journal is needed, and nothing is sent.

Procedure; the first step that does not hold names file, line, field and rule, and nothing is written:

1. Every file is read to its end, bounded and strict. A phase is there with all of its files or not at all; development is
   always there. ``work-budget.json`` bounds candidates, rows, draws and groups; the original's price of one assessment
   (``maxAssessmentWork``) is of its own loops and is not asked.
2. Every piece of evidence is checked against the operator's snapshot as of the phase's context. What is not trusted, not
   of the protocol's evaluator or older than its answer stays in the table with its reason and scores nothing, as in the
   original; how much of it there is, is told.
3. Every trace is checked: both signatures, the protocol, the split (``control.trace_checks``). Then both are joined.
4. Development is decided, then holdout and window for the policy that development nominated.
5. A controller's snapshot that lies beside must have recorded exactly this development decision; without one the chain is
   made from the protocol on. Holdout's decision is the next fact. A fact that the controller refuses, such as one after
   the protocol's expiry, does not move it: it stays as it is, and the rule is told. A manifest from elsewhere has no
   declaration that says that its window is decisive, so a window's decision moves no controller here.
6. The next experiment is proposed from the last decision, where there is a budget for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tasc_collector.contracts.base import Parsed, Record
from tasc_collector.contracts.cli_files import AssessmentWorkBudget
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.controller_facts import CollectionStarted, ControllerFact, ShadowAssessmentStarted
from tasc_collector.contracts.decision import AssessmentDecision, Phase
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import EvidenceChecker
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.policy import policy_space
from tasc_collector.contracts.proposal import ExperimentBudget, ExperimentHistory
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import DigestMismatch, InputError, SignatureError
from tasc_collector.wire.records import read_ndjson_records, read_record_file
from tasc_pipeline.control import engine_v2
from tasc_pipeline.control.controller import extend, refusal
from tasc_pipeline.control.controller_sources import (
    development_assessment,
    evidence_ready,
    holdout_assessment,
    registration,
)
from tasc_pipeline.control.decided import of_decision
from tasc_pipeline.control.engine_v2 import Table, table_of
from tasc_pipeline.control.engine_v2_dataset import Sources
from tasc_pipeline.control.proposals import Proposal, propose
from tasc_pipeline.control.trace_checks import ProtocolTerms, check_traces
from tasc_pipeline.home.files import make_folder, write_files

PROTOCOL, TRUST, MANIFEST = "protocol.json", "trust-snapshot.json", "window-manifest.json"
CONTROLLER, BUDGET, HISTORY = "controller-snapshot.json", "experiment-budget.json", "experiment-history.json"
WORK_BUDGET = "work-budget.json"
PREFIXES: Final[Mapping[Phase, str]] = {"development": "development", "holdout": "holdout", "window": "online"}
"""What the three files of a phase begin with."""
_PARTS: Final = ("traces.ndjson", "evidence.ndjson", "context.json")
FILES: Final = (PROTOCOL, TRUST, *(f"{prefix}-{part}" for prefix in PREFIXES.values() for part in _PARTS), MANIFEST)
_MOST_PLACES: Final = 4
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class PhaseFiles:
    """What was read of one phase.

    Args:
        traces: in order of their lines.
        evidence: likewise.
        context: clock and trust.
        names: of the files of traces and evidence.
    """

    traces: Sequence[Parsed[TraceEnvelope]]
    evidence: Sequence[Parsed[EvaluatorEvidence]]
    context: AssessmentContext
    names: tuple[str, str]

    def places(self, identifier: str) -> list[str]:
        """Where an id of a trace, case or group stands, as file and line; few of many."""
        found = [
            f"{self.names[0]} line {line}"
            for line, item in enumerate(self.traces, start=1)
            if identifier in (item.record.trace_id, item.record.case_id, item.record.group_id)
        ]
        found += [
            f"{self.names[1]} line {line}"
            for line, item in enumerate(self.evidence, start=1)
            if identifier == item.record.trace_id
        ]
        return found[:_MOST_PLACES]


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One decided phase.

    Args:
        decision: engine v2's.
        context: it was made under.
        watermark: evidence counts until then; the context's instant where there is no window.
        unscoring: pieces of evidence that score nothing, by the reason: their status, or what the join found.
    """

    decision: AssessmentDecision
    context: AssessmentContext
    watermark: str
    unscoring: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FileStudy:
    """What the files of a study give.

    Args:
        phases: decided phases, in order.
        controller: after the last fact that it took from the decisions.
        not_moved: the rule by which it refused the next fact; None where it took all.
        proposal: the next experiment; None where there is no budget for one.
        unjudged: phases whose files are there and that were not judged, because nothing was nominated.
    """

    phases: Mapping[Phase, PhaseResult]
    controller: ControllerSnapshot
    not_moved: str | None
    proposal: Proposal | None
    unjudged: tuple[Phase, ...]


def assess_files(folder: Path) -> FileStudy:
    """Decide a study from its files by the procedure of this module.

    Args:
        folder: with the names of ``FILES`` and, where they are known, controller, budgets and history.

    Raises:
        InputError: the first thing that is not right, with file, line, field and rule.
        DigestMismatch: a file names other content than there is.
        SignatureError: a signature is not the study's.
    """
    protocol = read_record_file(ExperimentProtocol, folder / PROTOCOL)
    snapshot = read_record_file(EvaluatorTrustSnapshot, folder / TRUST).record
    read = {phase: found for phase in PREFIXES if (found := _phase(folder, phase)) is not None}
    manifest = _optional(WindowManifest, folder / MANIFEST)
    if (manifest is None) == ("window" in read):
        raise _incomplete(folder, MANIFEST if manifest is None else f"{PREFIXES['window']}-{_PARTS[0]}")
    published, work = (
        _optional(ControllerSnapshot, folder / CONTROLLER),
        _optional(AssessmentWorkBudget, folder / WORK_BUDGET),
    )
    budget, history = _optional(ExperimentBudget, folder / BUDGET), _optional(ExperimentHistory, folder / HISTORY)
    terms = ProtocolTerms.of(protocol)
    if work is not None:
        _check_work(work, protocol.record, read)
    tables = {phase: _table(terms, files, snapshot) for phase, files in read.items()}
    results: dict[Phase, PhaseResult] = {}
    for phase, table in tables.items():
        nomination = results["development"].decision if results else None
        if nomination is not None and nomination.selected_policy is None:
            break
        with _located(read[phase]):
            results[phase] = _decided(phase, table, read[phase].context, nomination, manifest)
    decisions = [item.decision for item in results.values()]
    return FileStudy(
        results,
        *_controller(protocol.record, results, published),
        None
        if budget is None
        else propose(
            of_decision(decisions[-1]),
            history or ExperimentHistory.issue(registered_experiments=(), findings=()),
            budget,
        ),
        tuple(phase for phase in read if phase not in results),
    )


def write_results(study: FileStudy, folder: Path) -> tuple[Path, ...]:
    """Write every decision, the controller's snapshot and the proposal as canonical JSON; what is there must be the same.

    Raises:
        InputError: a file of that name holds something else; nothing is written then.
    """
    records: dict[str, Record] = {f"{phase}-decision.json": item.decision for phase, item in study.phases.items()}
    records[CONTROLLER] = study.controller
    if study.proposal is not None:
        records["experiment-proposal.json"] = study.proposal
    files = {folder / name: record.canonical() for name, record in records.items()}
    make_folder(folder)
    write_files(files)
    return tuple(files)


def _optional(kind: type[R], path: Path) -> R | None:
    return read_record_file(kind, path).record if path.exists() else None


def _phase(folder: Path, phase: Phase) -> PhaseFiles | None:
    names = [f"{PREFIXES[phase]}-{part}" for part in _PARTS]
    absent = [name for name in names if not (folder / name).exists()]
    if len(absent) == len(names) and phase != "development":
        return None
    if absent:
        raise _incomplete(folder, absent[0])
    traces, evidence, context = (folder / name for name in names)
    return PhaseFiles(
        list(read_ndjson_records(TraceEnvelope, traces)),
        list(read_ndjson_records(EvaluatorEvidence, evidence)),
        read_record_file(AssessmentContext, context).record,
        (traces.name, evidence.name),
    )


def _incomplete(folder: Path, name: str) -> InputError:
    return InputError(
        "a file is missing; nothing is decided",
        where=str(folder),
        field=name,
        rule=f"development, and every other phase with all of its files: {', '.join(FILES)}",
        way_out="add the file, or take the other files of its phase away",
    )


def _check_work(work: AssessmentWorkBudget, protocol: ExperimentProtocol, read: Mapping[Phase, PhaseFiles]) -> None:
    groups = {phase: {trace.record.group_id for trace in files.traces} for phase, files in read.items()}
    for field, needed, most in (
        ("maxCandidates", len(policy_space(protocol, protocol.created_at)), work.max_candidates),
        ("maxTraceRows", max(len(files.traces) for files in read.values()), work.max_trace_rows),
        ("maxEvidenceRows", max(len(files.evidence) for files in read.values()), work.max_evidence_rows),
        ("maxBootstrapDraws", protocol.bootstrap.iterations, work.max_bootstrap_draws),
        ("maxIndependentGroups", max(map(len, groups.values())), work.max_independent_groups),
    ):
        if needed > most:
            raise InputError(
                f"the assessment needs {needed}; the budget allows {most}",
                where=WORK_BUDGET,
                field=field,
                rule="an assessment stays within its caller's work budget",
                way_out="raise the budget, or take the file away",
            )


def _table(terms: ProtocolTerms, files: PhaseFiles, snapshot: EvaluatorTrustSnapshot) -> Table:
    for line, trace in enumerate(files.traces, start=1):
        with _located(files, f"{files.names[0]} line {line}"):
            check_traces((trace,), terms)
    checker = EvidenceChecker(snapshot, files.context)
    receipts = [checker.check(item) for item in files.evidence]
    with _located(files):
        return table_of(Sources(terms, files.traces, receipts, snapshot), verified=True)


@contextmanager
def _located(files: PhaseFiles, place: str | None = None) -> Iterator[None]:
    """Say file and line in a refusal that names traces, cases or groups.

    Args:
        files: of the phase.
        place: file and line, where it is known.
    """
    try:
        yield
    except (InputError, SignatureError) as error:
        known = (error.where or "").split(", ")
        lines = [place] if place else list(dict.fromkeys(line for name in known for line in files.places(name)))
        if not lines:
            raise
        raise type(error)(
            f"{error.what}{f' [{error.where}]' if error.where else ''}",
            where=", ".join(lines),
            field=error.field,
            rule=error.rule,
            way_out=error.way_out,
        ) from None


def _decided(
    phase: Phase,
    table: Table,
    context: AssessmentContext,
    nomination: AssessmentDecision | None,
    manifest: WindowManifest | None,
) -> PhaseResult:
    watermark = context.as_of
    if nomination is None or nomination.selected_policy is None:
        decision = engine_v2.assess_development(table, context)
    elif phase == "holdout" or manifest is None:
        decision = engine_v2.assess_holdout(table, context, nomination)
    else:
        watermark = max(manifest.event_time_end_exclusive, manifest.ingestion_watermark)
        decision = engine_v2.assess_window(table, context, nomination.selected_policy, manifest)
    return PhaseResult(decision, context, watermark, unscoring(table))


def unscoring(table: Table) -> dict[str, int]:
    """Pieces of evidence that score nothing, by the reason: their status, or what the join found."""
    reasons = (table.rows.reason_words[place] for place in table.rows.rejected[1].tolist())
    return dict(sorted(Counter(reason.removeprefix("verification-") for reason in reasons).items()))


def _controller(
    protocol: ExperimentProtocol, results: Mapping[Phase, PhaseResult], published: ControllerSnapshot | None
) -> tuple[ControllerSnapshot, str | None]:
    """Step 5: the snapshot, and the rule that kept it from moving on."""
    development = results["development"]
    if published is None:
        snapshot, rule = _from_protocol(protocol, development)
    else:
        snapshot, rule = published, None
        _check_recorded(published, development.decision)
    held = {item.decision_digest for item in snapshot.assessments}
    if rule is None and "holdout" in results and results["holdout"].decision.decision_digest not in held:
        holdout = results["holdout"]
        return _extended(snapshot, [(holdout_assessment(of_decision(holdout.decision)), holdout.context.as_of)])
    return snapshot, rule


def _check_recorded(published: ControllerSnapshot, development: AssessmentDecision) -> None:
    recorded = [item.decision_digest for item in published.assessments if item.phase == "development"]
    if recorded != [development.decision_digest]:
        raise DigestMismatch(
            "the controller recorded another development decision than these files give",
            where=CONTROLLER,
            field="assessments.decisionDigest",
            rule=development.decision_digest,
            way_out="give the sources that it was made from, or take the snapshot away",
        )


def _from_protocol(protocol: ExperimentProtocol, development: PhaseResult) -> tuple[ControllerSnapshot, str | None]:
    decided, as_of = of_decision(development.decision), development.context.as_of
    snapshot = ControllerSnapshot.genesis(
        controller_id=f"{protocol.study_id}-files",
        study_id=protocol.study_id,
        protocol_digest=protocol.digest,
        created_at=protocol.created_at,
        expires_at=protocol.expires_at,
    )
    facts: list[tuple[ControllerFact, str]] = [
        (registration(protocol), protocol.created_at),
        (CollectionStarted(collection_id=f"{protocol.study_id}-files"), protocol.created_at),
        (evidence_ready(decided), as_of),
        (development_assessment(decided), as_of),
    ]
    if decided.status == "NOMINATED" and decided.selected_policy is not None:
        facts.append((ShadowAssessmentStarted(frozen_policy_digest=decided.selected_policy.policy_digest), as_of))
    return _extended(snapshot, facts)


def _extended(
    snapshot: ControllerSnapshot, facts: Sequence[tuple[ControllerFact, str]]
) -> tuple[ControllerSnapshot, str | None]:
    """The snapshot after the facts up to the first that is refused, and the rule that refused it."""
    for fact, at in facts:
        rule = refusal(snapshot, fact, at)
        if rule is not None:
            return snapshot, rule
        snapshot = extend(snapshot, fact, at).snapshot
    return snapshot, None
