"""Every check of a window passes on an honest one, and each fails on the forgery that it is there for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tasc_collector.journal import Journal, RecordKind
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_pipeline.definitions import defs
from tasc_pipeline.home import Home, keys
from tasc_pipeline.partitions import PARTITIONS_NAME
from tasc_pipeline.steps import soundness
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess import assess
from tasc_pipeline.steps.collect import run_context
from tasc_pipeline.steps.probe import ProbeOptions, probe_endpoint
from tasc_pipeline.steps.publish import manifest_signer
from tasc_pipeline.warehouse.manifests import read_window
from tasc_pipeline.warehouse.publish import publish, window_folder
from tests.support.window import World, now, world

pytestmark = pytest.mark.usefixtures("undrawn")

BLOCKING = {
    "plan_digest_matches_key",
    "signatures_verify",
    "no_unsealed_member",
    "budget_kept",
    "forbidden_columns_absent",
    "journal_equals_parquet",
}
WARNING = {
    "coverage_floor",
    "sent_unknown_rate",
    "usage_null_rate",
    "clock_skew",
    "servers_answered",
    "device_throttling",
    "receipt_age",
}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str, str]]:
    """A window that was collected by the job, and one that is only approved."""
    with world(tmp_path_factory.mktemp("checks"), cases=3, warm_up=0) as made:
        key, other = made.approved_window(), made.approved_window(lead_s=900)
        result = run(made.home, key)
        assert result.success
        yield made, key, other


@pytest.fixture
def forged(collected: tuple[World, str, str], tmp_path: Path) -> tuple[Home, str, str]:
    """A copy of the state folder that a test may forge."""
    made, key, other = collected
    shutil.copytree(made.home.root, tmp_path / "home")
    return Home(tmp_path / "home"), key, other


def run(home: Home, key: str, checks: set[str] | None = None) -> dg.ExecuteInProcessResult:
    """The whole job, or only the named checks of its assets."""
    job = defs.resolve_job_def("shadow_window")
    if checks is not None:
        known = {item for item in defs.resolve_asset_graph().asset_check_keys if item.name in checks}
        job = defs.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=set(), asset_check_selection=known
        )
    with dg.DagsterInstance.ephemeral() as instance, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASC_HOME", str(home.root))
        instance.add_dynamic_partitions(PARTITIONS_NAME, [key])
        return job.execute_in_process(partition_key=key, instance=instance, raise_on_error=False)


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {event.check_name: event.passed for event in result.get_asset_check_evaluations()}


def evidence_checks(home: Home, key: str) -> dict[str, bool]:
    names = set(soundness.OF_EVIDENCE)
    result = run(home, key, names)
    found = verdicts(result)
    assert set(found) == names, "every check says something, whatever the others found"
    assert result.success == all(found.values()), "a failed one blocks what comes after"
    return found


def failed(found: dict[str, bool]) -> set[str]:
    return {name for name, passed in found.items() if not passed}


def test_an_honest_window_passes_every_check(forged: tuple[Home, str, str]) -> None:
    home, key, _ = forged
    result = run(home, key, BLOCKING | WARNING)
    assert verdicts(result) == dict.fromkeys(BLOCKING | WARNING, True)
    [budget] = [item for item in result.get_asset_check_evaluations() if item.check_name == "budget_kept"]
    assert budget.metadata["budget_kept"].value == "6 of 6 executions; 6 of 12 attempts; 6 of 12 network calls"


def test_the_blocking_checks_are_errors_and_the_others_warn() -> None:
    graph = defs.resolve_asset_graph()
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == BLOCKING
    assert {key.name for key in graph.asset_check_keys} == BLOCKING | WARNING | {"receipts_hold"}
    partitioned = {key.name for key in graph.asset_check_keys if graph.get(key).partitions_def is not None}
    assert partitioned == BLOCKING | WARNING


def test_a_key_that_its_declaration_does_not_give_stops_the_run_before_it_collects(
    forged: tuple[Home, str, str],
) -> None:
    home, key, _ = forged
    other = key[:-8] + "00000000"
    shutil.copytree(home.window(key), home.window(other))
    result = run(home, other, {"plan_digest_matches_key"})
    assert verdicts(result) == {"plan_digest_matches_key": False} and not result.success


def test_a_changed_byte_of_the_journal_is_seen(forged: tuple[Home, str, str]) -> None:
    home, key, _ = forged
    segment = next(path for path in sorted(home.run(key).iterdir()) if path.stat().st_size > 4_000)
    data = bytearray(segment.read_bytes())
    data[2_000] ^= 1
    segment.write_bytes(data)
    assert "signatures_verify" in failed(evidence_checks(home, key))


def test_an_edited_link_is_seen(forged: tuple[Home, str, str]) -> None:
    home, key, _ = forged
    path = home.window(key) / "link.json"
    value = json.loads(path.read_bytes())
    value["counts"]["accepted"], value["counts"]["notSent"] = 5, 1
    path.write_text(json.dumps(value))
    assert failed(evidence_checks(home, key)) == {"signatures_verify", "journal_equals_parquet"}


def test_an_execution_that_the_plan_does_not_have_is_seen(forged: tuple[Home, str, str]) -> None:
    home, _, key = forged
    body = {
        "caseId": "case-nobody-planned",
        "replicateId": "replicate-0",
        "profileId": "champion-vllm",
        "replicateIndex": 0,
        "groupId": "g",
        "trace": {},
    }
    append(home, key, [(RecordKind.INTENT, "trace-1", body)])
    assert "no_unsealed_member" in failed(evidence_checks(home, key))


def test_more_calls_than_the_budget_are_seen(forged: tuple[Home, str, str]) -> None:
    home, _, key = forged
    leases = [
        record
        for number in range(13)
        for record in (
            (RecordKind.INTENT, f"warmup-{number}", {}),
            (RecordKind.LEASE, f"warmup-{number}", {}),
        )
    ]
    append(home, key, leases)
    found = evidence_checks(home, key)
    assert "budget_kept" in failed(found) and "no_unsealed_member" not in failed(found)


def append(home: Home, key: str, records: list[tuple[RecordKind, str, dict[str, object]]]) -> None:
    """Write records as a runner that has gone wrong would."""
    approved = load_approved(home, key)
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    journal = Journal.open(home.run(key), run_context(home, approved, ()).binding, journal_key)
    for kind, trace_id, body in records:
        journal.append_sync(kind, trace_id, body)  # type: ignore[arg-type]  # JSON objects
    journal.close()


def test_a_column_with_prompts_is_seen(forged: tuple[Home, str, str]) -> None:
    home, key, _ = forged
    [part] = window_folder(home.warehouse, "traces", key).glob("part-*.parquet")
    rows = pq.read_table(part, partitioning=None)
    rows = rows.append_column("prompt", pa.array(["what a user wrote"] * rows.num_rows))
    pq.write_table(rows, part.with_name("part-00000000.parquet"))
    result = run(home, key, set(soundness.OF_EVIDENCE))
    assert failed(verdicts(result)) == {"forbidden_columns_absent"}
    [event] = [item for item in result.get_asset_check_evaluations() if not item.passed]
    assert event.metadata["forbidden_columns_absent"].value == "NOT SOUND: traces.prompt"


def test_rows_that_differ_from_the_journal_are_seen_although_they_are_signed(forged: tuple[Home, str, str]) -> None:
    home, key, _ = forged
    rows = read_window(home.warehouse, "traces", key)
    place = rows.schema.get_field_index("ttft_ms")
    faster = pc.multiply(rows.column("ttft_ms"), 0.5)
    rows = rows.set_column(place, rows.schema.field(place), faster)
    signer = manifest_signer(home, load_approved(home, key))
    publish(home.warehouse, "traces", key, rows, sign=signer, clock=now)
    assert failed(evidence_checks(home, key)) == {"journal_equals_parquet"}


def test_an_engine_that_was_killed_after_its_receipts_shows_in_the_ui_and_in_the_verdict(tmp_path: Path) -> None:
    """The plan was issued on its receipts while it was alive; the window is honest evidence that it was gone."""
    with world(tmp_path, cases=3, warm_up=0, route="chatCompletions") as made:
        for alias in ("champion", "candidate"):
            probe_endpoint(
                made.home, "first", alias, Capability.CHAT_COMPLETIONS, ProbeOptions(Effect.INFERENCE_CANARY)
            )
        key = made.approved_window()
        pinned = [target.capability_receipt_digests for target in load_approved(made.home, key).plan.record.targets]
        assert [len(digests) for digests in pinned] == [1, 1]
        made.candidate.stop()
        result = run(made.home, key)
        report = assess(made.home, key)
    assert result.success, "a gone server is a finding, not a failed run"
    assert report.comparisons[0].verdict == "undecided"
    assert "(no answer from candidate-llama.cpp in the whole window; " in report.comparisons[0].sentence
    [traces] = [
        event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey("accepted_traces")
    ]
    assert (traces["executions_success"].value, traces["executions_not_sent"].value) == (3, 3)
    assert failed(verdicts(result)) == {"coverage_floor", "servers_answered"}
    [event] = [item for item in result.get_asset_check_evaluations() if item.check_name == "servers_answered"]
    assert event.metadata["note"].value == "no answer in the whole window from candidate-llama.cpp"
    assert event.severity is dg.AssetCheckSeverity.WARN
