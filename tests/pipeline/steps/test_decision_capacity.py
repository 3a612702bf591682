"""A capacity gate from a window's own signed metric scrapes: what the server's counter grew between those that bracket it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import DigestMismatch
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.close import close
from tasc_pipeline.steps.metrics import SCRAPES, read_scrapes
from tests.support.decision_life import LATER
from tests.support.decision_world import ANSWERS, decision_world
from tests.support.window import now

WITH_CAPACITY = ANSWERS.replace("[cost]", "minimum_output_tokens_per_second = 0.01\n\n[cost]")


def test_throughput_is_measured_between_the_scrapes_around_the_window(tmp_path: Path) -> None:
    with decision_world(tmp_path, answers=WITH_CAPACITY) as made:
        made.to_collecting()
        made.to_shadow_assessing()
        key = made.collected("window")
        made.add_scores(key)
        approved = load_approved(made.home, key)
        alias = next(item.endpoint_alias for item in approved.plan.record.targets if item.role == "candidate")
        own = [item for item in read_scrapes(made.home, key, approved.ring) if item.endpoint_alias == alias]
        counted = {
            item.phase: (timestamp_ms(item.scraped_at), value.value)
            for item in own
            for value in item.values
            if value.metric == "generation-tokens-total"
        }
        (before_ms, before), (after_ms, after) = counted["before"], counted["after"]
        assert after - before > 0
        report = assess_decision_window(made.home, approved, close(made.home, key), None, now() + LATER)
        assert report.decision is not None
        gate = next(item for item in report.decision.gates if item.id == "minimum-service-capacity")
        assert gate.actual == pytest.approx((after - before) / ((after_ms - before_ms) / 1000), rel=1e-6)
        assert (gate.state, gate.unit, gate.evidence_class, gate.threshold) == (
            "passed",
            "tokens-per-second",
            "measured",
            0.01,
        )
        scrapes = made.home.window(key) / SCRAPES
        lines = scrapes.read_bytes().splitlines(keepends=True)
        scrapes.write_bytes(b"".join(lines[:-1]))
        with pytest.raises(DigestMismatch, match="not what its signed link names"):
            assess_decision_window(made.home, approved, close(made.home, key), None, now() + LATER)
