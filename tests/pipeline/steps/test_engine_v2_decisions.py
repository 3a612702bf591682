"""A study whose analysis plan selects the original's analysis gets exactly that in every phase, and a report beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import DigestMismatch, InputError
from tasc_pipeline.home.windows import DECISION, WindowFolder
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.close import close
from tests.support.decision_life import LATER, advance, assessed, collected, revised
from tests.support.decision_world import ANSWERS, DecisionWorld, decision_world
from tests.support.window import now

AS_THE_ORIGINAL = (
    ANSWERS.replace("minimum_independent_groups = 2", "minimum_independent_groups = 1")
    + '\n[statistics]\ninterval = "paired-group-percentile-v1"\n'
)


def decision_of(made: DecisionWorld, key: str) -> AssessmentDecision:
    return WindowFolder(made.home, key).decision().record


def reissued(decision: AssessmentDecision, **changes: Any) -> bytes:
    """Another decision that is sound in itself."""
    fixed = ("version", "engine_version", "attestation", "decision_digest")
    fields = {name: getattr(decision, name) for name in AssessmentDecision.model_fields if name not in fixed}
    return AssessmentDecision.issue(**(fields | changes)).canonical()


def check_report(made: DecisionWorld, key: str, phase: str) -> None:
    """The report beside a decision says the same in every gate."""
    report, decision = WindowFolder(made.home, key).report().record, decision_of(made, key)
    found = report.decision
    assert found is not None and found.sources is not None
    assert (report.engine, decision.phase, found.sources.phase) == ("tasc-assessment-engine-v2", phase, phase)
    assert (found.status, found.policy_digest) == (decision.status, decision.selected_policy_digest)
    assert len(found.policies) == (len(decision.candidates) if phase == "development" else 0)
    shown = next(item for item in decision.candidates if item.policy_digest == found.policy_digest)
    assert [(gate.id, gate.passed) for gate in found.gates] == [(gate.id, gate.passed) for gate in shown.gates]
    assert found.sources.evaluator_set_digest == decision.evaluator_set_digest
    assert found.sources.dataset_digest == decision.dataset_digest


def judged(made: DecisionWorld, key: str, as_of: str) -> AssessmentReport:
    """The assessment for an instant, a day later."""
    return assess_decision_window(made.home, load_approved(made.home, key), close(made.home, key), as_of, now() + LATER)


def test_development_nominates_holdout_confirms_and_the_window_is_judged(tmp_path: Path) -> None:
    with decision_world(tmp_path, answers=AS_THE_ORIGINAL) as made:
        assert advance(made, now()) == "REGISTERED"
        development = made.approved("development")
        assert advance(made, now()) == "COLLECTING"
        collected(made, development)
        made.add_scores(development)
        study = load_approved(made.home, development).study
        assert study.analysis is not None and study.analysis.record.timing_source == "envelope"
        assert assessed(made, development) == "NOMINATED"
        check_report(made, development, "development")
        assert [advance(made, now()) for _ in range(3)] == ["DEV_READY", "NOMINATED", "SHADOW_ASSESSING"]
        nomination = decision_of(made, development)

        holdout, window = (collected(made, made.approved(purpose)) for purpose in ("holdout", "window"))  # type: ignore[arg-type]  # purposes
        for key in (holdout, window):
            made.add_scores(key)
        stored = WindowFolder(made.home, development).path / DECISION
        sound = stored.read_bytes()
        for spoilt, kind, message in (
            (reissued(nomination, warnings=("one-more",)), DigestMismatch, "not what its sources give"),
            (None, InputError, "no development window nominated the frozen policy"),
        ):
            stored.unlink()
            if spoilt is not None:
                stored.write_bytes(spoilt)
            with pytest.raises(kind, match=message):
                assessed(made, holdout)
            assert not WindowFolder(made.home, holdout).has(DECISION)
        stored.write_bytes(sound)
        assert assessed(made, holdout) == "PASS"
        check_report(made, holdout, "holdout")
        confirmed = decision_of(made, holdout)
        assert confirmed.selected_policy_digest == nomination.selected_policy_digest
        assert confirmed.trace_set_digest != nomination.trace_set_digest
        assert confirmed.window_manifest_digest is None

        for key in (development, holdout, window):  # whatever is there: until the watermark more may come
            early = judged(made, key, format_timestamp(now())).decision
            assert early is not None and early.status == "STALE" and early.wait_until is not None
            assert f"from that instant, then: tasc assess {key}." in early.sentence

        # scores came after the close: the manifest does not name them, and nothing is decided from half of what there is
        with pytest.raises(DigestMismatch, match="sealed over other sources"):
            assessed(made, window)
        newest = revised(made, window)
        with pytest.raises(InputError, match="as of its watermark only") as refused:
            judged(made, newest, format_timestamp(now() + LATER / 2))
        assert refused.value.way_out == f"leave --as-of out: tasc assess {newest}"
        assert assessed(made, newest) == "PASS"
        check_report(made, newest, "window")
        manifest = WindowFolder(made.home, newest).manifest()
        decided = decision_of(made, newest)
        assert decided.window_manifest_digest == manifest.self_digest
        assert decided.trace_set_digest == manifest.trace_set_digest
        assert [advance(made) for _ in range(2)] == ["SHADOW_ASSESSING", "SHADOW_ASSESSING"]
        assert [advance(made) for _ in range(2)] == ["HOLDOUT_CONFIRMED", "PROMOTION_RECOMMENDED"]
