from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EVIDENCE_FIELD, EVIDENCE_SIGNATURE_DOMAIN, evidence_preimage
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot, Revocation
from tasc_collector.errors import InputError
from tasc_collector.shadow.progress import Snapshot
from tasc_collector.signing import SigningKey
from tasc_collector.wire.records import read_record
from tasc_pipeline.assets.evidence import evaluator_evidence
from tasc_pipeline.home import evidence as storage
from tasc_pipeline.home import keys
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.close import close
from tasc_pipeline.steps.evidence import check_window_evidence, window_evidence
from tasc_pipeline.steps.evidence_intake import add_evidence
from tasc_pipeline.steps.evidence_signing import Evaluator, sign_scores
from tasc_pipeline.steps.evidence_tables import publish_evidence
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.lm_eval import import_samples
from tasc_pipeline.steps.notices import signer_of
from tasc_pipeline.steps.watch import watching
from tasc_pipeline.warehouse.compaction import compact
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.manifests import read_window
from tasc_pipeline.warehouse.publish import publish, window_folder
from tasc_pipeline.warehouse.report_data import HarnessScore, load
from tasc_pipeline.warehouse.schemas import TRACES
from tests.support.decision_world import STUDY, DecisionWorld, decision_world
from tests.support.window import now


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DecisionWorld, str, list[bytes]]]:
    """A decision study with one collected development window."""
    with decision_world(tmp_path_factory.mktemp("evidence"), cases=12) as world:
        world.to_collecting()
        key = world.collected("development")
        yield world, key, list(export_traces(world.home, key))


class Bench:
    """The evaluator's machine and the collecting host, over one window; evidence starts empty in every test."""

    def __init__(self, world: DecisionWorld, key: str, exported: list[bytes], folder: Path) -> None:
        self.world, self.window_key, self.folder = world, key, folder
        self.home, self.now = world.home, now()
        self.traces = [read_record(TraceEnvelope, line.strip()) for line in exported]

    @property
    def protocol(self) -> Parsed[ExperimentProtocol]:
        found = self.world.study.protocol
        assert found is not None
        return found

    def signed(
        self, scores: dict[str, float] | None = None, at: datetime | None = None, key: SigningKey | None = None
    ) -> list[bytes]:
        scores = {trace.record.trace_id: 0.9 for trace in self.traces} if scores is None else scores
        rows = self.folder / "scores.jsonl"
        rows.write_text(
            "".join(json.dumps({"trace_id": name, "score": score}) + "\n" for name, score in scores.items())
        )
        signer = Evaluator(self.protocol, key or self.world.evaluator_key, "scorer-1", format_timestamp(at or self.now))
        return list(sign_scores(self.traces, rows, signer).lines)

    def file(self, lines: list[bytes], name: str = "evidence.ndjson") -> Path:
        path = self.folder / name
        path.write_bytes(b"".join(lines))
        return path

    def add(self, lines: list[bytes], name: str = "evidence.ndjson", at: datetime | None = None) -> Any:
        return add_evidence(self.home, STUDY, self.file(lines, name), at or self.now)

    def again(self, line: bytes, key: SigningKey | None = None, **changes: Any) -> bytes:
        """A piece of evidence with other content, signed again."""
        value = orjson.loads(line) | changes
        signer = key or self.world.evaluator_key
        value["signature"] = signer.sign(EVIDENCE_SIGNATURE_DOMAIN, EVIDENCE_FIELD, evidence_preimage(value))
        return orjson.dumps(value) + b"\n"

    @property
    def stored(self) -> int:
        return len(window_evidence(self.home, self.window_key))


@pytest.fixture
def bench(made: tuple[DecisionWorld, str, list[bytes]], tmp_path: Path) -> Iterator[Bench]:
    world, key, exported = made
    yield Bench(world, key, exported, tmp_path)
    folder = world.home.evidence(STUDY)
    for path in folder.iterdir() if folder.is_dir() else ():
        path.unlink()


def refused(bench: Bench, lines: list[bytes], rule: str, at: datetime | None = None) -> InputError:
    """The file is refused by that rule, says the way out, and nothing was taken."""
    with pytest.raises(InputError) as found:
        bench.add(lines, at=at)
    assert rule in str(found.value)
    assert found.value.way_out
    assert bench.stored == 0
    return found.value


def test_signed_scores_are_taken_in_once_and_shown_as_of_the_watermark(bench: Bench) -> None:
    lines = bench.signed()
    added = bench.add(lines)
    assert (added.new, added.known, dict(added.windows)) == (
        len(bench.traces),
        0,
        {bench.window_key: len(bench.traces)},
    )
    assert dict(added.unscored) == {}
    again = bench.add(lines[::-1], "same-again.ndjson")
    assert (again.new, again.known) == (0, len(lines))
    assert len(list(bench.home.evidence(STUDY).glob("*.ndjson"))) == 1
    table = read_window(bench.home.warehouse, "evidence", bench.window_key)
    assert set(table.column("trust_status").to_pylist()) == {"trusted"}
    assert table.column("score").to_pylist() == [0.9] * len(lines)
    first = publish_evidence(bench.home, bench.window_key)
    assert publish_evidence(bench.home, bench.window_key).version == first.version


def test_a_parquet_file_carries_the_same_records(bench: Bench) -> None:
    path = bench.folder / "evidence.parquet"
    pq.write_table(pa.table({"evidence": [line.strip().decode() for line in bench.signed()]}), path)
    assert add_evidence(bench.home, STUDY, path, bench.now).new == len(bench.traces)
    beside = bench.folder / "beside.parquet"
    pq.write_table(pa.table({"evidence": ["{}"], "score": [1.0]}), beside)
    with pytest.raises(InputError, match="one column `evidence`"):
        add_evidence(bench.home, STUDY, beside, bench.now)


def test_scores_that_are_missing_are_counted_by_profile(bench: Bench) -> None:
    some = bench.traces[:-3]
    added = bench.add(bench.signed({trace.record.trace_id: 0.5 for trace in some}))
    assert sum(added.unscored.values()) == 3
    assert set(added.unscored) <= {"champion-vllm", "candidate-llama.cpp"}


def test_what_an_earlier_file_scored_is_not_missing(bench: Bench) -> None:
    lines = bench.signed()
    assert sum(bench.add(lines[:-5], "first.ndjson").unscored.values()) == 5
    assert sum(bench.add(lines[-5:-2], "second.ndjson").unscored.values()) == 2
    assert dict(bench.add(lines[-2:], "third.ndjson").unscored) == {}


def test_scores_that_are_trusted_no_more_are_replaced_by_new_ones(bench: Bench) -> None:
    lines = bench.signed()
    bench.add(lines)
    later = bench.now + timedelta(days=8)  # the operator's snapshot allows seven days
    again = bench.add(bench.signed(at=later), "again.ndjson", at=later)
    assert (again.new, dict(again.unscored)) == (len(lines), {})
    checked = check_window_evidence(bench.home, bench.window_key, format_timestamp(later))
    assert sorted(str(receipt.status) for receipt in checked.receipts) == ["stale"] * len(lines) + ["trusted"] * len(
        lines
    )


def test_half_of_a_file_is_never_taken(bench: Bench) -> None:
    lines = bench.signed()
    torn = [*lines[:-1], lines[-1][: len(lines[-1]) // 2]]
    error = refused(bench, torn, "not a JSON record")
    assert f"line {len(lines)}" in str(error)
    assert not list(bench.home.evidence(STUDY).glob("*")) if bench.home.evidence(STUDY).exists() else True


def test_forged_evidence_is_refused(bench: Bench) -> None:
    lines = bench.signed()
    value = orjson.loads(lines[2])
    value["outcome"]["score"] = 1
    error = refused(bench, [*lines[:2], orjson.dumps(value) + b"\n", *lines[3:]], "invalid-signature")
    assert "line 3" in str(error)
    assert "1 of" in str(error)
    refused(bench, bench.signed(key=SigningKey.generate()), "invalid-signature")


def test_evidence_of_an_unknown_key_is_refused(bench: Bench) -> None:
    refused(bench, [bench.again(bench.signed()[0], keyId="scorer-2")], "unknown-key")


def test_stale_and_future_dated_evidence_is_refused(bench: Bench) -> None:
    lines = bench.signed()
    refused(bench, lines, "stale", at=bench.now + timedelta(days=8))
    refused(bench, bench.signed(at=bench.now + timedelta(minutes=2)), "future-dated")


def test_revoked_evidence_is_refused_and_what_is_stored_shows_it(bench: Bench) -> None:
    lines = bench.signed()
    half = len(lines) // 2
    bench.add(lines[:half])
    loaded = bench.world.study
    assert loaded.study.evaluator_trust is not None
    path = loaded.folder / loaded.study.evaluator_trust
    before = path.read_bytes()
    revocation = Revocation(key_id="scorer-1", revoked_at=format_timestamp(bench.now), reason_code="key-lost")
    snapshot = read_record(EvaluatorTrustSnapshot, before).record.model_copy(update={"revocations": (revocation,)})
    path.write_bytes(snapshot.canonical())
    try:
        with pytest.raises(InputError, match="revoked"):
            bench.add(lines[half:], "rest.ndjson", at=bench.now + timedelta(seconds=1))
        later = format_timestamp(bench.now + timedelta(seconds=1))
        checked = check_window_evidence(bench.home, bench.window_key, later)
        assert {str(receipt.status) for receipt in checked.receipts} == {"revoked"}
        assert len(checked.receipts) == half
    finally:
        path.write_bytes(before)


def test_checking_a_windows_evidence_tells_how_far_it_is(bench: Bench) -> None:
    lines = bench.signed()
    bench.add(lines)
    seen: list[Snapshot] = []
    with watching(seen.append):
        check_window_evidence(bench.home, bench.window_key, format_timestamp(bench.now + timedelta(seconds=1)))
    for what, total in (("reading evidence, batches", 1), ("checking evidence", len(lines))):
        told = [(each.done, each.total) for each in seen if each.what == what]
        assert told == [(done, total) for done in range(total + 1)]


def test_duplicates_and_conflicts_are_refused(bench: Bench) -> None:
    lines = bench.signed()
    refused(bench, [*lines, lines[0]], "one piece of evidence stands once")
    other = bench.again(lines[0], outcome={**orjson.loads(lines[0])["outcome"], "score": 0.1})
    refused(bench, [*lines, other], "multiple-distinct-evidence-rows-for-join-key")
    bench.add(lines)
    with pytest.raises(InputError, match="multiple-distinct-evidence-rows-for-join-key"):
        bench.add([other], "later.ndjson")
    assert bench.stored == len(lines)


def test_evidence_for_another_output_case_split_or_trace_is_refused(bench: Bench) -> None:
    line = bench.signed()[0]
    output = orjson.loads(line)["terminalOutputId"]
    refused(bench, [bench.again(line, terminalOutputId={**output, "value": "0" * 64})], "terminal-output-mismatch")
    refused(bench, [bench.again(line, caseId="case-99")], "trace-evidence-lineage-conflict")
    refused(bench, [bench.again(line, split="online")], "trace-evidence-lineage-conflict")
    refused(bench, [bench.again(line, traceId="trace-" + "0" * 64)], "no-matching-trace")


def test_evidence_from_before_the_answer_is_refused(bench: Bench) -> None:
    before = format_timestamp(bench.now - timedelta(hours=3))
    line = bench.again(bench.signed()[0], producedAt=before)
    refused(bench, [line], "evaluator-evidence-predates-terminal-completion")
    with pytest.raises(InputError, match="no score is older than its answer") as unsigned:
        bench.signed(at=bench.now - timedelta(hours=3))
    assert unsigned.value.way_out is not None and "--produced-at" in unsigned.value.way_out


def test_evidence_that_comes_after_the_watermark_is_told_when_it_is_taken_in_and_when_it_is_assessed(
    bench: Bench,
) -> None:
    approved = load_approved(bench.home, bench.window_key)
    watermark = approved.declaration.record.ingestion_watermark
    after = parse_timestamp(watermark) + timedelta(minutes=1)
    in_time, late = bench.signed()[:4], bench.signed(at=after)[4:]
    assert dict(bench.add(in_time, "in-time.ndjson").late) == {}
    assert dict(bench.add(late, "late.ndjson", at=after).late) == {bench.window_key: len(late)}
    assert check_window_evidence(bench.home, bench.window_key, format_timestamp(after), until=watermark).later == len(
        late
    )
    said = f"{len(late)} scores were produced after the watermark and count in a revision only: tasc seal --revise "
    for as_of, expected in ((watermark, 1), (format_timestamp(bench.now), 0)):  # before it nothing is late yet
        report = assess_decision_window(bench.home, approved, close(bench.home, bench.window_key), as_of, after)
        assert len([line for line in report.missing if line == f"{said}{bench.window_key}"]) == expected


def test_another_protocols_evidence_is_refused(bench: Bench) -> None:
    line = bench.signed()[0]
    refused(bench, [bench.again(line, protocolDigest="sha256:" + "9" * 64)], "are the protocol's")


def test_a_changed_or_unsigned_store_is_never_used(bench: Bench) -> None:
    bench.add(bench.signed())
    (content,) = bench.home.evidence(STUDY).glob("*.ndjson")
    whole = content.read_bytes()
    content.write_bytes(whole.replace(b'"score":0.9', b'"score":0.8', 1))
    with pytest.raises(InputError, match="not what was taken in"):
        window_evidence(bench.home, bench.window_key)
    content.write_bytes(whole)
    (batch,) = bench.home.evidence(STUDY).glob("*.json")
    forged = orjson.loads(batch.read_bytes())
    forged["rows"] += 1
    batch.write_bytes(orjson.dumps(forged))
    with pytest.raises(Exception, match="signature is not that of the named key"):
        storage.batches(bench.home, STUDY, keys.read_ring(bench.home))


def test_signatures_are_not_checked_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add(bench.signed())
    calls: list[object] = []
    monkeypatch.setattr("tasc_collector.contracts.evidence_trust._is_signed", lambda *args: calls.append(args) or True)
    as_of = format_timestamp(bench.now)
    assert all(item.trusted for item in check_window_evidence(bench.home, bench.window_key, as_of).receipts)
    assert calls == []


def test_csv_rows_become_the_same_evidence_as_json_lines(bench: Bench) -> None:
    path = bench.folder / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["trace_id", "score", "outcome", "reason_code"])
        for trace in bench.traces[:-1]:
            writer.writerow([trace.record.trace_id, "0.9", "", ""])
        writer.writerow([bench.traces[-1].record.trace_id, "", "abstained", "ambiguous-task"])
    signer = Evaluator(bench.protocol, bench.world.evaluator_key, "scorer-1", format_timestamp(bench.now))
    signed = sign_scores(bench.traces, path, signer)
    values = [orjson.loads(line) for line in signed.lines]
    plain = [orjson.loads(line) for line in bench.signed()]
    assert [item["traceId"] for item in values] == sorted(trace.record.trace_id for trace in bench.traces)
    declared = {item["traceId"]: item["outcome"] for item in values}
    assert declared.pop(bench.traces[-1].record.trace_id) == {"kind": "abstained", "reasonCode": "ambiguous-task"}
    assert declared == {
        item["traceId"]: item["outcome"] for item in plain if item["traceId"] != bench.traces[-1].record.trace_id
    }
    added = bench.add(list(signed.lines))
    assert added.new == len(bench.traces)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"score": 0.5}, "a row names its trace"),
        ({"trace_id": "unknown", "score": 0.5}, "the export has no such trace"),
        ({"trace_id": "FIRST", "score": 1.5}, "a score is a number from 0 to 1"),
        ({"trace_id": "FIRST", "score": "NaN"}, "a score is a number from 0 to 1"),
        ({"trace_id": "FIRST", "score": True}, "a score is a number from 0 to 1"),
        ({"trace_id": "FIRST", "score": "0_1"}, "a score is a number from 0 to 1"),
        ({"trace_id": "FIRST", "score": "\u0661"}, "a score is a number from 0 to 1"),
        ({"trace_id": "FIRST", "outcome": "missing", "reason_code": "Not a word"}, "outcome.reasonCode"),
        ({"trace_id": "FIRST", "score": 0.5, "comment": "good"}, "this column is not signed"),
        ({"trace_id": "FIRST", "outcome": "missing"}, "an outcome"),
        ({"trace_id": "FIRST", "outcome": "missing", "reason_code": "none", "score": 1}, "an outcome"),
        ({"trace_id": "FIRST", "score": 0.5, "reason_code": "none"}, "a score has no reason code"),
    ],
)
def test_a_row_that_cannot_be_signed_names_itself(bench: Bench, row: dict[str, Any], message: str) -> None:
    first = bench.traces[0].record.trace_id
    rows = bench.folder / "rows.jsonl"
    good = {"trace_id": bench.traces[1].record.trace_id, "score": 0.5}
    bad = {name: first if value == "FIRST" else value for name, value in row.items()}
    rows.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    signer = Evaluator(bench.protocol, bench.world.evaluator_key, "scorer-1", format_timestamp(bench.now))
    with pytest.raises(InputError, match=message) as found:
        sign_scores(bench.traces, rows, signer)
    assert "rows.jsonl line 2" in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trace_id\nFIRST\n", "line 1: score: the header lacks this column"),
        ("FIRST,0.5\n", "line 1: FIRST: this column is not signed"),
        ("score\n0.5\n", "line 1: trace_id: the header lacks this column"),
        ("trace_id,score,score\nFIRST,0.5,0.9\n", "line 1: score: the header names this column twice"),
        ("trace_id,score,comment\n", "line 1: comment: this column is not signed"),
        ("trace_id,score\n", "there is no row in it"),
        ("", "line 1: trace_id: the header lacks this column"),
    ],
)
def test_a_table_whose_header_is_wrong_or_that_has_no_row_is_not_signed(bench: Bench, text: str, message: str) -> None:
    first = bench.traces[0].record.trace_id
    rows = bench.folder / "scores.csv"
    rows.write_text(text.replace("FIRST", first))
    signer = Evaluator(bench.protocol, bench.world.evaluator_key, "scorer-1", format_timestamp(bench.now))
    with pytest.raises(InputError) as found:
        sign_scores(bench.traces, rows, signer)
    assert message.replace("FIRST", first[:64]) in str(found.value)


@pytest.mark.parametrize("name", ["Scores.CSV", "scores.jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_scores(bench: Bench, name: str) -> None:
    first = bench.traces[0].record.trace_id
    rows = bench.folder / name
    table = f"trace_id,score\n{first},0.25\n"
    rows.write_text(table if name.endswith("CSV") else json.dumps({"trace_id": first, "score": 0.25}), "utf-8-sig")
    signer = Evaluator(bench.protocol, bench.world.evaluator_key, "scorer-1", format_timestamp(bench.now))
    (line,) = sign_scores(bench.traces, rows, signer).lines
    assert orjson.loads(line)["outcome"]["score"] == 0.25


def test_a_key_that_the_protocol_does_not_pin_signs_nothing(bench: Bench) -> None:
    rows = bench.folder / "rows.jsonl"
    rows.write_text("")
    signer = Evaluator(bench.protocol, bench.world.evaluator_key, "scorer-9", format_timestamp(bench.now))
    with pytest.raises(InputError, match="does not pin this key"):
        sign_scores(bench.traces, rows, signer)


def test_harness_scores_are_shown_beside_the_window_and_are_no_evidence(bench: Bench) -> None:
    log = bench.folder / "samples_arc_easy_2026-11-29T12-00-00.123456.jsonl"
    sample = {
        "doc_id": 7,
        "doc": {"question": "never stored"},
        "arguments": {"gen_args_0": {"arg_0": "never stored either"}},
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "acc": 1.0,
        "acc_norm": 0.0,
    }
    log.write_text(json.dumps(sample) + "\n" + json.dumps(sample | {"doc_id": 8}) + "\n")
    assert import_samples(bench.home, bench.window_key, log, "candidate-llama.cpp") == 4
    assert import_samples(bench.home, bench.window_key, log, "candidate-llama.cpp") == 4
    published = publish_evidence(bench.home, bench.window_key)
    assert published.rows == {"evidence": 0, "reported_scores": 4}
    rows = read_window(bench.home.warehouse, "reported_scores", bench.window_key).to_pylist()
    assert [(row["case_id"], row["score_id"], row["score"], row["source"]) for row in rows] == [
        ("arc_easy-7", "acc,none", 1.0, "lm-evaluation-harness"),
        ("arc_easy-7", "acc_norm,none", 0.0, "lm-evaluation-harness"),
        ("arc_easy-8", "acc,none", 1.0, "lm-evaluation-harness"),
        ("arc_easy-8", "acc_norm,none", 0.0, "lm-evaluation-harness"),
    ]
    with connect(bench.home.root) as session:
        shown = load(session, bench.window_key).harness
    assert shown == (
        HarnessScore("candidate-llama.cpp", "lm-evaluation-harness", "acc,none", 2, 1.0),
        HarnessScore("candidate-llama.cpp", "lm-evaluation-harness", "acc_norm,none", 2, 0.0),
    )
    kept = b"".join(path.read_bytes() for path in bench.home.window(bench.window_key).rglob("*.json"))
    assert b"never stored" not in kept
    with pytest.raises(InputError, match="no such profile"):
        import_samples(bench.home, bench.window_key, log, "nobody")
    log.write_text(json.dumps(sample | {"metrics": ["bleu"], "bleu": [1, 2]}) + "\n")
    with pytest.raises(InputError, match="no such number"):
        import_samples(bench.home, bench.window_key, log, "candidate-llama.cpp")


def test_the_asset_counts_pieces_by_status(bench: Bench) -> None:
    bench.add(bench.signed())
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("sealed_window", [bench.window_key])
        done = dg.materialize(
            [evaluator_evidence],
            partition_key=bench.window_key,
            instance=instance,
            resources={"state": StateFolder(root=str(bench.home.root))},
        )
        (event,) = done.get_asset_materialization_events()
    shown = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (shown["pieces"], shown["status_trusted"]) == (len(bench.traces), len(bench.traces))
    watermark = bench.world.home.window(bench.window_key) / "declaration.json"
    assert shown["as_of"] == orjson.loads(watermark.read_bytes())["ingestionWatermark"]
    assert str(shown["evaluator_set_digest"]).startswith("sha256:")


def test_a_window_that_was_compacted_long_ago_still_takes_evidence(bench: Bench) -> None:
    signer, table = signer_of(bench.home), "traces"
    publish(bench.home.warehouse, table, "a.r01-00000000", TRACES.empty(), sign=signer, clock=now)
    compact(bench.home.warehouse, table, sign=signer, clock=now)
    build_views(bench.home.root, clock=lambda: now() + timedelta(hours=25))
    assert not window_folder(bench.home.warehouse, table, bench.window_key).exists()
    assert bench.add(bench.signed()).new == len(bench.traces)
