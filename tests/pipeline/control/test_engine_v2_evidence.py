"""Evidence written from its fields is the canonical JSON of its record, whatever stands in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.evidence import Scored
from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_pipeline.control.engine_v2_diagnostics import Backings
from tasc_pipeline.control.engine_v2_evidence import number, numbers, scored_evidence
from tests.support.engine_v2_world import CHAMPION, context, d, receipt, trace

TRACE = trace("case-1", CHAMPION)
SPELT = {"kind": "external-model", "producerId": "judge", "version": 'ünïcode "2" \\ %s \u2028 x'}


def _outcome(score: float, *parts: tuple[str, float, float, float]) -> dict[str, Any]:
    return {
        "kind": "scored",
        "score": score,
        "range": {"minimum": 0, "maximum": 1},
        "subscores": [
            {"id": name, "score": given, "range": {"minimum": low, "maximum": high}} for name, given, low, high in parts
        ],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"outcome": _outcome(1)},
        {"outcome": _outcome(-0.0)},
        {"outcome": _outcome(1e-7, ("speed", 1e21, -5, 1e22), ("style", 3.0, 1, 5))},
        {"outcome": _outcome(1 / 3, ("tone", 2.0**53 + 2, 0, 2.0**60))},
        {"source": {"kind": "controlled-reference", "storeId": "store", "referenceId": "object"}},
        {"source": {"kind": "controlled-reference", "storeId": "store", "referenceId": "object", "digest": d(3)}},
        {"evaluator": {"evaluatorId": "e", "rubricVersion": "é\t1", "calibrationDigest": d(7), "producer": SPELT}},
    ],
)
def test_evidence_written_from_its_fields_is_its_canonical_json(changes: dict[str, Any]) -> None:
    found = receipt(TRACE, 0.97, **changes)
    outcome = found.evidence.outcome
    assert isinstance(outcome, Scored)
    written = scored_evidence(found.evidence, outcome)
    assert written == canonical_bytes(Backings([found], {}).evidence(0))


@pytest.mark.parametrize(
    ("value", "written"),
    [(1.0, "1"), (0.5, "0.5"), (-0.0, "0"), (1e-7, "1e-7"), (1e21, "1e+21"), (2.0**53, "9007199254740992")],
)
def test_numbers_are_written_as_rfc_8785_writes_them(value: float, written: str) -> None:
    assert number(value) == written


@pytest.mark.parametrize(
    "value", [0.5, 1 / 3, 1e-3, 0.00099, 1e-7, 0.0, -0.0, 1.0, 2.5e14 + 0.5, 1e15, 1e21, 123.0, -0.25]
)
def test_a_column_of_numbers_is_written_as_each_of_them(value: float) -> None:
    assert numbers(np.array([0.75, value, value])) == [b"0.75", *[canonical_bytes(value)] * 2]
    assert numbers(np.zeros(0)) == []


@pytest.mark.parametrize("status", list(EvidenceStatus))
def test_a_source_digest_is_the_digest_of_all_that_the_check_found(status: EvidenceStatus) -> None:
    found, under = receipt(TRACE, status=status), context()
    assert found.source_digest == digest(
        "tasc/assessment-evaluator-source/v2",
        {
            "kind": "authentic-verification-receipt",
            "evidenceDigest": found.evidence_digest,
            "status": status.value,
            "trusted": status.value == "trusted",
            "assessedAt": under.as_of,
            "assessmentContextDigest": under.context_digest,
            "operatorTrustPolicySnapshotDigest": under.operator_trust_policy_snapshot_digest,
            "evaluatorRevocationSnapshotDigest": under.evaluator_revocation_snapshot_digest,
            "keyId": "scorer-1",
        },
    )
