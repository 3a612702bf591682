"""Records that a person writes in TOML: Python names as keys, comments kept where a command edits them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import tomlkit
from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import Record, input_error
from tasc_collector.errors import InputError
from tasc_collector.limits import RECORD_MAX_BYTES

R = TypeVar("R", bound=Record)
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")
"""How ``tomllib`` says where; only the number is taken, for the rest of a message may quote the file."""


def read_toml(cls: type[R], path: Path) -> R:
    """Read a record from a TOML file.

    Raises:
        InputError: the file is missing, too large, no TOML, or a field is unknown, missing or breaks its rule.
    """
    value = _read(path)
    try:
        return cls.model_validate_json(canonical_bytes(value), by_name=True, by_alias=False)
    except ValidationError as error:
        problem = input_error(error, where=str(path))
        raise InputError(
            problem.what,
            where=str(path),
            field=None if problem.field is None else ".".join(to_snake(part) for part in problem.field.split(".")),
            way_out=problem.way_out,
        ) from None


def toml_version(path: Path) -> str:
    """The schema id that a TOML file names in ``version``; empty where it names none.

    Raises:
        InputError: as ``read_toml``.
    """
    return _text(path, "version")


def toml_schema(path: Path) -> str:
    """The same of ``schema``, which engine recipes have instead.

    Raises:
        InputError: as ``read_toml``.
    """
    return _text(path, "schema")


def _text(path: Path, key: str) -> str:
    value = _read(path).get(key)
    return value if isinstance(value, str) else ""


def _read(path: Path) -> dict[str, Any]:  # Any: a TOML document
    where = str(path)
    if path.is_symlink() or not path.is_file():
        raise InputError(
            "there is no such file", where=where, way_out="check the name, or make it with: tasc study new"
        )
    data = path.read_bytes()
    if len(data) > RECORD_MAX_BYTES:
        raise InputError(
            "the file is too large", where=where, rule=f"at most {RECORD_MAX_BYTES} bytes", way_out="restore the file"
        )
    return parse_toml(data, where=where)


def parse_toml(data: bytes, *, where: str) -> dict[str, Any]:  # Any: a TOML document
    """The document of a TOML file.

    Args:
        data: its bytes.
        where: its name, for messages.

    Raises:
        InputError: it is no TOML; names the line, and shows nothing of the file.
    """
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line, rule, way_out = data.count(b"\n", 0, error.start) + 1, "UTF-8", "save the file as UTF-8"
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        if found is not None:
            line, rule, way_out = int(found[1]), "TOML 1.0", "correct the line"
        else:  # tomllib says "at end of document"
            line = data.rstrip(b"\n").count(b"\n") + 1
            rule, way_out = "TOML 1.0; the file ends within a value", "complete the file, or restore it"
    except RecursionError:
        line, rule, way_out = 1, "not nested deeper than a record is", "restore the file"
    raise InputError("not valid TOML", where=f"{where}:{line}", rule=rule, way_out=way_out)


def dump_toml(record: Record, comments: dict[str, str] | None = None) -> bytes:
    """The TOML form of a record; nulls are left out, ``comments`` (field to line) stand above their field."""
    document = tomlkit.document()
    plain = dict(_without_null(record.model_dump(mode="json", by_alias=False)))
    scalars = {key: value for key, value in plain.items() if not isinstance(value, dict) and not _is_table_list(value)}
    for key, value in (*scalars.items(), *((key, value) for key, value in plain.items() if key not in scalars)):
        if comments and key in comments:
            document.add(tomlkit.comment(comments[key]))
        document.add(key, tomlkit.item(value))
    return tomlkit.dumps(document).encode()


def _is_table_list(value: Any) -> bool:  # Any: a JSON value
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _without_null(value: Any) -> Any:  # Any: a JSON value
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value
