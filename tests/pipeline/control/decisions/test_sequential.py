from __future__ import annotations

import pytest

from tasc_collector.contracts.report import AssessmentReport, DecisionSummary, GateResult
from tasc_pipeline.control.decisions.sequential import up_to
from tests.support.decision_windows import analysis, changed, decided, lost, protocol, rows

RULES = protocol()
PLAN = analysis(RULES, sequential=True)


def windows(count: int, **options: float) -> list[AssessmentReport]:
    """So many daily windows, each judged on all before it."""
    found: list[AssessmentReport] = []
    for day in range(count):
        earlier = [item.decision.summary for item in found if item.decision and item.decision.summary]
        moved = [
            item.model_copy(update={"as_of": f"2026-02-{place + 1:02d}T00:00:00.000Z"})
            for place, item in enumerate(earlier)
        ]
        found.append(decided(rows(100 + day, **options), rules=RULES, plan=PLAN, window=day, earlier=moved))  # type: ignore[arg-type]  # numbers
    return found


def gate(report: AssessmentReport, name: str) -> GateResult:
    assert report.decision is not None
    return next(item for item in report.decision.gates if item.id == name)


def test_a_sequence_asks_percentiles_as_shares_and_grows_sure_with_windows() -> None:
    found = windows(4)
    first, last = found[0], found[-1]
    assert last.decision is not None and last.decision.status == "PASS", last.decision.sentence
    widths = [gate(item, "paired-quality").interval for item in (first, last)]
    assert all(item is not None and item.method == "asymptotic-confidence-sequence" for item in widths)
    assert widths[1].high - widths[1].low < widths[0].high - widths[0].low  # type: ignore[union-attr,operator]  # looked at above
    assert gate(last, "maximum-share-beyond-ttft").threshold == 0.05
    assert "maximum-p95-ttft" not in [item.id for item in last.decision.gates]
    assert last.decision.windows is not None
    assert (last.decision.windows.windows, len(last.decision.windows.earlier_windows)) == (4, 3)
    assert 0 < last.decision.windows.spent < 0.05
    assert ", over 4 windows and all looks at them." in last.decision.sentence


def test_one_bad_window_is_outweighed_and_not_for_ever_in_the_way() -> None:
    found = windows(3)
    summaries = [item.decision.summary for item in found if item.decision and item.decision.summary]
    moved = [
        item.model_copy(update={"as_of": f"2026-02-{place + 1:02d}T00:00:00.000Z"})
        for place, item in enumerate(summaries)
    ]
    bad = decided(changed(rows(200), "candidate", 12, lost), rules=RULES, plan=PLAN, window=9, earlier=moved)
    share = gate(bad, "maximum-share-beyond-ttft")
    assert share.interval is not None and share.interval.high is not None and share.interval.high < 0.2
    assert share.worst == pytest.approx(12 / 400) and share.best == 0.0


def test_other_policies_plans_and_later_windows_do_not_count() -> None:
    last = windows(1)[0].decision
    assert last is not None and last.summary is not None
    base = last.summary

    def other(**changes: str) -> DecisionSummary:
        return base.model_copy(
            update={"window_key": "other.r01-00000001", "as_of": "2026-01-01T00:00:00.000Z"} | changes
        )

    digest = "sha256:" + "9" * 64
    kept = other()
    strangers = [
        other(policy_digest=digest),
        other(analysis_plan_digest=digest),
        other(as_of="2026-09-01T00:00:00.000Z"),
    ]
    assert up_to(base, [*strangers, kept]) == [kept, base]


def test_drift_between_windows_is_a_warning() -> None:
    reports = windows(3)
    summaries = [item.decision.summary for item in reports if item.decision and item.decision.summary]
    moved = [
        item.model_copy(update={"as_of": f"2026-02-{place + 1:02d}T00:00:00.000Z"})
        for place, item in enumerate(summaries)
    ]
    lower = decided(rows(300, candidate_score=0.8), rules=RULES, plan=PLAN, window=7, earlier=moved)
    assert (
        "score against the champion on the same cases differs between windows by more than its error" in lower.warnings
    )
    assert not any("differs between windows" in line for line in reports[-1].warnings)


def test_one_side_that_loses_its_answers_is_a_warning() -> None:
    report = decided(changed(rows(400, groups=300), "candidate", 20, lost))
    assert "one side loses more answers than the other (sample-ratio mismatch)" in report.warnings


def test_a_case_without_a_route_signal_is_no_answer_that_a_server_lost() -> None:
    report = decided(rows(400, groups=60), kind="cascade")
    assert report.decision is not None and report.decision.evidence is not None and report.decision.summary is not None
    assert report.decision.evidence.unrouted == 60
    said = "60 have no answer that counts (0 unknown, 0 not sent, 0 not attempted, 60 that do not exist or have no route signal)"
    assert said in report.decision.sentence
    assert (report.decision.summary.champion_missing, report.decision.summary.policy_missing) == (0, 0)
    assert not [line for line in report.warnings if "sample-ratio" in line]
