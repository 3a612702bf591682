"""A decision study is asked for, written, forked and validated; nothing is written before everything is right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_collector.contracts.policy import policy_conflict
from tasc_collector.contracts.study import StudyFork
from tasc_collector.errors import InputError
from tasc_collector.signing import SigningKey
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.steps.decision_answers import read_answers
from tasc_pipeline.steps.fork_study import fork_study
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tasc_pipeline.steps.validate import check_files
from tests.support.decision_world import ANSWERS, STUDY, DecisionWorld, decision_world, write_answers
from tests.support.window import World, now, world

GATES = (
    "minimum_mean_score",
    "non_inferiority_margin",
    "maximum_failure_rate",
    "maximum_p95_ttft_ms",
    "maximum_p95_end_to_end_ms",
    "maximum_cost_per_thousand_requests_usd",
    "minimum_evidence_coverage",
    "minimum_independent_groups",
)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DecisionWorld]:
    with decision_world(tmp_path) as found:
        yield found


@pytest.fixture
def comparison(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("option", "field"), [({"recurring": True}, "--recurring"), ({"failure_margin": 0.001}, "--failure-margin")]
)
def test_an_option_of_a_comparison_is_refused_with_the_answer_that_stands_for_it(
    made: DecisionWorld, tmp_path: Path, option: dict[str, object], field: str
) -> None:
    answers = read_answers(write_answers(tmp_path, SigningKey.generate()), ())
    server = Server("http://127.0.0.1:9")
    wanted = NewStudy("other", "tests", server, (server,), tmp_path / "cases", answers=answers, **option)
    with pytest.raises(
        InputError, match=r"statistics.sequential *= *true|sequential = true under \[statistics\]"
    ) as refusal:
        new_study(made.home, wanted, now())
    assert refusal.value.field == field
    assert not made.home.study("other").exists()


def test_every_missing_answer_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "answers.toml"
    path.write_text("[evaluator]\nevaluator_id = 'scorer'\n[cost]\nunavailable = true\n")
    with pytest.raises(InputError) as refusal:
        read_answers(path, ("gates.minimum_mean_score=0.8",))
    rule = refusal.value.rule or ""
    names = rule.split(", ")
    assert refusal.value.what == f"{len(names)} answers are missing"
    assert [name for name in names if name.startswith("gates.")] == [f"gates.{name}" for name in GATES[1:]]
    assert "evaluator.rubric_version" in names and "evaluator.evaluator_id" not in names
    assert "route_signal.thresholds" in names
    assert not any(name.startswith("cost.") for name in names)
    assert "--answers" in (refusal.value.way_out or "")


def test_with_no_answer_at_all_prices_are_asked_for_too() -> None:
    with pytest.raises(InputError) as refusal:
        read_answers(None, ())
    assert {"cost.champion", "cost.candidate"} <= set((refusal.value.rule or "").split(", "))


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("gates.minimum_mean_score=1.5", "minimum_mean_score"),
        ("gates.speed=3", "speed"),
        ("evaluator.calibration_digest=unknown", "calibration_digest"),
        ("split.bucket_count=1", "bucket_count"),
        ("noise", "--answer"),
    ],
)
def test_a_wrong_answer_is_named(tmp_path: Path, flag: str, field: str) -> None:
    path = write_answers(tmp_path, SigningKey.generate())
    with pytest.raises(InputError) as refusal:
        read_answers(path, (flag,))
    assert field in f"{refusal.value.where} {refusal.value.field}"
    assert refusal.value.way_out


def test_a_flag_wins_over_the_file_and_defaults_are_marked(tmp_path: Path) -> None:
    path = write_answers(tmp_path, SigningKey.generate())
    answers = read_answers(path, ("gates.maximum_failure_rate=0.5", "split.holdout_buckets=2"))
    assert (answers.gates.maximum_failure_rate, answers.split.holdout_buckets) == (0.5, 2)
    assert "split.bucket_count" in answers.left_at_default
    assert "split.holdout_buckets" not in answers.left_at_default
    assert "gates.maximum_failure_rate" not in answers.left_at_default


def test_a_decision_study_computes_every_digest(made: DecisionWorld) -> None:
    study = made.study
    assert study.protocol is not None and study.analysis is not None and study.cost_model is not None
    protocol = study.protocol.record
    assert sorted(policy.kind for policy in study.policies.values()) == ["cascade", "expert-only", "fast-only"]
    assert {policy_conflict(policy, protocol) for policy in study.policies.values()} == {None}
    assert study.analysis.record.protocol_digest == protocol.digest
    assert protocol.cost_allocation.kind == "modeled"
    assert protocol.cost_allocation.model_digest == study.cost_model.record.digest
    assert protocol.evaluator.required_trusted_key_ids == ("scorer-1",)
    assert protocol.split_membership.holdout_buckets == (7, 8, 9)
    assert study.study.window.window_class == "decisive"
    assert {endpoint.runtime_basis for endpoint in study.endpoints.values()} <= {"observed", "unknown"}
    assert {endpoint.configuration_basis for endpoint in study.endpoints.values()} == {"declared"}


def test_every_file_of_both_kinds_is_valid(made: DecisionWorld) -> None:
    files = sorted(path for path in made.study.folder.rglob("*") if path.is_file())
    checked = list(check_files(files))
    assert [str(item.error) for item in checked if item.error is not None] == []
    assert [item.path for item in checked] == files
    assert {item.kind for item in checked} == {
        "AnalysisPlan",
        "CollectorTrustPolicy",
        "CostModel",
        "DecisionAnswers",
        "EndpointFile",
        "EvaluatorTrustSnapshot",
        "ExperimentProtocol",
        "PolicyBundle",
        "Study",
    }


def test_a_scorer_that_no_key_may_sign_for_is_refused_and_nothing_is_written(made: DecisionWorld) -> None:
    answers = made.answers.model_copy(
        update={"evaluator": made.answers.evaluator.model_copy(update={"rubric_version": "rubric 4"})}
    )
    wanted = NewStudy(
        "second", "tests", Server(made.champion.origin), (Server(made.candidate.origin),), made.cases, answers=answers
    )
    with pytest.raises(InputError, match="no trusted key may sign"):
        new_study(made.home, wanted, now())
    assert not made.home.study("second").exists()


def test_a_successor_names_its_predecessor_and_what_changed(comparison: World) -> None:
    before = load_study(comparison.home, "first")
    assert before.comparison is not None
    outcome = fork_study(
        comparison.home, "first", ("candidate.backend_build=b10200", "replicates=3", "margins.ttft_ratio=1.2"), now()
    )
    fork = read_record_file(StudyFork, outcome.folder / "fork.json").record
    after = load_study(comparison.home, "first-2")
    assert after.comparison is not None and after.fork == fork
    assert (fork.lineage_id, fork.predecessor_study_id) == ("first", "first")
    assert (fork.predecessor_digest, fork.protocol_digest) == (before.protocol_digest, after.protocol_digest)
    changed = {change.field: (change.before, change.after) for change in fork.changes}
    assert changed.pop("candidate.configuration")[0] == before.endpoints["candidate-llama.cpp"].configuration_digest
    assert changed == {
        "candidate.backend_build": ("unknown", "b10200"),
        "margins.ttft_ratio": ("1.1", "1.2"),
        "replicates": ("1", "3"),
    }
    endpoint = after.endpoints["candidate-llama.cpp"]
    assert (endpoint.backend.build, endpoint.backend_basis) == ("b10200", "declared")
    assert after.comparison.record.predecessor_digest == before.protocol_digest
    assert after.comparison.record.comparison_version == "v2"
    assert after.comparison.record.shadow_collection.maximum_logical_executions == 6 * 3 * 2
    third = fork_study(comparison.home, "first-2", ("candidate.backend_build=b10300",), now()).fork
    assert (third.study_id, third.lineage_id, third.predecessor_study_id) == ("first-3", "first", "first-2")


def test_a_decision_is_forked_with_its_policies_and_plans_made_again(made: DecisionWorld) -> None:
    outcome = fork_study(made.home, STUDY, ("gates.maximum_failure_rate=0.01",), now(), successor="choice-b")
    after = load_study(made.home, "choice-b")
    assert after.protocol is not None and after.analysis is not None and after.cost_model is not None
    assert after.protocol.record.gates.maximum_failure_rate == 0.01
    assert after.analysis.record.protocol_digest == after.protocol_digest
    assert {policy.protocol_digest for policy in after.policies.values()} == {after.protocol_digest}
    assert len(after.policies) == 3
    assert after.evaluator_trust == made.study.evaluator_trust
    assert outcome.fork.predecessor_digest == made.study.protocol_digest


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ((), "nothing changes"),
        (("replicates=1",), "this is its value already"),
        (("champion.speed=9",), "names nothing"),
        (("champion_profile_id=x",), "names nothing"),
        (("margins.nothing=2",), "names nothing"),
        (("replicates=lots",), "valid integer"),
        (("champion.build=9.99.9",), "registered at"),
        (("champion.runtime=tgi", "champion.build=3.3.7"), "no route"),
    ],
)
def test_a_setting_that_is_wrong_writes_nothing(comparison: World, settings: tuple[str, ...], what: str) -> None:
    with pytest.raises(InputError) as refusal:
        fork_study(comparison.home, "first", settings, now())
    assert what in str(refusal.value)
    assert refusal.value.way_out
    assert not comparison.home.study("first-2").exists()


def test_origins_and_references_stay_in_the_endpoint_file(comparison: World) -> None:
    fork = fork_study(comparison.home, "first", ("candidate.url=http://127.0.0.1:9",), now()).fork
    assert [(change.field, change.before, change.after) for change in fork.changes] == [("candidate.url", None, None)]
    assert load_study(comparison.home, "first-2").endpoints["candidate-llama.cpp"].origin == "http://127.0.0.1:9"


def test_every_wrong_file_is_named_and_the_others_are_still_checked(tmp_path: Path, comparison: World) -> None:
    good = comparison.home.study("first") / "comparison.json"
    broken = tmp_path / "broken.json"
    value = json.loads(good.read_bytes())
    value["replicates"] = "two"
    broken.write_text(json.dumps(value))
    toml = tmp_path / "study.toml"
    toml.write_text((comparison.home.study("first") / "study.toml").read_text().replace('kind = "comparison"', ""))
    lines = tmp_path / "two.ndjson"
    lines.write_bytes(good.read_bytes().strip() + b"\n" + b"{}\n")
    nameless = tmp_path / "other.toml"
    nameless.write_text("a = 1\n")
    found = {item.path: item for item in check_files([broken, toml, lines, nameless, tmp_path / "none.json", good])}
    errors = {path: item.error for path, item in found.items()}
    assert errors[good] is None
    for path, field in ((broken, "replicates"), (toml, "kind"), (lines, "version"), (nameless, "version")):
        error = errors[path]
        assert error is not None and error.field == field and error.way_out
        assert path.name in str(error.where)
    assert str(errors[lines]).startswith(f"{lines} line 2")
    assert "no such file" in str(errors[tmp_path / "none.json"])


def test_a_recipe_of_an_engine_is_checked_by_its_own_rules(tmp_path: Path) -> None:
    text = (
        'schema = "tasc-engine-recipe-v1"\nname = "champion"\nengine = "llamacpp"\nmodel = "tiny.gguf"\n'
        'served_model_name = "tiny"\n'
    )
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(text)
    bad.write_text(text + "port = 70000\n")
    found, wrong = check_files([good, bad])
    assert found.error is None and found.kind == "Recipe"
    assert found.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert wrong.error is not None and wrong.error.way_out
    assert wrong.error.field == "port" and "bad.toml" in str(wrong.error.where)


def test_the_answers_of_the_example_are_complete() -> None:
    assert read_answers(Path(__file__).parents[3] / "examples/decision/answers.toml", ()).left_at_default
    assert "[gates]" in ANSWERS
