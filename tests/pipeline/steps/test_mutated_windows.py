"""Every field of every file that a window is sent on, removed, retyped, or joined by an unknown one: nothing is sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import TascError
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import APPROVAL, CASE_SET, DECLARATION, PLAN
from tasc_pipeline.steps import collect
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.prepare import prepare_window
from tests.support.authorized import authorized
from tests.support.mutations import CANARY, places
from tests.support.window import World, now, world

Find = Callable[[World, str], Path]
FILES: dict[str, Find] = {
    "declaration": lambda made, key: made.home.window(key) / DECLARATION,
    "plan": lambda made, key: made.home.window(key) / PLAN,
    "case set": lambda made, key: made.home.window(key) / CASE_SET,
    "approval": lambda made, key: made.home.window(key) / APPROVAL,
    "authorization": lambda made, key: made.home.authorizations("first") / "hourly.json",
    "comparison": lambda made, key: made.home.study("first") / load_study(made.home, "first").study.protocol,
    "trust policy": lambda made, key: made.home.study("first") / load_study(made.home, "first").study.trust_policy,
    "key ring": lambda made, key: made.home.key_ring,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("mutated"), cases=1, recurring=True) as found:
        authorized(found.home)
        yield found


@pytest.fixture(scope="module")
def windows(made: World) -> tuple[str, str]:
    """A window that a person approved, and one under an authorization."""
    ahead = prepare_window(made.home, "first", format_timestamp(now()), now(), lead_s=3_000)
    return made.approved_window(lead_s=3_000), ahead.window_key


def changes(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:  # Any: a JSON object
    """The value with one field removed, one of another type, or one more field; and which."""
    for place in places(value):
        for how in ("removed", "retyped", "added"):
            changed = copy.deepcopy(value)
            parent: Any = changed  # Any: a JSON value
            for part in place[:-1]:
                parent = parent[part]
            if how == "added":
                parent = parent if isinstance(parent, dict) else changed
                parent["unknownField"] = CANARY
            else:
                item = parent.pop(place[-1])
            if how == "retyped":
                other = {CANARY: 1} if isinstance(item, (str, list)) or item is None else [CANARY]
                parent.insert(0, other) if isinstance(parent, list) else parent.update({place[-1]: other})
            yield f"{'.'.join(map(str, place))} {how}", changed


@pytest.mark.parametrize("name", FILES)
def test_no_changed_field_of_a_file_lets_a_window_be_sent(made: World, windows: tuple[str, str], name: str) -> None:
    key = windows[0] if name == "approval" else windows[1]
    path = FILES[name](made, key)
    whole = path.read_bytes()
    tried = 0
    try:
        for what, changed in changes(json.loads(whole)):
            path.write_bytes(canonical_bytes(changed))
            with pytest.raises(TascError) as refused:
                load_approved(made.home, key)
                pytest.fail(f"{name}: {what} was not refused")
            assert refused.value.way_out and CANARY not in str(refused.value), what
            tried += 1
        with pytest.raises(TascError):
            collect.collect(made.home, key, show=lambda _: None)
    finally:
        path.write_bytes(whole)
    assert tried >= 15 and made.inference_calls == (0, 0) and not made.home.run(key).exists()
    assert load_approved(made.home, key).window_key == key, "as it was, it may be sent"
