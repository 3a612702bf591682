"""Checking record files of any kind: JSON, NDJSON and the TOML that a person writes, engine recipes among it.

Every file is checked, also after one that is wrong. A wrong one is named with field, rule and way out; nothing of its
content is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_collector.contracts.base import Record, json_object
from tasc_collector.contracts.catalogue import record_class
from tasc_collector.contracts.decision_answers import DecisionAnswers
from tasc_collector.contracts.study import EndpointFile, Study
from tasc_collector.errors import InputError, TascError, WireError
from tasc_collector.limits import RECORD_FILE_MAX_BYTES, RECORD_MAX_BYTES
from tasc_collector.wire.json import RECORD_JSON, parse_json
from tasc_collector.wire.records import read_bounded
from tasc_compute.errors import ComputeError
from tasc_compute.limits import MAX_RECIPE_BYTES
from tasc_compute.recipes import SCHEMA as RECIPE
from tasc_compute.recipes import parse_recipe
from tasc_pipeline.home.toml_records import read_toml, toml_schema, toml_version

TOML_RECORDS: Final[tuple[type[Record], ...]] = (Study, EndpointFile, DecisionAnswers)
"""Records that are written in TOML; the field ``version`` says which one a file is. A recipe says so in ``schema``."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One file: what it is and its digest, or what is wrong with it."""

    path: Path
    kind: str
    digest: str
    error: TascError | None


def check_files(paths: list[Path]) -> Iterator[Checked]:
    """Every record of every file, in order."""
    for path in paths:
        try:
            yield from (Checked(path, kind, found, None) for kind, found in list(_records(path)))
        except TascError as error:
            yield Checked(path, "", "", error)


def _records(path: Path) -> Iterator[tuple[str, str]]:
    """Class name and digest of each record of a file."""
    if path.suffix == ".toml":
        if toml_schema(path) == RECIPE:
            yield _recipe(path)
            return
        record = _toml(path)
        yield type(record).__name__, record.digest
        return
    if path.suffix in (".ndjson", ".jsonl"):
        lines = read_bounded(path, RECORD_FILE_MAX_BYTES).split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        if not lines:
            raise InputError("the file holds no record", where=str(path), way_out="name another file")
        for number, line in enumerate(lines, start=1):
            yield _record(line, f"{path} line {number}")
        return
    yield _record(read_bounded(path, RECORD_MAX_BYTES), str(path))


def _record(data: bytes, where: str) -> tuple[str, str]:
    try:
        value = json_object(parse_json(data, RECORD_JSON), where=where)
    except WireError as error:
        at = f" at byte {error.offset}" if error.offset is not None else ""
        raise InputError(
            f"not a JSON record{at}", where=where, rule=error.code, way_out="correct the file, or write it again"
        ) from None
    cls = record_class(value, where=where)
    return cls.__name__, cls.digest_of(cls.from_value(value, where=where).value)


def _recipe(path: Path) -> tuple[str, str]:
    """A recipe has no canonical form: its digest is that of its bytes."""
    data = read_bounded(path, MAX_RECIPE_BYTES)
    try:
        recipe = parse_recipe(data, str(path), path.parent.absolute())
    except ComputeError as error:
        raise InputError(
            error.what, where=error.where, field=error.field, rule=error.rule, way_out=error.way_out
        ) from None
    return type(recipe).__name__, f"sha256:{hashlib.sha256(data).hexdigest()}"


def _toml(path: Path) -> Record:
    version = toml_version(path)
    known = {str(cls.model_fields["version"].default): cls for cls in TOML_RECORDS}
    cls = known.get(version)
    if cls is None:
        raise InputError(
            "the file does not say which record it is",
            where=str(path),
            field="version",
            rule=f"one of {', '.join(known)}; of a recipe, schema = {RECIPE}",
            way_out="add the line that says which",
        )
    return read_toml(cls, path)
