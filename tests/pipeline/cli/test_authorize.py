"""``tasc authorize`` and what ``tasc status`` says of it: printed words, exit codes, and nothing written by a refusal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasc_pipeline.cli.app import main
from tasc_pipeline.control.authorizations import Reserved, Spend
from tasc_pipeline.home.ledger import open_ledger
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.steps.authorize import lines
from tests.support.window import World, now, world

Tasc = Callable[..., tuple[int, str]]
ROOM = ("--windows-per-day", "2", "--calls-per-day", "100", "--output-tokens-per-day", "1000")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("authorize"), cases=2, recurring=True) as found:
        yield found


@pytest.fixture
def tasc(made: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tasc:
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["tasc", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_an_authorization_from_its_first_to_its_last_word(made: World, tasc: Tasc) -> None:
    code, said = tasc("authorize", "show")
    assert code == 0 and "there is no standing authorization; next: tasc authorize new STUDY" in said
    code, said = tasc("authorize", "new", "first", *ROOM, "--id", "hourly", "--expires", "2026-13-01T00:00:00.000Z")
    assert code == 3 and "authorization: expires_at: " in said and not list(made.home.authorizations("first").glob("*"))
    code, said = tasc("authorize", "new", "first", *ROOM, "--id", "hourly")
    assert code == 0, said
    for part in ("first/hourly", "champion-vllm: champion on completions", "windowsInAll", "60", "comparison"):
        assert part in said
    assert "take it back with: tasc authorize revoke first hourly" in said
    [line] = lines(made.home, "first", now())
    with open_ledger(made.home, load_study(made.home, "first").study) as ledger:
        for name in ("w1", "w2"):
            ledger.reserve(Reserved(name, line.record.digest, now_text(), Spend(1, 14, 98, 0, None)))
    code, said = tasc("authorize", "show", "first")
    assert code == 0 and "28 of 100" in said and "196 of 1000" in said and "in force" in said
    refusal = "first: no further window now: first/hourly: ceilings.windowsPerDay: 2 of 2 windows are spent on "
    assert refusal in said
    code, said = tasc("status")
    assert code == 0 and refusal in said and "1 too many" in said
    code, said = tasc("authorize", "new", "first", *ROOM, "--id", "smaller")
    assert code == 0 and "in force beside it: hourly; what they allow adds up" in said
    code, said = tasc("authorize", "revoke", "first", "smaller")
    assert code == 0
    code, said = tasc("authorize", "revoke", "first", "hourly", "--reason", "budget-frozen")
    assert code == 0 and "first/hourly is revoked since " in said and "stop it with SIGTERM" in " ".join(said.split())
    code, said = tasc("authorize", "show", "first")
    assert code == 0 and "was revoked" in said and "(budget-frozen)" in said


def now_text() -> str:
    from tasc_collector.contracts.scalars import format_timestamp

    return format_timestamp(now())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new", "nobody", *ROOM), "there is no such study"),
        (("new", "first", *ROOM, "--canary-calls-per-day", "2"), "a count of canary calls without their effect"),
        (("new", "first", *ROOM, "--purpose", "telepathy"), "there is no such purpose"),
        (("new", "first", *ROOM, "--purpose", "holdout"), "collects nothing for purpose holdout"),
        (("new", "first", *ROOM, "--cost-usd-per-day", "1"), "a ceiling on cost needs a cost model"),
        (("new", "first", *ROOM, "--expires", "2020-01-01T00:00:00.000Z"), "this instant is over"),
        (("new", "first", *ROOM, "--expires", "tomorrow"), "authorization: expires_at: "),
        (("new", "first", *ROOM, "--id", "Über"), "authorization: authorization_id: "),
        (("new", "first", *ROOM, "--windows-in-all", str(2**60)), "ceilings: windows_in_all: "),
        (("revoke", "first", "nothing"), "there is no such standing authorization"),
        (("show", "nobody"), "there is no such study"),
    ],
)
def test_a_refusal_is_one_message_with_a_way_out_and_writes_nothing(
    made: World, tasc: Tasc, words: tuple[str, ...], said: str
) -> None:
    before = sorted(made.home.authorizations("first").glob("*"))
    code, text = tasc("authorize", *words)
    assert code == 3 and said in text and " -> " in text and "Traceback" not in text, text
    assert sorted(Path(made.home.authorizations("first")).glob("*")) == before
