"""A study whose analysis plan selects the original's analysis gets exactly that, and a report beside it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tasc_pipeline.home.windows import WindowFolder
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.close import close
from tests.support.decision_world import ANSWERS, decision_world
from tests.support.window import now

AS_THE_ORIGINAL = ANSWERS + '\n[statistics]\ninterval = "paired-group-percentile-v1"\n'


def test_the_plan_selects_engine_v2_and_its_decision_stands_beside_the_report(tmp_path: Path) -> None:
    with decision_world(tmp_path, answers=AS_THE_ORIGINAL) as made:
        made.to_collecting()
        key = made.collected("development")
        made.add_scores(key)
        approved = load_approved(made.home, key)
        assert approved.study.analysis is not None and approved.study.analysis.record.timing_source == "envelope"
        report = assess_decision_window(made.home, approved, close(made.home, key), None, now() + timedelta(days=1))
        decision = WindowFolder(made.home, key).decision().record
        found = report.decision
        assert found is not None and found.sources is not None
        assert (report.engine, decision.phase, found.sources.phase) == (
            "tasc-assessment-engine-v2",
            "development",
            "development",
        )
        assert found.status == decision.status == "NOMINATED"
        assert found.policy_digest == decision.selected_policy_digest
        assert len(found.policies) == len(decision.candidates) == 2
        shown = next(item for item in decision.candidates if item.policy_digest == found.policy_digest)
        assert [(gate.id, gate.passed) for gate in found.gates] == [(gate.id, gate.passed) for gate in shown.gates]
        assert found.sources.evaluator_set_digest == decision.evaluator_set_digest
