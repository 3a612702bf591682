"""A decision study's whole life on contract servers: collected, scored, assessed, and each record moves the controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.proposal import ExperimentBudget, ProposedExperiment
from tasc_collector.errors import DigestMismatch
from tasc_pipeline.control.controller_replay import replay
from tasc_pipeline.home.windows import REPORT, WindowFolder
from tasc_pipeline.steps import controller
from tasc_pipeline.steps.proposals import BUDGET, propose_next
from tests.support.decision_life import LATER, advance, assessed, collected, revised
from tests.support.decision_world import ANSWERS, STUDY, DecisionWorld, decision_world
from tests.support.window import now

CASES = 80
STATED = (
    ANSWERS.replace("minimum_mean_score = 0.8", "minimum_mean_score = 0.7")
    .replace("non_inferiority_margin = -0.05", "non_inferiority_margin = -0.2")
    .replace("maximum_failure_rate = 0.02", "maximum_failure_rate = 0.3")
    .replace("minimum_independent_groups = 2", "minimum_independent_groups = 10")
) + "\n[statistics]\nalpha = 0.4\niterations = 200\n[split]\nholdout_buckets = 5\n"
"""Gates that the case groups of every split can show at 60 % confidence."""


def case_lines() -> str:
    cases = (
        {
            "caseId": f"case-{number:03d}",
            "groupId": f"group-{number:03d}",
            "generation": {"prompt": f"Say something about {number}.", "maxTokens": 8},
            "slices": [],
        }
        for number in range(CASES)
    )
    return "".join(json.dumps(case) + "\n" for case in cases)


@contextmanager
def edited_verdict(made: DecisionWorld, key: str) -> Iterator[None]:
    """Somebody writes another status into a window's report, until the block ends."""
    path = WindowFolder(made.home, key).path / REPORT
    sound = path.read_bytes()
    value = json.loads(sound)
    value["decision"]["status"] = "HOLD" if value["decision"]["status"] == "PASS" else "PASS"
    path.write_bytes(canonical_bytes(value))
    yield
    path.write_bytes(sound)


def test_from_draft_to_a_recommendation(tmp_path: Path) -> None:
    with decision_world(tmp_path, cases=CASES, answers=STATED) as made:
        made.cases.write_text(case_lines())
        assert advance(made, now()) == "REGISTERED"
        key = made.approved("development")
        assert advance(made, now()) == "COLLECTING"
        collected(made, key)
        made.add_scores(key)
        assert assessed(made, key) == "NOMINATED"
        assert [advance(made, now()) for _ in range(3)] == ["DEV_READY", "NOMINATED", "SHADOW_ASSESSING"]

        holdout, window = (collected(made, made.approved(purpose)) for purpose in ("holdout", "window"))
        for scored in (holdout, window):
            made.add_scores(scored)
        newest = revised(made, window)
        assert (assessed(made, holdout), assessed(made, newest)) == ("PASS", "PASS")
        assert [advance(made) for _ in range(2)] == ["SHADOW_ASSESSING", "SHADOW_ASSESSING"]
        with edited_verdict(made, holdout):
            for wanted in ({}, {"window_key": holdout}, {"decision": WindowFolder(made.home, holdout).path / REPORT}):
                with pytest.raises(DigestMismatch, match="not what the window's records give"):
                    advance(made, **wanted)
        # the same report from elsewhere is taken, because its window's records here give it
        elsewhere = tmp_path / "report.json"
        elsewhere.write_bytes((WindowFolder(made.home, holdout).path / REPORT).read_bytes())
        assert advance(made, decision=elsewhere) == "HOLDOUT_CONFIRMED"
        assert advance(made) == "PROMOTION_RECOMMENDED"

        view = controller.show(made.home, STUDY, now() + LATER)
        assert replay(view.chain.snapshots[0], view.chain.events) == view.chain
        parsed = ControllerSnapshot.from_value(view.chain.current.to_json()).record
        assert parsed.selected_policy is not None and len(parsed.windows[0].revisions) == 2
        budget = ExperimentBudget.issue(
            max_logical_executions=8, max_attempts=8, max_cost_usd=1, max_wall_clock_ms=1000
        )
        (made.study.folder / BUDGET).write_bytes(budget.canonical())
        proposal, _ = propose_next(made.home, STUDY)
        assert not isinstance(proposal, ProposedExperiment) and proposal.hold_reason == "assessment-already-passing"
