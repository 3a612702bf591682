"""The evaluator's machine: a key, a trust snapshot for the operator, and signed scores. No window is needed for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import EvidenceStatus, check_evidence
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import InputError
from tasc_collector.wire.records import read_record
from tasc_pipeline.cli import evidence
from tasc_pipeline.home import Home, keys
from tasc_pipeline.home.setup import init_home
from tests.support.engine_v2_world import CANDIDATE, CHAMPION, PROTOCOL, protocol, trace


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home")
    init_home(home, datetime(2026, 7, 1, tzinfo=UTC), lambda _: None)
    monkeypatch.setenv("TASC_HOME", str(home.root))
    return home


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The protocol as the operator hands it out."""
    path = tmp_path / "protocol.json"
    path.write_bytes(canonical_bytes(PROTOCOL.value))
    return path


def run(*words: str) -> Result:
    app = typer.Typer()
    evidence.register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["evidence", *words])


def test_key_and_scores_of_the_evaluators_machine(state: Home, published: Path, tmp_path: Path) -> None:
    first, again = (run("key", "--protocol", str(published)) for _ in range(2))
    assert first.exit_code == 0
    assert first.stdout.splitlines()[-1] == again.stdout.splitlines()[-1]
    snapshot = read_record(EvaluatorTrustSnapshot, first.stdout.splitlines()[-1].encode()).record
    (trusted,) = snapshot.keys
    assert keys.key_file(state, "evaluator").stat().st_mode & 0o777 == 0o600
    terms = protocol(evaluator=PROTOCOL.value["evaluator"] | {"requiredTrustedKeyIds": [trusted.key_id]})
    traces = [trace("case-1", profile, terms=terms) for profile in (CHAMPION, CANDIDATE)]
    (tmp_path / "protocol.json").write_bytes(canonical_bytes(terms.value))
    (tmp_path / "traces.ndjson").write_bytes(b"".join(canonical_bytes(item.value) + b"\n" for item in traces))
    (tmp_path / "scores.csv").write_text(f"trace_id,score\n{traces[0].record.trace_id},0.25\n")
    words = [str(tmp_path / name) for name in ("traces.ndjson", "scores.csv")]
    options = ["--protocol", str(tmp_path / "protocol.json"), "--key-id", trusted.key_id]
    done = run("sign", *words, *options, "--produced-at", trusted.valid_from, "--out", str(tmp_path / "signed.ndjson"))
    assert done.exit_code == 0, done.exception
    assert "1 pieces of evidence signed" in done.stderr
    assert "candidate: 1 successful executions have no score" in done.stderr
    (line,) = (tmp_path / "signed.ndjson").read_bytes().splitlines()
    assert canonical_bytes(orjson.loads(line)) == line
    signed = read_record(EvaluatorEvidence, line)
    context = AssessmentContext.issue(
        as_of=trusted.valid_from,
        operator_trust_policy_snapshot_digest=snapshot.digest,
        evaluator_revocation_snapshot_digest=snapshot.revocations_digest,
    )
    assert check_evidence(signed, snapshot, context).status is EvidenceStatus.TRUSTED
    assert (signed.record.outcome.to_json()["score"], signed.record.profile_id) == (0.25, CHAMPION)
    refused = run("sign", *words, *options, "--out", str(tmp_path / "signed.ndjson"))
    assert isinstance(refused.exception, InputError)
    assert "this file exists" in str(refused.exception)


def test_what_cannot_be_signed_says_the_way_out(state: Home, published: Path, tmp_path: Path) -> None:
    run("key", "--protocol", str(published))
    assert isinstance(run("key").exception, InputError)
    (tmp_path / "traces.ndjson").write_bytes(canonical_bytes(trace("case-1", CHAMPION).value) + b"\n")
    (tmp_path / "scores.jsonl").write_text(json.dumps({"trace_id": "trace-case-1", "score": 2}) + "\n")
    words = [str(tmp_path / name) for name in ("traces.ndjson", "scores.jsonl")]
    options = ["--protocol", str(tmp_path / "protocol.json"), "--key-id"]
    for key_id, extra, message in (
        ("other", (), "does not pin this key"),
        ("scorer-1", (), "scores.jsonl line 1: score: a score is a number from 0 to 1"),
        ("scorer-1", ("--produced-at", "yesterday"), "not an instant"),
        ("scorer-1", ("--out", str(tmp_path / "nowhere" / "signed.ndjson")), "there is no such folder"),
    ):
        done = run("sign", *words, *options, key_id, *extra)
        assert isinstance(done.exception, InputError)
        assert message in str(done.exception)
        assert done.exception.way_out
