"""No test waits without a limit: one that hangs costs its whole run, and says nothing about why.

What goes past these limits, ``faulthandler_timeout`` in ``pyproject.toml`` ends with the stack of every thread.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEED_TIMEOUT = {
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "socket.create_connection",
    "urllib.request.urlopen",
}
"""Calls that need the keyword ``timeout``; ``create_connection`` takes it as its second argument too."""
WAITS = {"wait", "join", "communicate"}
"""Methods of processes, threads and events; a limit is their argument. A coroutine's limit is its event loop's."""


def _unbounded(tree: ast.AST) -> Iterator[int]:
    """Lines of calls that may wait for ever."""
    awaited = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.Await)
        or (isinstance(outer, ast.Call) and ast.unparse(outer.func).startswith("asyncio."))
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in awaited:
            continue
        limits = {keyword.arg for keyword in node.keywords} & {"timeout", None}
        name = ast.unparse(node.func)
        if name in NEED_TIMEOUT:
            if not limits and not (name.endswith("create_connection") and len(node.args) > 1):
                yield node.lineno
        elif isinstance(node.func, ast.Attribute) and node.func.attr in WAITS and not node.args and not limits:
            yield node.lineno


def test_every_wait_of_a_test_has_a_limit() -> None:
    """A process, thread, event or connection is waited for with a timeout."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in _unbounded(ast.parse(path.read_text()))]
    assert found == []
    assert len(files) > 100


def test_a_wait_without_a_limit_is_found() -> None:
    code = (
        "p.wait()\np.wait(3)\nawait e.wait()\nsubprocess.run(a)\nsubprocess.run(a, timeout=3)\n', '.join(x)\nt.join()\n"
    )
    assert list(_unbounded(ast.parse(code))) == [1, 4, 7]
