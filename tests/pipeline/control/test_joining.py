from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_collector.contracts.policy import control_policy, policy_space
from tasc_collector.errors import InputError
from tasc_pipeline.control.identifiers import constant, id_column, texts
from tasc_pipeline.control.joined_rows import STATUSES, Backing, Evidence, Executions, JoinedRows, Outcome, State
from tasc_pipeline.control.joining import join
from tasc_pipeline.control.replay import replay
from tests.support.engine_v2_world import AS_OF, PROTOCOL

PROFILES = ("candidate", "champion")
DECLARED = {
    "scored": Outcome.SCORED,
    "abstained": Outcome.ABSTAINED,
    "missing": Outcome.MISSING,
    "invalid": Outcome.INVALID,
}


@dataclass(frozen=True)
class Ran:
    """One execution."""

    case: str
    replicate: str
    profile: str
    state: str = "success"
    content: int = 0
    signal: float | None = 0.9
    ttft: float | None = 10.0
    e2e: float = 100.0
    cost: float | None = 0.5
    weight: float = 1.0
    group: str = "group-0"

    @property
    def trace_id(self) -> str:
        return f"trace-{self.case}-{self.replicate}-{self.profile}"

    @property
    def succeeded(self) -> bool:
        return self.state in ("success", "ambiguous-success")

    @property
    def output(self) -> str:
        return f"key:{self.trace_id}-{self.content}" if self.succeeded else ""


@dataclass(frozen=True)
class Scored:
    """One piece of evidence about an execution; ``wrong`` says what is not right about it."""

    of: Ran
    score: float = 0.5
    outcome: str = "scored"
    wrong: str = ""

    @property
    def digest(self) -> str:
        return f"{self.of.trace_id}/{self.of.content}/{self.of.state}/{self.score}/{self.outcome}/{self.wrong}"


def executions(rows: list[Ran]) -> Executions:
    count = len(rows)
    numbers: Any = lambda values: np.array([np.nan if value is None else value for value in values], dtype=np.float64)  # noqa: E731
    return Executions(
        profile_ids=PROFILES,
        slice_ids=(),
        case_id=id_column(row.case for row in rows),
        replicate_id=id_column(row.replicate for row in rows),
        group_id=id_column(row.group for row in rows),
        profile=np.array([PROFILES.index(row.profile) for row in rows], dtype=np.int64),
        trace_id=id_column(row.trace_id for row in rows),
        trace_digest=id_column(f"{row.trace_id}-{row.content}-{row.state}" for row in rows),
        key=id_column(f"key-{row.trace_id}-{row.content}-{row.state}" for row in rows),
        output_id=id_column(row.output for row in rows),
        split=np.zeros(count, dtype=np.int8),
        state=np.array(
            [
                State.AMBIGUOUS
                if row.state.startswith("ambiguous")
                else State.SUCCESS
                if row.succeeded
                else State.FAILURE
                for row in rows
            ],
            dtype=np.int8,
        ),
        succeeded=np.array([row.succeeded for row in rows], dtype=bool),
        weight=numbers([row.weight for row in rows]),
        workload=constant("w", count),
        signal_key=id_column(str(row.signal) for row in rows),
        policy=constant("p", count),
        window=constant("/", count),
        slices=np.zeros((count, 0), dtype=bool),
        signal=numbers([row.signal for row in rows]),
        ttft_ms=numbers([row.ttft for row in rows]),
        e2e_ms=numbers([row.e2e for row in rows]),
        cost_usd=numbers([row.cost for row in rows]),
        cost_class=np.array(
            [Backing.UNAVAILABLE if row.cost is None else Backing.MODELED for row in rows], dtype=np.int8
        ),
        completed_ms=np.full(count, 1_000, dtype=np.int64),
    )


def evidence(rows: list[Scored]) -> Evidence:
    words = ("because",)
    return Evidence(
        reason_words=words,
        digest=id_column(row.digest for row in rows),
        source_digest=id_column(row.digest for row in rows),
        check=np.zeros(len(rows), dtype=np.int64),
        trace_id=id_column("trace-none" if row.wrong == "trace" else row.of.trace_id for row in rows),
        profile_id=id_column(row.of.profile for row in rows),
        output_id=id_column("key:other" if row.wrong == "output" else row.of.output or "key:any" for row in rows),
        case_id=id_column("case-none" if row.wrong == "case" else row.of.case for row in rows),
        replicate_id=id_column(row.of.replicate for row in rows),
        split=np.zeros(len(rows), dtype=np.int8),
        status=np.array(
            [STATUSES.index(EvidenceStatus.STALE if row.wrong == "stale" else EvidenceStatus.TRUSTED) for row in rows],
            dtype=np.int8,
        ),
        key_pinned=np.array([row.wrong != "key" for row in rows], dtype=bool),
        terms_match=np.array([row.wrong != "terms" for row in rows], dtype=bool),
        context=np.zeros(len(rows), dtype=np.int64),
        outcome=np.array([DECLARED[row.outcome] for row in rows], dtype=np.int8),
        declared=np.array([-1 if row.outcome == "scored" else 0 for row in rows], dtype=np.int64),
        score=np.array([row.score if row.outcome == "scored" else np.nan for row in rows], dtype=np.float64),
        produced_ms=np.array([999 if row.wrong == "early" else 1_000 for row in rows], dtype=np.int64),
    )


def plain_join(ran: list[Ran], scored: list[Scored]) -> tuple[dict[str, tuple[str, float | None, str]], set[str]]:
    """The same rules, one row after the other: outcome, score and reason by trace id, and the problems' reasons."""
    problems = set()
    by_id: dict[str, list[Ran]] = {}
    for row in ran:
        by_id.setdefault(row.trace_id, []).append(row)
    kept = []
    for rows in by_id.values():
        if len({(row.content, row.state) for row in rows}) > 1:
            problems.add("trace-id-lineage-conflict")
            continue
        if len(rows) > 1:
            problems.add("same-envelope-twice")
        kept.append(rows[0])
    rejected: dict[str, list[tuple[str, str]]] = {}
    good: list[Scored] = []
    for item in scored:
        reason = {
            "stale": "verification-stale",
            "key": "evaluator-key-not-pinned-by-protocol",
            "terms": "evaluator-or-rubric-or-calibration-or-producer-drift",
        }.get(item.wrong)
        if reason is None:
            good.append(item)
        elif item.of.output:
            rejected.setdefault(item.of.trace_id, []).append((item.digest, reason))
    unique: dict[str, Scored] = {}
    for item in good:
        if item.digest in unique:
            problems.add("same-evidence-twice")
        unique[item.digest] = item

    def key(item: Scored) -> tuple[str, str, str]:
        trace_id = "trace-none" if item.wrong == "trace" else item.of.trace_id
        return trace_id, item.of.profile, "key:other" if item.wrong == "output" else item.of.output or "key:any"

    times = Counter(map(key, unique.values()))
    clashing = {name for name, count in times.items() if count > 1}
    if clashing:
        problems.add("multiple-distinct-evidence-rows-for-join-key")
    found: dict[str, Scored] = {}
    known = {(row.trace_id, row.profile, row.output): row for row in kept if row.output}
    early = {}
    for item in unique.values():
        if key(item) in clashing:
            continue
        row = known.get(key(item))
        if row is None:
            same = next((other for other in kept if other.trace_id == key(item)[0]), None)
            problems.add(
                "no-matching-trace"
                if same is None
                else "terminal-output-mismatch"
                if same.succeeded
                else "evidence-for-failed-execution"
            )
        elif item.wrong == "case":
            problems.add("trace-evidence-lineage-conflict")
            clashing.add(key(item))
        elif item.wrong == "early":
            early[row.trace_id] = "evaluator-evidence-predates-terminal-completion"
        else:
            found[row.trace_id] = item
    result: dict[str, tuple[str, float | None, str]] = {}
    for row in kept:
        name = row.trace_id
        own = [entry for entry in rejected.get(name, ()) if f"/{row.content}/" in entry[0]]
        if row.state.startswith("ambiguous"):
            result[name] = ("AMBIGUOUS", None, "dispatch-outcome-ambiguous")
        elif not row.succeeded:
            result[name] = ("FAILURE_ZERO", 0.0, "")
        elif name in found:
            item = found[name]
            result[name] = (
                DECLARED[item.outcome].name,
                item.score if item.outcome == "scored" else None,
                "" if item.outcome == "scored" else "because",
            )
        elif name in early or own:
            result[name] = ("INVALID", None, early.get(name) or min(own)[1])
        elif (name, row.profile, row.output) in clashing:
            result[name] = ("INVALID", None, "conflicting-evidence")
        else:
            result[name] = ("MISSING", None, "successful-execution-without-trusted-evidence")
    return result, problems


def seen(rows: JoinedRows) -> dict[str, tuple[str, float | None, str]]:
    return {
        name: (Outcome(outcome).name, None if np.isnan(score) else score, rows.reason_words[reason])
        for name, outcome, score, reason in zip(
            texts(rows.executions.trace_id),
            rows.outcome.tolist(),
            rows.score.tolist(),
            rows.reason.tolist(),
            strict=True,
        )
    }


RAN = st.builds(
    Ran,
    case=st.sampled_from(["case-1", "case-10", "case-2"]),
    replicate=st.sampled_from(["replicate-0", "replicate-1"]),
    profile=st.sampled_from(PROFILES),
    state=st.sampled_from(["success", "success", "success", "failure", "ambiguous", "ambiguous-success"]),
    content=st.sampled_from([0, 0, 0, 1]),
)


@st.composite
def tables(draw: Any) -> tuple[list[Ran], list[Scored]]:
    ran = draw(st.lists(RAN, min_size=1, max_size=8))
    scored = draw(
        st.lists(
            st.builds(
                Scored,
                of=st.sampled_from(ran),
                score=st.sampled_from([0.25, 0.5]),
                outcome=st.sampled_from(["scored", "scored", "scored", "abstained", "missing", "invalid"]),
                wrong=st.sampled_from(["", "", "", "", "stale", "key", "terms", "early", "output", "trace", "case"]),
            ),
            max_size=10,
        )
    )
    return ran, scored


@settings(max_examples=80, deadline=None)
@given(tables())
def test_the_join_is_that_of_a_plain_loop(made: tuple[list[Ran], list[Scored]]) -> None:
    ran, scored = made
    rows = join(executions(ran), evidence(scored))
    expected, problems = plain_join(ran, scored)
    assert seen(rows) == expected
    assert {item.reason for item in rows.problems} == problems
    keys = list(zip(rows.case.tolist(), rows.replicate.tolist(), rows.executions.profile.tolist(), strict=True))
    assert keys == sorted(keys)
    for unit, members in enumerate(rows.unit_rows.tolist()):
        for profile, row in enumerate(members):
            assert row < 0 or (rows.unit[row], rows.executions.profile[row]) == (unit, profile)
    assert int((rows.unit_rows >= 0).sum()) == len(rows)


def test_two_executions_of_one_case_replicate_and_profile_are_a_conflict() -> None:
    made = executions([Ran("case-1", "replicate-0", "champion"), Ran("case-1", "replicate-0", "candidate")])
    made.profile[1], made.trace_id[1] = 1, b"trace-other"
    rows = join(made, evidence([]))
    assert len(rows) == 0
    (problem,) = rows.problems
    assert (problem.kind, problem.reason) == ("conflicting-traces", "multiple-profile-executions-for-case-replicate")
    assert problem.examples == ("trace-case-1-replicate-0-champion", "trace-other")


def test_evidence_of_two_contexts_is_not_used() -> None:
    ran = [Ran("case-1", "replicate-0", "champion"), Ran("case-1", "replicate-0", "candidate")]
    made = evidence([Scored(row) for row in ran])
    made.context[1] = 1
    rows = join(executions(ran), made)
    assert {entry[2] for entry in seen(rows).values()} == {"verification-context-drift"}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"weight": 2.0}, "traffic weight"),
        ({"group": "group-1"}, "group"),
        ({"signal": 0.1}, "route signal"),
    ],
)
def test_executions_of_a_case_that_differ_are_refused(changes: dict[str, Any], what: str) -> None:
    ran = [Ran("case-1", "replicate-0", "champion"), Ran("case-1", "replicate-0", "candidate", **changes)]
    with pytest.raises(InputError, match=f"differ in {what}") as found:
        join(executions(ran), evidence([]))
    assert "case-1" in str(found.value)


def test_a_group_in_two_splits_is_refused() -> None:
    made = executions([Ran("case-1", "replicate-0", "champion"), Ran("case-2", "replicate-0", "champion")])
    made.split[1] = 1
    with pytest.raises(InputError, match="in more than one split"):
        join(made, evidence([]))


POLICIES = [control_policy(PROTOCOL.record, AS_OF), *policy_space(PROTOCOL.record, AS_OF)]
TIMES = st.sampled_from([None, 1.0, 2.5, 40.0])


@st.composite
def pairs(draw: Any) -> list[Ran]:
    """Executions of some units; the case's signal is shared."""
    rows = []
    for case in draw(st.lists(st.sampled_from(["case-1", "case-2", "case-3"]), unique=True, min_size=1)):
        signal = draw(st.sampled_from([None, 0.2, 0.5, 0.9]))
        for replicate in draw(st.lists(st.sampled_from(["replicate-0", "replicate-1"]), unique=True, min_size=1)):
            for profile in draw(st.lists(st.sampled_from(PROFILES), unique=True, min_size=1)):
                rows.append(
                    Ran(
                        case,
                        replicate,
                        profile,
                        state=draw(st.sampled_from(["success", "success", "failure", "ambiguous"])),
                        signal=signal,
                        ttft=draw(TIMES),
                        e2e=draw(st.sampled_from([50.0, 70.25])),
                        cost=draw(st.sampled_from([None, 0.25, 0.5])),
                    )
                )
    return rows


def plain_replay(rows: list[Ran], kind: str) -> tuple[list[tuple[Any, ...]], set[str]]:
    """Case, replicate, selected profile, fallback, TTFT, end to end, cost of every replayed unit, and the reasons."""
    by_key = {(row.case, row.replicate, row.profile): row for row in rows}
    result, reasons = [], set()
    for case, replicate in sorted({(row.case, row.replicate) for row in rows}):
        expert = by_key.get((case, replicate, "champion"))
        primary = expert if kind == "expert-only" else by_key.get((case, replicate, "candidate"))
        if primary is None or expert is None:
            reasons.add("missing-required-profile")
            continue
        chosen, before = primary, None
        if kind == "cascade":
            if primary.signal is None:
                reasons.add("missing-route-signal")
                continue
            if primary.signal < 0.5:
                chosen = expert
            elif not primary.succeeded:
                chosen, before = expert, primary
        ttft = chosen.ttft if chosen.succeeded and chosen.ttft is not None else chosen.e2e
        e2e, cost = chosen.e2e, chosen.cost
        if before is not None:
            ttft, e2e = before.e2e + ttft, before.e2e + e2e
            cost = None if before.cost is None or cost is None else before.cost + cost
        result.append((case, replicate, chosen.profile, before is not None, ttft, e2e, cost))
    return result, reasons


@settings(max_examples=60, deadline=None)
@given(pairs(), st.sampled_from(POLICIES))
def test_the_replay_is_that_of_a_plain_loop(ran: list[Ran], policy: Any) -> None:
    rows = join(executions(ran), evidence([]))
    found = replay(rows, policy)
    expected, reasons = plain_replay(ran, policy.kind)
    assert set(found.reasons) == reasons
    replayed = [
        (case, replicate, PROFILES[profile], first >= 0, ttft, e2e, None if np.isnan(cost) else cost)
        for case, replicate, profile, first, ttft, e2e, cost in zip(
            texts(rows.case_ids[found.case]),
            texts(rows.replicate_ids[rows.replicate[found.row]]),
            rows.executions.profile[found.row].tolist(),
            found.first.tolist(),
            found.ttft_ms.tolist(),
            found.e2e_ms.tolist(),
            found.cost_usd.tolist(),
            strict=True,
        )
    ]
    assert replayed == expected
    if policy.kind == "cascade":
        assert set(found.e2e_class.tolist()) <= {Backing.MODELED}
        assert set(found.cost_class.tolist()) <= {Backing.MODELED, Backing.UNAVAILABLE}
    else:
        assert set(found.e2e_class.tolist()) <= {Backing.MEASURED}
        modeled = [not row.succeeded or row.ttft is None for row in _selected(ran, expected)]
        assert [code == Backing.MODELED for code in found.ttft_class.tolist()] == modeled


def _selected(ran: list[Ran], expected: list[tuple[Any, ...]]) -> list[Ran]:
    by_key = {(row.case, row.replicate, row.profile): row for row in ran}
    return [by_key[entry[:3]] for entry in expected]
