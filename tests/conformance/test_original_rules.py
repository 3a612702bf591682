"""The second writing of the original's acceptance takes its own example traces, and nothing that differs from them anywhere."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from tests.support import original_rules
from tests.support.original_rules import Rules, broken

INTEROP = Path(__file__).resolve().parents[3] / "shared" / "interop"
pytestmark = pytest.mark.skipif(not INTEROP.is_dir(), reason="the interop files are not beside this repository")


def value(name: str) -> Any:
    return json.loads((INTEROP / name).read_bytes())


def lines(name: str) -> list[bytes]:
    return (INTEROP / name).read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def rules() -> Rules:
    protocol = value("protocol.json")
    return Rules(protocol, original_rules.digest("tasc/experiment-protocol/v2", protocol))


def test_the_examples_are_accepted_with_their_manifest_and_plan(rules: Rules) -> None:
    assert broken(lines("development-traces.ndjson"), rules) == []
    window = Rules(rules.protocol, rules.protocol_digest, value("window-manifest.json"), value("shadow-run-plan.json"))
    assert broken(lines("online-traces.ndjson"), window) == []


def places(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every member of a JSON value."""
    members = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for name, child in members:
        yield (*path, name)
        yield from places(child, (*path, name))


def test_a_trace_that_differs_anywhere_is_refused(rules: Rules) -> None:
    """Each member left out, each made null or another, one added to each object: signatures bind what forms allow."""
    taken = []
    line = lines("online-traces.ndjson")[0]
    trace = json.loads(line)
    for path in places(trace):
        for change in ("gone", "null", "other", "more"):
            changed = copy.deepcopy(trace)
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            member = holder[path[-1]]
            if change == "gone":
                del holder[path[-1]]
            elif change == "null":
                holder[path[-1]] = None
            elif change == "other":
                holder[path[-1]] = f"{member}-x" if isinstance(member, str) else [member]
            elif isinstance(member, dict):
                member["more"] = 1
            data = rfc8785.dumps(changed) + b"\n"
            if data != line and not broken([data], rules):
                taken.append((path, change))
    assert taken == []


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.rstrip(b"\n"),
        lambda line: line.replace(b'":"', b'": "', 1),
        lambda line: line.replace(b'{"attempts"', b'{"version":"tasc-trace-envelope-v2","attempts"', 1),
        lambda line: b"\xef\xbb\xbf" + line,
        lambda line: line.replace(b'"split":"dev"', b'"split":"d\\u0065v"', 1),
    ],
    ids=["no line end", "white space", "a key twice", "byte order mark", "an escape that is not needed"],
)
def test_other_bytes_of_the_same_trace_are_refused(change: Any, rules: Rules) -> None:
    line = lines("development-traces.ndjson")[0]
    assert change(line) != line
    assert broken([change(line)], rules) != []


def test_a_set_is_refused_for_what_its_traces_say_together(rules: Rules) -> None:
    online = lines("online-traces.ndjson")
    window = Rules(rules.protocol, rules.protocol_digest, value("window-manifest.json"), value("shadow-run-plan.json"))
    assert "trace ids are unique" in broken([*online, online[0]], window)
    assert broken(online[1:], window) == ["trace set digest"]
    other = copy.deepcopy(value("shadow-run-plan.json"))
    other["workBudget"]["maxLogicalExecutions"] = 1
    assert broken(online, Rules(rules.protocol, rules.protocol_digest, None, other)) == [
        "plan digest",
        "within the work budget",
    ]
