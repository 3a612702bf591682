from __future__ import annotations

from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_pipeline.steps.file_study import unscoring
from tests.support.engine_v2_world import STARTED, d, pair, receipt, table


def test_all_evidence_that_scores_nothing_is_counted_by_what_is_wrong_with_it() -> None:
    first, second = pair("one"), pair("two")
    traces = [*first[0], *second[0]]
    receipts = [
        receipt(traces[0], status=EvidenceStatus.REVOKED),
        receipt(traces[1], producedAt=STARTED),
        receipt(traces[2], keyId="scorer-2"),
        receipt(traces[3], protocolDigest=d(44)),
    ]
    assert unscoring(table(traces, receipts)) == {
        "evaluator-evidence-predates-terminal-completion": 1,
        "evaluator-key-not-pinned-by-protocol": 1,
        "evaluator-or-rubric-or-calibration-or-producer-drift": 1,
        "revoked": 1,
    }
    assert unscoring(table(*first)) == {}
