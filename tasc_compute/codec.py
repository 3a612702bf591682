"""Contracts to and from JSON, in the published camelCase names. Strict: an unknown or missing field is an error.

One reflective codec instead of a pair of functions per record: the dataclasses are the schema. A union is told apart
by its ``kind`` or ``ok`` literal.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import (
    Any,  # annotations are values here: their type is whatever a dataclass declares
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tasc_compute.errors import ContractError

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None
T = TypeVar("T")


def json_name(name: str) -> str:
    """``memory_total_bytes`` to ``memoryTotalBytes``; a trailing underscore (a Python keyword) is dropped."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


def to_json(value: object) -> Json:
    """The JSON form of a contract value.

    Raises:
        ContractError: the value holds something that is no contract.
    """
    if isinstance(value, StrEnum):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out: dict[str, Json] = {}
        for item in dataclasses.fields(value):
            content = getattr(value, item.name)
            if content is None and item.metadata.get("omit_none"):
                continue
            out[json_name(item.name)] = to_json(content)
        return out
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item) for item in value]
    raise ContractError("value is no contract", field=type(value).__name__)


def from_json(cls: type[T], value: object, *, where: str | None = None) -> T:
    """Read one contract type from decoded JSON.

    Args:
        cls: the dataclass to read.
        value: what ``json.loads`` gave.
        where: file or record that is named in the error.

    Raises:
        ContractError: a field is unknown, missing or of another type; the message names it, never its value.
    """
    result = _decode(cls, value, cls.__name__, where)
    assert isinstance(result, cls)  # noqa: S101  # narrows for the type checker: _decode built exactly this class
    return result


def loads(cls: type[T], data: bytes, *, where: str | None = None) -> T:
    """Read one contract type from JSON bytes.

    Raises:
        ContractError: the bytes are not JSON, or not this contract.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ContractError("not JSON", where=where, way_out="remove the file if its engine is gone") from None
    return from_json(cls, value, where=where)


def dumps(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and a final newline: the form of every file that this package writes."""
    return (json.dumps(to_json(value), sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


@cache
def _hints(cls: type) -> dict[str, Any]:  # Any: an annotation
    return get_type_hints(cls)


def _fail(path: str, where: str | None, what: str) -> ContractError:
    return ContractError(what, where=where, field=path, way_out="restore the file or remove it")


def _decode(kind: Any, value: object, path: str, where: str | None) -> object:  # Any: an annotation
    origin = get_origin(kind)
    if origin is Literal:
        if value in get_args(kind) and type(value) in {type(arg) for arg in get_args(kind)}:
            return value
        raise _fail(path, where, "has another fixed value")
    if origin is Union or origin is types.UnionType:
        return _decode_union(get_args(kind), value, path, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _fail(path, where, "must be a list")
        return tuple(_decode(get_args(kind)[0], item, f"{path}[{i}]", where) for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _fail(path, where, "must be an object")
        key_kind, item_kind = get_args(kind)
        return {
            _decode(key_kind, k, path, where): _decode(item_kind, v, f"{path}.{k}", where) for k, v in value.items()
        }
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, value, path, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if isinstance(value, str) and value in {str(member) for member in kind}:
            return kind(value)
        raise _fail(path, where, f"must be one of {', '.join(kind)}")
    if kind is float and type(value) in (int, float):
        return value
    if type(value) is kind:
        return value
    raise _fail(path, where, f"must be of type {getattr(kind, '__name__', 'null')}")


def _decode_union(kinds: tuple[Any, ...], value: object, path: str, where: str | None) -> object:  # Any: annotations
    if value is None and type(None) in kinds:
        return None
    real = [kind for kind in kinds if kind is not type(None)]
    if len(real) == 1:
        return _decode(real[0], value, path, where)
    if isinstance(value, dict):
        for kind in real:
            tags = {n: h for n, h in _hints(kind).items() if get_origin(h) is Literal}
            if tags and all(json_name(n) in value and value[json_name(n)] in get_args(h) for n, h in tags.items()):
                return _decode_record(kind, value, path, where)
    raise _fail(path, where, "is none of the known kinds")


def _decode_record(kind: Any, value: object, path: str, where: str | None) -> object:  # Any: a dataclass type
    if not isinstance(value, dict):
        raise _fail(path, where, "must be an object")
    hints = _hints(kind)
    known = {json_name(item.name): item for item in dataclasses.fields(kind)}
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise _fail(f"{path}.{unknown[0]}", where, "is not a field of this record")
    arguments: dict[str, object] = {}
    for name, item in known.items():
        if name in value:
            arguments[item.name] = _decode(hints[item.name], value[name], f"{path}.{name}", where)
        elif not item.metadata.get("omit_none"):
            raise _fail(f"{path}.{name}", where, "is missing")
    return kind(**arguments)
