"""Every field of a record removed, retyped, and joined by an unknown one: each must be refused by the field's name."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import pytest

from tasc_collector.contracts.base import Record
from tasc_collector.errors import InputError

Place: TypeAlias = tuple[str | int, ...]
CANARY = "canary-value-5d1f"
"""What is put in; no message may show it."""


def places(value: Any, path: Place = ()) -> Iterator[Place]:  # Any: a JSON value
    """Every member of every object, and the first item of every list."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*path, name)
            yield from places(item, (*path, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def _parent(value: Any, place: Place) -> Any:  # Any: JSON values
    for part in place[:-1]:
        value = value[part]
    return value


def _refusal(cls: type[Record], value: Any) -> str:  # Any: a JSON value
    with pytest.raises(InputError) as caught:
        cls.from_value(value, where="file.json")
    assert CANARY not in str(caught.value)
    assert caught.value.way_out
    assert caught.value.where == "file.json"
    return caught.value.field or ""


def check_every_field(
    cls: type[Record], value: dict[str, Any], *, optional: Collection[str] = (), untouched: Collection[str] = ()
) -> None:  # Any: a JSON object
    """Assert that each change of one field is refused and that the refusal names the field.

    Args:
        cls: the record's class.
        value: a valid JSON value of it; it is not changed.
        optional: names of members that may be absent.
        untouched: names of top-level members whose insides are tested elsewhere.
    """
    for place in places(value):
        if len(place) > 1 and place[0] in untouched:
            continue
        name = ".".join(map(str, place))
        changed = copy.deepcopy(value)
        parent = _parent(changed, place)
        item = parent.pop(place[-1])
        if place[-1] not in optional:
            assert _refusal(cls, changed) == name
        parent[place[-1]] = {CANARY: 1} if isinstance(item, (str, list)) or item is None else [CANARY]
        assert _refusal(cls, changed).startswith(name)
        parent[place[-1]] = item
        parent["unknownField"] = CANARY
        assert _refusal(cls, changed) == ".".join(map(str, (*place[:-1], "unknownField")))
