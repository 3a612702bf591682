from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasc_collector.errors import InputError, TascError
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import DECLARATION, LINK, PLAN, REPORT, WindowFolder
from tasc_pipeline.steps import collect, publish
from tasc_pipeline.steps.assess import assess
from tasc_pipeline.steps.earlier import earlier_windows
from tasc_pipeline.steps.plan import make_plan, measured_pace
from tasc_pipeline.steps.seal import SealOptions, seal
from tests.support.window import World, now, world

pytestmark = pytest.mark.usefixtures("undrawn")


def _recurring(found: World) -> None:
    """Make the study a recurring one, as an operator does before the first window."""
    path = found.home.study("first") / "comparison.json"
    text = path.read_text()
    assert text.count('"recurring":false') == 1
    path.write_text(text.replace('"recurring":false', '"recurring":true'))


def _collected(found: World) -> str:
    key = found.approved_window()
    collect.collect(found.home, key, show=lambda _: None)
    publish.publish(found.home, key)
    return key


def test_a_recurring_study_goes_on_from_its_earlier_windows_and_loses_none(tmp_path: Path) -> None:
    with world(tmp_path) as found:
        _recurring(found)
        first = _collected(found)
        one = assess(found.home, first)
        assert one.comparisons[0].sequence is not None
        assert (one.comparisons[0].sequence.windows, one.comparisons[0].sequence.earlier_windows) == (1, ())
        second = _collected(found)
        two = assess(found.home, second)
        assert two.comparisons[0].sequence is not None
        assert two.comparisons[0].sequence.earlier_windows == (first,)
        (WindowFolder(found.home, first).path / REPORT).write_text("{")
        with pytest.raises(InputError, match="an earlier window cannot be read") as damaged:
            earlier_windows(found.home, two.protocol_digest)
        assert damaged.value.way_out == f"run: tasc assess {first}"
        assert assess(found.home, first).digest == one.digest
        assert len(earlier_windows(found.home, two.protocol_digest)["candidate-llama.cpp"]) == 2
        assert earlier_windows(found.home, "sha256:" + "0" * 64) == {}
        _a_plan_expects_the_time_that_the_newest_window_took(found, second)
        (WindowFolder(found.home, first).path / REPORT).unlink()
        with pytest.raises(InputError) as refusal:
            assess(found.home, second)
        assert refusal.value.way_out == f"run: tasc assess {first}"


def _a_plan_expects_the_time_that_the_newest_window_took(found: World, newest: str) -> None:
    """Six pairs, one call after the other, two pairs at once."""
    key = seal(found.home, "first", SealOptions(lead_s=600), now()).window_key
    pace = measured_pace(found.home, key)
    assert pace is not None and pace.seconds_per_call is not None and 0.001 < pace.seconds_per_call < 1
    assert pace.basis == f"{pace.seconds_per_call:.3g} s per call, as measured in {newest}"
    _, estimate = make_plan(found.home, key, now(), write=False, pace=pace)
    assert estimate.minutes == round(6 * 2 * pace.seconds_per_call / 2 / 60, 2)


def test_a_window_of_other_rules_is_not_verified_and_an_unreadable_one_is_not_passed_over(tmp_path: Path) -> None:
    with world(tmp_path) as found:
        rules = load_study(found.home, "first").rules.digest
        folder = found.home.window(seal(found.home, "first", SealOptions(lead_s=60), now()).window_key)
        counts = {"planned": 1, "accepted": 1, "notSent": 0, "notAttempted": 0}
        link = {"closedAt": "2026-03-01T00:00:00.000Z", "planDigest": rules, "counts": counts}
        (folder / LINK).write_text(json.dumps(link))  # closed, as the index sees it; nobody signed this
        text = (folder / DECLARATION).read_text()
        assert text.count(rules) == 1
        with pytest.raises(InputError):
            earlier_windows(found.home, rules)
        (folder / DECLARATION).unlink()
        (folder / DECLARATION).write_text(text.replace(rules, "sha256:" + "0" * 64))  # the signature holds no more
        assert earlier_windows(found.home, rules) == {}
        (folder / DECLARATION).unlink()
        (folder / DECLARATION).write_text("{")
        with pytest.raises(TascError, match="an earlier window cannot be read") as refused:
            earlier_windows(found.home, rules)
        assert f"move windows/{folder.name} out of the state folder" in str(refused.value.way_out)
        (folder / PLAN).write_text(json.dumps({"protocolDigest": "sha256:" + "0" * 64}))
        assert earlier_windows(found.home, rules) == {}, "its plan says that it is of other rules"
