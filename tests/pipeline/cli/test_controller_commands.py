"""``tasc controller`` and ``tasc keys`` as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tasc_collector.contracts.controller import ControllerAnchor, ControllerSnapshot
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import InputError
from tasc_pipeline.cli.app import build
from tasc_pipeline.home import Home, keys
from tests.support.decision_world import STUDY, decision_world
from tests.support.window import fresh_home

Tasc = Callable[..., Result]


@pytest.fixture
def tasc(monkeypatch: pytest.MonkeyPatch) -> Tasc:
    monkeypatch.setenv("COLUMNS", "200")

    def run(home: Home, *words: str) -> Result:
        return CliRunner().invoke(build(words[0]), list(words), env={"TASC_HOME": str(home.root)})

    return run


def test_a_controller_is_shown_advanced_pinned_and_explained(tasc: Tasc, tmp_path: Path) -> None:
    with decision_world(tmp_path, cases=4) as made:
        home = made.home
        first = tasc(home, "controller", "show", STUDY)
        assert first.exit_code == 0 and first.stdout.startswith("DRAFT after 0 events; snapshot sha256:")
        assert "next: tasc controller advance choice   (records protocol-registered)" in first.stdout
        assert "collection-started is taken in REGISTERED; the controller is in DRAFT" in first.stdout
        assert tasc(home, "controller", "advance", STUDY).stdout == (
            "event 1: protocol-registered; the controller is in REGISTERED\n"
        )
        refused = tasc(home, "controller", "advance", STUDY)
        assert isinstance(refused.exception, InputError)
        assert "no decisive window has an approved plan of purpose development" in str(refused.exception)
        shown = tasc(home, "controller", "show", STUDY).stdout
        assert "waits for: no decisive window has an approved plan" in shown and "protocol-registered" in shown
        snapshot = ControllerSnapshot.from_value(json.loads(tasc(home, "controller", "show", STUDY, "--json").stdout))
        pinned = tasc(home, "controller", "show", STUDY, "--pin").stdout
        assert ControllerAnchor.from_value(json.loads(pinned)).record == snapshot.record.anchor
        (tmp_path / "anchor.json").write_text(pinned)
        assert tasc(home, "controller", "show", STUDY, "--anchor", str(tmp_path / "anchor.json")).exit_code == 0
        assert "RETIRED" in tasc(home, "controller", "advance", STUDY, "--retire", "replaced").stdout
        assert tasc(home, "controller", "advance", STUDY, "--retire", "replaced").stdout.startswith(
            "already recorded as event 2"
        )
        no_decision = tasc(home, "controller", "propose", STUDY)
        assert "the controller has recorded no decision" in str(no_decision.exception)


def test_keys_are_listed_rotated_revoked_and_taken_elsewhere(tasc: Tasc, tmp_path: Path) -> None:
    home = fresh_home(tmp_path)
    old = next(key for key in keys.read_ring(home).keys if key.role == "collector")
    for words in (("keys",), ("keys", "list")):
        listed = tasc(home, *words)
        assert listed.exit_code == 0 and old.key_id in listed.stdout and "valid" in listed.stdout
    rotated = tasc(home, "keys", "rotate", "collector", "--overlap-days", "2").stdout.splitlines()
    assert rotated[0].startswith("new collector key collector-")
    assert rotated[1].startswith(f"{old.key_id} may sign until ")
    revoked = tasc(home, "keys", "revoke", old.key_id).stdout
    assert f"{old.key_id} (collector) is revoked from " in revoked and "next: tasc keys rotate collector" in revoked
    part = tasc(home, "keys", "public", old.key_id).stdout
    assert [key.key_id for key in KeyRing.from_value(json.loads(part)).record.keys] == [old.key_id]
    (tmp_path / "ring.json").write_text(part)
    other = fresh_home(tmp_path / "other")
    taken = tasc(other, "keys", "import", str(tmp_path / "ring.json"), "--role", "collector").stdout
    assert taken.startswith(f"collector {old.key_id}: revoked from ")
    assert tasc(other, "keys", "import", str(tmp_path / "ring.json"), "--role", "collector").stdout == "nothing new\n"
    assert "one of operator, dispatch, collector, evaluator" in str(
        tasc(other, "keys", "import", str(tmp_path / "ring.json"), "--role", "boss").exception
    )
