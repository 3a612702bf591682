"""A sealed window from study to report, on real sockets and files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tasc_collector.contract_servers import Behaviour
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized, SignatureError, TascError
from tasc_pipeline.home.windows import APPROVAL, DECLARATION, LINK, MANIFEST, PLAN, REPORT
from tasc_pipeline.steps import assess, close, collect, plan, publish, seal, verify
from tasc_pipeline.steps.catalogue import publish_catalogue
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.notices import signer_of
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.manifests import published
from tasc_pipeline.warehouse.publish import publish as publish_table
from tasc_pipeline.warehouse.schemas import TABLES
from tests.support.window import QUICK, World, now, world


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def finished(made: World) -> str:
    key = made.approved_window()
    result = collect.collect(made.home, key, show=nothing)
    assert result.status == "complete"
    publish.publish(made.home, key)
    close.close(made.home, key)
    return key


def test_a_window_ends_with_counts_that_the_servers_confirm(made: World) -> None:
    key = finished(made)
    rows = (
        connect(made.home.root)
        .sql("SELECT profile_id, count(*), count(*) FILTER (status = 'success') FROM traces GROUP BY ALL ORDER BY ALL")
        .fetchall()
    )
    assert rows == [("candidate-llama.cpp", 6, 6), ("champion-vllm", 6, 6)]
    assert made.inference_calls == (7, 7), "six cases and one warm-up call each"
    lines = verify.verify_window(made.home, key)
    assert [line.split(":")[0] for line in lines] == [
        "authority",
        "journal",
        "signatures",
        "counts",
        "parquet traces",
        "parquet attempts",
        "parquet token_events",
        "parquet envelopes",
        "parquet device_samples",
        "parquet metric_samples",
        "parquet receipts",
        "parquet metric_histograms",
    ]
    assert "12 planned = 12 accepted + 0 not sent + 0 not attempted, as signed" in lines[3]


def test_running_again_sends_nothing_and_gives_the_same_bytes(made: World) -> None:
    key = finished(made)
    report = assess.assess(made.home, key)
    folder = made.home.window(key)
    names = (DECLARATION, PLAN, APPROVAL, LINK, MANIFEST, REPORT)
    before = {name: (folder / name).read_bytes() for name in names}
    parts = {path: path.read_bytes() for path in made.home.warehouse.rglob("part-*.parquet")}
    again = collect.collect(made.home, key, show=nothing)
    assert (again.status, again.sent_calls) == ("complete", 0)
    publish.publish(made.home, key)
    close.close(made.home, key)
    assert assess.assess(made.home, key) == report
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert {path: path.read_bytes() for path in made.home.warehouse.rglob("part-*.parquet")} == parts
    assert made.inference_calls == (7, 7)


def test_the_report_says_what_sql_says(made: World) -> None:
    key = finished(made)
    report = assess.assess(made.home, key)
    session = connect(made.home.root)
    for profile in report.profiles:
        ttft = next(item for item in profile.latencies if item.metric == "ttft")
        (p50, p95, count) = session.execute(
            "SELECT quantile_cont(ttft_ms, 0.5), quantile_cont(ttft_ms, 0.95), count(ttft_ms) FROM traces WHERE profile_id = ?",
            [profile.profile_id],
        ).fetchone() or (None, None, None)
        assert ttft.p50_ms == pytest.approx(p50) and ttft.p95_ms == pytest.approx(p95) and ttft.count == count
    assert report.comparisons[0].sentence in (made.home.window(key) / assess.MARKDOWN).read_text()


def test_a_refused_server_leaves_faults_without_envelopes(tmp_path: Path) -> None:
    with world(tmp_path, cases=3, warm_up=0) as made:
        key = made.approved_window()
        made.candidate.stop()
        result = collect.collect(made.home, key, show=nothing)
        assert result.status == "complete"
        assert result.states == {"success": 3, "not_sent": 3}
        assert result.reasons == {"connect-failed": 3}
        publish.publish(made.home, key)
        link = close.close(made.home, key).link
        assert (link.counts.planned, link.counts.accepted, link.counts.not_sent) == (6, 3, 3)


def test_a_broken_answer_is_a_failure_and_an_unknown_one_stays_unknown(tmp_path: Path) -> None:
    champion = replace(QUICK, fault="error-then-done")
    candidate = replace(QUICK, fault="reset-mid-body")
    with world(tmp_path, cases=2, warm_up=0, champion=champion, candidate=candidate, runtimes=("vllm", "vllm")) as made:
        key = made.approved_window()
        result = collect.collect(made.home, key, show=nothing)
        assert result.states == {"failure": 2, "sent_unknown": 2}
        assert set(result.reasons) == {"provider-error", "transport"}
        assert made.inference_calls == (2, 2), "what may have been sent is never sent again"


def test_a_server_that_says_overloaded_is_left_alone(tmp_path: Path) -> None:
    candidate = replace(QUICK, fault="unavailable-503")
    with world(tmp_path, cases=12, warm_up=0, candidate=candidate, concurrency=1) as made:
        key = made.approved_window()
        result = collect.collect(made.home, key, show=nothing)
        assert made.candidate.ledger.inference_calls == 5, "five in a row stop the lane"
        assert result.states == {"success": 12, "failure": 5, "not_attempted": 7}
        assert result.reasons == {"overloaded": 12}


def test_a_plan_that_differs_from_the_pin_sends_nothing(made: World) -> None:
    key = made.approved_window()
    path = made.home.window(key) / PLAN
    value = json.loads(path.read_bytes())
    value["generation"]["maximumOutputTokens"] = 4096
    path.write_text(json.dumps(value))
    with pytest.raises((SignatureError, DigestMismatch)):
        collect.collect(made.home, key, show=nothing)
    assert made.inference_calls == (0, 0)


def test_an_edited_declaration_sends_nothing(made: World) -> None:
    key = made.approved_window()
    path = made.home.window(key) / DECLARATION
    value = json.loads(path.read_bytes())
    value["windowClass"] = "decisive"
    path.write_text(json.dumps(value))
    with pytest.raises((SignatureError, DigestMismatch)):
        collect.collect(made.home, key, show=nothing)
    assert made.inference_calls == (0, 0)


def test_changed_cases_send_nothing(made: World) -> None:
    key = made.approved_window()
    made.prompts.write_text(made.prompts.read_text().replace("Case 3", "Case three"))
    with pytest.raises(DigestMismatch, match="case-00004"):
        collect.collect(made.home, key, show=nothing)
    assert made.inference_calls == (0, 0)
    assert not made.home.run(key).exists(), "refused before a journal was made"


def test_fewer_cases_are_collected_and_the_rest_may_follow(made: World) -> None:
    key = made.approved_window()
    whole = made.prompts.read_text()
    made.prompts.write_text("".join(whole.splitlines(keepends=True)[:2]))
    first = collect.collect(made.home, key, show=nothing)
    assert (first.status, first.states) == ("partial", {"success": 4, "pending": 8})
    with pytest.raises(InputError, match="8 planned executions are not final"):
        close.close(made.home, key)
    made.prompts.write_text(whole)
    second = collect.collect(made.home, key, show=nothing)
    assert (second.status, second.states) == ("complete", {"success": 12})
    assert made.inference_calls == (7, 7)


def test_an_unapproved_plan_is_refused_with_the_command_that_approves(made: World) -> None:
    key = seal.seal(made.home, "first", seal.SealOptions(lead_s=1), now()).window_key
    plan.make_plan(made.home, key, now(), write=True)
    with pytest.raises(InputError, match="tasc plan approve"):
        collect.collect(made.home, key, show=nothing)


def test_a_run_long_before_the_start_is_refused_with_the_time(made: World) -> None:
    key = made.approved_window(lead_s=3600)
    with pytest.raises(NotAuthorized, match="the window starts in 3"):
        collect.collect(made.home, key, show=nothing)


def test_a_dry_run_writes_nothing(made: World) -> None:
    key = seal.seal(made.home, "first", seal.SealOptions(lead_s=1), now()).window_key
    _, estimate = plan.make_plan(made.home, key, now(), write=False)
    assert (estimate.calls, estimate.warm_up_calls, estimate.output_tokens) == (12, 2, 12 * 8 + 2)
    assert not (made.home.window(key) / PLAN).exists()


def test_publishing_compacts_what_is_due_and_a_compacted_window_is_verified_in_every_table(made: World) -> None:
    key, signer = made.approved_window(), signer_of(made.home)
    for name, table in TABLES.items():
        for number in range(3):
            publish_table(made.home.warehouse, name, f"a{number}.r01-00000000", table.empty(), sign=signer, clock=now)
    collect.collect(made.home, key, show=nothing)
    publish.publish(made.home, key)
    close.close(made.home, key)
    assess.assess(made.home, key)
    before = verify.verify_window(made.home, key)
    publish_catalogue(made.home)
    build_views(made.home.root, clock=lambda: now() + timedelta(hours=25))
    left = {path.parent.parent.name for path in made.home.warehouse.glob(f"*/window_key={key}/part-*")}
    assert left == set(), "every table of this window was compacted"
    assert len(published(made.home.warehouse, "gates").compacted) == 1
    assert verify.verify_window(made.home, key) == before and any("gates" in line for line in before)


def test_damage_to_another_windows_part_keeps_no_window_from_being_published(made: World) -> None:
    key, signer = made.approved_window(), signer_of(made.home)
    for number in range(3):
        other = f"a{number}.r01-00000000"
        part = publish_table(made.home.warehouse, "traces", other, TABLES["traces"].empty(), sign=signer, clock=now)
    path = made.home.warehouse / "traces" / f"window_key={other}" / part.file
    path.write_bytes(path.read_bytes() + b"0")
    collect.collect(made.home, key, show=nothing)
    assert publish.publish(made.home, key).rows["traces"] == 12
    assert published(made.home.warehouse, "traces").compacted == ()
    with pytest.raises(PartCorruptError, match="the part is not the one that was published"):
        publish_catalogue(made.home)


def test_a_flipped_bit_in_a_part_is_found(made: World) -> None:
    key = finished(made)
    part = next(made.home.warehouse.glob(f"traces/window_key={key}/part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    broken = [finding.name for finding in verify.findings(made.home, key) if not finding.sound]
    assert broken == ["parquet traces"]


def test_of_a_window_that_nobody_collected_verify_and_export_say_the_command(made: World) -> None:
    key = made.approved_window(lead_s=600)
    with pytest.raises(TascError, match=f"nothing was collected yet -> run: tasc collect {key}$"):
        verify.verify_window(made.home, key)
    with pytest.raises(InputError, match=f"nothing was collected of this window -> run: tasc collect {key}$"):
        list(export_traces(made.home, key))


@pytest.mark.parametrize(
    ("file", "finding"),
    [("runs/{}/seal.json", "counts"), ("warehouse/receipts/window_key={}/manifest.json", "parquet receipts")],
)
def test_what_a_closed_window_lost_is_found(made: World, file: str, finding: str) -> None:
    key = finished(made)
    (made.home.root / file.format(key)).unlink()
    assert [item.name for item in verify.findings(made.home, key) if not item.sound] == [finding]


def test_parquet_that_a_run_never_came_to_publish_is_no_damage(made: World) -> None:
    key, lines = made.approved_window(), made.prompts.read_text().splitlines(keepends=True)
    made.prompts.write_text("".join(lines[:2]))
    assert collect.collect(made.home, key, show=nothing).status == "partial"
    told = verify.verify_window(made.home, key)
    assert "12 planned, 8 of them not final yet" in told[3]
    assert {line.split("; ")[0].split(": ")[1] for line in told[4:]} == {"not published yet"}
    publish.publish(made.home, key)
    made.prompts.write_text("".join(lines))
    assert collect.collect(made.home, key, show=nothing).status == "complete"
    told = verify.verify_window(made.home, key)
    assert told[4] == (
        f"parquet traces: as signed, by a run before the journal grew; it is derived from the journal by: tasc settle {key}"
    )
    publish.publish(made.home, key)
    assert verify.verify_window(made.home, key)[4] == "parquet traces: 12 rows, equal to the journal"


def test_streams_of_ollama_are_collected_as_newline_delimited_json(tmp_path: Path) -> None:
    with world(
        tmp_path,
        cases=2,
        champion=Behaviour(ttft_ms=2, tokens=4),
        candidate=Behaviour(ttft_ms=2, tokens=4),
        runtimes=("ollama", "ollama"),
    ) as made:
        key = finished(made)
        rows = connect(made.home.root).sql("SELECT DISTINCT route, framing, status FROM traces").fetchall()
        assert rows == [("nativeGenerate", "ndjson", "success")]
        assert verify.verify_window(made.home, key)
