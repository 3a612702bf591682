"""A load model that follows a trace of arrivals, from the study's file to the calls that the servers count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.shadow.arrivals import arrivals_digest
from tasc_pipeline.cli import main
from tasc_pipeline.steps import collect, plan, seal
from tasc_pipeline.steps.arrival_trace import ARRIVALS
from tasc_pipeline.warehouse.database import connect
from tests.support.window import World, now, world

OFFSETS = (0.0, 0.0, 0.15, 0.4)
LINES = "0\n0.0\n\n0.15\r\n0.4\n"


def follow(made: World, digest: str = arrivals_digest(OFFSETS)) -> Path:
    """Let the study follow a trace of arrivals; the path of the file."""
    study = made.home.study("first")
    text = (study / "study.toml").read_text()
    closed = '[load_model]\nkind = "closed"\nconcurrency = 2\n'
    assert closed in text
    opened = f'[load_model]\nkind = "open"\narrival = "trace"\ntrace_digest = "{digest}"\nmaximum_concurrency = 2\n'
    (study / "study.toml").write_text(text.replace(closed, opened))
    (study / ARRIVALS).write_bytes(LINES.encode())
    return study / ARRIVALS


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, cases=4, warm_up=0) as found:
        yield found


def approved_window(made: World) -> str:
    key = seal.seal(made.home, "first", seal.SealOptions(lead_s=0.0), now()).window_key
    issued, estimate = plan.make_plan(made.home, key, now(), write=True)
    assert (issued.load_model.kind, estimate.minutes) == ("open", round(OFFSETS[-1] / 60, 2))
    plan.approve(made.home, key, issued.digest, now())
    return key


def tasc(made: World, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run a command; its exit code."""
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    monkeypatch.setattr("sys.argv", ["tasc", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_pairs_start_when_the_trace_says(
    made: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(made)
    key = approved_window(made)
    assert tasc(made, monkeypatch, "collect", key) == 0
    assert "8 success" in capsys.readouterr().out
    assert made.inference_calls == (4, 4)
    # a call's queue time counts from its scheduled arrival, so its start less its queue time is that arrival
    due = connect(made.home.root).sql(
        "SELECT min(epoch_ms(a.started_at) - a.request_started_ns / 1e6) FROM attempts a JOIN traces t USING (trace_id) "
        "GROUP BY t.case_id ORDER BY 1"
    )
    found = [row[0] for row in due.fetchall()]
    assert [(at - found[0]) / 1_000 for at in found] == pytest.approx(OFFSETS, abs=0.01)


def test_the_step_follows_it_too_and_a_second_run_sends_nothing(made: World) -> None:
    follow(made)
    key = approved_window(made)
    assert collect.collect(made.home, key, show=lambda _: None).states == {"success": 8}
    assert collect.collect(made.home, key, show=lambda _: None).sent_calls == 0
    assert made.inference_calls == (4, 4)


BAD_LINES = (
    (b"0\n1\nsoon\n", "first/arrivals.txt:3", "one decimal number per line"),
    (b"0\n\n2\n1.5\n", "first/arrivals.txt:4", "not decreasing"),
    (b"-1\n", "first/arrivals.txt:1", "seconds from 0 on"),
    (b"0\n1_0\n", "first/arrivals.txt:2", "one decimal number per line"),
    (b"0\n\xff\n", "first/arrivals.txt:2", "one decimal number per line"),
)


def test_a_bad_line_is_named_with_file_line_rule_and_way_out(
    made: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = follow(made)
    key = approved_window(made)
    for content, place, rule in BAD_LINES:
        path.write_bytes(content)
        assert tasc(made, monkeypatch, "collect", key) == 3
        message = capsys.readouterr().err
        assert f"refused: {place}: not a time of arrival (rule:" in message
        assert rule in message and message.rstrip().endswith("-> correct the line")
    assert made.inference_calls == (0, 0)
    assert not made.home.run(key).exists()
    path.write_bytes(LINES.encode())
    assert tasc(made, monkeypatch, "collect", key) == 0, "corrected, the same window is collected"
    assert made.inference_calls == (4, 4)


def test_the_file_is_looked_at_when_the_plan_is_made(made: World) -> None:
    path = follow(made)
    key = seal.seal(made.home, "first", seal.SealOptions(lead_s=0.0), now()).window_key

    def refused(kind: type[InputError], *parts: str) -> None:
        with pytest.raises(kind) as refusal:
            plan.make_plan(made.home, key, now(), write=True)
        assert all(part in str(refusal.value) for part in parts)

    path.write_bytes(b"x\n")
    refused(InputError, "first/arrivals.txt:1", "correct the line")
    path.write_bytes(b"0\n1\n")
    refused(DigestMismatch, "load_model.trace_digest", arrivals_digest((0.0, 1.0)), "restore the file")
    path.unlink()
    refused(InputError, "first/arrivals.txt", "not there", "put the file beside study.toml")
    path.write_bytes(LINES.encode())
    plan.make_plan(made.home, key, now(), write=True)


def test_a_trace_that_is_too_short_for_the_pairs_is_refused_with_both_numbers(made: World) -> None:
    path = follow(made, arrivals_digest((0.0, 1.0)))
    path.write_bytes(b"5\n6\n")
    key = seal.seal(made.home, "first", seal.SealOptions(lead_s=0.0), now()).window_key
    with pytest.raises(InputError, match="2 arrivals for 4 pairs"):
        plan.make_plan(made.home, key, now(), write=True)
