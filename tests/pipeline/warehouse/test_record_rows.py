from __future__ import annotations

from dataclasses import replace

import pytest

from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.observations import DeviceSnapshotRecord
from tasc_collector.contracts.operations import Notice
from tasc_collector.contracts.signed import Signature
from tasc_pipeline.warehouse import connect, record_rows
from tasc_pipeline.warehouse import publish as publishing
from tasc_pipeline.warehouse.schemas import GATES
from tests.support import sample_warehouse

KEY = "w1.r01-0a1b2c3d"
DIGEST = "sha256:" + "1" * 64
SIGNATURE = Signature(authority_key_id="collector", signature="A" * 86)
AT = "2026-11-29T12:00:00.000Z"


def test_a_snapshot_keeps_null_and_zero_apart_and_shows_no_path() -> None:
    snapshot = DeviceSnapshotRecord(
        window_key=KEY,
        phase="before",
        sampled_at=AT,
        node_id="host-1",
        signature=SIGNATURE,
        snapshot={
            "sampledAt": AT,
            "accelerators": [
                {
                    "id": "GPU-1",
                    "memoryUsedBytes": 0,
                    "memoryTotalBytes": 80,
                    "utilizationPct": None,
                    "powerWatts": 61.5,
                }
            ],
            "host": {
                "memoryTotalBytes": 10,
                "memoryAvailableBytes": 4,
                "swapTotalBytes": None,
                "cpuCount": 2,
                "uptimeSeconds": 9.5,
            },
            "storage": [{"mount": "/home/somebody", "totalBytes": 7, "freeBytes": 6}],
            "thermals": [{"label": "Tctl", "celsius": 41.0, "source": "cpu"}],
            "capabilities": [],
        },
    )
    rows = record_rows.device_samples_table(KEY, [snapshot]).to_pylist()
    held = {(row["device_id"], row["metric"]): (row["value"], row["unit"]) for row in rows}
    assert held["GPU-1", "memory_used"] == (0.0, "bytes")
    assert held["GPU-1", "utilization"] == (None, "percent")
    assert held["GPU-1", "power"] == (61.5, "watts")
    assert held["host", "uptime"] == (9.5, "seconds")
    assert held["volume-0", "free"] == (6.0, "bytes")
    assert held["sensor-0", "temperature"] == (41.0, "celsius")
    assert not any("somebody" in str(row) for row in rows)


def test_evidence_keeps_its_trust_and_scores_their_ranges() -> None:
    value = {
        "version": "tasc-evaluator-evidence-v2",
        "studyId": "study-1",
        "protocolDigest": DIGEST,
        "traceId": "trace-" + "a1" * 32,
        "caseId": "case-1",
        "replicateId": "replicate-" + "b2" * 32,
        "profileId": "champion",
        "split": "online",
        "terminalOutputId": {"algorithm": "hmac-sha256", "keyId": "payload", "value": "0d" * 32},
        "evaluator": {
            "evaluatorId": "rubric-team",
            "rubricVersion": "3",
            "calibrationDigest": DIGEST,
            "producer": {"kind": "deterministic", "producerId": "checker", "version": "1"},
        },
        "outcome": {
            "kind": "scored",
            "score": 0.75,
            "range": {"minimum": 0, "maximum": 1},
            "subscores": [{"id": "format", "score": 4.0, "range": {"minimum": 1.0, "maximum": 5.0}}],
        },
        "source": {"kind": "digest", "digest": DIGEST},
        "producedAt": AT,
        "keyId": "evaluator-1",
        "signatureAlgorithm": "ed25519",
        "signature": "A" * 86,
    }
    scored = EvaluatorEvidence.from_value(value).record
    missing = EvaluatorEvidence.from_value(value | {"outcome": {"kind": "missing", "reasonCode": "no-answer"}}).record
    rows = record_rows.evidence_table(KEY, [(scored, "trusted"), (missing, "unknown-key")]).to_pylist()
    assert [(row["outcome"], row["score"], row["trust_status"], row["trusted"]) for row in rows] == [
        ("scored", 0.75, "trusted", True),
        ("missing", None, "unknown-key", False),
    ]
    scores = record_rows.reported_scores_table(KEY, [scored, missing]).to_pylist()
    assert [(row["score_id"], row["score"], row["range_minimum"], row["range_maximum"]) for row in scores] == [
        ("primary", 0.75, 0.0, 1.0),
        ("format", 4.0, 1.0, 5.0),
    ]


def test_a_notice_names_a_window_and_nothing_else() -> None:
    notice = Notice(kind="verdict-changed", study_id="study-1", window_key=KEY, before="no-worse", after="worse", at=AT)
    (row,) = record_rows.notices_table(KEY, [notice]).to_pylist()
    assert (row["kind"], row["before"], row["after"], row["noticed_at"].isoformat()) == (
        "verdict-changed",
        "no-worse",
        "worse",
        "2026-11-29T12:00:00+00:00",
    )


def test_sql_has_the_noise_floors_of_the_report_and_null_for_a_part_from_before_them(
    house, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = "noon.r01-0a1b2c3d", "one.r01-0a1b2c3d"
    before = replace(
        GATES, schema_id="tasc-gates-v1", columns=tuple(item for item in GATES.columns if item.name != "noise_floor")
    )
    for key, kind in ((older, before), (newer, GATES)):
        report = sample_warehouse.assessment(key)
        [result] = report.comparisons
        failures = result.failures.model_copy(update={"noise_floor": 0.0125})
        report = report.model_copy(update={"comparisons": (result.model_copy(update={"failures": failures}),)})
        rows = record_rows.gates_table(report).select(kind.schema.names).cast(kind.schema)
        monkeypatch.setattr(publishing, "get_table", lambda _, kind=kind: kind)
        publishing.publish(house.root, "gates", key, rows, sign=house.signer, clock=house.clock)
    house.build()
    with connect(house.home) as session:
        rows = session.execute("SELECT window_key, gate, noise_floor FROM gates").fetchall()
    told = {f"{item.metric}-{item.statistic}-ratio": item.noise_floor for item in result.ratios}
    told["failure-rate-difference"] = 0.0125
    assert told["ttft-median-ratio"] == 0.02
    assert {gate: floor for key, gate, floor in rows if key == newer} == told
    assert {gate: floor for key, gate, floor in rows if key == older} == dict.fromkeys(told)
