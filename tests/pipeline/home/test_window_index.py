"""What the index says of windows whose records are missing or cannot be read."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import INDEX, WindowFacts, window_facts
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
OTHER = "second.r01-00000000"


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


def settled(home: Home) -> dict[str, WindowFacts]:
    return window_facts(home, now_ns=lambda: LONG_AFTER_NS)


def seal(home: Home, *keys: str, study: str = "first") -> None:
    for key in keys:
        home.window(key).mkdir(exist_ok=True)
        (home.window(key) / DECLARATION).write_text(json.dumps(SAID | {"studyId": study}))


def test_facts_are_remembered_and_only_the_folder_that_changed_is_read_again(home: Home) -> None:
    seal(home, KEY, OTHER)
    before = settled(home)
    assert all(settled(home)[key] is before[key] for key in (KEY, OTHER))
    (home.window(OTHER) / DECLARATION).unlink()
    seal(home, OTHER, study="another")
    after = settled(home)
    assert after[KEY] is before[KEY] and after[OTHER].study_id == "another"
    assert list(after) == [KEY, OTHER]


def test_what_is_remembered_ends_with_the_index_that_says_it(home: Home) -> None:
    seal(home, KEY)
    settled(home)
    seal(home, KEY, study="another")  # written in its place: the folder's time stays the same
    assert settled(home)[KEY].study_id == "first"
    (home.windows / INDEX).unlink()
    assert settled(home)[KEY].study_id == "another"
    assert "another" in (home.windows / INDEX).read_text()


def test_an_index_of_another_shape_is_made_again(home: Home) -> None:
    seal(home, KEY, OTHER)
    known, index = settled(home), home.windows / INDEX
    good = index.read_bytes()
    value = json.loads(good)
    for columns in (value["columns"][:-1], [column[:1] for column in value["columns"][:2]] + value["columns"][2:], 7):
        index.write_text(json.dumps(value | {"columns": columns}))
        assert settled(home) == known and index.read_bytes() == good


def test_what_another_process_wrote_is_seen(home: Home) -> None:
    seal(home, KEY)
    assert list(settled(home)) == [KEY]
    seal(home, OTHER)
    script = (
        "import pathlib, sys; from tasc_pipeline.home.layout import Home;"
        "from tasc_pipeline.home.window_index import window_facts;"
        "print(*window_facts(Home(pathlib.Path(sys.argv[1])), now_ns=lambda: 2**62))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, home.root], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [KEY, OTHER] == list(settled(home))
    assert OTHER in (home.windows / INDEX).read_text()


def test_a_window_that_is_moved_away_is_gone_and_what_is_no_folder_is_no_window(home: Home) -> None:
    seal(home, KEY, OTHER)
    (home.windows / "file").write_text("{}")
    (home.windows / "link").symlink_to(home.window(KEY), target_is_directory=True)
    assert list(settled(home)) == [KEY, OTHER]
    shutil.rmtree(home.window(KEY))
    assert list(settled(home)) == [OTHER]
    assert KEY not in (home.windows / INDEX).read_text()


def test_sensors_that_look_at_the_same_time_see_the_same_and_leave_a_whole_index(home: Home) -> None:
    keys = [f"w{number:03d}.r01-00000000" for number in range(100)]
    seal(home, *keys)
    with ThreadPoolExecutor(8) as threads:
        looks = list(threads.map(settled, [home] * 16))
    assert all(list(look) == keys for look in looks)
    assert json.loads((home.windows / INDEX).read_bytes())["columns"][1] == keys


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_collection_is_as_it_was_after_the_index_was_read(home: Home, was_on: bool) -> None:
    seal(home, KEY)
    settled(home)
    os.utime(home.windows / INDEX, ns=(0, 0))  # read anew
    on_before = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        settled(home)
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if on_before else gc.disable)()
