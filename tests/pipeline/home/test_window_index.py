"""What the index says of windows whose records are missing or cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import INDEX, window_facts
from tasc_pipeline.home.windows import DECLARATION, LINK, PLAN

KEY = "first.r01-00000000"
SAID = {
    "studyId": "first",
    "studyKind": "comparison",
    "protocolDigest": "sha256:" + "0" * 64,
    "windowId": "first",
    "revision": 1,
    "eventTimeStartInclusive": "2026-01-01T00:00:00.000Z",
    "eventTimeEndExclusive": "2026-01-01T01:00:00.000Z",
    "ingestionWatermark": "2026-01-01T02:00:00.000Z",
}
LONG_AFTER_NS = 2**62


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "windows" / KEY).mkdir(parents=True)
    return Home(tmp_path)


def test_a_closed_window_without_its_declaration_is_not_lost(home: Home) -> None:
    assert window_facts(home) == {}, "nothing was sealed here"
    (home.window(KEY) / LINK).write_text("{}")
    found = window_facts(home)[KEY]
    assert (found.readable, found.window_key, found.study_id) == (False, KEY, "")


@pytest.mark.parametrize("name", [DECLARATION, PLAN, LINK])
def test_a_record_that_the_system_does_not_read_makes_its_window_unreadable(home: Home, name: str) -> None:
    (home.window(KEY) / DECLARATION).write_text(json.dumps(SAID))
    assert window_facts(home)[KEY].readable
    (home.window(KEY) / name).unlink(missing_ok=True)
    (home.window(KEY) / name).mkdir()
    assert window_facts(home)[KEY].readable is False


def test_a_file_that_is_put_right_in_its_place_is_read_again(home: Home) -> None:
    path = home.window(KEY) / DECLARATION
    path.write_text("{")
    assert window_facts(home, now_ns=lambda: LONG_AFTER_NS)[KEY].readable is False
    path.write_text(json.dumps(SAID))  # the folder's time stays the same
    assert window_facts(home, now_ns=lambda: LONG_AFTER_NS)[KEY].study_id == "first"
    assert KEY in (home.windows / INDEX).read_text()
