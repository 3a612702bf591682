"""A decision study's window from contract servers to a decision, with scores that were signed elsewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

import dagster as dg
import pytest
from typer.testing import CliRunner

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.sets import evaluator_set_digest
from tasc_collector.errors import DigestMismatch, InputError, TascError
from tasc_collector.wire.records import read_record
from tasc_pipeline.assets.assessment import assessments
from tasc_pipeline.cli.app import build
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import DECLARATION, LINK, MANIFEST, PLAN, REPORT
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import assess, catalogue, plan, seal
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.close import close
from tasc_pipeline.steps.decision_inputs import read_material
from tasc_pipeline.steps.earlier import earlier_decisions
from tasc_pipeline.steps.evidence_intake import add_evidence
from tasc_pipeline.steps.evidence_signing import Evaluator, sign_scores
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.metrics import SCRAPES
from tasc_pipeline.steps.sampling import DEVICE_SNAPSHOTS
from tasc_pipeline.warehouse.database import connect
from tests.support.decision_world import ANSWERS, STUDY, DecisionWorld, decision_world
from tests.support.window import QUICK, now

pytestmark = pytest.mark.usefixtures("undrawn")

CASES = 66
STATED = (
    ANSWERS.replace("minimum_mean_score = 0.8", "minimum_mean_score = 0.7")
    .replace("non_inferiority_margin = -0.05", "non_inferiority_margin = -0.2")
    .replace("maximum_failure_rate = 0.02", "maximum_failure_rate = 0.1")
    .replace("minimum_independent_groups = 2", "minimum_independent_groups = 30")
) + "\n[statistics]\nalpha = 0.4\niterations = 200\n"
"""Gates that 66 case groups can show at 60 % confidence, so that the test stays short."""


def scored(made: DecisionWorld, key: str, score_of: Callable[[TraceEnvelope], float]) -> None:
    """Have every answer of a window scored and signed, and take the evidence in."""
    traces = [read_record(TraceEnvelope, line) for line in export_traces(made.home, key)]
    scores = made.cases.with_name("scores.csv")
    lines = [
        f"{item.record.trace_id},{score_of(item.record)}\n"
        for item in traces
        if item.record.terminal_output_id is not None
    ]
    scores.write_text("trace_id,score\n" + "".join(lines))
    protocol = made.study.protocol
    assert protocol is not None
    signed = sign_scores(traces, scores, Evaluator(protocol, made.evaluator_key, "scorer-1", format_timestamp(now())))
    evidence = scores.with_suffix(".ndjson")
    evidence.write_bytes(b"".join(signed.lines))
    add_evidence(made.home, STUDY, evidence, now())


def similar(trace: TraceEnvelope) -> float:
    """A little different from case to case, the same on both sides on average."""
    return 0.85 + int(trace.case_id[-2:]) % 10 / 100 + (0.01 if "candidate" in trace.profile_id else 0.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecisionWorld]:
    """A decision study whose candidate breaks off one of its answers, so that nobody knows what became of it."""
    candidate = replace(QUICK, fault="reset-mid-body", fault_calls=frozenset({5}))
    with decision_world(
        tmp_path_factory.mktemp("decisions"), cases=CASES, candidate=candidate, answers=STATED
    ) as world:
        world.cases.write_text(
            "".join(
                json.dumps(
                    {
                        "caseId": f"case-{number:02d}",
                        "groupId": f"group-{number:02d}",
                        "generation": {"prompt": f"Say something about {number}.", "maxTokens": 8},
                        "slices": [],
                    }
                )
                + "\n"
                for number in range(CASES)
            )
        )
        world.to_collecting()
        world.to_shadow_assessing()
        yield world


@pytest.fixture(scope="module")
def window(made: DecisionWorld) -> str:
    key = made.collected("window")
    scored(made, key, similar)
    return key


def judged(made: DecisionWorld, key: str, as_of: str | None = None, *, days: int = 1) -> AssessmentReport:
    """The assessment alone, without its tables and pages."""
    approved = load_approved(made.home, key)
    return assess_decision_window(made.home, approved, close(made.home, key), as_of, now() + timedelta(days=days))


@pytest.fixture(scope="module")
def report(made: DecisionWorld, window: str) -> AssessmentReport:
    """The window's assessment after its watermark, with tables and pages."""
    return assess.assess(made.home, window, now=lambda: now() + timedelta(days=1))


def test_a_decision_passes_for_stated_reasons_with_one_unknown_answer(report: AssessmentReport) -> None:
    decision = report.decision
    assert decision is not None and decision.evidence is not None
    assert decision.status == "PASS", decision.sentence
    assert (decision.evidence.rows, decision.evidence.sent_unknown, decision.evidence.scored) == (132, 1, 131)
    failures = next(item for item in decision.gates if item.id == "maximum-failure-rate")
    assert (failures.actual, failures.worst) == (0.0, pytest.approx(1 / CASES)), "widened, not collapsed"
    cost = next(item for item in decision.gates if item.id == "maximum-cost-per-thousand")
    assert cost.evidence_class == "modeled" and cost.actual is not None and cost.actual > 0


def test_the_page_says_gates_bounds_and_what_is_missing_in_words(
    made: DecisionWorld, window: str, report: AssessmentReport
) -> None:
    folder = made.home.window(window)
    assert report.decision is not None and report.decision.sentence in (folder / assess.MARKDOWN).read_text()
    for name in (assess.HTML, assess.MARKDOWN):
        page = (folder / name).read_text()
        for words in (
            "may take the traffic: every gate holds",
            "95th percentile of TTFT",
            "cost of a thousand calls",
            "1 of 132 executions were sent and nobody knows what became of them",
            "sent, and nobody knows what became of it",
            "unknown at worst / best",
        ):
            assert words in page, (name, words)


@pytest.mark.usefixtures("report")
def test_tables_and_status_show_the_decision(made: DecisionWorld, window: str) -> None:
    session = connect(made.home.root)
    assert session.execute("SELECT result FROM decisions WHERE window_key = ?", [window]).fetchall() == [("PASS",)]
    gates = dict(session.execute("SELECT gate, verdict FROM gates WHERE window_key = ?", [window]).fetchall())
    assert gates["paired-quality"] == "passed" and len(gates) == 8
    line = next(item for item in catalogue.windows(made.home, now()) if item.window_key == window)
    assert (line.stage, line.verdict, line.next_command) == ("assessed", "PASS", f"tasc report {window}")


def test_command_and_asset_agree_byte_for_byte(
    made: DecisionWorld, window: str, report: AssessmentReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    monkeypatch.setattr(assess, "assess", partial(assess.assess, now=lambda: now() + timedelta(days=2)))
    path = made.home.window(window) / REPORT
    path.unlink()
    shown = CliRunner().invoke(build("assess"), ["assess", window])
    assert shown.exit_code == 0, shown.output
    assert "PASS: candidate-llama.cpp may take the traffic" in shown.output
    assert path.read_bytes() == report.canonical()
    path.unlink()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("sealed_window", [window])
        result = dg.materialize(
            [assessments], partition_key=window, instance=instance, resources={"state": StateFolder()}
        )
    assert result.success
    assert path.read_bytes() == report.canonical()


def test_the_watermark_is_the_default_instant(made: DecisionWorld, window: str, report: AssessmentReport) -> None:
    declared = json.loads((made.home.window(window) / DECLARATION).read_bytes())
    assert report.as_of == declared["ingestionWatermark"]
    assert judged(made, window, report.as_of) == report


def test_before_the_watermark_the_window_is_stale_and_says_how_long_to_wait(made: DecisionWorld, window: str) -> None:
    found = judged(made, window, days=0)
    assert found.decision is not None and found.decision.status == "STALE"
    assert found.decision.wait_until is not None and found.as_of < found.decision.wait_until
    assert f"then: tasc assess {window}" in found.decision.sentence


def test_an_instant_that_is_still_to_come_is_refused(made: DecisionWorld, window: str) -> None:
    ahead = format_timestamp(now() + timedelta(hours=9))
    with pytest.raises(InputError, match="still to come"):
        judged(made, window, ahead, days=0)


@pytest.mark.usefixtures("report")
def test_a_window_with_worse_scores_holds_the_policy_back(made: DecisionWorld, window: str) -> None:
    key = made.collected("window")
    scored(made, key, lambda trace: similar(trace) - (0.5 if "candidate" in trace.profile_id else 0.0))
    decision = judged(made, key).decision
    assert decision is not None and decision.status == "HOLD", decision
    assert "failed.paired-quality" in decision.reasons
    assert decision.windows is not None and decision.windows.earlier_windows == (window,)
    way_out = {REPORT: f"run: tasc assess {window}", DECLARATION: f"or move windows/{window} out of the state folder"}
    for name in (REPORT, DECLARATION):  # a sequence does not go on as if an earlier window had not been
        path = made.home.window(window) / name
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(b"{")
        with pytest.raises(TascError) as refused:
            judged(made, key)
        path.unlink()
        path.write_bytes(whole)
        assert refused.value.where == window and name in refused.value.what
        assert way_out[name] in str(refused.value.way_out)
    _a_damaged_window_is_in_the_way_of_its_own_study_only(made, key)


def _a_damaged_window_is_in_the_way_of_its_own_study_only(made: DecisionWorld, key: str) -> None:
    approved, analysis = load_approved(made.home, key), made.study.analysis
    assert analysis is not None
    digests = approved.plan.record.policy_digest, analysis.record.digest
    damaged = made.home.window("other.r01-00000000")
    damaged.mkdir()
    (damaged / DECLARATION).write_text("{")
    (damaged / LINK).write_text('{"studyId": "other"}')
    assert len(earlier_decisions(made.home, approved, *digests, complete=True)) == 1
    for text in ("{", f'{{"studyId": "{STUDY}"}}'):  # whose it is, nobody can tell; or it is this study's
        (damaged / LINK).write_text(text)
        with pytest.raises(InputError, match="an earlier window cannot be read") as refused:
            earlier_decisions(made.home, approved, *digests, complete=True)
        assert refused.value.where == damaged.name
    shutil.rmtree(damaged)
    gone = [key.model_copy(update={"revoked_at": "2026-01-01T00:00:00.000Z"}) for key in approved.ring.keys]
    revoked = replace(approved, ring=approved.ring.model_copy(update={"keys": tuple(gone)}))
    with pytest.raises(InputError, match="an earlier window cannot be read") as refused:
        earlier_decisions(made.home, revoked, *digests, complete=True)
    assert f"tasc study fork {STUDY}" in str(refused.value.way_out)


def test_another_analysis_plan_than_the_collected_one_is_refused(made: DecisionWorld, window: str) -> None:
    study = load_study(made.home, STUDY)
    assert study.analysis is not None and study.study.analysis_plan is not None
    path = study.folder / study.study.analysis_plan
    before = path.read_bytes()
    try:
        path.write_bytes(study.analysis.record.model_copy(update={"confidence": 0.5}).canonical())
        with pytest.raises(DigestMismatch, match="analysisPlanDigest"):
            judged(made, window)
    finally:
        path.write_bytes(before)


def test_prices_of_another_digest_are_refused(made: DecisionWorld, window: str) -> None:
    study = load_study(made.home, STUDY)
    assert study.cost_model is not None and study.study.cost_model is not None
    path = study.folder / study.study.cost_model
    before = path.read_bytes()
    try:
        path.write_bytes(study.cost_model.record.model_copy(update={"model_id": "cheaper"}).canonical())
        with pytest.raises(DigestMismatch, match="costModelDigest"):
            judged(made, window)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"pinned_at": "2099-01-01T00:00:00.000Z"}, "pinned after the study's first window began"),
        ({"interval": "paired-group-percentile-v1"}, "goes with envelope times"),
    ],
)
def test_an_analysis_that_was_chosen_late_or_that_nothing_defines_is_refused(
    made: DecisionWorld, window: str, changes: dict[str, str], rule: str
) -> None:
    approved = load_approved(made.home, window)
    assert approved.study.analysis is not None
    analysis = approved.study.analysis.record.model_copy(update=changes)
    plan = approved.plan.record.model_copy(update={"analysis_plan_digest": analysis.digest})
    altered = replace(
        approved,
        study=replace(approved.study, analysis=Parsed(analysis, analysis.to_json())),
        plan=Parsed(plan, approved.plan.value),
    )
    with pytest.raises(InputError, match=rule):
        read_material(made.home, altered, close(made.home, window), format_timestamp(now()))


def test_an_analysis_that_changes_between_windows_is_refused_although_it_keeps_its_date(
    made: DecisionWorld, window: str
) -> None:
    study = load_study(made.home, STUDY)
    assert study.analysis is not None and study.study.analysis_plan is not None
    changed = study.analysis.record.model_copy(update={"confidence": 0.7, "seed": "another"})
    path, key = study.folder / study.study.analysis_plan, made.sealed(lead_s=600.0)
    before = path.read_bytes()
    try:
        path.write_bytes(changed.canonical())
        with pytest.raises(DigestMismatch, match=f"plan of window {window} names another analysis") as refusal:
            plan.make_plan(made.home, key, now(), write=True)
    finally:
        path.write_bytes(before)
    assert refusal.value.way_out is not None and refusal.value.way_out.endswith(f"tasc study fork {STUDY}")
    assert not (made.home.window(key) / PLAN).exists()

    approved = load_approved(made.home, window)
    issued = approved.plan.record.model_copy(update={"analysis_plan_digest": changed.digest})
    altered = replace(
        approved,
        study=replace(approved.study, analysis=Parsed(changed, changed.to_json())),
        plan=Parsed(issued, approved.plan.value),
    )
    with pytest.raises(DigestMismatch, match=f"plan of window {window} names another analysis"):
        read_material(made.home, altered, close(made.home, window), format_timestamp(now()))


@pytest.mark.parametrize(
    ("name", "field", "change"),
    [
        (SCRAPES, "scrapesDigest", lambda _: b""),
        (DEVICE_SNAPSHOTS, "deviceSnapshotsDigest", lambda data: data[: data.index(b"\n") + 1]),
        (MANIFEST, "manifestDigest", lambda data: manifest_over_other_evidence(data)),
    ],
)
def test_a_closed_window_is_not_assessed_from_less_than_its_link_names(
    made: DecisionWorld, window: str, name: str, field: str, change: Callable[[bytes], bytes]
) -> None:
    path = made.home.window(window) / name
    before = path.read_bytes()
    less = change(before)
    assert less != before
    try:
        path.write_bytes(less)
        with pytest.raises(DigestMismatch, match="not what its signed link names") as refusal:
            assess.assess(made.home, window, now=lambda: now() + timedelta(days=1))
    finally:
        path.write_bytes(before)
    assert refusal.value.field == field and "tasc verify" in (refusal.value.way_out or "")


def manifest_over_other_evidence(data: bytes) -> bytes:
    """The same window's manifest, valid in itself, over no evidence but one made-up piece."""
    record = read_record(WindowManifest, data).record
    given = {
        name: getattr(record, name) for name in WindowManifest.model_fields if name not in ("version", "self_digest")
    }
    return WindowManifest.issue(
        **given | {"evaluator_set_digest": evaluator_set_digest(["sha256:" + "8" * 64])}
    ).canonical()


def test_evidence_that_the_manifest_does_not_name_is_said_until_a_revision_names_it(
    made: DecisionWorld, window: str, report: AssessmentReport
) -> None:
    said = f"tasc seal --revise {window}"
    assert report.decision is not None and said in report.decision.sentence
    assert [text for text in report.warnings if said in text]
    over = now() + timedelta(hours=3)
    revised = seal.revise(made.home, window, over).window_key
    close(made.home, revised, now=lambda: over)
    again = judged(made, revised)
    assert again.decision is not None and again.decision.status == "PASS", again.decision
    assert again.decision.gates == report.decision.gates, "the same answers and scores: a revision draws nothing anew"
    assert "--revise" not in again.decision.sentence + " ".join(again.warnings)
    # the instant is another one and nothing came after the close: the words say exactly that
    later = judged(made, revised, format_timestamp(over + timedelta(hours=1)))
    assert later.decision is not None and later.decision.gates == again.decision.gates
    assert f"as it stood at the watermark, {again.as_of}" in later.decision.sentence
    assert (
        f"Run: tasc assess {revised}." in later.decision.sentence and "after the close" not in later.decision.sentence
    )
