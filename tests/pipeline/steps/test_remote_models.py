"""Ollama answers a cloud model from another host even on 127.0.0.1: no study, plan or run lets a prompt go there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.errors import NotAuthorized
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_collector.runtimes.registry import get_profile
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps import assess, close, collect, plan, publish, seal
from tasc_pipeline.steps.admission import admission
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tasc_pipeline.steps.probe import ProbeOptions, probe_endpoint
from tasc_pipeline.warehouse.database import connect
from tests.support.window import QUICK, World, fresh_home, now, world

pytestmark = pytest.mark.usefixtures("undrawn")

PASSED_ON = "a model whose name ends in :cloud or -cloud is answered by a remote host"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, cases=2, runtimes=("ollama", "ollama")) as found:
        yield found


def sealed(made: World) -> str:
    return seal.seal(made.home, "first", seal.SealOptions(lead_s=0.3), now()).window_key


def wanted(home: Home, server: ContractServer, model: str | None) -> NewStudy:
    prompts = home.root / "prompts.txt"
    prompts.write_text("Say something.\n")
    return NewStudy("cloud", "tests", Server(server.origin, model=model), (Server(server.origin),), prompts)


def test_no_study_is_made_on_a_declared_cloud_model(tmp_path: Path) -> None:
    home = fresh_home(tmp_path)
    with ContractServer("ollama", behaviour=QUICK) as server:
        with pytest.raises(NotAuthorized) as refused:
            new_study(home, wanted(home, server, "big:cloud"), now())
        assert refused.value.way_out == "pull a model to this host and name it: --champion-model or --candidate-model"
        assert server.ledger.inference_calls == 0
    assert not home.study("cloud").exists()


def test_no_study_is_made_where_the_server_has_only_a_cloud_model(tmp_path: Path) -> None:
    home = fresh_home(tmp_path)
    with ContractServer("ollama", behaviour=Behaviour(model="big:480b-cloud")) as server:
        with pytest.raises(NotAuthorized, match="passes this model on to a remote host"):
            new_study(home, wanted(home, server, "big:480b-cloud"), now())
        assert server.ledger.inference_calls == 0


def test_a_study_that_was_edited_to_a_cloud_model_is_never_planned(made: World) -> None:
    for name in ("endpoints/champion.toml", "endpoints/candidate.toml", "comparison.json"):
        file = made.home.study("first") / name
        text = file.read_text()
        assert made.champion.model in text
        file.write_text(text.replace(made.champion.model, "big:cloud"))
    key = sealed(made)
    for ask in (
        lambda: plan.make_plan(made.home, key, now(), write=True),
        lambda: plan.missing_receipt(made.home, key, now()),
    ):
        with pytest.raises(NotAuthorized) as refused:
            ask()
        assert (refused.value.where, refused.value.rule) == ("champion", PASSED_ON)
        assert refused.value.way_out is not None and refused.value.way_out.startswith("load or pull the model")
    assert not (made.home.window(key) / "plan.json").exists()
    assert made.inference_calls == (0, 0)


def test_a_planned_cloud_model_is_refused_at_run_time_on_a_route_that_needs_no_receipt(made: World) -> None:
    issued = load_approved(made.home, made.approved_window()).plan.record
    profile, target = get_profile("ollama", "0.32.5"), issued.targets[0]
    assert (target.route, admission(profile, target, (), issued.issued_at)) == ("nativeGenerate", None)
    passed_on = target.model_copy(update={"model": target.model.model_copy(update={"id": "big:cloud"})})
    with pytest.raises(NotAuthorized, match="is answered by a remote host"):
        admission(profile, passed_on, (), issued.issued_at)


def test_a_model_that_a_receipt_saw_as_remote_is_not_planned_until_a_newer_receipt_saw_it_local(made: World) -> None:
    made.champion.behaviour = Behaviour(fault="remote-model")
    canary = ProbeOptions(Effect.INFERENCE_CANARY)
    seen = probe_endpoint(made.home, "first", "champion", Capability.NATIVE_GENERATE, canary).receipt
    assert (seen.state, seen.reason) == ("unknown", "remote-model")
    key, before = sealed(made), made.inference_calls
    with pytest.raises(NotAuthorized) as refused:
        plan.make_plan(made.home, key, now(), write=True)
    assert refused.value.rule == "its newest receipt of nativeGenerate says remote-model"
    assert refused.value.way_out == (
        "pull a model to this host, then run: tasc probe first/champion nativeGenerate --effect inference-canary"
    )
    assert made.inference_calls == before
    made.champion.behaviour = QUICK
    probe_endpoint(made.home, "first", "champion", Capability.NATIVE_GENERATE, canary)
    issued, _ = plan.make_plan(made.home, key, now(), write=True)
    assert issued.window_key == key


def test_a_model_that_became_an_alias_of_a_cloud_model_after_the_plan_is_no_success_and_is_said(made: World) -> None:
    """Nothing passive tells of it before the first call; every answer names the remote host, and none of them counts."""
    key = made.approved_window()
    made.candidate.behaviour = Behaviour(ttft_ms=2, itl_ms=0.5, tokens=6, fault="remote-model")
    collected = collect.collect(made.home, key, show=lambda _: None)
    assert collected.states == {"success": 2, "failure": 2}
    publish.publish(made.home, key)
    close.close(made.home, key)
    with connect(made.home.root) as session:
        seen = session.execute(
            "SELECT role, status, count(*), any_value(failure_category) FROM traces GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert seen == [("candidate", "failure", 2, "protocol-violation"), ("champion", "success", 2, None)]
    report = assess.assess(made.home, key)
    [found] = report.comparisons
    assert found.failures.difference == 1.0
    assert found.verdict in ("undecided", "worse")
