"""The columns of a joined table: what goes in, what comes out. Pure; one numpy entry per row.

``joining`` has the rules by which executions and evidence become ``JoinedRows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_pipeline.control.identifiers import Codes, Flags, Ids
from tasc_pipeline.control.pairing import Floats

Small: TypeAlias = npt.NDArray[np.int8]
SPLITS: Final = ("dev", "holdout", "online")
STATUSES: Final = tuple(EvidenceStatus)


class State(IntEnum):
    """What became of an execution."""

    SUCCESS = 0
    FAILURE = 1
    """Known not to be a success: a failed or aborted last attempt."""
    AMBIGUOUS = 2
    """An attempt is ``sent_unknown`` or its abort is ambiguous."""


class Outcome(IntEnum):
    """What an execution counts as (rule 6)."""

    SCORED = 0
    FAILURE_ZERO = 1
    AMBIGUOUS = 2
    ABSTAINED = 3
    MISSING = 4
    INVALID = 5


class Backing(IntEnum):
    """Evidence class of a value; a greater one is weaker, and the weakest wins."""

    MEASURED = 0
    REPORTED = 1
    MODELED = 2
    UNAVAILABLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Executions:
    """One row per envelope, in any order.

    Args:
        profile_ids: the study's profiles, sorted; ``profile`` is the place in it.
        slice_ids: all slices, sorted; the columns of ``slices``.
        case_id: case.
        replicate_id: id of the repetition; the same for all profiles.
        group_id: group of cases that are not independent of each other.
        profile: place in ``profile_ids``.
        trace_id: id of the execution.
        trace_digest: digest of the envelope, hex.
        key: what the table of engine v2 calls the execution, hex (``execution_keys``); nothing is joined by it.
        output_id: terminal output as ``<key id>:<hex>``; empty where there is none.
        split: place in ``SPLITS``.
        state: ``State``.
        succeeded: the last attempt is a success; also true of an ambiguous execution that was answered in the end.
        weight: the case's declared traffic weight, positive.
        workload: anything that is equal exactly where the workload is (the engine uses its canonical form's digest).
        signal_key: the same of the whole route signal.
        policy: policy that the execution was collected under.
        window: window id and membership digest.
        slices: ``(rows, len(slice_ids))``.
        signal: route signal's value, NaN where none was observed.
        ttft_ms: first attempt's start to the first token of the answer, NaN where there was none.
        e2e_ms: first attempt's start to the end of the last.
        cost_usd: sum over attempts, NaN where one is not known.
        cost_class: ``Backing`` of the cost.
        completed_ms: end of the last attempt, milliseconds since 1970.
    """

    profile_ids: tuple[str, ...]
    slice_ids: tuple[str, ...]
    case_id: Ids
    replicate_id: Ids
    group_id: Ids
    profile: Codes
    trace_id: Ids
    trace_digest: Ids
    key: Ids
    output_id: Ids
    split: Small
    state: Small
    succeeded: Flags
    weight: Floats
    workload: Ids
    signal_key: Ids
    policy: Ids
    window: Ids
    slices: Flags
    signal: Floats
    ttft_ms: Floats
    e2e_ms: Floats
    cost_usd: Floats
    cost_class: Small
    completed_ms: Codes

    def __len__(self) -> int:
        return len(self.case_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One row per piece of evaluator evidence, in any order; all of it was checked against the operator's snapshot.

    Args:
        reason_words: words that ``declared`` points into.
        digest: digest of the evidence, hex.
        source_digest: digest of what the check found of it (``EvidenceReceipt.source_digest``), hex.
        check: a number that is equal where status, key and context of the check are equal.
        trace_id: execution it is about.
        profile_id: that execution's profile.
        output_id: terminal output it scored, as ``Executions.output_id``.
        case_id: case.
        replicate_id: replicate.
        split: place in ``SPLITS``.
        status: place in ``STATUSES``.
        key_pinned: the protocol names the key.
        terms_match: study, protocol, evaluator, rubric, calibration and producer are the protocol's.
        context: number of the assessment context it was checked under; more than one is drift.
        outcome: ``SCORED``, ``ABSTAINED``, ``MISSING`` or ``INVALID`` as the evaluator declared.
        declared: place in ``reason_words`` of the evaluator's reason; -1 for a score.
        score: 0 to 1; NaN unless scored.
        produced_ms: when it was produced, milliseconds since 1970.
    """

    reason_words: tuple[str, ...]
    digest: Ids
    source_digest: Ids
    check: Codes
    trace_id: Ids
    profile_id: Ids
    output_id: Ids
    case_id: Ids
    replicate_id: Ids
    split: Small
    status: Small
    key_pinned: Flags
    terms_match: Flags
    context: Codes
    outcome: Small
    declared: Codes
    score: Floats
    produced_ms: Codes

    def __len__(self) -> int:
        return len(self.digest)


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of thing that must not be in a table, how often it is, and the first places.

    Args:
        kind: such as ``conflicting-evidence``.
        reason: the rule that found it.
        count: how many traces or pieces of evidence.
        examples: at most three trace ids.
        rows: places concerned, among the executions or the evidence that were given.
    """

    kind: str
    reason: str
    count: int
    examples: tuple[str, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRows:
    """The joined table: one row per execution that was kept, sorted by case, replicate and profile.

    Args:
        executions: the kept rows, in that order; see ``Executions`` for its columns.
        case: place of the row's case in ``case_ids`` (sorted).
        replicate: place in ``replicate_ids``.
        group: place in ``group_ids``.
        unit: number of the row's (case, replicate), 0 to ``units`` - 1 in sorted order: what pairs profiles.
        unit_rows: ``(units, profiles)``: the row of each profile, or -1 where it is missing.
        outcome: ``Outcome``.
        score: 0 to 1; NaN where the outcome has none.
        reason: place in ``reason_words``; 0 is no reason.
        evidence: row of ``Evidence`` that gave the outcome, or -1.
        accepted: the outcome comes from evidence that was accepted (a score, or a declared lack of one).
        source: place of the row among the executions that were given.
        rejected: rejected evidence as (row of ``Evidence``, place in ``reason_words``).
        joined: accepted evidence as (row of ``Evidence``, joined row), also where the execution is ambiguous.
        problems: what an engine must refuse.
    """

    executions: Executions
    case_ids: Ids
    replicate_ids: Ids
    group_ids: Ids
    case: Codes
    replicate: Codes
    group: Codes
    unit: Codes
    unit_rows: Codes
    outcome: Small
    score: Floats
    reason_words: tuple[str, ...]
    reason: Codes
    evidence: Codes
    accepted: Flags
    source: Codes
    rejected: tuple[Codes, Codes]
    joined: tuple[Codes, Codes]
    problems: tuple[Problem, ...]

    def __len__(self) -> int:
        return len(self.case)

    @property
    def units(self) -> int:
        """Number of (case, replicate) pairs."""
        return len(self.unit_rows)

    def place(self, profile_id: str) -> int:
        """Column of a profile in ``unit_rows``."""
        return self.executions.profile_ids.index(profile_id)
