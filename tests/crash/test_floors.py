"""A whole run of the crash suites that takes fewer points than it promises fails; a part of them does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.crash_floors import is_whole, missed

SAMPLE = {
    "kill points of the runner": 1_085,
    "of these with a power loss": 585,
    "power losses under real system calls (FUSE)": 40,
    "kills at system calls of a real process of the runner": 24,
    "flipped bits of sealed journals, all detected": 3_000,
    "calls settled as unknown after a kill": 660,
}
"""Counts of a run that takes a sample."""
FOLDER = Path("/tree/tests/crash")


def test_the_counts_of_a_usual_run_are_enough() -> None:
    assert missed(SAMPLE, full=False, tools={"strace"}) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kill points of the runner": 999}, "999 kill points, at least 1000 are promised"),
        ({"of these with a power loss": 250}, "290 power losses, at least 300 are promised"),
        (
            {"kills at system calls of a real process of the runner": 0},
            "0 kills at system calls, at least 12 are promised",
        ),
        ({"flipped bits of sealed journals, all detected": 1_999}, "1999 flipped bits, at least 2000 are promised"),
    ],
)
def test_each_shortfall_is_said(changed: dict[str, int], said: str) -> None:
    assert missed(SAMPLE | changed, full=False, tools={"strace"}) == [said]


def test_every_point_is_more_than_a_sample_and_a_missing_tool_has_no_floor() -> None:
    assert missed(SAMPLE, full=True, tools={"strace"}) == [
        "1085 kill points, at least 10000 are promised",
        "24 kills at system calls, at least 300 are promised",
    ]
    assert missed(SAMPLE, full=True, tools=()) == ["1085 kill points, at least 10000 are promised"]


@pytest.mark.parametrize(
    ("args", "marked", "keyword", "whole"),
    [
        (["tests/crash", "tests/compute", "tests/pipeline"], "crash", "", True),
        (["tests"], "crash", "", True),
        (["tests/crash"], "crash", "power", False),
        (["tests/crash"], "", "", False),
        (["tests/crash/test_tamper.py"], "crash", "", False),
        (["tests/pipeline"], "crash", "", False),
    ],
)
def test_only_a_run_of_all_of_them_is_held_to_it(args: list[str], marked: str, keyword: str, *, whole: bool) -> None:
    assert is_whole(FOLDER, Path("/tree"), args, marked=marked, keyword=keyword) is whole
