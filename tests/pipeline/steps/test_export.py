"""An exported trace set is one that the original project accepts, as far as its facts state its rules (``original_rules``)."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from tasc_collector.contract_servers import ContractServer
from tasc_pipeline.cli import main
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import WindowFolder
from tasc_pipeline.steps import close, collect, plan, seal
from tasc_pipeline.steps.approved import key_ring, load_approved
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tests.support.decision_world import decision_world
from tests.support.original_rules import Rules, broken
from tests.support.window import QUICK, fresh_home, now


def exported(home: Home, key: str, to: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Lines of ``tasc export traces``."""
    monkeypatch.setenv("TASC_HOME", str(home.root))
    monkeypatch.setattr("sys.argv", ["tasc", "export", "traces", key, "--out", str(to)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return to.read_bytes().splitlines(keepends=True)


def rules_of(home: Home, key: str, *, manifest: bool = True) -> Rules:
    """What the set is held to, from the files of study and window."""
    approved, folder = load_approved(home, key), WindowFolder(home, key)
    study, record = approved.study.study, approved.plan.record
    payload = (study.keys.payload_key_id, keys.hmac_key(home, study.keys.payload_hmac))
    return Rules(
        orjson.loads(approved.study.rules.canonical()),
        record.protocol_digest,
        orjson.loads(folder.manifest().canonical()) if manifest else None,
        record.shadow_run_plan,
        payload,
    )


def test_a_window_with_every_kind_of_end_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fresh_home(tmp_path)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"Say something about the number {number}.\n" for number in range(3)))
    with ExitStack() as stack:
        faults = (None, "error-then-done", "reset-mid-body", None)
        servers = [
            stack.enter_context(ContractServer("vllm", behaviour=replace(QUICK, fault=fault))) for fault in faults
        ]
        sound, *others = [Server(server.origin) for server in servers]
        wanted = NewStudy("first", "tests", sound, tuple(others), prompts, replicates=1, warm_up=1, seed=None)
        new_study(home, wanted, now())
        at = now()
        key = seal.seal(home, "first", seal.SealOptions(lead_s=0.3), at).window_key
        made, _ = plan.make_plan(home, key, at, write=True)
        plan.approve(home, key, made.digest, at)
        servers[3].stop()
        result = collect.collect(home, key, show=lambda _: None)
        link = close.close(home, key).link
    refused = {name: result.states.pop(name, 0) for name in ("not_sent", "not_attempted")}  # until the lane stops
    assert result.states == {"success": 3, "failure": 3, "sent_unknown": 3}
    assert refused["not_sent"] >= 1 and sum(refused.values()) == 3
    lines = exported(home, key, tmp_path / "traces.ndjson", monkeypatch)
    assert broken(lines, rules_of(home, key)) == []
    last = [orjson.loads(line)["attempts"][-1] for line in lines]
    assert Counter((attempt["dispatchState"], attempt["status"]) for attempt in last) == {
        ("completed", "success"): 3,
        ("completed", "failure"): 3,
        ("sent_unknown", "failure"): 3,
    }
    counts = link.counts
    assert (counts.planned, counts.accepted) == (12, len(lines))
    assert {"not_sent": counts.not_sent, "not_attempted": counts.not_attempted} == refused
    assert counts.planned == counts.accepted + counts.not_sent + counts.not_attempted == result.planned


def test_the_sets_of_a_decision_study_are_accepted_with_protocol_manifest_and_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with decision_world(tmp_path, cases=4, candidate=replace(QUICK, fault="error-then-done")) as made:
        made.to_collecting()
        development = made.collected("development")
        made.to_shadow_assessing()
        window = made.collected("window")
    for key, online in ((development, False), (window, True)):
        lines = exported(made.home, key, tmp_path / f"{key}.ndjson", monkeypatch)
        rules = rules_of(made.home, key, manifest=online)
        assert (rules.plan is not None) is online
        assert broken(lines, rules) == []
        counts = WindowFolder(made.home, key).link(key_ring(made.home)).record.counts
        assert counts.planned == counts.accepted == len(lines) > 0
        assert {orjson.loads(line)["attempts"][-1]["status"] for line in lines} == {"success", "failure"}
