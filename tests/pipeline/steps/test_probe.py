"""Receipts from probe to admission: a chat window is planned, pinned and collected only with receipts that hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasc_collector.contract_servers import Behaviour
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized, SignatureError, TascError
from tasc_collector.runtimes.profile import Capability, Effect, Framing
from tasc_pipeline.cli import probe as probe_command
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.steps import collect, plan, publish, seal
from tasc_pipeline.steps.admission import select_receipts
from tasc_pipeline.steps.approved import load_approved, load_receipts
from tasc_pipeline.steps.probe import ProbeOptions, StoredProbe, probe_endpoint
from tasc_pipeline.steps.spending import ProbeWord
from tasc_pipeline.warehouse.database import connect
from tests.support.authorized import authorized
from tests.support.window import World, now, world

CHAT = Capability.CHAT_COMPLETIONS
CANARY = ProbeOptions(Effect.INFERENCE_CANARY)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, cases=2, recurring=True, route="chatCompletions") as found:
        yield found


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


def probed(made: World, alias: str, options: ProbeOptions = CANARY, capability: Capability = CHAT) -> StoredProbe:
    return probe_endpoint(made.home, "first", alias, capability, options)


def sealed(made: World) -> str:
    return seal.seal(made.home, "first", seal.SealOptions(lead_s=0.3), now()).window_key


def refusal_of(made: World) -> str:
    """What planning a new window says."""
    with pytest.raises(NotAuthorized) as refused:
        plan.make_plan(made.home, sealed(made), now(), write=True)
    return str(refused.value)


def both(made: World) -> tuple[StoredProbe, StoredProbe]:
    return probed(made, "champion"), probed(made, "candidate")


def test_a_chat_window_runs_on_receipts_and_pins_them(made: World) -> None:
    champion, candidate = both(made)
    extra = probed(made, "champion", ProbeOptions(Effect.NON_MUTATING), Capability.LIVENESS)
    key = made.approved_window()
    pinned = {
        target.profile_id: target.capability_receipt_digests
        for target in load_approved(made.home, key).plan.record.targets
    }
    assert pinned == {
        "candidate-llama.cpp": (candidate.receipt.digest,),
        "champion-vllm": tuple(sorted([champion.receipt.digest, extra.receipt.digest])),
    }
    assert collect.collect(made.home, key, show=nothing).states == {"success": 4}
    assert made.inference_calls == (4, 4), "two cases, one warm-up, one canary each"


def test_without_a_receipt_the_refusal_names_the_command_that_obtains_one(made: World) -> None:
    text = refusal_of(made)
    assert "there is no receipt" in text
    assert "run: tasc probe first/candidate chatCompletions --effect inference-canary" in text or (
        "run: tasc probe first/champion chatCompletions --effect inference-canary" in text
    )
    assert made.inference_calls == (0, 0)


def test_a_failed_canary_admits_nothing(made: World) -> None:
    probed(made, "champion")
    made.candidate.behaviour = Behaviour(fault="server-error")
    assert probed(made, "candidate").receipt.state == "unknown"
    assert "its newest receipt says unknown (unexpected-status)" in refusal_of(made)


def test_a_receipt_of_another_framing_admits_nothing(made: World) -> None:
    probed(made, "champion")
    probed(made, "candidate", ProbeOptions(Effect.INFERENCE_CANARY, framing=Framing.JSON))
    assert "for framing json, the study uses sse" in refusal_of(made)


def test_a_receipt_that_ends_before_the_windows_last_call_admits_nothing(made: World) -> None:
    probed(made, "champion")
    probed(made, "candidate", ProbeOptions(Effect.INFERENCE_CANARY, valid_hours=0.01))
    assert "ends before the window's last call" in refusal_of(made)


def test_an_expired_receipt_is_said_to_have_expired(made: World) -> None:
    both(made)
    loaded = load_study(made.home, "first")
    later = plan.format_timestamp(now() + timedelta(hours=25))
    with pytest.raises(NotAuthorized, match="its receipt expired at"):
        select_receipts(made.home, loaded, later)


def test_a_receipt_of_another_endpoint_admits_nothing(made: World) -> None:
    champion, candidate = both(made)
    candidate.path.unlink()
    assert "for another endpoint_binding_digest" in refusal_of(made)
    assert champion.path.is_file()


def test_a_receipt_file_that_was_tampered_with_is_not_used(made: World) -> None:
    probed(made, "champion")
    done = probed(made, "candidate")
    done.path.write_bytes(done.path.read_bytes().replace(b'"supported"', b'"unsupported"'))
    assert f"the receipt file {done.path.name} cannot be trusted" in refusal_of(made)


def test_a_receipt_that_another_key_signed_is_not_used(made: World) -> None:
    probed(made, "champion")
    done = probed(made, "candidate")
    value = json.loads(done.path.read_bytes())
    signature = value["signature"]["signature"]
    value["signature"]["signature"] = ("B" if signature[0] != "B" else "C") + signature[1:]
    done.path.write_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
    found = receipts.stored(made.home, keys.read_ring(made.home))
    assert found.untrusted == (done.path.name,)


def test_a_pinned_receipt_that_is_gone_or_changed_stops_the_window_before_anything_is_sent(made: World) -> None:
    _, candidate = both(made)
    key = made.approved_window()
    sent = made.inference_calls
    content = candidate.path.read_bytes()
    candidate.path.unlink()
    with pytest.raises(InputError, match="a receipt that the plan pins is missing"):
        collect.collect(made.home, key, show=nothing)
    candidate.path.write_bytes(content.replace(b'"sse"', b'"json"'))
    with pytest.raises((DigestMismatch, SignatureError)):
        collect.collect(made.home, key, show=nothing)
    with pytest.raises(TascError):
        load_receipts(made.home, key)
    assert made.inference_calls == sent


def test_the_newest_of_several_receipts_is_pinned(made: World) -> None:
    both(made)
    newest = probed(made, "candidate")
    pinned = select_receipts(made.home, load_study(made.home, "first"), plan.format_timestamp(now()))
    assert pinned["candidate-llama.cpp"] == (newest.receipt.digest,)


def test_an_unknown_endpoint_and_a_missing_study_are_refused(made: World) -> None:
    with pytest.raises(InputError, match="use one of candidate, champion"):
        probe_endpoint(made.home, "first", "nobody", CHAT, CANARY)
    with pytest.raises(InputError, match="no such study"):
        probe_endpoint(made.home, "elsewhere", "champion", CHAT, CANARY)
    assert made.inference_calls == (0, 0)


def test_scrapes_bracket_the_window_and_are_published(made: World) -> None:
    both(made)
    key = made.approved_window()
    collect.collect(made.home, key, show=nothing)
    publish.publish(made.home, key)
    rows = (
        connect(made.home.root)
        .sql(
            "SELECT endpoint_alias, phase, max(value) FROM metric_samples WHERE metric = 'prompt-tokens-total'"
            " AND phase <> 'during' GROUP BY ALL ORDER BY ALL"
        )
        .fetchall()
    )
    assert [row[:2] for row in rows] == [
        ("candidate", "after"), ("candidate", "before"), ("champion", "after"), ("champion", "before"),
    ]  # fmt: skip
    by = {(alias, phase): value for alias, phase, value in rows}
    assert by["champion", "after"] > by["champion", "before"] > 0


# --- the command ---------------------------------------------------------------------------------------------------


def run(made: World, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, BaseException | None]:
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    app = typer.Typer()
    app.callback()(lambda: None)
    probe_command.register(app)
    done = CliRunner().invoke(app, ["probe", *arguments])
    return done.exit_code, done.output, done.exception


def test_the_command_prints_and_stores_one_receipt(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(made, monkeypatch, "first/champion", "chatCompletions", "--effect", "inference-canary")
    assert code == 0
    assert "chatCompletions: supported (observed)" in text
    assert len(list(made.home.receipts.glob("*.json"))) == 1
    assert "127.0.0.1" not in text


def test_the_command_says_beforehand_that_a_seed_takes_two_calls(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(made, monkeypatch, "champion", "seedDeterminism", "--effect", "inference-canary")
    first = " ".join(text.split())
    assert first.startswith("asks for 2 inference call(s) of champion, at most 32 output tokens")
    assert "inference-canary, 2 inference call(s)" in text
    assert made.inference_calls == (2, 0)
    assert code == 0


def test_a_standing_authorization_is_charged_with_both_calls_of_a_seed(made: World) -> None:
    authorized(made.home, effects=("inference-canary",), canary_calls_per_day=1)
    word = ProbeWord("hourly", "seed-1")
    with pytest.raises(NotAuthorized):
        probed(made, "champion", replace(CANARY, word=word), Capability.SEED_DETERMINISM)
    assert made.inference_calls == (0, 0), "one call a day does not pay for two"
    authorized(made.home, effects=("inference-canary",), canary_calls_per_day=2, authorization_id="two")
    probed(made, "champion", replace(CANARY, word=replace(word, authorization_id="two")), Capability.SEED_DETERMINISM)
    spent = read_entries(made.home, load_study(made.home, "first").study)["seed-1"].counted
    assert (spent.calls, spent.output_tokens, spent.canary_calls) == (2, 32, 2)
    assert made.inference_calls == (2, 0)


def test_with_one_study_the_alias_is_enough(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(made, monkeypatch, "candidate", "liveness", "--effect", "non-mutating")
    assert code == 0
    assert "not proved" in text
    assert made.inference_calls == (0, 0)


def test_a_probe_that_shows_nothing_fails_and_keeps_its_receipt(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made.champion.behaviour = Behaviour(fault="not-found")
    code, text, _ = run(made, monkeypatch, "champion", "chatCompletions", "--effect", "inference-canary")
    assert code == 1
    assert "chatCompletions: unsupported (route-absent)" in text
    assert len(list(made.home.receipts.glob("*.json"))) == 1


def test_an_effect_that_is_not_the_probes_own_sends_nothing(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, error = run(made, monkeypatch, "champion", "chatCompletions", "--effect", "non-mutating")
    assert code == 1
    assert isinstance(error, NotAuthorized)
    assert list(made.home.receipts.glob("*.json")) == []
    assert made.inference_calls == (0, 0)


def test_a_validity_of_more_than_a_week_is_refused(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, error = run(
        made, monkeypatch, "champion", "chatCompletions", "--effect", "inference-canary", "--valid-hours", "200"
    )
    assert code == 1
    assert isinstance(error, InputError)
    assert made.inference_calls == (0, 0)
