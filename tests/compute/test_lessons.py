"""The 48 lessons that peers' bug reports teach an engine's launcher: each is named by a test that asserts it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
LESSONS = range(1, 49)
NAMED = re.compile(r"Lessons? ((?:\d+(?:, | and )?)+)")


def named_lessons(path: Path) -> set[int]:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    said = [ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")]
    return {int(number) for text in said for group in NAMED.findall(text) for number in re.findall(r"\d+", group)}


def test_every_lesson_is_named_by_a_test() -> None:
    found: set[int] = set()
    for path in (*TESTS.glob("compute/**/test_*.py"), *TESTS.glob("live/test_*.py")):
        found |= named_lessons(path)
    assert found == set(LESSONS)
