"""docs/adding-a-runtime.md, step by step, for every registered profile; and docs/runtimes.md against the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contract_servers.runtimes import CONTRACTS
from tasc_collector.runtimes.flags import flags_from_value
from tasc_collector.runtimes.profile import CapabilityState, Effect
from tasc_collector.runtimes.registry import profiles
from tasc_collector.runtimes.verdict import MEANING, AnswerReason
from tasc_collector.runtimes.workflows import WORKFLOWS
from tasc_pipeline.cli.runtime_document import document
from tests.support.answers import written

ROOT = Path(__file__).resolve().parents[3]
each = pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)


@each
def test_step_1_one_released_build_is_pinned(profile):
    assert profile.build not in ("latest", "main", "")
    assert any(profile.build in item.url or profile.build in item.title for item in profile.references)
    module = ROOT / "tasc_collector" / "runtimes" / f"{profile.runtime.replace('.', '_').replace('-', '_')}.py"
    assert profile.build in module.read_text()


@each
def test_step_2_every_state_is_given_with_what_it_depends_on(profile):
    for name, claim in profile.capabilities.items():
        assert claim.reason, name
        if claim.state is not CapabilityState.CONDITIONAL:
            assert claim.requirement is None, name


@each
def test_step_3_routes_framings_and_effects_are_exact(profile):
    for route in profile.routes.values():
        assert route.request.cap_field
        assert len(set(route.framings)) == len(route.framings) == 2
    for route in profile.observations:
        assert route.effect in Effect
        assert not route.escalates_to or route.note


@each
def test_step_4_there_are_answers_written_by_hand_and_a_contract_server(profile):
    wanted = {(route, framing) for route, item in profile.routes.items() for framing in item.framings}
    for variant in ("success", "no-usage", "failure"):
        assert {(item.route, item.framing) for item in written(variant) if item.profile is profile} == wanted
    assert all(item.expected[0] != "completed" for item in (*written("no-usage"), *written("failure")))
    assert profile.runtime in CONTRACTS


@each
def test_step_5_where_the_build_can_be_read_is_said(profile):
    version = [route for route in profile.observations if route.kind == "version"]
    prints = [item.flags.fingerprint for item in profile.routes.values() if item.flags.fingerprint]
    nothing = {"lm-studio"}
    assert bool(version or prints) is (profile.runtime not in nothing)


def test_no_module_but_the_tables_asks_which_runtime_it_has():
    names = {profile.runtime for profile in profiles()}
    tables = {name.replace(".", "_").replace("-", "_") for name in names}
    for path in sorted((ROOT / "tasc_collector" / "runtimes").rglob("*.py")):
        if path.stem in tables and path.parent.name == "runtimes":
            continue
        for name in names:
            assert f'== "{name}"' not in path.read_text(), (path.name, name)


def test_the_page_equals_the_tables():
    assert (ROOT / "docs" / "runtimes.md").read_text() == document(profiles()), "run: tasc runtimes document"


def test_the_page_has_the_twelve_other_workflows():
    page = (ROOT / "docs" / "runtimes.md").read_text()
    assert [item.name for item in WORKFLOWS] == [
        "LocalAI",
        "llama-cpp-python server",
        "MLC LLM REST server",
        "Jan API server",
        "BentoML",
        "Transformers Serve",
        "Xinference",
        "NVIDIA Triton OpenAI frontend",
        "NVIDIA NIM for LLMs",
        "NVIDIA Dynamo",
        "llamafile",
        "DeepSpeed-MII",
    ]
    for item in WORKFLOWS:
        assert f"| {item.name} | {item.standing} |" in page
        for flags in item.flags.values():
            assert flags_from_value(flags)


def test_every_reason_has_a_meaning():
    assert set(MEANING) == set(AnswerReason)
