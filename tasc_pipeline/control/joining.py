"""Executions and evaluator evidence become one table of rows: the join of the original project, section 6.1. Pure.

Every column is a numpy array with one entry per row; what a column means is said at its field. Nothing here checks a
signature: ``Evidence.status`` says what the check found (``contracts.evidence_trust``), and ``trace_checks`` has looked
at every envelope before.

Rules, in this order:

1. *Traces.* The same envelope twice is a duplicate and kept once. One trace id with two contents, or two executions of
   one case, replicate and profile, is a conflict: all of them are dropped.
2. *Shared facts.* A group is in one split. All executions of a case share group, split, traffic weight, workload,
   slices, route signal, policy and window. Anything else raises: no table is made.
3. *Evidence* is rejected where it is not trusted, its key is not pinned by the protocol, its evaluator is not the
   protocol's, or it was checked under more than one context. The first that applies is the reason.
4. The same evidence twice is a duplicate and kept once. Two different pieces for one join key (trace, profile, terminal
   output) are a conflict: all of them are dropped.
5. Evidence joins the execution of its key. Without one it is an *orphan*: ``evidence-for-failed-execution``,
   ``terminal-output-mismatch`` (an output that this execution never gave) or ``no-matching-trace``. With another case,
   replicate or split it is a conflict. Produced before the execution ended, it is rejected.
6. *Outcome of an execution.* Not known what became of it: ``AMBIGUOUS``, no score. Not a success: ``FAILURE_ZERO``, score
   0. A success has the evidence's score, or is ``ABSTAINED``, ``MISSING`` or ``INVALID``.

Orphans, duplicates and conflicts are in ``JoinedRows.problems``: an engine refuses them, because a table from which rows
were dropped is not the table that was collected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_collector.errors import InputError
from tasc_pipeline.control.identifiers import (
    Codes,
    Flags,
    Ids,
    at,
    codes_of,
    equal_rows,
    first_rows,
    matched,
    ordered,
    ranked,
    texts,
)
from tasc_pipeline.control.joined_rows import STATUSES, Evidence, Executions, JoinedRows, Outcome, Problem, Small, State
from tasc_pipeline.control.pairing import Floats

DUPLICATE_TRACES, CONFLICTING_TRACES = "duplicate-traces", "conflicting-traces"
DUPLICATE_EVIDENCE, CONFLICTING_EVIDENCE = "duplicate-evaluator-evidence", "conflicting-evaluator-evidence"
ORPHAN_EVIDENCE = "orphan-evaluator-evidence"

WITHOUT_EVIDENCE: Final = "successful-execution-without-trusted-evidence"
CONFLICTING: Final = "conflicting-evidence"
PREDATES: Final = "evaluator-evidence-predates-terminal-completion"
NOT_PINNED: Final = "evaluator-key-not-pinned-by-protocol"
OTHER_TERMS: Final = "evaluator-or-rubric-or-calibration-or-producer-drift"
CONTEXT_DRIFT: Final = "verification-context-drift"
AMBIGUOUS_DISPATCH: Final = "dispatch-outcome-ambiguous"
_REASONS: Final = (
    "",
    WITHOUT_EVIDENCE,
    CONFLICTING,
    AMBIGUOUS_DISPATCH,
    PREDATES,
    NOT_PINNED,
    OTHER_TERMS,
    CONTEXT_DRIFT,
    *(f"verification-{status.value}" for status in STATUSES),
)
_REASON: Final = {word: place for place, word in enumerate(_REASONS)}


def join(executions: Executions, evidence: Evidence) -> JoinedRows:
    """Join by the rules of this module.

    Raises:
        InputError: executions that must share a fact do not (rule 2); names the fact and the first case.
    """
    problems: list[Problem] = []
    order, case, case_ids, replicate, replicate_ids = _order(executions, _kept_traces(executions, problems), problems)
    rows = taken(executions, order)
    group, group_ids = ranked(rows.group_id)
    _check_shared(rows, case, group, case_ids, group_ids)
    new = (
        np.append(True, (case[1:] != case[:-1]) | (replicate[1:] != replicate[:-1]))
        if len(order)
        else np.zeros(0, bool)
    )
    unit = np.cumsum(new) - 1
    unit_rows = np.full((int(np.count_nonzero(new)), len(rows.profile_ids)), -1, dtype=np.int64)
    unit_rows[unit, rows.profile] = np.arange(len(order))
    found = _Found(rows, evidence)
    found.join()
    return JoinedRows(
        executions=rows,
        case_ids=case_ids,
        replicate_ids=replicate_ids,
        group_ids=group_ids,
        case=case,
        replicate=replicate,
        group=group,
        unit=unit,
        unit_rows=unit_rows,
        outcome=found.outcome,
        score=found.score,
        reason_words=(*_REASONS, *evidence.reason_words),
        reason=found.reason,
        evidence=found.evidence_row,
        accepted=found.accepted,
        source=order,
        rejected=(np.flatnonzero(found.rejected), found.rejected[found.rejected > 0]),
        joined=found.joined,
        problems=(*problems, *found.problems),
    )


def taken(executions: Executions, rows: Codes) -> Executions:
    """The executions at these places, in this order."""
    columns: dict[str, Any] = {  # Any: replaces whichever columns there are
        name: at(value, rows)
        for name in executions.__dataclass_fields__
        if isinstance(value := getattr(executions, name), np.ndarray)
    }
    return replace(executions, **columns)


def problem(kind: str, reason: str, trace_ids: Ids, rows: Codes) -> Problem:
    """A problem with its count and first examples, in order of their ids.

    Args:
        kind: what it is.
        reason: the rule that found it.
        trace_ids: of all executions, or of all evidence.
        rows: the places concerned.
    """
    distinct = np.unique(trace_ids[rows])
    return Problem(kind, reason, len(distinct), tuple(texts(distinct[:3])), tuple(rows.tolist()))


def _kept_traces(executions: Executions, problems: list[Problem]) -> Codes:
    """Places of the executions whose trace id has one content; notes what rule 1 finds."""
    kept = np.arange(len(executions))
    traces, count = codes_of(executions.trace_id)
    if count < len(kept):
        contents, _ = codes_of(executions.trace_id, executions.trace_digest)
        first = first_rows(traces, count)
        different = np.zeros(count, dtype=bool)
        different[traces[contents != contents[first][traces]]] = True
        repeated = (np.bincount(traces, minlength=count) > 1) & ~different
        if np.any(repeated):
            problems.append(problem(DUPLICATE_TRACES, "same-envelope-twice", executions.trace_id, first[repeated]))
        if np.any(different):
            clashing = np.flatnonzero(different[traces])
            problems.append(problem(CONFLICTING_TRACES, "trace-id-lineage-conflict", executions.trace_id, clashing))
        kept = np.sort(first[~different])
    return kept


def _order(executions: Executions, kept: Codes, problems: list[Problem]) -> tuple[Codes, Codes, Ids, Codes, Ids]:
    """Kept places sorted by case, replicate and profile, with the sorted ids and their places.

    Two executions of one case, replicate and profile are left out and noted (rule 1).
    """
    case, case_ids = ranked(executions.case_id[kept])
    replicate, replicate_ids = ranked(executions.replicate_id[kept])
    unit = case * max(len(replicate_ids), 1) + replicate
    logical = unit * len(executions.profile_ids) + executions.profile[kept]
    order = ordered(logical)
    in_order = logical[order]
    twice = np.flatnonzero(in_order[1:] == in_order[:-1])
    if len(twice):
        alone = ~np.isin(logical, in_order[twice])
        reason = "multiple-profile-executions-for-case-replicate"
        problems.append(problem(CONFLICTING_TRACES, reason, executions.trace_id, kept[~alone]))
        return _order(executions, kept[alone], problems)
    return kept[order], case[order], case_ids, replicate[order], replicate_ids


def _check_shared(rows: Executions, case: Codes, group: Codes, case_ids: Ids, group_ids: Ids) -> None:
    """Rule 2; ``rows`` are sorted by case."""
    if not len(case):
        return
    splits = rows.split[first_rows(group, len(group_ids))][group]
    if np.any(rows.split != splits):
        _refuse_group(rows, group, group_ids)
    baseline = first_rows(case, len(case_ids))[case]
    for what, column in (
        ("group", group),
        ("split", rows.split),
        ("traffic weight", rows.weight),
        ("workload", rows.workload),
        ("policy", rows.policy),
        ("window", rows.window),
        ("route signal", rows.signal_key),
    ):
        _same(column != column[baseline], what, case, case_ids)
    _same(np.any(rows.slices != rows.slices[baseline], axis=1), "slices", case, case_ids)


def _refuse_group(rows: Executions, group: Codes, group_ids: Ids) -> None:
    splits = rows.split[first_rows(group, len(group_ids))][group]
    name = texts(group_ids[group[rows.split != splits]][:1])[0]
    raise InputError(
        "a case group is in more than one split",
        where=name,
        field="split",
        rule="a group's cases are all for development, all held out, or all online",
        way_out="take the group out of one of the files; scores of one split must not be known to the other",
    )


def _same(differs: Flags, what: str, case: Codes, case_ids: Ids) -> None:
    if np.any(differs):
        raise InputError(
            f"executions of one case differ in {what}",
            where=texts(case_ids[case[differs]][:1])[0],
            field=what,
            rule="profiles and replicates of a case share group, split, weight, workload, slices, signal, policy and window",
            way_out="leave the case out, or collect it again",
        )


class _Found:
    """Rules 3 to 6: what evidence says about each row. Filled by ``join``."""

    def __init__(self, rows: Executions, evidence: Evidence) -> None:
        count = len(rows)
        self._rows, self._evidence = rows, evidence
        self.outcome: Small = np.full(count, Outcome.MISSING, dtype=np.int8)
        self.score: Floats = np.full(count, np.nan)
        self.reason: Codes = np.full(count, _REASON[WITHOUT_EVIDENCE], dtype=np.int64)
        self.evidence_row: Codes = np.full(count, -1, dtype=np.int64)
        self.accepted: Flags = np.zeros(count, dtype=bool)
        self.rejected: Codes = self._rejections()
        self.problems: list[Problem] = []
        self.joined: tuple[Codes, Codes] = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        self._clashing: Flags = np.zeros(count, dtype=bool)

    def join(self) -> None:
        """Fill every column."""
        rows, evidence = self._rows, self._evidence
        profiles = at(np.array([name.encode("ascii") for name in rows.profile_ids]), rows.profile)
        keys = [evidence.trace_id, evidence.profile_id, evidence.output_id]
        target = matched(keys, [rows.trace_id, profiles, rows.output_id])
        lineage = self._lineage(target)
        accepted = self._unique(target, keys)
        orphans = accepted[target[accepted] < 0]
        self._orphans(orphans, profiles)
        accepted = accepted[target[accepted] >= 0]
        strangers = accepted[~lineage[accepted]]
        if len(strangers):
            self._clashing[target[strangers]] = True
            self._note(CONFLICTING_EVIDENCE, "trace-evidence-lineage-conflict", strangers)
        accepted = accepted[lineage[accepted]]
        early = evidence.produced_ms[accepted] < rows.completed_ms[target[accepted]]
        self._reject_rows(target, lineage, accepted[early])
        self.joined = (accepted[~early], target[accepted[~early]])
        self._outcomes(*self.joined)

    def _rejections(self) -> Codes:
        """Rule 3: place of the reason per piece of evidence; 0 is not rejected."""
        evidence, trusted = self._evidence, STATUSES.index(EvidenceStatus.TRUSTED)
        base = _REASON[f"verification-{STATUSES[0].value}"]
        found = np.select(
            [evidence.status != trusted, ~evidence.key_pinned, ~evidence.terms_match],
            [base + evidence.status.astype(np.int64), _REASON[NOT_PINNED], _REASON[OTHER_TERMS]],
            0,
        )
        if len(evidence) and np.any(evidence.context != evidence.context[0]):
            found[found == 0] = _REASON[CONTEXT_DRIFT]
        return found

    def _lineage(self, target: Codes) -> Flags:
        rows, evidence = self._rows, self._evidence
        if not len(rows):
            return np.zeros(len(target), dtype=bool)
        found: Flags = (
            (target >= 0)
            & equal_rows(at(rows.case_id, target), evidence.case_id)
            & equal_rows(at(rows.replicate_id, target), evidence.replicate_id)
            & (rows.split[target] == evidence.split)
        )
        return found

    def _unique(self, target: Codes, keys: list[Ids]) -> Codes:
        """Rule 4: rows of evidence that are left, in order of their digests."""
        evidence = self._evidence
        left = np.flatnonzero(self.rejected == 0)
        codes, count = codes_of(at(evidence.digest, left))
        if count < len(left):
            repeated = np.bincount(codes, minlength=count) > 1
            firsts = left[first_rows(codes, count)]
            self._note(DUPLICATE_EVIDENCE, "same-evidence-twice", firsts[repeated])
            left = np.sort(firsts)
        clashing = left[self._repeated(left, target[left], keys)]
        if len(clashing):
            self._clashing[target[clashing][target[clashing] >= 0]] = True
            self._note(CONFLICTING_EVIDENCE, "multiple-distinct-evidence-rows-for-join-key", clashing)
            left = np.setdiff1d(left, clashing, assume_unique=True)
        return left

    def _repeated(self, rows: Codes, target: Codes, keys: list[Ids]) -> Flags:
        """Which of these rows of evidence share their join key with another: one target, or one key without."""
        known = target >= 0
        times = np.bincount(target[known], minlength=1)
        found = np.zeros(len(target), dtype=bool)
        found[known] = times[target[known]] > 1
        unknown = np.flatnonzero(~known)
        codes, count = codes_of(*(at(column, rows[unknown]) for column in keys))
        found[unknown] = np.bincount(codes, minlength=count)[codes] > 1
        return found

    def _orphans(self, orphans: Codes, profiles: Ids) -> None:
        """Rule 5: why evidence has no execution."""
        if not len(orphans):
            return
        rows, evidence = self._rows, self._evidence
        partial = matched([evidence.trace_id[orphans], evidence.profile_id[orphans]], [rows.trace_id, profiles])
        known = partial >= 0
        failed = known & ~rows.succeeded[np.maximum(partial, 0)] if len(rows) else known
        for reason, concerned in (
            ("evidence-for-failed-execution", failed),
            ("terminal-output-mismatch", known & ~failed),
            ("no-matching-trace", ~known),
        ):
            if np.any(concerned):
                self._note(ORPHAN_EVIDENCE, reason, orphans[concerned])

    def _note(self, kind: str, reason: str, evidence_rows: Codes) -> None:
        self.problems.append(problem(kind, reason, self._evidence.trace_id, evidence_rows))

    def _reject_rows(self, target: Codes, lineage: Flags, early: Codes) -> None:
        """Rejected evidence makes its execution invalid: the first by digest and reason, but predating evidence last."""
        evidence = self._evidence
        rejected = np.flatnonzero((self.rejected > 0) & lineage)
        words = np.array([word.encode("ascii") for word in _REASONS])[self.rejected[rejected]]
        digest_rank, _ = ranked(evidence.digest[rejected])
        reason_rank, _ = ranked(words)
        for item in (rejected[np.lexsort((reason_rank, digest_rank))[::-1]], early):
            # of several for one row numpy keeps the last assignment, so the first by order is written last
            self.evidence_row[target[item]] = item
        self.rejected[early] = _REASON[PREDATES]
        concerned = np.flatnonzero(self.evidence_row >= 0)
        self.outcome[concerned] = Outcome.INVALID
        self.reason[concerned] = self.rejected[self.evidence_row[concerned]]

    def _outcomes(self, accepted: Codes, places: Codes) -> None:
        """Rule 6."""
        rows, evidence = self._rows, self._evidence
        clashing = self._clashing & (self.evidence_row < 0)
        self.outcome[clashing], self.reason[clashing] = Outcome.INVALID, _REASON[CONFLICTING]
        self.outcome[places] = evidence.outcome[accepted]
        self.score[places] = evidence.score[accepted]
        self.reason[places] = np.where(evidence.declared[accepted] < 0, 0, len(_REASONS) + evidence.declared[accepted])
        self.evidence_row[places] = accepted
        self.accepted[places] = True
        for outcome, concerned, score, reason in (
            (Outcome.FAILURE_ZERO, ~rows.succeeded, 0.0, 0),
            (Outcome.AMBIGUOUS, rows.state == State.AMBIGUOUS, np.nan, _REASON[AMBIGUOUS_DISPATCH]),
        ):
            self.outcome[concerned], self.score[concerned], self.reason[concerned] = outcome, score, reason
            self.evidence_row[concerned], self.accepted[concerned] = -1, False
